//! What the status of a run that was written tells: in the log, and counted.

use jangar_api::{
    condition::{CommonStatus, Condition, ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
};
use jangar_engine::{decision::Key, last_sight::job_of};
use kube::Resource;

use crate::metrics::{Metrics, ObjectKind};

/// The part of a run's status that is told.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) phase: Option<RunPhase>,
    pub(crate) common: CommonStatus,
}

/// Logs and counts how a run stands now, where it stands otherwise than before.
pub(crate) fn changed<R: Resource<DynamicType = ()>>(
    key: &Key,
    metrics: &Metrics,
    before: Option<&Told>,
    after: &Told,
) {
    if let Some(phase) = &after.phase
        && before.and_then(|before| before.phase.as_ref()) != Some(phase)
    {
        let told = after.explanation();
        let reason = told.map_or("", |told| told.reason.as_str());
        let message = told.map_or("", |told| told.message.as_str());
        tracing::info!(run = %key, %phase, reason, "{message}");
    }
    if let Some((phase, reason)) = after.end()
        && before.and_then(Told::end).is_none()
    {
        metrics.run_finished(ObjectKind::of::<R>(), phase, reason);
    }
    // A run can end well although its Job vanished, and need not have ended when it is noticed: the warning tells of all. The Job
    // of its next attempt can vanish as well, before it was told.
    if let Some(vanished) = after.vanished_job()
        && before.and_then(Told::vanished_job) != Some(vanished)
    {
        let (reason, _) = vanished;
        metrics.job_missing(after.phase.as_ref().unwrap_or(&RunPhase::Pending), reason);
    }
}

impl Told {
    /// The condition that says why a run stands where it does.
    fn explanation(&self) -> Option<&Condition> {
        let blocked = self.common.condition(&ConditionType::Blocked);
        blocked
            .filter(|blocked| blocked.status == ConditionStatus::True)
            .or_else(|| self.common.condition(&ConditionType::Succeeded))
    }

    /// Why the Job of a run was not there when it should have been, if that is so, and which Job, as far as the words name it.
    fn vanished_job(&self) -> Option<(&Reason, Option<&str>)> {
        let warning = self.common.condition(&ConditionType::Warning)?;
        let vanished = matches!(
            warning.reason,
            Reason::JobMissing | Reason::WorkflowJobMissing | Reason::WorkflowJobDeleted
        );
        let told = warning.status == ConditionStatus::True && vanished;
        told.then(|| (&warning.reason, job_of(&warning.message)))
    }

    /// The phase of a run that has ended, with the reason.
    fn end(&self) -> Option<(&RunPhase, &Reason)> {
        let phase = self.phase.as_ref().filter(|phase| phase.is_terminal())?;
        let condition = self.common.condition(&ConditionType::Succeeded);
        Some((
            phase,
            condition.map_or(&Reason::Reconciled, |condition| &condition.reason),
        ))
    }
}
