//! What people ask: why, what, where, and what is wrong.

use insta::assert_snapshot;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::support::{Cluster, NAMESPACE, begun, orchestration_run, policy, references, runs};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_explained_in_every_phase() {
    let cluster = Cluster::start("sp0015").await;
    for object in runs() {
        cluster.have(object).await;
    }
    cluster.have(orchestration_run()).await;
    // The words are the engine's, which has tests of its own for them.
    let state: &[&str] = &["-o", "jsonpath={.subject}: {.state} {.reason}"];
    let mut text = String::new();
    for run in [
        &["run", "fresh"][..],
        &["run", "queued"],
        &["busy"],
        &["run/done"],
        &["run", "broken"],
        &["run", "stopped"],
        &["release-1"],
    ] {
        text.push_str(&cluster.transcript(&[&["explain"], run, state].concat()).await);
    }
    assert_snapshot!(text);
    let gate = cluster.transcript(&["explain", "release-1"]).await;
    assert!(
        gate.contains("  $ agentctl approve release-1 ship -n agents"),
        "{gate}"
    );
    let queued = cluster.transcript(&["explain", "run", "queued"]).await;
    assert!(queued.contains("number 1 of 1 in line"), "{queued}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_are_explained_without_a_cluster() {
    let home = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for arguments in [
        &["explain", "approval"][..],
        &["explain", "agentrun", "--field", "spec.runtime"],
        &["explain", "agentrun", "--field", "spec.runtme"],
    ] {
        text.push_str(
            &crate::support::transcript(crate::support::bare(home.path(), arguments), arguments, "").await,
        );
    }
    assert_snapshot!(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_is_drawn_for_runs_and_definitions() {
    let cluster = Cluster::start("sp0016").await;
    cluster.have(orchestration_run()).await;
    cluster
        .have(json!({
            "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "Orchestration",
            "metadata": {"name": "line", "namespace": NAMESPACE},
            "spec": {"steps": [{"name": "one", "kind": "Checkpoint"}, {"name": "two", "kind": "Checkpoint"}]},
        }))
        .await;
    let text = cluster
        .session(&[
            &["graph", "release-1"],
            &["graph", "orchestration", "line"],
            &["graph", "release-1", "-o", "json"],
            &["graph", "run", "x"],
            &["graph", "nobody"],
        ])
        .await;
    assert_snapshot!(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_is_drawn_anew_until_the_run_has_ended() {
    let cluster = Cluster::start("sp0017").await;
    let mut run = orchestration_run();
    cluster.have(run.clone()).await;
    let mut child = begun(cluster.command(&["graph", "release-1", "-w"]), "").await;
    let mut out = child.stdout.take().unwrap();
    let mut first = vec![0; 64];
    let count = out.read(&mut first).await.unwrap();
    assert!(String::from_utf8_lossy(&first[..count]).starts_with("OrchestrationRun release-1: Running"));
    run["status"]["phase"] = json!("Failed");
    cluster.status(&run).await;
    let mut rest = String::new();
    out.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("\nOrchestrationRun release-1: Failed"), "{rest}");
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_and_what_waits_is_shown() {
    let cluster = Cluster::start("sp0018").await;
    let empty = cluster.transcript(&["top"]).await;
    for object in runs() {
        cluster.have(object).await;
    }
    cluster.have(orchestration_run()).await;
    let text = cluster.session(&[&["top"], &["top", "-o", "json"]]).await;
    assert_snapshot!(format!("{empty}{text}"));
}

fn lease(renewed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "jangar-controller-leader", "namespace": NAMESPACE},
        "spec": {"holderIdentity": "agents-controllers-0", "leaseDurationSeconds": 30, "renewTime": renewed},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_well_is_told_so() {
    let cluster = Cluster::start("sp0019").await;
    cluster.have(lease("2026-03-01T12:04:50.000000Z")).await;
    for object in references() {
        cluster.have(object).await;
    }
    assert_snapshot!(
        cluster
            .session(&[&["status"], &["doctor"], &["auth", "status"]])
            .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_found_with_a_line_that_mends_it() {
    let cluster = Cluster::start("sp0020").await;
    cluster.have(lease("2026-03-01T12:00:00.000000Z")).await;
    for object in runs() {
        cluster.have(object).await;
    }
    cluster.have(orchestration_run()).await;
    cluster.have(policy(json!({}))).await;
    let text = cluster
        .session(&[
            &["doctor"],
            &["status"],
            &["diagnose", "-n", "nowhere", "-o", "json"],
        ])
        .await;
    assert_snapshot!(text);
}
