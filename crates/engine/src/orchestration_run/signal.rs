//! A step that waits for a signal. One delivery releases one step: the one that has waited longest.

use jangar_api::{
    orchestration::{
        StepKind,
        orchestration_run::{OrchestrationRun, ResourceRef, StepStatus},
    },
    phase::{RunPhase, StepPhase},
    signals::{ConsumedBy, SignalDelivery},
};
use jiff::Timestamp;
use kube::{Resource, ResourceExt};

use super::follow::Walk;
use crate::{
    decision::{Effect, ObjectId, Uid},
    orchestration::{Node, StepId},
};

/// A step, of whichever run, that waits for a signal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiter {
    /// Since when: who has waited longest comes first.
    pub since: Timestamp,
    pub run: Uid,
    pub position: usize,
    pub step: String,
    pub run_created: Option<Timestamp>,
    pub signal: Option<String>,
    pub delivery_id: Option<String>,
}

impl Waiter {
    fn takes(&self, delivery: &SignalDelivery) -> bool {
        let signal = self.signal.as_deref();
        let id = self.delivery_id.as_deref();
        let created = delivery.metadata.creation_timestamp.as_ref().map(|time| time.0);
        // What happened before the run was created is not meant for it. Kubernetes counts whole seconds, so that what happened in
        // the same one counts.
        let new = match (created, self.run_created) {
            (Some(created), Some(run)) => created >= run,
            _ => true,
        };
        signal.is_none_or(|name| delivery.spec.signal_ref.name.trim() == name)
            && id.is_none_or(|id| delivery.spec.delivery_id.as_deref() == Some(id))
            && new
            && delivery.metadata.deletion_timestamp.is_none()
    }
}

/// Whether steps of a run can still be released by deliveries: one that ends or is going away takes none.
pub fn takes_deliveries(run: &OrchestrationRun) -> bool {
    let phase = run.status.as_ref().and_then(|status| status.phase.as_ref());
    let ends = phase.is_some_and(|phase| phase.is_terminal() || *phase == RunPhase::Cancelling);
    !ends && run.metadata.deletion_timestamp.is_none()
}

/// The steps of a run that wait for a signal, as its status says.
pub fn waiters(run: &OrchestrationRun) -> Vec<Waiter> {
    let takes = Some(run).filter(|run| takes_deliveries(run));
    let steps = takes
        .and_then(|run| run.status.as_ref())
        .into_iter()
        .flat_map(|status| &status.step_statuses)
        .enumerate();
    steps
        .filter(|(_, step)| {
            step.kind == StepKind::SignalWait && step.progress.phase == Some(StepPhase::Running)
        })
        .filter_map(|(position, step)| {
            let waits_for = step.waits_for.as_ref()?;
            Some(Waiter {
                since: step.progress.started_at?.0,
                run: Uid(run.metadata.uid.clone().unwrap_or_default()),
                position,
                step: step.name.clone(),
                run_created: run.metadata.creation_timestamp.as_ref().map(|time| time.0),
                signal: waits_for.signal.clone(),
                delivery_id: waits_for.delivery_id.clone(),
            })
        })
        .collect()
}

impl Walk<'_> {
    pub(super) fn look_at_signal(&mut self, step: StepId, node: &Node, known: &StepStatus) {
        let observed = self.situation.observed;
        let own = observed.deliveries.iter().find(|delivery| {
            let by = delivery
                .status
                .as_ref()
                .and_then(|status| status.consumed_by.as_ref());
            by.is_some_and(|by| by.run_uid == self.situation.uid.0 && by.step == node.name)
        });
        if let Some(delivery) = own {
            let by = ResourceRef {
                api_version: Some(SignalDelivery::api_version(&()).into_owned()),
                kind: Some(SignalDelivery::kind(&()).into_owned()),
                name: Some(delivery.name_any()),
                namespace: delivery.namespace(),
                uid: delivery.uid(),
            };
            self.next.step_released(step, by, delivery.spec.payload.clone());
            return;
        }
        if self.starts_nothing() {
            // Somebody else may wait for what there is.
            self.look_at_the_clock(step, node, known);
            return;
        }
        let next = assigned(&observed.deliveries, &observed.waiters)
            .into_iter()
            .find(|(_, waiter)| waiter.run == self.situation.uid && waiter.step == node.name);
        if let Some((delivery, _)) = next {
            self.effects.push(Effect::ConsumeSignal {
                delivery: ObjectId {
                    name: delivery.name_any(),
                    uid: Uid(delivery.uid().unwrap_or_default()),
                },
                version: delivery.resource_version().unwrap_or_default(),
                by: ConsumedBy {
                    run: Some(self.situation.name()),
                    run_uid: self.situation.uid.0.clone(),
                    step: node.name.clone(),
                },
            });
            return;
        }
        self.look_at_the_clock(step, node, known);
    }
}

/// Which delivery releases which step: the oldest delivery the step that has waited longest.
fn assigned<'o>(
    deliveries: &'o [std::sync::Arc<SignalDelivery>],
    waiters: &'o [Waiter],
) -> Vec<(&'o SignalDelivery, &'o Waiter)> {
    let consumed_by = |delivery: &'o SignalDelivery| delivery.status.as_ref()?.consumed_by.as_ref();
    let is_released = |waiter: &Waiter| {
        let mut used = deliveries.iter().filter_map(|delivery| consumed_by(delivery));
        used.any(|by| by.run_uid == waiter.run.0 && by.step == waiter.step)
    };
    let mut left: Vec<&Waiter> = waiters.iter().filter(|waiter| !is_released(waiter)).collect();
    left.sort();
    let mut free: Vec<&SignalDelivery> = deliveries
        .iter()
        .map(AsRef::as_ref)
        .filter(|delivery| consumed_by(delivery).is_none())
        .collect();
    free.sort_by_key(|delivery| {
        let created = delivery.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, delivery.name_any())
    });
    let mut assigned = Vec::new();
    for delivery in free {
        if let Some(place) = left.iter().position(|waiter| waiter.takes(delivery)) {
            assigned.push((delivery, left.remove(place)));
        }
    }
    assigned
}
