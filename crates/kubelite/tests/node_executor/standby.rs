//! Pods in line whose first container is ready to begin.

use std::fs;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use kubelite::node::executor::{Config, SandboxPolicy};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::cluster::{Cluster, eventually, phase, processes_with, shell};

fn one_at_a_time(config: &mut Config) {
    (config.pods_max, config.ahead) = (1, 1);
}

/// A node whose one place is taken by the pod `first`.
async fn busy(change: impl FnOnce(&mut Config)) -> Cluster {
    let cluster = Cluster::with(change).await;
    cluster.script("first", "sleep 1000").await;
    cluster.running("first").await;
    cluster
}

/// Creates the pod `second`, and waits until it stands by.
async fn second(cluster: &Cluster, spec: Value) -> Pod {
    let pod = cluster.pod("second", spec).await;
    stands_by(cluster, &pod).await;
    pod
}

async fn stands_by(cluster: &Cluster, pod: &Pod) {
    let attempt = cluster.pod_dir(pod).join("containers/main/0");
    eventually("it stands by", || {
        attempt.join("gate").exists() && attempt.join("pid.json").exists()
    })
    .await;
    assert!(!attempt.join("started.json").exists(), "it has not begun");
}

/// How many processes hold a container of the pod.
fn holders(pod: &Pod) -> usize {
    processes_with(pod.metadata.uid.as_ref().unwrap())
}

