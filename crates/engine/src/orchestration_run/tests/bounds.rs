//! How large runs can become, and what is refused because it would be larger.

use jangar_api::{orchestration::orchestration_run::ApprovalDecision, phase::RunPhase, reason::Reason};
use serde_json::{Value, json};

use super::{
    waits::policy,
    world::{World, agent},
};
use crate::{
    approval::{Caller, Request, decide},
    orchestration::OBJECT_MAX_BYTES,
};

/// As the benchmark has it: fifty wide, each step with five of the layer before.
fn wide() -> Value {
    let step = |number: u32| {
        let above = (0..5).map(|place| format!("n{}-{}", number / 50 - 1, (number + place) % 50));
        let above: Vec<String> = if number < 50 { Vec::new() } else { above.collect() };
        json!({
            "name": format!("n{}-{}", number / 50, number % 50), "kind": "AgentRun", "dependsOn": above,
            "agentRef": {"name": "measured-0"}, "implementation": {"inline": {"text": "Be measured."}},
            "runtime": {"type": "job"},
        })
    };
    Value::Array((0..1000).map(step).collect())
}

/// Nothing waits for anything, and there are as many as fit.
fn flat(steps: u32) -> Value {
    let step = |number: u32| agent(&format!("s{number}"), json!({"dependsOn": [], "retries": 100}));
    Value::Array((0..steps).map(step).collect())
}

fn bytes(world: &World) -> usize {
    serde_json::to_string(world.run.as_ref().expect("a run"))
        .expect("JSON")
        .len()
}

#[test]
fn a_run_of_a_thousand_steps_fifty_wide_is_accepted() {
    let mut world = World::of(wide());
    world.settle();

    assert_eq!(world.phase(), RunPhase::Running);
    assert_eq!(world.names().len(), 50);
}

#[test]
fn the_largest_run_that_is_accepted_stays_below_its_bound_in_its_worst_state() {
    let mut world = World::with(flat(1000), json!({"parameters": {"text": "p".repeat(30_000)}}));
    let words = "\"words\" ".repeat(1000);
    world.run.as_mut().expect("a run").spec.stop.cancel_reason = Some(words);
    world.settle();
    assert_eq!(world.names().len(), 1000);
    // All report as much as they may until nothing is left for it, and then the run is cancelled.
    let names: Vec<String> = world.names().into_iter().map(str::to_owned).collect();
    for name in names.iter().take(20) {
        world.end(name, RunPhase::Succeeded, json!({"text": "o".repeat(10_000)}));
    }
    world.settle();
    world.run.as_mut().expect("a run").spec.stop.cancel = true;
    world.settle();
    world.pass(58);
    for name in names.iter().skip(20) {
        world.end_because(name, RunPhase::Cancelled, Reason::CancelTimedOut, json!({}));
    }
    world.settle();

    assert_eq!(world.phase(), RunPhase::Cancelled);
    let bytes = bytes(&world);
    assert!(bytes < OBJECT_MAX_BYTES, "{bytes}");
    assert!(
        bytes > OBJECT_MAX_BYTES / 2,
        "{bytes}: much less than it may have"
    );
}

#[test]
fn a_run_whose_own_fields_leave_no_room_for_its_steps_is_refused_with_the_numbers() {
    let mut world = World::of(flat(1000));
    let note = [("note".to_owned(), "x".repeat(200_000))];
    world.run.as_mut().expect("a run").metadata.annotations = Some(note.into());
    world.settle();

    assert_eq!(world.phase(), RunPhase::Failed);
    let type_ = jangar_api::condition::ConditionType::Failed;
    assert_eq!(world.reason(&type_), Some(Reason::OrchestrationTooLarge));
}

#[test]
fn decisions_take_no_more_room_than_they_have() {
    let mut world = World::of(json!([{"name": "gate", "kind": "ApprovalGate", "policyRef": "release"}]));
    policy(&mut world, json!({}));
    world.settle();
    let digest = world
        .step("gate")
        .waits_for
        .as_ref()
        .and_then(|waits| waits.digest.clone());
    let mut taken = 0;
    for number in 0..100 {
        let run = world.run.as_mut().expect("a run");
        let request = Request {
            step: "gate".to_owned(),
            decision: ApprovalDecision::Approved,
            comment: Some("ü".repeat(5000)),
            digest: digest.clone().expect("a digest"),
        };
        let caller = Caller {
            user: format!("user-{number}"),
            groups: Vec::new(),
        };
        match decide(run, &world.policies["release"], &caller, request, world.now) {
            Ok(status) => {
                run.status = Some(status);
                taken += 1;
            }
            Err(why) => assert!(why.to_string().contains("no room for another one"), "{why}"),
        }
    }
    assert!((15..40).contains(&taken), "{taken}");
}
