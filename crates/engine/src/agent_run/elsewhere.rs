//! What a run has in common with others whose work is done outside of the cluster, by an endpoint (`custom`) or by a workflow
//! (`temporal`): who was to make a call, how it is accepted, and how it ends without a report.

use jangar_api::{
    agents::{agent_run::AgentRunStatus, agent_run_status::ContractStatus},
    reason::Reason,
    values::{self, AnyMap},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Situation, admission,
    cancel::because,
    hold::{go, hold, is_held},
    leftovers::{after, sooner},
    spec_hash, survivors,
};
use crate::{
    decision::{Decision, Notice, Plan, Rejection},
    parent,
    removal::REMOVAL_MAX,
};

/// Which process was to make a call, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sender {
    /// Counted from one.
    pub number: u32,
    /// The process.
    pub by: String,
    pub at: values::Timestamp,
}

/// A call that did not arrive, as far as one knows, and is made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Postponed {
    /// The number of the call that did not arrive.
    pub number: u32,
    pub not_before: values::Timestamp,
    pub why: String,
}

impl Situation<'_> {
    /// This process, about to make the call of this number.
    pub(super) fn sender(&self, number: u32) -> Sender {
        Sender {
            number,
            by: self.observed.outside.process.clone(),
            at: values::Timestamp(self.now),
        }
    }
}

/// A record as `status.runtimeRef` keeps it.
pub(super) fn stored(record: &impl Serialize) -> AnyMap {
    // An object of plain values always becomes JSON.
    match serde_json::to_value(record) {
        Ok(Value::Object(fields)) => AnyMap(fields),
        _ => AnyMap::default(),
    }
}

/// What is known of a run that is about to be handed over.
pub(super) struct Accepted<'a> {
    pub record: AnyMap,
    pub message: &'a str,
    pub contract: Option<ContractStatus>,
    /// Why whoever does the work gets no repository from here, if one was asked for.
    pub without: Option<&'a Rejection>,
}

/// Holds the run that is to have something outside, if nobody has yet.
pub(super) fn held_first(situation: &Situation<'_>) -> Option<Decision<AgentRunStatus>> {
    (!is_held(situation.run)).then(|| {
        Decision::Act(Plan {
            effects: vec![hold(situation.run)],
            ..Plan::nothing()
        })
    })
}

/// Says that the work is about to be handed over. That follows when it is written.
pub(super) fn accept(situation: &Situation<'_>, accepted: Accepted<'_>) -> Decision<AgentRunStatus> {
    let mut next = situation.next_status();
    next.running(situation.now, accepted.message);
    next.status.admitted_at = Some(values::Timestamp(admission::admitted_at(situation)));
    next.status.runtime_ref = Some(accepted.record);
    next.status
        .spec_hash
        .get_or_insert_with(|| spec_hash(&situation.run.spec));
    next.status.contract = accepted.contract;
    if accepted.without.is_some() {
        next.version_control_skipped(accepted.without);
    }
    Decision::Act(Plan {
        status: next.into_status(),
        ..Plan::nothing()
    })
}

/// Ends the run without success.
pub(super) fn fail(
    situation: &Situation<'_>,
    record: Option<AnyMap>,
    reason: &Reason,
    message: &str,
) -> Decision<AgentRunStatus> {
    let mut next = situation.next_status();
    if record.is_some() {
        next.status.runtime_ref = record;
    }
    next.failed(situation.now, reason, message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(reason.clone(), message)],
        ..Plan::nothing()
    })
}

/// Ends a run that somebody wanted to end.
pub(super) fn cancelled(
    situation: &Situation<'_>,
    record: Option<AnyMap>,
    reason: &Reason,
    message: &str,
) -> Decision<AgentRunStatus> {
    let message = because(situation, message);
    let mut next = situation.next_status();
    if record.is_some() {
        next.status.runtime_ref = record;
    }
    // What kept it from ending is part of the message, or over.
    next.no_warning(&Reason::TemporalError);
    next.cancelled(reason, &message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.normal(reason.clone(), message)],
        ..Plan::nothing()
    })
}

/// Until when the controllers go on making the work of a run end that is over now.
pub(super) fn removing_until(situation: &Situation<'_>) -> values::Timestamp {
    values::Timestamp(after(situation.now, REMOVAL_MAX))
}

/// What the controllers know of the work of a run that is over when they are done with it.
pub(super) enum Left {
    /// It has ended.
    Nothing,
    /// Nobody can tell: whoever does it was told, or could not be for long enough.
    Unknown,
}

/// The work of a run that is over has ended, or the controllers have tried for long enough: the run is let go next.
pub(super) fn removed(
    situation: &Situation<'_>,
    record: AnyMap,
    left: &Left,
    notice: Option<Notice>,
) -> Decision<AgentRunStatus> {
    let mut next = situation.next_status();
    next.status.runtime_ref = Some(record);
    if matches!(left, Left::Nothing) && survivors::is_unrecorded(situation) {
        next.status.survivors_gone_at = Some(values::Timestamp(situation.now));
    }
    Decision::Act(Plan {
        status: next.into_status(),
        notices: notice.into_iter().collect(),
        ..Plan::nothing()
    })
}

/// A run that is over was deleted while its work is still being made to end: it goes when that has ended, and when the time of a cancel has
/// passed since. Its end stays what it is.
pub(super) fn leave(
    situation: &Situation<'_>,
    removal: Option<Decision<AgentRunStatus>>,
    unsure: impl FnOnce() -> String,
) -> Decision<AgentRunStatus> {
    let Some(removal) = removal else {
        return go(situation, None);
    };
    let deleted = situation.run.metadata.deletion_timestamp.as_ref();
    let since = deleted.map_or(situation.now, |at| at.0);
    let patience = after(since, situation.settings.runs.cancel_timeout);
    if situation.now >= patience {
        let notice = situation.warning(Reason::CancelTimedOut, unsure());
        return go(situation, Some(notice));
    }
    match removal {
        Decision::Act(plan) => Decision::Act(Plan {
            wake_at: sooner(plan.wake_at, Some(patience)),
            ..plan
        }),
        look @ Decision::Look(_) => look,
    }
}

/// The OrchestrationRun above is being cancelled, and will say so: until then nothing is begun. `None` where it did not in time, and
/// so nobody will.
pub(super) fn wait_for_word(
    situation: &Situation<'_>,
    deadline: Timestamp,
) -> Option<Decision<AgentRunStatus>> {
    (situation.now < deadline).then(|| {
        Decision::Act(Plan {
            wake_at: Some(deadline),
            ..Plan::nothing()
        })
    })
}

/// Until when a cancel is waited for.
pub(super) fn cancel_deadline(situation: &Situation<'_>) -> Timestamp {
    let timeout = situation.settings.runs.cancel_timeout;
    situation.status.cancel_deadline.map_or_else(
        || parent::cancel_deadline(&situation.run.metadata, timeout, situation.now),
        |at| at.0,
    )
}