async fn free(cluster: &Cluster) {
    cluster.delete("first", Some(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_in_line_begins_out_of_what_was_made_for_it() {
    let unsandboxed = |config: &mut Config| {
        one_at_a_time(config);
        config.sandbox = SandboxPolicy::Off;
    };
    for cluster in [busy(one_at_a_time).await, busy(unsandboxed).await] {
        let second = second(&cluster, json!({"containers": [shell("main", "echo $0 ran")]})).await;
        let attempt = cluster.pod_dir(&second).join("containers/main/0");
        let held_by = fs::read_to_string(attempt.join("pid.json")).unwrap();
        free(&cluster).await;
        let ended = cluster.over("second").await;
        assert_eq!(phase(&ended), "Succeeded", "{:#}", json!(ended.status));
        assert_eq!(cluster.log("second").await, "/bin/sh ran\n");
        assert_eq!(
            fs::read_to_string(attempt.join("pid.json")).unwrap(),
            held_by,
            "nobody else was started for it"
        );
        assert!(!attempt.join("gate").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_while_a_pod_stands_by_is_what_it_sees() {
    let cluster = busy(one_at_a_time).await;
    let map = |value: &str| json!({"metadata": {"name": "settings"}, "data": {"word": value}});
    let _: ConfigMap = cluster.create(map("old")).await;
    let mut main = shell("main", r#"cat /etc/settings/word; echo " $WORD $LABEL""#);
    let key = json!({"configMapKeyRef": {"name": "settings", "key": "word"}});
    let label = json!({"fieldRef": {"fieldPath": "metadata.labels['label']"}});
    main["env"] = json!([{"name": "WORD", "valueFrom": key}, {"name": "LABEL", "valueFrom": label}]);
    main["volumeMounts"] = json!([{"name": "settings", "mountPath": "/etc/settings"}]);
    let volume = json!({"name": "settings", "configMap": {"name": "settings"}});
    let second = second(&cluster, json!({"containers": [main], "volumes": [volume]})).await;
    let attempt = cluster.pod_dir(&second).join("containers/main/0");
    let made = || fs::read_to_string(attempt.join("run.json")).unwrap_or_default();
    eventually("it is made of the first", || made().contains("old")).await;

    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let merge = PatchParams::default();
    maps.patch("settings", &merge, &Patch::Merge(map("new")))
        .await
        .unwrap();
    eventually("it is made anew", || made().contains("new")).await;
    let label = json!({"metadata": {"labels": {"label": "red"}}});
    cluster
        .pods()
        .patch("second", &merge, &Patch::Merge(label))
        .await
        .unwrap();
    eventually("it is made anew", || made().contains("red")).await;
    stands_by(&cluster, &second).await;
    free(&cluster).await;
    assert_eq!(phase(&cluster.over("second").await), "Succeeded");
    assert_eq!(cluster.log("second").await, "new new red\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_pod_that_is_deleted_while_it_stands_by() {
    let cluster = busy(one_at_a_time).await;
    let second = second(&cluster, json!({"containers": [shell("main", "true")]})).await;
    assert!(holders(&second) > 0);
    cluster.delete("second", Some(0)).await;
    cluster.gone(&second).await;
    eventually("its files are removed", || !cluster.pod_dir(&second).exists()).await;
    assert_eq!(holders(&second), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_drains_the_node_waits_until_those_that_stand_by_have_gone() {
    let mut cluster = busy(one_at_a_time).await;
    let second = second(&cluster, json!({"containers": [shell("main", "true")]})).await;
    let holder = fs::read_to_string(cluster.pod_dir(&second).join("containers/main/0/pid.json")).unwrap();
    let holder = Pid::from_raw(holder.parse().unwrap()).unwrap();
    kill_process(holder, Signal::STOP).unwrap();
    let draining = async {
        cluster.executor().kill().await;
        assert_eq!(holders(&second), 0);
    };
    let watching = async {
        cluster.over("first").await;
        assert!(holders(&second) > 0, "it cannot go yet");
        kill_process(holder, Signal::CONT).unwrap();
    };
    tokio::join!(draining, watching);
    cluster.restart_with(one_at_a_time).await;
    assert_eq!(phase(&cluster.over("second").await), "Succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_run_at_once_as_there_are_places_although_others_stand_by() {
    let cluster = Cluster::with(|config| (config.pods_max, config.ahead) = (2, 10)).await;
    let names: Vec<String> = (0..12).map(|number| format!("p-{number}")).collect();
    for name in &names {
        cluster.script(name, "date +%s%N; sleep 0.05; date +%s%N").await;
    }
    let mut changes = Vec::new();
    for name in &names {
        assert_eq!(phase(&cluster.over(name).await), "Succeeded");
        let log = cluster.log(name).await;
        let times: Vec<u64> = log.lines().map(|time| time.parse().unwrap()).collect();
        let [begun, ended] = times[..] else {
            panic!("{name} wrote {log:?}");
        };
        changes.extend([(begun, 1), (ended, -1)]);
    }
    changes.sort_unstable();
    let mut alive = 0;
    let most = changes.iter().map(|(_, change)| {
        alive += change;
        alive
    });
    assert_eq!(most.max(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_surroundings_died_while_it_stood_by_runs_all_the_same() {
    let cluster = busy(one_at_a_time).await;
    let second = second(&cluster, json!({"containers": [shell("main", "echo ran")]})).await;
    let attempt = cluster.pod_dir(&second).join("containers/main/0");
    let holder = fs::read_to_string(attempt.join("pid.json")).unwrap();
    kill_process(Pid::from_raw(holder.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    eventually("they are gone", || holders(&second) == 0).await;
    free(&cluster).await;
    assert_eq!(phase(&cluster.over("second").await), "Succeeded");
    assert_eq!(cluster.log("second").await, "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_stood_by_when_the_executor_went_is_in_line_again() {
    let mut cluster = busy(one_at_a_time).await;
    let second = second(&cluster, json!({"containers": [shell("main", "echo ran")]})).await;
    cluster.restart_with(one_at_a_time).await;
    stands_by(&cluster, &second).await;
    let first = cluster.pods().get("first").await.unwrap();
    assert_eq!(phase(&first), "Running", "it has its place still");
    free(&cluster).await;
    assert_eq!(phase(&cluster.over("second").await), "Succeeded");
    assert_eq!(cluster.log("second").await, "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_executor_left_of_pods_that_have_not_begun_is_removed_at_the_next_start() {
    let mut cluster = busy(one_at_a_time).await;
    let second = second(&cluster, json!({"containers": [shell("main", "echo ran")]})).await;
    cluster.stop().await;
    let pods = cluster.dir.path().join("data/pods");
    eventually("those that stood by have gone with the executor", || {
        holders(&second) == 0
    })
    .await;
    assert!(cluster.pod_dir(&second).join("containers/main/0/gate").exists());
    fs::create_dir_all(pods.join("nobody/containers/main/0")).unwrap();
    fs::write(pods.join("stray"), "").unwrap();
    cluster.restart_with(one_at_a_time).await;
    assert!(!pods.join("nobody").exists());
    free(&cluster).await;
    assert_eq!(phase(&cluster.over("second").await), "Succeeded");
    let leavings = cluster.dir.path().join("data/leavings");
    eventually("nothing is left", || {
        fs::read_dir(&leavings).unwrap().next().is_none()
    })
    .await;
}
