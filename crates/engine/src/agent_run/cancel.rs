//! Cancel: nothing new starts, the pod is stopped, and the run is `Cancelled` when a live list shows that it is gone.

use std::time::Duration;

use jangar_api::{agents::agent_run::AgentRunStatus, phase::RunPhase, reason::Reason};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{
    Scene, follow, jobs,
    leftovers::{self, Stopping},
};
use crate::decision::{Decision, Effect, Plan, Question};

/// What is kept of the time for a cancel, so that a pod that was killed can also be seen to be gone.
const CONFIRMATION: Duration = Duration::from_secs(10);

pub(super) fn plan(scene: &Scene<'_>) -> Decision<AgentRunStatus> {
    let begun = scene.status.phase == Some(RunPhase::Cancelling);
    if let Some(question) = unsure_of_job(scene) {
        return Decision::look(question);
    }
    if !begun && has_ended(scene) {
        // What was finished before the cancel began is not undone by it.
        return follow::plan(scene);
    }
    let timeout = scene.settings.runs.cancel_timeout;
    let deadline = scene
        .status
        .cancel_deadline
        .map_or_else(|| after(scene.now, timeout), |at| at.0);
    match leftovers::stop_all(scene.unfinished_jobs(), scene.observed) {
        Stopping::Unsure(question) => Decision::look(question),
        Stopping::Stopped => cancelled(
            scene,
            &Reason::Cancelled,
            &because(scene, "the run was cancelled"),
        ),
        Stopping::Act(_) if scene.now >= deadline => timed_out(scene),
        Stopping::Act(mut effects) => {
            effects.extend(shorten_grace(scene, deadline));
            let mut standing = scene.standing();
            let message = because(scene, "the run is being cancelled: its pod is being stopped");
            standing.cancelling(deadline, &message);
            Decision::Act(Plan {
                effects,
                status: standing.into_status(),
                wake_at: Some(deadline),
                ..Plan::nothing()
            })
        }
    }
}

/// A run that knows of no Job may still have one: it could have been created a moment before the status was to say so.
fn unsure_of_job(scene: &Scene<'_>) -> Option<Question> {
    let name = scene
        .attempt
        .job
        .as_ref()
        .map_or_else(|| scene.job_name(), |job| job.name.clone());
    let known = scene.observed.jobs.contains_key(&name) || scene.observed.absent_jobs.contains(&name);
    (!known).then_some(Question::Job(name))
}

/// Whether the pod of the current attempt has ended by itself.
fn has_ended(scene: &Scene<'_>) -> bool {
    scene
        .own_jobs()
        .filter(|job| job.name_any() == scene.job_name() && !jobs::is_deleting(job.as_ref()))
        .any(|job| {
            let pods = scene.observed.pods_of(&jobs::uid(job.as_ref()));
            pods.pods().iter().any(|pod| jobs::has_ended(pod))
                || (pods.pods().is_empty()
                    && (jobs::condition(job, "Complete").is_some()
                        || jobs::condition(job, "Failed").is_some()))
        })
}

fn after(now: Timestamp, timeout: Duration) -> Timestamp {
    now.saturating_add(timeout).unwrap_or(Timestamp::MAX)
}

/// Takes grace from pods that have more of it than the cancel has time.
fn shorten_grace(scene: &Scene<'_>, deadline: Timestamp) -> Vec<Effect> {
    let latest = deadline - CONFIRMATION;
    let left = latest.duration_since(scene.now).as_secs().max(1);
    survivors(scene)
        .filter(|pod| {
            pod.metadata
                .deletion_timestamp
                .as_ref()
                .is_some_and(|killed_at| killed_at.0 > latest)
        })
        .map(|pod| Effect::DeletePod {
            pod: jobs::id(pod.as_ref()),
            grace_seconds: u32::try_from(left).ok(),
        })
        .collect()
}

/// The pods of the run that are still there.
fn survivors<'a>(scene: &'a Scene<'_>) -> impl Iterator<Item = std::sync::Arc<Pod>> + 'a {
    scene
        .own_jobs()
        .flat_map(|job| scene.observed.pods_of(&jobs::uid(job.as_ref())).pods().to_vec())
}

/// The deadline passed. The controller goes on removing what is left.
fn timed_out(scene: &Scene<'_>) -> Decision<AgentRunStatus> {
    let pods: Vec<_> = survivors(scene).collect();
    let message = format!(
        "the cancel took longer than {} s; still there, and being removed: {}",
        scene.settings.runs.cancel_timeout.as_secs(),
        jobs::names(pods.iter().map(AsRef::as_ref))
    );
    cancelled(scene, &Reason::CancelTimedOut, &because(scene, &message))
}

fn cancelled(scene: &Scene<'_>, reason: &Reason, message: &str) -> Decision<AgentRunStatus> {
    let mut standing = scene.standing();
    standing.cancelled(reason, message);
    Decision::Act(Plan {
        status: standing.into_status(),
        notices: vec![scene.normal(reason.clone(), message)],
        ..Plan::nothing()
    })
}

/// What is said, with the reason that whoever cancelled gave.
fn because(scene: &Scene<'_>, message: &str) -> String {
    match scene.run.spec.stop.cancel_reason.as_deref().map(str::trim) {
        None | Some("") => message.to_owned(),
        Some(reason) => format!("{message} ({reason})"),
    }
}
