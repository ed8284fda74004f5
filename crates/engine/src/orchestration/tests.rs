//! What is wrong with a definition, and how it is told.

use jangar_api::{orchestration::OrchestrationSpec, reason::Reason};
use serde_json::{Value, json};

use super::{Graph, Mistakes, STEPS_MAX, StepId, read, read_named};
use crate::{decision::Decision, settings::Settings};

fn spec(steps: &Value) -> OrchestrationSpec {
    serde_json::from_value(json!({"steps": steps})).expect("a spec")
}

/// A step that does nothing, with these fields.
fn step(name: &str, fields: Value) -> Value {
    let mut step = json!({"name": name, "kind": "Checkpoint"});
    let Value::Object(fields) = fields else {
        panic!("fields")
    };
    step.as_object_mut().expect("an object").extend(fields);
    step
}

/// A step that runs an agent, with these fields.
fn agent(name: &str, fields: Value) -> Value {
    let mut all = json!({
        "kind": "AgentRun", "agentRef": {"name": "coder"}, "implementation": {"inline": {"text": "do it"}},
    });
    let Value::Object(fields) = fields else {
        panic!("fields")
    };
    all.as_object_mut().expect("an object").extend(fields);
    step(name, all)
}

fn graph(steps: &Value) -> Graph {
    read(&spec(steps)).expect("steps that make sense")
}

fn wrong(steps: &Value) -> Vec<(Reason, String)> {
    let mistakes: Mistakes = read(&spec(steps)).expect_err("steps that make no sense");
    let told = mistakes
        .iter()
        .map(|mistake| (mistake.reason.clone(), mistake.message.clone()));
    told.collect()
}

fn only(steps: &Value) -> (Reason, String) {
    match <[_; 1]>::try_from(wrong(steps)) {
        Ok([one]) => one,
        Err(several) => panic!("{several:#?}"),
    }
}

#[test]
fn without_dependencies_each_step_depends_on_the_one_before() {
    let graph = graph(&json!([
        step("a", json!({})),
        step("b", json!({})),
        step("c", json!({}))
    ]));

    let dependencies: Vec<_> = graph.steps().map(|(_, node)| node.dependencies.clone()).collect();

    assert_eq!(dependencies, [vec![], vec![StepId(0)], vec![StepId(1)]]);
}

#[test]
fn an_empty_list_makes_the_steps_a_graph() {
    let graph = graph(&json!([
        step("a", json!({})),
        step("b", json!({"dependsOn": []}))
    ]));

    assert!(graph.steps().all(|(_, node)| node.dependencies.is_empty()));
}

#[test]
fn dependencies_may_come_later_in_the_list_and_twice() {
    let graph = graph(&json!([
        step("late", json!({"dependsOn": ["early", "mid", "early"]})),
        step("mid", json!({"dependsOn": ["early"]})),
        step("early", json!({})),
    ]));

    let order: Vec<&str> = graph.in_order().map(|(_, node)| node.name.as_str()).collect();
    assert_eq!(order, ["early", "mid", "late"]);
    assert_eq!(
        graph.ancestors(StepId(0)).collect::<Vec<_>>(),
        [StepId(1), StepId(2)]
    );
}

#[test]
fn every_mistake_is_told_at_once() {
    let told = wrong(&json!([
        step("build", json!({"dependsOn": ["builds", "build"]})),
        step(" ", json!({})),
        step("build", json!({"retries": -1, "timeoutSeconds": -5, "retryBackoffSeconds": 100_000})),
        {"name": "x", "kind": ""},
        {"name": "y", "kind": "AgentRum"},
        {"name": "z", "kind": "MemoryOp"},
        {"name": "agent", "kind": "AgentRun"},
        {"name": "gate", "kind": "ApprovalGate"},
        {"name": "signal", "kind": "SignalWait"},
        {"name": "tool", "kind": "ToolRun", "toolRef": {"name": " "}},
        {"name": "sub", "kind": "SubOrchestration"},
    ]));

    insta::assert_snapshot!(
        told.iter()
            .map(|(reason, message)| format!("{reason}: {message}"))
            .collect::<Vec<_>>()
            .join("\n")
    );
}

#[test]
fn a_dependency_that_does_not_exist_is_told_with_the_nearest_name() {
    let (reason, message) = only(&json!([
        step("build-image", json!({})),
        step("test", json!({"dependsOn": ["build_image"]})),
    ]));

    assert_eq!(reason, Reason::MissingDependency);
    assert_eq!(
        message,
        "spec.steps[1].dependsOn names build_image, and there is no such step; build-image is meant, perhaps"
    );
}

#[test]
fn a_cycle_is_spelled_out_from_its_first_step_and_as_short_as_can_be() {
    let (reason, message) = only(&json!([
        step("free", json!({})),
        step("a", json!({"dependsOn": ["b", "free"]})),
        step("b", json!({"dependsOn": ["c", "a"]})),
        step("c", json!({"dependsOn": ["a"]})),
        step("after", json!({"dependsOn": ["c"]})),
    ]));

    assert_eq!(reason, Reason::DependencyCycle);
    assert!(message.contains(": a -> b -> a;"), "{message}");
}

