//! Waiting: the exit code tells the outcome.

use insta::assert_snapshot;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    logs::pod,
    modes::in_both,
    support::{Cluster, NAMESPACE, agent_run, begun, condition, references, runs},
};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_is_told_at_once() {
    let played = in_both(["sp0008", "sg0008"], async |cluster| {
        for object in references().into_iter().chain(runs()) {
            cluster.have(object).await;
        }
        let commands: &[&[&str]] = &[
            &["wait", "run", "done"],
            &["wait", "run", "broken"],
            &["wait", "stopped"],
            &["wait", "run", "queued", "--timeout", "0s"],
            &["wait", "run", "done", "-o", "jsonpath={.status.phase}"],
            &["wait", "agent", "coder", "--timeout", "5s"],
            &[
                "wait",
                "agent",
                "coder",
                "--for",
                "condition=Ready=False",
                "--timeout",
                "0s",
            ],
            &["wait", "run", "done", "--for", "phase=Running"],
            &["wait", "run", "nobody", "--for", "delete"],
            &["wait", "run", "nobody"],
            &["wait", "run", "done", "--for", "christmas"],
            &["wait", "run", "done", "--timeout", "soon"],
            &["run", "wait", "broken"],
        ];
        cluster.session(commands).await
    })
    .await;
    assert_snapshot!(played.kube);
    let why = "what is not there is told in the words of whoever answers, with its own code";
    assert_snapshot!("waits_over_grpc", played.difference(why));
}

/// Starts to wait, and returns when it has said that it does.
async fn waiting(
    cluster: &Cluster,
    arguments: &[&str],
) -> (
    tokio::process::Child,
    impl std::future::Future<Output = Vec<String>> + use<>,
) {
    let namespace = cluster.namespace;
    cluster.caught_up().await;
    let mut child = begun(cluster.command(arguments), "").await;
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    let rest = async move {
        let mut all = vec![first];
        while let Some(line) = lines.next_line().await.unwrap() {
            all.push(line.replace(namespace, NAMESPACE));
        }
        all
    };
    (child, rest)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_the_run() {
    for cluster in Cluster::both(["sp0009", "sg0009"]).await {
        cluster.have(agent_run("one", json!(null))).await;
        let (child, told) = waiting(&cluster, &["wait", "run", "one", "--timeout", "60s"]).await;
        let status =
            json!({"phase": "Failed", "conditions": [condition("Failed", "True", "JobFailed", "code 7")]});
        cluster.status(&agent_run("one", status)).await;
        assert_eq!(
            told.await,
            [
                "run/one: Pending",
                "run/one: Failed",
                "JobFailed: code 7; more: agentctl explain run one -n agents"
            ]
        );
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(output.status.code(), Some(10));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "run/one Failed\n");
    }
}

/// What makes a run of that name, and follows it.
fn followed<'a>(name: &'a str, timeout: &'a str) -> [&'a str; 10] {
    [
        "run",
        "--agent",
        "coder",
        "--impl",
        "fix",
        "--name",
        name,
        "--logs",
        "--timeout",
        timeout,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_shown_while_a_run_is_waited_for_and_do_not_change_the_code() {
    let failed =
        json!({"phase": "Failed", "conditions": [condition("Failed", "True", "JobFailed", "code 7")]});
    for cluster in Cluster::both(["sp0043", "sg0043"]).await {
        for object in references() {
            cluster.have(object).await;
        }
        let late = cluster.transcript(&followed("late", "0s")).await;
        assert!(late.ends_with("= 12\n\n"), "{late}");

        let (child, told) = waiting(&cluster, &followed("one", "60s")).await;
        cluster.have(pod("one-a", "one", true)).await;
        cluster.status(&agent_run("one", failed.clone())).await;
        let told = told.await;
        assert!(told.contains(&"run/one: Failed".to_owned()), "{told:?}");
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(output.status.code(), Some(10), "{told:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<String> = (1..=3)
            .map(|number| format!("line {number} of one-a in agent-runner\n"))
            .collect();
        let expected = lines.concat();
        assert_eq!(text, format!("{expected}run/one Failed\n"));

        // One that never had a pod has an outcome all the same.
        let (child, told) = waiting(&cluster, &followed("none", "60s")).await;
        cluster.status(&agent_run("none", failed.clone())).await;
        let told = told.await;
        let silent = "run none has written nothing that can be shown".to_owned();
        assert!(told.contains(&silent), "{told:?}");
        assert_eq!(child.wait_with_output().await.unwrap().status.code(), Some(10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_deleted_has_a_code_of_its_own() {
    for cluster in Cluster::both(["sp0010", "sg0010"]).await {
        cluster.have(agent_run("one", json!(null))).await;
        let (child, told) = waiting(&cluster, &["wait", "run", "one", "--timeout", "60s"]).await;
        let deleted = cluster.transcript(&["delete", "run", "one", "--yes"]).await;
        assert!(deleted.contains("deleted"), "{deleted}");
        assert_eq!(told.await, ["run/one: Pending", "run one was deleted"]);
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(output.status.code(), Some(13));
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_says_how_to_go_on() {
    for cluster in Cluster::both(["sp0011", "sg0011"]).await {
        cluster.have(agent_run("one", json!(null))).await;
        let (child, told) = waiting(&cluster, &["wait", "run", "one"]).await;
        let pid = child.id().unwrap().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap();
        assert!(sent.success());
        assert_eq!(
            told.await,
            [
                "run/one: Pending",
                "no longer waiting; run one goes on. Wait again: agentctl wait run one -n agents. Stop it: agentctl cancel run one -n \
                 agents"
            ]
        );
        assert_eq!(child.wait_with_output().await.unwrap().status.code(), Some(130));
    }
}
