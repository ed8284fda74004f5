//! One attempt of a step: whether it works, has ended, or takes too long.

use std::time::Duration;

use jangar_api::{
    orchestration::orchestration_run::StepStatus,
    phase::{RunPhase, StepPhase},
    reason::Reason,
    values::Int32,
};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::{
    Child, after,
    begin::Begun,
    child,
    follow::{Good, Unsaid, Walk},
    step_end::StepEnd,
};
use crate::{
    decision::{ChildKind, Effect, Question, Rejection, Uid},
    orchestration::{Node, StepId, work::Work},
};

/// No wait between two attempts is longer than this, unless the first one is.
const BACKOFF_MAX: Duration = Duration::from_hours(1);
/// A wait is drawn out by up to this part of it, so that many do not come at once.
const JITTER_PART: u32 = 5;
/// Doubling further would overflow, and is cut off by then anyway.
const DOUBLINGS_MAX: u32 = 16;

impl Walk<'_> {
    /// Looks at a step that works, or is to be attempted again.
    pub(super) fn look_at(&mut self, step: StepId, node: &Node) {
        let Some(known) = self.step(step).cloned() else {
            return;
        };
        if known.progress.phase == Some(StepPhase::Retrying) {
            self.attempt_again(step, node, &known);
            return;
        }
        match &node.work {
            Work::ApprovalGate { .. } => self.look_at_gate(step, node, &known),
            Work::SignalWait { .. } => self.look_at_signal(step, node, &known),
            // It has no child, and is over when it begins.
            Work::Checkpoint => self.next.step_ended(step, StepEnd::succeeded(None)),
            Work::AgentRun(_) | Work::ToolRun { .. } | Work::SubOrchestration { .. } => {
                self.look_at_child(step, node, &known);
            }
        }
    }

    /// The child that the status names, or the question that has to be answered first. `None` if it is gone.
    pub(super) fn current_child(
        &self,
        node: &Node,
        known: &StepStatus,
    ) -> Result<Option<&'_ Child>, Question> {
        let kind = kind_of(&node.work);
        let name = child::name(&self.situation.name(), &node.name, attempt_of(known));
        let uid = known
            .resource_ref
            .as_ref()
            .and_then(|reference| reference.uid.clone());
        let key = (kind, name);
        let observed = self.situation.observed;
        match observed.children.get(&key) {
            Some(child) if uid.is_none_or(|uid| child.uid() == Uid(uid)) => Ok(Some(child)),
            _ if observed.live_children.contains(&key) => Ok(None),
            _ => Err(Question::Child(kind, key.1)),
        }
    }

    fn look_at_child(&mut self, step: StepId, node: &Node, known: &StepStatus) {
        let child = match self.current_child(node, known) {
            Ok(child) => child.cloned(),
            Err(question) => {
                self.questions.insert(question);
                return;
            }
        };
        let Some(child) = child else {
            let (kind, reason) = missing(&node.work);
            let name = known
                .resource_ref
                .as_ref()
                .and_then(|reference| reference.name.as_deref());
            let words = format!(
                "{kind} {} is gone, and nobody knows how it ended",
                name.unwrap_or_default()
            );
            self.fail(step, &Rejection::new(reason, words));
            return;
        };
        if let Some(phase) = child.end().cloned() {
            self.child_ended(step, node, known, &child, &phase);
            return;
        }
        let timed_out = known.reason == Some(Reason::StepTimedOut);
        if timed_out {
            // The status says so, and with that who wanted it.
            let recorded = self.situation.status.step_statuses.get(step.0);
            let is_recorded = recorded.is_some_and(|recorded| recorded.reason == Some(Reason::StepTimedOut));
            if is_recorded && !child.is_asked_to_stop() {
                self.effects.push(Effect::CancelChild {
                    child: child.id(),
                    reason: known.message.clone().unwrap_or_default(),
                    deadline: None,
                });
            }
            return;
        }
        if let Some((until, why)) = self.time_limit(node, known) {
            if self.situation.now >= until {
                self.next.step_note(step, &why);
            } else {
                self.wake(until);
            }
        }
    }

    /// Until when an attempt may work, and what is said when it is up.
    pub(super) fn time_limit(&self, node: &Node, known: &StepStatus) -> Option<(Timestamp, Rejection)> {
        let timeout = node.timeout?;
        let started = known.progress.started_at.map_or(self.situation.now, |at| at.0);
        let why = Rejection::new(
            Reason::StepTimedOut,
            format!(
                "attempt {} took longer than the {} s of its timeoutSeconds: raise it, or give the step less to do",
                attempt_of(known),
                timeout.as_secs()
            ),
        );
        Some((after(started, timeout), why))
    }

    fn child_ended(
        &mut self,
        step: StepId,
        node: &Node,
        known: &StepStatus,
        child: &Child,
        phase: &RunPhase,
    ) {
        let kind = child.kind();
        let words = |how: &str| match child.message() {
            Some(message) => format!("{kind} {} {how}: {message}", child.name()),
            None => format!("{kind} {} {how}", child.name()),
        };
        let timed_out = known.reason == Some(Reason::StepTimedOut);
        let lives_on = child.lives_on(self.situation.now);
        if lives_on {
            self.note_survivors(step);
        }
        match phase {
            RunPhase::Succeeded => {
                self.next.step_ended(step, StepEnd::succeeded(child.outputs()));
                if let Some(since) = child.ended_at().filter(|_| child.is_held()) {
                    self.next.step_ended_at(step, since);
                    let what = Good::Ended;
                    self.unsaid.push(Unsaid { step, what, since });
                }
            }
            RunPhase::Cancelled if !timed_out => {
                let stopping = self.stopping_reason(child);
                let reason = stopping.unwrap_or(Reason::StepCancelled);
                let end = StepEnd::cancelled(reason, words("was cancelled"));
                self.next.step_ended(step, end);
            }
            _ => {
                let why = if timed_out {
                    Rejection::new(Reason::StepTimedOut, known.message.clone().unwrap_or_default())
                } else {
                    Rejection::new(failed(&node.work).1, words("failed"))
                };
                if lives_on {
                    let message = format!(
                        "{}; no other attempt is made, because this one could not be stopped",
                        why.message
                    );
                    self.fail(step, &Rejection::new(why.reason, message));
                } else {
                    self.attempt_failed(step, node, known, &why);
                }
            }
        }
    }

    /// The word for a child that was cancelled because the run stops.
    fn stopping_reason(&self, child: &Child) -> Option<Reason> {
        if *self.situation.phase() == RunPhase::Cancelling {
            return Some(Reason::RunCancelled);
        }
        let states = self.next.states(self.graph);
        let by_run = child.is_asked_to_stop() && self.stop(&states).is_some();
        by_run.then_some(Reason::RunStopping)
    }

    /// An attempt ended badly: another one follows if there is one left, and if the run goes on.
    pub(super) fn attempt_failed(&mut self, step: StepId, node: &Node, known: &StepStatus, why: &Rejection) {
        self.hurried = true;
        let attempt = attempt_of(known);
        if attempt >= node.attempts {
            let reason = if node.attempts > 1 {
                Reason::RetriesExhausted
            } else {
                why.reason.clone()
            };
            let message = if node.attempts > 1 {
                format!("attempt {attempt} of {}: {}", node.attempts, why.message)
            } else {
                why.message.clone()
            };
            self.fail(step, &Rejection::new(reason, message));
            return;
        }
        let due = after(self.situation.now, backoff(node, attempt, &self.situation.uid));
        let message = format!("{}; attempt {} starts at {due}", why.message, attempt + 1);
        self.next
            .step_retries(step, due, &Rejection::new(why.reason.clone(), message));
        if let Some(known) = self.step(step).cloned() {
            self.attempt_again(step, node, &known);
        }
    }

    /// Whether the run stops, so that nothing new may begin.
    pub(super) fn starts_nothing(&self) -> bool {
        let states = self.next.states(self.graph);
        *self.situation.phase() == RunPhase::Cancelling
            || self.situation.is_asked_to_stop()
            || self.situation.stops_soon()
            || self.stop(&states).is_some()
    }

    /// The next attempt starts when its time has come.
    fn attempt_again(&mut self, step: StepId, node: &Node, known: &StepStatus) {
        let now = self.situation.now;
        if self.starts_nothing() {
            return;
        }
        let due = known.progress.next_retry_at.map(|at| at.0).filter(|due| {
            let longest = node.backoff.max(BACKOFF_MAX);
            // A time farther away than any wait was written before the clock was set back.
            *due > now && *due <= after(now, longest + longest / JITTER_PART)
        });
        if let Some(due) = due {
            self.wake(due);
            return;
        }
        match self.begin(step, attempt_of(known) + 1) {
            Begun::Works => {}
            Begun::Begins => {
                self.beginning.insert(step);
            }
            Begun::Wrong(why) => self.fail(step, &why),
        }
    }
}

