//! Jobs on the node's controllers, on a paused clock. The test plays the kubelet: it says through the API what became of
//! the pods. The statuses were compared with those of a Kubernetes 1.35.8 that was led through the same steps.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on has failed the test"
)]

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Node as NodeObject, Pod},
};
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

const START: &str = "2026-03-01T12:00:00Z";

/// A server with a node, and a kubelet's hands.
struct Cluster {
    server: Server,
    node: Node,
    jobs: Api<Job>,
    pods: Api<Pod>,
    client: Client,
    clock: TokioClock,
}

impl Cluster {
    async fn start() -> Self {
        Self::with(NodeConfig::default()).await
    }

    async fn with(config: NodeConfig) -> Self {
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
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.settle().await;
    }

    async fn create(&self, name: &str, spec: Value) {
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
    async fn status(&self, name: &str) -> Value {
        let job = self.jobs.get_opt(name).await.unwrap();
        job.map_or(Value::Null, |job| serde_json::to_value(job.status).unwrap())
    }

    /// The conditions in short.
    async fn conditions(&self, name: &str) -> Vec<String> {
        let status = self.status(name).await;
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or("").to_owned();
        let short = |condition: &Value| {
            let (kind, status) = (text(condition, "type"), text(condition, "status"));
            format!("{kind}={status} {}", text(condition, "reason"))
        };
        conditions.iter().map(short).collect()
    }

    async fn patch_job(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.jobs
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
        self.settle().await;
    }

    /// The pods of a Job, oldest first.
    async fn pods_of(&self, job: &str) -> Vec<Pod> {
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
    async fn active(&self, job: &str) -> Option<String> {
        let pods = self.pods_of(job).await;
        let mut active = pods.iter().filter(|pod| {
            pod.metadata.deletion_timestamp.is_none() && !matches!(phase(pod), "Succeeded" | "Failed")
        });
        let first = active.next().map(ResourceExt::name_any);
        assert!(active.next().is_none(), "two active pods of {job}");
        first
    }

    async fn patch_pod(&self, pod: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.pods
            .patch_status(pod, &PatchParams::apply("kubelet"), &patch)
            .await
            .unwrap();
        self.settle().await;
    }

    /// The kubelet started the pod.
    async fn run(&self, job: &str) -> String {
        let pod = self.active(job).await.unwrap();
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": START}]);
        self.patch_pod(&pod, json!({"phase": "Running", "conditions": ready}))
            .await;
        pod
    }

    /// The pod's container ended.
    async fn end(&self, pod: &str, code: i32) {
        self.end_with(pod, code, json!([])).await;
    }

    async fn end_with(&self, pod: &str, code: i32, conditions: Value) {
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
    async fn reap(&self, pod: &str) {
        let now = DeleteParams::default().grace_period(0);
        self.pods.delete(pod, &now).await.unwrap();
        self.settle().await;
    }

    /// The time in whole seconds, as statuses show it.
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.clock.now().as_second()).unwrap()
    }

    async fn delete(&self, job: &str, propagation: PropagationPolicy) {
        let params = DeleteParams {
            propagation_policy: Some(propagation),
            ..DeleteParams::default()
        };
        self.jobs.delete(job, &params).await.unwrap();
        self.settle().await;
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().unwrap().phase.as_deref().unwrap()
}

#[tokio::test(start_paused = true)]
async fn job_succeeds_with_the_statuses_of_kubernetes() {
    let cluster = Cluster::start().await;
    let start = cluster.now().to_string();
    cluster.create("ok", json!({"backoffLimit": 0})).await;
    let running = |ready: i32| {
        json!({
            "active": 1, "ready": ready, "startTime": start, "terminating": 0, "uncountedTerminatedPods": {},
        })
    };
    assert_eq!(cluster.status("ok").await, running(0));
    cluster.pass(3).await;
    let pod = cluster.run("ok").await;
    assert_eq!(cluster.status("ok").await, running(1));
    cluster.pass(4).await;
    cluster.end(&pod, 0).await;
    let end = cluster.now().to_string();
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "CompletionsReached",
            "message": "Reached expected number of succeeded pods", "lastProbeTime": end, "lastTransitionTime": end,
        })
    };
    let complete = json!({
        "completionTime": end, "conditions": [condition("SuccessCriteriaMet"), condition("Complete")], "ready": 0,
        "startTime": start, "succeeded": 1, "terminating": 0, "uncountedTerminatedPods": {},
    });
    assert_eq!(cluster.status("ok").await, complete);
}

