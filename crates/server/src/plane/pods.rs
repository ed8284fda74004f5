//! The pods of a run, as far as it takes to read what they write. They are read with the caller's token.

use jangar_api::{labels, names::label_value};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};

use super::{Caller, ControlPlane, live, logs::pod_label, runs::Run};
use crate::{refusal::Refusal, world::text};

/// A run has a pod for each attempt of each step; the latest so many are told.
const PODS_MAX: usize = 200;

impl ControlPlane {
    /// The pods of a run, or of one step of its workflow, the oldest first.
    pub async fn pods(&self, caller: &Caller, run: &Run, step: Option<&str>) -> Result<Vec<Value>, Refusal> {
        if let Run::Archived { .. } = run {
            // Pods that carry its name now would be those of another run.
            return Ok(Vec::new());
        }
        let document = run.document();
        let namespace = text(document, "/metadata/namespace").unwrap_or_default();
        let name = text(document, "/metadata/name").unwrap_or_default();
        let mut selector = vec![format!("{}={}", pod_label(run.kind())?, label_value(&name))];
        selector.extend(step.map(|step| format!("{}={}", labels::STEP, label_value(step))));
        let pods: Api<Pod> = Api::namespaced(caller.identity.client(), &namespace);
        let params = ListParams::default().labels(&selector.join(","));
        let mut found = live(pods.list(&params)).await?.items;
        found.sort_by_key(|pod| (pod.creation_timestamp(), pod.name_any()));
        let surplus = found.len().saturating_sub(PODS_MAX);
        Ok(found.iter().skip(surplus).map(told).collect())
    }
}

/// Where a pod stands. What it was given to do its work is nobody's business here.
fn told(pod: &Pod) -> Value {
    let containers: Vec<Value> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| json!({"name": container.name}))
        .collect();
    let status = pod.status.clone().unwrap_or_default();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name_any(),
            "namespace": pod.namespace(),
            "uid": pod.uid(),
            "creationTimestamp": pod.creation_timestamp(),
            "labels": pod.labels(),
        },
        "spec": {"containers": containers},
        "status": {"phase": status.phase, "containerStatuses": status.container_statuses},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_told_without_what_it_was_given() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "a", "uid": "u"},
            "spec": {"containers": [{"name": "work", "image": "i", "env": [{"name": "TOKEN", "value": "secret"}]}]},
            "status": {"phase": "Running"},
        }))
        .expect("a pod");
        let told = told(&pod);
        assert_eq!(told["spec"], json!({"containers": [{"name": "work"}]}));
        assert_eq!(told["status"]["phase"], "Running");
        assert!(!told.to_string().contains("secret"), "{told}");
    }
}
