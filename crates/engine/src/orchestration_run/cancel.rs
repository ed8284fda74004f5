//! The run is to stop: nothing new starts, what works is asked to stop, and the run is over when all of it has.

use std::collections::{BTreeMap, BTreeSet};

use jangar_api::{
    condition::{CommonStatus, ConditionType},
    names::label_value,
    orchestration::orchestration_run::StepStatus,
    phase::{RunPhase, StepPhase},
    reason::Reason,
};

use super::{
    Child, Situation,
    attempt::{attempt_of, has_child, kind_of},
    child,
    follow::{Walk, stored},
    step_end::StepEnd,
    survivors,
};
use crate::{
    decision::{Effect, Question},
    orchestration::{
        Node, StepId,
        advance::{Going, Skipped, Verdict, Why, advance},
        work::Work,
    },
    parent,
};

const CANCELLED: Skipped = Skipped {
    why: Why::RunCancelled,
    cause: None,
};

/// Says that the run is being cancelled, and what is running. Nobody is asked to stop before that is written: a child that is
/// being cancelled does not tell who wanted it.
pub(super) fn begin(walk: &mut Walk<'_>) {
    let situation = walk.situation;
    let timeout = situation.settings.runs.cancel_timeout;
    let deadline = parent::cancel_deadline(&situation.run.metadata, timeout, situation.now);
    let active = walk.active();
    for (step, _) in &active {
        walk.next.receipt(*step);
    }
    let message = because(situation, &left(active.len()));
    walk.next.cancelling(deadline, &message);
    walk.effects.clear();
    walk.wake_at = None;
    walk.wake(deadline);
}

fn left(count: usize) -> String {
    match count {
        1 => "the run is being cancelled: 1 step is left".to_owned(),
        count => format!("the run is being cancelled: {count} steps are left"),
    }
}

/// Goes on with a cancel that has begun.
pub(super) fn carry_on(walk: &mut Walk<'_>) {
    let situation = walk.situation;
    let now = situation.now;
    let deadline = situation.status.cancel_deadline.map_or_else(
        || {
            parent::cancel_deadline(
                &situation.run.metadata,
                situation.settings.runs.cancel_timeout,
                now,
            )
        },
        |at| at.0,
    );
    walk.start_nothing();
    walk.stop_steps(CANCELLED);
    if now >= deadline {
        give_up(walk, &Reason::CancelTimedOut);
    } else if !situation.settings.safeguards.cancel_waits {
        give_up(walk, &Reason::RunCancelled);
    }
    write_receipts(walk);
    survivors::record(situation, &mut walk.next);
    let states = walk.next.states(walk.graph);
    let next = advance(walk.graph, &states, Going::Stops(CANCELLED), |_| Verdict::Run);
    for (step, skipped) in next.skips {
        walk.skip(step, skipped);
    }
    if next.end.is_none() {
        let count = walk.active().len();
        walk.next.cancelling(deadline, &because(situation, &left(count)));
        walk.wake(deadline);
        return;
    }
    let left = survivors(walk);
    // What could not be stopped before the run was cancelled gets the time that its children have, and so does what gave up early.
    let patience = parent::deadline_of_children(deadline);
    if !left.is_empty() && now < patience && situation.settings.safeguards.cancel_waits {
        let message = format!(
            "the run is being cancelled: all steps have ended, and still there, being removed, is {}",
            left.join(", ")
        );
        walk.next.cancelling(deadline, &because(situation, &message));
        walk.wake(patience);
        return;
    }
    let (reason, message) = if left.is_empty() {
        (Reason::Cancelled, "the run was cancelled".to_owned())
    } else {
        let names = left.join(", ");
        (
            Reason::CancelTimedOut,
            format!("the cancel took too long; still there, and being removed: {names}"),
        )
    };
    let message = because(situation, &message);
    walk.next.cancelled(&reason, &message);
    walk.notices.push(situation.normal(reason, message));
}

