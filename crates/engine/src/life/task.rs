//! The piece of work that a run is at: all of it, or one step of its workflow.
//!
//! A run of the runtime `job` is the case of one step that has no name. Everything that differs between the two is here:
//! names, the run as a step sees it, how often it is tried and for how long, and by which words its failures go.

use std::{borrow::Cow, collections::BTreeMap, fmt, time::Duration};

use jangar_api::{
    agents::agent_run::{AgentRun, InlineImplementation, OnJobMissing, RuntimeType, WorkflowStep},
    reason::Reason,
    refs::LocalRef,
    values::Int32,
};
use sha2::{Digest, Sha256};

use crate::{
    decision::{Rejection, Uid},
    job::Place,
};

/// How long the second attempt of a `job` run waits, as Kubernetes does with `backoffLimit`; each later one twice as long.
const JOB_BACKOFF_FIRST: Duration = Duration::from_secs(10);
/// The longest wait before an attempt of a `job` run.
const JOB_BACKOFF_MAX: Duration = Duration::from_mins(6);
/// How far the waits of a step grow, unless it asks for a longer one from the beginning.
const STEP_BACKOFF_MAX: Duration = Duration::from_hours(1);
/// By which part of itself a wait of a step is drawn out at most, so that steps that failed together do not come back
/// together.
const JITTER_PART: u32 = 5;
/// More doublings than any wait has: it is at its longest before.
const DOUBLINGS_MAX: u32 = 16;

/// The piece of work that a run is at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task<'a> {
    /// All of it. That is also a workflow without steps, which can never start.
    Whole,
    Step(Step<'a>),
}

/// A step of a workflow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'a> {
    /// Counted from one.
    pub number: u32,
    pub spec: &'a WorkflowStep,
}

