//! The status of a pod, as the kubelet writes it. Pure: from what is known of its containers to the patch.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, Pod, ResourceRequirements, VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::{
    lifecycle::{ContainerState, Record, RestartPolicy, Role},
    run::{Cause, Exit},
};
use crate::clock;

/// A condition of ours: `False` on pods that run as plain processes.
pub const SANDBOXED_CONDITION: &str = "kubelite.dev/Sandboxed";

#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::IntoStaticStr)]
pub(crate) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Why a pod as a whole failed, as `status.reason` and `status.message` say it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Whether the node is to blame and not the pod, which the condition `DisruptionTarget` says.
    pub(crate) disruption: bool,
}

/// Whether the pod goes on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Course {
    /// Containers are started as the spec says.
    Open,
    /// Nothing is started any more.
    Ending,
    /// Nothing is started any more, and when all has ended this is why.
    Failing(Verdict),
}

/// When a condition last changed, by its type.
pub(crate) type Transitions = BTreeMap<String, (String, Timestamp)>;

/// Everything a status is made of.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) records: &'a [Record],
    pub(crate) course: &'a Course,
    /// When this node first saw the pod.
    pub(crate) seen_at: Timestamp,
    pub(crate) now: Timestamp,
    pub(crate) host_ip: &'a str,
    /// Why the pod runs without a sandbox, if it does.
    pub(crate) unsandboxed: Option<&'a str>,
}

/// The `status` of a strategic merge patch. Conditions that changed are noted in `transitions`.
pub(crate) fn status(view: &View<'_>, transitions: &mut Transitions) -> Value {
    let phase = phase(view);
    let mut status = json!({
        "phase": <&str>::from(phase),
        "startTime": clock::seconds(view.seen_at),
        "hostIP": view.host_ip,
        "hostIPs": [{"ip": view.host_ip}],
        "podIP": view.host_ip,
        "podIPs": [{"ip": view.host_ip}],
        "conditions": conditions(view, phase, transitions),
        "containerStatuses": container_statuses(view, Role::Main),
    });
    if let Some(generation) = view.pod.metadata.generation {
        status["observedGeneration"] = generation.into();
    }
    if view.records.iter().any(|record| record.role == Role::Init) {
        status["initContainerStatuses"] = container_statuses(view, Role::Init);
    }
    if let (Course::Failing(verdict), Phase::Failed) = (view.course, phase) {
        status["reason"] = verdict.reason.into();
        status["message"] = verdict.message.as_str().into();
    }
    status
}

fn policy(pod: &Pod) -> RestartPolicy {
    RestartPolicy::of(pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()))
}

pub(crate) fn phase(view: &View<'_>) -> Phase {
    let live = view.records.iter().any(Record::is_live);
    let main = || view.records.iter().filter(|record| record.role == Role::Main);
    match view.course {
        Course::Failing(_) if !live => return Phase::Failed,
        // Deleted before its end: it succeeded only if all of it did.
        Course::Ending if !live => {
            return if main().all(Record::succeeded) {
                Phase::Succeeded
            } else {
                Phase::Failed
            };
        }
        Course::Open | Course::Ending | Course::Failing(_) => {}
    }
    let policy = policy(view.pod);
    let unfinished = view
        .records
        .iter()
        .find(|record| record.role == Role::Init && !record.succeeded());
    if let Some(init) = unfinished {
        return match (init.exit(), policy) {
            (Some(_), RestartPolicy::Never) => Phase::Failed,
            _ => Phase::Pending,
        };
    }
    let never_ran =
        |record: &Record| !record.is_running() && record.exit().or(record.last.as_ref()).is_none();
    if main().any(never_ran) {
        return Phase::Pending;
    }
    if main().any(|record| record.exit().is_none()) || policy == RestartPolicy::Always {
        return Phase::Running;
    }
    match (main().all(Record::succeeded), policy) {
        (true, _) => Phase::Succeeded,
        (false, RestartPolicy::Never) => Phase::Failed,
        (false, _) => Phase::Running,
    }
}

impl Record {
    fn is_running(&self) -> bool {
        matches!(self.state, ContainerState::Running { .. })
    }

    /// A running container counts as ready at once: probes are not run here.
    fn is_ready(&self) -> bool {
        match self.role {
            Role::Main => self.is_running(),
            Role::Init => self.succeeded(),
        }
    }
}

