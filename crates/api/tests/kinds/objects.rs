//! Reads and writes objects through the Rust types: what was stored comes back, whoever wrote it.

use jangar_api::{
    agents::agent_run::AgentRun,
    approvals::ApprovalPolicy,
    artifacts::Artifact,
    budgets::Budget,
    orchestration::{Orchestration, StepKind, orchestration_run::OrchestrationRun},
    phase::RunPhase,
    schedules::Schedule,
    security::SecretBinding,
    signals::{Signal, SignalDelivery},
    tools::{Tool, ToolRun},
    workspaces::Workspace,
};
use kube::{CustomResourceExt, Resource};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn object<K: Resource<DynamicType = ()>>(spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": "one", "namespace": "agents"},
        "spec": spec, "status": status,
    })
}

fn assert_survives<K: Resource<DynamicType = ()> + Serialize + DeserializeOwned>(spec: Value, status: Value) {
    let stored = object::<K>(spec, status);
    let read: K = serde_json::from_value(stored.clone()).expect("a stored object is readable");
    assert_eq!(serde_json::to_value(&read).expect("serializes"), stored);
}

#[test]
fn keys_of_open_objects_survive() {
    assert_survives::<Orchestration>(
        json!({
            "steps": [{
                "name": "build", "kind": "AgentRun", "agentRef": {"name": "coder"}, "with": {},
                "runtime": {"type": "job", "config": {"nodeSelector": {}}}, "signalRef": "go", "secrets": ["a"],
            }],
            "policies": {"anything": [1, {"goes": null}]},
        }),
        json!({"phase": "Ready"}),
    );
    assert_survives::<OrchestrationRun>(
        json!({"orchestrationRef": {"name": "o"}}),
        json!({"stepStatuses": [{
            "name": "a", "kind": "ToolRun", "outputs": {"n": 1, "deep": {"er": []}}, "addedLater": {"x": true},
        }]}),
    );
    assert_survives::<AgentRun>(
        json!({
            "agentRef": {"name": "a"}, "priority": 0,
            "runtime": {"type": "job", "config": {"tolerations": [], "affinity": {"nodeAffinity": {}}, "n": 1.5}},
        }),
        json!({"runtimeRef": {"type": "job", "attempt": 2}}),
    );
    assert_survives::<ApprovalPolicy>(
        json!({"mode": "manual", "quorum": 2, "rules": [{"who": "all"}]}),
        json!({}),
    );
    assert_survives::<Budget>(
        json!({"limits": {"tokens": "5", "requests": 7}}),
        json!({"used": {"seats": {"a": 1}}}),
    );
    assert_survives::<Signal>(
        json!({"channel": "c", "payload": {"k": [null]}, "extra": false}),
        json!({}),
    );
    assert_survives::<SignalDelivery>(json!({"signalRef": {"name": "s"}, "payload": {}}), json!({}));
    assert_survives::<ToolRun>(
        json!({"toolRef": {"name": "t"}, "runtime": {"any": {"thing": 1}}}),
        json!({"runtimeRef": {"name": "job", "more": []}}),
    );
}

#[test]
fn absent_and_empty_dependencies_differ() {
    let step = |extra: Value| {
        let mut step = json!({"name": "a", "kind": "Checkpoint"});
        step.as_object_mut()
            .expect("a step")
            .extend(extra.as_object().expect("fields").clone());
        assert_survives::<Orchestration>(json!({"steps": [step]}), json!({}));
        let read: Orchestration =
            serde_json::from_value(object::<Orchestration>(json!({"steps": [step]}), json!({})))
                .expect("readable");
        read.spec.steps[0].depends_on.clone()
    };
    assert_eq!(step(json!({})), None);
    assert_eq!(step(json!({"dependsOn": []})), Some(vec![]));
    assert_eq!(step(json!({"dependsOn": ["b"]})), Some(vec!["b".to_owned()]));
}

#[test]
fn words_of_other_versions_survive() {
    assert_survives::<OrchestrationRun>(
        json!({"orchestrationRef": {"name": "o"}, "desiredState": "Paused"}),
        json!({
            "phase": "Hibernating",
            "conditions": [{"type": "Dreaming", "status": "Perhaps", "reason": "Full moon", "message": "zzz"}],
            "stepStatuses": [{"name": "a", "kind": "Séance", "phase": "Haunted", "reason": "Ghosts"}],
        }),
    );
    let read: OrchestrationRun = serde_json::from_value(object::<OrchestrationRun>(
        json!({"orchestrationRef": {"name": "o"}}),
        json!({"phase": "Hibernating", "stepStatuses": [{"name": "a", "kind": "AgentRun"}]}),
    ))
    .expect("readable");
    let status = read.status.expect("a status");
    assert!(matches!(&status.phase, Some(RunPhase::Other(word)) if word.as_str() == "Hibernating"));
    assert_eq!(status.step_statuses[0].kind, StepKind::AgentRun);
}

#[test]
fn times_keep_their_precision() {
    assert_survives::<ToolRun>(
        json!({"toolRef": {"name": "t"}}),
        json!({"startedAt": "2026-02-07T12:00:00.123Z", "finishedAt": "2026-02-07T12:00:01Z"}),
    );
}

#[test]
fn a_cancel_is_written_only_where_it_is_asked_for() {
    assert_survives::<ToolRun>(
        json!({"toolRef": {"name": "t"}, "cancel": true, "cancelReason": "late"}),
        json!({}),
    );
    let mut run = ToolRun::new("one", jangar_api::tools::ToolRunSpec::default());
    assert_eq!(
        serde_json::to_value(&run.spec).expect("serializes"),
        json!({"toolRef": {"name": ""}})
    );
    run.spec.stop.cancel = true;
    assert!(run.spec.stop.is_requested());
}

/// These kinds have never required a spec, so an object without one may be stored, and one must not hide all others.
#[test]
fn an_object_without_a_spec_is_readable() {
    fn check<K: CustomResourceExt + Resource<DynamicType = ()> + DeserializeOwned>() {
        let read = serde_json::from_value::<K>(json!({"metadata": {"name": "bare"}}));
        assert!(read.is_ok(), "{}: {:?}", K::crd_name(), read.err());
    }
    check::<Orchestration>();
    check::<OrchestrationRun>();
    check::<ApprovalPolicy>();
    check::<Budget>();
    check::<SecretBinding>();
    check::<Signal>();
    check::<SignalDelivery>();
    check::<Schedule>();
    check::<Tool>();
    check::<ToolRun>();
    check::<Workspace>();
    check::<Artifact>();
}
