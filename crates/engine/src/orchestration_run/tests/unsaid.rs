//! Where there is much to do, what children do well is told later, and nothing is lost by that.

use jangar_api::{phase::RunPhase, reason::Reason};
use serde_json::json;

use super::world::{World, agent};
use crate::decision::{ChildKind, Decision};

/// These steps, where there is much to do.
fn busy(steps: serde_json::Value) -> World {
    let mut world = World::of(steps);
    world.busy = true;
    world.settle();
    world
}

fn one() -> World {
    busy(json!([agent("a", json!({}))]))
}

/// Three steps, each after the one before.
fn chain() -> World {
    busy(json!([
        agent("a", json!({})),
        agent("b", json!({})),
        agent("c", json!({})),
    ]))
}

fn cancel(world: &mut World) {
    world.run.as_mut().expect("a run").spec.stop.cancel = true;
    world.settle();
}

#[test]
fn a_child_that_ends_soon_is_recorded_in_the_write_that_tells_its_end() {
    let mut world = one();
    assert_eq!(world.names(), ["run-a-1"]);
    assert_eq!(world.status_writes, 1, "that the run was accepted");
    assert_eq!(world.stands("a"), "Pending");
    world.pass(1);
    world.settle();
    world.end("run-a-1", RunPhase::Succeeded, json!({}));
    world.settle();

    assert_eq!(world.status_writes, 2);
    assert_eq!(world.phase(), RunPhase::Succeeded);
    let step = world.step("a");
    assert!(
        step.progress.started_at < step.progress.finished_at,
        "it began when its child was made"
    );
    assert!(!world.is_held("run-a-1"));
}

#[test]
fn a_child_that_works_on_is_recorded_ten_seconds_after_it_was_made() {
    let mut world = one();
    let made = world.now;
    let due = world.wake_at.expect("it looks again");
    assert_eq!(due.duration_since(made).as_secs(), 10);
    world.now = due;
    world.settle();

    assert_eq!(world.status_writes, 2);
    assert_eq!(world.stands("a"), "Running");
    assert_eq!(world.names(), ["run-a-1"], "it was not made twice");
}

#[test]
fn steps_that_are_done_are_told_after_two_seconds_with_all_that_came_of_it() {
    let mut world = chain();
    let before = world.status_writes;
    // In the middle of a second.
    world.now += std::time::Duration::from_millis(500);
    let ended = world.now;
    world.end_now("run-a-1");
    world.settle();
    world.pass(1);
    world.end_now("run-b-1");
    world.settle();
    assert_eq!(world.names(), ["run-a-1", "run-b-1", "run-c-1"]);
    assert_eq!(world.status_writes, before, "all of it is well");
    assert_eq!(world.stands("a"), "Pending");
    assert!(world.is_held("run-a-1"), "nothing recorded its end");
    world.now = world.wake_at.expect("it looks again");
    assert_eq!(world.now.duration_since(ended).as_secs(), 2);
    world.settle();

    assert_eq!(world.status_writes, before + 1);
    assert_eq!(
        [world.stands("a"), world.stands("b"), world.stands("c")],
        ["Succeeded", "Succeeded", "Running"]
    );
    let finished = world.step("a").progress.finished_at.map(|at| at.0);
    assert_eq!(finished, Some(ended), "when it was, and not when it was told");
    let next = world.step("b").progress.started_at.map(|at| at.0);
    assert!(finished <= next, "{finished:?} {next:?}");
    assert!(!world.is_held("run-a-1"));
}

#[test]
fn an_attempt_that_failed_is_told_at_once_although_the_next_one_works() {
    let mut world = busy(json!([
        agent("a", json!({"retries": 1, "retryBackoffSeconds": 0})),
        agent("b", json!({})),
    ]));
    world.end("run-a-1", RunPhase::Failed, json!({}));
    world.settle();

    assert_eq!(world.names(), ["run-a-1", "run-a-2"]);
    assert_eq!(world.stands("a"), "Running");
    assert_eq!(
        world
            .step("a")
            .progress
            .attempt
            .map(jangar_api::values::Int32::get),
        Some(2)
    );
}

#[test]
fn a_child_that_is_not_recorded_is_stopped_with_its_run() {
    let mut world = one();
    cancel(&mut world);

    assert_eq!(world.log, ["create run-a-1", "cancel run-a-1"]);
    assert_eq!(world.phase(), RunPhase::Cancelling);
}

