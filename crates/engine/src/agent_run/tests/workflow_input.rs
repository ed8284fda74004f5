//! What the steps of a workflow are given: their own values, what earlier steps reported, and mistakes.

use std::sync::Arc;

use jangar_api::{condition::ConditionType, reason::Reason};
use serde_json::json;

use super::{
    object,
    workflows::{FIRST, SECOND, done, failed, phases, plan_and_build, run_document, workflow},
};
use crate::decision::Sight;

#[test]
fn what_a_step_did_not_report_fails_the_one_that_needs_it_by_its_path() {
    let mut world = plan_and_build();
    world
        .settle()
        .pod_ended(FIRST, 0, &done(&json!({"other": 1})))
        .settle();
    let (reason, message) = failed(&world);
    assert_eq!(reason, Reason::WorkflowStepFailed);
    assert!(
        message.contains("steps.plan.outputs.branch") && message.contains("steps[1].parameters.branch"),
        "{message}"
    );
    assert_eq!(phases(&world), ["Succeeded", "Failed"]);
    let about = |type_| world.status().common.condition(type_).cloned();
    assert_eq!(
        about(&ConditionType::InvalidSpec),
        None,
        "the spec is as it should be"
    );
}

#[test]
fn a_value_that_grew_too_large_is_refused_with_its_size() {
    let mut world = plan_and_build();
    let words = done(&json!({"branch": "x".repeat(2049)}));
    world.settle().pod_ended(FIRST, 0, &words).settle();
    let (reason, message) = failed(&world);
    assert_eq!(reason, Reason::ParameterValueTooLarge);
    assert!(
        message.contains("step build") && message.contains("2049 bytes"),
        "{message}"
    );
}

#[test]
fn a_step_brings_its_own_work_and_its_own_pod() {
    let mut world = workflow(&json!([
        {"name": "plan", "implementation": {"inline": {"text": "Plan it."}}, "workload": {"image": "planner:1"}},
        {"name": "build"},
    ]));
    world.settle().pod_ended(FIRST, 0, &done(&json!({}))).settle();
    let image = |job: &str| {
        let job = &world.observed.jobs[job];
        let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        pod.and_then(|pod| pod.containers[0].image.clone())
    };
    assert_eq!(image(FIRST).as_deref(), Some("planner:1"));
    assert_eq!(image(SECOND).as_deref(), Some("agent:1"));
    assert_eq!(run_document(&world, FIRST)["implementation"]["text"], "Plan it.");
    assert_eq!(run_document(&world, SECOND)["implementation"]["text"], "Mend it.");
}

#[test]
fn mistakes_in_any_step_are_told_before_the_first_one_starts() {
    let ok = json!({"name": "plan"});
    let outputs = |path: &str| json!([ok, {"name": "b", "parameters": {"x": format!("{{{{ {path} }}}}")}}]);
    let big = "x".repeat(2049);
    for (steps, reason, words) in [
        (
            json!([]),
            Reason::MissingWorkflowSteps,
            "spec.workflow.steps has no step",
        ),
        (
            json!([ok, {"name": " "}]),
            Reason::WorkflowStepMissingName,
            "spec.workflow.steps[1].name",
        ),
        (json!([ok, ok]), Reason::WorkflowStepDuplicate, "\"plan\""),
        (
            json!([ok, {"name": "b", "retries": 101}]),
            Reason::InvalidSpec,
            "steps[1].retries is 101",
        ),
        (
            json!([ok, {"name": "b", "retryBackoffSeconds": 86401}]),
            Reason::InvalidSpec,
            "steps[1].retryBackoffSeconds",
        ),
        (
            outputs("steps.later.outputs.x"),
            Reason::InvalidSpec,
            "later is no step of the run",
        ),
        (
            outputs("steps.b.outputs.x"),
            Reason::InvalidSpec,
            "b does not come before this step",
        ),
        (
            outputs("steps.plan.summary"),
            Reason::InvalidSpec,
            "steps.plan.summary, which is not known here",
        ),
        (
            outputs("parameters.nothing"),
            Reason::InvalidSpec,
            "spec.parameters of the run has no nothing",
        ),
        (outputs("a b"), Reason::InvalidTemplate, "steps[1].parameters.x"),
        (
            json!([ok, {"name": "b", "parameters": {"x": big}}]),
            Reason::ParameterValueTooLarge,
            "step b: spec.parameters.x",
        ),
        (
            json!([ok, {"name": "b", "workload": {"volumes": [{"name": "v", "type": "pvc", "mountPath": "/v"}]}}]),
            Reason::InvalidVolume,
            "step b",
        ),
        (
            json!([ok, {"name": "b", "implementation": {"inline": {"text": "t", "contract": {"requiredKeys": ["k"]}}}}]),
            Reason::MissingRequiredMetadata,
            "step b",
        ),
    ] {
        let mut world = workflow(&steps);
        world.settle();
        assert!(world.deeds().is_empty(), "{reason}: {:?}", world.deeds());
        let invalid = world.condition(&ConditionType::InvalidSpec);
        assert_eq!(invalid.reason, reason, "{}", invalid.message);
        assert!(
            invalid.message.contains(words),
            "{words} is missing in: {}",
            invalid.message
        );
        assert!(world.status().finished_at.is_some());
    }
}

#[test]
fn a_step_without_an_image_is_told_before_the_first_one_starts() {
    let mut world =
        workflow(&json!([{"name": "plan", "workload": {"image": "planner:1"}}, {"name": "build"}]));
    world.settings.runner.image = None;
    world.settle();
    assert!(world.deeds().is_empty());
    let (reason, message) = failed(&world);
    assert_eq!(reason, Reason::MissingWorkloadImage);
    assert!(message.contains("step build"), "{message}");
}

#[test]
fn images_of_the_steps_are_enough_and_replace_one_of_the_run_that_is_not_allowed() {
    let steps = json!([
        {"name": "plan", "workload": {"image": "good/planner:1"}},
        {"name": "build", "workload": {"image": "good/builder:1"}},
    ]);
    for of_run in [None, Some("bad/agent:1")] {
        let mut world = workflow(&steps);
        world.settings.runner.image = None;
        world.settings.policy.images_denied = vec!["bad/*".to_owned()];
        world.edit(|run| run.spec.workload = of_run.map(|image| object(json!({ "image": image }))));
        world.settle();
        assert_eq!(world.deeds(), [format!("create {FIRST}")], "{:?}", world.status());
    }
}

#[test]
fn what_a_later_step_refers_to_is_waited_for_before_the_first_one_starts() {
    let steps = json!([{"name": "plan"}, {"name": "build", "implementationSpecRef": {"name": "build-it"}}]);
    let mut world = workflow(&steps);
    world.settle();
    assert!(world.deeds().is_empty());
    let blocked = world.condition(&ConditionType::Blocked);
    assert_eq!(blocked.reason, Reason::MissingImplementation);
    assert!(blocked.message.contains("step build"), "{}", blocked.message);

    let implementation = object(json!({"metadata": {"name": "build-it"}, "spec": {"text": "Build it."}}));
    let known = &mut world.observed.references.implementations;
    known.insert("build-it".to_owned(), Sight::Seen(Arc::new(implementation)));
    world.settle();
    assert_eq!(world.deeds(), [format!("create {FIRST}")]);
}
