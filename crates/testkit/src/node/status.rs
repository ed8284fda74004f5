//! The statuses of a pod, as far as anybody here reads them. Pure: from what its containers do to the patch.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

use super::record::Ending;

/// What the containers of a pod do.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Not started yet.
    Creating,
    /// The container of the agent cannot be started; the init containers have ended.
    Lacking {
        since: Timestamp,
        reason: &'static str,
        words: &'static str,
    },
    Running {
        since: Timestamp,
    },
    /// Ended before they started.
    Refused,
    Ended {
        since: Timestamp,
        at: Timestamp,
        ending: Ending,
    },
}

/// Why a pod was put off its node, as a condition says it.
pub(super) fn disruption(reason: &str, message: &str, now: Timestamp) -> Value {
    json!({
        "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": seconds(now),
    })
}

/// The status of a strategic merge patch. Conditions that it does not name stay.
pub(super) fn status(pod: &Pod, state: &State, now: Timestamp) -> Value {
    let phase = match state {
        State::Creating | State::Lacking { .. } => "Pending",
        State::Running { .. } => "Running",
        State::Ended {
            ending: Ending::Exited(0),
            ..
        } => "Succeeded",
        State::Ended { .. } | State::Refused => "Failed",
    };
    let running = matches!(state, State::Running { .. });
    let ready = if running { "True" } else { "False" };
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": seconds(now)});
    let spec = pod.spec.as_ref();
    let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let init = spec
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default();
    let mut status = json!({
        "phase": phase,
        "startTime": seconds(now),
        "conditions": [condition("Ready", ready), condition("ContainersReady", ready)],
        "containerStatuses": main.iter().map(|container| main_status(container, state)).collect::<Vec<_>>(),
    });
    if let Some(started) = pod.status.as_ref().and_then(|status| status.start_time.as_ref()) {
        status["startTime"] = seconds(started.0).into();
    }
    if !init.is_empty() {
        status["initContainerStatuses"] = init
            .iter()
            .map(|container| init_status(container, state))
            .collect();
    }
    status
}

fn main_status(container: &Container, state: &State) -> Value {
    let running = matches!(state, State::Running { .. });
    let detail = match state {
        State::Lacking { reason, words, .. } => {
            json!({"waiting": {"reason": reason, "message": words}})
        }
        State::Creating | State::Refused => json!({"waiting": {"reason": "ContainerCreating"}}),
        State::Running { since } => json!({"running": {"startedAt": seconds(*since)}}),
        State::Ended { since, at, ending } => json!({"terminated": terminated(*since, *at, *ending)}),
    };
    container_status(container, running, &detail)
}

fn init_status(container: &Container, state: &State) -> Value {
    let detail = match state {
        State::Creating | State::Refused => json!({"waiting": {"reason": "PodInitializing"}}),
        State::Lacking { since, .. } | State::Running { since } | State::Ended { since, .. } => {
            json!({"terminated": {
                "exitCode": 0, "reason": "Completed", "startedAt": seconds(*since), "finishedAt": seconds(*since),
            }})
        }
    };
    container_status(container, false, &detail)
}

fn container_status(container: &Container, running: bool, state: &Value) -> Value {
    json!({
        "name": container.name, "image": container.image, "imageID": "", "ready": running, "started": running,
        "restartCount": 0, "state": state, "lastState": {},
    })
}

fn terminated(since: Timestamp, at: Timestamp, ending: Ending) -> Value {
    let code = match ending {
        Ending::Exited(code) => code,
        Ending::Stopped => 143,
        Ending::Killed | Ending::Lost => 137,
    };
    let reason = match ending {
        Ending::Exited(0) => "Completed",
        Ending::Exited(_) | Ending::Stopped | Ending::Killed => "Error",
        Ending::Lost => "ContainerStatusUnknown",
    };
    let mut state = json!({
        "exitCode": code, "reason": reason, "startedAt": seconds(since), "finishedAt": seconds(at),
    });
    if let Some(message) = termination_message(ending) {
        state["message"] = message.into();
    }
    state
}

/// What agent-runner leaves behind. One that was killed had no time to.
fn termination_message(ending: Ending) -> Option<String> {
    let outcome = match ending {
        Ending::Exited(0) => json!({
            "version": 1, "exitCode": 0, "reason": "Completed", "summary": "All is done.",
            "usage": {"inputTokens": 120, "outputTokens": 7}, "commit": "3f1c2a9d", "outputs": {"branch": "fix/adder"},
            "vcs": {"state": "Pushed", "branch": "fix/adder", "commit": "3f1c2a9d", "commitsAhead": 1},
        }),
        Ending::Exited(code) => json!({
            "version": 1, "exitCode": code, "reason": "AgentFailed", "message": format!("the agent exited with {code}"),
        }),
        Ending::Stopped => json!({
            "version": 1, "exitCode": 143, "reason": "Stopped", "message": "the runner was told to stop",
        }),
        Ending::Killed | Ending::Lost => return None,
    };
    Some(outcome.to_string())
}

fn seconds(time: Timestamp) -> String {
    kubelite::clock::seconds(time)
}
