//! What must hold for OrchestrationRuns at each change, and at rest.

use std::collections::{BTreeMap, BTreeSet};

use jangar_api::{
    condition::ConditionType,
    labels::{ORCHESTRATION_RUN, RUNTIME_CLEANUP_FINALIZER},
    orchestration::orchestration_run::{CancelReceipt, OrchestrationRun, OrchestrationRunStatus},
    phase::{RunPhase, StepPhase},
    reason::Reason,
};
use kubelite::store::{Event, EventKind, Object, Store};

use crate::{
    node::Work,
    world::{all_runs, objects, orchestration_runs},
};

/// The runs as they were last seen, by UID.
#[derive(Debug, Default)]
pub struct Orchestrations {
    seen: BTreeMap<String, OrchestrationRunStatus>,
    /// Those of them that are being stopped or have ended, by name.
    closed: BTreeSet<String>,
}

impl Orchestrations {
    /// The rules that a change breaks.
    pub fn broken_by(&mut self, event: &Event, works: &[Work]) -> Vec<String> {
        let mut found = Vec::new();
        let is_run = all_runs().contains(&event.collection) || event.collection == orchestration_runs();
        if is_run && event.kind == EventKind::Added {
            found.extend(self.late_child(&event.object));
        }
        if event.collection == orchestration_runs() {
            found.extend(self.run_changed(event));
        }
        found.extend(self.working(works));
        found.extend(self.not_gone(works));
        found
    }

    fn run_changed(&mut self, event: &Event) -> Vec<String> {
        let Some(run) = read(&event.object) else {
            return vec![format!("OrchestrationRun {} cannot be read", event.key.name)];
        };
        let name = event.key.name.to_string();
        let uid = event.object.meta.uid.clone();
        if event.kind == EventKind::Deleted {
            self.seen.remove(&uid);
            self.closed.remove(&name);
            return Vec::new();
        }
        let status = run.status.clone().unwrap_or_default();
        let mut found = changed(&name, self.seen.get(&uid), &status);
        found.extend(without_cause(&name, &run));
        let phase = status.phase.clone().unwrap_or(RunPhase::Pending);
        if phase.is_terminal() || phase == RunPhase::Cancelling {
            self.closed.insert(name.clone());
        }
        found.extend(receipts(&name, &status));
        self.seen.insert(uid, status);
        found
    }

    /// A child, of whatever kind, that begins although its run is being stopped.
    fn late_child(&self, object: &Object) -> Option<String> {
        let value = object.value();
        let parent = value["metadata"]["labels"][ORCHESTRATION_RUN].as_str()?;
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        self.closed
            .contains(parent)
            .then(|| format!("child {name} was made after {parent} was cancelled or had ended"))
    }

    /// A run that says it was cancelled has nothing at work, however far down.
    fn working(&self, works: &[Work]) -> Vec<String> {
        let mut found = Vec::new();
        for status in self.seen.values().filter(|status| is_stopped(status)) {
            let below = self.below(status);
            let working = works
                .iter()
                .filter(|work| work.is_running() && below.contains(work.assignment.run_uid.as_str()));
            found.extend(
                working.map(|work| format!("pod {} works for an orchestration that was cancelled", work.pod)),
            );
        }
        found
    }

    /// What a receipt calls gone does not work any more.
    fn not_gone(&self, works: &[Work]) -> Vec<String> {
        let mut found = Vec::new();
        for status in self.seen.values() {
            let gone = status
                .cancel_receipt
                .iter()
                .filter(|receipt| receipt.gone_at.is_some());
            for receipt in gone {
                let step = status.step_statuses.iter().find(|step| step.name == receipt.step);
                let child = step.and_then(|step| step.resource_ref.as_ref()?.uid.as_deref());
                let mut runs: BTreeSet<&str> = child.into_iter().collect();
                runs.extend(
                    child
                        .and_then(|child| Some(self.below(self.seen.get(child)?)))
                        .into_iter()
                        .flatten(),
                );
                let works = works
                    .iter()
                    .any(|work| work.is_running() && runs.contains(work.assignment.run_uid.as_str()));
                if works {
                    found.push(format!("step {} is gone by its receipt, and works", receipt.step));
                }
            }
        }
        found
    }

    /// The UIDs of the children of a run, and of theirs.
    fn below<'s>(&'s self, status: &'s OrchestrationRunStatus) -> BTreeSet<&'s str> {
        let children = |status: &'s OrchestrationRunStatus| {
            let steps = status.step_statuses.iter();
            steps.filter_map(|step| step.resource_ref.as_ref()?.uid.as_deref())
        };
        let mut found = BTreeSet::new();
        let mut left: Vec<&str> = children(status).collect();
        while let Some(uid) = left.pop() {
            if found.insert(uid) {
                left.extend(self.seen.get(uid).into_iter().flat_map(children));
            }
        }
        found
    }
}