/// Where the work of a task is described, with the field that says so.
pub(crate) enum Description<'a> {
    Inline(&'a InlineImplementation, String),
    Reference(&'a LocalRef, String),
    Nowhere,
}

/// The name of a step, as people write it.
pub(crate) fn name(step: &WorkflowStep) -> &str {
    step.name.trim()
}

/// The steps of a run, which only a workflow has.
pub(crate) fn steps(run: &AgentRun) -> &[WorkflowStep] {
    match (&run.spec.runtime.type_, &run.spec.workflow) {
        (RuntimeType::Workflow, Some(workflow)) => &workflow.steps,
        _ => &[],
    }
}

impl<'a> Task<'a> {
    /// The task of this number, if the AgentRun has it.
    pub(crate) fn numbered(run: &'a AgentRun, number: u32) -> Option<Self> {
        let steps = steps(run);
        if steps.is_empty() {
            return (number == 0).then_some(Self::Whole);
        }
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        steps.get(index).map(|spec| Self::Step(Step { number, spec }))
    }

    /// What follows when this is done.
    fn following(self, run: &'a AgentRun) -> Option<Self> {
        match self {
            Self::Whole => None,
            Self::Step(step) => Self::numbered(run, step.number + 1),
        }
    }

    /// This and all that follows.
    pub(crate) fn onwards(self, run: &'a AgentRun) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), move |task| task.following(run))
    }

    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Whole => 0,
            Self::Step(step) => step.number,
        }
    }

    pub(crate) const fn is_first(self) -> bool {
        self.number() <= 1
    }

    pub(crate) const fn step(self) -> Option<Step<'a>> {
        match self {
            Self::Whole => None,
            Self::Step(step) => Some(step),
        }
    }

    /// The run as this task sees it: as if the step were all of it, with these parameters.
    pub(crate) fn run(self, run: &'a AgentRun, parameters: BTreeMap<String, String>) -> Cow<'a, AgentRun> {
        let Self::Step(Step { spec: step, .. }) = self else {
            return Cow::Borrowed(run);
        };
        let mut own = run.clone();
        own.spec.parameters = parameters;
        if let Some(workload) = &step.workload {
            own.spec.workload = Some(workload.clone());
        }
        Cow::Owned(own)
    }

    /// Where the work is described: in the step, else in the run; in place, else in an object of its own.
    pub(crate) fn description(self, run: &'a AgentRun) -> Description<'a> {
        let of_step = self.step().map(|step| {
            let place = format!("spec.workflow.steps[{}]", step.number - 1);
            (
                place,
                step.spec.implementation.as_ref(),
                step.spec.implementation_spec_ref.as_ref(),
            )
        });
        let of_run = (
            "spec".to_owned(),
            run.spec.implementation.as_ref(),
            run.spec.implementation_spec_ref.as_ref(),
        );
        for (place, inline, reference) in of_step.into_iter().chain([of_run]) {
            if let Some(inline) = inline {
                return Description::Inline(inline, format!("{place}.implementation.inline"));
            }
            if let Some(reference) = reference {
                return Description::Reference(reference, format!("{place}.implementationSpecRef.name"));
            }
        }
        Description::Nowhere
    }

    /// How long an attempt may take from the creation of its Job. What the Agent says is counted in the pod.
    pub(crate) fn timeout(self) -> Option<Duration> {
        let seconds = not_negative(self.step()?.spec.timeout_seconds?);
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// How many attempts there are in all, if the step says so.
    pub(crate) fn attempts(self) -> Option<u32> {
        Some(not_negative(self.step()?.spec.retries?) + 1)
    }

    /// Whether a Job that is not there any more is replaced.
    pub(crate) fn replaces_missing_job(self) -> bool {
        let chosen = self.step().and_then(|step| step.spec.on_job_missing.as_ref());
        chosen == Some(&OnJobMissing::Retry)
    }

    /// How long to wait after the given number of failures. What it is drawn out by follows from the run and the attempt, so
    /// that the same failure always means the same wait.
    pub(crate) fn backoff(self, failures: u32, run: &Uid, place: Place) -> Duration {
        let doublings = 2_u32.pow(failures.saturating_sub(1).min(DOUBLINGS_MAX));
        let Self::Step(step) = self else {
            return (JOB_BACKOFF_FIRST * doublings).min(JOB_BACKOFF_MAX);
        };
        let first = first_wait(step.spec);
        let wait = (first * doublings).min(first.max(STEP_BACKOFF_MAX));
        wait + wait / JITTER_PART * jitter_percent(run, place) / 100
    }

    /// The longest wait there can be.
    pub(crate) fn backoff_max(self) -> Duration {
        match self {
            Self::Whole => JOB_BACKOFF_MAX,
            Self::Step(step) => {
                let longest = first_wait(step.spec).max(STEP_BACKOFF_MAX);
                longest + longest / JITTER_PART
            }
        }
    }

    /// The word for an end after which there is no attempt left.
    pub(crate) fn failed(self, of_job: Reason, attempts: u32) -> Reason {
        match self {
            Self::Whole => of_job,
            Self::Step(_) if attempts > 1 => Reason::WorkflowStepRetriesExhausted,
            Self::Step(_) => Reason::WorkflowStepFailed,
        }
    }

    /// The word for a Job that is not there any more.
    pub(crate) const fn job_missing(self) -> Reason {
        match self {
            Self::Whole => Reason::JobMissing,
            Self::Step(_) => Reason::WorkflowJobMissing,
        }
    }

    /// A sentence about this task, for people: it names the step, if there is one.
    pub(crate) fn says(self, message: impl fmt::Display) -> String {
        match self {
            Self::Whole => message.to_string(),
            Self::Step(step) => format!("step {}: {message}", name(step.spec)),
        }
    }

    /// The same of something that is wrong.
    pub(crate) fn says_why(self, why: Rejection) -> Rejection {
        Rejection {
            message: self.says(&why.message),
            reason: why.reason,
        }
    }
}

fn first_wait(step: &WorkflowStep) -> Duration {
    Duration::from_secs(step.retry_backoff_seconds.map_or(0, not_negative).into())
}

/// A number below 100 that looks like chance.
fn jitter_percent(run: &Uid, place: Place) -> u32 {
    let digest = Sha256::digest(format!("{run}/{}/{}", place.step, place.attempt).as_bytes());
    let number = digest
        .iter()
        .take(4)
        .fold(0, |number: u32, byte| (number << 8) | u32::from(*byte));
    number % 100
}

pub(crate) fn not_negative(number: Int32) -> u32 {
    u32::try_from(number.get()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(step: &WorkflowStep, failures: &[u32]) -> Vec<u64> {
        let task = Task::Step(Step {
            number: 1,
            spec: step,
        });
        let place = Place { step: 1, attempt: 1 };
        failures
            .iter()
            .map(|failures| task.backoff(*failures, &Uid("run".to_owned()), place).as_secs())
            .collect()
    }

    fn step(backoff: i32) -> WorkflowStep {
        WorkflowStep {
            retry_backoff_seconds: Some(Int32::from(backoff)),
            ..WorkflowStep::default()
        }
    }

    #[test]
    fn the_wait_of_a_job_doubles_and_has_an_end() {
        let wait = |failures| {
            let wait = Task::Whole.backoff(failures, &Uid(String::new()), Place::default());
            wait.as_secs()
        };
        assert_eq!(
            [1, 2, 3, 6, 7, 40, u32::MAX].map(wait),
            [10, 20, 40, 320, 360, 360, 360]
        );
    }

    #[test]
    fn the_wait_of_a_step_doubles_up_to_an_hour_and_a_fifth() {
        for (wait, at_least) in waits(&step(100), &[1, 2, 3, 6, 40, u32::MAX])
            .into_iter()
            .zip([100, 200, 400, 3200, 3600, 3600])
        {
            assert!(
                wait >= at_least && wait <= at_least + at_least / 5,
                "{wait} {at_least}"
            );
        }
        assert_eq!(
            waits(&step(0), &[1, 9]),
            [0, 0],
            "at once, if nobody asks for a wait"
        );
        assert_eq!(waits(&step(-5), &[1]), [0]);
        let long = waits(&step(7200), &[1, 2]);
        assert_eq!(
            long[0], long[1],
            "it asked for more than an hour from the beginning"
        );
    }

    #[test]
    fn jitter_differs_between_attempts_and_not_between_two_looks() {
        let run = Uid("run".to_owned());
        let drawn = |attempt| jitter_percent(&run, Place { step: 1, attempt });
        assert_eq!(drawn(1), drawn(1));
        assert!((1..20).any(|attempt| drawn(attempt) != drawn(attempt + 1)));
        assert!((1..200).all(|attempt| drawn(attempt) < 100));
    }
}
