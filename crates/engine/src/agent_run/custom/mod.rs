//! A run whose work an HTTP endpoint does.
//!
//! The endpoint is called once: the status says that it is about to be called, then it is, then the status says what came of
//! it. A call cannot be taken back, and one that was not answered may have arrived; so what may have arrived is never sent
//! again. From then on the endpoint reports, and the end it reports is the run's.
//!
//! | module | subject |
//! |---|---|
//! | `config` | what the run says about its endpoint |
//! | `record` | what the status remembers |
//! | `submit` | the first call, its answer, and the wait |
//! | `stop` | cancel, and giving up |
//! | `ending` | the end that the endpoint reported |
//! | `farewell` | what happens if the run is deleted meanwhile |

mod config;
mod ending;
mod farewell;
mod record;
mod stop;
mod submit;

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus, RuntimeType},
    condition::ConditionType,
    phase::RunPhase,
    reason::Reason,
};
use kube::ResourceExt;

use self::record::Record;
pub(super) use self::{farewell::farewell, stop::removal};
use super::{
    Situation, abort,
    elsewhere::{Sender, fail, wait_for_word},
    hold::is_held,
    runtime_of,
};
use crate::{
    custom::{
        call::{Answer, CallId, CallState, Purpose},
        callback::{Callback, End, Progress, Receipt, Report},
    },
    decision::{Decision, Uid},
};

/// Whether the run is one of these.
pub(super) fn applies(situation: &Situation<'_>) -> bool {
    runtime_of(situation) == RuntimeType::Custom.as_str()
}

pub(super) fn plan(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    let record = match Record::of(situation.status) {
        Ok(record) => record,
        Err(error) => {
            // Whether anything was sent cannot be known any more, so nothing is.
            let message = format!(
                "status.runtimeRef cannot be read ({error}), so that it is not known whether the endpoint has the work: look \
                 there, and submit the run again"
            );
            return fail(situation, None, &Reason::SubmitUnknown, &message);
        }
    };
    if let Some(record) = &record
        && let Some(end) = reported_end(situation, record)
    {
        return ending::conclude(situation, record, end);
    }
    if situation.status.phase == Some(RunPhase::Cancelling) || situation.is_asked_to_stop() {
        return stop::cancel(situation, record.as_ref());
    }
    if let Some(rejection) = abort::reason(situation) {
        return stop::give_up(situation, record.as_ref(), &rejection);
    }
    if record.is_none()
        && let Some(deadline) = situation.cancel_above()
    {
        return wait_for_word(situation, deadline).unwrap_or_else(|| stop::cancel(situation, None));
    }
    match record {
        None => submit::first(situation),
        Some(record) => submit::follow(situation, record),
    }
}

/// The end that the endpoint reported, if it did.
fn reported_end<'a>(situation: &Situation<'a>, record: &Record) -> Option<&'a End> {
    situation.reports(record).find_map(|report| match report {
        Report::End(end) => Some(end),
        Report::Progress(_) => None,
    })
}

/// What is known of a call that the status speaks of.
enum Known<'a> {
    /// This process was to make it, and has not begun.
    Unsent,
    UnderWay,
    Answered(&'a Answer),
    /// Another process was to make it, and may have.
    Stranger,
}

impl<'a> Situation<'a> {
    /// What is known of a call that this sender was to make.
    fn known(&self, purpose: Purpose, sender: &Sender) -> Known<'a> {
        let outside = &self.observed.outside;
        let id = CallId {
            run: self.uid.clone(),
            purpose,
            number: sender.number,
        };
        match outside.calls.get(&id) {
            _ if sender.by != outside.process && self.settings.safeguards.one_caller => Known::Stranger,
            None => Known::Unsent,
            Some(CallState::UnderWay) => Known::UnderWay,
            Some(CallState::Answered(answer)) => Known::Answered(answer),
        }
    }

    /// What the endpoint reported about this attempt, in the order of its coming.
    fn reports(&self, record: &Record) -> impl Iterator<Item = &'a Report> {
        let attempt = record.attempt;
        let uid = self.uid.clone();
        let callbacks = self.observed.outside.callbacks.iter();
        callbacks
            .filter(move |callback| callback.run == uid && callback.attempt == attempt)
            .map(|callback| &callback.report)
    }
}

/// What became of a report, once there is nothing left to do about it.
pub fn receipt(run: Option<&AgentRun>, callback: &Callback) -> Receipt {
    let alive = run.filter(|run| {
        let gone = run.metadata.deletion_timestamp.is_some() && !is_held(*run);
        run.uid().is_some_and(|uid| Uid(uid) == callback.run) && !gone
    });
    let Some(run) = alive else {
        return Receipt::Gone;
    };
    let unwritten = AgentRunStatus::default();
    let status = run.status.as_ref().unwrap_or(&unwritten);
    let Ok(Some(record)) = Record::of(status) else {
        return Receipt::Superseded;
    };
    if record.attempt != callback.attempt {
        return Receipt::Superseded;
    }
    let phase = status.phase.clone().unwrap_or(RunPhase::Pending);
    match &callback.report {
        Report::End(end) if phase == end.how.phase() => Receipt::Recorded(phase),
        Report::Progress(_) | Report::End(_) if phase.is_terminal() => {
            Receipt::Ended(phase, end_words(status))
        }
        Report::Progress(_) if run.metadata.deletion_timestamp.is_some() => Receipt::Gone,
        // There is nothing to record any more; whoever works has to learn that it should stop.
        Report::Progress(_) if phase == RunPhase::Cancelling => Receipt::Recorded(phase),
        Report::Progress(progress) if record.last_progress() == Some(progress) => Receipt::Recorded(phase),
        Report::Progress(_) => Receipt::TooOften(phase),
        Report::End(_) => Receipt::Later,
    }
}

fn end_words(status: &AgentRunStatus) -> String {
    let condition = status.common.condition(&ConditionType::Succeeded);
    condition.map_or_else(String::new, |condition| {
        format!("{}: {}", condition.reason, condition.message)
    })
}

/// Progress in words.
fn in_words(progress: &Progress) -> Option<String> {
    match (&progress.percent, &progress.message) {
        (Some(percent), Some(message)) => Some(format!("{percent} %: {message}")),
        (Some(percent), None) => Some(format!("{percent} %")),
        (None, Some(message)) => Some(message.clone()),
        (None, None) => None,
    }
}
