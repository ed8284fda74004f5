//! Runs: submit, cancel, retry, resubmit, and the gates of orchestrations.

use insta::assert_snapshot;
use jangar_api::{Kind, labels};
use serde_json::json;

use crate::{
    modes::in_both,
    support::{Cluster, agent_run, orchestration_run, policy, references, runs},
};

async fn have_references(cluster: &Cluster) {
    for object in references() {
        cluster.have(object).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_is_the_same_run() {
    let key: &[&str] = &[
        "run",
        "--agent",
        "coder",
        "--impl",
        "fix",
        "--idempotency-key",
        "issue-42",
    ];
    let played = in_both(["sp0031", "sg0031"], async |cluster| {
        have_references(cluster).await;
        let commands: &[&[&str]] = &[
            key,
            key,
            &[
                "run",
                "submit",
                "--agent",
                "coder",
                "--impl",
                "fix",
                "--idempotency-key",
                "issue-43",
                "-o",
                "name",
            ],
            &["run", "--agent", "codr", "--impl", "fix"],
            &["run", "--agent", "coder", "--impl", "fixx"],
            &["run", "--agent", "coder"],
            &["run"],
            &["run", "--agent", "coder", "--impl", "fix", "--runtime", "lambda"],
            &["run", "--agent", "coder", "--impl", "fix", "--param", "novalue"],
            &["run", "--tool", "x", "--cpu", "1"],
            &["list", "runs", "-o", "name"],
        ];
        cluster.session(commands).await
    })
    .await;
    assert_snapshot!(played.kube);
    // The name follows from the namespace, which each of the two has for itself.
    let difference = played.difference("the names of runs follow from the namespace, which is another one");
    let same_but_for_names = difference.lines().all(|line| {
        let told = line.split_once(": ").map_or("", |(_, told)| told);
        !line.starts_with("kube: ") && !line.starts_with("grpc: ") || told.contains("coder-")
    });
    assert!(same_but_for_names, "{difference}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_control_plane_looks_at_is_not_dropped() {
    let [kube, grpc] = Cluster::both(["sp0033", "sg0033"]).await;
    let flags: &[&str] = &["run", "--agent", "coder", "--impl", "fix", "--budget", "monthly"];
    let mut text = String::new();
    for cluster in [&kube, &grpc] {
        have_references(cluster).await;
        text.push_str(&cluster.transcript(flags).await);
    }
    text.push_str(&grpc.transcript(&[flags, &["--name", "mine"]].concat()).await);
    text.push_str(
        &grpc
            .transcript(&["run", "--agent", "coder", "--impl", "fix", "--secret", "token"])
            .await,
    );
    assert_snapshot!(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_a_name_or_labels_of_its_own_is_created_as_it_was_written() {
    let played = in_both(["sp0034", "sg0034"], async |cluster| {
        have_references(cluster).await;
        let named: &[&str] = &[
            "run",
            "--agent",
            "coder",
            "--text",
            "do it",
            "--name",
            "mine",
            "--label",
            "team=web",
            "--idempotency-key",
            "k",
        ];
        let other: &[&str] = &["run", "--agent", "coder", "--text", "do it", "--name", "mine"];
        let commands: &[&[&str]] = &[named, named, other];
        let text = cluster.session(commands).await;
        let run = cluster.get(Kind::AgentRun, "mine").await;
        assert_eq!(run["metadata"]["labels"]["team"], "web");
        assert_eq!(run["spec"]["implementation"]["inline"]["text"], "do it");
        assert_eq!(run["metadata"]["annotations"][labels::CREATED_BY], "ada");
        text
    })
    .await;
    played.is_the_same();
    assert_snapshot!(played.kube);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_runtime_arrive_with_their_structure() {
    let spread = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                         "labelSelector": {"matchLabels": {"app": "agent"}}}]);
    let setting = format!("topologySpreadConstraints={spread}");
    for cluster in Cluster::both(["sp0091", "sg0091"]).await {
        have_references(&cluster).await;
        let text = cluster
            .transcript(&[
                "run",
                "--agent",
                "coder",
                "--impl",
                "fix",
                "--runtime-config",
                &setting,
                "-o",
                "name",
            ])
            .await;
        let name = text.lines().find_map(|line| line.strip_prefix("agentrun/"));
        let run = cluster.get(Kind::AgentRun, name.expect(&text)).await;
        assert_eq!(
            run["spec"]["runtime"]["config"]["topologySpreadConstraints"],
            spread
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_applied_says_who_made_it_however_often() {
    let cluster = Cluster::start("sp0035").await;
    let mut run = agent_run("mine", json!(null));
    run["metadata"] = json!({"name": "mine", "annotations": {labels::CREATED_BY: "somebody else"}});
    let file = cluster.file("run.yaml", &run.to_string());
    for outcome in ["created", "unchanged"] {
        let text = cluster.transcript(&["apply", "-f", &file]).await;
        assert!(text.contains(&format!("agentrun/mine {outcome}")), "{text}");
        let run = cluster.get(Kind::AgentRun, "mine").await;
        assert_eq!(run["metadata"]["annotations"][labels::CREATED_BY], "ada");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_made_a_run_does_not_approve_it() {
    let played = in_both(["sp0036", "sg0036"], async |cluster| {
        let mut run = orchestration_run();
        run["metadata"]["annotations"] = json!({labels::CREATED_BY: "ada"});
        cluster.have(run).await;
        cluster.have(policy(json!({}))).await;
        cluster.transcript(&["approve", "release-1"]).await
    })
    .await;
    assert!(played.kube.contains("created"), "{}", played.kube);
    assert!(played.kube.ends_with("= 2\n\n"), "{}", played.kube);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_prints_the_run_that_would_be_made() {
    let home = tempfile::tempdir().unwrap();
    let arguments = [
        "run",
        "--agent",
        "coder",
        "--text",
        "Fix the flaky test",
        "--idempotency-key",
        "k",
        "--dry-run",
        "--runtime",
        "workflow",
        "--runtime-config",
        "nodeSelector={\"pool\":\"agents\"}",
        "--runtime-config",
        "serviceAccount=builder",
        "--param",
        "repository=example/adder",
        "--workload-image",
        "agent:1",
        "--cpu",
        "2",
        "--memory",
        "4Gi",
        "--vcs",
        "forge",
        "--vcs-mode",
        "read-only",
        "--vcs-required",
        "--secret",
        "token",
        "--priority",
        "-3",
        "--label",
        "team=web",
        "--memory-ref",
        "notes",
        "-n",
        "team",
    ];
    let command = crate::support::bare(home.path(), &arguments);
    let text = crate::support::transcript(command, &arguments, "").await;
    assert_snapshot!(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_asked_to_stop_and_its_work_is_done_again() {
    let played = in_both(["sp0032", "sg0032"], async |cluster| {
        have_references(cluster).await;
        for object in runs() {
            cluster.have(object).await;
        }
        let commands: &[&[&str]] = &[
            &["cancel", "run", "busy", "--reason", "wrong branch"],
            &["cancel", "done"],
            &["cancel", "nobody"],
            &["retry", "broken"],
            &["retry", "broken"],
            &["retry", "run", "done"],
            &["retry", "run", "busy"],
            &["resubmit", "run", "done", "--param", "branch=main"],
            &["resubmit", "run", "done"],
            &["get", "run", "done-again-1", "-o", "yaml"],
        ];
        let text = cluster.session(commands).await;
        let busy = cluster.get(Kind::AgentRun, "busy").await;
        assert_eq!(
            (&busy["spec"]["cancel"], &busy["spec"]["cancelReason"]),
            (&json!(true), &json!("wrong branch"))
        );
        text
    })
    .await;
    assert_snapshot!(played.kube);
    let why = "the control plane says who made a run, and what it does not find ends with its own code";
    assert_snapshot!("runs_over_grpc", played.difference(why));
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_are_listed_and_decided_as_the_caller() {
    let played = in_both(["sp0005", "sg0005"], async |cluster| {
        cluster.have(orchestration_run()).await;
        cluster
            .have(policy(
                json!({"subjects": [{"kind": "Group", "name": "leads"}], "requiredApprovals": 2}),
            ))
            .await;
        let commands: &[&[&str]] = &[
            &["approvals"],
            &["approvals", "-o", "json"],
            &["approve", "release-1", "--digest", "stale"],
            &["approve", "release-1", "build"],
            &["approve", "nobody"],
            &["approve", "release-1", "--comment", "tested by hand"],
            &["approvals"],
            &["reject", "release-1", "ship", "-m", "not on a Friday"],
        ];
        let text = cluster.session(commands).await;
        let run = cluster.get(Kind::OrchestrationRun, "release-1").await;
        assert_eq!(
            run["status"]["approvals"],
            json!([{
                "step": "ship", "policy": "leads", "decision": "Denied", "by": "ada", "groups": ["leads"], "at": "2026-03-01T12:05:00Z",
                "comment": "not on a Friday", "digest": "0123456789abcdef",
            }])
        );
        text
    })
    .await;
    assert_snapshot!(played.kube);
    let why = "what is not there is told in the words of whoever answers, with its own code";
    assert_snapshot!("gates_over_grpc", played.difference(why));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_named_by_the_policy_does_not_decide() {
    let played = in_both(["sp0006", "sg0006"], async |cluster| {
        cluster.have(orchestration_run()).await;
        cluster
            .have(policy(json!({"subjects": [{"kind": "User", "name": "grace"}]})))
            .await;
        cluster.transcript(&["approve", "release-1"]).await
    })
    .await;
    assert_snapshot!(played.kube);
    let why = "the control plane refuses whoever may not decide; in kube mode agentctl finds out itself";
    assert_snapshot!("not_named_over_grpc", played.difference(why));
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_described_by_a_text() {
    let played = in_both(["sp0007", "sg0007"], async |cluster| {
        let file = cluster.file("task.md", "Fix the login page.\n");
        let text_of = format!("@{file}");
        let commands: &[&[&str]] = &[
            &[
                "create",
                "impl",
                "--name",
                "login",
                "--text",
                &text_of,
                "--summary",
                "login",
                "--source",
                "provider=github,externalId=o/r#1",
            ],
            &["create", "impl", "--name", "login", "--text", "again"],
            &["create", "impl", "--text", "x", "--source", "from=somewhere"],
            &["get", "impl", "login", "-o", "jsonpath={.spec}"],
        ];
        let mut text = cluster.session(commands).await;
        let piped: &[&str] = &["create", "impl", "--name", "piped", "--text", "-"];
        text.push_str(&cluster.transcript_with(piped, "From a pipe").await);
        let nothing: &[&str] = &["create", "impl", "--text", "-"];
        text.push_str(&cluster.transcript_with(nothing, "").await);
        text
    })
    .await;
    played.is_the_same();
    assert_snapshot!(played.kube);
}