#[test]
fn two_cycles_are_two_mistakes() {
    let told = wrong(&json!([
        step("a", json!({"dependsOn": ["b"]})),
        step("b", json!({"dependsOn": ["a"]})),
        step("c", json!({"dependsOn": ["d"]})),
        step("d", json!({"dependsOn": ["c", "a"]})),
    ]));

    let cycles: Vec<bool> = told
        .iter()
        .map(|(_, words)| words.contains("a -> b -> a") || words.contains("c -> d -> c"))
        .collect();
    assert_eq!(cycles, [true, true], "{told:#?}");
}

#[test]
fn names_that_are_the_same_in_the_name_of_a_child_are_duplicates() {
    let (reason, message) = only(&json!([step("a b", json!({})), step("A-B", json!({}))]));

    assert_eq!(reason, Reason::DuplicateStep);
    assert!(message.contains("a b"), "{message}");
}

#[test]
fn an_entrypoint_has_to_exist() {
    let mut spec = spec(&json!([step("build", json!({}))]));
    spec.entrypoint = Some("built".to_owned());

    let mistakes = read(&spec).expect_err("a bad entrypoint").rejection();

    assert_eq!(mistakes.reason, Reason::EntrypointMissing);
    assert!(
        mistakes.message.contains("build is meant, perhaps"),
        "{}",
        mistakes.message
    );
}