/// The steps of which something may still be alive.
fn survivors(walk: &Walk<'_>) -> Vec<String> {
    let steps = walk.next.status.step_statuses.iter();
    let receipts = &walk.next.status.cancel_receipt;
    steps
        .filter(|step| {
            let receipt = receipts.iter().find(|receipt| receipt.step == step.name);
            receipt.is_some_and(survivors::is_open)
        })
        .map(|step| {
            let child = step.resource_ref.as_ref();
            let kind = child.and_then(|child| child.kind.as_deref()).unwrap_or("step");
            let name = child
                .and_then(|child| child.name.as_deref())
                .unwrap_or(&step.name);
            format!("{kind} {name}")
        })
        .collect()
}

/// The deadline has passed. The controllers of the children go on removing what is left.
fn give_up(walk: &mut Walk<'_>, reason: &Reason) {
    for (step, _) in walk.active() {
        let end = StepEnd::cancelled(
            reason.clone(),
            "it did not stop in time, and is still being removed",
        );
        walk.next.step_ended(step, end);
    }
    // Nothing is waited for any more.
    walk.questions.clear();
}

/// Writes down who was asked to stop and who has stopped.
fn write_receipts(walk: &mut Walk<'_>) {
    let now = stored(walk.situation.now);
    for (step, node) in walk.graph.steps() {
        let Some(known) = walk.step(step).cloned() else {
            continue;
        };
        let listed = walk
            .next
            .status
            .cancel_receipt
            .iter()
            .any(|receipt| receipt.step == known.name);
        let over = known.progress.phase.as_ref().is_some_and(StepPhase::is_terminal);
        if !listed && over {
            continue;
        }
        if !listed && known.progress.phase == Some(StepPhase::Pending) {
            continue;
        }
        // What could not be stopped before the run was cancelled has its receipt already.
        let mut written = walk.situation.status.cancel_receipt.iter();
        if written.any(|receipt| receipt.step == known.name && receipt.result.is_some()) {
            continue;
        }
        let child = if has_child(&node.work) {
            walk.current_child(node, &known).ok().flatten().cloned()
        } else {
            None
        };
        // A step that only waits stops as soon as it is told.
        let asked = match &child {
            // One that had ended by itself was never asked.
            Some(child) => child.is_asked_to_stop(),
            None => !has_child(&node.work),
        };
        let result = match (&child, &known.reason) {
            (_, Some(Reason::CancelTimedOut)) => Reason::CancelTimedOut.as_str().to_owned(),
            (Some(child), _) if child.has_survivors() => Reason::CancelTimedOut.as_str().to_owned(),
            _ => known
                .progress
                .phase
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        };
        let Some(receipt) = walk.next.receipt(step) else {
            continue;
        };
        if asked {
            receipt.asked_at.get_or_insert(now);
        }
        if over && receipt.result.is_none() {
            receipt.result = Some(result);
            // What is still there has not been seen to go.
            receipt.gone_at = (!survivors::survived(receipt)).then_some(now);
        }
    }
}

