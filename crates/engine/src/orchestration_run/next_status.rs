//! Where a run and its steps stand, as its status shows it: every way in which the status changes is one function here.

use std::collections::{BTreeMap, BTreeSet};

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    orchestration::orchestration_run::{
        CancelReceipt, Definition, OrchestrationRun, OrchestrationRunStatus, StepStatus, WaitsFor,
    },
    phase::{RunPhase, StepPhase},
    reason::Reason,
    step::StepProgress,
    values::{FreeForm, Timestamp},
};

use super::{Child, Situation, cancel, child::number, step_end::StepEnd};
use crate::{
    conditions::{Conditions, Health, touched},
    decision::Rejection,
    orchestration::{
        Graph, Node, STEPS_MAX, StepId,
        advance::{Ended, Skipped, State, Why},
        size::{
            CONDITION_MAX_BYTES, Keeper, MESSAGES_MAX_BYTES, Need, OUTPUTS_MIN_BYTES, cut, json_bytes, short,
        },
    },
};

/// The most bytes of one message of a step, and the least that it may always have.
const MESSAGE_MAX_BYTES: usize = 1024;
const MESSAGE_MIN_BYTES: usize = MESSAGES_MAX_BYTES / STEPS_MAX;
/// The most bytes that the outputs of one step may have.
pub(super) const STEP_OUTPUTS_MAX_BYTES: usize = 16 * 1024;

/// The next status of a run while it is made.
#[derive(Clone)]
pub(super) struct NextStatus<'a> {
    before: &'a OrchestrationRunStatus,
    run: &'a OrchestrationRun,
    pub status: OrchestrationRunStatus,
    conditions: Conditions,
    pub now: jiff::Timestamp,
}

impl<'a> NextStatus<'a> {
    /// Begins with the status as it is.
    pub(super) fn of(situation: &Situation<'a>) -> Self {
        let status = situation.status;
        let mut next = Self {
            before: status,
            run: situation.run,
            status: status.clone(),
            conditions: Conditions::of(&status.common, situation.run.metadata.generation, situation.now),
            now: situation.now,
        };
        let open = !situation.phase().is_terminal() && *situation.phase() != RunPhase::Cancelling;
        let people_may = situation.settings.runs.cancel_enabled;
        let run = situation.run;
        if open && crate::parent::is_stop_refused(&run.metadata, &run.spec.stop, people_may) {
            next.not_cancelled(
                &Reason::CancelDisabled,
                "a cancel was asked for, and the settings do not allow it (JANGAR_ORCHESTRATION_CANCEL_ENABLED is false): set it \
                 to true, or delete the run",
            );
        } else if !situation.phase().is_terminal() && cancel::was_disabled(&status.common) {
            next.cancel_is_not_disabled(crate::parent::has_to_stop(
                &run.metadata,
                &run.spec.stop,
                people_may,
            ));
        }
        next
    }

    /// Was accepted: the steps as they are now are those of the run.
    pub(super) fn accepted(&mut self, name: &str, definition: Definition, graph: &Graph) {
        self.status.definition = Some(definition);
        self.status.run_id = Some(name.to_owned());
        self.status.phase = Some(RunPhase::Running);
        self.status.started_at.get_or_insert(Timestamp(self.now));
        self.lay_out(graph);
        for (type_, reason) in [
            (ConditionType::Accepted, Reason::Submitted),
            (ConditionType::InProgress, Reason::Running),
            (ConditionType::Running, Reason::InProgress),
        ] {
            self.conditions.set(type_, ConditionStatus::True, reason, "");
        }
        self.conditions.set(
            ConditionType::Succeeded,
            ConditionStatus::Unknown,
            Reason::Running,
            "",
        );
        self.conditions.clear(ConditionType::Blocked, Reason::Running, "");
        self.conditions
            .clear(ConditionType::InvalidSpec, Reason::ValidSpec, "");
        self.conditions.stand(Health::Progressing, &Reason::Running, "");
    }

    /// Lists the steps, if the status does not yet.
    pub(super) fn lay_out(&mut self, graph: &Graph) {
        let listed = self.status.step_statuses.iter().map(|step| step.name.as_str());
        if listed.eq(graph.steps().map(|(_, node)| node.name.as_str())) {
            return;
        }
        let now = Timestamp(self.now);
        let mut known = std::mem::take(&mut self.status.step_statuses);
        let steps = graph.steps().map(|(_, node)| {
            let place = known.iter().position(|step| step.name == node.name);
            let unbegun = || StepStatus {
                name: node.name.clone(),
                kind: node.work.kind(),
                progress: StepProgress {
                    phase: Some(StepPhase::Pending),
                    last_transition_time: Some(now),
                    ..StepProgress::default()
                },
                reason: None,
                caused_by: None,
                message: None,
                resource_ref: None,
                waits_for: None,
                outputs: None,
                extra: BTreeMap::new(),
            };
            place.map_or_else(unbegun, |place| known.swap_remove(place))
        });
        self.status.step_statuses = steps.collect();
    }

