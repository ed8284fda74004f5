//! A run that has no Job: what it waits for, or why it never gets one. What the Job is made from is for its kind to say.

use std::time::Duration;

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    reason::Reason,
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{Run, Situation, jobs, leftovers::after, retry};
use crate::{
    decision::{Decision, Occupant, Plan, Question, Refusal, Rejection, Sight},
    plain_status::PlainStatus,
    waiting::{Gate, Remedy, Waiting},
};

/// How long after a refusal that may pass, such as a quota, the Job is tried again. No event tells when it has.
pub(super) const FORBIDDEN_RETRY: Duration = Duration::from_secs(30);
/// How long until a Job that has the name and is going away is looked for again. It need not be one that is watched.
const TERMINATING_RETRY: Duration = Duration::from_secs(5);
/// How long until a ConfigMap that has the name and stays until somebody deletes it is looked for again. ConfigMaps are not
/// watched, so that no event tells.
const OCCUPIED_RETRY: Duration = Duration::from_secs(30);
/// How long until something that is not watched and is missing is looked for again, for as long as the grace lasts.
const UNWATCHED_RETRY: Duration = Duration::from_secs(5);

/// A wait, and when to look again although nothing happened.
pub(crate) struct Held {
    pub waiting: Box<Waiting>,
    pub look_at: Option<Timestamp>,
}

/// Something that a run refers to and cannot have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lacking {
    pub why: Rejection,
    /// What whoever reads it is told to do.
    pub remedy: Remedy,
    /// Whether an event tells when it is there.
    pub watched: bool,
}

/// Why something that a run refers to cannot be had.
pub(crate) enum NotFound {
    /// A cache does not show it, which proves nothing.
    Unsure(Question),
    Lacking(Lacking),
}

/// Finds an object that a run refers to in a field.
pub(crate) fn found<'a, K>(
    sight: Option<&'a Sight<K>>,
    reason: Reason,
    kind: &str,
    name: &str,
    field: &str,
    question: impl FnOnce(String) -> Question,
) -> Result<&'a K, NotFound> {
    match sight {
        Some(Sight::Seen(object)) => Ok(object),
        Some(Sight::Unseen) | None => Err(NotFound::Unsure(question(name.to_owned()))),
        Some(Sight::Absent) => Err(NotFound::Lacking(Lacking {
            why: Rejection::new(
                reason,
                format!("{field} is {name}, and there is no {kind} of that name in this namespace"),
            ),
            remedy: Remedy::Create,
            watched: true,
        })),
        Some(Sight::Illegible(words)) => Err(NotFound::Lacking(Lacking {
            why: Rejection::new(
                Reason::UnreadableReference,
                format!("{field} is {name}, and {kind} {name} cannot be read ({words})"),
            ),
            remedy: Remedy::Mend,
            watched: true,
        })),
    }
}

/// What keeps the Job from being made before anything that the run refers to is looked at: the next attempt has its time, or
/// the API server has refused the Job or has something else under a name that is needed. The error fails the run.
pub(crate) fn held_up<R: Run>(situation: &Situation<'_, R>) -> Result<Option<Held>, Rejection> {
    if let Some(due) = retry::waits_until(&situation.attempt, situation.task, situation.now) {
        let attempt = situation.attempt.current();
        return Ok(Some(Held {
            waiting: Box::new(Waiting::at(Gate::Retry { attempt, due }).until(due)),
            look_at: Some(due),
        }));
    }
    if let Some(refusal) = situation.seen.refusal {
        return refused(situation, refusal).map(Some);
    }
    Ok(situation
        .seen
        .occupant
        .map(|occupant| occupied(situation, occupant)))
}

/// Says what the run waits for. Between two attempts its other conditions say so already.
pub(crate) fn waits<R: Run>(situation: &Situation<'_, R>, held: &Held) -> Decision<R::Status> {
    let mut next = situation.next_status();
    if !matches!(held.waiting.gate, Gate::Retry { .. }) {
        next.waits(&held.waiting);
    }
    Decision::Act(Plan {
        status: next.into_status(),
        wake_at: held.look_at,
        ..Plan::nothing()
    })
}

