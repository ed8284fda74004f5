//! A server with a node's controllers, and a kubelet's hands.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy},
};
use kubelite::{
    clock::{Clock, Ids, TokioClock},
    node::{Config as NodeConfig, Node},
    server::{Config, Server, User},
    store::{Limits, Store},
};
use serde_json::{Value, json};

pub(crate) const START: &str = "2026-03-01T12:00:00Z";

/// A server with a node, and a kubelet's hands.
pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) node: Node,
    pub(crate) jobs: Api<Job>,
    pub(crate) pods: Api<Pod>,
    pub(crate) client: Client,
    pub(crate) clock: TokioClock,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::with(NodeConfig::default()).await
    }

    pub(crate) async fn with(config: NodeConfig) -> Self {
        let clock = TokioClock::starting_at(START.parse().unwrap());
        let server = Server::start(Config {
            clock: Arc::new(clock),
            ids: Ids::seeded(11),
            ..Config::new(Store::in_memory(Limits::default()))
        })
        .await
        .unwrap();
        let node = Node::start(&server, &config).await.unwrap();
        let client = Client::new(server.local(User::system("tester")), "default");
        let this = Self {
            jobs: Api::default_namespaced(client.clone()),
            pods: Api::default_namespaced(client.clone()),
            server,
            node,
            client,
            clock,
        };
        this.settle().await;
        this
    }

    /// Returns once nothing is left to do: paused time moves only when every task waits.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    pub(crate) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.settle().await;
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) {
        let mut job = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
                "containers": [{"name": "c", "image": "i"}],
            }}},
        });
        json_patch::merge(&mut job["spec"], &spec);
        let job = serde_json::from_value(job).unwrap();
        self.jobs.create(&PostParams::default(), &job).await.unwrap();
        self.settle().await;
    }

    /// The Job's status as JSON, `Null` when the Job is gone.
    pub(crate) async fn status(&self, name: &str) -> Value {
        let job = self.jobs.get_opt(name).await.unwrap();
        job.map_or(Value::Null, |job| serde_json::to_value(job.status).unwrap())
    }

    /// The conditions in short.
    pub(crate) async fn conditions(&self, name: &str) -> Vec<String> {
        let status = self.status(name).await;
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or("").to_owned();
        let short = |condition: &Value| {
            let (kind, status) = (text(condition, "type"), text(condition, "status"));
            format!("{kind}={status} {}", text(condition, "reason"))
        };
        conditions.iter().map(short).collect()
    }

    pub(crate) async fn patch_job(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.jobs
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
        self.settle().await;
    }

    /// The pods of a Job, oldest first.
    pub(crate) async fn pods_of(&self, job: &str) -> Vec<Pod> {
        let params = ListParams::default().labels(&format!("job-name={job}"));
        let mut pods = self.pods.list(&params).await.unwrap().items;
        pods.sort_by_key(|pod| {
            (
                pod.creation_timestamp(),
                pod.resource_version().unwrap().parse::<u64>().unwrap(),
            )
        });
        pods
    }

    /// The one pod of a Job that has not ended and is not told to.
    pub(crate) async fn active(&self, job: &str) -> Option<String> {
        let pods = self.pods_of(job).await;
        let mut active = pods.iter().filter(|pod| {
            pod.metadata.deletion_timestamp.is_none() && !matches!(phase(pod), "Succeeded" | "Failed")
        });
        let first = active.next().map(ResourceExt::name_any);
        assert!(active.next().is_none(), "two active pods of {job}");
        first
    }

    pub(crate) async fn patch_pod(&self, pod: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.pods
            .patch_status(pod, &PatchParams::apply("kubelet"), &patch)
            .await
            .unwrap();
        self.settle().await;
    }

    /// The kubelet started the pod.
    pub(crate) async fn run(&self, job: &str) -> String {
        let pod = self.active(job).await.unwrap();
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": START}]);
        self.patch_pod(&pod, json!({"phase": "Running", "conditions": ready}))
            .await;
        pod
    }

    /// The pod's container ended.
    pub(crate) async fn end(&self, pod: &str, code: i32) {
        self.end_with(pod, code, json!([])).await;
    }

    pub(crate) async fn end_with(&self, pod: &str, code: i32, conditions: Value) {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let state = json!({"terminated": {"exitCode": code, "finishedAt": self.now().to_string()}});
        let container = json!({
            "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        });
        self.patch_pod(
            pod,
            json!({"phase": phase, "conditions": conditions, "containerStatuses": [container]}),
        )
        .await;
    }

    /// The kubelet has removed everything of a pod that was told to end.
    pub(crate) async fn reap(&self, pod: &str) {
        let now = DeleteParams::default().grace_period(0);
        self.pods.delete(pod, &now).await.unwrap();
        self.settle().await;
    }

    /// The time in whole seconds, as statuses show it.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_second(self.clock.now().as_second()).unwrap()
    }

    pub(crate) async fn delete(&self, job: &str, propagation: PropagationPolicy) {
        let params = DeleteParams {
            propagation_policy: Some(propagation),
            ..DeleteParams::default()
        };
        self.jobs.delete(job, &params).await.unwrap();
        self.settle().await;
    }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().unwrap().phase.as_deref().unwrap()
}
