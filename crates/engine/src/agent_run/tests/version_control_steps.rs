//! A workflow whose steps work on repositories.

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
    refs::LocalRef,
};
use serde_json::{Value, json};

use super::{
    World, object,
    workflows::{FIRST, SECOND, done, failed, workflow},
};
use crate::{
    agent_run::{providers_needed, wanted_branches},
    decision::Sight,
    vcs::{WantedBranch, tests::Forge},
};

/// A workflow on the repository `example/adder`, with the provider and what it needs in place.
fn on_repository(steps: &Value, forge: &Forge) -> World {
    let mut world = workflow(steps);
    let sight = forge.sight().expect("a provider");
    world.observed.references.vcs.insert("forge".to_owned(), sight);
    world.key_holders.extend(forge.keys.clone());
    world.edit(|run| {
        run.spec.vcs_ref = Some(LocalRef {
            name: "forge".to_owned(),
        });
        run.spec
            .parameters
            .insert("repository".to_owned(), "example/adder".to_owned());
    });
    world
}

fn app() -> Forge {
    let app = json!({"appId": 17, "installationId": 42, "privateKeySecretRef": {"name": "app-key"}});
    Forge::github().provider("/auth", json!({"method": "app", "app": app}))
}

/// The last words of an agent whose commits were pushed.
fn pushed(commits: u32) -> Value {
    let mut words = done(&json!({"branch": "mine", "repository": "example/other"}));
    words["vcs"] = json!({"state": "Pushed", "commit": format!("c{commits}"), "commitsAhead": commits});
    words
}

fn two() -> Value {
    json!([{"name": "plan"}, {"name": "build"}])
}

fn vcs(world: &World) -> Value {
    json!(world.status().vcs)
}

#[test]
fn steps_share_a_branch_and_the_forge_is_asked_for_the_work_of_the_last() {
    let forge = Forge::github().provider("/defaults/branchConflictSuffixTemplate", json!("two"));
    let mut world = on_repository(&two(), &forge);
    let branch = WantedBranch::new("example/adder", "agents/mend");
    world.observed.branch_rivals.insert(branch, "other".to_owned());
    world.begun(FIRST);
    assert_eq!(vcs(&world)["headBranch"], "agents/mend-two");

    // The other run has ended by now.
    world.observed.branch_rivals.clear();
    world.pod_ended(FIRST, 0, &pushed(1)).settle();
    let status = vcs(&world);
    assert_eq!(
        (&status["headBranch"], &status["commit"]),
        (&json!("agents/mend-two"), &json!("c1"))
    );
    assert_eq!(
        world.condition(&ConditionType::Delivered).reason,
        Reason::Progressing
    );
    world.pod_ended(SECOND, 0, &pushed(3)).settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert_eq!(vcs(&world)["commit"], "c3");
    assert_eq!(
        world.condition(&ConditionType::Delivered).reason,
        Reason::Progressing
    );
}

#[test]
fn what_a_step_has_pushed_is_asked_for_also_if_a_later_one_fails() {
    let mut world = on_repository(&two(), &Forge::github());
    world.settle().pod_ended(FIRST, 0, &pushed(1)).settle();
    world
        .pod_ended(SECOND, 1, &json!({"version": 1, "reason": "AgentFailed"}))
        .settle();
    assert_eq!(world.phase(), Some(RunPhase::Failed));
    assert_eq!(vcs(&world)["commit"], "c1");
    let delivered = world.condition(&ConditionType::Delivered);
    assert_eq!(
        (delivered.status, delivered.reason),
        (ConditionStatus::Unknown, Reason::Progressing)
    );
}

#[test]
fn each_step_has_a_token_of_its_own() {
    let mut world = on_repository(&two(), &app());
    world.settle().pod_ended(FIRST, 0, &pushed(1)).settle();
    assert_eq!(
        world.deeds(),
        [
            "hold by [\"agents.proompteng.ai/runtime-cleanup\"]".to_owned(),
            "mint mend-vcs-token-step-1-attempt-1 for example/adder".to_owned(),
            format!("create {FIRST}"),
            "revoke mend-vcs-token-step-1-attempt-1".to_owned(),
            format!("release {FIRST} for 600 s"),
            "mint mend-vcs-token-step-2-attempt-1 for example/adder".to_owned(),
            format!("create {SECOND}"),
        ]
    );
}

