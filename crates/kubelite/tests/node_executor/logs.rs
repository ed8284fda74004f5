//! What containers wrote.

use kube::api::LogParams;
use serde_json::json;

use super::cluster::{Cluster, shell};

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_shown_as_asked() {
    let cluster = Cluster::new().await;
    cluster.output("p", "echo one; echo two >&2; echo three").await;
    let show = async |params: LogParams| cluster.pods().logs("p", &params).await.unwrap();
    let mut all: Vec<_> = show(LogParams::default())
        .await
        .lines()
        .map(str::to_owned)
        .collect();
    all.sort();
    assert_eq!(all, ["one", "three", "two"]);
    let tail = show(LogParams {
        tail_lines: Some(1),
        ..LogParams::default()
    })
    .await;
    assert_eq!(tail.lines().count(), 1);
    let limited = show(LogParams {
        limit_bytes: Some(2),
        ..LogParams::default()
    })
    .await;
    assert_eq!(limited.len(), 2);
    let stamped = show(LogParams {
        timestamps: true,
        ..LogParams::default()
    })
    .await;
    assert!(
        stamped
            .lines()
            .all(|line| line.split(' ').next().unwrap().ends_with('Z')),
        "{stamped}"
    );
    let error = cluster
        .pods()
        .logs(
            "p",
            &LogParams {
                previous: true,
                ..LogParams::default()
            },
        )
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("previous terminated container"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_before_the_restart_is_kept() {
    let cluster = Cluster::new().await;
    let mut container = shell(
        "main",
        "echo try >> /w/n; echo this is $(wc -l < /w/n); test $(wc -l < /w/n) -ge 2",
    );
    container["volumeMounts"] = json!([{"name": "w", "mountPath": "/w"}]);
    let spec = json!({
        "restartPolicy": "OnFailure", "containers": [container], "volumes": [{"name": "w", "emptyDir": {}}]
    });
    cluster.pod("p", spec).await;
    cluster.over("p").await;
    assert_eq!(cluster.log("p").await, "this is 2\n");
    let previous = LogParams {
        previous: true,
        ..LogParams::default()
    };
    assert_eq!(cluster.pods().logs("p", &previous).await.unwrap(), "this is 1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_log_ends_with_its_container() {
    use futures::{AsyncBufReadExt, TryStreamExt};

    let cluster = Cluster::new().await;
    let mut container = shell(
        "main",
        "echo first; until test -e /w/go; do sleep 0.01; done; echo second",
    );
    container["volumeMounts"] = json!([{"name": "w", "mountPath": "/w"}]);
    let created = cluster
        .pod(
            "p",
            json!({"containers": [container], "volumes": [{"name": "w", "emptyDir": {}}]}),
        )
        .await;
    cluster.running("p").await;
    let params = LogParams {
        follow: true,
        ..LogParams::default()
    };
    let mut lines = cluster.pods().log_stream("p", &params).await.unwrap().lines();
    assert_eq!(lines.try_next().await.unwrap().as_deref(), Some("first"));
    std::fs::write(cluster.pod_dir(&created).join("volumes/w/go"), "").unwrap();
    let rest = tokio::time::timeout(super::cluster::PATIENCE, lines.try_collect::<Vec<_>>()).await;
    assert_eq!(rest.unwrap().unwrap(), ["second"]);
    cluster.over("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_bounded_and_says_so() {
    let cluster = Cluster::with(|config| config.log_bytes_max = 20_000).await;
    let log = cluster
        .output(
            "p",
            "i=0; while test $i -lt 3000; do echo line $i; i=$((i+1)); done",
        )
        .await;
    assert!(log.ends_with("line 2999\n"));
    assert!(
        log.len() < 20_000 && log.contains("earlier output was dropped"),
        "{}",
        log.len()
    );
}
