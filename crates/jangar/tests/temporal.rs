//! The runtime `temporal` on `jangar up` with a real Temporal server: what a person applies, and what becomes of it.
//!
//! Each test has a `jangar` of its own, and a server where it kills it; the others share one.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[expect(dead_code, reason = "the tests of `jangar up` need more of it")]
#[path = "up/process.rs"]
mod process;

#[path = "up/objects.rs"]
mod objects;

use std::sync::OnceLock;

use jangar_api::{
    agents::{
        agent::Agent,
        agent_provider::AgentProvider,
        agent_run::{AgentRun, AgentRunStatus},
    },
    condition::ConditionType,
    phase::RunPhase,
};
use jangar_testkit::temporal_server::{TASK_QUEUE, TemporalServer};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    objects::create,
    process::{PATIENCE, Setup, Up},
};

fn shared() -> &'static TemporalServer {
    static SERVER: OnceLock<TemporalServer> = OnceLock::new();
    SERVER.get_or_init(TemporalServer::start)
}

struct Stage {
    _directory: tempfile::TempDir,
    up: Up,
    client: Client,
}

fn setup(directory: &tempfile::TempDir, address: &str) -> Setup {
    Setup::on(directory.path())
        .variable("TEMPORAL_ADDRESS", address)
        // A workflow that is asked to end and does not is terminated soon.
        .variable("JANGAR_ORCHESTRATION_CANCEL_TIMEOUT_MS", "3000")
}

async fn stage(server: &TemporalServer) -> Stage {
    let directory = tempfile::tempdir().unwrap();
    let up = setup(&directory, &server.address()).ready();
    let client = up.client().await;
    people(&client).await;
    Stage {
        _directory: directory,
        up,
        client,
    }
}

/// What every run refers to.
async fn people(client: &Client) {
    let kind = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": kind,
            "metadata": {"name": "fixer"}, "spec": spec,
        })
    };
    create::<AgentProvider>(client, kind("AgentProvider", json!({"binary": "/bin/true"}))).await;
    create::<Agent>(client, kind("Agent", json!({"providerRef": {"name": "fixer"}}))).await;
}

fn runs(client: &Client) -> Api<AgentRun> {
    Api::default_namespaced(client.clone())
}

/// Creates a run whose workflow behaves so. Returns the id that the workflow gets.
async fn submit(client: &Client, name: &str, behaviour: &str) -> String {
    submit_with(client, name, behaviour, json!({})).await
}

async fn submit_with(client: &Client, name: &str, behaviour: &str, changes: Value) -> String {
    let mut config = json!({"workflowType": "Agent", "taskQueue": TASK_QUEUE});
    for (field, value) in changes.as_object().unwrap() {
        config[field] = value.clone();
    }
    let run: AgentRun = create(
        client,
        json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun", "metadata": {"name": name},
            "spec": {
                "agentRef": {"name": "fixer"},
                "implementation": {"inline": {"text": "Do it."}},
                "parameters": {"behaviour": behaviour},
                "runtime": {"type": "temporal", "config": config},
            },
        }),
    )
    .await;
    format!("agentrun-{}", run.metadata.uid.unwrap())
}

/// Waits until this is so of a run, and returns its status.
async fn until(
    client: &Client,
    name: &str,
    what: &str,
    holds: impl Fn(&AgentRunStatus) -> bool,
) -> AgentRunStatus {
    let is = |run: Option<&AgentRun>| run.and_then(|run| run.status.as_ref()).is_some_and(&holds);
    match timeout(PATIENCE, await_condition(runs(client), name, is)).await {
        Ok(run) => run.unwrap().unwrap().status.unwrap(),
        Err(_) => {
            let run = runs(client).get(name).await.unwrap();
            panic!("{name} is not {what}: {:#?}", run.status)
        }
    }
}

async fn reached(client: &Client, name: &str, phase: &RunPhase) -> AgentRunStatus {
    until(client, name, phase.as_str(), |status| {
        status.phase.as_ref() == Some(phase)
    })
    .await
}