    /// Has not started, for this reason.
    pub(super) fn waits(&mut self, why: &Rejection) {
        let why = &bounded(why);
        self.status.phase.get_or_insert(RunPhase::Pending);
        self.conditions.set(
            ConditionType::Blocked,
            ConditionStatus::True,
            why.reason.clone(),
            why.message.clone(),
        );
        self.conditions
            .stand(Health::Progressing, &why.reason, &why.message);
    }

    /// Says what the steps wait for that wait for somebody, or that none does.
    pub(super) fn blocked(&mut self, by: Option<&Rejection>) {
        match by {
            Some(why) => self.waits(why),
            None if self.is_blocked() => {
                self.conditions.clear(ConditionType::Blocked, Reason::Running, "");
                self.conditions.stand(Health::Progressing, &Reason::Running, "");
            }
            None => {}
        }
    }

    fn is_blocked(&self) -> bool {
        let blocked = self.conditions.get(&ConditionType::Blocked);
        blocked.is_some_and(|blocked| blocked.status == ConditionStatus::True)
    }

    pub(super) fn step(&self, step: StepId) -> Option<&StepStatus> {
        self.status.step_statuses.get(step.0)
    }

    /// Where each step stands.
    pub(super) fn states(&self, graph: &Graph) -> Vec<State> {
        self.status
            .step_statuses
            .iter()
            .map(|step| state(step, graph))
            .collect()
    }

    fn change(&mut self, step: StepId, phase: StepPhase, change: impl FnOnce(&mut StepStatus)) {
        let now = Timestamp(self.now);
        if let Some(known) = self.status.step_statuses.get_mut(step.0) {
            if known.progress.phase.as_ref() != Some(&phase) {
                known.progress.phase = Some(phase);
                known.progress.last_transition_time = Some(now);
            }
            change(known);
        }
    }

    /// An attempt of a step works, as this child, since that was made. Of that Kubernetes knows whole seconds: none began before the run
    /// did, before what it depends on had ended, or before its time had come.
    pub(super) fn step_works(&mut self, step: StepId, node: &Node, attempt: u32, child: &Child) {
        let steps = &self.status.step_statuses;
        let before = node
            .dependencies
            .iter()
            .filter_map(|StepId(number)| steps.get(*number));
        let ends = before.filter_map(|before| before.progress.finished_at);
        let due = steps.get(step.0).and_then(|known| known.progress.next_retry_at);
        let earliest = ends.chain(due).chain(self.status.started_at).map(|at| at.0).max();
        let made = child.created_at().unwrap_or(self.now);
        let made = made.min(self.now);
        // The order is right even where another clock was ahead of this one.
        let since = Timestamp(earliest.map_or(made, |earliest| made.max(earliest)));
        self.change(step, StepPhase::Running, |known| {
            known.progress.attempt = Some(number(attempt));
            known.progress.started_at = Some(since);
            known.progress.next_retry_at = None;
            known.resource_ref = Some(child.resource_ref());
            known.reason = None;
            known.message = None;
        });
    }

    /// A step that has ended did so at this time, which may have been a while ago.
    pub(super) fn step_ended_at(&mut self, step: StepId, at: jiff::Timestamp) {
        let now = self.now;
        if let Some(known) = self.status.step_statuses.get_mut(step.0) {
            let begun = known.progress.started_at.map_or(at, |begun| begun.0);
            known.progress.finished_at = Some(Timestamp(at.min(now).max(begun)));
        }
    }

    /// Whether all that changes is that these steps work, or have done their work.
    pub(super) fn says_nothing_but_that_these_do_well(&self, steps: &BTreeSet<StepId>) -> bool {
        let mut without = self.clone();
        for &StepId(step) in steps {
            let (Some(now), Some(before)) = (
                without.status.step_statuses.get_mut(step),
                self.before.step_statuses.get(step),
            ) else {
                return false;
            };
            let well = matches!(
                now.progress.phase,
                Some(StepPhase::Running | StepPhase::Succeeded)
            );
            if !well || now.reason.is_some() {
                return false;
            }
            now.clone_from(before);
        }
        without.into_status().is_none()
    }

