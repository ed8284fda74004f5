//! A run whose work a workflow of a Temporal server does.
//!
//! The status says which workflow is about to be started, then it is, then the server is asked how it ended. The id of the
//! workflow follows from the run and the server takes no second one of that id, so that every call can be repeated: a start
//! whose answer was lost is made again and finds its own workflow. How the workflow was closed is how the run ends, and no run
//! is over while its workflow is open, unless the server cannot be reached and somebody wants the run to go.
//!
//! | module | subject |
//! |---|---|
//! | `config` | what the run says about its workflow |
//! | `record` | what the status remembers |
//! | `begin` | the start, its answer, and the wait |
//! | `stop` | cancel, giving up and deletion |
//! | `ending` | how the workflow was closed |

mod begin;
mod config;
mod ending;
mod record;
mod stop;

use jangar_api::{
    agents::agent_run::{AgentRunStatus, RuntimeType},
    phase::RunPhase,
    reason::Reason,
};

use self::record::{Beginning, Record};
pub(super) use self::stop::{farewell, removal};
use super::{
    Situation, abort,
    elsewhere::{fail, wait_for_word},
    runtime_of,
};
use crate::{
    decision::{Decision, Effect, Rejection},
    temporal::call::{Call, Closed, What},
};

/// Whether the run is one of these.
pub(super) fn applies(situation: &Situation<'_>) -> bool {
    runtime_of(situation) == RuntimeType::Temporal.as_str()
}

pub(super) fn plan(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    let record = match Record::of(situation.status) {
        Ok(record) => record,
        Err(error) => {
            // Which workflow it was cannot be known any more, so none is looked for.
            let message = format!(
                "status.runtimeRef cannot be read ({error}), so that it is not known which workflow does the work: look in \
                 Temporal, and submit the run again"
            );
            return fail(situation, None, &Reason::SubmitUnknown, &message);
        }
    };
    let why = given_up(situation, record.as_ref());
    if let Some(record) = &record
        && let Some(closed) = closed(situation)
    {
        return ending::conclude(situation, record, closed, why.as_ref());
    }
    if situation.status.phase == Some(RunPhase::Cancelling) || situation.is_asked_to_stop() {
        return stop::cancel(situation, record.as_ref());
    }
    if let Some(why) = why {
        return stop::give_up(situation, record.as_ref(), &why);
    }
    if record.is_none()
        && let Some(deadline) = situation.cancel_above()
    {
        return wait_for_word(situation, deadline).unwrap_or_else(|| stop::cancel(situation, None));
    }
    match record {
        None => begin::first(situation),
        Some(record) => begin::follow(situation, record),
    }
}

/// Why the run is given up, if it is: its spec was changed, or its time is long over.
fn given_up(situation: &Situation<'_>, record: Option<&Record>) -> Option<Rejection> {
    let late = || {
        let record = record.filter(|record| record.start == Beginning::Started)?;
        let deadline = record.deadline?.0;
        (situation.now >= deadline).then(|| {
            Rejection::new(
                Reason::TimedOut,
                format!(
                    "{} should have been closed before {deadline} by its execution timeout, and was not",
                    record.words()
                ),
            )
        })
    };
    abort::reason(situation).or_else(late)
}

/// How the workflow was closed, if it was.
fn closed<'a>(situation: &Situation<'a>) -> Option<&'a Closed> {
    let following = situation.observed.outside.workflow.following.as_ref();
    following.and_then(|following| following.closed.as_ref())
}

/// What keeps the end of the workflow from being heard, or the workflow from going on.
fn trouble<'a>(situation: &Situation<'a>) -> Option<&'a str> {
    let following = situation.observed.outside.workflow.following.as_ref();
    following.and_then(|following| following.trouble.as_deref())
}

/// Begins to wait for the end of the workflow, unless somebody does.
fn heed(situation: &Situation<'_>, record: &Record) -> Option<Effect> {
    let heard = situation.observed.outside.workflow.following.is_some();
    let heeded = record.start == Beginning::Started && !heard;
    heeded.then(|| {
        let task_queue = record.task_queue.clone();
        call(situation, record, What::Follow { task_queue })
    })
}

fn call(situation: &Situation<'_>, record: &Record, what: What) -> Effect {
    Effect::CallTemporal(Box::new(Call {
        run: situation.observed.key.clone(),
        uid: situation.uid.clone(),
        workflow: record.workflow(),
        what,
    }))
}
