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

/// The cancel of a run, which is the work of a step, was given up while its pod was there.
fn outlived() -> World {
    let mut world = World::of_a_step();
    world.settle().works("lint-job").settle();
    world.edit(|run| run.spec.stop.cancel = true).settle();
    world.wait(60).settle();
    assert_eq!(
        world.condition(&ConditionType::Cancelled).reason,
        Reason::CancelTimedOut
    );
    world
}

#[test]
fn what_outlived_a_cancel_is_recorded_when_it_is_gone_and_the_end_stays_what_it_is() {
    let mut world = outlived();
    let ended = world.status();
    assert_eq!(ended.survivors_gone_at, None);
    world.wait(3 * 3600).settle();
    assert_eq!(world.status(), ended, "its pod is still there");

    world.pods_vanish().settle();
    let gone = world.status();
    assert_eq!(gone.survivors_gone_at.map(|at| at.0), Some(world.now));
    assert_eq!(
        (gone.phase.as_ref(), gone.finished_at, &gone.common.conditions),
        (ended.phase.as_ref(), ended.finished_at, &ended.common.conditions)
    );
    assert_eq!(
        world.deeds.last().map(String::as_str),
        Some("release lint-job for 600 s")
    );

    let deeds = world.deeds.len();
    world.wait(60).settle();
    assert_eq!((world.status(), world.deeds.len()), (gone, deeds));
}

#[test]
fn what_outlived_a_cancel_and_its_job_is_removed_and_recorded_too() {
    let mut world = outlived();
    // Somebody takes the Job by force, and leaves its pod.
    let job = world.observed.jobs.remove("lint-job").expect("a Job");
    world.settle();
    assert_eq!(world.deeds.last().map(String::as_str), Some("delete lint-job-x"));
    assert_eq!(world.status().survivors_gone_at, None);
    let uid = crate::decision::Uid(job.metadata.uid.clone().unwrap_or_default());
    world.observed.pods.remove(&uid);
    world.settle();

    assert_eq!(world.status().survivors_gone_at.map(|at| at.0), Some(world.now));
}

#[test]
fn a_version_that_let_the_jobs_go_without_a_word_leaves_a_run_of_which_nobody_knows() {
    let mut world = outlived();
    world.observed.jobs.clear();
    world.observed.pods.clear();
    world.questions.clear();
    let before = world.status();
    world.wait(3600).settle();

    assert_eq!(world.status(), before);
    assert!(world.questions.is_empty(), "{:?}", world.questions);
}

#[test]
fn a_child_that_is_deleted_after_its_cancel_was_given_up_tells_its_parent_too() {
    let mut world = outlived();
    let now = world.now;
    world
        .edit(|run| run.metadata.deletion_timestamp = Some(Time(now)))
        .settle();
    assert_eq!(world.status().survivors_gone_at, None);
    world.pods_vanish().settle();

    assert_eq!(world.status().survivors_gone_at.map(|at| at.0), Some(world.now));
    assert!(world.observed.run.is_some(), "its parent lets it go");
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