#[test]
fn a_child_behind_others_that_are_not_recorded_is_stopped_with_its_run() {
    let mut world = chain();
    world.end_now("run-a-1");
    world.settle();
    world.end_now("run-b-1");
    world.settle();
    assert_eq!(world.stands("a"), "Pending");
    cancel(&mut world);

    assert!(
        world.log.contains(&"cancel run-c-1".to_owned()),
        "{:?}",
        world.log
    );
    assert_eq!(world.phase(), RunPhase::Cancelling);
    assert_eq!([world.stands("a"), world.stands("b")], ["Succeeded", "Succeeded"]);
    world.end_because("run-c-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();
    assert_eq!(world.phase(), RunPhase::Cancelled);
    let run = world.run.as_ref().and_then(|run| run.status.as_ref());
    let receipt = run
        .map(|status| status.cancel_receipt.clone())
        .unwrap_or_default();
    let steps: Vec<&str> = receipt.iter().map(|receipt| receipt.step.as_str()).collect();
    assert_eq!(steps, ["c"], "what was running");
}

#[test]
fn a_child_behind_a_checkpoint_that_is_not_recorded_is_stopped_with_its_run() {
    let mut world = busy(json!([
        agent("a", json!({})),
        {"name": "half", "kind": "Checkpoint"},
        agent("b", json!({})),
    ]));
    world.end_now("run-a-1");
    // The child is made, and the cancel comes before that is recorded.
    let unrecorded = world.run.clone();
    world.settle();
    assert_eq!(world.names(), ["run-a-1", "run-b-1"]);
    world.run = unrecorded;
    cancel(&mut world);

    assert!(
        world.log.contains(&"cancel run-b-1".to_owned()),
        "{:?}",
        world.log
    );
    assert_eq!(
        [world.stands("a"), world.stands("half")],
        ["Succeeded", "Succeeded"]
    );
}

#[test]
fn a_child_behind_a_step_that_was_skipped_is_stopped_with_its_run() {
    let mut world = busy(json!([
        agent("a", json!({})),
        agent("b", json!({"when": "false", "continueOnFailure": true})),
        agent("c", json!({})),
    ]));
    world.end_now("run-a-1");
    let unrecorded = world.run.clone();
    world.settle();
    assert_eq!(world.names(), ["run-a-1", "run-c-1"]);
    world.run = unrecorded;
    cancel(&mut world);

    assert!(
        world.log.contains(&"cancel run-c-1".to_owned()),
        "{:?}",
        world.log
    );
    assert_eq!(world.phase(), RunPhase::Cancelling);
}

/// Whose outputs are left out depends on who is recorded first, so nothing is made of outputs that are not recorded.
#[test]
fn outputs_that_may_find_no_room_later_are_recorded_before_anything_is_made_of_them() {
    let others = (0..12).map(|number| agent(&format!("p{number}"), json!({"dependsOn": []})));
    let own = [
        agent("q", json!({"dependsOn": []})),
        agent("r", json!({"dependsOn": ["q"]})),
    ];
    let mut world = busy(serde_json::Value::Array(others.chain(own).collect()));
    world.end_now("run-q-1");
    world.edit(ChildKind::AgentRun, "run-q-1", |value| {
        value["status"]["outcome"]["outputs"] = json!({"image": "a"});
    });
    let Decision::Act(plan) = world.plan() else {
        panic!("there is nothing to ask")
    };
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert!(plan.status.is_some() && !plan.gives_way);
    world.settle();
    assert!(world.names().contains(&"run-r-1"));
}

#[test]
fn a_later_attempt_that_is_not_recorded_is_stopped_with_its_run() {
    let mut world = busy(json!([agent(
        "a",
        json!({"retries": 1, "retryBackoffSeconds": 0})
    )]));
    world.end("run-a-1", RunPhase::Failed, json!({}));
    let unrecorded = world.run.clone();
    world.settle();
    assert_eq!(world.names(), ["run-a-1", "run-a-2"]);
    world.run = unrecorded;
    cancel(&mut world);

    assert!(
        world.log.contains(&"cancel run-a-2".to_owned()),
        "{:?}",
        world.log
    );
}

#[test]
fn a_cancel_that_comes_after_the_last_child_has_succeeded_is_too_late() {
    let mut world = one();
    world.end_now("run-a-1");
    cancel(&mut world);

    assert_eq!(world.phase(), RunPhase::Succeeded);
}

#[test]
fn what_children_do_well_is_told_in_turn_for_a_minute_and_then_in_any_case() {
    let mut world = one();
    let made = world.now;
    for (seconds, in_turn) in [(10, true), (50, false)] {
        world.pass(seconds);
        let Decision::Act(plan) = world.plan() else {
            panic!("there is nothing to ask")
        };
        assert!(plan.status.is_some());
        assert_eq!(plan.gives_way, in_turn, "{seconds} s later");
        let bound = made + std::time::Duration::from_mins(1);
        assert!(!in_turn || plan.wake_at == Some(bound), "{:?}", plan.wake_at);
    }
}

#[test]
fn what_very_many_steps_have_done_is_worth_a_write() {
    let steps = |count: usize| {
        let steps = (0..count).map(|number| agent(&format!("s{number}"), json!({"dependsOn": []})));
        busy(serde_json::Value::Array(steps.collect()))
    };
    assert_eq!(steps(64).status_writes, 1, "that the run was accepted");
    assert_eq!(steps(65).status_writes, 2);
}
