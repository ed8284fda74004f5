//! Runs that are gone from the cluster, and what the history has of them.

use insta::assert_snapshot;
use jangar_api::Kind;
use jangar_store::{Config, NewLogTail, RunRecord, Store};
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    logs::{pod, running_pod},
    plane::Having,
    support::{Cluster, agent_run, begun, condition, orchestration_run},
};

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

/// A control plane with a history, and the history.
async fn remembering(namespace: &'static str) -> (TempDir, Store, Cluster) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/history.db", directory.path().display());
    let store = Store::open(Config::new(&url, |_| None).unwrap());
    let having = Having {
        history: Some(store.clone()),
        ..Having::default()
    };
    (directory, store, Cluster::behind(namespace, having).await)
}

/// A run that is gone, as the controllers wrote it down.
async fn remember(store: &Store, cluster: &Cluster, mut run: Value) {
    let name = run["metadata"]["name"].as_str().unwrap().to_owned();
    run["metadata"]["namespace"] = json!(cluster.namespace);
    run["metadata"]["uid"] = json!(format!("uid-{name}"));
    run["metadata"]["resourceVersion"] = json!("7");
    run["metadata"]["creationTimestamp"] = json!("2026-03-01T12:00:00Z");
    let record = RunRecord::of(&run, "default").unwrap();
    store.record(&record, at("2026-03-01T12:04:00Z")).await.unwrap();
}

/// The end of a log of a run.
struct Kept<'a> {
    uid: &'a str,
    step: &'a str,
    attempt: i64,
    pod: &'a str,
    text: &'a str,
    cut: bool,
}

async fn keep(store: &Store, kept: Kept<'_>) {
    let tail = NewLogTail {
        run_uid: kept.uid.to_owned(),
        step: kept.step.to_owned(),
        attempt: kept.attempt,
        pod: kept.pod.to_owned(),
        container: "agent-runner".to_owned(),
        text: kept.text.to_owned(),
        cut: kept.cut,
        total_bytes: None,
        taken_at: at(&format!("2026-03-01T12:0{}:00Z", kept.attempt)),
        expires_at: at("2026-04-01T00:00:00Z"),
    };
    store.record_log(&tail).await.unwrap();
}

