//! How Jobs and their pods go: deleted by somebody, or after their time.

use kube::{ResourceExt, api::PropagationPolicy};
use serde_json::{Value, json};

use crate::support::{Cluster, phase};

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
