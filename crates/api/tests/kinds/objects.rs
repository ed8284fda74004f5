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

/// Reads an object and writes it again: nothing may change. Gives back what was read.
fn assert_survives<K: Resource<DynamicType = ()> + Serialize + DeserializeOwned>(body: Value) -> K {
    let mut stored = body;
    stored["apiVersion"] = json!(K::api_version(&()));
    stored["kind"] = json!(K::kind(&()));
    stored["metadata"] = json!({"name": "one", "namespace": "agents"});
    let read: K = serde_json::from_value(stored.clone()).expect("a stored object is readable");
    assert_eq!(serde_json::to_value(&read).expect("serializes"), stored);
    read
}

#[test]
fn keys_of_open_objects_survive() {
    assert_survives::<Orchestration>(json!({"spec": {
            "steps": [{
                "name": "build", "kind": "AgentRun", "agentRef": {"name": "coder"}, "with": {},
                "runtime": {"type": "job", "config": {"nodeSelector": {}}}, "signalRef": "go", "secrets": ["a"],
            }],
            "policies": {"anything": [1, {"goes": null}]},
        }, "status": {"phase": "Ready"}}));
    assert_survives::<OrchestrationRun>(
        json!({"spec": {"orchestrationRef": {"name": "o"}}, "status": {"stepStatuses": [{
            "name": "a", "kind": "ToolRun", "outputs": {"n": 1, "deep": {"er": []}}, "addedLater": {"x": true},
        }]}}),
    );
    assert_survives::<AgentRun>(json!({"spec": {
            "agentRef": {"name": "a"}, "priority": 0,
            "runtime": {"type": "job", "config": {"tolerations": [], "affinity": {"nodeAffinity": {}}, "n": 1.5}},
        }, "status": {"runtimeRef": {"type": "job", "attempt": 2}}}));
    assert_survives::<ApprovalPolicy>(
        json!({"spec": {"mode": "manual", "quorum": 2, "rules": [{"who": "all"}]}, "status": {}}),
    );
    assert_survives::<Budget>(
        json!({"spec": {"limits": {"tokens": "5", "requests": 7}}, "status": {"used": {"seats": {"a": 1}}}}),
    );
    assert_survives::<Signal>(
        json!({"spec": {"channel": "c", "payload": {"k": [null]}, "extra": false}, "status": {}}),
    );
    assert_survives::<SignalDelivery>(
        json!({"spec": {"signalRef": {"name": "s"}, "payload": {}}, "status": {}}),
    );
    assert_survives::<ToolRun>(
        json!({"spec": {"toolRef": {"name": "t"}, "runtime": {"any": {"thing": 1}}}, "status": {"runtimeRef": {"name": "job", "more": []}}}),
    );
}

#[test]
fn absent_and_empty_dependencies_differ() {
    let step = |extra: Value| {
        let mut step = json!({"name": "a", "kind": "Checkpoint"});
        step.as_object_mut()
            .expect("a step")
            .extend(extra.as_object().expect("fields").clone());
        let read: Orchestration = assert_survives(json!({"spec": {"steps": [step]}}));
        read.spec.steps[0].depends_on.clone()
    };
    assert_eq!(step(json!({})), None);
    assert_eq!(step(json!({"dependsOn": []})), Some(vec![]));
    assert_eq!(step(json!({"dependsOn": ["b"]})), Some(vec!["b".to_owned()]));
}

#[test]
fn words_of_other_versions_survive() {
    let read = assert_survives::<OrchestrationRun>(
        json!({"spec": {"orchestrationRef": {"name": "o"}, "desiredState": "Paused"}, "status": {
            "phase": "Hibernating",
            "conditions": [{"type": "Dreaming", "status": "Perhaps", "reason": "Full moon", "message": "zzz"}],
            "stepStatuses": [{"name": "a", "kind": "Séance", "phase": "Haunted", "reason": "Ghosts"}],
        }}),
    );
    let status = read.status.expect("a status");
    assert!(matches!(&status.phase, Some(RunPhase::Other(word)) if word.as_str() == "Hibernating"));
    assert_eq!(status.step_statuses[0].kind, StepKind::from("Séance"));
}

#[test]
fn times_keep_their_precision() {
    assert_survives::<ToolRun>(
        json!({"spec": {"toolRef": {"name": "t"}}, "status": {"startedAt": "2026-02-07T12:00:00.123Z", "finishedAt": "2026-02-07T12:00:01Z"}}),
    );
}

#[test]
fn a_cancel_is_written_only_where_it_is_asked_for() {
    assert_survives::<ToolRun>(
        json!({"spec": {"toolRef": {"name": "t"}, "cancel": true, "cancelReason": "late"}, "status": {}}),
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
