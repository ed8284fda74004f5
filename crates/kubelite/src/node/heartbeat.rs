//! The Node that the pods run on, and the Lease that says that it is alive.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Config, collection};
use crate::{
    builtin::{Builtin, Endpoint},
    clock,
    discovery::GIT_VERSION,
    error::{ApiError, Reason},
    server::{Client, Expected},
    store::{Event, EventKind, Key, Object},
};

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// How many renewals may be missed before the node counts as lost, as with a kubelet.
const RENEWALS_PER_LEASE: i64 = 4;
/// A node that stays as it is says so this rarely, as a kubelet does; the Lease is what is looked at.
const REPORT_INTERVAL: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug)]
pub(super) struct Heartbeat {
    client: Client,
    name: String,
    pods: u32,
    renewal: SignedDuration,
    next_renewal: Timestamp,
    next_report: Timestamp,
}

impl Heartbeat {
    pub(super) fn new(client: Client, config: &Config) -> Self {
        Self {
            name: config.name.clone(),
            pods: config.pods,
            renewal: SignedDuration::try_from(config.lease_renewal).unwrap_or(SignedDuration::MAX),
            next_renewal: Timestamp::MIN,
            next_report: Timestamp::MIN,
            client,
        }
    }

    pub(super) fn next(&self) -> Timestamp {
        self.next_renewal.min(self.next_report)
    }

    /// A node that somebody deleted is registered again, and so is the Lease that goes with it.
    pub(super) fn note(&mut self, event: &Event) {
        if event.kind != EventKind::Deleted || *event.key.name != *self.name {
            return;
        }
        if event.collection == collection(Builtin::Node) {
            self.next_report = Timestamp::MIN;
        } else if event.collection == collection(Builtin::Lease) && *event.key.namespace == *LEASE_NAMESPACE {
            self.next_renewal = Timestamp::MIN;
        }
    }

    /// Reports and renews what is due. What fails is due again one renewal later.
    pub(super) async fn act(&mut self) -> Result<(), ApiError> {
        let now = self.client.now();
        let later = |interval: SignedDuration| now.saturating_add(interval).unwrap_or(Timestamp::MAX);
        if self.next_report <= now {
            self.next_report = later(self.renewal);
            self.report(now).await?;
            self.next_report = later(REPORT_INTERVAL);
        }
        if self.next_renewal <= now {
            self.next_renewal = later(self.renewal);
            self.renew(now).await?;
        }
        Ok(())
    }

    fn key(&self) -> Key {
        Key::new("", &self.name)
    }

    fn node(&self) -> Option<Object> {
        self.client.store().get(&collection(Builtin::Node), &self.key())
    }

    async fn report(&self, now: Timestamp) -> Result<(), ApiError> {
        if self.node().is_none() {
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": self.labels()},
            });
            let created = self.client.create(Builtin::Node, "", node).await;
            created.or_else(|error| match error.reason {
                Reason::AlreadyExists => Ok(()),
                _ => Err(error),
            })?;
        }
        let Some(node) = self.node() else { return Ok(()) };
        let expected = Expected::Uid(&node.meta.uid);
        let now = clock::seconds(now);
        self.client
            .update(Builtin::Node, &self.key(), Endpoint::Status, expected, |node| {
                let was = ready_since(node).unwrap_or_else(|| now.clone());
                self.describe(node, &now, &was);
            })
            .await
    }

    fn labels(&self) -> Value {
        json!({
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": std::env::consts::OS,
            "kubernetes.io/arch": go_architecture(),
        })
    }

    /// Fills in the status. Other parts of it, and labels that somebody added, stay.
    fn describe(&self, node: &mut Value, now: &str, since: &str) {
        if let (Some(labels), Value::Object(own)) = (
            node.pointer_mut("/metadata/labels")
                .and_then(Value::as_object_mut),
            self.labels(),
        ) {
            labels.extend(own);
        }
        let pods = self.pods.to_string();
        let status = &mut node["status"];
        status["capacity"] = json!({ "pods": pods });
        status["allocatable"] = json!({ "pods": pods });
        status["addresses"] = json!([{"type": "Hostname", "address": self.name}]);
        status["conditions"] = json!([{
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": now,
            "lastTransitionTime": since,
        }]);
        status["nodeInfo"] = json!({
            "architecture": go_architecture(), "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": GIT_VERSION, "machineID": "",
            "operatingSystem": std::env::consts::OS, "osImage": "", "systemUUID": "",
        });
    }

    async fn renew(&self, now: Timestamp) -> Result<(), ApiError> {
        let key = Key::new(LEASE_NAMESPACE, &self.name);
        let time = format!("{now:.6}");
        let Some(lease) = self.client.store().get(&collection(Builtin::Lease), &key) else {
            let Some(node) = self.node() else { return Ok(()) };
            let seconds = self.renewal.as_secs().saturating_mul(RENEWALS_PER_LEASE).max(1);
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": self.name,
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": node.meta.uid}
                    ],
                },
                "spec": {"holderIdentity": self.name, "leaseDurationSeconds": seconds, "renewTime": time},
            });
            return self.client.create(Builtin::Lease, LEASE_NAMESPACE, lease).await;
        };
        let expected = Expected::Uid(&lease.meta.uid);
        self.client
            .update(Builtin::Lease, &key, Endpoint::Main, expected, |lease| {
                lease["spec"]["renewTime"] = time.as_str().into();
            })
            .await
    }
}

/// Since when the node says that it is ready, if it says so.
fn ready_since(node: &Value) -> Option<String> {
    let conditions = node.pointer("/status/conditions")?.as_array()?;
    let ready = conditions
        .iter()
        .find(|condition| condition["type"] == "Ready" && condition["status"] == "True")?;
    Some(ready["lastTransitionTime"].as_str()?.to_owned())
}

/// The machine's architecture as Go, and so Kubernetes, calls it.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
