//! Orchestrations on `jangar up`: the examples of the chart, run as they are, and cancels with real processes.

use std::path::Path;

use jangar_api::{
    agents::agent_run::AgentRun,
    approvals::ApprovalPolicy,
    condition::{ConditionStatus, ConditionType},
    orchestration::{
        Orchestration,
        orchestration_run::{OrchestrationRun, OrchestrationRunStatus},
    },
    phase::RunPhase,
    reason::Reason,
    signals::{Signal, SignalDelivery},
    tools::{Tool, ToolRun},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    agent_runs::agent,
    objects::create,
    process::{PATIENCE, Setup, Up, eventually, processes_with},
};

fn runs(client: &Client) -> Api<OrchestrationRun> {
    Api::default_namespaced(client.clone())
}

/// Waits until a run is as it should be, and returns its status.
async fn reached(
    client: &Client,
    name: &str,
    is: impl Fn(&OrchestrationRunStatus) -> bool + Send,
) -> OrchestrationRunStatus {
    let there = |run: Option<&OrchestrationRun>| run.and_then(|run| run.status.as_ref()).is_some_and(&is);
    let waited = timeout(PATIENCE, await_condition(runs(client), name, there)).await;
    match waited {
        Ok(run) => run.unwrap().unwrap().status.unwrap(),
        Err(elapsed) => panic!("{elapsed}: {:#?}", runs(client).get(name).await.unwrap().status),
    }
}

async fn ended(client: &Client, name: &str) -> OrchestrationRunStatus {
    reached(client, name, |status| {
        status.phase.as_ref().is_some_and(RunPhase::is_terminal)
    })
    .await
}

/// How the steps stand: name, phase, and the reason if there is one.
fn steps_of(status: &OrchestrationRunStatus) -> Vec<String> {
    let steps = status.step_statuses.iter();
    steps
        .map(|step| {
            let phase = step
                .progress
                .phase
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            match &step.reason {
                Some(reason) => format!("{} {phase}/{reason}", step.name),
                None => format!("{} {phase}", step.name),
            }
        })
        .collect()
}

fn with_example(directory: &Path, name: &str) -> Up {
    let example = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../charts/agents/examples")
        .join(name);
    Setup::on(directory)
        .with(&["-f", example.to_str().unwrap()])
        .ready()
}

/// A fresh `jangar` with the Agent `shell`, which runs this script.
async fn with_agent(directory: &Path, script: &str) -> (Up, Client) {
    let up = Setup::on(directory).ready();
    let client = up.client().await;
    agent(
        &client,
        "shell",
        json!({"binary": "/bin/sh", "argsTemplate": ["-c", script]}),
    )
    .await;
    (up, client)
}

#[tokio::test]
async fn the_example_of_two_steps_hands_on_what_the_first_one_built() {
    let directory = tempfile::tempdir().unwrap();
    let up = with_example(directory.path(), "orchestration-two-steps.yaml");
    let client = up.client().await;

    let status = ended(&client, "build-and-test").await;

    assert_eq!(steps_of(&status), ["build Succeeded", "test Succeeded"]);
    assert_eq!(status.phase, Some(RunPhase::Succeeded));
    let tested = status.step_statuses[1].outputs.as_ref().unwrap();
    assert_eq!(tested.0["tested"], "adder:1");
    let children: Api<AgentRun> = Api::default_namespaced(client.clone());
    eventually_released(&children).await;
    assert_eq!(up.stop(), Some(0));
}

/// Waits until no child is held by its parent any more.
async fn eventually_released(children: &Api<AgentRun>) {
    let held = async || {
        let list = children.list(&ListParams::default()).await.unwrap();
        list.iter()
            .any(|run| run.metadata.finalizers.iter().flatten().next().is_some())
    };
    let released = async {
        while held().await {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, released).await.unwrap();
}

#[tokio::test]
async fn the_example_of_a_diamond_ends_as_its_comment_says() {
    let directory = tempfile::tempdir().unwrap();
    let up = with_example(directory.path(), "orchestration-diamond.yaml");
    let client = up.client().await;

    let status = ended(&client, "diamond").await;

    assert_eq!(
        steps_of(&status),
        [
            "checkout Succeeded",
            "lint Failed/AgentRunFailed",
            "test Succeeded",
            "merge Succeeded",
            "docs Failed/AgentRunFailed",
            "publish Skipped/DependencyFailed",
            "announce Skipped/ConditionFalse",
        ]
    );
    assert_eq!(status.phase, Some(RunPhase::Failed));
    assert_eq!(status.step_statuses[5].caused_by.as_deref(), Some("docs"));
    assert_eq!(up.stop(), Some(0));
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "every caller makes the value on the spot"
)]
fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "every caller makes the value on the spot"
)]
fn step(name: &str, fields: Value) -> Value {
    let mut step = json!({
        "name": name, "kind": "AgentRun", "agentRef": {"name": "shell"},
        "implementation": {"inline": {"text": "Do it."}},
    });
    step.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    step
}