/// Something the run refers to is not there, or cannot be read: it has the grace to come, or to be mended. The error is that
/// the grace is over.
pub(crate) fn lacking<R: Run>(situation: &Situation<'_, R>, lacking: Lacking) -> Result<Held, Rejection> {
    let Lacking { why, remedy, watched } = lacking;
    let grace = situation.settings.runs.reference_grace;
    let since = waiting_since(situation, &why.reason).unwrap_or(situation.now);
    let deadline = since.saturating_add(grace).unwrap_or(Timestamp::MAX);
    if situation.now >= deadline {
        let message = format!(
            "{}, which did not change within {} s: {remedy} and submit the run again",
            why.message,
            grace.as_secs()
        );
        return Err(Rejection::new(why.reason, message));
    }
    let look_again = after(situation.now, UNWATCHED_RETRY).min(deadline);
    Ok(Held {
        waiting: Box::new(Waiting::at(Gate::Reference { why, remedy }).until(deadline)),
        look_at: Some(if watched { deadline } else { look_again }),
    })
}

/// Since when the run has been blocked for this reason.
pub(crate) fn waiting_since<R: Run>(situation: &Situation<'_, R>, reason: &Reason) -> Option<Timestamp> {
    situation
        .status
        .common()
        .condition(&ConditionType::Blocked)
        .filter(|blocked| blocked.status == ConditionStatus::True && blocked.reason == *reason)
        .and_then(|blocked| blocked.last_transition_time)
        .map(|time| time.0)
}

/// The API server does not take the Job.
fn refused<R: Run>(situation: &Situation<'_, R>, refusal: &Refusal) -> Result<Held, Rejection> {
    if !refusal.may_pass() {
        let message = format!(
            "the API server refused the Job of the run or its files: {}",
            refusal.message
        );
        return Err(Rejection::new(Reason::JobRejected, message));
    }
    Ok(Held {
        waiting: Box::new(Waiting::at(Gate::Forbidden {
            what: "Job",
            words: refusal.message.clone(),
            retry: FORBIDDEN_RETRY,
        })),
        look_at: situation.now.checked_add(FORBIDDEN_RETRY).ok(),
    })
}

/// Another ConfigMap has the name of the one with the run's files. What is in it is not ours, so the Job must not mount it.
fn occupied<R: Run>(situation: &Situation<'_, R>, occupant: &Occupant) -> Held {
    let Occupant { name, owner } = occupant;
    let of_earlier_run = owner
        .as_ref()
        .is_some_and(|owner| owner.kind == R::kind(&()) && owner.name == situation.seen.key.name);
    let config_map = name.clone();
    let (gate, retry) = if of_earlier_run {
        (Gate::PreviousFiles { config_map }, TERMINATING_RETRY)
    } else {
        let gate = Gate::FilesTaken {
            config_map,
            owner: owner.clone(),
            retry: OCCUPIED_RETRY,
        };
        (gate, OCCUPIED_RETRY)
    };
    Held {
        waiting: Box::new(Waiting::at(gate)),
        look_at: situation.now.checked_add(retry).ok(),
    }
}

/// What the run waits for while another Job has the name of its own, if that one is going away.
pub(crate) fn previous_job<R: Run>(situation: &Situation<'_, R>, job: &Job) -> Option<Waiting> {
    let of_earlier_run = jobs::owner_run::<R>(job, &situation.seen.key.name).is_some();
    let going = of_earlier_run || jobs::is_deleting(job);
    going.then(|| Waiting::at(Gate::PreviousJob { job: job.name_any() }))
}

/// Another Job has the name.
pub(crate) fn name_taken<R: Run>(situation: &Situation<'_, R>, job: &Job) -> Decision<R::Status> {
    if let Some(waiting) = previous_job(situation, job) {
        let held = Held {
            waiting: Box::new(waiting),
            look_at: situation.now.checked_add(TERMINATING_RETRY).ok(),
        };
        return waits(situation, &held);
    }
    let name = job.name_any();
    let message = format!(
        "the run needs a Job called {name}, and there is one that does not belong to it: delete that Job, or choose another \
         name for the run"
    );
    fail(situation, &Rejection::new(Reason::NameTaken, message))
}

/// The run has failed, although it was written as it should be.
pub(crate) fn fail<R: Run>(situation: &Situation<'_, R>, why: &Rejection) -> Decision<R::Status> {
    let mut next = situation.next_status();
    next.failed(situation.now, &why.reason, &why.message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(why.reason.clone(), why.message.clone())],
        ..Plan::nothing()
    })
}

/// The run can never start as it was written.
pub(crate) fn reject<R: Run>(situation: &Situation<'_, R>, rejection: &Rejection) -> Decision<R::Status> {
    let mut next = situation.next_status();
    next.rejected(rejection);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(rejection.reason.clone(), rejection.message.clone())],
        ..Plan::nothing()
    })
}
