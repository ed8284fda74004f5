//! What is read from objects.

use jangar_api::agents::agent_run::AgentRun;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use serde_json::{Value, json};

use super::key;
use crate::queue::{
    Facts,
    facts::{Demand, Hold, Stands, repository_of},
};

fn agent_run(status: &Value) -> AgentRun {
    serde_json::from_value(json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun",
        "metadata": {"name": "one", "uid": "run-1", "creationTimestamp": "2026-03-01T12:00:00Z"},
        "spec": {
            "agentRef": {"name": "Fixer.v2"}, "runtime": {"type": "job"}, "priority": 3, "idempotencyKey": " k ",
            "parameters": {"repo": " ", "issueRepository": "Team/App"},
        },
        "status": status,
    }))
    .expect("a run")
}

fn job(owner: &str, status: &Value) -> Job {
    serde_json::from_value(json!({
        "metadata": {
            "name": "one-job", "uid": "job-1",
            "labels": {"agents.proompteng.ai/agent": "fixer-v2"},
            "annotations": {
                "agents.proompteng.ai/admitted-at": "2026-03-01T12:00:05Z", "agents.proompteng.ai/repository": "team/app",
            },
            "ownerReferences": [{
                "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun", "name": "one", "uid": owner,
                "controller": true,
            }],
        },
        "status": status,
    }))
    .expect("a Job")
}

fn pod(phase: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": "one-job-x", "uid": "pod-1", "labels": {"agents.proompteng.ai/agent": "fixer-v2"},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "one-job", "uid": "job-1", "controller": true},
            ],
        },
        "status": {"phase": phase},
    }))
    .expect("a pod")
}

fn facts(run: Option<&AgentRun>, job: Option<&Job>, pod: Option<&Pod>) -> Facts {
    Facts::of(&key("one"), run, job, pod, true)
}

fn stands(status: &Value) -> Stands {
    facts(Some(&agent_run(status)), None, None)
        .run
        .expect("a run")
        .stands
}

#[test]
fn run_is_known_by_its_agent_repository_priority_and_key() {
    let demand = Demand::of("agents", &agent_run(&json!({})));
    assert_eq!(demand.lane.agent, "Fixer.v2");
    assert_eq!(demand.lane.repository.as_deref(), Some("team/app"));
    assert_eq!(
        (demand.priority, demand.idempotency_key.as_deref()),
        (3, Some("k"))
    );
    let resolved = agent_run(&json!({"vcs": {"repository": "Team/Other"}}));
    assert_eq!(repository_of(&resolved).as_deref(), Some("team/other"));
}

#[test]
fn slot_is_held_from_the_job_to_the_end_of_its_pod() {
    let run = agent_run(&json!({}));
    let works = json!({"active": 1});
    let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    for (status, phase, held) in [
        (&works, None, true),
        (&works, Some("Pending"), true),
        (&works, Some("Running"), true),
        (&works, Some("Succeeded"), false),
        (&works, Some("Failed"), false),
        (&complete, None, false),
        (&complete, Some("Running"), true),
    ] {
        let pod = phase.map(pod);
        let job = job("run-1", status);
        let facts = facts(Some(&run), Some(&job), pod.as_ref());
        let [slot] = facts.slots.as_slice() else {
            panic!("one slot: {facts:?}")
        };
        assert_eq!(slot.hold != Hold::Over, held, "{status} {phase:?}");
        assert_eq!(slot.lane.agent, "Fixer.v2");
        assert!(facts.run.expect("a run").executed);
    }
}

#[test]
fn pod_that_outlives_its_job_or_its_run_holds_the_slot() {
    let run = agent_run(&json!({"phase": "Cancelled"}));
    let living = pod("Running");
    let without_job = facts(Some(&run), None, Some(&living));
    assert!(
        without_job
            .slots
            .iter()
            .any(|slot| slot.hold != Hold::Over && slot.lane.agent == "Fixer.v2")
    );
    let nothing_else = facts(None, None, Some(&living));
    assert!(
        nothing_else
            .slots
            .iter()
            .any(|slot| slot.hold != Hold::Over && slot.lane.agent == "fixer-v2")
    );
    let without_run = facts(None, Some(&job("run-0", &json!({}))), None);
    assert_eq!(without_run.slots[0].lane.agent, "fixer-v2");
    assert!(facts(Some(&run), None, Some(&pod("Failed"))).slots.is_empty());
}

#[test]
fn job_of_an_earlier_run_of_the_name_takes_a_slot_and_is_not_this_runs_own() {
    let run = agent_run(&json!({}));
    let facts = facts(Some(&run), Some(&job("run-0", &json!({}))), None);
    assert_eq!(facts.slots[0].hold, Hold::Job);
    let run = facts.run.expect("a run");
    assert_eq!((run.stands, run.executed), (Stands::Contends, false));
}

#[test]
fn run_contends_if_it_is_new_or_says_that_it_waits_for_its_turn() {
    let blocked = |reason: &str, status: &str| json!({"phase": "Pending", "conditions": [{"type": "Blocked", "status": status, "reason": reason}]});
    assert_eq!(stands(&json!({})), Stands::Contends);
    assert_eq!(stands(&blocked("QueueLimit", "True")), Stands::Contends);
    assert_eq!(stands(&blocked("MissingAgent", "True")), Stands::Apart);
    assert_eq!(stands(&blocked("MissingAgent", "False")), Stands::Contends);
    assert_eq!(stands(&json!({"runtimeRef": {"name": "one-job"}})), Stands::Apart);
    for phase in ["Succeeded", "Failed", "Cancelled", "Cancelling"] {
        assert_eq!(stands(&json!({"phase": phase})), Stands::Over, "{phase}");
    }
    let mut cancelled = agent_run(&json!({}));
    cancelled.spec.stop.cancel = true;
    let of = |cancels| {
        Facts::of(&key("one"), Some(&cancelled), None, None, cancels)
            .run
            .expect("a run")
            .stands
    };
    assert_eq!((of(true), of(false)), (Stands::Over, Stands::Contends));
}

#[test]
fn run_that_no_job_executes_holds_its_slot_by_its_status() {
    let mut run = agent_run(&json!({"phase": "Running", "admittedAt": "2026-03-01T12:00:05Z"}));
    assert!(facts(Some(&run), None, None).slots.is_empty(), "a Job would");
    run.spec.runtime.type_ = jangar_api::agents::agent_run::RuntimeType::Custom;
    assert_eq!(facts(Some(&run), None, None).slots[0].hold, Hold::Pod);
    run.status.get_or_insert_default().phase = Some(jangar_api::phase::RunPhase::Failed);
    assert_eq!(facts(Some(&run), None, None).slots[0].hold, Hold::Over);
    // Whoever does the work may not have been told that the run is over.
    let removing = serde_json::from_value(json!({"removingUntil": "2026-03-01T13:00:00Z"}));
    run.status.get_or_insert_default().runtime_ref = removing.expect("an object");
    assert_eq!(facts(Some(&run), None, None).slots[0].hold, Hold::Pod);
}
