//! What was still there when a cancel was given up: the receipt is completed, and nothing waits for that without an end.

use jangar_api::{
    condition::ConditionType, orchestration::orchestration_run::CancelReceipt, phase::RunPhase,
    reason::Reason,
};
use serde_json::{Value, json};

use super::world::{World, agent};
use crate::{decision::ChildKind, explain};

/// The step of each kind that has a child, and the child.
const KINDS: [(ChildKind, &str); 3] = [
    (ChildKind::AgentRun, "run-a-1"),
    (ChildKind::ToolRun, "run-t-1"),
    (ChildKind::OrchestrationRun, "run-o-1"),
];

/// A run of one step of this kind that was cancelled.
fn cancelled(kind: ChildKind) -> World {
    let step = match kind {
        ChildKind::AgentRun => agent("a", json!({})),
        ChildKind::ToolRun => json!({"name": "t", "kind": "ToolRun", "toolRef": {"name": "lint"}}),
        ChildKind::OrchestrationRun => {
            json!({"name": "o", "kind": "SubOrchestration", "orchestrationRef": {"name": "other"}})
        }
    };
    let mut world = World::of(json!([step]));
    world.settle();
    world.run.as_mut().expect("a run").spec.stop.cancel = true;
    world.settle();
    world
}

/// The cancel of its child is given up, and so is that of the run.
fn given_up(kind: ChildKind, child: &str) -> World {
    let mut world = cancelled(kind);
    world.pass(58);
    outlived(&mut world, kind, child);
    world.settle();
    assert_eq!(
        world.reason(&ConditionType::Cancelled),
        Some(Reason::CancelTimedOut)
    );
    world
}

/// A child ends while something of it is still there.
fn outlived(world: &mut World, kind: ChildKind, child: &str) {
    let now = world.now.to_string();
    world.edit(kind, child, |value| {
        value["status"] = json!({
            "phase": "Cancelled", "finishedAt": now,
            "conditions": [{"type": "Succeeded", "status": "False", "reason": "CancelTimedOut"}],
        });
        if kind == ChildKind::OrchestrationRun {
            value["status"]["cancelReceipt"] = json!([
                {"step": "x", "result": "CancelTimedOut"}, {"step": "y", "result": "CancelTimedOut"},
                {"step": "z", "result": "Cancelled", "goneAt": "1970-01-01T00:00:01Z"},
            ]);
        }
    });
}

/// Nothing of it is left any more.
fn gone(world: &mut World, kind: ChildKind, child: &str) {
    let now = json!(world.now.to_string());
    world.edit(kind, child, |value| match kind {
        ChildKind::AgentRun | ChildKind::ToolRun => value["status"]["survivorsGoneAt"] = now,
        ChildKind::OrchestrationRun => {
            value["status"]["cancelReceipt"][0]["goneAt"] = json!("1970-01-01T00:00:59Z");
            value["status"]["cancelReceipt"][1]["goneAt"] = now;
        }
    });
}

fn receipt(world: &World) -> &CancelReceipt {
    let status = world.run.as_ref().and_then(|run| run.status.as_ref());
    &status.expect("a status").cancel_receipt[0]
}

fn gone_at(world: &World) -> Option<i64> {
    receipt(world).gone_at.map(|at| at.0.as_second())
}

fn whole_status(world: &World) -> Value {
    let mut status = serde_json::to_value(&world.run.as_ref().expect("a run").status).expect("JSON");
    let fields = status.as_object_mut().expect("fields");
    fields.remove("cancelReceipt");
    fields.remove("updatedAt");
    status
}

