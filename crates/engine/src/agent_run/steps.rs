//! The steps of a workflow as they are written: whether they make sense, and what one step gets from those before it.

use std::collections::{BTreeMap, BTreeSet};

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus, WorkflowStep},
    reason::Reason,
};
use serde_json::{Value, json};

use super::task::{Step, Task, name, not_negative, steps};
use crate::{
    decision::Rejection,
    job::RETRIES_MAX,
    template::{self, STEPS},
};

/// The most steps of a run. Its status keeps what each of them reported, up to 4 KiB.
const STEPS_MAX: usize = 100;
/// The longest first wait before a retry, in seconds: a day. What is longer is a schedule.
const BACKOFF_SECONDS_MAX: u32 = 86_400;

/// What is known of the steps before one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Earlier<'a> {
    /// They have not run: this is to find out whether the step makes sense.
    NotRun,
    /// What they reported: `{"NAME": {"outputs": {…}}}`.
    Ran(&'a Value),
}

/// Whether the steps make sense by themselves. Each is checked as a run of its own as well, see `start`.
pub(super) fn check(run: &AgentRun) -> Result<(), Rejection> {
    let steps = steps(run);
    if steps.is_empty() {
        return Err(Rejection::new(
            Reason::MissingWorkflowSteps,
            "spec.runtime.type is workflow, and spec.workflow.steps has no step: add one, or use the runtime job",
        ));
    }
    if steps.len() > STEPS_MAX {
        return Err(Rejection::new(
            Reason::InvalidSpec,
            format!(
                "spec.workflow.steps has {} steps, and {STEPS_MAX} are allowed: join some, or make an Orchestration of them",
                steps.len()
            ),
        ));
    }
    let mut names = BTreeSet::new();
    for (index, step) in steps.iter().enumerate() {
        let place = format!("spec.workflow.steps[{index}]");
        check_name(step, &place, &names)?;
        check_numbers(step, &place)?;
        check_references(run, step, &place, &names)?;
        names.insert(name(step));
    }
    Ok(())
}

fn check_name(step: &WorkflowStep, place: &str, earlier: &BTreeSet<&str>) -> Result<(), Rejection> {
    let own = name(step);
    if own.is_empty() {
        return Err(Rejection::new(
            Reason::WorkflowStepMissingName,
            format!("{place}.name is blank: give the step a name that no other step of the run has"),
        ));
    }
    if earlier.contains(own) {
        return Err(Rejection::new(
            Reason::WorkflowStepDuplicate,
            format!("{place}.name is {own:?}, which an earlier step has already: choose another name"),
        ));
    }
    Ok(())
}

fn check_numbers(step: &WorkflowStep, place: &str) -> Result<(), Rejection> {
    for (field, number, most) in [
        ("retries", step.retries, RETRIES_MAX),
        (
            "retryBackoffSeconds",
            step.retry_backoff_seconds,
            BACKOFF_SECONDS_MAX,
        ),
    ] {
        let number = number.map_or(0, not_negative);
        if number > most {
            return Err(Rejection::new(
                Reason::InvalidSpec,
                format!("{place}.{field} is {number}, and {most} is the most: choose a smaller number"),
            ));
        }
    }
    Ok(())
}

/// Whether what the parameters of a step refer to can be there when it starts.
fn check_references(
    run: &AgentRun,
    step: &WorkflowStep,
    place: &str,
    earlier: &BTreeSet<&str>,
) -> Result<(), Rejection> {
    for (key, template) in &step.parameters {
        let field = format!("{place}.parameters.{key}");
        let paths = template::paths(template)
            .map_err(|error| Rejection::new(Reason::InvalidTemplate, format!("{field}: {error}")))?;
        for path in paths {
            if let Some(problem) = problem_with(run, path, earlier) {
                return Err(Rejection::new(
                    Reason::InvalidSpec,
                    format!("{field} refers to {path}, {problem}"),
                ));
            }
        }
    }
    Ok(())
}

/// What is wrong with a path in the parameters of a step.
fn problem_with(run: &AgentRun, path: &str, earlier: &BTreeSet<&str>) -> Option<String> {
    let parts: Vec<&str> = path.split('.').collect();
    match parts.as_slice() {
        [STEPS, step, "outputs", _, ..] if earlier.contains(step) => None,
        [STEPS, step, "outputs", _, ..] => {
            let exists = steps(run).iter().any(|known| name(known) == *step);
            let known: Vec<&str> = earlier.iter().copied().collect();
            Some(format!(
                "and {step} {}: name one of the earlier steps ({})",
                if exists {
                    "does not come before this step"
                } else {
                    "is no step of the run"
                },
                if known.is_empty() {
                    "there is none".to_owned()
                } else {
                    known.join(", ")
                }
            ))
        }
        ["parameters", key] if run.spec.parameters.contains_key(*key) => None,
        ["parameters", key] => Some(format!(
            "and spec.parameters of the run has no {key}: set it there"
        )),
        _ => Some(
            "which is not known here: write {{ steps.NAME.outputs.KEY }} or {{ parameters.KEY }}; a text with braces of its \
             own belongs into spec.parameters of the run, which is passed on as it is"
                .to_owned(),
        ),
    }
}

/// What the steps before one reported, by name.
pub(super) fn reported(task: Task<'_>, status: &AgentRunStatus) -> Value {
    let before = usize::try_from(task.number())
        .unwrap_or(usize::MAX)
        .saturating_sub(1);
    let steps = status.workflow.iter().flat_map(|workflow| &workflow.steps);
    let reports = steps.take(before).filter_map(|step| {
        let outputs = step.outputs.clone().unwrap_or_default();
        Some((step.name.clone()?, json!({"outputs": outputs})))
    });
    Value::Object(reports.collect())
}

/// Whether a task gets values from elsewhere that are known only when it starts.
pub(super) fn awaits_reports(task: Task<'_>) -> bool {
    let refers = |template: &String| template::paths(template).is_ok_and(|paths| !paths.is_empty());
    task.step()
        .is_some_and(|step| step.spec.parameters.values().any(refers))
}

/// The values of a task: those of the run, and over them those of the step. The error is that an earlier step did not report
/// what this one needs.
pub(super) fn parameters(
    task: Task<'_>,
    run: &AgentRun,
    earlier: Earlier<'_>,
) -> Result<BTreeMap<String, String>, Rejection> {
    let mut all = run.spec.parameters.clone();
    let Some(Step { number, spec }) = task.step() else {
        return Ok(all);
    };
    let context = match earlier {
        Earlier::NotRun => {
            all.extend(spec.parameters.clone());
            return Ok(all);
        }
        Earlier::Ran(reports) => json!({STEPS: reports, "parameters": run.spec.parameters}),
    };
    for (key, template) in &spec.parameters {
        let value = template::render(template, &context).map_err(|error| {
            Rejection::new(
                Reason::WorkflowStepFailed,
                format!("spec.workflow.steps[{}].parameters.{key}: {error}", number - 1),
            )
        })?;
        all.insert(key.clone(), value);
    }
    Ok(all)
}
