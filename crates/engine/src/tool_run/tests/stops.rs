//! Timeout, cancel and deletion: over when the pod is.

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::World;

fn timed() -> World {
    World::new().with_tool(&json!({"image": "linter:1", "command": ["lint"], "timeoutSeconds": 60}))
}

#[test]
fn a_run_that_takes_too_long_has_failed_when_its_pod_is_dead() {
    let mut world = timed();
    world.settle().works("lint-job").settle();
    assert_eq!(world.wake_at, Some(world.now + std::time::Duration::from_mins(1)));
    world.wait(60).settle();
    assert_eq!(world.deeds, ["create lint-job", "stop lint-job"]);
    assert_eq!(world.phase(), Some(RunPhase::Running), "its pod has its grace");
    world.pods_vanish().settle();
    assert_eq!(world.phase(), Some(RunPhase::Failed));
    let failed = world.condition(&ConditionType::Failed);
    assert_eq!(failed.reason, Reason::TimedOut);
    assert!(failed.message.contains("60 s"), "{}", failed.message);
}

#[test]
fn what_ended_well_at_the_last_moment_did_not_take_too_long() {
    let mut world = timed();
    world.settle().works("lint-job").settle();
    world.wait(60).pod_ended("lint-job", 0, "").settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
}

#[test]
fn the_timeout_is_the_one_that_the_job_was_made_for() {
    let mut world = timed();
    world.settle().works("lint-job").settle();
    world.tool(&json!({"image": "linter:1", "command": ["lint"], "timeoutSeconds": 1}));
    world.wait(30).settle();
    assert_eq!(world.deeds, ["create lint-job"]);
}

#[test]
fn a_cancelled_run_is_cancelled_when_its_pod_is_gone_and_not_before() {
    let mut world = World::new();
    world.settle().works("lint-job").settle();
    world.edit(|run| {
        run.spec.stop.desired_state = Some(jangar_api::cancel::DesiredState::Cancelled);
        run.spec.stop.cancel_reason = Some("not needed".to_owned());
    });
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
    assert_eq!(world.deeds, ["create lint-job", "stop lint-job"]);
    world.pods_vanish().settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    let cancelled = world.condition(&ConditionType::Cancelled);
    assert_eq!(cancelled.status, ConditionStatus::True);
    assert!(cancelled.message.contains("not needed"), "{}", cancelled.message);
}

#[test]
fn a_cancel_that_takes_too_long_names_who_is_left() {
    let mut world = World::new();
    world.settle().works("lint-job").settle();
    world.edit(|run| run.spec.stop.cancel = true).settle();
    world.wait(60).settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    let cancelled = world.condition(&ConditionType::Cancelled);
    assert_eq!(cancelled.reason, Reason::CancelTimedOut);
    assert!(
        cancelled.message.contains("pod lint-job-x"),
        "{}",
        cancelled.message
    );
}

#[test]
fn a_cancel_that_comes_too_late_is_answered() {
    for (code, reason) in [(0, Reason::AlreadySucceeded), (1, Reason::AlreadyFailed)] {
        let mut world = World::new();
        world.settle().pod_ended("lint-job", code, "").settle();
        let phase = world.phase();
        world.edit(|run| run.spec.stop.cancel = true).settle();
        assert_eq!(world.phase(), phase);
        let cancelled = world.condition(&ConditionType::Cancelled);
        assert_eq!(
            (cancelled.status, cancelled.reason),
            (ConditionStatus::False, reason)
        );
    }
}

#[test]
fn an_edited_spec_stops_the_run() {
    let mut world = World::new();
    world.settle().works("lint-job").settle();
    world.edit(|run| {
        run.spec.parameters.insert("path".to_owned(), "other".to_owned());
    });
    world.settle().pods_vanish().settle();
    assert_eq!(
        world.condition(&ConditionType::Failed).reason,
        Reason::SpecImmutableViolation
    );
}

#[test]
fn the_job_of_a_deleted_run_is_stopped_and_let_go() {
    let mut world = World::new();
    world.settle().works("lint-job").settle();
    world.observed.run = None;
    world.settle();
    assert_eq!(world.deeds.last().map(String::as_str), Some("stop lint-job"));
    world.pods_vanish().settle();
    assert_eq!(world.deeds.last().map(String::as_str), Some("release lint-job"));
}

#[test]
fn a_child_that_is_deleted_ends_for_its_parent_when_its_pod_is_gone() {
    let mut world = World::of_a_step();
    world.settle().works("lint-job").settle();
    let now = world.now;
    world
        .edit(|run| run.metadata.deletion_timestamp = Some(Time(now)))
        .settle();
    assert_eq!(world.phase(), Some(RunPhase::Running), "its pod is there");
    assert_eq!(world.deeds.last().map(String::as_str), Some("stop lint-job"));
    world.pods_vanish().settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    assert_eq!(world.condition(&ConditionType::Cancelled).reason, Reason::Stopped);
}

#[test]
fn a_child_that_is_cancelled_or_has_ended_stays_until_its_parent_lets_it_go() {
    let mut world = World::of_a_step();
    world.settle().works("lint-job").settle();
    world.edit(|run| run.spec.stop.cancel = true).settle();
    world.pods_vanish().settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    world.wait(40 * 24 * 3600).settle();
    assert!(
        !world.deeds.iter().any(|deed| deed.contains("run")),
        "{:?}",
        world.deeds
    );
    // Its parent has recorded its end.
    world.edit(|run| run.metadata.finalizers = None).settle();
    assert_eq!(world.deeds.last().map(String::as_str), Some("delete run lint"));
}

#[test]
fn a_deleted_run_that_lost_its_parent_is_let_go_when_nothing_of_it_is_left() {
    let mut world = World::of_a_step();
    world.edit(|run| run.metadata.owner_references = None);
    world.settle().works("lint-job").settle();
    let now = world.now;
    world
        .edit(|run| run.metadata.deletion_timestamp = Some(Time(now)))
        .settle();
    assert_eq!(world.deeds.last().map(String::as_str), Some("stop lint-job"));
    world.pods_vanish().settle();
    let last: Vec<&str> = world.deeds.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(last, ["let the run go", "release lint-job"]);
}
