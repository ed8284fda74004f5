//! The table of pods, whose status column sums up what all containers are doing.

use jiff::Timestamp;
use serde_json::Value;

use crate::table::{
    Header, RowCondition, age,
    builtin::{
        AGE, NAME, condition as condition_status, created, dig, flag, is_deleting, items, name, number,
        shown, text, wide,
    },
};

pub(super) const HEADERS: &[Header] = &[
    NAME,
    shown(
        "Ready",
        "The aggregate readiness state of this pod for accepting traffic.",
    ),
    shown("Status", "The aggregate status of the containers in this pod."),
    shown(
        "Restarts",
        "How often the containers in this pod have been restarted, and when the last time was.",
    ),
    AGE,
    wide("IP", "The address of the pod."),
    wide("Node", "The node the pod runs on."),
    wide(
        "Nominated Node",
        "The node the pod will run on once others have made room.",
    ),
    wide(
        "Readiness Gates",
        "How many of the extra conditions for readiness hold.",
    ),
];

/// The reason that stands for a node which does not answer any more.
const NODE_LOST: &str = "NodeLost";

pub(super) fn condition(pod: &Value) -> Option<RowCondition> {
    let (reason, message) = match text(pod, &["status", "phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(RowCondition {
        type_: "Completed",
        status: "True",
        reason,
        message,
    })
}

pub(super) fn row(pod: &Value, now: Timestamp) -> Vec<Value> {
    let Summary {
        reason,
        ready,
        total,
        restarts,
    } = Summary::of(pod);
    let or_none = |text: &str| Value::from(if text.is_empty() { "<none>" } else { text });
    let first_ip = items(pod, &["status", "podIPs"])
        .first()
        .map(|ip| text(ip, &["ip"]));
    vec![
        name(pod),
        Value::from(format!("{ready}/{total}")),
        Value::from(reason),
        Value::from(restarts.print(now)),
        created(pod, now),
        or_none(first_ip.unwrap_or_default()),
        or_none(text(pod, &["spec", "nodeName"])),
        or_none(text(pod, &["status", "nominatedNodeName"])),
        Value::from(readiness_gates(pod)),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates.iter().filter(|gate| {
        condition_status(pod, text(gate, &["conditionType"])).is_some_and(|status| status == "True")
    });
    format!("{}/{}", open.count(), gates.len())
}

#[derive(Clone, Copy, Debug, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(number(container, &["restartCount"]));
        let ended = age::moment(dig(container, &["lastState", "terminated", "finishedAt"]));
        self.last = self.last.max(ended);
    }

    fn print(self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => format!("{} ({} ago)", self.count, age::since(last, now)),
            _ => self.count.to_string(),
        }
    }
}

struct Summary {
    reason: String,
    ready: usize,
    total: usize,
    restarts: Restarts,
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let init = InitSummary::of(pod);
        let total = items(pod, &["spec", "containers"]).len()
            + items(pod, &["spec", "initContainers"])
                .iter()
                .filter(|container| is_sidecar(container))
                .count();
        let mut summary = Self {
            reason: own_reason(pod),
            ready: init.ready,
            total,
            restarts: init.restarts,
        };
        let initializing = init.blocked.is_some();
        if let Some(reason) = init.blocked {
            summary.reason = reason;
        }
        if !initializing || condition_status(pod, "Initialized").is_some_and(|status| status == "True") {
            summary.restarts = init.sidecar_restarts;
            summary.add_containers(pod);
        }
        if is_deleting(pod) {
            let phase = text(pod, &["status", "phase"]);
            if text(pod, &["status", "reason"]) == NODE_LOST {
                "Unknown".clone_into(&mut summary.reason);
            } else if phase != "Succeeded" && phase != "Failed" {
                "Terminating".clone_into(&mut summary.reason);
            }
        }
        summary
    }

    /// The first container of the list has the last word, so the list is read from its end.
    fn add_containers(&mut self, pod: &Value) {
        let mut running = false;
        let mut failure = None;
        for container in items(pod, &["status", "containerStatuses"]).iter().rev() {
            self.restarts.add(container);
            let waiting = text(container, &["state", "waiting", "reason"]);
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(end) = dig(container, &["state", "terminated"]) {
                self.reason = end_of(end);
                if number(end, &["exitCode"]) != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if flag(container, &["ready"]) && dig(container, &["state", "running"]).is_some() {
                running = true;
                self.ready += 1;
            }
        }
        // One container has completed, but that is not yet the end of the pod.
        if self.reason == "Completed" {
            let pod_ready = condition_status(pod, "Ready").is_some_and(|status| status == "True");
            if running && pod_ready {
                "Running".clone_into(&mut self.reason);
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if running {
                "NotReady".clone_into(&mut self.reason);
            }
        }
    }
}

/// What the pod says about itself, before any container is asked.
fn own_reason(pod: &Value) -> String {
    const GATED: &str = "SchedulingGated";
    let gated = items(pod, &["status", "conditions"]).iter().any(|condition| {
        text(condition, &["type"]) == "PodScheduled" && text(condition, &["reason"]) == GATED
    });
    let reason = text(pod, &["status", "reason"]);
    match reason {
        _ if gated => GATED.to_owned(),
        "" => text(pod, &["status", "phase"]).to_owned(),
        reason => reason.to_owned(),
    }
}

fn end_of(end: &Value) -> String {
    let reason = text(end, &["reason"]);
    match number(end, &["signal"]) {
        _ if !reason.is_empty() => reason.to_owned(),
        0 => format!("ExitCode:{}", number(end, &["exitCode"])),
        signal => format!("Signal:{signal}"),
    }
}

/// An init container that stays beside the others: it counts as one of them once it has started.
fn is_sidecar(container: &Value) -> bool {
    text(container, &["restartPolicy"]) == "Always"
}

struct InitSummary {
    /// What keeps the pod from being initialised, if anything does.
    blocked: Option<String>,
    ready: usize,
    restarts: Restarts,
    sidecar_restarts: Restarts,
}

impl InitSummary {
    fn of(pod: &Value) -> Self {
        let containers = items(pod, &["spec", "initContainers"]);
        let mut summary = Self {
            blocked: None,
            ready: 0,
            restarts: Restarts::default(),
            sidecar_restarts: Restarts::default(),
        };
        for (position, status) in items(pod, &["status", "initContainerStatuses"])
            .iter()
            .enumerate()
        {
            let sidecar = containers.iter().any(|container| {
                text(container, &["name"]) == text(status, &["name"]) && is_sidecar(container)
            });
            summary.restarts.add(status);
            if sidecar {
                summary.sidecar_restarts.add(status);
            }
            let end = dig(status, &["state", "terminated"]);
            if end.is_some_and(|end| number(end, &["exitCode"]) == 0) {
                continue;
            }
            if sidecar && flag(status, &["started"]) {
                summary.ready += usize::from(flag(status, &["ready"]));
                continue;
            }
            let waiting = text(status, &["state", "waiting", "reason"]);
            summary.blocked = Some(match end {
                Some(end) => format!("Init:{}", end_of(end)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{position}/{}", containers.len()),
            });
            break;
        }
        summary
    }
}
