//! ToolRuns on `jangar up`: real pods, real processes, and what becomes of them.

use std::path::Path;

use jangar_api::{
    condition::ConditionType,
    phase::RunPhase,
    reason::Reason,
    tools::{Tool, ToolRun, ToolRunStatus},
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    objects::create,
    process::{PATIENCE, Setup, eventually, processes_with},
};

/// Waits until the run has this phase, and returns its status.
async fn reached(client: &Client, name: &str, phase: &RunPhase) -> ToolRunStatus {
    let runs: Api<ToolRun> = Api::default_namespaced(client.clone());
    let is = |run: Option<&ToolRun>| run.and_then(|run| run.status.as_ref()?.phase.as_ref()) == Some(phase);
    match timeout(PATIENCE, await_condition(runs.clone(), name, is)).await {
        Ok(run) => run.unwrap().unwrap().status.unwrap(),
        Err(elapsed) => panic!(
            "{name} did not become {phase}, {elapsed}: {:#?}",
            runs.get(name).await.unwrap().status
        ),
    }
}

/// A Tool that runs a shell script, with more of its spec, and a run of it.
async fn script(client: &Client, name: &str, script: &str, more: Value) -> ToolRun {
    let object = |kind: &str, spec: &Value| {
        json!({
            "apiVersion": "tools.proompteng.ai/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        })
    };
    let mut spec = json!({"image": "any", "command": ["/bin/sh", "-c", script]});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    create::<Tool>(client, object("Tool", &spec)).await;
    create(client, object("ToolRun", &json!({"toolRef": {"name": name}}))).await
}

fn reason(status: &ToolRunStatus, type_: &ConditionType) -> (Reason, String) {
    let condition = status
        .common
        .condition(type_)
        .unwrap_or_else(|| panic!("{type_} is not set: {status:#?}"));
    (condition.reason.clone(), condition.message.clone())
}

#[tokio::test]
async fn the_example_of_the_chart_runs_and_its_outputs_are_in_the_status() {
    let directory = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/agents/examples/tool.yaml");
    let up = Setup::on(directory.path())
        .with(&["-f", example.to_str().unwrap()])
        .ready();
    let client = up.client().await;

    let status = reached(&client, "count-the-words", &RunPhase::Succeeded).await;

    let outputs = status.outcome.unwrap().outputs.unwrap().0;
    assert_eq!(Value::Object(outputs), json!({"words": 3}));
    let tools: Api<Tool> = Api::default_namespaced(client.clone());
    let is_ready = |tool: Option<&Tool>| {
        tool.and_then(|tool| tool.status.as_ref()?.phase.as_ref())
            .is_some_and(|phase| phase.as_str() == "Ready")
    };
    timeout(PATIENCE, await_condition(tools, "word-count", is_ready))
        .await
        .unwrap()
        .unwrap();
    let jobs: Api<Job> = Api::default_namespaced(client);
    let released = |job: Option<&Job>| job.is_some_and(|job| job.metadata.finalizers.is_none());
    timeout(PATIENCE, await_condition(jobs, "count-the-words-job", released))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(up.stop(), Some(0));
}

#[tokio::test]
async fn a_tool_that_fails_or_writes_nonsense_fails_its_run_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let client = up.client().await;
    script(&client, "fails", "echo no such file; exit 7", json!({})).await;
    let nonsense = "printf '{\"outputs\": [' > /dev/termination-log";
    script(&client, "nonsense", nonsense, json!({})).await;
    let large = "printf '{\"outputs\": {\"log\": \"%05000d\"}}' 0 > /dev/termination-log";
    script(&client, "large", large, json!({})).await;

    for (name, expected, words) in [
        ("fails", Reason::JobFailed, "no such file"),
        ("nonsense", Reason::InvalidOutputs, "is not JSON"),
        ("large", Reason::OutputsTooLarge, "4096 bytes"),
    ] {
        let status = reached(&client, name, &RunPhase::Failed).await;
        let (reason, message) = reason(&status, &ConditionType::Failed);
        assert_eq!(reason, expected, "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[tokio::test]
async fn a_tool_that_takes_too_long_and_one_that_is_cancelled_are_dead_when_their_runs_have_ended() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let client = up.client().await;
    let endless = "echo {{ toolRun.uid }}; while :; do sleep 1; done";
    let slow = script(&client, "slow", endless, json!({"timeoutSeconds": 1})).await;
    let unwanted = script(&client, "unwanted", endless, json!({})).await;
    let uid = unwanted.metadata.uid.unwrap();
    eventually("the tool works", || processes_with(&uid) > 0);

    let runs: Api<ToolRun> = Api::default_namespaced(client.clone());
    let cancel = json!({"spec": {"desiredState": "Cancelled", "cancelReason": "not needed"}});
    runs.patch("unwanted", &PatchParams::default(), &Patch::Merge(&cancel))
        .await
        .unwrap();

    let status = reached(&client, "unwanted", &RunPhase::Cancelled).await;
    assert_eq!(processes_with(&uid), 0);
    let (_, message) = reason(&status, &ConditionType::Cancelled);
    assert!(message.contains("not needed"), "{message}");
    let status = reached(&client, "slow", &RunPhase::Failed).await;
    assert_eq!(processes_with(&slow.metadata.uid.unwrap()), 0);
    assert_eq!(reason(&status, &ConditionType::Failed).0, Reason::TimedOut);
}

#[tokio::test]
async fn nothing_is_left_of_a_tool_run_that_is_deleted_while_it_works() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let client = up.client().await;
    let endless = "echo {{ toolRun.uid }}; while :; do sleep 1; done";
    let run = script(&client, "deleted", endless, json!({})).await;
    let uid = run.metadata.uid.unwrap();
    eventually("the tool works", || processes_with(&uid) > 0);

    let runs: Api<ToolRun> = Api::default_namespaced(client.clone());
    runs.delete("deleted", &DeleteParams::background()).await.unwrap();

    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let job = jobs.get_opt("deleted-job").await.unwrap();
    if let Some(uid) = job.and_then(|job| job.metadata.uid) {
        let gone = await_condition(jobs, "deleted-job", is_deleted(&uid));
        timeout(PATIENCE, gone).await.unwrap().unwrap();
    }
    assert_eq!(processes_with(&uid), 0);
    let pods: Api<Pod> = Api::default_namespaced(client);
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty());
}