#[tokio::test(start_paused = true)]
async fn pod_of_a_job_is_owned_labelled_tracked_and_bound() {
    let cluster = Cluster::start().await;
    cluster.create("ok", json!({})).await;
    let job = cluster.jobs.get("ok").await.unwrap();
    let pod = cluster.pods_of("ok").await.remove(0);
    let uid = job.uid().unwrap();
    let metadata = serde_json::to_value(&pod.metadata).unwrap();
    assert_eq!(metadata["generateName"], "ok-");
    assert_eq!(
        metadata["finalizers"],
        json!(["batch.kubernetes.io/job-tracking"])
    );
    assert_eq!(
        metadata["labels"],
        json!({
            "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "ok", "controller-uid": uid,
            "job-name": "ok",
        })
    );
    assert_eq!(
        metadata["ownerReferences"],
        json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": "ok", "uid": uid, "controller": true,
            "blockOwnerDeletion": true,
        }])
    );
    // As in Kubernetes, binding leaves neither an owner of the node's name nor a new generation.
    assert_eq!(pod.spec.as_ref().unwrap().node_name.as_deref(), Some("kubelite"));
    assert_eq!(pod.metadata.generation, Some(1));
    let managers = |managed: &Option<Vec<_>>| {
        let fields: &Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry> =
            managed.as_ref().unwrap();
        let name = |entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
            let subresource = entry.subresource.clone().unwrap_or_default();
            format!("{} {subresource}", entry.manager.clone().unwrap_or_default())
        };
        fields.iter().map(name).collect::<Vec<String>>()
    };
    assert_eq!(
        managers(&pod.metadata.managed_fields),
        ["kube-controller-manager "]
    );
    assert!(managers(&job.metadata.managed_fields).contains(&"kube-controller-manager status".to_owned()));
    let condition = &pod.status.unwrap().conditions.unwrap()[0];
    assert_eq!(
        (condition.type_.as_str(), condition.status.as_str()),
        ("PodScheduled", "True")
    );
}