/// Waits until the server has the workflow of a run.
async fn started(client: &Client, name: &str) -> AgentRunStatus {
    until(client, name, "started", |status| {
        let reference = status.runtime_ref.as_ref();
        reference.is_some_and(|reference| reference.0.contains_key("runId"))
    })
    .await
}

async fn cancel(client: &Client, name: &str) {
    let cancel = Patch::Merge(json!({"spec": {"cancel": true, "cancelReason": "not needed"}}));
    runs(client)
        .patch(name, &PatchParams::default(), &cancel)
        .await
        .unwrap();
}

fn said(status: &AgentRunStatus, type_: &ConditionType) -> (String, String) {
    let condition = status.common.condition(type_).unwrap();
    (condition.reason.to_string(), condition.message.clone())
}

#[tokio::test]
async fn a_workflow_does_the_work_and_what_it_returns_is_the_status() {
    let stage = stage(shared()).await;
    let id = submit(&stage.client, "succeeds", "succeed").await;

    let status = reached(&stage.client, "succeeds", &RunPhase::Succeeded).await;

    let outcome = status.outcome.unwrap();
    assert_eq!(outcome.summary.as_deref(), Some("mended"));
    let received = &outcome.outputs.unwrap().0["received"];
    assert_eq!(received["agentRun"]["name"], "succeeds");
    assert_eq!(received["implementation"]["text"], "Do it.");
    let reference = status.runtime_ref.unwrap().0;
    assert_eq!(reference["workflowId"], id.as_str());
    assert_eq!(reference["namespace"], "default");
    assert_eq!(reference["taskQueue"], TASK_QUEUE);
    assert!(reference["runId"].is_string());
    assert_eq!(shared().ask("status", &id), "Completed");
    let run = runs(&stage.client).get("succeeds").await.unwrap();
    let held = |run: &AgentRun| {
        run.metadata
            .finalizers
            .as_ref()
            .is_some_and(|all| !all.is_empty())
    };
    if held(&run) {
        let free = |run: Option<&AgentRun>| run.is_some_and(|run| !held(run));
        let waited = await_condition(runs(&stage.client), "succeeds", free);
        timeout(PATIENCE, waited).await.unwrap().unwrap();
    }
    assert_eq!(stage.up.stop(), Some(0));
}

#[tokio::test]
async fn a_failure_a_termination_and_a_timeout_are_told_apart() {
    let stage = stage(shared()).await;
    submit(&stage.client, "fails", "fail").await;
    let terminated = submit(&stage.client, "terminated", "work").await;
    let short = json!({"timeouts": {"workflowExecutionTimeoutMs": 1000}});
    submit_with(&stage.client, "late", "work", short).await;
    started(&stage.client, "terminated").await;
    shared().ask("terminate", &terminated);
    for (name, reason, word) in [
        ("fails", "Failed", "TestsRed"),
        ("terminated", "Terminated", "a test wants it"),
        ("late", "TimedOut", "time was up"),
    ] {
        let status = reached(&stage.client, name, &RunPhase::Failed).await;
        let (found, message) = said(&status, &ConditionType::Succeeded);
        assert_eq!(found, reason, "{message}");
        assert!(message.contains(word), "{message}");
    }
}