    /// A step waits for somebody or something outside.
    pub(super) fn step_waits(&mut self, step: StepId, attempt: u32, waits_for: WaitsFor, why: &Rejection) {
        let now = Timestamp(self.now);
        let message = self.cut(&why.message);
        self.change(step, StepPhase::Running, |known| {
            known.progress.attempt = Some(number(attempt));
            known.progress.started_at = Some(now);
            known.progress.next_retry_at = None;
            known.waits_for = Some(waits_for);
            known.reason = Some(why.reason.clone());
            known.message = Some(message);
        });
    }

    /// Something is said about a step that works.
    pub(super) fn step_note(&mut self, step: StepId, why: &Rejection) {
        let message = self.cut(&why.message);
        self.change(step, StepPhase::Running, |known| {
            known.reason = Some(why.reason.clone());
            known.message = Some(message);
        });
    }

    /// A step, or its next attempt, cannot start yet.
    pub(super) fn step_held_up(&mut self, step: StepId, why: &Rejection) {
        let message = self.cut(&why.message);
        if let Some(known) = self.status.step_statuses.get_mut(step.0) {
            known.reason = Some(why.reason.clone());
            known.message = Some(message);
        }
    }

    /// What is shown for the decision about a gate has changed.
    pub(super) fn step_shows(&mut self, step: StepId, waits_for: WaitsFor) {
        self.change(step, StepPhase::Running, |known| {
            known.waits_for = Some(waits_for);
        });
    }

    /// The policy of a gate is not there; returns since when.
    pub(super) fn step_lacks_policy(&mut self, step: StepId) -> jiff::Timestamp {
        let now = Timestamp(self.now);
        let known = self.status.step_statuses.get_mut(step.0);
        let waits_for = known.and_then(|known| known.waits_for.as_mut());
        let since = waits_for.map_or(now, |waits_for| {
            *waits_for.policy_missing_since.get_or_insert(now)
        });
        // One that lies ahead was written before the clock was set back.
        since.0.min(self.now)
    }

    /// The policy of a gate is there.
    pub(super) fn step_has_policy(&mut self, step: StepId) {
        let known = self.status.step_statuses.get_mut(step.0);
        if let Some(waits_for) = known.and_then(|known| known.waits_for.as_mut()) {
            waits_for.policy_missing_since = None;
        }
    }

    /// An attempt ended badly, and another one is due.
    pub(super) fn step_retries(&mut self, step: StepId, due: jiff::Timestamp, why: &Rejection) {
        let message = self.cut(&why.message);
        self.change(step, StepPhase::Retrying, |known| {
            known.progress.next_retry_at = Some(Timestamp(due));
            known.reason = Some(why.reason.clone());
            known.message = Some(message);
            known.waits_for = None;
        });
    }

    /// A step has ended.
    pub(super) fn step_ended(&mut self, step: StepId, end: StepEnd) {
        let now = Timestamp(self.now);
        let (outputs, left_out) = self.fitting(end.outputs);
        let reason = end
            .reason
            .or_else(|| left_out.as_ref().map(|_| Reason::ResultUnavailable));
        let message = end.message.or(left_out).map(|message| self.cut(&message));
        self.change(step, end.phase, |known| {
            // Another clock may have been ahead of this one.
            let finished = known.progress.started_at.map_or(now, |begun| now.max(begun));
            known.progress.finished_at = Some(finished);
            known.progress.next_retry_at = None;
            known.reason = reason;
            known.message = message;
            known.outputs = outputs;
            known.waits_for = None;
        });
    }

    /// A delivery of a signal released a step.
    pub(super) fn step_released(
        &mut self,
        step: StepId,
        by: jangar_api::orchestration::orchestration_run::ResourceRef,
        outputs: Option<FreeForm>,
    ) {
        self.step_ended(step, StepEnd::succeeded(outputs));
        self.change(step, StepPhase::Succeeded, |known| known.resource_ref = Some(by));
    }

    /// A step will never run.
    pub(super) fn step_skipped(&mut self, step: StepId, skipped: Skipped, cause: Option<&str>) {
        let cause = cause.map(str::to_owned);
        let message = match (skipped.why, &cause) {
            (Why::ConditionFalse, _) => "its condition is false".to_owned(),
            (Why::DependencyFailed, Some(cause)) => format!("step {cause} failed"),
            (Why::DependencyCancelled, Some(cause)) => format!("step {cause} was cancelled"),
            (Why::DependencySkipped, Some(cause)) => format!("the condition of step {cause} is false"),
            (Why::RunStopping, Some(cause)) => format!("step {cause} failed, and the run fails fast"),
            (Why::RunStopping, None) => "the time of the run is up".to_owned(),
            (Why::RunCancelled, _) => "the run was cancelled".to_owned(),
            (_, None) => String::new(),
        };
        let message = self.cut(&message);
        self.change(step, StepPhase::Skipped, |known| {
            known.progress.next_retry_at = None;
            known.reason = Some(skipped.why.reason());
            known.caused_by = cause;
            known.message = Some(message);
        });
    }

