//! Which pods get the node, and what the others are told.

use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PropagationPolicy},
};
use kubelite::node::Config as NodeConfig;
use serde_json::{Value, json};

use crate::support::{Cluster, phase};

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

fn refused(what: &str, preemption: &str) -> (String, String) {
    let message = format!(
        "0/1 nodes are available: 1 {what}. no new claims to deallocate, preemption: 0/1 nodes are available: 1 \
         {preemption}."
    );
    ("Unschedulable".to_owned(), message)
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
            assert_eq!(refusal(&pod).as_ref(), Some(&waits), "{later}");
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
async fn a_crowd_is_told_little_by_little_why_it_waits() {
    let cluster = Cluster::with(NodeConfig {
        pods: 0,
        ..NodeConfig::default()
    })
    .await;
    let jobs: Vec<String> = (0..40).map(|number| format!("job-{number}")).collect();
    for job in &jobs {
        cluster.create(job, json!({})).await;
    }
    let told = async || {
        let mut told = 0;
        for job in &jobs {
            let pod = cluster.pods_of(job).await.remove(0);
            told += usize::from(refusal(&pod).is_some());
        }
        told
    };
    for expected in [16, 32, 40] {
        assert_eq!(told().await, expected);
        cluster.pass(1).await;
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
    assert_eq!(refusal(&cluster.pods_of("ssd").await[0]), Some(mismatch));
    patch(json!({"spec": {"unschedulable": true}})).await;
    let cordoned = refused("node(s) were unschedulable", unhelpful);
    assert_eq!(refusal(&cluster.pods_of("ssd").await[0]), Some(cordoned));
    patch(json!({"metadata": {"labels": {"disk": "ssd"}}, "spec": {"unschedulable": null}})).await;
    let pod = cluster.pods_of("ssd").await.remove(0);
    assert_eq!(refusal(&pod), None);
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("kubelite"));
}