impl Walk<'_> {
    /// Asks everything that works to stop, and ends what only waits.
    pub(super) fn stop_steps(&mut self, cause: Skipped) {
        self.adopt_unrecorded();
        let reason = cause.why.reason();
        for (step, node) in self.active() {
            let Some(known) = self.step(step).cloned() else {
                continue;
            };
            let retrying = known.progress.phase == Some(StepPhase::Retrying);
            if !has_child(&node.work) || retrying {
                if retrying && has_child(&node.work) && !self.knows(node, attempt_of(&known) + 1) {
                    // The question is asked.
                    continue;
                }
                let end = StepEnd::cancelled(reason.clone(), "it waited when the run was stopped");
                self.next.step_ended(step, end);
                continue;
            }
            let asked = match self.current_child(node, &known) {
                Ok(Some(child)) if child.end().is_none() && !child.is_asked_to_stop() => child.id(),
                _ => continue,
            };
            let deadline = self.situation.status.cancel_deadline;
            let is_cancel = cause.why == Why::RunCancelled;
            // One that takes too long as well is told once.
            self.effects
                .retain(|effect| !matches!(effect, Effect::CancelChild { child, .. } if *child == asked));
            self.effects.push(Effect::CancelChild {
                child: asked,
                reason: self.words(cause),
                deadline: deadline
                    .filter(|_| is_cancel)
                    .map(|at| parent::deadline_of_children(at.0)),
            });
        }
    }

    fn words(&self, cause: Skipped) -> String {
        let name = self.situation.name();
        match cause.cause {
            Some(step) => format!("step {} of OrchestrationRun {name} failed", self.graph.name(step)),
            None if cause.why == Why::RunCancelled => {
                because(self.situation, &format!("OrchestrationRun {name} was cancelled"))
            }
            None => format!("the time of OrchestrationRun {name} is up"),
        }
    }

    /// Children may have been made, and have done their work, before the status was to say so: layer after layer where there is much
    /// to do. All of them are taken on, so that what works is stopped and what is done stays.
    pub(super) fn adopt_unrecorded(&mut self) {
        let mut looked_at = BTreeSet::new();
        loop {
            let next: Vec<(StepId, u32)> = self
                .unrecorded()
                .into_iter()
                .filter(|place| looked_at.insert(*place))
                .collect();
            if next.is_empty() {
                break;
            }
            for (step, attempt) in next {
                self.adopt_if_made(step, attempt);
            }
        }
        self.adopt_all_that_work();
    }

    /// Whatever of this run works is to be stopped, also what no step that is known to have ended leads to: behind one that was skipped, or
    /// could not start.
    fn adopt_all_that_work(&mut self) {
        let working: Vec<(StepId, u32, Child)> = self
            .made_for()
            .into_iter()
            .filter(|(_, _, child)| child.end().is_none())
            .filter_map(|(step, attempt, child)| {
                let known = self.step(step)?;
                let recorded = match known.progress.phase {
                    Some(StepPhase::Pending) | None => 0,
                    Some(_) => attempt_of(known),
                };
                (recorded < attempt && !is_over(known)).then(|| (step, attempt, child.clone()))
            })
            .collect();
        for (step, attempt, child) in working {
            if let Some(node) = self.graph.node(step) {
                self.next.step_works(step, node, attempt, &child);
            }
        }
    }

    /// What the children of this run were made for.
    fn made_for(&self) -> Vec<(StepId, u32, &Child)> {
        let steps = self.graph.steps().filter(|(_, node)| has_child(&node.work));
        let steps: BTreeMap<String, (StepId, &Node)> = steps
            .map(|(step, node)| (label_value(&node.name), (step, node)))
            .collect();
        let run = self.situation.name();
        let of_step = |child| {
            let (label, attempt) = Child::place(child)?;
            let (step, node) = steps.get(label)?;
            let is_its =
                kind_of(&node.work) == child.kind() && child::name(&run, &node.name, attempt) == child.name();
            is_its.then_some((*step, attempt, child))
        };
        self.situation.own_children().filter_map(of_step).collect()
    }

    /// The attempts that may have been made although the status does not say so: as it stands now, they would be made next.
    fn unrecorded(&self) -> Vec<(StepId, u32)> {
        let states = self.next.states(self.graph);
        let startable = advance(self.graph, &states, Going::On, |_| Verdict::Run).starts;
        let first = startable.into_iter().map(|step| (step, 1));
        let again = self.active().into_iter().filter_map(|(step, _)| {
            let known = self.step(step)?;
            let retrying = known.progress.phase == Some(StepPhase::Retrying);
            retrying.then(|| (step, attempt_of(known) + 1))
        });
        first.chain(again).collect()
    }

    fn adopt_if_made(&mut self, step: StepId, attempt: u32) {
        let Some(node) = self.graph.node(step) else {
            return;
        };
        if !has_child(&node.work) {
            // It leaves nothing but a word in the status; that it was reached shows in what came after it.
            let reached = || matches!(self.condition(step), Verdict::Run) && self.has_child_after(step);
            if matches!(node.work, Work::Checkpoint) && reached() {
                self.next.step_ended(step, StepEnd::succeeded(None));
            }
            return;
        }
        let name = child::name(&self.situation.name(), &node.name, attempt);
        if !self.knows(node, attempt) {
            self.questions.insert(Question::Child(kind_of(&node.work), name));
            return;
        }
        let child = self.situation.observed.children.get(&(kind_of(&node.work), name));
        let Some(child) = child.filter(|child| child.owner().as_ref() == Some(&self.situation.uid)) else {
            return;
        };
        // Whatever of this run works is stopped, whoever made it. Only what the step would have made has a result for it.
        let over = child.end().is_some();
        let is_own = || {
            let draft = self.draft(step, node, attempt);
            draft.is_ok_and(|draft| child.is_made_as(&draft))
        };
        if over && !is_own() {
            return;
        }
        self.next.step_works(step, node, attempt, child);
        if over {
            self.look_at(step, node);
        }
    }

    /// Whether a step that comes after this one has a child.
    fn has_child_after(&self, step: StepId) -> bool {
        let made = self.made_for();
        let mut later = made.iter().map(|(later, ..)| *later);
        later.any(|later| self.graph.ancestors(later).any(|above| above == step))
    }

    /// Whether it is known if there is a child of this attempt.
    fn knows(&self, node: &Node, attempt: u32) -> bool {
        let name = child::name(&self.situation.name(), &node.name, attempt);
        let key = (kind_of(&node.work), name);
        let observed = self.situation.observed;
        observed.children.contains_key(&key) || observed.live_children.contains(&key)
    }
}

