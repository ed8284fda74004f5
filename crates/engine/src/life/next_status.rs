//! Where a run stands, as its status shows it: every way in which the status of a run changes is one function here.

use jangar_api::{
    condition::{Condition, ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
    values,
};
use jiff::Timestamp;

use super::{Run, RunStatus, attempt::Attempt};
use crate::{
    conditions::{Conditions, Health, touched},
    decision::{Notice, Rejection, Severity},
    plain_status::PlainStatus,
    retention::UpsideDown,
    settings::Settings,
    waiting::Waiting,
};

/// The next status of a run while it is made.
pub(crate) struct NextStatus<'a, R: Run> {
    before: &'a R::Status,
    pub status: R::Status,
    conditions: Conditions,
    run: &'a R,
    settings: &'a Settings,
    pub now: Timestamp,
}

impl<'a, R: Run> NextStatus<'a, R> {
    /// Begins with the status as it is.
    pub(crate) fn of(run: &'a R, status: &'a R::Status, settings: &'a Settings, now: Timestamp) -> Self {
        Self {
            run,
            settings,
            before: status,
            status: status.clone(),
            conditions: Conditions::of(status.common(), run.meta().generation, now),
            now,
        }
    }

    /// Waits for something, before it started or with a Job that does not come to life.
    pub(crate) fn waits(&mut self, waiting: &Waiting) {
        let (reason, message) = (waiting.reason(), waiting.to_string());
        self.status.out_of_line();
        self.status.course().phase.get_or_insert(RunPhase::Pending);
        self.step_waits(Some(&message));
        self.conditions.stand(Health::Progressing, &reason, &message);
        self.conditions
            .set_since(ConditionType::Blocked, ConditionStatus::True, reason, message);
    }

    /// Waits for nothing any more.
    pub(crate) fn unblocked(&mut self) {
        self.status.out_of_line();
        if !self.is_true(&ConditionType::Blocked) {
            return;
        }
        self.step_waits(None);
        self.conditions.clear(ConditionType::Blocked, Reason::Running, "");
        self.conditions.stand(Health::Progressing, &Reason::Running, "");
    }