#[tokio::test]
async fn a_cancel_ends_every_process_also_those_that_ignore_it() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path())
        .variable("JANGAR_ORCHESTRATION_CANCEL_TIMEOUT_MS", "30000")
        .ready();
    let client = up.client().await;
    let script = "trap '' TERM; echo {{ agentRun.uid }}; while :; do sleep 1; done";
    agent(
        &client,
        "shell",
        json!({"binary": "/bin/sh", "argsTemplate": ["-c", script]}),
    )
    .await;
    let both = json!({"steps": [
        step("a", json!({"dependsOn": []})), step("b", json!({"dependsOn": []})), step("c", json!({"dependsOn": ["a"]})),
    ]});
    create::<Orchestration>(&client, object("Orchestration", "endless", both)).await;
    let spec = json!({"orchestrationRef": {"name": "endless"}});
    create::<OrchestrationRun>(&client, object("OrchestrationRun", "endless", spec)).await;
    let running = reached(&client, "endless", |status| {
        steps_of(status)[..2] == ["a Running", "b Running"]
    })
    .await;
    let uids: Vec<String> = running.step_statuses[..2]
        .iter()
        .map(|step| step.resource_ref.as_ref().unwrap().uid.clone().unwrap())
        .collect();
    for uid in &uids {
        eventually("the agent works", || processes_with(uid) > 0);
    }

    let patch = Patch::Merge(json!({"spec": {"cancel": true, "cancelReason": "changed my mind"}}));
    runs(&client)
        .patch("endless", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let status = ended(&client, "endless").await;

    assert_eq!(status.phase, Some(RunPhase::Cancelled));
    let cancelled = status.common.condition(&ConditionType::Cancelled).unwrap();
    assert_eq!(cancelled.reason, Reason::Cancelled, "{}", cancelled.message);
    assert!(
        cancelled.message.contains("changed my mind"),
        "{}",
        cancelled.message
    );
    for uid in &uids {
        assert_eq!(processes_with(uid), 0);
    }
    assert_eq!(
        steps_of(&status),
        [
            "a Cancelled/RunCancelled",
            "b Cancelled/RunCancelled",
            "c Skipped/RunCancelled"
        ]
    );
    assert!(
        status
            .cancel_receipt
            .iter()
            .all(|receipt| receipt.asked_at.is_some() && receipt.gone_at.is_some())
    );
    assert_eq!(status.cancel_receipt.len(), 2);
    assert_eq!(up.stop(), Some(0));
}

#[tokio::test]
async fn a_signal_releases_the_step_that_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let (up, client) = with_agent(directory.path(), "exit 0").await;
    let waits = json!({"steps": [
        {"name": "wait", "kind": "SignalWait", "signalRef": {"name": "merged"}},
        step("after", json!({})),
    ]});
    create::<Orchestration>(&client, object("Orchestration", "waits", waits)).await;
    let spec = json!({"orchestrationRef": {"name": "waits"}});
    create::<OrchestrationRun>(&client, object("OrchestrationRun", "waits", spec)).await;
    reached(&client, "waits", |status| {
        steps_of(status)
            .first()
            .is_some_and(|step| step == "wait Running/SignalPending")
    })
    .await;

    let delivery = json!({
        "apiVersion": "signals.proompteng.ai/v1alpha1", "kind": "SignalDelivery", "metadata": {"name": "merged-1"},
        "spec": {"signalRef": {"name": "merged"}, "payload": {"commit": "abc"}},
    });
    create::<SignalDelivery>(&client, delivery).await;

    let status = ended(&client, "waits").await;
    assert_eq!(steps_of(&status), ["wait Succeeded", "after Succeeded"]);
    let deliveries: Api<SignalDelivery> = Api::default_namespaced(client.clone());
    let used = deliveries
        .get("merged-1")
        .await
        .unwrap()
        .status
        .unwrap()
        .consumed_by
        .unwrap();
    assert_eq!((used.run.as_deref(), used.step.as_str()), (Some("waits"), "wait"));
    assert_eq!(up.stop(), Some(0));
}

