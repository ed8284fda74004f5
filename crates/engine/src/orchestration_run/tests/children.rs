//! What children have from their parent, and what becomes of them where nobody looks after orchestrations.

use std::collections::BTreeSet;

use jangar_api::{condition::ConditionType, phase::RunPhase, reason::Reason};
use kube::ResourceExt;
use serde_json::json;

use super::world::{World, agent};
use crate::{
    decision::{ChildKind, Decision, Effect, Refusal},
    job,
    orchestration_run::Child,
    settings::{Namespaces, Settings},
};

/// One step of each kind that has a child.
fn of_every_kind() -> World {
    World::of(json!([
        agent("a", json!({"dependsOn": []})),
        {"name": "t", "kind": "ToolRun", "toolRef": {"name": "lint"}, "dependsOn": []},
        {"name": "o", "kind": "SubOrchestration", "orchestrationRef": {"name": "other"}, "dependsOn": []},
    ]))
}

fn labelled(world: &mut World, labels: &[(&str, &str)]) {
    let run = world.run.as_mut().expect("a run");
    let own = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    run.labels_mut().extend(own);
}

#[test]
fn a_child_has_the_labels_that_every_run_must_have_from_its_parent() {
    let mut world = of_every_kind();
    world.settings.policy.labels_required = vec!["team".to_owned(), "example.com/cost".to_owned()];
    labelled(
        &mut world,
        &[("team", "core"), ("example.com/cost", "7"), ("mood", "good")],
    );
    world.settle();

    assert_eq!(world.names(), ["run-a-1", "run-t-1", "run-o-1"]);
    for name in ["run-a-1", "run-t-1", "run-o-1"] {
        let step = name.trim_start_matches("run-").trim_end_matches("-1");
        assert_eq!(
            world.child(name)["metadata"]["labels"],
            json!({
                "team": "core", "example.com/cost": "7",
                "jangar.proompteng.ai/orchestration-run": "run", "jangar.proompteng.ai/orchestration-step": step,
            })
        );
    }
}

#[test]
fn a_run_that_lacks_such_a_label_is_rejected_before_a_step_starts() {
    let mut world = of_every_kind();
    world.settings.policy.labels_required = vec!["team".to_owned()];
    world.settle();

    assert_eq!(world.phase(), RunPhase::Failed);
    assert_eq!(
        world.reason(&ConditionType::Failed),
        Some(Reason::MissingRequiredLabels)
    );
    assert!(world.names().is_empty());
}

#[test]
fn no_policy_is_about_the_labels_that_jangar_gives_itself() {
    let policies: [fn(&mut Settings); 2] = [
        |settings| settings.policy.labels_allowed = vec!["team".to_owned()],
        |settings| settings.policy.labels_denied = vec!["*/*".to_owned()],
    ];
    for policy in policies {
        let mut world = of_every_kind();
        policy(&mut world.settings);
        world.settings.policy.labels_required = vec!["team".to_owned()];
        labelled(&mut world, &[("team", "core")]);
        world.settle();
        let child = &world.children[&(ChildKind::AgentRun, "run-a-1".to_owned())];
        let Child::AgentRun(child) = child else {
            panic!("{child:?}");
        };
        assert_eq!(job::check_any_runtime(child, &world.settings), Ok(()));
    }
}

/// Somebody switches orchestrations off, for all namespaces or for this one.
fn switched_off() -> [fn(&mut Settings); 2] {
    [
        |settings| settings.orchestrations_enabled = false,
        |settings| {
            let other = BTreeSet::from(["another".to_owned()]);
            settings.orchestration_namespaces = Namespaces::These(other);
        },
    ]
}

fn delete(world: &mut World, kind: ChildKind, name: &str) {
    world.edit(kind, name, |child| {
        child["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
    });
}

#[test]
fn where_orchestrations_are_not_looked_after_a_deleted_child_goes_when_it_has_stopped() {
    for switch_off in switched_off() {
        let mut world = of_every_kind();
        world.settle();
        switch_off(&mut world.settings);
        world.log.clear();
        for (kind, name) in [
            (ChildKind::AgentRun, "run-a-1"),
            (ChildKind::OrchestrationRun, "run-o-1"),
        ] {
            delete(&mut world, kind, name);
        }
        world.settle();
        assert_eq!(world.log, ["release run-o-1"], "the agent may still work");
        world.ends("run-a-1", RunPhase::Cancelled);
        assert_eq!(world.log, ["release run-o-1", "release run-a-1"]);
        assert!(world.is_held("run-t-1"), "nobody deleted it");
    }
}

#[test]
fn where_orchestrations_are_not_looked_after_nothing_starts_and_nothing_is_recorded() {
    for switch_off in switched_off() {
        let mut world = World::of(json!([agent("a", json!({})), agent("b", json!({}))]));
        world.settle();
        let writes = world.status_writes;
        let on = world.settings.clone();
        switch_off(&mut world.settings);
        world.ends("run-a-1", RunPhase::Succeeded);
        assert_eq!((world.status_writes, world.names()), (writes, vec!["run-a-1"]));
        assert!(
            world.is_held("run-a-1"),
            "its end is recorded when they are again"
        );

        world.settings = on;
        world.settle();
        assert_eq!([world.stands("a"), world.stands("b")], ["Succeeded", "Running"]);
        assert!(!world.is_held("run-a-1"));
    }
}

#[test]
fn many_children_that_the_api_server_will_never_take_are_recorded_before_the_next_are_sent() {
    let steps: Vec<_> = (0..50)
        .map(|number| agent(&format!("s{number:02}"), json!({"dependsOn": []})))
        .collect();
    let mut world = World::of(json!(steps));
    for number in 0..40 {
        let refusal = Refusal {
            code: 422,
            message: "spec.parameters: too many".to_owned(),
        };
        let name = format!("run-s{number:02}-1");
        world.refusals.insert((ChildKind::AgentRun, name), refusal);
    }
    let mut creates = Vec::new();
    // It is accepted, the refusals are recorded, and the others are sent.
    for _ in 0..3 {
        let Decision::Act(plan) = world.plan() else {
            panic!("{:?}", world.plan());
        };
        let made = |effect: &&Effect| matches!(effect, Effect::CreateChild(_));
        creates.push(plan.effects.iter().filter(made).count());
        let run = world.run.as_mut().expect("a run");
        run.status = plan.status.or_else(|| run.status.take());
    }

    assert_eq!(creates, [0, 0, 10]);
    assert_eq!(world.stands("s39"), "Failed/ChildRejected");
    world.settle();
    assert_eq!(world.names().len(), 10);
}
