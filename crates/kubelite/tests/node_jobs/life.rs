//! From the start of a Job to its end.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{ResourceExt, api::DeleteParams};
use serde_json::{Value, json};

use crate::support::Cluster;

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
    assert_eq!(
        cluster.status("ok").await,
        running(0),
        "that it is ready can wait"
    );
    cluster.pass(2).await;
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
    let managers = |managed: &Option<Vec<ManagedFieldsEntry>>| -> Vec<String> {
        let name = |entry: &ManagedFieldsEntry| {
            let subresource = entry.subresource.clone().unwrap_or_default();
            format!("{} {subresource}", entry.manager.clone().unwrap_or_default())
        };
        managed.iter().flatten().map(name).collect()
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
