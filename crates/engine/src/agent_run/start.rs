//! The Job of the next attempt: what it needs before it can be made.

use std::collections::BTreeSet;

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus, RuntimeType, VcsMode},
    labels,
    reason::Reason,
};
use kube::ResourceExt;
use serde_json::Value;

use super::{
    References, Situation, Standing,
    admission::{self, Admission},
    references::{self, Resolved, Unresolved},
    spec_hash,
    stamp::Stamp,
    steps::{self, Earlier},
    task::{self, Description, Task},
};
pub(super) use crate::life::start::{fail, reject};
use crate::{
    decision::{Decision, Effect, NewJob, Plan, Question, Rejection, Sight},
    job::{self, JobRequest, Place, StepOfRun},
    life::start::{Held, held_up, lacking, waits},
    queue,
};

/// What can be done about a run that has not started.
pub(super) enum Next {
    Unsure(Question),
    Waits(Held),
    /// It can never start as it was written.
    Wrong(Rejection),
    /// It cannot go on, because an earlier step did not report what this one needs.
    Fails(Rejection),
    /// Another run is executed in its place.
    Duplicate(String),
    Starts(Vec<Effect>),
}

/// Makes the Job of the next attempt.
pub(super) fn plan(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    carry_on(situation, next(situation))
}

/// What follows if not all that the run refers to is there, or something of it is wrong.
pub(super) fn unresolved(situation: &Situation<'_>, unresolved: Unresolved) -> Decision<AgentRunStatus> {
    carry_on(situation, lacks(situation, unresolved))
}

pub(super) fn carry_on(situation: &Situation<'_>, next: Next) -> Decision<AgentRunStatus> {
    match next {
        Next::Unsure(question) => Decision::look(question),
        Next::Waits(held) => waits(situation, &held),
        Next::Wrong(rejection) => reject(situation, &rejection),
        Next::Fails(why) => fail(situation, &why),
        Next::Duplicate(of) => admission::duplicate(situation, &of),
        Next::Starts(effects) => Decision::Act(Plan {
            effects,
            ..Plan::nothing()
        }),
    }
}

/// Why the run has no Job yet.
pub(super) fn standing(situation: &Situation<'_>) -> Standing {
    next(situation).into()
}

impl From<Next> for Standing {
    fn from(next: Next) -> Self {
        match next {
            Next::Unsure(question) => Self::Unsure(BTreeSet::from([question])),
            Next::Waits(Held { waiting, .. }) => Self::Waits(waiting),
            Next::Wrong(_) | Next::Fails(_) | Next::Duplicate(_) | Next::Starts(_) => Self::Goes,
        }
    }
}

fn next(situation: &Situation<'_>) -> Next {
    match held_up(situation) {
        Ok(None) => {}
        Ok(Some(held)) => return Next::Waits(held),
        Err(rejection) => return Next::Wrong(rejection),
    }
    match first_effects(situation) {
        Err(unresolved) => lacks(situation, unresolved),
        // The queue comes last: nobody has a slot who could not use it.
        Ok(effects) => match slot(situation, Some(situation.job_name())) {
            Some(next) => next,
            None => Next::Starts(effects),
        },
    }
}

pub(super) fn lacks(situation: &Situation<'_>, unresolved: Unresolved) -> Next {
    match unresolved {
        Unresolved::Unsure(question) => Next::Unsure(question),
        Unresolved::Lacking(what) => match lacking(situation, what) {
            Ok(held) => Next::Waits(held),
            Err(rejection) => Next::Wrong(rejection),
        },
        Unresolved::Wrong(rejection) => Next::Wrong(rejection),
        Unresolved::NotReported(why) => Next::Fails(why),
    }
}

/// What follows from what the queue says; nothing if the run may start. Without a Job it is the run itself that takes the slot.
pub(super) fn slot(situation: &Situation<'_>, job: Option<String>) -> Option<Next> {
    match admission::of(situation, job) {
        Admission::Unasked(question) => Some(Next::Unsure(question)),
        Admission::Waits(waiting) => Some(Next::Waits(Held {
            waiting: Box::new(waiting),
            look_at: None,
        })),
        Admission::Duplicate(of) => Some(Next::Duplicate(of)),
        Admission::Granted => None,
    }
}

/// The Job and what it needs, once all that the run refers to is there and allows it.
///
/// Before the first step of a workflow starts, all of them have to be possible: a mistake in the last one would otherwise
/// show when the others have done their work. A step that starts later finds what is there by then, and waits for what is not.
fn first_effects(situation: &Situation<'_>) -> Result<Vec<Effect>, Unresolved> {
    let task = situation.task;
    let is_new = situation.attempt.number == 0;
    let later: Vec<Task<'_>> = task.onwards(situation.run).skip(1).filter(|_| is_new).collect();
    acceptable(situation, &later)?;
    let reports = steps::reported(task, situation.status);
    let effects = effects_of(situation, task, Earlier::Ran(&reports))?;
    for task in later {
        effects_of(situation, task, Earlier::NotRun)?;
    }
    Ok(effects)
}

