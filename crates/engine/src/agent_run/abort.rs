//! A run that is given up while its Job is there: the pod is stopped first, then the run fails.

use jangar_api::{
    agents::agent_run::AgentRunStatus,
    condition::{ConditionStatus, ConditionType},
    labels,
    reason::Reason,
};
use kube::ResourceExt;

use super::{
    Scene, jobs,
    leftovers::{self, Stopping},
    spec_hash,
};
use crate::decision::{Decision, Plan, Rejection};

/// Why the run is given up, if it is.
pub(super) fn reason(scene: &Scene<'_>) -> Option<Rejection> {
    if scene.settings.runs.immutability_enforced
        && let Some(message) = edited(scene)
    {
        return Some(Rejection::new(Reason::SpecImmutableViolation, message));
    }
    // Recorded before the pod was stopped, because nothing tells of it afterwards.
    let warning = scene.status.common.condition(&ConditionType::Warning)?;
    (warning.status == ConditionStatus::True && warning.reason == Reason::ImageUnavailable)
        .then(|| Rejection::new(warning.reason.clone(), warning.message.clone()))
}

/// What to say if the spec is not the one that was accepted.
pub(super) fn edited(scene: &Scene<'_>) -> Option<String> {
    let job = scene.observed.jobs.get(&scene.job_name());
    let accepted = scene.status.spec_hash.as_ref().or_else(|| {
        job.filter(|job| jobs::owner_run(job, &scene.observed.key.name).as_ref() == Some(&scene.uid))
            .and_then(|job| job.annotations().get(labels::SPEC_HASH))
    })?;
    (*accepted != spec_hash(&scene.run.spec)).then(|| {
        "the spec was changed after the run was accepted: submit a new run with the changed spec instead"
            .to_owned()
    })
}

/// Stops the Jobs of the run, and lets it fail when they have stopped.
pub(super) fn plan(scene: &Scene<'_>, rejection: Rejection) -> Decision<AgentRunStatus> {
    let mut standing = scene.standing();
    standing.warn(&rejection.reason, &rejection.message);
    match leftovers::stop_all(scene.unfinished_jobs(), scene.observed) {
        Stopping::Unsure(question) => Decision::look(question),
        Stopping::Act(effects) => Decision::Act(Plan {
            effects,
            status: standing.into_status(),
            ..Plan::nothing()
        }),
        Stopping::Stopped => {
            standing.failed(scene.now, &rejection.reason, &rejection.message);
            Decision::Act(Plan {
                status: standing.into_status(),
                notices: vec![scene.warning(rejection.reason, rejection.message)],
                ..Plan::nothing()
            })
        }
    }
}
