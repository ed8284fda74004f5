//! Logs: of pods that are there, that come later, and that are gone.

use insta::assert_snapshot;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    modes::in_both,
    support::{BREAKS_OFF, Cluster, NAMESPACE, agent_run, begun, orchestration_run},
};

/// A pod of a run that has ended, or has not started.
pub(crate) fn pod(name: &str, run: &str, has_ended: bool) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"agents.proompteng.ai/agent-run": run}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "agent-runner", "image": "agent:1"}]},
    });
    if has_ended {
        pod["status"] = json!({"phase": "Succeeded", "containerStatuses": [{
            "name": "agent-runner", "image": "agent:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0}},
        }]});
    }
    pod
}

/// A pod of a run that works.
pub(crate) fn running_pod(name: &str, run: &str) -> Value {
    let mut pod = pod(name, run, false);
    pod["status"] = json!({"phase": "Running", "containerStatuses": [{
        "name": "agent-runner", "image": "agent:1", "imageID": "", "ready": true, "restartCount": 0,
        "state": {"running": {}},
    }]});
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_pods_that_are_there_and_of_those_that_are_gone() {
    let played = in_both(["sp0012", "sg0012"], async |cluster| {
        cluster
            .have(agent_run("one", json!({"phase": "Succeeded"})))
            .await;
        cluster.have(pod("one-a", "one", true)).await;
        cluster.have(pod("one-b", "one", true)).await;
        cluster.have(agent_run("gone", json!({"phase": "Failed"}))).await;
        cluster.have(agent_run("new", Value::Null)).await;
        let commands: &[&[&str]] = &[
            &["logs", "one"],
            &["logs", "run", "one", "--timestamps"],
            &["logs", "-f", "run", "one"],
            &["run", "logs", "one"],
            &["logs", "gone"],
            &["logs", "new"],
            &["logs", "nobody"],
            &["logs", "agent", "coder"],
        ];
        cluster.session(commands).await
    })
    .await;
    assert_snapshot!(played.kube);
    let why = "the control plane has what was kept of a log, if something was; what is not there ends with its own code";
    assert_snapshot!("logs_over_grpc", played.difference(why));
}

#[tokio::test(flavor = "multi_thread")]
async fn following_waits_for_the_pod_and_goes_on_with_the_one_that_replaces_it() {
    for cluster in Cluster::both(["sp0013", "sg0013"]).await {
        cluster.have(agent_run("one", json!({"phase": "Running"}))).await;
        cluster.caught_up().await;
        let mut child = begun(cluster.command(&["logs", "-f", "one"]), "").await;
        let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
        assert_eq!(
            notes.next_line().await.unwrap().unwrap(),
            "waiting for a pod of run one"
        );
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for name in ["one-a", "one-b"] {
            cluster.have(pod(name, "one", true)).await;
            for number in 1..=3 {
                let line = lines.next_line().await.unwrap().unwrap();
                assert_eq!(line, format!("line {number} of {name} in agent-runner"));
            }
        }
        cluster
            .status(&agent_run("one", json!({"phase": "Succeeded"})))
            .await;
        assert_eq!(lines.next_line().await.unwrap(), None);
        assert_eq!(child.wait().await.unwrap().code(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_breaks_off_within_lines_of_one_time_goes_on_with_the_next_of_them() {
    for cluster in Cluster::both(["sp0042", "sg0042"]).await {
        let running = running_pod(BREAKS_OFF, "one");
        cluster.have(agent_run("one", json!({"phase": "Running"}))).await;
        cluster.have(running).await;
        cluster.caught_up().await;
        let mut child = begun(cluster.command(&["logs", "-f", "one"]), "").await;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for number in 1..=3 {
            let line = lines.next_line().await.unwrap().unwrap();
            assert_eq!(line, format!("line {number} of {BREAKS_OFF} in agent-runner"));
        }
        cluster.status(&pod(BREAKS_OFF, "one", true)).await;
        cluster
            .status(&agent_run("one", json!({"phase": "Succeeded"})))
            .await;
        assert_eq!(lines.next_line().await.unwrap(), None);
        assert_eq!(child.wait().await.unwrap().code(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_an_orchestration_stand_before_their_lines() {
    let played = in_both(["sp0014", "sg0014"], async |cluster| {
        cluster.have(orchestration_run()).await;
        for run in ["release-1-build-1", "release-1-test-1"] {
            cluster.have(agent_run(run, json!({"phase": "Succeeded"}))).await;
            cluster.have(pod(&format!("{run}-pod"), run, true)).await;
        }
        let commands: &[&[&str]] = &[
            &["logs", "release-1"],
            &["logs", "orun", "release-1", "--step", "test"],
        ];
        cluster.session(commands).await
    })
    .await;
    played.is_the_same();
    assert_snapshot!(played.kube);
}