#[tokio::test(start_paused = true)]
async fn failed_pods_are_replaced_after_delays_until_the_limit() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({"backoffLimit": 2})).await;
    for (failures, delay) in [(1, 10), (2, 20)] {
        let pod = cluster.run("j").await;
        cluster.end(&pod, 1).await;
        assert_eq!(cluster.status("j").await["failed"], failures);
        cluster.pass(delay - 1).await;
        assert_eq!(cluster.active("j").await, None, "before {delay} s");
        cluster.pass(1).await;
        assert!(cluster.active("j").await.is_some(), "after {delay} s");
    }
    let pod = cluster.run("j").await;
    cluster.end(&pod, 1).await;
    assert_eq!(
        cluster.conditions("j").await,
        [
            "FailureTarget=True BackoffLimitExceeded",
            "Failed=True BackoffLimitExceeded"
        ]
    );
    let status = cluster.status("j").await;
    assert_eq!((&status["failed"], &status["active"]), (&json!(3), &Value::Null));
    assert_eq!(
        status["conditions"][1]["message"],
        "Job has reached the specified backoff limit"
    );
    cluster.pass(3600).await;
    assert_eq!(cluster.pods_of("j").await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn failure_policy_ends_ignores_or_counts() {
    let cluster = Cluster::start().await;
    let rules = json!({"backoffLimit": 1, "podFailurePolicy": {"rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
    ]}});
    cluster.create("j", rules).await;
    let evicted = json!([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]);
    for delay in [10, 20] {
        let pod = cluster.run("j").await;
        cluster.end_with(&pod, 137, evicted.clone()).await;
        assert_eq!(cluster.status("j").await["failed"], Value::Null);
        cluster.pass(delay).await;
    }
    let pod = cluster.run("j").await;
    cluster.end(&pod, 1).await;
    assert_eq!(cluster.status("j").await["failed"], 1);
    cluster.pass(40).await;
    let pod = cluster.run("j").await;
    cluster.end(&pod, 42).await;
    assert_eq!(
        cluster.conditions("j").await,
        [
            "FailureTarget=True PodFailurePolicy",
            "Failed=True PodFailurePolicy"
        ]
    );
    let message = format!(
        "Container c for pod default/{pod} failed with exit code 42 matching FailJob rule at index 0"
    );
    assert_eq!(
        cluster.status("j").await["conditions"][1]["message"],
        message.as_str()
    );
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_is_replaced_as_the_replacement_policy_says() {
    let cluster = Cluster::start().await;
    for (job, policy) in [("soon", "TerminatingOrFailed"), ("late", "Failed")] {
        cluster.create(job, json!({"podReplacementPolicy": policy})).await;
        let pod = cluster.run(job).await;
        cluster.pods.delete(&pod, &DeleteParams::default()).await.unwrap();
        cluster.pass(10).await;
        let early = cluster.active(job).await.is_some();
        assert_eq!(early, policy == "TerminatingOrFailed", "{policy}");
        assert_eq!(cluster.status(job).await["terminating"], 1, "{policy}");
        cluster.end(&pod, 143).await;
        cluster.reap(&pod).await;
        cluster.pass(10).await;
        assert!(cluster.active(job).await.is_some(), "{policy}");
        let status = cluster.status(job).await;
        assert_eq!(
            (&status["failed"], &status["terminating"]),
            (&json!(1), &json!(0)),
            "{policy}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn suspended_job_stops_and_starts_afresh_when_resumed() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({"activeDeadlineSeconds": 60})).await;
    let start = cluster.status("j").await["startTime"].clone();
    let pod = cluster.run("j").await;
    cluster.pass(20).await;
    cluster.patch_job("j", json!({"spec": {"suspend": true}})).await;
    let status = cluster.status("j").await;
    assert_eq!(cluster.conditions("j").await, ["Suspended=True JobSuspended"]);
    assert_eq!(
        (&status["terminating"], &status["active"]),
        (&json!(1), &Value::Null)
    );
    assert_eq!(status["startTime"], start);
    let object = cluster.pods.get(&pod).await.unwrap();
    assert!(object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty());
    cluster.reap(&pod).await;
    cluster.pass(20).await;
    assert_eq!(cluster.pods_of("j").await.len(), 0);
    cluster.patch_job("j", json!({"spec": {"suspend": false}})).await;
    let status = cluster.status("j").await;
    assert_eq!(cluster.conditions("j").await, ["Suspended=False JobResumed"]);
    assert_eq!(status["startTime"], cluster.now().to_string());
    assert_eq!((&status["active"], &status["failed"]), (&json!(1), &Value::Null));
    // The deadline counts from the new start.
    cluster.pass(59).await;
    assert_eq!(cluster.conditions("j").await, ["Suspended=False JobResumed"]);
    cluster.pass(1).await;
    assert_eq!(
        cluster.conditions("j").await[1..],
        ["FailureTarget=True DeadlineExceeded"]
    );
}

#[tokio::test(start_paused = true)]
async fn job_that_is_born_suspended_has_not_started() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({"suspend": true})).await;
    let status = cluster.status("j").await;
    assert_eq!(cluster.conditions("j").await, ["Suspended=True JobSuspended"]);
    assert_eq!(status["startTime"], Value::Null);
    assert_eq!(cluster.pods_of("j").await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn deadline_fails_the_job_once_its_pod_has_ended() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({"activeDeadlineSeconds": 30})).await;
    let pod = cluster.run("j").await;
    cluster.pass(29).await;
    assert_eq!(cluster.conditions("j").await, Vec::<String>::new());
    cluster.pass(1).await;
    assert_eq!(
        cluster.conditions("j").await,
        ["FailureTarget=True DeadlineExceeded"]
    );
    let status = cluster.status("j").await;
    assert_eq!(
        (&status["failed"], &status["terminating"]),
        (&json!(1), &json!(1))
    );
    cluster.pass(5).await;
    cluster.end(&pod, 143).await;
    assert_eq!(
        cluster.conditions("j").await,
        [
            "FailureTarget=True DeadlineExceeded",
            "Failed=True DeadlineExceeded"
        ]
    );
    assert_eq!(cluster.status("j").await["terminating"], 0);
}

#[tokio::test(start_paused = true)]
async fn indexed_job_fails_and_says_why() {
    let cluster = Cluster::start().await;
    cluster
        .create(
            "j",
            json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2}),
        )
        .await;
    let reason = "CompletionModeNotSupported";
    assert_eq!(
        cluster.conditions("j").await,
        [
            format!("FailureTarget=True {reason}"),
            format!("Failed=True {reason}")
        ]
    );
    assert_eq!(cluster.pods_of("j").await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_waits_for_the_pod() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({})).await;
    let pod = cluster.run("j").await;
    cluster.delete("j", PropagationPolicy::Foreground).await;
    let object = cluster.pods.get(&pod).await.unwrap();
    assert!(object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty());
    assert_eq!(cluster.status("j").await["terminating"], 1);
    cluster.reap(&pod).await;
    assert!(cluster.jobs.get_opt("j").await.unwrap().is_none());
    assert_eq!(cluster.pods_of("j").await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_leaves_a_job_that_somebody_holds() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({})).await;
    let held = json!({"metadata": {"finalizers": ["example.com/keep"]}});
    cluster.patch_job("j", held).await;
    let pod = cluster.run("j").await;
    cluster.delete("j", PropagationPolicy::Foreground).await;
    cluster.reap(&pod).await;
    let job = cluster.jobs.get("j").await.unwrap();
    assert_eq!(job.finalizers(), ["example.com/keep"]);
    assert_eq!(cluster.status("j").await["terminating"], 0);
    assert_eq!(cluster.pods_of("j").await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn background_deletion_takes_the_job_at_once_and_the_pod_after_it() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({})).await;
    let pod = cluster.run("j").await;
    cluster.delete("j", PropagationPolicy::Background).await;
    assert!(cluster.jobs.get_opt("j").await.unwrap().is_none());
    let object = cluster.pods.get(&pod).await.unwrap();
    assert!(object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty());
    cluster.reap(&pod).await;
    assert_eq!(cluster.pods_of("j").await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn orphaning_deletion_leaves_the_pod_running_on_its_own() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({})).await;
    let pod = cluster.run("j").await;
    cluster.delete("j", PropagationPolicy::Orphan).await;
    assert!(cluster.jobs.get_opt("j").await.unwrap().is_none());
    let object = cluster.pods.get(&pod).await.unwrap();
    assert!(object.metadata.deletion_timestamp.is_none());
    assert!(object.finalizers().is_empty() && object.owner_references().is_empty());
    assert_eq!(phase(&object), "Running");
}