#[tokio::test]
async fn a_cancelled_run_is_over_when_its_workflow_is_closed() {
    let stage = stage(shared()).await;
    let polite = submit(&stage.client, "polite", "work").await;
    let stubborn = submit(&stage.client, "stubborn", "finish anyway").await;
    let quick = submit(&stage.client, "quick", "finish anyway").await;
    for name in ["polite", "stubborn", "quick"] {
        started(&stage.client, name).await;
        cancel(&stage.client, name).await;
    }
    reached(&stage.client, "quick", &RunPhase::Cancelling).await;
    shared().ask("finish", &quick);

    let status = reached(&stage.client, "polite", &RunPhase::Cancelled).await;
    assert_eq!(shared().ask("status", &polite), "Canceled");
    let (reason, message) = said(&status, &ConditionType::Cancelled);
    assert_eq!(reason, "Cancelled");
    assert!(message.contains("not needed"), "{message}");
    // It was asked to end and did not.
    reached(&stage.client, "stubborn", &RunPhase::Cancelled).await;
    assert_eq!(shared().ask("status", &stubborn), "Terminated");
    // It had its work done before it could be stopped.
    reached(&stage.client, "quick", &RunPhase::Succeeded).await;
}

#[tokio::test]
async fn a_deleted_run_goes_when_its_workflow_is_closed() {
    let stage = stage(shared()).await;
    let id = submit(&stage.client, "deleted", "work").await;
    started(&stage.client, "deleted").await;
    let runs = runs(&stage.client);
    let deleted = runs.delete("deleted", &DeleteParams::default()).await.unwrap();
    let uid = deleted.left().unwrap().metadata.uid.unwrap();

    timeout(PATIENCE, await_condition(runs, "deleted", is_deleted(&uid)))
        .await
        .unwrap()
        .unwrap();

    assert_eq!(shared().ask("status", &id), "Canceled");
}

#[tokio::test]
async fn an_id_that_is_taken_a_namespace_that_is_not_there_and_a_queue_without_a_worker_are_told() {
    let stage = stage(shared()).await;
    shared().ask("start", "taken");
    for (name, config, word) in [
        (
            "duplicate",
            json!({"workflowId": "taken"}),
            "spec.runtime.config.workflowId",
        ),
        (
            "elsewhere",
            json!({"namespace": "nowhere"}),
            "spec.runtime.config.namespace",
        ),
    ] {
        submit_with(&stage.client, name, "work", config).await;
        let status = reached(&stage.client, name, &RunPhase::Failed).await;
        let (reason, message) = said(&status, &ConditionType::Succeeded);
        assert_eq!(reason, "SubmitFailed", "{message}");
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(shared().ask("status", "taken"), "Running");
    submit_with(&stage.client, "idle", "work", json!({"taskQueue": "nobody"})).await;
    let status = until(&stage.client, "idle", "warned", |status| {
        let warning = status.common.condition(&ConditionType::Warning);
        warning.is_some_and(|warning| warning.reason == "TemporalError".into())
    })
    .await;
    let (_, message) = said(&status, &ConditionType::Warning);
    assert!(
        message.contains("nobody") && message.contains("taskQueue"),
        "{message}"
    );
}

#[tokio::test]
async fn a_run_outlives_the_program_and_the_server_and_its_work_is_done_once() {
    let mut server = TemporalServer::start();
    let directory = tempfile::tempdir().unwrap();
    let first = setup(&directory, &server.address()).ready();
    let client = first.client().await;
    people(&client).await;
    let id = submit(&client, "lasting", "work").await;
    let before = started(&client, "lasting").await;
    first.kill();
    server.kill();

    let second = setup(&directory, &server.address()).ready();
    let client = second.client().await;
    submit(&client, "early", "succeed").await;
    let status = until(&client, "early", "blocked", |status| {
        status.common.condition(&ConditionType::Blocked).is_some()
    })
    .await;
    let (reason, message) = said(&status, &ConditionType::Blocked);
    assert_eq!(reason, "EndpointUnavailable");
    assert!(
        message.contains("TEMPORAL_ADDRESS") && message.contains(&server.address()),
        "{message}"
    );
    server.restart();
    reached(&client, "early", &RunPhase::Succeeded).await;
    server.ask("finish", &id);

    let after = reached(&client, "lasting", &RunPhase::Succeeded).await;
    let run_id = |status: &AgentRunStatus| status.runtime_ref.as_ref().unwrap().0["runId"].clone();
    assert_eq!(run_id(&before), run_id(&after));
}
