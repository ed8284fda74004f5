//! What people ask: why, what, where, and what is wrong.

use insta::assert_snapshot;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::{
    modes::in_both,
    support::{Cluster, NAMESPACE, agent_run, begun, condition, orchestration_run, policy, references, runs},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_explained_in_every_phase() {
    let played = in_both(["sp0015", "sg0015"], async |cluster| {
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
        let gate = cluster.transcript(&["explain", "release-1"]).await;
        assert!(
            gate.contains("  $ agentctl approve release-1 ship -n agents"),
            "{gate}"
        );
        let queued = cluster.transcript(&["explain", "run", "queued"]).await;
        assert!(queued.contains("number 1 of 1 in line"), "{queued}");
        text
    })
    .await;
    played.is_the_same();
    assert_snapshot!(played.kube);
}

/// The line of a repository goes through all namespaces.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_counted_among_the_runs_of_all_namespaces() {
    let (here, there) = (Cluster::start("sp0051").await, Cluster::start("sp0052").await);
    let of = |name: &str, status: Value| {
        let mut run = agent_run(name, status);
        run["spec"]["parameters"]["repository"] = json!("example/of-two-namespaces");
        run
    };
    let waiting = || {
        json!({"phase": "Pending", "conditions": [condition("Blocked", "True", "ConcurrencyLimit", "one is under way")],
               "waiting": {"scope": "repository", "name": "example/of-two-namespaces", "limit": 1}})
    };
    there.have(of("works", json!({"phase": "Running"}))).await;
    there.have(of("first", waiting())).await;
    here.have(of("second", waiting())).await;

    let told = here.transcript(&["explain", "run", "second"]).await;

    assert!(told.contains(" of 2 in line"), "{told}");
    assert!(told.contains("  $ agentctl cancel run works -n sp0052"), "{told}");
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
    let played = in_both(["sp0016", "sg0016"], async |cluster| {
        cluster.have(orchestration_run()).await;
        cluster
            .have(json!({
                "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "Orchestration",
                "metadata": {"name": "line", "namespace": NAMESPACE},
                "spec": {"steps": [{"name": "one", "kind": "Checkpoint"}, {"name": "two", "kind": "Checkpoint"}]},
            }))
            .await;
        let commands: &[&[&str]] = &[
            &["graph", "release-1"],
            &["graph", "orchestration", "line"],
            &["graph", "release-1", "-o", "json"],
            &["graph", "run", "x"],
            &["graph", "nobody"],
        ];
        cluster.session(commands).await
    })
    .await;
    assert_snapshot!(played.kube);
    let why = "what is not there is told in the words of whoever answers, with its own code";
    assert_snapshot!("graphs_over_grpc", played.difference(why));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_is_drawn_anew_until_the_run_has_ended() {
    for cluster in Cluster::both(["sp0017", "sg0017"]).await {
        let mut run = orchestration_run();
        cluster.have(run.clone()).await;
        cluster.caught_up().await;
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
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_and_what_waits_is_shown() {
    let played = in_both(["sp0018", "sg0018"], async |cluster| {
        let empty = cluster.transcript(&["top"]).await;
        for object in runs() {
            cluster.have(object).await;
        }
        cluster.have(orchestration_run()).await;
        let text = cluster.session(&[&["top"], &["top", "-o", "json"]]).await;
        format!("{empty}{text}")
    })
    .await;
    played.is_the_same();
    assert_snapshot!(played.kube);
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
    let played = in_both(["sp0019", "sg0019"], async |cluster| {
        cluster.have(lease("2026-03-01T12:04:50.000000Z")).await;
        for object in references() {
            cluster.have(object).await;
        }
        let commands: &[&[&str]] = &[&["status"], &["doctor"], &["auth", "status"]];
        cluster.session(commands).await
    })
    .await;
    assert_snapshot!(played.kube);
    let why = "Kubernetes shows Jobs and definitions; the control plane shows its database and what it has of the rest";
    assert_snapshot!("well_over_grpc", played.difference(why));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_found_with_a_line_that_mends_it() {
    let played = in_both(["sp0020", "sg0020"], async |cluster| {
        cluster.have(lease("2026-03-01T12:00:00.000000Z")).await;
        for object in runs() {
            cluster.have(object).await;
        }
        cluster.have(orchestration_run()).await;
        cluster.have(policy(json!({}))).await;
        let commands: &[&[&str]] = &[
            &["doctor"],
            &["status"],
            &["diagnose", "-n", "nowhere", "-o", "json"],
        ];
        cluster.session(commands).await
    })
    .await;
    assert_snapshot!(played.kube);
    let why = "Kubernetes shows Jobs and definitions; the control plane looks after some namespaces, and knows no others";
    assert_snapshot!("wrong_over_grpc", played.difference(why));
}
