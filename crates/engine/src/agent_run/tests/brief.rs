//! Where there is much to do, what may be over in a moment is told when it is.

use jangar_api::{
    agents::agent_run::AgentRunStatus,
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
};
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use super::World;
use crate::{
    agent_run::plan,
    decision::{Decision, Plan},
};

/// A run where there is much to do.
fn busy() -> World {
    let mut world = World::new();
    world.observed.busy = true;
    world
}

/// A pod whose agent was started at this time.
fn works_since(at: Timestamp) -> Value {
    json!({"phase": "Running", "containerStatuses": [{
        "name": "agent-runner", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "state": {"running": {"startedAt": at.to_string()}},
    }]})
}

#[test]
fn a_pod_that_ends_soon_is_told_of_once() {
    let mut world = busy();
    let begun = world.now;
    world.settle().pod("mend-job", &works_since(begun)).settle();
    assert_eq!(world.statuses, 0, "it may be over in a moment");
    world.wait(2).settle();
    world.pod_ended("mend-job", 0, &json!({})).settle();

    assert_eq!(world.statuses, 1);
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert!(!world.is_held("mend-job"));
}

#[test]
fn a_pod_that_works_on_is_told_of_after_three_seconds() {
    let mut world = busy();
    let begun = world.now;
    world.settle().pod("mend-job", &works_since(begun)).settle();
    assert_eq!(world.wake_at, Some(begun + 3.seconds()));
    world.wait(3).settle();

    assert_eq!(world.statuses, 1);
    assert_eq!(world.phase(), Some(RunPhase::Running));
}

#[test]
fn a_wait_that_is_over_is_taken_back_with_the_end_of_a_quick_pod() {
    let mut world = busy();
    world.settle().wait(10).settle();
    assert_eq!(
        world.condition(&ConditionType::Blocked).status,
        ConditionStatus::True
    );
    let begun = world.now;
    world.pod("mend-job", &works_since(begun)).settle();
    assert_eq!(world.statuses, 1, "nothing is said yet");
    world.wait(1).pod_ended("mend-job", 0, &json!({})).settle();

    assert_eq!(world.statuses, 2);
    assert_eq!(
        world.condition(&ConditionType::Blocked).status,
        ConditionStatus::False
    );
}

#[test]
fn a_node_whose_clock_is_ahead_silences_no_run() {
    let mut world = busy();
    let ahead = world.now + 60.seconds();
    world.settle().pod("mend-job", &works_since(ahead)).settle();

    assert_eq!(world.phase(), Some(RunPhase::Running));
}

#[test]
fn where_there_is_little_to_do_a_run_says_at_once_that_its_pod_works() {
    let mut world = World::new();
    let begun = world.now;
    world.settle().pod("mend-job", &works_since(begun)).settle();

    assert_eq!(world.phase(), Some(RunPhase::Running));
}

/// What would be done now.
fn planned(world: &World) -> Plan<AgentRunStatus> {
    match plan(&world.observed, &world.settings, world.now) {
        Decision::Act(plan) => plan,
        Decision::Look(questions) => panic!("{questions:?}"),
    }
}

#[test]
fn what_a_pod_waits_for_is_told_in_turn_for_a_minute_and_then_in_any_case() {
    let mut world = busy();
    let made = world.now;
    world.settle();
    world.wait(10);
    let first = planned(&world);
    assert!(first.status.is_some() && first.gives_way);
    assert!(
        first.wake_at.is_some_and(|at| at <= made + 60.seconds()),
        "it does not depend on its turn: {:?}",
        first.wake_at
    );
    world.wait(50);
    let late = planned(&world);
    assert!(late.status.is_some() && !late.gives_way);
}

#[test]
fn the_end_of_a_run_gives_way_to_nobody() {
    let mut world = busy();
    let begun = world.now;
    world.settle().pod("mend-job", &works_since(begun)).settle();
    world.pod_ended("mend-job", 1, &json!({}));
    let end = planned(&world);
    assert!(end.status.is_some() && !end.gives_way);
}