#[test]
fn a_child_that_outlived_the_cancel_is_kept_until_the_receipt_says_when_it_was_gone() {
    for (kind, child) in KINDS {
        let mut world = given_up(kind, child);
        let ended = whole_status(&world);
        let writes = world.status_writes;
        world.pass(600);
        world.settle();
        assert!(world.is_held(child), "{kind}");
        assert_eq!((world.status_writes, gone_at(&world)), (writes, None), "{kind}");

        world.pass(100);
        gone(&mut world, kind, child);
        world.log.clear();
        world.settle();
        assert_eq!(gone_at(&world), Some(758), "{kind}");
        assert_eq!(receipt(&world).result.as_deref(), Some("CancelTimedOut"));
        assert_eq!(world.log, [format!("release {child}")]);
        assert_eq!(world.status_writes, writes + 1, "{kind}");
        assert_eq!(whole_status(&world), ended, "the end stays what it is");

        world.settle();
        assert_eq!(world.status_writes, writes + 1, "{kind}");
    }
}

#[test]
fn the_child_is_let_go_after_the_receipt_is_written_and_not_before() {
    let mut world = given_up(ChildKind::AgentRun, "run-a-1");
    gone(&mut world, ChildKind::AgentRun, "run-a-1");
    let crate::decision::Decision::Act(plan) = world.plan() else {
        panic!("there is nothing to look at");
    };

    assert!(world.is_held("run-a-1"));
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert!(plan.status.is_some());
}

#[test]
fn an_orchestration_below_is_gone_when_the_last_of_its_survivors_is() {
    let mut world = given_up(ChildKind::OrchestrationRun, "run-o-1");
    world.edit(ChildKind::OrchestrationRun, "run-o-1", |value| {
        value["status"]["cancelReceipt"][0]["goneAt"] = json!("1970-01-01T00:01:00Z");
    });
    world.settle();

    assert_eq!(gone_at(&world), None);
    assert!(world.is_held("run-o-1"));
}