/// How long to wait after an attempt. What it is drawn out by follows from the run and the attempt, so that the same failure
/// always means the same wait.
fn backoff(node: &Node, attempt: u32, run: &Uid) -> Duration {
    let doublings = 2_u32.pow(attempt.saturating_sub(1).min(DOUBLINGS_MAX));
    let wait = node
        .backoff
        .saturating_mul(doublings)
        .min(node.backoff.max(BACKOFF_MAX));
    let digest = Sha256::digest(format!("{run}/{}/{attempt}", node.name).as_bytes());
    let number = digest
        .iter()
        .take(4)
        .fold(0_u32, |number, byte| (number << 8) | u32::from(*byte));
    wait + wait / JITTER_PART * (number % 100) / 100
}

/// The number of the attempt that a status speaks of.
pub(super) fn attempt_of(known: &StepStatus) -> u32 {
    let number = known.progress.attempt.map_or(1, Int32::get);
    u32::try_from(number).unwrap_or(1).max(1)
}

/// The kind of the child. Steps without one have none, and are never asked.
pub(super) const fn kind_of(work: &Work) -> ChildKind {
    match work {
        Work::ToolRun { .. } => ChildKind::ToolRun,
        Work::SubOrchestration { .. } => ChildKind::OrchestrationRun,
        Work::AgentRun(_) | Work::ApprovalGate { .. } | Work::SignalWait { .. } | Work::Checkpoint => {
            ChildKind::AgentRun
        }
    }
}

