//! Objects: list, get, describe, watch, apply, delete.

use insta::assert_snapshot;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    modes::in_both,
    support::{Cluster, agent_run, begun, condition, references, runs},
};

async fn have_runs(cluster: &Cluster) {
    for object in references().into_iter().chain(runs()) {
        cluster.have(object).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_objects_in_every_form() {
    let played = in_both(["sp0028", "sg0028"], async |cluster| {
        have_runs(cluster).await;
        let commands: &[&[&str]] = &[
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
        ];
        cluster.session(commands).await
    })
    .await;
    played.is_the_same();
    assert_snapshot!(played.kube);
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
    let played = in_both(["sp0029", "sg0029"], async |cluster| {
        have_runs(cluster).await;
        let commands: &[&[&str]] = &[
            &["describe", "run", "broken"],
            &["describe", "run", "done"],
            &["describe", "agent", "coder", "-o", "name"],
        ];
        cluster.session(commands).await
    })
    .await;
    played.is_the_same();
    assert_snapshot!(played.kube);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_changes_as_they_come() {
    for cluster in Cluster::both(["sp0002", "sg0002"]).await {
        cluster.have(agent_run("one", serde_json::Value::Null)).await;
        cluster.caught_up().await;
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
}

const OURS: &str = "\
apiVersion: agents.proompteng.ai/v1alpha1
kind: AgentProvider
metadata: {name: shell}
spec: {binary: /bin/sh}
---
apiVersion: agents.proompteng.ai/v1alpha1
kind: Agent
metadata: {name: tester}
spec: {providerRef: {name: shell}}
";
const OTHER: &str = "\
---
apiVersion: v1
kind: ConfigMap
metadata: {name: notes}
data: {a: b}
";

#[tokio::test(flavor = "multi_thread")]
async fn manifests_are_applied_by_server_side_apply() {
    let played = in_both(["sp0003", "sg0003"], async |cluster| {
        // What is none of our kinds is not for the control plane.
        let manifests = if cluster.is_behind_control_plane() {
            OURS.to_owned()
        } else {
            format!("{OURS}{OTHER}")
        };
        let file = cluster.file("agents.yaml", &manifests);
        let commands: &[&[&str]] = &[
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
        ];
        let mut text = cluster.session(commands).await;
        let piped: &[&str] = &["apply", "-f", "-"];
        let changed = manifests.replace("/bin/sh", "/bin/bash");
        text.push_str(&cluster.transcript_with(piped, &changed).await);
        let wrong = manifests.replace("providerRef", "providerReff");
        text.push_str(&cluster.transcript_with(piped, &wrong).await);
        let offline: &[&str] = &["apply", "-f", "-", "--dry-run=client"];
        text.push_str(&cluster.transcript_with(offline, &wrong).await);
        text.push_str(&cluster.transcript_with(piped, OTHER).await);
        let agent = cluster.get(jangar_api::Kind::Agent, "tester").await;
        // Either way, so that a file that is applied both ways is in conflict with nobody.
        assert_eq!(agent["metadata"]["managedFields"][0]["manager"], "agentctl");
        text
    })
    .await;
    assert_snapshot!(played.kube);
    let why = "the control plane applies only kinds of Jangar";
    assert_snapshot!("applied_over_grpc", played.difference(why));
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_others_are_taken_over_only_when_that_is_said() {
    let played = in_both(["sp0004", "sg0004"], async |cluster| {
        // Whoever made it has other names for its fields.
        cluster
            .have(serde_json::json!({
                "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentProvider",
                "metadata": {"name": "shell"}, "spec": {"binary": "/bin/dash"},
            }))
            .await;
        let first = OURS.split("---\n").next().unwrap_or_default();
        let mut text = String::new();
        for arguments in [
            &["apply", "-f", "-"][..],
            &["apply", "-f", "-", "--force-conflicts"],
        ] {
            text.push_str(&cluster.transcript_with(arguments, first).await);
        }
        text
    })
    .await;
    played.is_the_same();
    assert!(
        played.kube.contains("--force-conflicts to take the fields over"),
        "{}",
        played.kube
    );
    assert!(
        played.kube.contains("agentprovider/shell configured"),
        "{}",
        played.kube
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_at_work_is_not_deleted_unasked() {
    let played = in_both(["sp0030", "sg0030"], async |cluster| {
        have_runs(cluster).await;
        let commands: &[&[&str]] = &[
            &["delete", "impl", "fix", "--dry-run"],
            &["delete", "impl", "fix"],
            &["delete", "impl", "fix"],
            &["delete", "run", "busy"],
            &["delete", "run", "busy", "--yes"],
            &["delete", "run", "done"],
            &["list", "runs", "-o", "name"],
        ];
        cluster.session(commands).await
    })
    .await;
    assert_snapshot!(played.kube);
    let why = "what is not there is told in the words of whoever answers, with its own code";
    assert_snapshot!("deleted_over_grpc", played.difference(why));
}
