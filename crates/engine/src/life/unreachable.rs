//! A pod whose node does not answer. Whether it still works nobody knows, so that nothing may take its place before Kubernetes
//! has proven it dead: it does when the Node is deleted, or tainted as out of service, and then removes the pod.
//!
//! We have no right to read Nodes. What is known of them shows in the pod.

use std::time::Duration;

use jangar_api::reason::Reason;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::ResourceExt;

use super::{
    jobs::{self, pod_condition},
    leftovers::after,
};
use crate::decision::Rejection;

/// How long a node may be silent. Most come back within a few minutes, with their pods at work.
const SILENCE_MAX: Duration = Duration::from_mins(10);

/// When the pod is given up, if its node is silent.
pub(crate) fn given_up_at(pod: &Pod) -> Option<Timestamp> {
    silent_since(pod).map(|since| after(since, SILENCE_MAX))
}

/// Since when the node of a pod has been silent.
fn silent_since(pod: &Pod) -> Option<Timestamp> {
    if jobs::has_ended(pod) {
        return None;
    }
    // A kubelet kills a pod at this time, if it is there.
    let killed_at = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    not_ready_since(pod).into_iter().chain(killed_at).min()
}

/// Since when a pod is not ready although its containers are. No kubelet says that of a pod without gates: the controller that
/// watches nodes does, of all pods of one that is silent.
fn not_ready_since(pod: &Pod) -> Option<Timestamp> {
    let says = |type_, status| {
        let condition: Option<&PodCondition> = pod_condition(pod, type_);
        condition.filter(|condition| condition.status == status)
    };
    let spec = pod.spec.as_ref();
    let gates = spec.and_then(|spec| spec.readiness_gates.as_ref());
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return None;
    }
    says("ContainersReady", "True")?;
    let not_ready = says("Ready", "False")?;
    not_ready.last_transition_time.as_ref().map(|time| time.0)
}

/// What is said about a pod that is given up.
pub(crate) fn lost(pod: &Pod) -> Rejection {
    let spec = pod.spec.as_ref();
    let node = spec
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or("unknown");
    Rejection::new(
        Reason::NodeLost,
        format!(
            "node {node} of pod {} has not answered for {} minutes: the next attempt starts when the pod is known to be dead, \
             that is when the node answers again, or when somebody deletes the Node or taints it with \
             node.kubernetes.io/out-of-service",
            pod.name_any(),
            SILENCE_MAX.as_secs() / 60
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn silent(ready: &str, containers: &str, more: &Value) -> Option<String> {
        let mut pod = json!({
            "metadata": {"name": "p"},
            "spec": {"containers": []},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": "2026-03-01T10:00:00Z"},
                {"type": "ContainersReady", "status": containers},
            ]},
        });
        for (field, value) in more.as_object().unwrap() {
            for (key, value) in value.as_object().unwrap() {
                pod[field][key] = value.clone();
            }
        }
        let pod: Pod = serde_json::from_value(pod).unwrap();
        given_up_at(&pod).map(|at| at.to_string())
    }

    #[test]
    fn a_pod_is_on_a_silent_node_if_only_the_watcher_of_nodes_can_have_said_so() {
        let nothing = json!({});
        let in_ten_minutes = Some("2026-03-01T10:10:00Z".to_owned());
        assert_eq!(silent("False", "True", &nothing), in_ten_minutes);
        assert_eq!(silent("True", "True", &nothing), None);
        assert_eq!(
            silent("False", "False", &nothing),
            None,
            "a container of its own is not ready"
        );
        let gates = json!({"spec": {"readinessGates": [{"conditionType": "example.com/gate"}]}});
        assert_eq!(
            silent("False", "True", &gates),
            None,
            "a gate of somebody else's is closed"
        );
        let ended = json!({"status": {"phase": "Failed"}});
        assert_eq!(silent("False", "True", &ended), None);
    }

    #[test]
    fn a_pod_that_should_have_been_killed_is_on_a_silent_node() {
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-03-01T09:00:00Z"}});
        assert_eq!(
            silent("True", "True", &deleted),
            Some("2026-03-01T09:10:00Z".to_owned())
        );
    }
}