    /// Whether the status that is there already says so.
    fn is_true(&self, type_: &ConditionType) -> bool {
        let condition = self.before.common().condition(type_);
        condition.is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// Whether it waits for this reason already.
    pub(crate) fn is_blocked(&self, reason: &Reason) -> bool {
        let blocked = self.before.common().condition(&ConditionType::Blocked);
        blocked.is_some_and(|blocked| blocked.status == ConditionStatus::True && blocked.reason == *reason)
    }

    /// When it said that it waits for this reason, if it said so in other words.
    pub(crate) fn told_otherwise(&self, waiting: &Waiting) -> Option<Timestamp> {
        let blocked = self.before.common().condition(&ConditionType::Blocked)?;
        // Of long words a condition keeps the beginning.
        let reworded = !waiting.to_string().starts_with(&blocked.message);
        let told = reworded && self.is_blocked(&waiting.reason());
        // Blocked has the time at which the wait began; this condition changes with the words.
        let standing = self.before.common().condition(&ConditionType::Progressing)?;
        standing
            .last_transition_time
            .as_ref()
            .filter(|_| told)
            .map(|at| at.0)
    }

    /// Whether something deserves attention already that is more than a remark about retention.
    pub(crate) fn is_warned(&self) -> bool {
        let remark = [
            Reason::JobOutlivesRun,
            Reason::InvalidRetain,
            Reason::SpreadCountsOthers,
        ]
        .iter()
        .any(|reason| self.is_warned_of(reason));
        self.warning().is_some() && !remark
    }

    /// Whether it is warned for this reason already.
    pub(crate) fn is_warned_of(&self, reason: &Reason) -> bool {
        self.warning().is_some_and(|warning| warning.reason == *reason)
    }

    /// What deserves attention, as far as this status is made.
    fn warning(&self) -> Option<&Condition> {
        let warning = self.conditions.get(&ConditionType::Warning);
        warning.filter(|warning| warning.status == ConditionStatus::True)
    }

    /// Another attempt has begun. What deserved attention about the one before is over, and hides nothing that does from now on; its
    /// words can still be read.
    pub(crate) fn attempt_begins(&mut self) {
        let Some(warning) = self.warning() else { return };
        let of_attempt = matches!(
            warning.reason,
            Reason::TimedOut
                | Reason::WorkflowStepTimedOut
                | Reason::NodeLost
                | Reason::JobMissing
                | Reason::WorkflowJobMissing
                | Reason::WorkflowJobDeleted
                | Reason::VcsAuthUnavailable
        );
        if of_attempt {
            let (reason, message) = (warning.reason.clone(), warning.message.clone());
            let message = format!("this was about an earlier attempt: {message}");
            self.conditions.clear(ConditionType::Warning, reason, &message);
        }
    }

    /// Says how long things are kept, and warns if that cannot be.
    pub(crate) fn keeps(&mut self) {
        let ladder = self.run.ladder(&self.status, self.settings);
        self.status.keep(ladder.status());
        let told = ladder.upside_down().map(|UpsideDown { job_seconds, run_seconds }| {
            format!(
                "the finished Job should be kept for {job_seconds} s and the run for {run_seconds} s only, and Kubernetes deletes \
                 the Job with its run: set spec.ttlSecondsAfterFinished to {job_seconds} or more, or give the Job a shorter time"
            )
        });
        self.note(&Reason::JobOutlivesRun, told.as_deref());
    }

    /// Says something that deserves attention, or that it does no more. A graver warning stays.
    pub(crate) fn note(&mut self, reason: &Reason, message: Option<&str>) {
        let warning = self.warning();
        let own = warning.is_none_or(|warning| warning.reason == *reason);
        match message {
            Some(message) if own => self.warn(reason, message),
            None if own && warning.is_some() => {
                self.conditions.clear(
                    ConditionType::Warning,
                    reason.clone(),
                    "it does not hold any more",
                );
            }
            Some(_) | None => {}
        }
    }

    /// Was accepted, and is under way.
    pub(crate) fn running(&mut self, started_at: Timestamp, message: &str) {
        let course = self.status.course();
        *course.phase = Some(RunPhase::Running);
        course.started_at.get_or_insert(values::Timestamp(started_at));
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
        self.unblocked();
        self.keeps();
        self.conditions
            .stand(Health::Progressing, &Reason::Running, message);
    }

    /// Goes on with another attempt, or with the next step.
    pub(crate) fn going_on(&mut self, reason: &Reason, message: &str) {
        for (type_, status) in [
            (ConditionType::InProgress, ConditionStatus::True),
            (ConditionType::Succeeded, ConditionStatus::Unknown),
        ] {
            self.conditions.set(type_, status, reason.clone(), message);
        }
        self.unblocked();
    }

    /// Says whether the run goes on without version control.
    pub(crate) fn version_control_skipped(&mut self, why: Option<&Rejection>) {
        match why {
            Some(Rejection { reason, message }) => self.conditions.set(
                ConditionType::VcsSkipped,
                ConditionStatus::True,
                reason.clone(),
                message.clone(),
            ),
            None => self.conditions.clear(ConditionType::VcsSkipped, Reason::None, ""),
        }
    }

    /// Whether work was pushed, and its forge was not asked yet.
    pub(crate) fn expects_delivery(&self) -> bool {
        let delivered = self.conditions.get(&ConditionType::Delivered);
        delivered.is_some_and(|delivered| {
            delivered.status == ConditionStatus::Unknown && delivered.reason == Reason::Progressing
        })
    }

    /// Says what is known of the work that was to be delivered.
    pub(crate) fn delivered(&mut self, status: ConditionStatus, Rejection { reason, message }: &Rejection) {
        self.conditions
            .set(ConditionType::Delivered, status, reason.clone(), message.clone());
    }

    /// Ended with success, but nothing was left to read the result from.
    pub(crate) fn without_result(&mut self, message: &str) {
        self.conditions.set(
            ConditionType::ResultUnavailable,
            ConditionStatus::True,
            Reason::ResultUnavailable,
            message,
        );
    }

    /// Says whether the list of artifacts is complete.
    pub(crate) fn artifacts_limited(&mut self, limited: Option<&Rejection>) {
        match limited {
            Some(Rejection { reason, message }) => self.conditions.set(
                ConditionType::ArtifactsLimited,
                ConditionStatus::True,
                reason.clone(),
                message.clone(),
            ),
            None => self
                .conditions
                .clear(ConditionType::ArtifactsLimited, Reason::WithinLimits, ""),
        }
    }

    /// The limits on artifacts were exceeded, and that counts as a failure.
    pub(crate) fn artifacts_exceeded(&mut self, Rejection { reason, message }: &Rejection) {
        self.conditions.set(
            ConditionType::ArtifactsLimitExceeded,
            ConditionStatus::True,
            reason.clone(),
            message.clone(),
        );
    }

    /// Is being stopped because somebody asked for it.
    pub(crate) fn cancelling(&mut self, deadline: Timestamp, message: &str) {
        let course = self.status.course();
        *course.phase = Some(RunPhase::Cancelling);
        course.cancel_deadline.get_or_insert(values::Timestamp(deadline));
        self.conditions.set(
            ConditionType::Succeeded,
            ConditionStatus::Unknown,
            Reason::Cancelling,
            message,
        );
        self.conditions
            .stand(Health::Progressing, &Reason::Cancelling, message);
    }

    /// Something deserves attention.
    pub(crate) fn warn(&mut self, reason: &Reason, message: &str) {
        self.conditions.set(
            ConditionType::Warning,
            ConditionStatus::True,
            reason.clone(),
            message,
        );
    }

    /// What deserved attention for this reason does not any more.
    pub(crate) fn no_warning(&mut self, reason: &Reason) {
        if self.is_warned_of(reason) {
            self.conditions.clear(ConditionType::Warning, Reason::None, "");
        }
    }

    /// The run, or its current attempt, is given up while its pod is there: the pod is stopped when this is written.
    pub(crate) fn given_up(&mut self, why: &Rejection) {
        self.warn(&why.reason, &why.message);
        Attempt::give_up(self.status.course().runtime_ref.get_or_insert_default(), why);
    }

    /// Ended with success.
    pub(crate) fn succeeded(&mut self, finished_at: Timestamp, message: &str) {
        self.ended(RunPhase::Succeeded, finished_at, &Reason::Completed, message);
        self.conditions.stand(Health::Ready, &Reason::Completed, message);
    }

    /// Ended without success.
    pub(crate) fn failed(&mut self, finished_at: Timestamp, reason: &Reason, message: &str) {
        self.ended(RunPhase::Failed, finished_at, reason, message);
        self.conditions.set(
            ConditionType::Failed,
            ConditionStatus::True,
            reason.clone(),
            message,
        );
        self.conditions.stand(Health::Degraded, reason, message);
    }

    /// Can never run as it was written.
    pub(crate) fn rejected(&mut self, Rejection { reason, message }: &Rejection) {
        self.conditions.set(
            ConditionType::InvalidSpec,
            ConditionStatus::True,
            reason.clone(),
            message.clone(),
        );
        self.failed(self.now, reason, message);
    }

    /// Was stopped because somebody asked for it.
    pub(crate) fn cancelled(&mut self, reason: &Reason, message: &str) {
        self.ended(RunPhase::Cancelled, self.now, reason, message);
        self.conditions.set(
            ConditionType::Cancelled,
            ConditionStatus::True,
            reason.clone(),
            message,
        );
        self.conditions.stand(Health::Degraded, reason, message);
    }

    /// Was asked to stop, which is not done for this reason.
    pub(crate) fn not_cancelled(&mut self, reason: &Reason, message: &str) {
        self.conditions.set(
            ConditionType::Cancelled,
            ConditionStatus::False,
            reason.clone(),
            message,
        );
    }

    /// What every end has in common. A result that was not reported for this end is not its result.
    fn ended(&mut self, phase: RunPhase, finished_at: Timestamp, reason: &Reason, message: &str) {
        let finished_at = self
            .status
            .started_at()
            // Nodes report whole seconds, so that a short run would end before it started.
            .map_or(finished_at, |started| finished_at.max(started));
        let succeeded = if phase == RunPhase::Succeeded {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        };
        self.steps_ended(&phase, finished_at, message);
        self.status.out_of_line();
        let course = self.status.course();
        *course.phase = Some(phase);
        *course.finished_at = Some(values::Timestamp(finished_at));
        *course.cancel_deadline = None;
        self.keeps();
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
    pub(crate) fn into_status(mut self) -> Option<R::Status> {
        self.workflow_follows();
        *self.status.common_mut() = self.conditions.into_status(self.before.common());
        touched(self.before, self.status, PlainStatus::common_mut, self.now)
    }
}

impl<R: Run> super::Situation<'_, R> {
    /// An Event about something that went as it should.
    pub(crate) fn normal(&self, reason: Reason, message: impl Into<String>) -> Notice {
        self.notice(Severity::Normal, reason, message)
    }

    /// An Event about something that did not.
    pub(crate) fn warning(&self, reason: Reason, message: impl Into<String>) -> Notice {
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
