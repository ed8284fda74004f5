//! A run that is given up while its Job is there: the pod is stopped first, then the run fails.

use jangar_api::{
    agents::agent_run::AgentRunStatus,
    condition::{ConditionStatus, ConditionType},
    labels,
    reason::Reason,
};
use kube::ResourceExt;

use super::{
    Situation,
    leftovers::{self, Stopping},
    spec_hash,
};
use crate::decision::{Decision, Plan, Rejection};

/// Why the run is given up, if it is.
pub(super) fn reason(situation: &Situation<'_>) -> Option<Rejection> {
    if situation.settings.runs.immutability_enforced
        && let Some(message) = edited(situation)
    {
        return Some(Rejection::new(Reason::SpecImmutableViolation, message));
    }
    // Recorded before the pod was stopped, because nothing tells of it afterwards.
    let warning = situation.status.common.condition(&ConditionType::Warning)?;
    (warning.status == ConditionStatus::True && warning.reason == Reason::ImageUnavailable)
        .then(|| Rejection::new(warning.reason.clone(), warning.message.clone()))
}

/// What to say if the spec is not the one that was accepted, by the status or by the Job that was made for it.
pub(super) fn edited(situation: &Situation<'_>) -> Option<String> {
    let of_job = || {
        let job = situation
            .own_jobs()
            .find(|job| job.name_any() == situation.job_name())?;
        job.annotations().get(labels::SPEC_HASH)
    };
    let accepted = situation.status.spec_hash.as_ref().or_else(of_job)?;
    (*accepted != spec_hash(&situation.run.spec)).then(|| {
        "the spec was changed after the run was accepted: submit a new run with the changed spec instead"
            .to_owned()
    })
}

/// Stops the Jobs of the run, and lets it fail when they have stopped.
pub(super) fn plan(situation: &Situation<'_>, rejection: Rejection) -> Decision<AgentRunStatus> {
    let mut next = situation.next_status();
    next.warn(&rejection.reason, &rejection.message);
    match leftovers::stop_run(situation) {
        Stopping::Unsure(question) => Decision::look(question),
        Stopping::Going { effects, wake_at } => Decision::Act(Plan {
            effects,
            status: next.into_status(),
            notices: Vec::new(),
            wake_at,
        }),
        Stopping::Stopped => {
            next.failed(situation.now, &rejection.reason, &rejection.message);
            Decision::Act(Plan {
                status: next.into_status(),
                notices: vec![situation.warning(rejection.reason, rejection.message)],
                ..Plan::nothing()
            })
        }
    }
}