/// Whether a step has a child at all.
pub(super) const fn has_child(work: &Work) -> bool {
    matches!(
        work,
        Work::AgentRun(_) | Work::ToolRun { .. } | Work::SubOrchestration { .. }
    )
}

const fn missing(work: &Work) -> (ChildKind, Reason) {
    match kind_of(work) {
        ChildKind::AgentRun => (ChildKind::AgentRun, Reason::AgentRunMissing),
        ChildKind::ToolRun => (ChildKind::ToolRun, Reason::ToolRunMissing),
        ChildKind::OrchestrationRun => (ChildKind::OrchestrationRun, Reason::SubOrchestrationMissing),
    }
}

const fn failed(work: &Work) -> (ChildKind, Reason) {
    match kind_of(work) {
        ChildKind::AgentRun => (ChildKind::AgentRun, Reason::AgentRunFailed),
        ChildKind::ToolRun => (ChildKind::ToolRun, Reason::ToolRunFailed),
        ChildKind::OrchestrationRun => (ChildKind::OrchestrationRun, Reason::SubOrchestrationFailed),
    }
}

#[cfg(test)]
mod tests {
    use jangar_api::orchestration::OrchestrationSpec;
    use serde_json::json;

    use super::*;
    use crate::orchestration::{Graph, read};

    fn graph(seconds: u64) -> Graph {
        let step = json!({"name": "a", "kind": "Checkpoint", "retries": 30, "retryBackoffSeconds": seconds});
        let spec: OrchestrationSpec = serde_json::from_value(json!({"steps": [step]})).expect("a spec");
        read(&spec).expect("steps that make sense")
    }

    fn waits(seconds: u64, run: &str, attempts: &[u32]) -> Vec<Duration> {
        let graph = graph(seconds);
        let node = graph.node(StepId(0)).expect("a step");
        let wait = |attempt: &u32| backoff(node, *attempt, &Uid(run.to_owned()));
        attempts.iter().map(wait).collect()
    }

    #[test]
    fn waits_double_up_to_an_hour_and_are_drawn_out_by_a_fifth_at_most() {
        for (first, attempt, least) in [
            (0, 5, 0),
            (10, 1, 10),
            (10, 2, 20),
            (10, 3, 40),
            (10, 9, 2560),
            (10, 10, 3600),
            (10, 31, 3600),
            // A first wait that is longer than an hour stays as it is.
            (7200, 1, 7200),
            (7200, 4, 7200),
            (86_400, 31, 86_400),
        ] {
            let least = Duration::from_secs(least);
            let most = least + least / JITTER_PART;
            for run in ["one", "two", "three"] {
                let wait = waits(first, run, &[attempt])[0];
                assert!((least..=most).contains(&wait), "{first} {attempt}: {wait:?}");
            }
        }
    }

    #[test]
    fn the_same_failure_means_the_same_wait_and_another_one_another() {
        let attempts = [1, 2, 3];
        assert_eq!(waits(100, "one", &attempts), waits(100, "one", &attempts));
        assert_ne!(waits(100, "one", &attempts), waits(100, "two", &attempts));
        // Attempts whose waits are equally long are drawn out differently too.
        let at_the_bound = waits(3600, "one", &[1, 2, 3, 4]);
        assert!(
            at_the_bound.iter().any(|wait| *wait != at_the_bound[0]),
            "{at_the_bound:?}"
        );
    }
}