#[tokio::test]
async fn a_definition_with_a_cycle_is_told_and_its_run_starts_when_it_is_mended() {
    let directory = tempfile::tempdir().unwrap();
    let (up, client) = with_agent(directory.path(), "exit 0").await;
    let cycle =
        json!({"steps": [step("a", json!({"dependsOn": ["b"]})), step("b", json!({"dependsOn": ["a"]}))]});
    create::<Orchestration>(&client, object("Orchestration", "cycle", cycle)).await;
    let spec = json!({"orchestrationRef": {"name": "cycle"}});
    create::<OrchestrationRun>(&client, object("OrchestrationRun", "cycle", spec)).await;

    let definitions: Api<Orchestration> = Api::default_namespaced(client.clone());
    let told = |definition: Option<&Orchestration>| {
        let status = definition.and_then(|definition| definition.status.as_ref());
        let ready = status.and_then(|status| status.common.condition(&ConditionType::Ready));
        ready.is_some_and(|ready| ready.reason == Reason::DependencyCycle)
    };
    timeout(PATIENCE, await_condition(definitions.clone(), "cycle", told))
        .await
        .unwrap()
        .unwrap();
    reached(&client, "cycle", |status| {
        let blocked = status.common.condition(&ConditionType::Blocked);
        blocked.is_some_and(|blocked| blocked.message.contains("a -> b -> a"))
    })
    .await;
    let patch = Patch::Merge(json!({"spec": {"steps": [step("a", json!({"dependsOn": []}))]}}));
    definitions
        .patch("cycle", &PatchParams::default(), &patch)
        .await
        .unwrap();

    let status = ended(&client, "cycle").await;
    assert_eq!(steps_of(&status), ["a Succeeded"]);
    assert_eq!(up.stop(), Some(0));
}

/// An object of another group.
#[expect(
    clippy::needless_pass_by_value,
    reason = "every caller makes the value on the spot"
)]
fn of_group(group: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{group}.proompteng.ai/v1alpha1"), "kind": kind, "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn a_tool_of_a_step_hands_on_its_outputs_and_all_of_it_goes_when_its_time_has_come() {
    let directory = tempfile::tempdir().unwrap();
    let (up, client) = with_agent(directory.path(), "exit 0").await;
    let script = "printf '{\"outputs\": {\"words\": \"3\"}}' > /dev/termination-log";
    let tool = json!({"image": "any", "command": ["/bin/sh", "-c", script]});
    create::<Tool>(&client, of_group("tools", "Tool", "count", tool)).await;
    let steps = json!({"steps": [
        {"name": "count", "kind": "ToolRun", "toolRef": {"name": "count"}},
        step("after", json!({"with": {"words": "{{ steps.count.outputs.words }}"}})),
    ]});
    create::<Orchestration>(&client, object("Orchestration", "tools", steps)).await;
    let spec = json!({"orchestrationRef": {"name": "tools"}});
    create::<OrchestrationRun>(&client, object("OrchestrationRun", "tools", spec)).await;

    let status = ended(&client, "tools").await;

    assert_eq!(steps_of(&status), ["count Succeeded", "after Succeeded"]);
    let children: Api<AgentRun> = Api::default_namespaced(client.clone());
    let after = children.get("tools-after-1").await.unwrap();
    assert_eq!(after.spec.parameters["words"], "3");
    let tools: Api<ToolRun> = Api::default_namespaced(client.clone());
    let count = tools.get("tools-count-1").await.unwrap();
    assert!(count.status.unwrap().retention.is_some());

    let patch = Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": 1}}));
    let uid = runs(&client)
        .patch("tools", &PatchParams::default(), &patch)
        .await
        .unwrap()
        .metadata
        .uid
        .unwrap();
    gone(runs(&client), "tools", &uid).await;
    gone(children, "tools-after-1", &after.metadata.uid.unwrap()).await;
    gone(tools, "tools-count-1", &count.metadata.uid.unwrap()).await;
    assert_eq!(up.stop(), Some(0));
}

async fn gone<K>(api: Api<K>, name: &str, uid: &str)
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    let waited = timeout(PATIENCE, await_condition(api, name, is_deleted(uid))).await;
    waited
        .unwrap_or_else(|_| panic!("{name} is still there"))
        .unwrap();
}

