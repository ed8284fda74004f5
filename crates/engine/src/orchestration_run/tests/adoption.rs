//! A child that is there already is the step's only if the step would make the same.

use jangar_api::{condition::ConditionType, labels::SPEC_HASH, phase::RunPhase, reason::Reason};
use serde_json::{Value, json};

use super::world::{World, agent};
use crate::decision::ChildKind;

const KINDS: [(ChildKind, &str, &str); 3] = [
    (ChildKind::AgentRun, "a", "run-a-1"),
    (ChildKind::ToolRun, "t", "run-t-1"),
    (ChildKind::OrchestrationRun, "o", "run-o-1"),
];

fn of_every_kind() -> World {
    World::with(
        json!([
            agent("a", json!({"dependsOn": [], "secrets": ["one", "two"], "with": {"x": "1"}})),
            {"name": "t", "kind": "ToolRun", "toolRef": {"name": "lint"}, "dependsOn": [],
             "runtime": {"config": {"nodeSelector": null, "weight": 1.0}}},
            {"name": "o", "kind": "SubOrchestration", "orchestrationRef": {"name": "other"}, "dependsOn": []},
        ]),
        json!({"parameters": {"y": "2"}}),
    )
}

/// The children are made and changed, and nobody recorded them.
fn found(change: impl Fn(&mut Value)) -> World {
    let mut made = of_every_kind();
    made.settle();
    for (kind, _, name) in KINDS {
        made.edit(kind, name, &change);
    }
    let mut world = of_every_kind();
    world.children.clone_from(&made.children);
    world
}

#[test]
fn a_child_with_another_spec_is_not_taken_on() {
    let mut world = found(|child| child["spec"]["parameters"]["y"] = json!("3"));
    world.settle();

    for (kind, step, name) in KINDS {
        assert_eq!(world.stands(step), "Failed/NameTaken");
        let message = world.step(step).message.clone().unwrap_or_default();
        assert!(
            message.contains(&format!("{kind} {name} is there already")),
            "{message}"
        );
        assert!(
            message.contains("its spec is not the one of this step"),
            "{message}"
        );
        assert!(message.contains("delete it"), "{message}");
        assert_eq!(world.step(step).resource_ref, None, "it is not the step's");
    }
    assert!(
        !world.log.iter().any(|deed| deed.starts_with("create")),
        "{:?}",
        world.log
    );
    assert_eq!(world.phase(), RunPhase::Failed);
    // Nobody waits for them, and none is held for ever.
    for (kind, _, name) in KINDS {
        world.edit(kind, name, |child| {
            child["status"] = json!({"phase": "Cancelled"});
        });
        world.settle();
        assert!(!world.is_held(name), "{name}");
    }
}

#[test]
fn what_may_be_written_at_any_time_and_what_the_api_server_fills_in_make_no_other_spec() {
    let changes: [fn(&mut Value); 6] = [
        |_| {},
        |child| child["spec"]["cancel"] = json!(true),
        |child| child["spec"]["desiredState"] = json!("Running"),
        |child| child["spec"]["cancelReason"] = json!("words"),
        |child| child["spec"]["ttlSecondsAfterFinished"] = json!(60),
        // As a release made it that said nothing of its spec, and as the schema has it.
        |child| {
            if let Some(annotations) = child["metadata"]["annotations"].as_object_mut() {
                annotations.remove(SPEC_HASH);
            }
            child["metadata"]["generation"] = json!(1);
            let spec = child["spec"].as_object_mut().expect("a spec");
            if spec.contains_key("agentRef") {
                spec.insert("priority".to_owned(), json!(0));
                spec.insert("secrets".to_owned(), json!(["two", "one"]));
            }
            if let Some(runtime) = spec
                .get_mut("runtime")
                .filter(|runtime| runtime["config"]["weight"] == 1.0)
            {
                *runtime = json!({"config": {"weight": 1}});
            }
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut world = found(change);
        world.settle();
        for (_, step, _) in KINDS {
            assert_eq!(world.stands(step), "Running", "{number}");
        }
        assert!(world.log.is_empty(), "{number}: {:?}", world.log);
    }
}

/// A webhook may add to every run that is made. It is in nobody's way.
#[test]
fn what_was_added_while_a_child_was_made_makes_no_other_spec_and_what_was_changed_since_does() {
    for (generation, stands) in [(1, "Running"), (2, "Failed/NameTaken")] {
        let mut world = found(|child| {
            child["metadata"]["generation"] = json!(generation);
            child["spec"]["parameters"]["cost-centre"] = json!("7");
        });
        world.settle();
        for (_, step, _) in KINDS {
            assert_eq!(world.stands(step), stands);
        }
    }
}

#[test]
fn a_child_that_is_recorded_is_not_checked_again() {
    let mut world = of_every_kind();
    world.settle();
    for (kind, _, name) in KINDS {
        world.edit(kind, name, |child| child["spec"]["parameters"]["y"] = json!("3"));
    }
    world.settle();

    for (_, step, _) in KINDS {
        assert_eq!(world.stands(step), "Running");
    }
}

#[test]
fn the_child_of_a_later_attempt_is_checked_as_well() {
    let steps = || json!([agent("a", json!({"retries": 1}))]);
    let mut world = World::of(steps());
    world.settle();
    world.end("run-a-1", RunPhase::Failed, json!({}));
    let mut made = World::of(steps());
    made.children.clone_from(&world.children);
    made.run.clone_from(&world.run);
    made.settle();
    made.edit(ChildKind::AgentRun, "run-a-2", |child| {
        child["spec"]["agentRef"]["name"] = json!("another");
    });
    world.children.clone_from(&made.children);
    world.settle();

    assert_eq!(world.stands("a"), "Failed/NameTaken");
}

#[test]
fn a_cancel_stops_whatever_is_there_and_takes_no_result_from_it() {
    let mut working = found(|child| child["spec"]["parameters"]["y"] = json!("3"));
    let mut over = found(|child| {
        child["spec"]["parameters"]["y"] = json!("3");
        child["status"] = json!({"phase": "Succeeded"});
    });
    for world in [&mut working, &mut over] {
        let found = std::mem::take(&mut world.children);
        let crate::decision::Decision::Act(plan) = world.plan() else {
            panic!("there is nothing to look at");
        };
        let run = world.run.as_mut().expect("a run");
        // The run has started, and knows of no child.
        run.status = plan.status;
        run.spec.stop.cancel = true;
        world.children = found;
        world.settle();
    }

    for (_, step, name) in KINDS {
        assert!(
            working.log.contains(&format!("cancel {name}")),
            "{:?}",
            working.log
        );
        assert_eq!(working.stands(step), "Running");
        assert_eq!(over.stands(step), "Skipped/RunCancelled");
    }
    assert_eq!(over.reason(&ConditionType::Cancelled), Some(Reason::Cancelled));
}