/// The Job of a task and what it needs.
fn effects_of(
    situation: &Situation<'_>,
    task: Task<'_>,
    earlier: Earlier<'_>,
) -> Result<Vec<Effect>, Unresolved> {
    let made = || {
        let parameters = steps::parameters(task, situation.run, earlier).map_err(Unresolved::NotReported)?;
        let resolved = references::resolve(situation, task)?;
        version_control(situation).map_err(Unresolved::Wrong)?;
        let run = task.run(situation.run, parameters);
        build(situation, task, &run, &resolved, earlier)
    };
    made().map_err(|why: Unresolved| why.of(task))
}

/// Whether the run makes sense by itself, and this version can execute it.
fn acceptable(situation: &Situation<'_>, later: &[Task<'_>]) -> Result<(), Unresolved> {
    let run = situation.run;
    match &run.spec.runtime.type_ {
        RuntimeType::Job => job::check_run(run, situation.settings).map_err(Unresolved::Wrong),
        RuntimeType::Workflow => {
            steps::check(run).map_err(Unresolved::Wrong)?;
            [situation.task].iter().chain(later).try_for_each(|task| {
                let parameters =
                    steps::parameters(*task, run, Earlier::NotRun).map_err(Unresolved::NotReported)?;
                job::check_run(&task.run(run, parameters), situation.settings)
                    .map_err(|why| Unresolved::Wrong(why).of(*task))
            })
        }
        // One of the runtime `custom` that was accepted as something else is given up before it comes here.
        other @ (RuntimeType::Temporal | RuntimeType::Custom | RuntimeType::Other(_)) => {
            Err(Unresolved::Wrong(Rejection::new(
                Reason::UnsupportedRuntime,
                format!(
                    "spec.runtime.type is {other}, which this version does not execute: use job, workflow or custom"
                ),
            )))
        }
    }
}

/// Version control is not executed yet. A run that insists on it must not go on without.
pub(super) fn version_control(situation: &Situation<'_>) -> Result<(), Rejection> {
    let policy = situation.run.spec.vcs_policy.clone().unwrap_or_default();
    let required = policy.required == Some(true) && policy.mode != Some(VcsMode::None);
    if required && wants_version_control(situation) {
        return Err(Rejection::new(
            Reason::VcsUnavailable,
            "spec.vcsPolicy.required is true, and this version has no version control: set it to false, or let the agent \
             clone the repository itself",
        ));
    }
    Ok(())
}

/// Whether the run, its implementation or its Agent names a VersionControlProvider, as far as they are known.
pub(super) fn wants_version_control(situation: &Situation<'_>) -> bool {
    let spec = &situation.run.spec;
    let References {
        agent,
        implementations,
        ..
    } = &situation.observed.references;
    let work = match situation.task.description(situation.run) {
        Description::Inline(implementation, _) => Some(&implementation.inline),
        Description::Reference(reference, _) => implementations
            .get(reference.name.trim())
            .and_then(Sight::seen)
            .map(|object| &object.spec),
        Description::Nowhere => None,
    };
    spec.vcs_ref.is_some()
        || work.is_some_and(|work| work.vcs_ref.is_some())
        || agent.seen().is_some_and(|agent| agent.spec.vcs_ref.is_some())
}

/// Makes the Job of a task. `run` is the run as the task sees it.
fn build(
    situation: &Situation<'_>,
    task: Task<'_>,
    run: &AgentRun,
    resolved: &Resolved<'_>,
    earlier: Earlier<'_>,
) -> Result<Vec<Effect>, Unresolved> {
    let spec_hash = spec_hash(&situation.run.spec);
    let nothing = Value::Object(serde_json::Map::new());
    let earlier = match earlier {
        Earlier::NotRun => &nothing,
        Earlier::Ran(reports) => reports,
    };
    let request = JobRequest {
        run,
        place: Place {
            step: task.number(),
            attempt: situation.attempt.current(),
        },
        step: task.step().map(|step| StepOfRun {
            name: task::name(step.spec),
            earlier,
            timeout_seconds: step.spec.timeout_seconds.map(task::not_negative),
        }),
        agent: resolved.agent,
        provider: resolved.provider,
        implementation: resolved.implementation,
        implementation_ref: resolved.implementation_ref,
        memory: resolved.memory,
        nats_auth: references::nats_auth(situation, resolved.agent)?,
        spec_hash: &spec_hash,
        admitted_at: admission::admitted_at(situation),
    };
    let mut built = job::build(&request, situation.settings).map_err(Unresolved::Wrong)?;
    let attempts_allowed = match task.attempts() {
        Some(attempts) => attempts,
        None => job::attempts_allowed(situation.run, Some(resolved.agent), situation.settings)
            .map_err(Unresolved::Wrong)?,
    };
    let system_prompt_hash = match &built.system_prompt_source {
        Some(source) => references::prompt_hash(situation, source)?,
        None => built.system_prompt_hash,
    };
    let stamp = Stamp {
        attempts_allowed,
        system_prompt_hash,
        contract: built.contract,
    };
    stamp.put_on(&mut built.job);
    if let Some(repository) = queue::repository_of(situation.run) {
        let annotations = built.job.annotations_mut();
        annotations.insert(labels::REPOSITORY.to_owned(), repository);
    }
    let files = built
        .config_map
        .map(|files| Effect::CreateConfigMap(Box::new(files)));
    let job = Effect::CreateJob(Box::new(NewJob {
        job: built.job,
        pod_fields: built.pod_fields,
    }));
    Ok(files.into_iter().chain([job]).collect())
}