/// A run that was cancelled says of everything that ran what became of it. When what had survived was gone is added later.
fn receipts(name: &str, status: &OrchestrationRunStatus) -> Vec<String> {
    if status.phase != Some(RunPhase::Cancelled) {
        return Vec::new();
    }
    let open = status
        .cancel_receipt
        .iter()
        .filter(|receipt| receipt.result.is_none() || (receipt.gone_at.is_none() && !survived(receipt)));
    open.map(|receipt| {
        format!(
            "the receipt of {name} does not say what became of step {}",
            receipt.step
        )
    })
    .collect()
}

/// Whether the cancel was given up while this was there.
fn survived(receipt: &CancelReceipt) -> bool {
    receipt.result.as_deref() == Some(Reason::CancelTimedOut.as_str())
}

fn read(object: &Object) -> Option<OrchestrationRun> {
    serde_json::from_slice(&object.json).ok()
}

/// Cancelled, and sure that nothing is left.
fn is_stopped(status: &OrchestrationRunStatus) -> bool {
    let cancelled = status.common.condition(&ConditionType::Cancelled);
    status.phase == Some(RunPhase::Cancelled)
        && cancelled.is_none_or(|condition| condition.reason != Reason::CancelTimedOut)
}

/// What has ended stays as it is: the run, and each of its steps.
fn changed(
    name: &str,
    before: Option<&OrchestrationRunStatus>,
    after: &OrchestrationRunStatus,
) -> Vec<String> {
    let Some(before) = before else { return Vec::new() };
    let mut found = Vec::new();
    let reason = |status: &OrchestrationRunStatus| {
        let cancelled = status.common.condition(&ConditionType::Cancelled);
        cancelled
            .filter(|_| status.phase == Some(RunPhase::Cancelled))
            .map(|condition| condition.reason.clone())
    };
    if before.phase.as_ref().is_some_and(RunPhase::is_terminal)
        && (before.phase != after.phase
            || before.finished_at != after.finished_at
            || reason(before) != reason(after))
    {
        found.push(format!(
            "orchestration run {name} had ended, and ended again otherwise"
        ));
    }
    for (was, is) in before.cancel_receipt.iter().zip(&after.cancel_receipt) {
        if was.gone_at.is_some() && was != is {
            found.push(format!(
                "the receipt of step {} of {name} was complete, and changed",
                was.step
            ));
        }
    }
    let ended = |phase: Option<&StepPhase>| phase.is_some_and(StepPhase::is_terminal);
    for (was, is) in before.step_statuses.iter().zip(&after.step_statuses) {
        if ended(was.progress.phase.as_ref()) && was != is {
            found.push(format!("step {} of {name} had ended, and changed", was.name));
        }
    }
    found
}

/// Whatever is skipped because of another step depends on it, directly or further up. A run that stops does so for a step that ended
/// badly, or because its time is up.
fn without_cause(name: &str, run: &OrchestrationRun) -> Vec<String> {
    let Some(status) = &run.status else {
        return Vec::new();
    };
    let Some(definition) = &status.definition else {
        return Vec::new();
    };
    let is_graph = definition.steps.iter().any(|step| step.depends_on.is_some());
    let above = |of: &str| -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut left = vec![of.to_owned()];
        while let Some(step) = left.pop() {
            let place = definition.steps.iter().position(|known| known.name == step);
            let direct: Vec<String> = match place {
                Some(place) if !is_graph => place
                    .checked_sub(1)
                    .and_then(|before| definition.steps.get(before))
                    .map(|before| before.name.clone())
                    .into_iter()
                    .collect(),
                Some(place) => definition.steps[place].depends_on.clone().unwrap_or_default(),
                None => Vec::new(),
            };
            left.extend(direct.into_iter().filter(|name| found.insert(name.clone())));
        }
        found
    };
    let skipped = status
        .step_statuses
        .iter()
        .filter(|step| step.progress.phase == Some(StepPhase::Skipped));
    let wrong = skipped.filter(|step| match (&step.reason, &step.caused_by) {
        (Some(Reason::ConditionFalse | Reason::RunCancelled), _) => false,
        (Some(Reason::RunStopping), None) => run.spec.timeout_seconds.is_none(),
        (Some(Reason::RunStopping), Some(cause)) => {
            let cause = status.step_statuses.iter().find(|known| known.name == *cause);
            let phase = cause.and_then(|cause| cause.progress.phase.as_ref());
            !matches!(phase, Some(StepPhase::Failed | StepPhase::Cancelled))
        }
        (
            Some(Reason::DependencyFailed | Reason::DependencySkipped | Reason::DependencyCancelled),
            Some(cause),
        ) => !above(&step.name).contains(cause),
        _ => true,
    });
    wrong
        .map(|step| {
            format!(
                "step {} of {name} is skipped as {:?} because of {:?}, which is no cause",
                step.name, step.reason, step.caused_by
            )
        })
        .collect()
}