    /// The outputs that the status has room for, or why there are none.
    fn fitting(&self, outputs: Option<FreeForm>) -> (Option<FreeForm>, Option<String>) {
        let Some(outputs) = outputs else {
            return (None, None);
        };
        let bytes = json_bytes(&outputs);
        let others = self.outputs_bytes();
        // How much there is for all is looked up only where the least is not enough.
        let room = || self.room_for_outputs();
        let left_out = if bytes > STEP_OUTPUTS_MAX_BYTES {
            Some(format!(
                "its outputs have {bytes} bytes, more than the {STEP_OUTPUTS_MAX_BYTES} a step may have, and are left out"
            ))
        } else if others + bytes > OUTPUTS_MIN_BYTES && others + bytes > room() {
            Some(format!(
                "its outputs have {bytes} bytes, and those of the other steps {others}, together more than the {} that this run \
                 has room for: they are left out",
                room()
            ))
        } else {
            None
        };
        match left_out {
            Some(why) => (None, Some(why)),
            None => (Some(outputs), None),
        }
    }

    /// How many bytes the outputs of all steps have.
    fn outputs_bytes(&self) -> usize {
        let steps = self.status.step_statuses.iter();
        steps
            .filter_map(|step| step.outputs.as_ref())
            .map(json_bytes)
            .sum()
    }

    /// Whether there are outputs that might be left out, if so many steps that work gave theirs back first.
    pub(super) fn outputs_may_be_left_out(&self, working: usize) -> bool {
        let bytes = self.outputs_bytes();
        bytes > 0 && bytes + working * STEP_OUTPUTS_MAX_BYTES > self.room_for_outputs()
    }

    /// How many bytes there are for what all steps report.
    fn room_for_outputs(&self) -> usize {
        let steps = self.status.definition.as_ref().map(|kept| kept.steps.as_slice());
        Need::of(steps.unwrap_or_default(), keeper(self.run)).outputs()
    }

    /// As much of a message as every step may have.
    fn cut(&self, message: &str) -> String {
        let share = MESSAGES_MAX_BYTES / self.status.step_statuses.len().max(1);
        cut(message, share.clamp(MESSAGE_MIN_BYTES, MESSAGE_MAX_BYTES))
    }

    /// Is being stopped because somebody asked for it.
    pub(super) fn cancelling(&mut self, deadline: jiff::Timestamp, message: &str) {
        let message = &cut(message, CONDITION_MAX_BYTES);
        self.status.phase = Some(RunPhase::Cancelling);
        self.status.cancel_deadline.get_or_insert(Timestamp(deadline));
        self.conditions.set(
            ConditionType::Succeeded,
            ConditionStatus::Unknown,
            Reason::Cancelling,
            message,
        );
        self.conditions
            .clear(ConditionType::Blocked, Reason::Cancelling, "");
        self.conditions
            .stand(Health::Progressing, &Reason::Cancelling, message);
    }

    /// A step that works is to stop: it gets its place in the receipt.
    pub(super) fn receipt(&mut self, step: StepId) -> Option<&mut CancelReceipt> {
        let known = self.status.step_statuses.get(step.0)?;
        let receipts = &mut self.status.cancel_receipt;
        if let Some(place) = receipts.iter().position(|receipt| receipt.step == known.name) {
            return receipts.get_mut(place);
        }
        receipts.push(CancelReceipt {
            step: known.name.clone(),
            resource_ref: known.resource_ref.as_ref().map(short),
            ..CancelReceipt::default()
        });
        receipts.last_mut()
    }

    pub(super) fn succeeded(&mut self, message: &str) {
        self.ended(RunPhase::Succeeded, &Reason::Completed, message);
        self.conditions.stand(Health::Ready, &Reason::Completed, message);
    }

    pub(super) fn failed(&mut self, why: &Rejection) {
        let why = &bounded(why);
        self.ended(RunPhase::Failed, &why.reason, &why.message);
        self.conditions.set(
            ConditionType::Failed,
            ConditionStatus::True,
            why.reason.clone(),
            why.message.clone(),
        );
        self.conditions.stand(Health::Degraded, &why.reason, &why.message);
    }