#[test]
fn a_template_may_refer_only_to_what_has_run_before() {
    let steps = |template: &str| {
        json!([
            step("build", json!({})),
            step("other", json!({"dependsOn": []})),
            step(
                "test",
                json!({"dependsOn": ["build"], "with": {"image": template}})
            ),
        ])
    };
    graph(&steps(
        "{{ steps.build.outputs.image }} {{ parameters.x }} {{ run.name }} {{ steps.build.phase }}",
    ));
    for (template, words) in [
        (
            "{{ steps.other.outputs.image }}",
            "step other need not have run before",
        ),
        (
            "{{ steps.test.outputs.image }}",
            "step test need not have run before",
        ),
        (
            "{{ steps.builds.outputs.image }}",
            "there is no step builds; build is meant, perhaps",
        ),
        ("{{ steps.build.image }}", "leads nowhere"),
        ("{{ run.age }}", "a run has run.name"),
        ("{{ params.x }}", "begins with one of"),
        ("{{ open", "never closes it"),
    ] {
        let (reason, message) = only(&steps(template));
        assert_eq!(reason, Reason::InvalidTemplate, "{template}");
        assert!(message.starts_with("spec.steps[2].with.image: "), "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_condition_may_look_only_at_what_has_run_before() {
    let steps = |when: &str| {
        json!([
            step("build", json!({})),
            step("other", json!({"dependsOn": []})),
            step("test", json!({"dependsOn": ["build"], "when": when})),
        ])
    };
    graph(&steps("steps.build.phase == 'Succeeded' && parameters.x == 'y'"));
    for (when, words) in [
        (
            "steps.other.phase == 'Failed'",
            "step other need not have run before",
        ),
        ("steps['none'].phase == 'Failed'", "there is no step none"),
        ("params.x == 'y'", "when names params"),
        ("parameters.x ==", "is no CEL expression"),
    ] {
        let (reason, message) = only(&steps(when));
        assert_eq!(reason, Reason::InvalidCondition, "{when}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn more_steps_than_a_status_holds_are_refused_with_the_numbers() {
    let many: Vec<Value> = (0..=STEPS_MAX)
        .map(|number| step(&format!("s{number}"), json!({})))
        .collect();
    let (reason, message) = only(&json!(many));
    assert_eq!(reason, Reason::OrchestrationTooLarge);
    assert!(message.contains("1001") && message.contains("1000"), "{message}");

    let large: Vec<Value> = (0..100)
        .map(|number| {
            step(
                &format!("s{number}"),
                json!({"with": {"text": "x".repeat(10_000)}}),
            )
        })
        .collect();
    let (reason, message) = only(&json!(large));
    assert_eq!(reason, Reason::OrchestrationTooLarge);
    assert!(
        message.contains("together more than the 1048576 of an object"),
        "{message}"
    );
}

#[test]
fn a_thousand_steps_fifty_wide_are_no_mistake() {
    let steps: Vec<Value> = (0..1000)
        .map(|number| {
            let above: Vec<String> = (0..50)
                .filter(|_| number >= 50)
                .map(|place| format!("layer-{:02}-{place:02}", number / 50 - 1))
                .take(3)
                .collect();
            let name = format!("layer-{:02}-{:02}", number / 50, number % 50);
            json!({"name": name, "kind": "AgentRun", "agentRef": {"name": "coder"}, "dependsOn": above,
                   "implementationSpecRef": {"name": "work"}})
        })
        .collect();

    assert_eq!(graph(&json!(steps)).len(), 1000);
}

#[test]
fn a_field_that_is_nearly_one_that_counts_is_a_mistake() {
    for (written, meant) in [
        ("dependOn", "dependsOn"),
        ("dependson", "dependsOn"),
        ("timeoutSecond", "timeoutSeconds"),
        ("secret", "secrets"),
        ("wit", "with"),
    ] {
        let (reason, message) = only(&json!([step("a", json!({})), step("b", json!({written: null}))]));
        assert_eq!(reason, Reason::InvalidStep);
        assert_eq!(
            message,
            format!("spec.steps[1].{written} is no field of a step; {meant} is meant, perhaps")
        );
    }
    let kept = [
        "x-note", "owner", "note", "node", "time", "mode", "id", "link", "hint", "wait", "type",
    ];
    for key in kept {
        graph(&json!([step("a", json!({key: "for a tool of ours"}))]));
    }
}

#[test]
fn a_step_has_no_idempotency_key() {
    let (reason, message) = only(&json!([agent("a", json!({"idempotencyKey": "once"}))]));
    assert_eq!(reason, Reason::InvalidStep);
    assert!(
        message.contains("idempotencyKey cannot be given to a step"),
        "{message}"
    );
}

#[test]
fn a_text_may_say_only_what_steps_before_it_reported() {
    let steps = |text: &str| {
        json!([
            step("build", json!({"dependsOn": []})),
            agent(
                "other",
                json!({"dependsOn": [], "implementation": {"inline": {"text": text}}})
            ),
        ])
    };
    graph(&steps("{{ .Values.x }} {{ parameters.x }} {{ open"));
    let (reason, message) = only(&steps("{{ steps.build.outputs.image }}"));
    assert_eq!(reason, Reason::InvalidTemplate);
    assert!(
        message.starts_with("spec.steps[1].implementation.inline.text: step build need not have run before"),
        "{message}"
    );
}

#[test]
fn an_orchestration_that_runs_itself_is_not_ready() {
    let spec =
        json!({"steps": [{"name": "a", "kind": "SubOrchestration", "orchestrationRef": {"name": "own"}}]});
    let orchestration = serde_json::from_value(json!({
        "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "Orchestration",
        "metadata": {"name": "own", "namespace": "agents"}, "spec": spec,
    }));
    let observed = super::check::Observed {
        orchestration: std::sync::Arc::new(orchestration.expect("an Orchestration")),
    };
    let decided = super::check::plan(&observed, &Settings::default(), jiff::Timestamp::UNIX_EPOCH);
    let Decision::Act(plan) = decided else {
        panic!("{decided:?}");
    };
    let status = plan.status.expect("a status");
    let ready = status
        .common
        .condition(&jangar_api::condition::ConditionType::Ready);
    assert_eq!(ready.map(|ready| &ready.reason), Some(&Reason::RecursionRefused));
}

#[test]
fn a_step_that_runs_the_orchestration_it_stands_in_is_told_with_all_other_mistakes() {
    let sub = json!({"name": "sub", "kind": "SubOrchestration", "orchestrationRef": {"name": "own"}});
    let spec = spec(&json!([step("a", json!({"retries": -1})), sub]));

    let mistakes = read_named("own", &spec).expect_err("two mistakes");

    let reasons: Vec<&Reason> = mistakes.iter().map(|mistake| &mistake.reason).collect();
    assert_eq!(reasons, [&Reason::InvalidStep, &Reason::RecursionRefused]);
    let other = read_named("other", &spec).expect_err("one mistake");
    assert_eq!(other.iter().count(), 1, "{other}");
}

#[test]
fn what_is_too_large_or_empty_hides_no_other_mistake() {
    let mut empty = spec(&json!([]));
    empty.entrypoint = Some("build".to_owned());
    let told = read(&empty).expect_err("two mistakes");
    let reasons: Vec<&Reason> = told.iter().map(|mistake| &mistake.reason).collect();
    assert_eq!(reasons, [&Reason::MissingSteps, &Reason::EntrypointMissing]);

    let large = json!({"with": {"text": "x".repeat(1_100_000)}, "retries": -1});
    let told = wrong(&json!([step("a", large)]));
    let reasons: Vec<&Reason> = told.iter().map(|(reason, _)| reason).collect();
    assert_eq!(reasons, [&Reason::OrchestrationTooLarge, &Reason::InvalidStep]);

    let many: Vec<Value> = (0..=STEPS_MAX)
        .map(|number| step(&format!("s{}", number / 2 * 2), json!({})))
        .collect();
    let told = wrong(&json!(many));
    assert_eq!(told.len(), 1 + STEPS_MAX / 2);
    assert!(
        told.iter()
            .skip(1)
            .all(|(reason, _)| *reason == Reason::DuplicateStep)
    );
}

#[test]
fn the_child_of_a_step_is_read_before_it_is_needed() {
    let (reason, message) = only(&json!([{
        "name": "a", "kind": "AgentRun", "agentRef": {"name": "coder"},
        "implementation": {"inline": {"text": 7}},
    }]));

    assert_eq!(reason, Reason::InvalidStep);
    assert!(
        message.starts_with("spec.steps[0].implementation.inline.text"),
        "{message}"
    );
}
