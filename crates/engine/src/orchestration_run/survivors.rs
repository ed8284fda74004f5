//! What was still there when a cancel was given up: the receipt says when it was gone, and its child is kept until then.
//!
//! It need not be the cancel of the run: a child that took too long, that failing fast stopped, or that somebody cancelled may not have
//! stopped either. Such a step has a receipt as well, so that the run, those above it and a later cancel know of it.
//!
//! A child whose cancel was given up says in its own status when nothing of it was left. A run that is the child of another one needs no
//! word of its own for that: its receipts say it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jangar_api::{
    agents::agent_run::{AgentRun, RuntimeType},
    orchestration::orchestration_run::{CancelReceipt, OrchestrationRunStatus},
    reason::Reason,
};
use jiff::Timestamp;

use super::{
    Child, Situation, after,
    follow::{Walk, stored},
    next_status::NextStatus,
};
use crate::{
    orchestration::StepId,
    removal::{self, REMOVAL_MAX},
};

/// How long a run that has ended keeps children for this. It is as long as the controllers go on making work end that is done outside of
/// the cluster, and a pod that is there for longer has to be looked after by a person. The receipt is completed later all the same, if
/// the child is still there.
const KEPT_MAX: Duration = REMOVAL_MAX;

/// Whether what a receipt is about was still there when the cancel was given up.
pub(super) fn survived(receipt: &CancelReceipt) -> bool {
    receipt.result.as_deref() == Some(Reason::CancelTimedOut.as_str())
}

/// Whether it still is, as far as the receipt says.
pub(super) fn is_open(receipt: &CancelReceipt) -> bool {
    survived(receipt) && receipt.gone_at.is_none()
}

/// Whether something outlived the end of its step.
pub(super) fn are_any(status: &OrchestrationRunStatus) -> bool {
    status.cancel_receipt.iter().any(survived)
}

/// When nothing was left of all that survived the cancel of a run, if something did and all of it is gone.
pub(crate) fn gone_at(status: &OrchestrationRunStatus) -> Option<Timestamp> {
    let survivors = status.cancel_receipt.iter().filter(|receipt| survived(receipt));
    let times: Option<Vec<Timestamp>> = survivors.map(|receipt| receipt.gone_at.map(|at| at.0)).collect();
    times?.into_iter().max()
}

/// The receipts that do not say yet when it was gone, by the UID of the child.
fn open(status: &OrchestrationRunStatus) -> BTreeMap<String, usize> {
    let receipts = status.cancel_receipt.iter().enumerate();
    let open: BTreeMap<&str, usize> = receipts
        .filter(|(_, receipt)| is_open(receipt))
        .map(|(place, receipt)| (receipt.step.as_str(), place))
        .collect();
    if open.is_empty() {
        return BTreeMap::new();
    }
    let steps = status.step_statuses.iter();
    steps
        .filter_map(|step| {
            let place = open.get(step.name.as_str())?;
            Some((step.resource_ref.as_ref()?.uid.clone()?, *place))
        })
        .collect()
}

/// Writes down when what had survived was gone, as far as the children say.
pub(super) fn record(situation: &Situation<'_>, next: &mut NextStatus<'_>) {
    let open = open(&next.status);
    if open.is_empty() {
        return;
    }
    for child in situation.own_children() {
        let receipt = open
            .get(&child.uid().0)
            .and_then(|place| next.status.cancel_receipt.get_mut(*place));
        if let Some(receipt) = receipt {
            receipt.gone_at = child.gone_at(situation.now).map(stored);
        }
    }
}

/// The children that have ended and are kept, because they are going to say when nothing of them is left.
pub(super) struct Kept {
    children: BTreeSet<String>,
    /// When that is over for the first of them.
    pub until: Option<Timestamp>,
}

impl Kept {
    pub(super) fn of(situation: &Situation<'_>) -> Self {
        let open = open(situation.status);
        let mut kept = Self {
            children: BTreeSet::new(),
            until: None,
        };
        if open.is_empty() {
            return kept;
        }
        for child in situation.own_children() {
            let uid = child.uid().0;
            let until = kept_until(situation, child);
            if child.is_held() && open.contains_key(&uid) && child.tells() && situation.now < until {
                kept.children.insert(uid);
                kept.until = super::sooner(kept.until, Some(until));
            }
        }
        kept
    }

    pub(super) fn has(&self, child: &Child) -> bool {
        self.children.contains(&child.uid().0)
    }
}

/// Until when a child is kept at most. Whoever deletes it does not wait for longer than for a cancel.
fn kept_until(situation: &Situation<'_>, child: &Child) -> Timestamp {
    let ended = situation.status.finished_at.map_or(situation.now, |at| at.0);
    // An end that lies ahead was written before the clock was set back.
    let at_most = after(ended.min(situation.now), KEPT_MAX);
    let deleted = child.metadata().deletion_timestamp.as_ref();
    let patience = deleted.map(|at| after(at.0, situation.settings.runs.cancel_timeout));
    patience.map_or(at_most, |patience| patience.min(at_most))
}

impl Walk<'_> {
    /// The child of a step has ended, and something of it may still be there.
    pub(super) fn note_survivors(&mut self, step: StepId) {
        if let Some(receipt) = self.next.receipt(step) {
            receipt.result = Some(Reason::CancelTimedOut.as_str().to_owned());
            receipt.gone_at = None;
        }
    }
}

impl Child {
    /// Whether something of it may be alive although it has ended.
    pub(super) fn lives_on(&self, now: Timestamp) -> bool {
        self.has_survivors() && self.gone_at(now).is_none()
    }

    /// When nothing of it was left; `None` as long as nobody knows.
    fn gone_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.end()?;
        let (finished, gone) = match self {
            Self::AgentRun(run) => {
                let status = run.status.as_ref()?;
                (status.finished_at, status.survivors_gone_at.map(|at| at.0))
            }
            Self::ToolRun(run) => {
                let status = run.status.as_ref()?;
                (status.finished_at, status.survivors_gone_at.map(|at| at.0))
            }
            Self::OrchestrationRun(run) => {
                let status = run.status.as_ref()?;
                (status.finished_at, gone_at(status))
            }
        };
        if self.has_survivors() {
            return gone;
        }
        // It ended after its parent had given it up.
        Some(finished.map_or(now, |at| at.0))
    }

    /// Whether it says when nothing of it is left, or will: its controllers are still removing it, and can know.
    fn tells(&self) -> bool {
        let outside = |run: &AgentRun| {
            let record = run.status.as_ref().and_then(|status| status.runtime_ref.as_ref());
            let runtime = record.and_then(|record| record.0.get("type")?.as_str());
            [RuntimeType::Custom, RuntimeType::Temporal]
                .iter()
                .any(|outside| runtime == Some(outside.as_str()))
        };
        match self {
            Self::AgentRun(run) if outside(run) => {
                removal::is_under_way(run) || self.gone_at(Timestamp::MIN).is_some()
            }
            Self::AgentRun(_) | Self::ToolRun(_) | Self::OrchestrationRun(_) => self.end().is_some(),
        }
    }
}