    /// Can never run as it was written.
    pub(super) fn rejected(&mut self, why: &Rejection) {
        let why = &bounded(why);
        self.conditions.set(
            ConditionType::InvalidSpec,
            ConditionStatus::True,
            why.reason.clone(),
            why.message.clone(),
        );
        self.failed(why);
    }

    pub(super) fn cancelled(&mut self, reason: &Reason, message: &str) {
        let message = &cut(message, CONDITION_MAX_BYTES);
        self.ended(RunPhase::Cancelled, reason, message);
        self.conditions.set(
            ConditionType::Cancelled,
            ConditionStatus::True,
            reason.clone(),
            message,
        );
        self.conditions.stand(Health::Degraded, reason, message);
    }

    /// Was asked to stop, which is not done for this reason.
    pub(super) fn not_cancelled(&mut self, reason: &Reason, message: &str) {
        self.conditions.set(
            ConditionType::Cancelled,
            ConditionStatus::False,
            reason.clone(),
            message,
        );
    }

    /// A cancel that the settings did not allow is honoured by now, or nobody wants it any more.
    fn cancel_is_not_disabled(&mut self, stops: bool) {
        let (status, reason, message) = if stops || self.status.phase == Some(RunPhase::Cancelling) {
            (ConditionStatus::Unknown, Reason::Cancelling, "")
        } else {
            (
                ConditionStatus::False,
                Reason::Running,
                "no cancel is asked for any more",
            )
        };
        self.conditions
            .set(ConditionType::Cancelled, status, reason, message);
    }

    /// Says what is unclear about how long the run is kept, or that nothing is any more.
    pub(super) fn note_retain(&mut self, message: Option<&str>) {
        let reason = Reason::InvalidRetain;
        let warning = self.conditions.get(&ConditionType::Warning);
        let warned = warning
            .is_some_and(|warning| warning.status == ConditionStatus::True && warning.reason == reason);
        match message {
            Some(message) => {
                self.conditions
                    .set(ConditionType::Warning, ConditionStatus::True, reason, message);
            }
            None if warned => {
                self.conditions
                    .clear(ConditionType::Warning, reason, "it does not hold any more");
            }
            None => {}
        }
    }

    fn ended(&mut self, phase: RunPhase, reason: &Reason, message: &str) {
        let succeeded = if phase == RunPhase::Succeeded {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        };
        self.status.phase = Some(phase);
        let steps = self.status.step_statuses.iter();
        let ends = steps.filter_map(|step| step.progress.finished_at);
        self.status.finished_at = ends.chain([Timestamp(self.now)]).max();
        self.status.cancel_deadline = None;
        self.conditions
            .set(ConditionType::Succeeded, succeeded, reason.clone(), message);
        self.conditions.set(
            ConditionType::Complete,
            ConditionStatus::True,
            reason.clone(),
            message,
        );
        for type_ in [
            ConditionType::InProgress,
            ConditionType::Running,
            ConditionType::Blocked,
        ] {
            self.conditions.clear(type_, reason.clone(), "");
        }
    }

    /// The status, if it differs from the one before.
    pub(super) fn into_status(mut self) -> Option<OrchestrationRunStatus> {
        self.status.common = self.conditions.into_status(&self.before.common);
        touched(self.before, self.status, |status| &mut status.common, self.now)
    }
}

/// What a condition has room for.
fn bounded(why: &Rejection) -> Rejection {
    Rejection::new(why.reason.clone(), cut(&why.message, CONDITION_MAX_BYTES))
}

/// A run, as far as its size depends on it.
pub(super) fn keeper(run: &OrchestrationRun) -> Keeper<'_> {
    Keeper {
        namespace: run.metadata.namespace.as_deref().unwrap_or_default(),
        name: run.metadata.name.as_deref().unwrap_or_default(),
        bytes: json_bytes(&run.metadata) + json_bytes(&run.spec),
    }
}

/// Where a step stands.
fn state(step: &StepStatus, graph: &Graph) -> State {
    match step.progress.phase.as_ref().unwrap_or(&StepPhase::Pending) {
        StepPhase::Pending => State::Waiting,
        // A word of another version is left alone.
        StepPhase::Running | StepPhase::Retrying | StepPhase::Other(_) => State::Active,
        StepPhase::Succeeded => State::Ended(Ended::Succeeded),
        StepPhase::Failed => State::Ended(Ended::Failed),
        StepPhase::Cancelled => State::Ended(Ended::Cancelled),
        StepPhase::Skipped => State::Ended(Ended::Skipped(Skipped {
            why: step
                .reason
                .as_ref()
                .and_then(Why::of)
                .unwrap_or(Why::ConditionFalse),
            cause: step.caused_by.as_deref().and_then(|name| graph.find(name)),
        })),
    }
}