/// A condition without its times.
struct Condition {
    kind: &'static str,
    status: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

fn conditions(view: &View<'_>, phase: Phase, transitions: &mut Transitions) -> Value {
    let plain = |kind, status| Condition {
        kind,
        status,
        reason: None,
        message: None,
    };
    let ready = |kind| ready_condition(view, phase, kind);
    let mut all = vec![
        plain("PodReadyToStartContainers", !phase.is_over()),
        initialized(view, phase),
        ready("Ready"),
        ready("ContainersReady"),
        plain("PodScheduled", true),
    ];
    if let Some(why) = view.unsandboxed {
        all.push(Condition {
            kind: SANDBOXED_CONDITION,
            status: false,
            reason: Some("Unsandboxed"),
            message: Some(why.to_owned()),
        });
    }
    if let Course::Failing(verdict) = view.course
        && verdict.disruption
    {
        all.push(Condition {
            kind: "DisruptionTarget",
            status: true,
            reason: Some("TerminationByKubelet"),
            message: Some(verdict.message.clone()),
        });
    }
    let generation = view.pod.metadata.generation;
    let rendered = all.into_iter().map(|condition| {
        let status = if condition.status { "True" } else { "False" };
        let entry = transitions
            .entry(condition.kind.to_owned())
            .or_insert_with(|| (status.to_owned(), view.now));
        if entry.0 != status {
            *entry = (status.to_owned(), view.now);
        }
        // Members that a merge would otherwise keep from before are taken away by name.
        json!({
            "type": condition.kind,
            "status": status,
            "reason": condition.reason,
            "message": condition.message,
            "lastProbeTime": null,
            "lastTransitionTime": clock::seconds(entry.1),
            "observedGeneration": generation,
        })
    });
    Value::Array(rendered.collect())
}

fn initialized(view: &View<'_>, phase: Phase) -> Condition {
    let incomplete: Vec<&str> = view
        .records
        .iter()
        .filter(|record| record.role == Role::Init && !record.succeeded())
        .map(|record| record.name.as_str())
        .collect();
    let begun = view
        .records
        .iter()
        .any(|record| record.role == Role::Main && record.attempts > 0);
    let (status, reason, message) = if phase == Phase::Succeeded {
        (true, Some("PodCompleted"), None)
    } else if begun || incomplete.is_empty() {
        (true, None, None)
    } else {
        let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
        (false, Some("ContainersNotInitialized"), Some(message))
    };
    Condition {
        kind: "Initialized",
        status,
        reason,
        message,
    }
}

fn ready_condition(view: &View<'_>, phase: Phase, kind: &'static str) -> Condition {
    let unready: Vec<&str> = view
        .records
        .iter()
        .filter(|record| record.role == Role::Main && !record.is_ready())
        .map(|record| record.name.as_str())
        .collect();
    let (status, reason, message) = match phase {
        Phase::Succeeded => (false, Some("PodCompleted"), None),
        Phase::Failed => (false, Some("PodFailed"), None),
        Phase::Pending | Phase::Running if unready.is_empty() => (true, None, None),
        Phase::Pending | Phase::Running => {
            let message = format!("containers with unready status: [{}]", unready.join(" "));
            (false, Some("ContainersNotReady"), Some(message))
        }
    };
    Condition {
        kind,
        status,
        reason,
        message,
    }
}

fn container_statuses(view: &View<'_>, role: Role) -> Value {
    let spec = view.pod.spec.as_ref();
    let containers: Vec<&Container> = match role {
        Role::Main => spec.iter().flat_map(|spec| &spec.containers).collect(),
        Role::Init => spec
            .iter()
            .flat_map(|spec| spec.init_containers.iter().flatten())
            .collect(),
    };
    let statuses: Vec<ContainerStatus> = containers
        .into_iter()
        .filter_map(|container| {
            let same = |record: &&Record| record.role == role && record.name == container.name;
            let record = view.records.iter().find(same)?;
            Some(container_status(view, container, record))
        })
        .collect();
    // Only text, numbers and maps with text keys: it can always be written.
    serde_json::to_value(statuses).unwrap_or_default()
}

fn container_status(view: &View<'_>, container: &Container, record: &Record) -> ContainerStatus {
    let image = container.image.clone().unwrap_or_default();
    let current = record.attempts.checked_sub(1);
    let last = record.last.as_ref().zip(match &record.state {
        // The attempt that is shown as the last one is still the present one until the next begins.
        ContainerState::BackOff { .. } | ContainerState::Waiting | ContainerState::Blocked { .. } => current,
        ContainerState::Starting | ContainerState::Running { .. } | ContainerState::Terminated(_) => {
            record.attempts.checked_sub(2)
        }
    });
    let id = |attempt: u32| container_id(view.pod, &record.name, attempt);
    ContainerStatus {
        name: record.name.clone(),
        state: Some(state(view, record)),
        last_state: Some(match last {
            Some((exit, attempt)) => ended(exit, id(attempt)),
            None => ApiState::default(),
        }),
        ready: record.is_ready(),
        started: Some(record.is_running()),
        restart_count: i32::try_from(current.unwrap_or(0)).unwrap_or(i32::MAX),
        // What only a container has that was made.
        image_id: current.map(|_| image.clone()).unwrap_or_default(),
        image,
        container_id: current.map(id),
        resources: current.map(|_| ResourceRequirements::default()),
        volume_mounts: current.and_then(|_| mounts(container)),
        ..ContainerStatus::default()
    }
}

fn mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref()?.iter().map(|mount| {
        let read_only = mount.read_only.filter(|read_only| *read_only);
        VolumeMountStatus {
            mount_path: mount.mount_path.clone(),
            name: mount.name.clone(),
            read_only,
            recursive_read_only: read_only.map(|_| "Disabled".to_owned()),
        }
    });
    Some(mounts.collect())
}