#[test]
fn a_survivor_that_went_before_the_run_ended_does_not_make_its_cancel_time_out() {
    let mut world = World::of(json!([
        agent("a", json!({"dependsOn": []})),
        agent("b", json!({"dependsOn": []}))
    ]));
    world.settle();
    world.run.as_mut().expect("a run").spec.stop.cancel = true;
    world.settle();
    world.pass(50);
    outlived(&mut world, ChildKind::AgentRun, "run-a-1");
    world.settle();
    assert_eq!(world.phase(), RunPhase::Cancelling);
    assert!(world.is_held("run-a-1"), "its receipt is not complete");

    gone(&mut world, ChildKind::AgentRun, "run-a-1");
    world.end_because("run-b-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();
    assert_eq!(world.reason(&ConditionType::Cancelled), Some(Reason::Cancelled));
    assert_eq!(gone_at(&world), Some(50));
    assert!(!world.is_held("run-a-1"));
}

/// Two steps of which the first could not be stopped, long before the run is cancelled; all the others have stopped then.
fn cancelled_beside_a_survivor(kind: ChildKind, step: &Value, child: &str) -> World {
    let mut world = World::of(json!([step, agent("b", json!({"dependsOn": []}))]));
    world.settle();
    outlived(&mut world, kind, child);
    world.settle();
    assert!(
        world.is_held(child),
        "{kind}: it is going to tell when nothing of it is left"
    );
    world.pass(100);
    world.run.as_mut().expect("a run").spec.stop.cancel = true;
    world.settle();
    world.end_because("run-b-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();
    world
}

/// The steps of each kind, which depend on nothing.
fn steps() -> [(ChildKind, Value, &'static str); 3] {
    [
        (
            ChildKind::AgentRun,
            agent("a", json!({"dependsOn": []})),
            "run-a-1",
        ),
        (
            ChildKind::ToolRun,
            json!({"name": "t", "kind": "ToolRun", "toolRef": {"name": "lint"}, "dependsOn": []}),
            "run-t-1",
        ),
        (
            ChildKind::OrchestrationRun,
            json!({"name": "o", "kind": "SubOrchestration", "orchestrationRef": {"name": "other"}, "dependsOn": []}),
            "run-o-1",
        ),
    ]
}

#[test]
fn a_cancel_waits_for_what_could_not_be_stopped_before_it_began_and_names_it() {
    for (kind, step, child) in steps() {
        let mut world = cancelled_beside_a_survivor(kind, &step, child);
        assert_eq!(world.phase(), RunPhase::Cancelling, "{kind}");
        assert_eq!(world.wake_at.map(jiff::Timestamp::as_second), Some(158));
        world.pass(58);
        world.settle();

        assert_eq!(
            world.reason(&ConditionType::Cancelled),
            Some(Reason::CancelTimedOut),
            "{kind}"
        );
        let status = whole_status(&world);
        assert!(
            status
                .to_string()
                .contains(&format!("being removed: {kind} {child}")),
            "{status}"
        );
    }
}

#[test]
fn what_went_while_the_cancel_waited_for_it_does_not_make_it_time_out() {
    for (kind, step, child) in steps() {
        let mut world = cancelled_beside_a_survivor(kind, &step, child);
        world.pass(5);
        gone(&mut world, kind, child);
        world.settle();

        assert_eq!(
            world.reason(&ConditionType::Cancelled),
            Some(Reason::Cancelled),
            "{kind}"
        );
        assert!(!world.is_held(child), "{kind}");
    }
}

#[test]
fn what_went_before_the_cancel_is_recorded_and_not_waited_for() {
    for (kind, step, child) in steps() {
        let mut world = World::of(json!([step, agent("b", json!({"dependsOn": []}))]));
        world.settle();
        outlived(&mut world, kind, child);
        world.settle();
        world.pass(70);
        gone(&mut world, kind, child);
        world.settle();
        assert_eq!(
            (gone_at(&world), world.is_held(child)),
            (Some(70), false),
            "{kind}"
        );
        assert_eq!(world.phase(), RunPhase::Running);

        world.run.as_mut().expect("a run").spec.stop.cancel = true;
        world.settle();
        world.end_because("run-b-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
        world.settle();
        assert_eq!(
            world.reason(&ConditionType::Cancelled),
            Some(Reason::Cancelled),
            "{kind}"
        );
    }
}

#[test]
fn no_attempt_starts_beside_what_is_left_of_an_orchestration_however_that_ended() {
    let step = json!({"name": "o", "kind": "SubOrchestration", "orchestrationRef": {"name": "other"}, "retries": 3,
                      "timeoutSeconds": 600});
    for took_too_long in [false, true] {
        for left in [true, false] {
            let mut world = World::of(json!([step]));
            world.settle();
            if took_too_long {
                world.pass(600);
                world.settle();
            }
            let (now, gone_at) = (
                world.now.to_string(),
                if left {
                    Value::Null
                } else {
                    json!(world.now.to_string())
                },
            );
            world.edit(ChildKind::OrchestrationRun, "run-o-1", |child| {
                child["status"] = json!({
                    "phase": "Failed", "finishedAt": now,
                    "conditions": [{"type": "Succeeded", "status": "False", "reason": "StepTimedOut"}],
                    "cancelReceipt": [{"step": "x", "result": "CancelTimedOut", "goneAt": gone_at}],
                });
            });
            world.settle();
            world.pass(3600);
            world.settle();

            assert_eq!(
                world.names().len(),
                if left { 1 } else { 2 },
                "{took_too_long} {left}"
            );
            assert_eq!(world.phase() == RunPhase::Failed, left);
            let message = world.step("o").message.clone().unwrap_or_default();
            assert_eq!(message.contains("could not be stopped"), left, "{message}");
            // Whoever made this run a step of theirs can know it as well.
            let receipts = &world
                .run
                .as_ref()
                .and_then(|run| run.status.as_ref())
                .expect("a status")
                .cancel_receipt;
            assert_eq!(
                receipts.iter().any(|receipt| receipt.gone_at.is_none()),
                left,
                "{receipts:?}"
            );
        }
    }
}

#[test]
fn a_child_that_ends_after_its_parent_gave_up_was_gone_then() {
    let mut world = cancelled(ChildKind::AgentRun);
    world.pass(60);
    world.settle();
    assert_eq!(gone_at(&world), None);
    world.pass(20);
    world.end_because("run-a-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();

    assert_eq!(gone_at(&world), Some(80));
    assert!(!world.is_held("run-a-1"));
}

#[test]
fn a_child_is_kept_for_an_hour_and_the_receipt_is_completed_also_after_that() {
    let mut world = given_up(ChildKind::AgentRun, "run-a-1");
    assert_eq!(world.wake_at.map(jiff::Timestamp::as_second), Some(58 + 3600));
    world.pass(3600);
    world.settle();
    assert!(!world.is_held("run-a-1"));
    assert_eq!(gone_at(&world), None);

    world.pass(42);
    gone(&mut world, ChildKind::AgentRun, "run-a-1");
    world.settle();
    assert_eq!(gone_at(&world), Some(3700));
}

#[test]
fn a_child_that_somebody_deletes_is_kept_for_no_longer_than_a_cancel_takes() {
    let mut world = given_up(ChildKind::AgentRun, "run-a-1");
    world.edit(ChildKind::AgentRun, "run-a-1", |child| {
        child["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:02:00Z");
    });
    world.pass(100);
    world.settle();
    assert!(world.is_held("run-a-1"));
    assert_eq!(world.wake_at.map(jiff::Timestamp::as_second), Some(180));
    world.pass(22);
    world.settle();

    assert!(!world.is_held("run-a-1"));
}

#[test]
fn nothing_is_kept_for_a_run_that_is_deleted_and_nothing_waits_for_a_child_that_is_gone() {
    let mut deleted = given_up(ChildKind::AgentRun, "run-a-1");
    let run = deleted.run.as_mut().expect("a run");
    run.metadata.deletion_timestamp = serde_json::from_value(json!("1970-01-01T00:01:00Z")).expect("a time");
    deleted.settle();
    assert!(!deleted.is_held("run-a-1"));

    let mut alone = given_up(ChildKind::AgentRun, "run-a-1");
    alone.children.clear();
    let writes = alone.status_writes;
    alone.settle();
    assert_eq!((gone_at(&alone), alone.status_writes), (None, writes));
    alone.pass(30 * 24 * 3600);
    alone.settle();
    assert_eq!(alone.log.last().map(String::as_str), Some("delete run run"));
}

#[test]
fn a_child_whose_work_is_done_outside_is_kept_while_somebody_makes_that_end() {
    for runtime in ["custom", "temporal"] {
        let mut world = cancelled(ChildKind::AgentRun);
        world.pass(58);
        outlived(&mut world, ChildKind::AgentRun, "run-a-1");
        world.edit(ChildKind::AgentRun, "run-a-1", |child| {
            child["status"]["runtimeRef"] = json!({"type": runtime, "removingUntil": "1970-01-01T01:00:58Z"});
        });
        world.settle();
        assert!(world.is_held("run-a-1"), "{runtime}");

        world.edit(ChildKind::AgentRun, "run-a-1", |child| {
            child["status"]["runtimeRef"] = json!({"type": runtime});
        });
        world.settle();
        assert!(!world.is_held("run-a-1"), "{runtime}: nobody will know");
        assert_eq!(gone_at(&world), None);

        // It reports after all.
        gone(&mut world, ChildKind::AgentRun, "run-a-1");
        world.settle();
        assert_eq!(gone_at(&world), Some(58), "{runtime}");
    }
}

#[test]
fn who_asks_about_such_a_run_is_told_when_all_was_gone() {
    let mut world = given_up(ChildKind::ToolRun, "run-t-1");
    let told = |world: &World| {
        let run = world.run.as_ref().expect("a run");
        explain::explain(run.into(), &explain::Context::default(), world.now)
    };
    let before = told(&world);
    assert!(
        !before.because.iter().any(|line| line.contains("was gone")),
        "{before}"
    );
    gone(&mut world, ChildKind::ToolRun, "run-t-1");
    world.settle();

    let after = told(&world);
    let line = "what was left then was gone at 1970-01-01T00:00:58Z".to_owned();
    assert!(after.because.contains(&line), "{after}");
    assert_ne!(
        after.commands, before.commands,
        "there is nothing left to look at"
    );
}
