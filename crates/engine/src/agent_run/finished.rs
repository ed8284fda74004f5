//! A run that has ended: its Jobs are let go, and it is deleted when it has been kept for long enough.

use std::time::Duration;

use jangar_api::{
    agents::agent_run::AgentRunStatus, condition::ConditionType, labels, phase::RunPhase, reason::Reason,
    values,
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    Scene, jobs,
    leftovers::{self, Stopping},
};
use crate::decision::{Decision, Effect, Plan};

pub(super) fn plan(scene: &Scene<'_>) -> Decision<AgentRunStatus> {
    let mut standing = scene.standing();
    if standing.next.finished_at.is_none() {
        // Somebody else wrote the phase. Without a time the run would be kept for ever.
        standing.next.finished_at = Some(values::Timestamp(scene.now));
    }
    too_late_to_cancel(scene, &mut standing);
    let status = standing.into_status();

    let mut effects = Vec::new();
    let mut held = false;
    for job in scene.own_jobs().filter(|job| jobs::is_held(job)) {
        held = true;
        let pods = scene.observed.pods_of(&jobs::uid(job.as_ref()));
        let ended_by_itself = scene.status.phase != Some(RunPhase::Cancelled)
            && pods.pods().iter().all(|pod| jobs::has_ended(pod));
        if ended_by_itself {
            effects.push(leftovers::let_go(job, scene.run, scene.settings));
            continue;
        }
        // Something of it may still be there, whatever the phase says.
        match leftovers::stop(job, scene.observed) {
            Stopping::Unsure(question) => return Decision::look(question),
            Stopping::Act(next) => effects.extend(next),
            Stopping::Stopped => effects.push(leftovers::let_go(job, scene.run, scene.settings)),
        }
    }
    let mut wake_at = None;
    if !held
        && status.is_none()
        && let Some(due) = kept_until(scene)
    {
        if scene.now >= due {
            effects.push(Effect::DeleteRun {
                run: jobs::id(scene.run),
            });
        } else {
            wake_at = Some(due);
        }
    }
    Decision::Act(Plan {
        effects,
        status,
        notices: Vec::new(),
        wake_at,
    })
}

/// A cancel of a run that had already ended is answered, and changes nothing.
fn too_late_to_cancel(scene: &Scene<'_>, standing: &mut super::Standing<'_>) {
    if !scene.run.spec.stop.is_requested()
        || scene.status.common.condition(&ConditionType::Cancelled).is_some()
    {
        return;
    }
    let (reason, how) = match &scene.status.phase {
        Some(RunPhase::Succeeded) => (Reason::AlreadySucceeded, "succeeded"),
        Some(RunPhase::Failed) => (Reason::AlreadyFailed, "failed"),
        _ => return,
    };
    standing.cancelled_too_late(
        &reason,
        &format!("the run had already {how} when the cancel was asked for"),
    );
}

/// When the run may be deleted, if ever.
fn kept_until(scene: &Scene<'_>) -> Option<Timestamp> {
    let retained = [scene.run.labels(), scene.run.annotations()]
        .iter()
        .any(|keys| keys.get(labels::RETAIN).is_some_and(|value| value == "true"));
    if retained {
        return None;
    }
    let kept = match scene.run.spec.ttl_seconds_after_finished {
        // The schema admits no negative number; a larger program might.
        Some(seconds) => u64::try_from(seconds.get())
            .ok()
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs)?,
        None => scene.settings.runs.retention?,
    };
    let finished = scene.status.finished_at?.0;
    finished.checked_add(kept).ok()
}