fn container_id(pod: &Pod, name: &str, attempt: u32) -> String {
    format!(
        "kubelite://{}.{name}.{attempt}",
        pod.metadata.uid.as_deref().unwrap_or("")
    )
}

fn state(view: &View<'_>, record: &Record) -> ApiState {
    let waiting = |reason: &str, message: Option<String>| ApiState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.to_owned()),
            message,
        }),
        ..ApiState::default()
    };
    match &record.state {
        ContainerState::Waiting | ContainerState::Starting => {
            let has_init = view.records.iter().any(|record| record.role == Role::Init);
            let reason = if has_init {
                "PodInitializing"
            } else {
                "ContainerCreating"
            };
            waiting(reason, None)
        }
        ContainerState::Blocked { reason, message, .. } => waiting((*reason).into(), Some(message.clone())),
        ContainerState::BackOff { delay, .. } => {
            let metadata = &view.pod.metadata;
            let message = format!(
                "back-off {}s restarting failed container={} pod={}_{}({})",
                delay.as_secs(),
                record.name,
                metadata.name.as_deref().unwrap_or(""),
                metadata.namespace.as_deref().unwrap_or(""),
                metadata.uid.as_deref().unwrap_or(""),
            );
            waiting("CrashLoopBackOff", Some(message))
        }
        ContainerState::Running { since } => ApiState {
            running: Some(ContainerStateRunning {
                started_at: Some(Time(*since)),
            }),
            ..ApiState::default()
        },
        ContainerState::Terminated(exit) => {
            let attempt = record.attempts.saturating_sub(1);
            ended(exit, container_id(view.pod, &record.name, attempt))
        }
    }
}

fn ended(exit: &Exit, id: String) -> ApiState {
    ApiState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(id),
            exit_code: exit.code,
            // The code tells of a signal, and container runtimes leave it at that.
            signal: None,
            reason: Some(exit_reason(exit).to_owned()),
            message: Some(exit.message.clone()).filter(|message| !message.is_empty()),
            started_at: Some(Time(exit.started_at.unwrap_or(exit.finished_at))),
            finished_at: Some(Time(exit.finished_at)),
        }),
        ..ApiState::default()
    }
}

fn exit_reason(exit: &Exit) -> &'static str {
    match (exit.cause, exit.code) {
        (Cause::Exited, 0) => "Completed",
        (Cause::Exited, _) => "Error",
        (Cause::StartFailed, _) => "StartError",
        (Cause::Lost, _) => "ContainerStatusUnknown",
    }
}

#[cfg(test)]
mod tests;
