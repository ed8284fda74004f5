//! A Job whose pod has not ended: working, or not started, and then why.

use std::time::Duration;

use jangar_api::{agents::agent_run::AgentRunStatus, reason::Reason};
use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ContainerStateWaiting, Pod},
};
use kube::ResourceExt;

use super::{Scene, follow, jobs};
use crate::decision::{Decision, Plan, PodSight};

/// How long a pod may take to start before the run says what it waits for. A quick start costs no write this way.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an image or a configuration may be unavailable. Registries have their bad minutes.
const UNAVAILABLE_MAX: Duration = Duration::from_mins(5);

/// What a pod waits for that does not run.
struct Wait {
    since: Timestamp,
    message: String,
    /// Whether waiting longer than [`UNAVAILABLE_MAX`] makes no sense.
    ends: bool,
}

/// The pod works, or does not start.
pub(super) fn plan(scene: &Scene<'_>, job: &Job, sight: &PodSight) -> Decision<AgentRunStatus> {
    let (mut standing, first) = follow::recorded(scene, job);
    let notices = if first {
        vec![scene.normal(Reason::Submitted, format!("Job {} was created", job.name_any()))]
    } else {
        Vec::new()
    };
    let mut wake_at = None;
    match wait(scene, job, sight) {
        None => standing.unblocked(),
        Some(wait) => {
            let patience = after(wait.since, PATIENCE);
            let end = after(wait.since, UNAVAILABLE_MAX);
            if wait.ends && scene.now >= end {
                // The intent comes first: once the pod is deleted, nothing else would tell why.
                standing.warn(&Reason::ImageUnavailable, &wait.message);
            } else if scene.now >= patience {
                standing.blocked(&Reason::PodWaiting, &wait.message);
                wake_at = wait.ends.then_some(end);
            } else {
                wake_at = Some(patience);
            }
        }
    }
    Decision::Act(Plan {
        status: standing.into_status(),
        notices,
        wake_at,
        ..Plan::nothing()
    })
}

fn after(since: Timestamp, wait: Duration) -> Timestamp {
    since.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// What the pod of a Job waits for, if it does.
fn wait(scene: &Scene<'_>, job: &Job, sight: &PodSight) -> Option<Wait> {
    let Some(pod) = sight.pods().first() else {
        let name = job.name_any();
        return Some(Wait {
            since: jobs::created_at(job).unwrap_or(scene.now),
            message: format!("Job {name} has no pod yet: kubectl describe job {name} shows why"),
            ends: false,
        });
    };
    if !jobs::is_pending(pod) {
        return None;
    }
    let since = jobs::created_at(pod.as_ref()).unwrap_or(scene.now);
    let name = pod.name_any();
    if let Some(message) = unschedulable(pod) {
        return Some(Wait {
            since,
            message: format!("pod {name} cannot be placed on a node: {message}"),
            ends: false,
        });
    }
    let waiting = container_waiting(pod);
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    let words = waiting
        .and_then(|waiting| waiting.message.as_deref())
        .unwrap_or("no more is known");
    Some(Wait {
        since,
        message: match reason {
            None | Some("ContainerCreating" | "PodInitializing") => {
                format!("pod {name} is being started by its node")
            }
            Some(reason) => format!(
                "pod {name} cannot start ({reason}): {words}; check spec.workload.image, and the Secrets and volumes that \
                 the run names"
            ),
        },
        ends: reason.is_some_and(is_unavailable),
    })
}

/// The words of the scheduler about a pod that it cannot place.
fn unschedulable(pod: &Pod) -> Option<&str> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
        .map(|condition| {
            condition
                .message
                .as_deref()
                .unwrap_or("the scheduler gives no reason")
        })
}

/// Why the first container that waits does so; init containers come first.
fn container_waiting(pod: &Pod) -> Option<&ContainerStateWaiting> {
    let status = pod.status.as_ref()?;
    status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten())
        .find_map(|container| container.state.as_ref()?.waiting.as_ref())
}

/// Reasons of a node for not starting a container that do not mend themselves.
fn is_unavailable(reason: &str) -> bool {
    matches!(
        reason,
        "ErrImagePull"
            | "ImagePullBackOff"
            | "ErrImageNeverPull"
            | "InvalidImageName"
            | "ImageInspectError"
            | "RegistryUnavailable"
            | "CreateContainerConfigError"
            | "CreateContainerError"
    )
}