/// A run that failed.
fn failed(name: &str) -> Value {
    agent_run(
        name,
        json!({"phase": "Failed", "startedAt": "2026-03-01T12:01:00Z", "finishedAt": "2026-03-01T12:02:00Z",
            "conditions": [condition("Failed", "True", "JobFailed", "the agent ended with code 7")]}),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_gone_is_listed_found_and_explained() {
    let (_directory, store, cluster) = remembering("sg0050").await;
    remember(&store, &cluster, failed("lost")).await;
    remember(&store, &cluster, agent_run("won", json!({"phase": "Succeeded"}))).await;
    remember(&store, &cluster, orchestration_run()).await;
    let commands: &[&[&str]] = &[
        &["list", "runs"],
        &["list", "runs", "--archived"],
        &["list", "--archived", "--phase", "Failed", "-o", "name"],
        &["list", "--archived", "--search", "code 7", "-o", "name"],
        &["list", "--archived", "--limit", "1", "-o", "name"],
        &["list", "--archived", "--search", "nothing like it"],
        &["list", "agents", "--archived"],
        &["list", "--search", "x"],
        &["list", "--archived", "-l", "team=web"],
        &["get", "run", "lost"],
        &["wait", "run", "lost"],
        &["explain", "lost"],
        &["explain", "release-1"],
        &["graph", "release-1", "-w"],
    ];
    assert_snapshot!(cluster.session(commands).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_logs_are_shown_as_they_were_written() {
    let (_directory, store, cluster) = remembering("sg0051").await;
    remember(&store, &cluster, failed("lost")).await;
    let lines =
        "2026-03-01T12:00:00Z INFO one\n2026-03-01T12:00:00Z INFO two\n2026-03-01T11:59:59Z INFO three\n";
    for (step, attempt, pod, text, cut) in [
        ("plan", 1, "lost-plan-1", lines, false),
        ("implement", 2, "lost-implement-1", "first try\n", false),
        (
            "implement",
            3,
            "lost-implement-2",
            "the end\nof a long log\n",
            true,
        ),
    ] {
        let uid = "uid-lost";
        keep(
            &store,
            Kept {
                uid,
                step,
                attempt,
                pod,
                text,
                cut,
            },
        )
        .await;
    }
    let commands: &[&[&str]] = &[
        &["logs", "lost"],
        &["logs", "lost", "--step", "plan"],
        &["logs", "-f", "run", "lost", "--tail", "1", "--timestamps"],
        &["logs", "lost", "-c", "other"],
    ];
    assert_snapshot!(cluster.session(commands).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_gone_come_before_those_that_are_there() {
    let (_directory, store, cluster) = remembering("sg0052").await;
    cluster
        .have(agent_run("one", json!({"phase": "Succeeded"})))
        .await;
    let run = cluster.get(Kind::AgentRun, "one").await;
    let uid = run["metadata"]["uid"].as_str().unwrap();
    for (attempt, pod, text) in [(1, "one-a", "from the first pod\n"), (2, "one-b", "seen twice\n")] {
        let (step, cut) = ("", false);
        keep(
            &store,
            Kept {
                uid,
                step,
                attempt,
                pod,
                text,
                cut,
            },
        )
        .await;
    }
    cluster.have(pod("one-b", "one", true)).await;
    assert_snapshot!(cluster.session(&[&["logs", "one"], &["logs", "-f", "one"]]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn following_goes_on_from_the_history_when_the_pod_is_gone() {
    let (_directory, store, cluster) = remembering("sg0053").await;
    cluster.have(agent_run("one", json!({"phase": "Running"}))).await;
    let run = cluster.get(Kind::AgentRun, "one").await;
    let uid = run["metadata"]["uid"].as_str().unwrap();
    let running = running_pod("one-a", "one");
    cluster.have(running.clone()).await;
    cluster.caught_up().await;
    let mut child = begun(cluster.command(&["logs", "-f", "one"]), "").await;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for number in 1..=3 {
        let line = lines.next_line().await.unwrap().unwrap();
        assert_eq!(line, format!("line {number} of one-a in agent-runner"));
    }
    let kept: Vec<String> = (1..=5)
        .map(|number| format!("line {number} of one-a in agent-runner\n"))
        .collect();
    let text = kept.concat();
    let (step, attempt, pod, cut) = ("", 1, "one-a", false);
    let text = &text;
    keep(
        &store,
        Kept {
            uid,
            step,
            attempt,
            pod,
            text,
            cut,
        },
    )
    .await;
    cluster.lose(&running).await;
    for number in 4..=5 {
        let line = lines.next_line().await.unwrap().unwrap();
        assert_eq!(line, format!("line {number} of one-a in agent-runner"));
    }
    cluster
        .status(&agent_run("one", json!({"phase": "Succeeded"})))
        .await;
    assert_eq!(lines.next_line().await.unwrap(), None);
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_the_history_has_not_the_whole_of_is_not_done_again() {
    let (_directory, store, cluster) = remembering("sg0054").await;
    let mut run = failed("lost");
    run["spec"]["parameters"]["api_token"] = json!("hunter2");
    remember(&store, &cluster, run).await;
    let mut long = failed("long");
    long["spec"]["implementation"] = json!({"inline": {"text": "do ".repeat(200_000)}});
    remember(&store, &cluster, long).await;
    remember(&store, &cluster, failed("plain")).await;
    let commands: &[&[&str]] = &[
        &["retry", "lost"],
        &["resubmit", "lost"],
        &["retry", "lost", "--param", "api_token=new"],
        &["retry", "long"],
        &["retry", "plain"],
    ];
    assert_snapshot!(cluster.session(commands).await);
    let again = cluster.get(Kind::AgentRun, "lost-retry-1").await;
    assert_eq!(again["spec"]["parameters"]["api_token"], "new");
}
