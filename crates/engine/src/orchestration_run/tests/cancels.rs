//! Cancel, and deletion.

use std::time::Duration;

use jangar_api::{
    cancel::DesiredState,
    condition::{ConditionStatus, ConditionType},
    labels::{CANCEL_DEADLINE, STOPPED_BY},
    phase::RunPhase,
    reason::Reason,
};
use serde_json::json;

use super::{
    waits::delivery,
    world::{World, agent, diamond},
};
use crate::decision::{ChildKind, Decision};

fn cancel(world: &mut World) {
    world.run.as_mut().expect("a run").spec.stop.cancel = true;
    world.settle();
}

#[test]
fn a_cancel_stops_what_runs_and_ends_when_it_has_stopped() {
    let mut world = World::of(diamond());
    world.settle();
    world.ends("run-a-1", RunPhase::Succeeded);
    cancel(&mut world);

    assert_eq!(world.phase(), RunPhase::Cancelling);
    assert!(
        world
            .log
            .ends_with(&["cancel run-b-1".to_owned(), "cancel run-c-1".to_owned()]),
        "{:?}",
        world.log
    );
    assert_eq!(world.stands("d"), "Skipped/RunCancelled");
    world.end_because("run-b-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();
    assert_eq!(world.phase(), RunPhase::Cancelling);
    world.end_because("run-c-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();

    assert_eq!(world.phase(), RunPhase::Cancelled);
    assert_eq!(world.reason(&ConditionType::Cancelled), Some(Reason::Cancelled));
    assert_eq!(
        [world.stands("a"), world.stands("b")],
        ["Succeeded", "Cancelled/RunCancelled"]
    );
    assert!(!world.names().iter().any(|name| world.is_held(name)));
}

#[test]
fn the_receipt_says_what_ran_and_when_it_was_asked_and_gone() {
    let mut world = World::of(diamond());
    world.settle();
    cancel(&mut world);
    world.pass(3);
    world.end_because("run-a-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();

    let status = world
        .run
        .as_ref()
        .and_then(|run| run.status.as_ref())
        .expect("a status");
    let [receipt] = status.cancel_receipt.as_slice() else {
        panic!("{:#?}", status.cancel_receipt)
    };
    assert_eq!(receipt.step, "a");
    assert_eq!(
        receipt
            .resource_ref
            .as_ref()
            .and_then(|child| child.name.as_deref()),
        Some("run-a-1")
    );
    assert_eq!(receipt.asked_at.map(|at| at.0.as_second()), Some(0));
    assert_eq!(receipt.gone_at.map(|at| at.0.as_second()), Some(3));
    assert_eq!(receipt.result.as_deref(), Some("Cancelled"));
}

#[test]
fn a_child_gives_up_two_seconds_before_its_parent() {
    let mut world = World::of(diamond());
    world.settle();
    cancel(&mut world);

    let deadline = world.child("run-a-1")["metadata"]["annotations"][CANCEL_DEADLINE].clone();
    assert_eq!(deadline, "1970-01-01T00:00:58Z");
}

#[test]
fn at_the_deadline_the_run_is_cancelled_and_names_what_is_left() {
    let mut world = World::of(diamond());
    world.settle();
    cancel(&mut world);
    assert_eq!(world.wake_at.map(jiff::Timestamp::as_second), Some(60));
    world.pass(60);
    world.settle();

    assert_eq!(world.phase(), RunPhase::Cancelled);
    assert_eq!(
        world.reason(&ConditionType::Cancelled),
        Some(Reason::CancelTimedOut)
    );
    let status = world
        .run
        .as_ref()
        .and_then(|run| run.status.as_ref())
        .expect("a status");
    let message = &status
        .common
        .condition(&ConditionType::Cancelled)
        .expect("it")
        .message;
    assert!(message.contains("AgentRun run-a-1"), "{message}");
    let [receipt] = status.cancel_receipt.as_slice() else {
        panic!("{:#?}", status.cancel_receipt)
    };
    assert_eq!(receipt.result.as_deref(), Some("CancelTimedOut"));
    assert_eq!(receipt.gone_at, None, "it is still there");
    assert_eq!(receipt.asked_at.map(|at| at.0.as_second()), Some(0));
}

#[test]
fn a_child_with_survivors_makes_the_cancel_time_out() {
    let mut world = World::of(diamond());
    world.settle();
    cancel(&mut world);
    world.pass(58);
    world.end_because("run-a-1", RunPhase::Cancelled, Reason::CancelTimedOut, json!({}));
    world.settle();

    assert_eq!(
        world.reason(&ConditionType::Cancelled),
        Some(Reason::CancelTimedOut)
    );
}

#[test]
fn what_ended_in_the_same_moment_outranks_the_cancel() {
    let mut world = World::of(json!([agent("a", json!({}))]));
    world.settle();
    world.end("run-a-1", RunPhase::Succeeded, json!({}));
    cancel(&mut world);

    assert_eq!(world.phase(), RunPhase::Succeeded);
    assert_eq!(
        world.reason(&ConditionType::Cancelled),
        Some(Reason::AlreadySucceeded)
    );
}

#[test]
fn a_finished_run_keeps_its_phase_and_answers_the_cancel() {
    let mut world = World::of(json!([agent("a", json!({}))]));
    world.settle();
    world.ends("run-a-1", RunPhase::Failed);
    cancel(&mut world);

    assert_eq!(world.phase(), RunPhase::Failed);
    assert_eq!(
        world.reason(&ConditionType::Cancelled),
        Some(Reason::AlreadyFailed)
    );
}

#[test]
fn a_cancel_that_the_settings_do_not_allow_is_answered_and_honoured_when_they_do() {
    let mut world = World::of(diamond());
    world.settings.runs.cancel_enabled = false;
    world.settle();
    cancel(&mut world);
    assert_eq!(world.phase(), RunPhase::Running);
    assert_eq!(
        world.reason(&ConditionType::Cancelled),
        Some(Reason::CancelDisabled)
    );

    world.settings.runs.cancel_enabled = true;
    world.settle();
    assert_eq!(world.phase(), RunPhase::Cancelling);
}

#[test]
fn what_was_said_of_a_cancel_that_was_not_allowed_goes_when_it_does_not_hold_any_more() {
    let refused = || {
        let mut world = World::of(diamond());
        world.settings.runs.cancel_enabled = false;
        world.settle();
        cancel(&mut world);
        assert_eq!(
            world.reason(&ConditionType::Cancelled),
            Some(Reason::CancelDisabled)
        );
        world
    };
    let mut honoured = refused();
    honoured.settings.runs.cancel_enabled = true;
    honoured.settle();
    assert_eq!(honoured.phase(), RunPhase::Cancelling);
    assert_eq!(
        honoured.reason(&ConditionType::Cancelled),
        Some(Reason::Cancelling)
    );

    let mut withdrawn = refused();
    withdrawn.run.as_mut().expect("a run").spec.stop.cancel = false;
    withdrawn.settle();
    assert_eq!(withdrawn.reason(&ConditionType::Cancelled), Some(Reason::Running));
    cancel(&mut withdrawn);
    assert_eq!(
        withdrawn.reason(&ConditionType::Cancelled),
        Some(Reason::CancelDisabled)
    );
}

#[test]
fn a_run_that_ends_before_its_cancel_is_allowed_answers_as_one_that_had_ended() {
    for (phase, allowed, answer) in [
        (RunPhase::Succeeded, false, Reason::AlreadySucceeded),
        (RunPhase::Succeeded, true, Reason::AlreadySucceeded),
        (RunPhase::Failed, false, Reason::AlreadyFailed),
    ] {
        let mut world = World::of(json!([agent("a", json!({}))]));
        world.settings.runs.cancel_enabled = false;
        world.settle();
        cancel(&mut world);
        // It may be allowed in the moment in which the run ends.
        world.settings.runs.cancel_enabled = allowed;
        world.ends("run-a-1", phase.clone());

        assert_eq!(world.phase(), phase);
        assert_eq!(world.reason(&ConditionType::Cancelled), Some(answer));
    }
}

#[test]
fn a_cancel_before_the_start_ends_at_once() {
    let mut world = World::of(diamond());
    world.definition = None;
    world.settle();
    cancel(&mut world);

    assert_eq!(world.phase(), RunPhase::Cancelled);
    assert!(world.names().is_empty());
}

#[test]
fn a_cancel_that_has_begun_cannot_be_taken_back() {
    let mut world = World::of(diamond());
    world.settle();
    cancel(&mut world);
    world.run.as_mut().expect("a run").spec.stop.cancel = false;
    world.settle();

    assert_eq!(world.phase(), RunPhase::Cancelling);
}

#[test]
fn a_wait_between_two_attempts_ends_with_the_cancel() {
    let mut world = World::of(json!([agent(
        "a",
        json!({"retries": 2, "retryBackoffSeconds": 100})
    )]));
    world.settle();
    world.ends("run-a-1", RunPhase::Failed);
    cancel(&mut world);

    assert_eq!(world.stands("a"), "Cancelled/RunCancelled");
    assert_eq!(world.phase(), RunPhase::Cancelled);
    assert_eq!(world.names(), ["run-a-1"]);
}

#[test]
fn a_child_that_nobody_recorded_is_found_and_stopped() {
    let mut world = World::of(json!([agent("a", json!({})), agent("b", json!({}))]));
    world.settle();
    world.ends("run-a-1", RunPhase::Succeeded);
    // The status knows nothing of `b`, and the cache does not show its child.
    let status = world
        .run
        .as_mut()
        .and_then(|run| run.status.as_mut())
        .expect("a status");
    status.step_statuses.truncate(1);
    world.unseen.insert((ChildKind::AgentRun, "run-b-1".to_owned()));
    cancel(&mut world);

    assert_eq!(world.log.last().map(String::as_str), Some("cancel run-b-1"));
    assert_eq!(world.phase(), RunPhase::Cancelling);
}

#[test]
fn the_children_of_a_deleted_run_are_stopped_and_let_go() {
    let mut world = World::of(diamond());
    world.settle();
    world.run = None;
    world.settle();
    assert_eq!(world.log.last().map(String::as_str), Some("cancel run-a-1"));
    assert!(world.is_held("run-a-1"));
    world.end_because("run-a-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();

    assert!(!world.is_held("run-a-1"));
}

#[test]
fn a_gate_is_closed_by_a_cancel() {
    let mut world = World::of(json!([{"name": "gate", "kind": "ApprovalGate", "policyRef": "release"}]));
    world.settle();
    cancel(&mut world);

    assert_eq!(world.stands("gate"), "Cancelled/RunCancelled");
    assert_eq!(world.phase(), RunPhase::Cancelled);
    let status = world
        .run
        .as_ref()
        .and_then(|run| run.status.as_ref())
        .expect("a status");
    let blocked = status
        .common
        .condition(&ConditionType::Blocked)
        .map(|blocked| blocked.status.clone());
    assert_eq!(blocked, Some(ConditionStatus::False));
}

#[test]
fn what_a_run_stops_itself_stops_also_where_people_may_not_cancel() {
    let mut world = World::of(json!([agent("a", json!({"retries": 1, "timeoutSeconds": 60}))]));
    world.settings.runs.cancel_enabled = false;
    world.settle();
    // Somebody asks the child to stop, which is refused.
    world.edit(ChildKind::AgentRun, "run-a-1", |child| {
        child["spec"]["cancel"] = json!(true);
    });
    world.pass(60);
    world.settle();

    assert_eq!(world.log.last().map(String::as_str), Some("cancel run-a-1"));
    assert_eq!(
        world.child("run-a-1")["metadata"]["annotations"][STOPPED_BY],
        "run-uid"
    );
}

#[test]
fn a_run_that_its_parent_stops_does_so_also_where_people_may_not_cancel() {
    let mut world = World::of(diamond());
    world.settings.runs.cancel_enabled = false;
    world.settle();
    let metadata = &mut world.run.as_mut().expect("a run").metadata;
    metadata.owner_references = serde_json::from_value(json!([
        {"apiVersion": "v1", "kind": "OrchestrationRun", "name": "above", "uid": "above-uid", "controller": true}
    ]))
    .expect("owners");
    metadata.annotations = serde_json::from_value(json!({STOPPED_BY: "above-uid"})).expect("annotations");
    cancel(&mut world);

    assert_eq!(world.phase(), RunPhase::Cancelling);
    assert_eq!(world.reason(&ConditionType::Cancelled), None);
}

#[test]
fn a_run_that_is_cancelled_takes_no_delivery() {
    let mut world = World::of(json!([
        {"name": "wait", "kind": "SignalWait", "signalRef": {"name": "merged"}, "dependsOn": []},
        agent("a", json!({"dependsOn": []})),
    ]));
    world.settle();
    world.log.clear();
    // Both are seen at once.
    world.deliveries = vec![delivery("one", "merged", "1970-01-01T00:00:20Z")];
    cancel(&mut world);

    assert_eq!(world.log, ["cancel run-a-1"]);
    assert_eq!(world.stands("wait"), "Cancelled/RunCancelled");
}

#[test]
fn a_child_that_takes_too_long_in_a_cancelled_run_is_told_once() {
    let mut world = World::of(json!([agent("a", json!({"timeoutSeconds": 60}))]));
    world.settle();
    world.pass(60);
    // The status says that the step takes too long, and the child does not know it yet.
    let Decision::Act(plan) = world.plan() else {
        panic!("there is nothing to look at");
    };
    world.run.as_mut().expect("a run").status = plan.status;
    cancel(&mut world);

    assert_eq!(world.log, ["create run-a-1", "cancel run-a-1"]);
    assert_eq!(world.phase(), RunPhase::Cancelling);
}

#[test]
fn the_count_of_what_is_left_goes_down_while_a_run_is_cancelled() {
    let mut world = World::of(diamond());
    world.settle();
    world.ends("run-a-1", RunPhase::Succeeded);
    let said = |world: &World| {
        let status = world.run.as_ref().and_then(|run| run.status.as_ref());
        let condition = status.and_then(|status| status.common.condition(&ConditionType::Succeeded));
        condition.expect("a condition").message.clone()
    };
    cancel(&mut world);
    assert_eq!(said(&world), "the run is being cancelled: 2 steps are left");
    world.end_because("run-b-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();
    assert_eq!(said(&world), "the run is being cancelled: 1 step is left");
    world.run.as_mut().expect("a run").spec.stop.cancel = false;
    world.settle();
    assert_eq!(
        said(&world),
        "the run is being cancelled: 1 step is left; a cancel that has begun cannot be taken back"
    );
}

#[test]
fn the_wish_that_a_run_be_cancelled_is_the_same_as_a_cancel() {
    let mut world = World::of(diamond());
    world.settle();
    world.run.as_mut().expect("a run").spec.stop.desired_state = Some(DesiredState::Cancelled);
    world.settle();

    assert_eq!(world.phase(), RunPhase::Cancelling);
}

#[test]
fn a_run_below_one_that_is_cancelled_starts_nothing_before_it_is_told() {
    let mut world = World::of(json!([
        agent("a", json!({"dependsOn": []})),
        agent("b", json!({"dependsOn": ["a"]})),
        agent("again", json!({"dependsOn": [], "retries": 1})),
        {"name": "wait", "kind": "SignalWait", "signalRef": {"name": "merged"}, "dependsOn": []},
        {"name": "gate", "kind": "ApprovalGate", "policyRef": "release", "dependsOn": ["a"]},
    ]));
    world.settle();
    world.log.clear();
    world.cancel_above = Some(world.now + Duration::from_secs(58));
    world.deliveries = vec![delivery("one", "merged", "1970-01-01T00:00:20Z")];
    world.end("run-again-1", RunPhase::Failed, json!({}));
    world.pass(60);
    world.ends("run-a-1", RunPhase::Succeeded);

    assert_eq!(world.stands("a"), "Succeeded", "what ended is recorded");
    for step in ["b", "gate"] {
        assert_eq!(world.stands(step), "Pending");
    }
    assert_eq!(world.stands("again"), "Retrying/AgentRunFailed");
    assert!(
        world.log.iter().all(|done| done.starts_with("release")),
        "{:?}",
        world.log
    );
    cancel(&mut world);
    assert_eq!(world.phase(), RunPhase::Cancelled);
    assert_eq!(world.stands("b"), "Skipped/RunCancelled");
}

#[test]
fn a_run_that_has_not_started_does_not_start_below_one_that_is_cancelled() {
    let mut world = World::of(diamond());
    world.cancel_above = Some(world.now + Duration::from_secs(58));
    world.settle();
    assert_eq!((world.status_writes, world.names().len()), (0, 0));
    cancel(&mut world);
    assert_eq!(world.phase(), RunPhase::Cancelled);
}

#[test]
fn a_run_that_is_over_by_itself_ends_also_below_one_that_is_cancelled() {
    let mut world = World::of(json!([agent("a", json!({})), agent("b", json!({}))]));
    world.settle();
    world.cancel_above = Some(world.now + Duration::from_secs(58));
    world.ends("run-a-1", RunPhase::Failed);

    assert_eq!(world.stands("b"), "Skipped/DependencyFailed");
    assert_eq!(world.phase(), RunPhase::Failed);
}

#[test]
fn children_of_every_kind_are_cancelled_and_told_until_when() {
    let mut world = World::of(json!([
        agent("a", json!({"dependsOn": []})),
        {"name": "t", "kind": "ToolRun", "toolRef": {"name": "lint"}, "dependsOn": []},
        {"name": "o", "kind": "SubOrchestration", "orchestrationRef": {"name": "other"}, "dependsOn": []},
    ]));
    world.settle();
    cancel(&mut world);
    for child in ["run-a-1", "run-t-1", "run-o-1"] {
        let child = world.child(child);
        assert_eq!(child["spec"]["cancel"], true, "{child}");
        assert_eq!(
            child["metadata"]["annotations"][CANCEL_DEADLINE],
            "1970-01-01T00:00:58Z"
        );
    }
    // The one below is a run itself, and hands the deadline on, two seconds earlier again.
    let mut below = World::of(diamond());
    below.settle();
    let told = world.child("run-o-1")["metadata"]["annotations"].clone();
    let run = below.run.as_mut().expect("a run");
    run.metadata.annotations = serde_json::from_value(told).expect("annotations");
    cancel(&mut below);
    assert_eq!(
        below.child("run-a-1")["metadata"]["annotations"][CANCEL_DEADLINE],
        "1970-01-01T00:00:56Z"
    );
}