/// What is said, with the reason that whoever cancelled gave.
pub(super) fn because(situation: &Situation<'_>, message: &str) -> String {
    let stop = &situation.run.spec.stop;
    let reason = stop
        .cancel_reason
        .as_deref()
        .map(str::trim)
        .filter(|reason| !reason.is_empty());
    let mut text = match reason {
        None => message.to_owned(),
        Some(reason) => format!("{message} ({reason})"),
    };
    if parent::is_deleted_under_parent(&situation.run.metadata) {
        text.push_str("; it was deleted");
    } else if !stop.is_requested() {
        text.push_str("; a cancel that has begun cannot be taken back");
    }
    text
}

/// A cancel of a run that had already ended is answered, and changes nothing. One that was asked for in time and not allowed is answered
/// anew: that the settings change does not help it any more.
pub(super) fn too_late(situation: &Situation<'_>) -> Option<(Reason, &'static str)> {
    let common = &situation.status.common;
    let disabled = was_disabled(common);
    // Whatever else the condition says is about a run that had not ended.
    let answered = common
        .condition(&ConditionType::Cancelled)
        .is_some_and(|told| matches!(told.reason, Reason::AlreadySucceeded | Reason::AlreadyFailed));
    if !situation.run.spec.stop.is_requested() || answered {
        return None;
    }
    match (situation.phase(), disabled) {
        (RunPhase::Succeeded, false) => Some((
            Reason::AlreadySucceeded,
            "the run had already succeeded when the cancel was asked for",
        )),
        (RunPhase::Succeeded, true) => Some((
            Reason::AlreadySucceeded,
            "the run succeeded before the settings allowed the cancel",
        )),
        (RunPhase::Failed, false) => Some((
            Reason::AlreadyFailed,
            "the run had already failed when the cancel was asked for",
        )),
        (RunPhase::Failed, true) => Some((
            Reason::AlreadyFailed,
            "the run failed before the settings allowed the cancel",
        )),
        _ => None,
    }
}

/// Whether the last answer to a cancel was that the settings do not allow it.
pub(super) fn was_disabled(common: &CommonStatus) -> bool {
    let told = common.condition(&ConditionType::Cancelled);
    told.is_some_and(|told| told.reason == Reason::CancelDisabled)
}

/// Whether a step has ended, as the status that is written says.
pub(super) fn is_over(step: &StepStatus) -> bool {
    step.progress.phase.as_ref().is_some_and(StepPhase::is_terminal)
}
