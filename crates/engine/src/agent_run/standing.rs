//! Where a run stands, as its status shows it: every way in which the status of a run changes is one function here.

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus},
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
    values,
};
use jiff::Timestamp;

use crate::{
    conditions::{self, Conditions, touched},
    decision::{Notice, Rejection, Severity},
};

/// The next status of a run while it is made.
pub(super) struct Standing<'a> {
    before: &'a AgentRunStatus,
    pub next: AgentRunStatus,
    pub conditions: Conditions,
    now: Timestamp,
}

impl<'a> Standing<'a> {
    /// Begins with the status as it is.
    pub(super) fn of(run: &AgentRun, status: &'a AgentRunStatus, now: Timestamp) -> Self {
        Self {
            before: status,
            next: status.clone(),
            conditions: Conditions::of(&status.common, run.metadata.generation, now),
            now,
        }
    }

    /// Waits for something, before it started or with a Job that does not come to life.
    pub(super) fn blocked(&mut self, reason: &Reason, message: &str) {
        self.conditions.set(
            ConditionType::Blocked,
            ConditionStatus::True,
            reason.clone(),
            message,
        );
        self.next.phase.get_or_insert(RunPhase::Pending);
        self.conditions
            .stand(conditions::Standing::Progressing, reason, message);
    }

    /// Waits for nothing any more.
    pub(super) fn unblocked(&mut self) {
        self.conditions.clear(ConditionType::Blocked, Reason::Running, "");
    }

    /// Was accepted, and is under way.
    pub(super) fn running(&mut self, started_at: Timestamp, message: &str) {
        self.next.phase = Some(RunPhase::Running);
        self.next.started_at.get_or_insert(values::Timestamp(started_at));
        self.conditions.set(
            ConditionType::Accepted,
            ConditionStatus::True,
            Reason::Submitted,
            "",
        );
        self.conditions.set(
            ConditionType::InProgress,
            ConditionStatus::True,
            Reason::Running,
            message,
        );
        self.conditions.set(
            ConditionType::Succeeded,
            ConditionStatus::Unknown,
            Reason::Running,
            message,
        );
        self.conditions
            .stand(conditions::Standing::Progressing, &Reason::Running, message);
        self.unblocked();
    }

    /// Is being stopped because somebody asked for it.
    pub(super) fn cancelling(&mut self, deadline: Timestamp, message: &str) {
        self.next.phase = Some(RunPhase::Cancelling);
        self.next
            .cancel_deadline
            .get_or_insert(values::Timestamp(deadline));
        self.conditions.set(
            ConditionType::Succeeded,
            ConditionStatus::Unknown,
            Reason::Cancelling,
            message,
        );
        self.conditions
            .stand(conditions::Standing::Progressing, &Reason::Cancelling, message);
    }

    /// Something deserves attention.
    pub(super) fn warn(&mut self, reason: &Reason, message: &str) {
        self.conditions.set(
            ConditionType::Warning,
            ConditionStatus::True,
            reason.clone(),
            message,
        );
    }

    /// Ended with success.
    pub(super) fn succeeded(&mut self, finished_at: Timestamp, message: &str) {
        self.ended(RunPhase::Succeeded, finished_at, &Reason::Completed, message);
        self.conditions
            .stand(conditions::Standing::Ready, &Reason::Completed, message);
    }

    /// Ended without success.
    pub(super) fn failed(&mut self, finished_at: Timestamp, reason: &Reason, message: &str) {
        self.ended(RunPhase::Failed, finished_at, reason, message);
        self.conditions.set(
            ConditionType::Failed,
            ConditionStatus::True,
            reason.clone(),
            message,
        );
        self.conditions
            .stand(conditions::Standing::Degraded, reason, message);
    }

    /// Can never run as it was written.
    pub(super) fn rejected(&mut self, Rejection { reason, message }: &Rejection) {
        self.conditions.set(
            ConditionType::InvalidSpec,
            ConditionStatus::True,
            reason.clone(),
            message.clone(),
        );
        self.failed(self.now, reason, message);
    }

    /// Was stopped because somebody asked for it.
    pub(super) fn cancelled(&mut self, reason: &Reason, message: &str) {
        self.ended(RunPhase::Cancelled, self.now, reason, message);
        self.conditions.set(
            ConditionType::Cancelled,
            ConditionStatus::True,
            reason.clone(),
            message,
        );
        self.conditions
            .stand(conditions::Standing::Degraded, reason, message);
    }

    /// Was asked to stop after it had ended.
    pub(super) fn cancelled_too_late(&mut self, reason: &Reason, message: &str) {
        self.conditions.set(
            ConditionType::Cancelled,
            ConditionStatus::False,
            reason.clone(),
            message,
        );
    }

    /// What every end has in common.
    fn ended(&mut self, phase: RunPhase, finished_at: Timestamp, reason: &Reason, message: &str) {
        let finished_at = self
            .next
            .started_at
            // Nodes report whole seconds, so that a short run would end before it started.
            .map_or(finished_at, |started| finished_at.max(started.0));
        let succeeded = if phase == RunPhase::Succeeded {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        };
        self.next.phase = Some(phase);
        self.next.finished_at = Some(values::Timestamp(finished_at));
        self.next.cancel_deadline = None;
        self.conditions
            .set(ConditionType::Succeeded, succeeded, reason.clone(), message);
        self.conditions.set(
            ConditionType::Complete,
            ConditionStatus::True,
            reason.clone(),
            message,
        );
        self.conditions
            .clear(ConditionType::InProgress, reason.clone(), message);
        self.conditions
            .clear(ConditionType::Blocked, reason.clone(), message);
    }

    /// The status, if it differs from the one before.
    pub(super) fn into_status(mut self) -> Option<AgentRunStatus> {
        self.next.common = self.conditions.into_status(&self.before.common);
        touched(self.before, self.next, |status| &mut status.common, self.now)
    }
}

impl super::Scene<'_> {
    /// An Event about something that went as it should.
    pub(super) fn normal(&self, reason: Reason, message: impl Into<String>) -> Notice {
        self.notice(Severity::Normal, reason, message)
    }

    /// An Event about something that did not.
    pub(super) fn warning(&self, reason: Reason, message: impl Into<String>) -> Notice {
        self.notice(Severity::Warning, reason, message)
    }

    fn notice(&self, severity: Severity, reason: Reason, message: impl Into<String>) -> Notice {
        Notice {
            regarding: self.uid.clone(),
            severity,
            reason,
            message: message.into(),
        }
    }
}
