//! Runs: submit, cancel, retry, resubmit, and the gates of orchestrations.

use insta::assert_snapshot;
use jangar_api::Kind;
use serde_json::json;

use crate::support::{Cluster, orchestration_run, policy, references, runs};

async fn with_references(namespace: &'static str) -> Cluster {
    let cluster = Cluster::start(namespace).await;
    for object in references() {
        cluster.have(object).await;
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_is_the_same_run() {
    let cluster = with_references("sp0031").await;
    let key: &[&str] = &[
        "run",
        "--agent",
        "coder",
        "--impl",
        "fix",
        "--idempotency-key",
        "issue-42",
    ];
    let text = cluster
        .session(&[
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
        ])
        .await;
    assert_snapshot!(text);
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
    let cluster = with_references("sp0032").await;
    for object in runs() {
        cluster.have(object).await;
    }
    let text = cluster
        .session(&[
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
        ])
        .await;
    assert_snapshot!(text);
    let busy = cluster.get(Kind::AgentRun, "busy").await;
    assert_eq!(
        (&busy["spec"]["cancel"], &busy["spec"]["cancelReason"]),
        (&json!(true), &json!("wrong branch"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_are_listed_and_decided_as_the_caller() {
    let cluster = Cluster::start("sp0005").await;
    cluster.have(orchestration_run()).await;
    cluster
        .have(policy(
            json!({"subjects": [{"kind": "Group", "name": "leads"}], "requiredApprovals": 2}),
        ))
        .await;
    let text = cluster
        .session(&[
            &["approvals"],
            &["approvals", "-o", "json"],
            &["approve", "release-1", "--digest", "stale"],
            &["approve", "release-1", "build"],
            &["approve", "nobody"],
            &["approve", "release-1", "--comment", "tested by hand"],
            &["approvals"],
            &["reject", "release-1", "ship", "-m", "not on a Friday"],
        ])
        .await;
    assert_snapshot!(text);
    let run = cluster.get(Kind::OrchestrationRun, "release-1").await;
    assert_eq!(
        run["status"]["approvals"],
        json!([{
            "step": "ship", "decision": "Denied", "by": "ada", "groups": ["leads"], "at": "2026-03-01T12:05:00Z",
            "comment": "not on a Friday", "digest": "0123456789abcdef",
        }])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_named_by_the_policy_does_not_decide() {
    let cluster = Cluster::start("sp0006").await;
    cluster.have(orchestration_run()).await;
    cluster
        .have(policy(json!({"subjects": [{"kind": "User", "name": "grace"}]})))
        .await;
    assert_snapshot!(cluster.transcript(&["approve", "release-1"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_described_by_a_text() {
    let cluster = Cluster::start("sp0007").await;
    let file = cluster.file("task.md", "Fix the login page.\n");
    let text_of = format!("@{file}");
    let mut text = cluster
        .session(&[
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
        ])
        .await;
    text.push_str(
        &cluster
            .transcript_with(
                &["create", "impl", "--name", "piped", "--text", "-"],
                "From a pipe",
            )
            .await,
    );
    text.push_str(
        &cluster
            .transcript_with(&["create", "impl", "--text", "-"], "")
            .await,
    );
    assert_snapshot!(text);
}
