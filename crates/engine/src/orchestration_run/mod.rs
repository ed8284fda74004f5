//! The life of an OrchestrationRun: what to do about it next.
//!
//! | module | subject |
//! |---|---|
//! | `start` | the definition, which is kept as it is when the run starts |
//! | `follow` | the steps that work, those that can start, and the end |
//! | `begin` | one step starts: its values, its condition, its child |
//! | `attempt` | one attempt of a step ended, or took too long |
//! | `gate`, `signal` | steps that wait for people, and for events from outside |
//! | `cancel` | the run is to stop |
//! | `survivors` | what was still there when a cancel was given up |
//! | `finished` | children whose end is recorded are let go, and the run is deleted when its time has come |
//! | `next_status`, `step_end` | how the status changes, and what it says of a step that has ended |
//! | `child` | the runs that do the work |
//! | `origin` | whether one that is there already was made for a step |
//!
//! A child is created first and recorded then, by a name that follows from the run, the step and the attempt. One that is there and not
//! recorded is taken on if its owner and its spec are right. It keeps a finalizer
//! until its end stands in the status of its parent, so that no end is ever lost; a step that is recorded as ended never
//! looks at its child again.

mod attempt;
mod begin;
mod cancel;
mod child;
mod finished;
mod follow;
mod gate;
mod next_status;
mod origin;
mod signal;
mod start;
mod step_end;
pub(crate) mod survivors;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jangar_api::{
    approvals::ApprovalPolicy,
    orchestration::{
        Orchestration,
        orchestration_run::{OrchestrationRun, OrchestrationRunStatus},
    },
    phase::RunPhase,
    signals::SignalDelivery,
};
use jiff::{Timestamp, Unit};
use kube::ResourceExt;

use self::next_status::NextStatus;
pub use self::{
    child::Child,
    signal::{Waiter, takes_deliveries, waiters},
};
use crate::{
    decision::{ChildKind, Decision, Key, Notice, ObjectId, Plan, Refusal, Severity, Sight, Uid},
    orchestration::{Graph, Mistakes},
    settings::Settings,
};

/// What is known about a run at the moment of a decision.
#[derive(Clone, Debug)]
pub struct Observed {
    pub key: Key,
    /// The run itself; absent if a live read found it gone: what is left of it may have to be let go.
    pub run: Option<Arc<OrchestrationRun>>,
    pub definition: Sight<Orchestration>,
    /// The steps: of the definition that the run has kept, or of the one that there is. `None` if there is neither.
    pub graph: Option<Result<Arc<Graph>, Mistakes>>,
    /// The runs that carry the label of this one, and those that were asked for, by kind and name.
    pub children: BTreeMap<(ChildKind, String), Child>,
    /// Those that the API server itself has spoken about: one that is not in `children` does not exist.
    pub live_children: BTreeSet<(ChildKind, String)>,
    /// The ApprovalPolicies that its gates name.
    pub policies: BTreeMap<String, Sight<ApprovalPolicy>>,
    /// The deliveries of the signals that its steps wait for.
    pub deliveries: Vec<Arc<SignalDelivery>>,
    /// All steps in the namespace that wait for one of those signals.
    pub waiters: Vec<Waiter>,
    /// What the API server said to children that it will never take.
    pub refusals: BTreeMap<(ChildKind, String), Refusal>,
    /// Until when the run has time to stop, if an OrchestrationRun above is being cancelled.
    pub cancel_above: Option<Timestamp>,
    /// Whether there is so much to do that what may be over soon is told later.
    pub busy: bool,
}

/// A run that is there, and all that a decision about it depends on.
struct Situation<'a> {
    observed: &'a Observed,
    run: &'a OrchestrationRun,
    uid: Uid,
    /// The status as it was written last.
    status: &'a OrchestrationRunStatus,
    settings: &'a Settings,
    now: Timestamp,
}

/// What to do about a run.
pub fn plan(observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<OrchestrationRunStatus> {
    // Finer than anybody needs, and shorter to read.
    let now = now.round(Unit::Millisecond).unwrap_or(now);
    if !settings.orchestrates(&observed.key.namespace) {
        return Decision::Act(finished::let_go_deleted(observed));
    }
    let alive = observed.run.as_ref().filter(|run| {
        let gone = run.metadata.deletion_timestamp.is_some() && !crate::parent::is_held(&run.metadata);
        !gone
    });
    let Some(run) = alive else {
        return Decision::Act(finished::let_go_all(observed));
    };
    let unwritten = OrchestrationRunStatus::default();
    let situation = Situation {
        observed,
        run,
        uid: Uid(run.metadata.uid.clone().unwrap_or_default()),
        status: run.status.as_ref().unwrap_or(&unwritten),
        settings,
        now,
    };
    situation.decide()
}

impl<'a> Situation<'a> {
    fn decide(&self) -> Decision<OrchestrationRunStatus> {
        if self.phase().is_terminal() {
            return finished::plan(self);
        }
        if self.status.definition.is_none() {
            if self.stops_soon() && !self.is_asked_to_stop() {
                return Decision::Act(Plan::nothing());
            }
            return start::plan(self);
        }
        follow::plan(self)
    }

    fn phase(&self) -> &RunPhase {
        self.status.phase.as_ref().unwrap_or(&RunPhase::Pending)
    }

    /// Whether somebody wants the run to stop, and may.
    fn is_asked_to_stop(&self) -> bool {
        let people_may = self.settings.runs.cancel_enabled;
        crate::parent::has_to_stop(&self.run.metadata, &self.run.spec.stop, people_may)
    }

    /// Whether one above is being cancelled, and has not told this run yet: it begins nothing that would have to be stopped a moment later.
    fn stops_soon(&self) -> bool {
        self.settings.safeguards.cancel_closes && self.observed.cancel_above.is_some()
    }

    /// The children of this very run.
    fn own_children(&self) -> impl Iterator<Item = &'a Child> {
        let observed: &'a Observed = self.observed;
        let uid = self.uid.clone();
        observed
            .children
            .values()
            .filter(move |child| child.owner().as_ref() == Some(&uid))
    }

    fn name(&self) -> String {
        self.run.name_any()
    }

    fn id(&self) -> ObjectId {
        ObjectId {
            name: self.name(),
            uid: self.uid.clone(),
        }
    }

    fn normal(&self, reason: jangar_api::reason::Reason, message: impl Into<String>) -> Notice {
        self.notice(Severity::Normal, reason, message)
    }

    fn warning(&self, reason: jangar_api::reason::Reason, message: impl Into<String>) -> Notice {
        self.notice(Severity::Warning, reason, message)
    }

    fn notice(
        &self,
        severity: Severity,
        reason: jangar_api::reason::Reason,
        message: impl Into<String>,
    ) -> Notice {
        Notice {
            regarding: self.uid.clone(),
            severity,
            reason,
            message: message.into(),
        }
    }

    fn next_status(&self) -> NextStatus<'a> {
        NextStatus::of(self)
    }
}

/// The sooner of two times, if there are two.
fn sooner(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// A time that is so much later.
fn after(start: Timestamp, wait: std::time::Duration) -> Timestamp {
    start.saturating_add(wait).unwrap_or(Timestamp::MAX)
}