#[tokio::test(start_paused = true)]
async fn pod_that_ends_after_its_held_job_was_deleted_is_not_counted() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({})).await;
    cluster
        .patch_job("j", json!({"metadata": {"finalizers": ["example.com/keep"]}}))
        .await;
    let pod = cluster.run("j").await;
    cluster.delete("j", PropagationPolicy::Background).await;
    let object = cluster.pods.get(&pod).await.unwrap();
    assert!(object.metadata.deletion_timestamp.is_none() && object.finalizers().is_empty());
    cluster.end(&pod, 0).await;
    assert_eq!(cluster.conditions("j").await, Vec::<String>::new());
    assert_eq!(cluster.status("j").await["succeeded"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn finished_job_is_deleted_when_its_time_is_over() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({"ttlSecondsAfterFinished": 30})).await;
    let pod = cluster.run("j").await;
    cluster.pass(100).await;
    assert!(cluster.jobs.get_opt("j").await.unwrap().is_some());
    cluster.end(&pod, 0).await;
    cluster.pass(29).await;
    assert!(cluster.jobs.get_opt("j").await.unwrap().is_some());
    cluster.pass(1).await;
    assert!(cluster.jobs.get_opt("j").await.unwrap().is_none());
    assert_eq!(cluster.pods_of("j").await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn time_that_is_set_or_moved_later_counts_from_the_end_of_the_job() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({})).await;
    cluster
        .patch_job("j", json!({"metadata": {"finalizers": ["example.com/keep"]}}))
        .await;
    let pod = cluster.run("j").await;
    cluster.end(&pod, 1).await;
    cluster.patch_job("j", json!({"spec": {"backoffLimit": 0}})).await;
    assert!(
        cluster
            .conditions("j")
            .await
            .contains(&"Failed=True BackoffLimitExceeded".to_owned())
    );
    cluster.pass(50).await;
    cluster
        .patch_job("j", json!({"spec": {"ttlSecondsAfterFinished": 60}}))
        .await;
    cluster
        .patch_job("j", json!({"spec": {"ttlSecondsAfterFinished": 90}}))
        .await;
    cluster.pass(30).await;
    assert!(!deleting(&cluster).await);
    cluster
        .patch_job("j", json!({"spec": {"ttlSecondsAfterFinished": 20}}))
        .await;
    // Overdue: it goes at once, and its pod with it, but whoever holds it can still read how it ended.
    assert!(deleting(&cluster).await);
    assert_eq!(cluster.pods_of("j").await.len(), 0);
    assert_eq!(cluster.conditions("j").await.len(), 2);
}