#[test]
fn a_repository_that_an_earlier_step_finds_is_judged_when_its_step_starts() {
    let step = json!({"repository": "{{ steps.plan.outputs.repository }}", "head": "{{ steps.plan.outputs.branch }}"});
    let steps = json!([{"name": "plan"}, {"name": "build", "parameters": step}]);
    let mut world = on_repository(&steps, &Forge::github());
    world.edit(|run| run.spec.vcs_policy = Some(object(json!({"required": true}))));
    world.begun(FIRST);
    assert_eq!(world.phase(), Some(RunPhase::Running), "{:#?}", world.status());
    world.pod_ended(FIRST, 0, &pushed(1)).settle();
    let status = vcs(&world);
    assert_eq!(
        (&status["repository"], &status["headBranch"], &status["commit"]),
        (&json!("example/other"), &json!("mine"), &Value::Null)
    );
    let delivered = world.condition(&ConditionType::Delivered);
    assert_eq!(delivered.reason, Reason::DeliveryUnknown);
    assert!(
        delivered.message.contains("agents/mend of example/adder"),
        "{}",
        delivered.message
    );
}

#[test]
fn a_step_comes_to_the_provider_of_its_own_implementation() {
    let own = json!({"implementation": {"inline": {"text": "Build.", "vcsRef": {"name": "forge"}}}, "name": "build"});
    let steps = json!([{"name": "plan"}, own]);
    let mut world = on_repository(&steps, &Forge::github());
    world.edit(|run| run.spec.vcs_ref = None);
    let needed = providers_needed(world.run(), &world.observed.references);
    assert_eq!(needed.into_iter().collect::<Vec<_>>(), ["forge"]);
    world.settle();
    assert_eq!(world.status().vcs, None);
    world.pod_ended(FIRST, 0, &done(&json!({}))).settle();
    assert_eq!(vcs(&world)["provider"], "forge");
}

#[test]
fn a_provider_that_a_later_step_insists_on_is_missed_before_the_first_starts() {
    let own = json!({"implementation": {"inline": {"text": "Build.", "vcsRef": {"name": "forge"}}}, "name": "build"});
    let steps = json!([{"name": "plan", "implementation": own["implementation"]}, own]);
    for (required, phase) in [(true, Some(RunPhase::Pending)), (false, None)] {
        let mut world = on_repository(&steps, &Forge::github());
        world
            .observed
            .references
            .vcs
            .insert("late".to_owned(), Sight::Absent);
        world.edit(|run| {
            run.spec.vcs_ref = None;
            run.spec.vcs_policy = Some(object(json!({"required": required})));
            let steps = &mut run.spec.workflow.as_mut().expect("a workflow").steps;
            let work = steps[1].implementation.as_mut().expect("work of its own");
            work.inline.vcs_ref = Some(LocalRef {
                name: "late".to_owned(),
            });
        });
        world.settle();
        assert_eq!(world.phase(), phase, "{required}");
        assert_eq!(world.deeds().is_empty(), required);
        if required {
            let blocked = world.condition(&ConditionType::Blocked);
            assert_eq!(blocked.reason, Reason::MissingVcsProvider);
            assert!(blocked.message.contains("step build"), "{}", blocked.message);
            world.wait(60).settle();
            assert_eq!(failed(&world).0, Reason::MissingVcsProvider);
        }
    }
}

#[test]
fn the_branches_of_all_steps_are_looked_up() {
    let forge = Forge::github().provider("/defaults/branchConflictSuffixTemplate", json!("two"));
    let steps = json!([
        {"name": "plan"},
        {"name": "build", "parameters": {"head": "mine"}},
        {"name": "tell", "parameters": {"head": "{{ steps.plan.outputs.branch }}"}},
    ]);
    let world = on_repository(&steps, &forge);
    let wanted = wanted_branches(world.run(), &world.observed.references);
    let heads: Vec<String> = wanted.into_iter().map(|branch| branch.head).collect();
    assert_eq!(heads, ["agents/mend", "mine"]);
}