#[tokio::test]
async fn what_steps_wait_for_says_whether_it_can_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let (up, client) = with_agent(directory.path(), "exit 0").await;
    let policy = json!({"subjects": [{"kind": "Agent", "name": "codex"}]});
    create::<ApprovalPolicy>(&client, of_group("approvals", "ApprovalPolicy", "nobody", policy)).await;
    let delivery = json!({"signalRef": {"name": "merged"}});
    create::<SignalDelivery>(
        &client,
        of_group("signals", "SignalDelivery", "merged-1", delivery),
    )
    .await;

    let policies: Api<ApprovalPolicy> = Api::default_namespaced(client.clone());
    let told = |policy: Option<&ApprovalPolicy>| {
        let ready = policy.and_then(|policy| policy.status.as_ref()?.common.condition(&ConditionType::Ready));
        ready.is_some_and(|ready| ready.reason == Reason::InvalidSpec)
    };
    timeout(PATIENCE, await_condition(policies, "nobody", told))
        .await
        .unwrap()
        .unwrap();
    let deliveries: Api<SignalDelivery> = Api::default_namespaced(client.clone());
    let phase_is = |word: &'static str| {
        move |delivery: Option<&SignalDelivery>| {
            let phase = delivery.and_then(|delivery| delivery.status.as_ref()?.phase.as_ref());
            phase.is_some_and(|phase| phase.as_str() == word)
        }
    };
    let pending = await_condition(deliveries.clone(), "merged-1", phase_is("Pending"));
    timeout(PATIENCE, pending).await.unwrap().unwrap();

    create::<Signal>(&client, of_group("signals", "Signal", "merged", json!({}))).await;

    let delivered = await_condition(deliveries, "merged-1", phase_is("Delivered"));
    timeout(PATIENCE, delivered).await.unwrap().unwrap();
    let signals: Api<Signal> = Api::default_namespaced(client.clone());
    let heard = |signal: Option<&Signal>| {
        let status = signal.and_then(|signal| signal.status.as_ref());
        let ready = status.and_then(|status| status.common.condition(&ConditionType::Ready));
        ready.is_some_and(|ready| ready.status == ConditionStatus::True)
            && status.is_some_and(|status| status.last_delivery_at.is_some())
    };
    timeout(PATIENCE, await_condition(signals, "merged", heard))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(up.stop(), Some(0));
}

#[tokio::test]
async fn a_policy_says_when_a_gate_was_last_decided_under_it() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let client = up.client().await;
    create::<ApprovalPolicy>(
        &client,
        of_group("approvals", "ApprovalPolicy", "anybody", json!({})),
    )
    .await;
    let steps = json!({"steps": [{"name": "gate", "kind": "ApprovalGate", "policyRef": "anybody"}]});
    create::<Orchestration>(
        &client,
        of_group("orchestration", "Orchestration", "gated", steps),
    )
    .await;
    let run = json!({"orchestrationRef": {"name": "gated"}});
    create::<OrchestrationRun>(
        &client,
        of_group("orchestration", "OrchestrationRun", "gated-1", run),
    )
    .await;
    let shown = |status: &OrchestrationRunStatus| {
        let mut steps = status.step_statuses.iter();
        steps.find_map(|step| step.waits_for.as_ref()?.digest.clone())
    };
    let waiting = reached(&client, "gated-1", |status| shown(status).is_some()).await;

    let decision = json!({"status": {"approvals": [{
        "step": "gate", "policy": "anybody", "decision": "Approved", "by": "ada", "at": "2026-03-01T12:00:00Z",
        "digest": shown(&waiting),
    }]}});
    runs(&client)
        .patch_status("gated-1", &PatchParams::default(), &Patch::Merge(&decision))
        .await
        .unwrap();

    assert_eq!(ended(&client, "gated-1").await.phase, Some(RunPhase::Succeeded));
    let policies: Api<ApprovalPolicy> = Api::default_namespaced(client.clone());
    let told = |policy: Option<&ApprovalPolicy>| {
        let at = policy.and_then(|policy| policy.status.as_ref()?.last_decision_at);
        at.is_some_and(|at| at.0.to_string() == "2026-03-01T12:00:00Z")
    };
    timeout(PATIENCE, await_condition(policies, "anybody", told))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(up.stop(), Some(0));
}

#[tokio::test]
async fn without_orchestrations_a_child_can_be_deleted_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let (up, client) = with_agent(directory.path(), "while :; do sleep 1; done").await;
    let steps = json!({"steps": [step("a", json!({}))]});
    create::<Orchestration>(&client, object("Orchestration", "endless", steps)).await;
    let spec = json!({"orchestrationRef": {"name": "endless"}});
    create::<OrchestrationRun>(&client, object("OrchestrationRun", "endless", spec)).await;
    reached(&client, "endless", |status| steps_of(status) == ["a Running"]).await;
    assert_eq!(up.stop(), Some(0));

    let up = Setup::on(directory.path())
        .variable("JANGAR_ORCHESTRATION_CONTROLLER_ENABLED", "false")
        .ready();
    let client = up.client().await;
    let children: Api<AgentRun> = Api::default_namespaced(client.clone());
    let uid = children.get("endless-a-1").await.unwrap().metadata.uid.unwrap();
    children
        .delete("endless-a-1", &DeleteParams::default())
        .await
        .unwrap();

    gone(children, "endless-a-1", &uid).await;
    assert_eq!(up.stop(), Some(0));
}
