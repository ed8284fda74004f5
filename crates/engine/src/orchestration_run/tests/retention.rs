//! How long a run is kept that has ended.

use std::time::Duration;

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    labels,
    phase::RunPhase,
    reason::Reason,
};
use kube::ResourceExt;
use serde_json::json;

use super::world::{World, agent};
use crate::decision::ChildKind;

/// A run of one step that has ended, at the beginning of all time.
fn ended(spec: serde_json::Value) -> World {
    let mut world = World::with(json!([agent("a", json!({}))]), spec);
    world.settle();
    world.ends("run-a-1", RunPhase::Succeeded);
    world.log.clear();
    world
}

#[test]
fn a_run_is_deleted_when_its_own_time_has_come_or_that_of_the_settings() {
    for (spec, seconds) in [
        (json!({}), 30 * 24 * 3600),
        (json!({"ttlSecondsAfterFinished": 60}), 60),
    ] {
        let mut world = ended(spec);
        assert_eq!(world.wake_at, Some(world.now + Duration::from_secs(seconds)));
        world.pass(seconds - 1);
        world.settle();
        assert!(world.run.is_some());
        world.pass(1);
        world.settle();
        assert_eq!(world.log, ["delete run run"]);
        assert!(world.run.is_none());
    }
}

#[test]
fn zero_keeps_a_run_for_good() {
    let mut world = ended(json!({"ttlSecondsAfterFinished": 0}));
    assert_eq!(world.wake_at, None);
    world.pass(10 * 365 * 24 * 3600);
    world.settle();
    assert!(world.run.is_some());
}

#[test]
fn a_run_that_somebody_wants_to_keep_stays_and_in_doubt_says_so() {
    for (value, warned) in [("true", false), ("perhaps", true)] {
        let mut world = ended(json!({"ttlSecondsAfterFinished": 60}));
        let run = world.run.as_mut().expect("a run");
        run.annotations_mut()
            .insert(labels::RETAIN.to_owned(), value.to_owned());
        world.pass(3600);
        world.settle();
        let run = world.run.as_ref().expect("it is kept");
        let status = run.status.as_ref().expect("a status");
        let warning = status.common.condition(&ConditionType::Warning);
        let told = warning.map(|warning| (&warning.status, &warning.reason));
        let expected = warned.then_some((&ConditionStatus::True, &Reason::InvalidRetain));
        assert_eq!(told, expected, "{value}");

        let run = world.run.as_mut().expect("a run");
        run.annotations_mut()
            .insert(labels::RETAIN.to_owned(), "false".to_owned());
        world.settle();
        assert!(world.run.is_none(), "{value}");
    }
}

#[test]
fn a_run_that_is_a_child_stays_until_its_parent_has_recorded_its_end() {
    let mut world = ended(json!({"ttlSecondsAfterFinished": 60}));
    let run = world.run.as_mut().expect("a run");
    run.metadata.finalizers = Some(vec![labels::RUNTIME_CLEANUP_FINALIZER.to_owned()]);
    run.metadata.owner_references = serde_json::from_value(json!([{
        "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun", "name": "above", "uid": "above",
        "controller": true,
    }]))
    .expect("an owner");
    world.pass(3600);
    world.settle();
    let run = world.run.as_mut().expect("its parent needs it");
    run.metadata.finalizers = None;
    world.settle();
    assert!(world.run.is_none());
}

#[test]
fn a_run_whose_child_is_not_let_go_stays() {
    let mut world = ended(json!({"ttlSecondsAfterFinished": 60}));
    // Somebody put it back, and the child has not ended.
    world.edit(ChildKind::AgentRun, "run-a-1", |child| {
        child["metadata"]["finalizers"] = json!([labels::RUNTIME_CLEANUP_FINALIZER]);
        child["status"]["phase"] = json!("Running");
    });
    world.pass(3600);
    world.settle();
    assert!(world.run.is_some());
}