/// The receipts that do not say when it was gone, although the child that they are about is there and says it.
fn incomplete(store: &Store) -> Vec<String> {
    let known = all_runs().into_iter().flat_map(|kind| objects(store, &kind));
    let gone: BTreeSet<String> = known
        .filter(|child| child.value()["status"]["survivorsGoneAt"].is_string())
        .map(|child| child.meta.uid.clone())
        .collect();
    let mut found = Vec::new();
    for run in objects(store, &orchestration_runs()).iter().filter_map(read) {
        let Some(status) = &run.status else { continue };
        let open = status
            .cancel_receipt
            .iter()
            .filter(|receipt| survived(receipt) && receipt.gone_at.is_none());
        for receipt in open {
            let step = status.step_statuses.iter().find(|step| step.name == receipt.step);
            let child = step.and_then(|step| step.resource_ref.as_ref()?.uid.clone());
            if child.is_some_and(|child| gone.contains(&child)) {
                found.push(format!(
                    "the receipt does not say when step {} was gone, and its child does",
                    receipt.step
                ));
            }
        }
    }
    found
}

/// What must hold when nothing happens any more: no child is held for a run that has ended or is gone, and receipts are complete.
pub fn broken_at_rest(store: &Store) -> Vec<String> {
    let open: BTreeSet<String> = objects(store, &orchestration_runs())
        .iter()
        .filter_map(read)
        .filter(|run| {
            let phase = run.status.as_ref().and_then(|status| status.phase.as_ref());
            !phase.is_some_and(RunPhase::is_terminal)
        })
        .filter_map(|run| run.metadata.uid)
        .collect();
    let mut found = incomplete(store);
    let kinds = all_runs().into_iter().chain([orchestration_runs()]);
    for child in kinds.flat_map(|kind| objects(store, &kind)) {
        let held = child
            .meta
            .finalizers
            .iter()
            .any(|name| name == RUNTIME_CLEANUP_FINALIZER);
        let parent = child
            .meta
            .owners
            .iter()
            .find(|owner| owner.kind == "OrchestrationRun");
        if held && let Some(parent) = parent.filter(|parent| !open.contains(&parent.uid)) {
            let name = child.value()["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            found.push(format!(
                "child {name} is held for {}, which has ended or is gone",
                parent.name
            ));
        }
    }
    for run in objects(store, &orchestration_runs())
        .iter()
        .filter(|run| run.meta.deleting)
    {
        let name = run.value()["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        found.push(format!("orchestration run {name} is deleted, and does not go"));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A run whose first step ended like this, and whose second one is skipped because of it.
    fn told(first: &str, reason: &str, spec: &Value) -> Vec<String> {
        let steps = json!([
            {"name": "a", "kind": "Checkpoint", "dependsOn": []},
            {"name": "b", "kind": "Checkpoint", "dependsOn": []},
        ]);
        let mut run = json!({
            "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun",
            "metadata": {"name": "dag"}, "spec": {"orchestrationRef": {"name": "pipeline"}},
            "status": {"definition": {"steps": steps}, "stepStatuses": [
                {"name": "a", "kind": "Checkpoint", "phase": first},
                {"name": "b", "kind": "Checkpoint", "phase": "Skipped", "reason": reason, "causedBy": "a"},
            ]},
        });
        if let (Some(own), Some(fields)) = (run["spec"].as_object_mut(), spec.as_object()) {
            own.extend(fields.clone());
        }
        let run: OrchestrationRun = serde_json::from_value(run).expect("a run");
        without_cause("dag", &run)
    }

    #[test]
    fn a_run_stops_for_a_step_that_ended_badly_and_for_no_other() {
        let spec = json!({"failurePolicy": "FailFast"});
        for (first, expected) in [("Failed", 0), ("Cancelled", 0), ("Succeeded", 1), ("Running", 1)] {
            assert_eq!(told(first, "RunStopping", &spec).len(), expected, "{first}");
        }
        assert_eq!(
            told("Failed", "DependencyFailed", &spec).len(),
            1,
            "it does not depend on it"
        );
    }
}
