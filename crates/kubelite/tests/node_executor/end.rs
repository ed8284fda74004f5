//! How pods are ended.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::cluster::{Cluster, ended, eventually, phase, processes_with, shell};

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_is_asked_to_end_and_its_last_status_is_kept() {
    let cluster = Cluster::new().await;
    let script = "trap 'echo asked; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut pod = super::cluster::pod(
        "p",
        json!({"containers": [shell("main", script)], "terminationGracePeriodSeconds": 600}),
    );
    // Somebody who keeps the pod sees how it ended.
    pod["metadata"]["finalizers"] = json!(["example.com/keep"]);
    let created: Pod = cluster.create(pod).await;
    wait_for_log(&cluster, "p", "ready").await;
    cluster.delete("p", None).await;
    let pod = cluster.over("p").await;
    assert_eq!((phase(&pod), ended(&pod, "main").exit_code), ("Failed", 5));
    let pods: Api<Pod> = cluster.pods();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("p", &PatchParams::default(), &patch).await.unwrap();
    cluster.gone(&created).await;
    eventually("the pod's directory is removed", || {
        !cluster.pod_dir(&created).exists()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_told_although_its_sandbox_hangs_and_that_goes_with_the_pod() {
    let cluster = Cluster::new().await;
    let mut container = shell("main", "until test -e /w/go; do sleep 0.01; done");
    container["volumeMounts"] = json!([{"name": "w", "mountPath": "/w"}]);
    let spec = json!({"containers": [container], "volumes": [{"name": "w", "emptyDir": {}}]});
    let created = cluster.pod("p", spec).await;
    cluster.running("p").await;
    let uid = created.metadata.uid.clone().unwrap();
    let pid = std::fs::read_to_string(cluster.pod_dir(&created).join("containers/main/0/pid.json")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    std::fs::write(cluster.pod_dir(&created).join("volumes/w/go"), "").unwrap();

    let pod = cluster.over("p").await;
    assert_eq!(phase(&pod), "Succeeded");
    assert!(
        processes_with(&uid) > 0,
        "whoever takes the sandbox down is stopped"
    );
    cluster.delete("p", None).await;
    eventually("nothing of it is left", || processes_with(&uid) == 0).await;
    eventually("nor of its files", || !cluster.pod_dir(&created).exists()).await;
}

/// Follows the log until a line appears.
pub(crate) async fn wait_for_log(cluster: &Cluster, name: &str, line: &str) {
    use futures::{AsyncBufReadExt, TryStreamExt};

    cluster.running(name).await;
    let params = kube::api::LogParams {
        follow: true,
        ..kube::api::LogParams::default()
    };
    let mut lines = cluster.pods().log_stream(name, &params).await.unwrap().lines();
    let found = async {
        while let Some(found) = lines.try_next().await.unwrap() {
            if found == line {
                return;
            }
        }
        panic!("{line:?} was not written");
    };
    tokio::time::timeout(super::cluster::PATIENCE, found)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_ignores_the_request_is_killed_after_its_grace() {
    for cluster in [Cluster::new().await, Cluster::unsandboxed().await] {
        let word = cluster
            .dir
            .path()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let script = format!(
            "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo ready; while :; do sleep 1; done; : {word}-deep' & \
             while :; do sleep 1; done"
        );
        let created = cluster.script("p", &script).await;
        wait_for_log(&cluster, "p", "ready").await;
        assert!(processes_with(&format!("{word}-deep")) > 0);
        cluster.delete("p", Some(1)).await;
        cluster.gone(&created).await;
        assert_eq!(processes_with(&format!("{word}-deep")), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_killed_at_once_if_asked() {
    let cluster = Cluster::new().await;
    let word = cluster
        .dir
        .path()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let created = cluster
        .script(
            "p",
            &format!("trap '' TERM; echo ready; while :; do sleep 1; done; : {word}-x"),
        )
        .await;
    wait_for_log(&cluster, "p", "ready").await;
    cluster.delete("p", Some(0)).await;
    cluster.gone(&created).await;
    eventually("the process is dead", || {
        processes_with(&format!("{word}-x")) == 0
    })
    .await;
    eventually("its directory is removed", || !cluster.pod_dir(&created).exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_runs_too_long_fails_with_its_deadline() {
    let cluster = Cluster::new().await;
    let spec = json!({
        "containers": [shell("main", "sleep 1000")], "activeDeadlineSeconds": 1, "restartPolicy": "Always"
    });
    cluster.pod("p", spec).await;
    let pod = cluster.over("p").await;
    let status = pod.status.as_ref().unwrap();
    assert_eq!(
        (phase(&pod), status.reason.as_deref()),
        ("Failed", Some("DeadlineExceeded"))
    );
    assert_eq!(ended(&pod, "main").exit_code, 143);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_ends_its_pods() {
    let cluster = Cluster::new().await;
    cluster
        .script(
            "p",
            "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done",
        )
        .await;
    cluster
        .script("q", "trap '' TERM; echo ready; while :; do sleep 1; done")
        .await;
    // A container runs before its shell has set the trap.
    wait_for_log(&cluster, "p", "ready").await;
    wait_for_log(&cluster, "q", "ready").await;
    let drain = cluster.executor().drain();
    let kill = async {
        cluster.over("p").await;
        cluster.executor().kill().await;
    };
    tokio::time::timeout(super::cluster::PATIENCE, futures::future::join(drain, kill))
        .await
        .unwrap();
    for (name, code) in [("p", 0), ("q", 137)] {
        let pod = cluster.over(name).await;
        let status = pod.status.as_ref().unwrap();
        assert_eq!(
            (phase(&pod), status.reason.as_deref()),
            ("Failed", Some("Terminated")),
            "{name}"
        );
        assert_eq!(ended(&pod, "main").exit_code, code, "{name}");
    }
}

/// Whoever stops a node drains it first, and then ends its executor.
#[tokio::test]
async fn a_node_is_drained_only_when_the_api_shows_how_its_pods_ended() {
    let mut cluster = Cluster::slow().await;
    cluster
        .script(
            "p",
            "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done",
        )
        .await;
    wait_for_log(&cluster, "p", "ready").await;
    tokio::time::timeout(super::cluster::PATIENCE, cluster.executor().drain())
        .await
        .unwrap();
    cluster.stop().await;
    let pod = cluster.pods().get("p").await.unwrap();
    assert_eq!(phase(&pod), "Failed", "{:#}", json!(pod.status));
    assert_eq!(ended(&pod, "main").exit_code, 0);
}
