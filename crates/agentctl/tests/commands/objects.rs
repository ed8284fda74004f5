//! Objects: list, get, describe, watch, apply, delete.

use insta::assert_snapshot;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::{Cluster, agent_run, begun, condition, references, runs};

async fn with_runs(namespace: &'static str) -> Cluster {
    let cluster = Cluster::start(namespace).await;
    for object in references().into_iter().chain(runs()) {
        cluster.have(object).await;
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_objects_in_every_form() {
    let cluster = with_runs("sp0028").await;
    let text = cluster
        .session(&[
            &["list"],
            &["list", "runs", "-o", "wide"],
            &["list", "runs", "--phase", "Pending", "-o", "name"],
            &["list", "runs", "-l", "team=none"],
            &["list", "runs", "-A", "--phase", "Hibernating"],
            &["list", "runs", "-o", "jsonpath={.items[*].metadata.name}"],
            &["get", "agents"],
            &["get", "agent", "coder", "-o", "yaml"],
            &["get", "run/done", "-o", "jsonpath={.status.phase}"],
            &["get", "run", "done", "-o", "json"],
            &["get", "tools"],
        ])
        .await;
    assert_snapshot!(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_are_listed_without_a_cluster() {
    let home = tempfile::tempdir().unwrap();
    let arguments = ["get", "kinds"];
    let text =
        crate::support::transcript(crate::support::bare(home.path(), &arguments), &arguments, "").await;
    assert_snapshot!(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_described_for_people() {
    let cluster = with_runs("sp0029").await;
    let text = cluster
        .session(&[
            &["describe", "run", "broken"],
            &["describe", "run", "done"],
            &["describe", "agent", "coder", "-o", "name"],
        ])
        .await;
    assert_snapshot!(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_changes_as_they_come() {
    let cluster = Cluster::start("sp0002").await;
    cluster.have(agent_run("one", serde_json::Value::Null)).await;
    let mut child = begun(
        cluster.command(&["watch", "runs", "-o", "jsonpath={.metadata.name} {.status.phase}"]),
        "",
    )
    .await;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "one ");
    let running = agent_run(
        "one",
        serde_json::json!({"phase": "Running", "conditions": [condition("Succeeded", "Unknown", "Running", "")]}),
    );
    cluster.status(&running).await;
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "one Running");
    cluster.have(agent_run("two", serde_json::Value::Null)).await;
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "two ");
    child.kill().await.unwrap();
}

const AGENT: &str = "\
apiVersion: agents.proompteng.ai/v1alpha1
kind: AgentProvider
metadata: {name: shell}
spec: {binary: /bin/sh}
---
apiVersion: agents.proompteng.ai/v1alpha1
kind: Agent
metadata: {name: tester}
spec: {providerRef: {name: shell}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: notes}
data: {a: b}
";

#[tokio::test(flavor = "multi_thread")]
async fn manifests_are_applied_by_server_side_apply() {
    let cluster = Cluster::start("sp0003").await;
    let file = cluster.file("agents.yaml", AGENT);
    let mut text = cluster
        .session(&[
            &["apply", "-f", &file, "--dry-run=server"],
            &["get", "agents"],
            &["apply", "-f", &file],
            &["apply", "-f", &file],
            &[
                "get",
                "agent",
                "tester",
                "-o",
                "jsonpath={.spec.providerRef.name}",
            ],
        ])
        .await;
    let changed = AGENT.replace("/bin/sh", "/bin/bash");
    text.push_str(&cluster.transcript_with(&["apply", "-f", "-"], &changed).await);
    let wrong = AGENT.replace("providerRef", "providerReff");
    text.push_str(&cluster.transcript_with(&["apply", "-f", "-"], &wrong).await);
    text.push_str(
        &cluster
            .transcript_with(&["apply", "-f", "-", "--dry-run=client"], &wrong)
            .await,
    );
    assert_snapshot!(text);
    let agent = cluster.get(jangar_api::Kind::Agent, "tester").await;
    assert_eq!(agent["metadata"]["managedFields"][0]["manager"], "agentctl");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_at_work_is_not_deleted_unasked() {
    let cluster = with_runs("sp0030").await;
    let text = cluster
        .session(&[
            &["delete", "impl", "fix", "--dry-run"],
            &["delete", "impl", "fix"],
            &["delete", "impl", "fix"],
            &["delete", "run", "busy"],
            &["delete", "run", "busy", "--yes"],
            &["delete", "run", "done"],
            &["list", "runs", "-o", "name"],
        ])
        .await;
    assert_snapshot!(text);
}
