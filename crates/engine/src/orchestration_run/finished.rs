//! Children whose end is recorded are let go. Those that nobody waits for are stopped first.

use std::collections::BTreeMap;

use jangar_api::{
    names::label_value,
    orchestration::orchestration_run::{OrchestrationRunStatus, StepStatus},
    phase::StepPhase,
    values,
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    Child, Observed, Situation,
    attempt::attempt_of,
    cancel::{is_over, too_late},
    gate, sooner, survivors,
    survivors::Kept,
};
use crate::{
    decision::{ChildKind, Decision, Effect, Plan},
    parent,
    retention::{Retain, kept_until, run_retention},
};

/// A run that has ended.
pub(super) fn plan(situation: &Situation<'_>) -> Decision<OrchestrationRunStatus> {
    let mut next = situation.next_status();
    if next.status.finished_at.is_none() {
        // Somebody else wrote the phase.
        next.status.finished_at = Some(values::Timestamp(situation.now));
    }
    if let Some((reason, message)) = too_late(situation) {
        next.not_cancelled(&reason, message);
    }
    next.note_retain(Retain::of(situation.run).remark().as_deref());
    survivors::record(situation, &mut next);
    let mut effects = let_go_past(situation);
    effects.extend(gate::unmark(situation));
    let mut plan = Plan {
        effects,
        status: next.into_status(),
        wake_at: Kept::of(situation).until,
        ..Plan::nothing()
    };
    if let Some(due) = due(situation).filter(|_| plan.is_idle()) {
        if situation.now >= due {
            plan.effects.push(Effect::DeleteRun {
                run: situation.id(),
                version: situation.run.resource_version().unwrap_or_default(),
            });
        } else {
            plan.wake_at = sooner(plan.wake_at, Some(due));
        }
    }
    Decision::Act(plan)
}

/// When the run may be deleted, if nothing holds it: neither a parent that has not recorded its end, nor children of its own.
fn due(situation: &Situation<'_>) -> Option<Timestamp> {
    let run = situation.run;
    let held = parent::is_held(&run.metadata) || situation.own_children().any(Child::is_held);
    if held || run.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let kept = run_retention(run.spec.ttl_seconds_after_finished, situation.settings);
    kept_until(run, situation.status.finished_at.map(|at| at.0), kept)
}

/// Orchestrations are not looked after here: nobody will ever record how these children ended. Those that somebody deletes are
/// let go when they have stopped, and all else is left as it is for the time when they are looked after again.
pub(super) fn let_go_deleted(observed: &Observed) -> Plan<OrchestrationRunStatus> {
    let deleted = observed
        .children
        .values()
        .filter(|child| child.is_held() && child.is_deleting());
    // The controllers of the other kinds stop what they have running, and say so.
    let stopped =
        deleted.filter(|child| child.end().is_some() || child.kind() == ChildKind::OrchestrationRun);
    Plan {
        effects: stopped.map(Child::release).collect(),
        ..Plan::nothing()
    }
}

/// Lets the children go whose end the status has, as it was written last, and with it when nothing of them was left.
pub(super) fn let_go_past(situation: &Situation<'_>) -> Vec<Effect> {
    let mut effects = strays(situation);
    let held: Vec<&Child> = situation.own_children().filter(|child| child.is_held()).collect();
    if held.is_empty() {
        return effects;
    }
    let steps: BTreeMap<String, &StepStatus> = situation
        .status
        .step_statuses
        .iter()
        .map(|step| (label_value(&step.name), step))
        .collect();
    let run_over = situation.phase().is_terminal();
    let kept = Kept::of(situation);
    let past = held
        .into_iter()
        .filter(|child| run_over || is_past(child, &steps))
        .filter(|child| !kept.has(child));
    effects.extend(past.filter_map(let_go));
    effects
}

/// Whether the status says how this child ended.
fn is_past(child: &Child, steps: &BTreeMap<String, &StepStatus>) -> bool {
    let place = child
        .place()
        .and_then(|(step, attempt)| Some((steps.get(step)?, attempt)));
    let Some((step, attempt)) = place else {
        return false;
    };
    let current = attempt_of(step);
    let retrying = step.progress.phase == Some(StepPhase::Retrying);
    is_over(step) || attempt < current || (retrying && attempt == current)
}

/// What is left of an earlier run of the same name, which is gone.
fn strays(situation: &Situation<'_>) -> Vec<Effect> {
    let children = situation.observed.children.values();
    children
        .filter(|child| child.is_held() && child.owner().is_some_and(|owner| owner != situation.uid))
        .filter_map(let_go)
        .collect()
}

/// The run is gone, or is going: its children stop, and nobody waits for how they end.
pub(super) fn let_go_all(observed: &Observed) -> Plan<OrchestrationRunStatus> {
    let held = observed.children.values().filter(|child| child.is_held());
    Plan {
        effects: held.filter_map(let_go).collect(),
        ..Plan::nothing()
    }
}

/// Lets a child go that has ended, and stops one that has not. One that belongs to nobody any more was to go on.
fn let_go(child: &Child) -> Option<Effect> {
    if child.end().is_some() {
        return Some(child.release());
    }
    let wanted = child.owner().is_none() || child.is_asked_to_stop() || child.is_deleting();
    (!wanted).then(|| Effect::CancelChild {
        child: child.id(),
        reason: "its OrchestrationRun does not wait for it any more".to_owned(),
        deadline: None,
    })
}
