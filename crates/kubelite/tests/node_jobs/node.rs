//! The node itself, and the controllers as a whole.

use std::time::Duration;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node as NodeObject};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use kubelite::node::{Config as NodeConfig, Node};
use serde_json::{Value, json};

use crate::support::Cluster;

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
    assert_eq!(renewed().await.duration_since(first).as_secs(), 10);

    let uid = node.uid();
    nodes.delete("kubelite", &DeleteParams::default()).await.unwrap();
    cluster.settle().await;
    let again = nodes.get("kubelite").await.unwrap();
    assert_ne!(again.uid(), uid);
    let lease = leases.get("kubelite").await.unwrap();
    assert_eq!(lease.owner_references()[0].uid, again.uid().unwrap());
}

#[tokio::test(start_paused = true)]
async fn clock_that_is_set_delays_neither_the_lease_nor_a_deadline() {
    let cluster = Cluster::start().await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    cluster.create("j", json!({"activeDeadlineSeconds": 3600})).await;
    cluster.run("j").await;
    cluster.clock.turn(jiff::SignedDuration::from_hours(-5));
    cluster.pass(11).await;
    let renewed = leases
        .get("kubelite")
        .await
        .unwrap()
        .spec
        .unwrap()
        .renew_time
        .unwrap()
        .0;
    assert!(cluster.now().duration_since(renewed).as_secs() <= 10);
    cluster.clock.turn(jiff::SignedDuration::from_hours(6));
    cluster.pass(11).await;
    assert_eq!(
        cluster.conditions("j").await,
        ["FailureTarget=True DeadlineExceeded"]
    );
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
    // By then the running pod has been counted as ready.
    cluster.pass(2).await;
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
