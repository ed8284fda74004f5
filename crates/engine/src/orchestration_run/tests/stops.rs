//! Runs that stop by themselves: their time is up, or a step failed and they fail fast.

use jangar_api::{condition::ConditionType, phase::RunPhase, reason::Reason};
use serde_json::{Value, json};

use super::{
    waits::{delivery, policy},
    world::{World, agent},
};

fn fail_fast(steps: Value) -> World {
    let mut world = World::with(steps, json!({"failurePolicy": "FailFast"}));
    policy(&mut world, json!({}));
    world.settle();
    world
}

fn was_cancelled(world: &mut World, child: &str) {
    world.end_because(child, RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();
}

#[test]
fn a_run_whose_last_step_succeeded_at_the_last_moment_did_not_take_too_long() {
    let mut world = World::with(json!([agent("a", json!({}))]), json!({"timeoutSeconds": 600}));
    world.settle();
    // It ended in time, and is looked at much later.
    world.pass(4000);
    world.ends("run-a-1", RunPhase::Succeeded);

    assert_eq!(world.phase(), RunPhase::Succeeded);
}

#[test]
fn a_failure_of_the_last_step_is_not_called_a_timeout() {
    let mut world = World::with(
        json!([agent("a", json!({})), agent("b", json!({}))]),
        json!({"timeoutSeconds": 600}),
    );
    world.settle();
    world.pass(4000);
    world.ends("run-a-1", RunPhase::Failed);

    assert_eq!(world.stands("b"), "Skipped/DependencyFailed");
    assert_eq!(world.reason(&ConditionType::Failed), Some(Reason::AgentRunFailed));
}

#[test]
fn a_run_that_fails_fast_keeps_its_verdict_when_its_time_is_up_meanwhile() {
    let mut world = World::with(
        json!([
            agent("a", json!({"dependsOn": []})),
            agent("b", json!({"dependsOn": []}))
        ]),
        json!({"failurePolicy": "FailFast", "timeoutSeconds": 600}),
    );
    world.settle();
    world.ends("run-a-1", RunPhase::Failed);
    world.pass(4000);
    was_cancelled(&mut world, "run-b-1");

    assert_eq!(world.stands("b"), "Cancelled/RunStopping");
    assert_eq!(world.reason(&ConditionType::Failed), Some(Reason::AgentRunFailed));
}

#[test]
fn a_run_whose_time_is_up_keeps_its_verdict_when_a_step_fails_meanwhile() {
    let mut world = World::with(
        json!([
            agent("a", json!({"dependsOn": []})),
            agent("b", json!({"dependsOn": []}))
        ]),
        json!({"failurePolicy": "FailFast", "timeoutSeconds": 600}),
    );
    world.settle();
    world.pass(600);
    world.settle();
    world.ends("run-a-1", RunPhase::Failed);
    was_cancelled(&mut world, "run-b-1");

    assert_eq!(world.stands("a"), "Failed/AgentRunFailed");
    assert_eq!(world.reason(&ConditionType::Failed), Some(Reason::TimedOut));
}

#[test]
fn failing_fast_ends_waits_of_every_kind_and_drops_retries() {
    let mut world = fail_fast(json!([
        agent("retried", json!({"dependsOn": [], "retries": 3, "retryBackoffSeconds": 100})),
        {"name": "gate", "kind": "ApprovalGate", "policyRef": "release", "dependsOn": []},
        {"name": "signal", "kind": "SignalWait", "signalRef": {"name": "merged"}, "dependsOn": []},
        {"name": "sub", "kind": "SubOrchestration", "orchestrationRef": {"name": "other"}, "dependsOn": []},
        agent("bad", json!({"dependsOn": []})),
    ]));
    world.ends("run-retried-1", RunPhase::Failed);
    world.ends("run-bad-1", RunPhase::Failed);

    for step in ["retried", "gate", "signal"] {
        assert_eq!(world.stands(step), "Cancelled/RunStopping", "{step}");
    }
    assert!(
        world.log.contains(&"cancel run-sub-1".to_owned()),
        "{:?}",
        world.log
    );
    assert_eq!(world.phase(), RunPhase::Running);
}

#[test]
fn a_child_that_failed_by_itself_after_it_was_told_to_stop_is_not_tried_again() {
    let mut world = fail_fast(json!([
        agent("a", json!({"dependsOn": []})),
        agent("b", json!({"dependsOn": [], "retries": 2})),
    ]));
    world.ends("run-a-1", RunPhase::Failed);
    world.ends("run-b-1", RunPhase::Failed);

    assert_eq!(world.stands("b"), "Cancelled/RunStopping");
    assert_eq!(world.names(), ["run-a-1", "run-b-1"]);
    assert_eq!(world.phase(), RunPhase::Failed);
}

#[test]
fn a_run_that_stops_takes_no_delivery_and_starts_no_attempt() {
    let mut world = fail_fast(json!([
        {"name": "signal", "kind": "SignalWait", "signalRef": {"name": "merged"}, "dependsOn": []},
        agent("again", json!({"dependsOn": [], "retries": 1, "retryBackoffSeconds": 10})),
        agent("bad", json!({"dependsOn": []})),
    ]));
    world.ends("run-again-1", RunPhase::Failed);
    world.log.clear();
    // All of it is seen at once: the delivery, the time of the next attempt, and the failure.
    world.pass(100);
    world.deliveries = vec![delivery("one", "merged", "1970-01-01T00:00:20Z")];
    world.ends("run-bad-1", RunPhase::Failed);

    assert_eq!(world.log, ["release run-bad-1"]);
    assert_eq!(world.phase(), RunPhase::Failed);
}

#[test]
fn a_step_whose_child_a_person_cancelled_is_not_said_to_have_been_stopped_by_the_run() {
    let mut world = World::with(
        json!([
            agent("a", json!({"dependsOn": []})),
            agent("b", json!({"dependsOn": []}))
        ]),
        json!({"timeoutSeconds": 600}),
    );
    world.settle();
    world.pass(600);
    was_cancelled(&mut world, "run-a-1");

    assert_eq!(world.stands("a"), "Cancelled/StepCancelled");
}

#[test]
fn a_run_that_fails_fast_names_the_step_that_ended_badly_first_and_none_that_it_stopped() {
    // The one that is told to stop is cancelled, or fails by itself; it stands first in the list, and the other one was first.
    for (ends, stands) in [
        (RunPhase::Cancelled, "Cancelled/RunStopping"),
        (RunPhase::Failed, "Failed/AgentRunFailed"),
    ] {
        let mut world = fail_fast(json!([
            agent("a", json!({"dependsOn": []})),
            agent("b", json!({"dependsOn": []})),
        ]));
        was_cancelled(&mut world, "run-b-1");
        world.pass(5);
        world.ends("run-a-1", ends);

        assert_eq!(world.stands("a"), stands);
        assert_eq!(world.reason(&ConditionType::Failed), Some(Reason::StepCancelled));
        let status = world.run.as_ref().and_then(|run| run.status.as_ref());
        let failed = status.and_then(|status| status.common.condition(&ConditionType::Failed));
        assert_eq!(
            failed.map(|failed| failed.message.as_str()),
            Some("step b was cancelled")
        );
    }
}

#[test]
fn a_failure_that_a_step_is_allowed_does_not_stop_a_run_that_fails_fast() {
    let mut world = fail_fast(json!([
        agent("a", json!({"dependsOn": [], "continueOnFailure": true})),
        agent("b", json!({"dependsOn": []})),
        agent("c", json!({"dependsOn": ["a"]})),
    ]));
    world.ends("run-a-1", RunPhase::Failed);

    assert_eq!(world.stands("b"), "Running");
    assert_eq!(world.stands("c"), "Running");
    world.ends("run-b-1", RunPhase::Succeeded);
    world.ends("run-c-1", RunPhase::Succeeded);
    assert_eq!(world.phase(), RunPhase::Succeeded);
}

#[test]
fn a_child_that_a_person_cancelled_stops_a_run_that_fails_fast() {
    let mut world = fail_fast(json!([
        agent("a", json!({"dependsOn": []})),
        agent("b", json!({"dependsOn": []})),
        agent("c", json!({"dependsOn": ["b"]})),
    ]));
    was_cancelled(&mut world, "run-a-1");

    assert_eq!(world.stands("a"), "Cancelled/StepCancelled");
    assert!(
        world.log.contains(&"cancel run-b-1".to_owned()),
        "{:?}",
        world.log
    );
    assert_eq!(world.stands("c"), "Skipped/RunStopping");
    assert_eq!(world.step("c").caused_by.as_deref(), Some("a"));
    was_cancelled(&mut world, "run-b-1");
    assert_eq!(world.phase(), RunPhase::Failed);
    assert_eq!(world.reason(&ConditionType::Failed), Some(Reason::StepCancelled));
}