async fn deleting(cluster: &Cluster) -> bool {
    let job = cluster.jobs.get("j").await.unwrap();
    job.metadata.deletion_timestamp.is_some()
}

/// Why a pod waits, if its status says that it does.
fn refusal(pod: &Pod) -> Option<(String, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|one| one.type_ == "PodScheduled")?;
    (scheduled.status == "False").then(|| {
        (
            scheduled.reason.clone().unwrap_or_default(),
            scheduled.message.clone().unwrap_or_default(),
        )
    })
}

fn refused(what: &str, preemption: &str) -> Option<(String, String)> {
    let message = format!(
        "0/1 nodes are available: 1 {what}. no new claims to deallocate, preemption: 0/1 nodes are available: 1 \
         {preemption}."
    );
    Some(("Unschedulable".to_owned(), message))
}

#[tokio::test(start_paused = true)]
async fn pods_beyond_the_capacity_wait_their_turn() {
    let cluster = Cluster::with(NodeConfig {
        pods: 1,
        ..NodeConfig::default()
    })
    .await;
    for job in ["c", "b", "a"] {
        cluster.create(job, json!({})).await;
    }
    let waits = refused("Too many pods", "No preemption victims found for incoming pod");
    // In the order of their creation, whatever their names.
    let order = ["c", "b", "a"];
    for (index, job) in order.iter().enumerate() {
        for later in &order[index + 1..] {
            let pod = cluster.pods_of(later).await.remove(0);
            assert_eq!(pod.spec.as_ref().unwrap().node_name, None);
            assert_eq!(phase(&pod), "Pending");
            assert_eq!(refusal(&pod), waits, "{later}");
        }
        let pod = cluster.pods_of(job).await.remove(0);
        assert_eq!(
            pod.spec.as_ref().unwrap().node_name.as_deref(),
            Some("kubelite"),
            "{job}"
        );
        assert_eq!(refusal(&pod), None);
        cluster.run(job).await;
        cluster.end(&pod.name_any(), 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn terminating_pod_holds_its_place_until_it_has_ended() {
    let cluster = Cluster::with(NodeConfig {
        pods: 1,
        ..NodeConfig::default()
    })
    .await;
    cluster.create("one", json!({})).await;
    let pod = cluster.run("one").await;
    cluster.create("two", json!({})).await;
    cluster.delete("one", PropagationPolicy::Foreground).await;
    cluster.pass(5).await;
    let node = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.clone();
    assert_eq!(node(&cluster.pods_of("two").await[0]), None);
    cluster.reap(&pod).await;
    assert_eq!(
        node(&cluster.pods_of("two").await[0]).as_deref(),
        Some("kubelite")
    );
}

#[tokio::test(start_paused = true)]
async fn node_selector_and_cordon_keep_a_pod_waiting_until_the_node_changes() {
    let cluster = Cluster::start().await;
    let nodes: Api<NodeObject> = Api::all(cluster.client.clone());
    let patch = async |patch: Value| {
        let patch = Patch::Merge(patch);
        nodes
            .patch("kubelite", &PatchParams::default(), &patch)
            .await
            .unwrap();
        cluster.settle().await;
    };
    let wish = |selector: Value| json!({"template": {"spec": {"nodeSelector": selector}}});
    cluster
        .create("here", wish(json!({"kubernetes.io/hostname": "kubelite"})))
        .await;
    assert_eq!(refusal(&cluster.pods_of("here").await[0]), None);
    cluster.create("ssd", wish(json!({"disk": "ssd"}))).await;
    let unhelpful = "Preemption is not helpful for scheduling";
    let mismatch = refused("node(s) didn't match Pod's node affinity/selector", unhelpful);
    assert_eq!(refusal(&cluster.pods_of("ssd").await[0]), mismatch);
    patch(json!({"spec": {"unschedulable": true}})).await;
    let cordoned = refused("node(s) were unschedulable", unhelpful);
    assert_eq!(refusal(&cluster.pods_of("ssd").await[0]), cordoned);
    patch(json!({"metadata": {"labels": {"disk": "ssd"}}, "spec": {"unschedulable": null}})).await;
    let pod = cluster.pods_of("ssd").await.remove(0);
    assert_eq!(refusal(&pod), None);
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("kubelite"));
}

#[tokio::test(start_paused = true)]
async fn node_is_registered_and_its_lease_renewed() {
    let cluster = Cluster::start().await;
    let nodes: Api<NodeObject> = Api::all(cluster.client.clone());
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    let node = nodes.get("kubelite").await.unwrap();
    assert_eq!(node.labels()["kubernetes.io/hostname"], "kubelite");
    assert_eq!(node.labels()["kubernetes.io/os"], std::env::consts::OS);
    let status = node.status.clone().unwrap();
    assert_eq!(status.allocatable.unwrap()["pods"].0, "110");
    let ready = &status.conditions.unwrap()[0];
    assert_eq!((ready.type_.as_str(), ready.status.as_str()), ("Ready", "True"));

    let renewed = async || {
        let spec = leases.get("kubelite").await.unwrap().spec.unwrap();
        assert_eq!(spec.lease_duration_seconds, Some(40));
        spec.renew_time.unwrap().0
    };
    let first = renewed().await;
    cluster.pass(9).await;
    assert_eq!(renewed().await, first);
    cluster.pass(1).await;
    assert_eq!(renewed().await - first, jiff::Span::new().seconds(10));

    let uid = node.uid();
    nodes.delete("kubelite", &DeleteParams::default()).await.unwrap();
    cluster.settle().await;
    let again = nodes.get("kubelite").await.unwrap();
    assert_ne!(again.uid(), uid);
    let lease = leases.get("kubelite").await.unwrap();
    assert_eq!(lease.owner_references()[0].uid, again.uid().unwrap());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_changes() {
    let cluster = Cluster::with(NodeConfig {
        pods: 1,
        ..NodeConfig::default()
    })
    .await;
    cluster
        .create("running", json!({"activeDeadlineSeconds": 10_000}))
        .await;
    cluster.run("running").await;
    cluster.create("waiting", json!({})).await;
    let version = async || {
        let list = cluster.pods.list(&ListParams::default()).await.unwrap();
        list.metadata.resource_version.unwrap().parse::<u64>().unwrap()
    };
    let before = version().await;
    cluster.pass(100).await;
    // Ten renewals of the Lease, and no write beside them.
    assert_eq!(version().await - before, 10);
}

#[tokio::test(start_paused = true)]
async fn job_goes_on_when_the_controllers_start_again() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({"ttlSecondsAfterFinished": 60})).await;
    let pod = cluster.run("j").await;
    let Cluster {
        server,
        node,
        jobs,
        pods,
        client,
        clock,
    } = cluster;
    node.stop().await;
    let patch = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status(&pod, &PatchParams::default(), &patch)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let node = Node::start(&server, &NodeConfig::default()).await.unwrap();
    let cluster = Cluster {
        server,
        node,
        jobs,
        pods,
        client,
        clock,
    };
    cluster.settle().await;
    assert_eq!(cluster.pods_of("j").await.len(), 1);
    assert_eq!(cluster.conditions("j").await.len(), 2);
    cluster.pass(60).await;
    assert!(cluster.jobs.get_opt("j").await.unwrap().is_none());
    cluster.node.stop().await;
    cluster.server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn controller_can_lag_as_the_one_in_kubernetes_does() {
    let cluster = Cluster::with(NodeConfig {
        job_sync_delay: Duration::from_secs(1),
        ..NodeConfig::default()
    })
    .await;
    cluster.create("j", json!({})).await;
    let pod = cluster.run("j").await;
    cluster.pass(5).await;
    cluster.end(&pod, 0).await;
    assert_eq!(cluster.conditions("j").await, Vec::<String>::new());
    cluster.pass(2).await;
    assert_eq!(cluster.conditions("j").await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn same_steps_lead_to_the_same_objects() {
    async fn history() -> Vec<Value> {
        let cluster = Cluster::with(NodeConfig {
            pods: 2,
            ..NodeConfig::default()
        })
        .await;
        for job in ["a", "b", "c"] {
            cluster.create(job, json!({"backoffLimit": 1})).await;
        }
        for job in ["a", "b", "c"] {
            let pod = cluster.run(job).await;
            cluster.end(&pod, i32::from(job == "b")).await;
        }
        cluster.pass(15).await;
        let jobs = cluster.jobs.list(&ListParams::default()).await.unwrap();
        let pods = cluster.pods.list(&ListParams::default()).await.unwrap();
        let jobs = jobs
            .items
            .into_iter()
            .map(|job| serde_json::to_value(job).unwrap());
        let pods = pods
            .items
            .into_iter()
            .map(|pod| serde_json::to_value(pod).unwrap());
        jobs.chain(pods).collect()
    }
    assert_eq!(history().await, history().await);
}
