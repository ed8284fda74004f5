//! A node that has more pods than it runs at once.

use std::{collections::BTreeSet, fs, path::PathBuf};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};

use super::cluster::{Cluster, PATIENCE, phase, shell, waits_for};

/// Runs one pod at a time and has up to this many in line.
async fn one_at_a_time(ahead: usize) -> Cluster {
    Cluster::with(|config| (config.pods_max, config.ahead) = (1, ahead)).await
}

/// A claim that pods can mount at `/w`, and where it lies.
async fn shared(cluster: &Cluster) -> PathBuf {
    let claim = json!({"metadata": {"name": "w"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let claim: PersistentVolumeClaim = cluster.create(claim).await;
    cluster
        .dir
        .path()
        .join("data/claims")
        .join(claim.metadata.uid.unwrap())
}

fn with_shared(script: &str) -> Value {
    let mut main = shell("main", script);
    main["volumeMounts"] = json!([{"name": "w", "mountPath": "/w"}]);
    let volume = json!({"name": "w", "persistentVolumeClaim": {"claimName": "w"}});
    json!({"containers": [main], "volumes": [volume]})
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_run_at_once_as_there_are_places_and_nobody_sees_more() {
    let cluster = Cluster::with(|config| (config.pods_max, config.ahead) = (2, 10)).await;
    let shared = shared(&cluster).await;
    let changes = watcher(cluster.pods(), watcher::Config::default()).applied_objects();
    for number in 0..12 {
        let script = "echo begin >> /w/log; sleep 0.05; echo end >> /w/log";
        cluster.pod(&format!("p-{number}"), with_shared(script)).await;
    }
    let mut changes = changes.boxed();
    let (mut running, mut ended) = (BTreeSet::new(), BTreeSet::new());
    let watching = async {
        while ended.len() < 12 {
            let pod: Pod = changes.next().await.unwrap().unwrap();
            let name = pod.name_any();
            match phase(&pod) {
                "Running" => drop(running.insert(name)),
                "Succeeded" => {
                    running.remove(&name);
                    ended.insert(name);
                }
                phase => assert!(matches!(phase, "" | "Pending"), "{name} is {phase}"),
            }
            assert!(running.len() <= 2, "the API shows {running:?}");
        }
    };
    tokio::time::timeout(PATIENCE, watching)
        .await
        .expect("all pods have their turn");

    let log = fs::read_to_string(shared.join("log")).unwrap();
    let mut most = 0;
    let alive = log.lines().fold(0, |alive, line| {
        let alive = if line == "begin" { alive + 1 } else { alive - 1 };
        most = most.max(alive);
        alive
    });
    assert_eq!((alive, most, log.lines().count()), (0, 2, 24));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_in_line_says_what_it_waits_for_and_one_too_many_is_rejected() {
    let cluster = one_at_a_time(1).await;
    let first = cluster.script("first", "sleep 1000").await;
    cluster.running("first").await;
    cluster.script("second", "true").await;
    let waits = cluster
        .until("second", |pod| {
            waits_for(pod, "main").is_some_and(|(_, words)| !words.is_empty())
        })
        .await;
    assert_eq!(
        waits_for(&waits, "main"),
        Some((
            "ContainerCreating",
            "waits for its turn: this node runs 1 at a time"
        ))
    );
    cluster.script("third", "true").await;
    let third = cluster.over("third").await;
    let reason = third.status.as_ref().and_then(|status| status.reason.as_deref());
    assert_eq!(reason, Some("OutOfpods"));

    cluster.delete("first", Some(0)).await;
    cluster.gone(&first).await;
    assert_eq!(phase(&cluster.over("second").await), "Succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_in_line_never_begins_and_the_next_has_its_turn() {
    let cluster = one_at_a_time(2).await;
    let shared = shared(&cluster).await;
    let wait = "until test -e /w/go; do sleep 0.01; done";
    cluster.pod("first", with_shared(wait)).await;
    cluster.running("first").await;
    let second = cluster.pod("second", with_shared("echo second >> /w/log")).await;
    cluster.pod("third", with_shared("echo third >> /w/log")).await;
    cluster.delete("second", Some(0)).await;
    cluster.gone(&second).await;
    fs::write(shared.join("go"), "").unwrap();
    assert_eq!(phase(&cluster.over("third").await), "Succeeded");
    assert_eq!(fs::read_to_string(shared.join("log")).unwrap(), "third\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_pods_that_run_keep_their_places() {
    let mut cluster = one_at_a_time(2).await;
    let shared = shared(&cluster).await;
    let wait = "echo begin >> /w/log; until test -e /w/go; do sleep 0.01; done; echo end >> /w/log";
    // Named so that it is listed after the one in line.
    cluster.pod("z-first", with_shared(wait)).await;
    cluster.running("z-first").await;
    cluster
        .pod("a-second", with_shared("echo second >> /w/log"))
        .await;
    cluster
        .restart_with(|config| (config.pods_max, config.ahead) = (1, 2))
        .await;
    fs::write(shared.join("go"), "").unwrap();
    assert_eq!(phase(&cluster.over("a-second").await), "Succeeded");
    assert_eq!(phase(&cluster.over("z-first").await), "Succeeded");
    assert_eq!(
        fs::read_to_string(shared.join("log")).unwrap(),
        "begin\nend\nsecond\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_drains_the_node_leaves_those_in_line_for_the_next() {
    let mut cluster = one_at_a_time(1).await;
    cluster.script("first", "sleep 1000").await;
    cluster.running("first").await;
    cluster.script("second", "true").await;
    tokio::time::timeout(PATIENCE, cluster.executor().kill())
        .await
        .expect("nobody waits for the second");
    assert_eq!(phase(&cluster.over("first").await), "Failed");
    let second = cluster.pods().get("second").await.unwrap();
    assert_eq!(phase(&second), "Pending", "{:#}", json!(second.status));

    cluster.restart().await;
    assert_eq!(phase(&cluster.over("second").await), "Succeeded");
}
