//! Whether the run may start its next Job: what the queue says, once everything else is there.

use jangar_api::{agents::agent_run::AgentRunStatus, reason::Reason};
use jiff::Timestamp;

use super::Situation;
use crate::{
    decision::{Decision, Plan, Question},
    queue::Answer,
    waiting::Waiting,
};

/// What the queue says about a run that could start.
pub(super) enum Admission {
    /// It was not asked yet. It is asked last, so that nobody has a slot who lacks something else.
    Unasked(Question),
    Granted,
    Waits(Waiting),
    /// This run is executed in its place.
    Duplicate(String),
}

/// Asks the queue for the slot of this Job, or of the run itself where no Job executes it.
pub(super) fn of(situation: &Situation<'_>, job: Option<String>, repository: Option<String>) -> Admission {
    match &situation.observed.admission {
        None => Admission::Unasked(Question::Slot { job, repository }),
        Some(Answer::Granted { .. }) => Admission::Granted,
        Some(Answer::Waiting(waiting)) => Admission::Waits(waiting.as_ref().clone()),
        Some(Answer::Duplicate { of }) => Admission::Duplicate(of.clone()),
    }
}

/// When the run was let in, which its Job says. Before it was, the Job is built only to see whether it could be.
pub(super) fn admitted_at(situation: &Situation<'_>) -> Timestamp {
    match &situation.observed.admission {
        Some(Answer::Granted { at }) => *at,
        Some(Answer::Waiting(_) | Answer::Duplicate { .. }) | None => situation.now,
    }
}

/// Another run with the same idempotency key is executed, so this one is not.
pub(super) fn duplicate(situation: &Situation<'_>, of: &str) -> Decision<AgentRunStatus> {
    let message = format!(
        "run {of} of the same Agent has the same spec.idempotencyKey and is executed in place of this one: look at that run, or \
         submit with another key"
    );
    let mut next = situation.next_status();
    next.status.canonical_run = Some(of.to_owned());
    next.cancelled(&Reason::Duplicate, &message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.normal(Reason::Duplicate, message)],
        ..Plan::nothing()
    })
}
