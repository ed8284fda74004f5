//! How steps start, end and follow each other.

use jangar_api::{
    condition::ConditionType, labels::ORCHESTRATION_ANCESTORS, phase::RunPhase, reason::Reason,
};
use serde_json::json;

use super::world::{World, agent, diamond};
use crate::decision::{ChildKind, Decision, Refusal};

#[test]
fn a_diamond_runs_in_its_order_and_every_child_is_let_go() {
    let mut world = World::of(diamond());

    world.settle();
    assert_eq!(world.names(), ["run-a-1"]);
    world.ends("run-a-1", RunPhase::Succeeded);
    assert_eq!(world.names(), ["run-a-1", "run-b-1", "run-c-1"]);
    world.ends("run-b-1", RunPhase::Succeeded);
    assert_eq!(world.names(), ["run-a-1", "run-b-1", "run-c-1"]);
    world.ends("run-c-1", RunPhase::Succeeded);
    world.ends("run-d-1", RunPhase::Succeeded);

    assert_eq!(world.phase(), RunPhase::Succeeded);
    assert_eq!(world.reason(&ConditionType::Complete), Some(Reason::Completed));
    assert!(!world.names().iter().any(|name| world.is_held(name)));
}

#[test]
fn the_next_step_costs_one_status_write() {
    let mut world = World::of(json!([agent("a", json!({})), agent("b", json!({}))]));
    world.settle();
    let before = world.status_writes;

    world.ends("run-a-1", RunPhase::Succeeded);

    assert_eq!(world.status_writes, before + 1);
    assert_eq!([world.stands("a"), world.stands("b")], ["Succeeded", "Running"]);
    // The child comes first: people wait for it, and not for the status.
    assert_eq!(world.log, ["create run-a-1", "create run-b-1", "release run-a-1"]);
}

#[test]
fn a_child_belongs_to_its_run_and_has_its_values() {
    let mut world = World::with(
        json!([
            agent(
                "build",
                json!({"with": {"branch": "{{ parameters.branch }}-{{ run.name }}"}})
            ),
            agent(
                "test",
                json!({"with": {"image": "{{ steps.build.outputs.image }}"}})
            ),
        ]),
        json!({"parameters": {"branch": "fix", "stage": "prod"}}),
    );
    world.settle();
    world.end("run-build-1", RunPhase::Succeeded, json!({"image": "i:1"}));
    world.settle();

    let build = world.child("run-build-1");
    assert_eq!(
        build["spec"]["parameters"],
        json!({"branch": "fix-run", "stage": "prod"})
    );
    assert_eq!(build["metadata"]["ownerReferences"][0]["uid"], "run-uid");
    assert_eq!(
        build["metadata"]["labels"]["jangar.proompteng.ai/orchestration-run"],
        "run"
    );
    let test = world.child("run-test-1");
    assert_eq!(
        test["spec"]["parameters"],
        json!({"branch": "fix", "stage": "prod", "image": "i:1"})
    );
    assert_eq!(
        world.step("build").outputs.as_ref().map(|outputs| json!(outputs)),
        Some(json!({"image": "i:1"}))
    );
}

#[test]
fn a_value_that_was_not_reported_fails_the_step_and_names_the_path() {
    let mut world = World::of(json!([
        agent("build", json!({})),
        agent(
            "test",
            json!({"with": {"image": "{{ steps.build.outputs.image }}"}})
        ),
    ]));
    world.settle();
    world.ends("run-build-1", RunPhase::Succeeded);

    assert_eq!(world.stands("test"), "Failed/InvalidTemplate");
    let message = world.step("test").message.clone().unwrap_or_default();
    assert!(message.contains("steps.build.outputs.image"), "{message}");
    assert_eq!(world.phase(), RunPhase::Failed);
}

#[test]
fn a_failing_branch_skips_what_depends_on_it_and_lets_the_other_go_on() {
    let mut world = World::of(json!([
        agent("a", json!({"dependsOn": []})),
        agent("b", json!({"dependsOn": ["a"]})),
        agent("c", json!({"dependsOn": ["b"]})),
        agent("other", json!({"dependsOn": []})),
    ]));
    world.settle();
    world.ends("run-a-1", RunPhase::Failed);

    assert_eq!(world.stands("a"), "Failed/AgentRunFailed");
    assert_eq!(world.stands("c"), "Skipped/DependencyFailed");
    assert_eq!(world.step("c").caused_by.as_deref(), Some("a"));
    assert_eq!(world.phase(), RunPhase::Running);
    world.ends("run-other-1", RunPhase::Succeeded);
    assert_eq!(world.phase(), RunPhase::Failed);
    assert_eq!(world.reason(&ConditionType::Failed), Some(Reason::AgentRunFailed));
}

#[test]
fn a_false_condition_skips_the_step() {
    let mut world = World::with(
        json!([
            agent("a", json!({})),
            agent("b", json!({"when": "parameters.deploy == 'yes'"})),
            agent("c", json!({})),
        ]),
        json!({"parameters": {"deploy": "no"}}),
    );
    world.settle();
    world.ends("run-a-1", RunPhase::Succeeded);

    assert_eq!(world.stands("b"), "Skipped/ConditionFalse");
    assert_eq!(world.stands("c"), "Skipped/DependencySkipped");
    assert_eq!(world.phase(), RunPhase::Succeeded);
}

#[test]
fn a_condition_without_an_answer_fails_the_step() {
    let mut world = World::of(json!([agent("a", json!({"when": "parameters.missing == 'x'"}))]));
    world.settle();

    assert_eq!(world.stands("a"), "Failed/InvalidCondition");
    assert_eq!(world.phase(), RunPhase::Failed);
}

#[test]
fn a_child_that_somebody_cancelled_is_not_attempted_again() {
    let mut world = World::of(json!([agent("a", json!({"retries": 3})), agent("b", json!({}))]));
    world.settle();
    world.end_because("run-a-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();

    assert_eq!(world.stands("a"), "Cancelled/StepCancelled");
    assert_eq!(world.stands("b"), "Skipped/DependencyCancelled");
    assert_eq!(world.phase(), RunPhase::Failed);
    assert_eq!(world.reason(&ConditionType::Failed), Some(Reason::StepCancelled));
}

#[test]
fn a_failed_attempt_is_followed_by_the_next_one_after_its_wait() {
    let mut world = World::of(json!([agent(
        "a",
        json!({"retries": 1, "retryBackoffSeconds": 10})
    )]));
    world.settle();
    world.ends("run-a-1", RunPhase::Failed);

    assert_eq!(world.stands("a"), "Retrying/AgentRunFailed");
    let due = world.wake_at.expect("a time");
    let wait = due.duration_since(world.now).as_secs();
    assert!((10..=12).contains(&wait), "{wait}");
    world.pass(5);
    world.settle();
    assert_eq!(world.names(), ["run-a-1"]);
    world.now = due;
    world.settle();
    assert_eq!(world.names(), ["run-a-1", "run-a-2"]);
    assert!(!world.is_held("run-a-1") && world.is_held("run-a-2"));
    world.ends("run-a-2", RunPhase::Failed);
    assert_eq!(world.stands("a"), "Failed/RetriesExhausted");
}

#[test]
fn an_attempt_that_takes_too_long_is_stopped_before_the_next_one_starts() {
    let mut world = World::of(json!([agent("a", json!({"retries": 1, "timeoutSeconds": 60}))]));
    world.settle();
    assert_eq!(world.wake_at.map(jiff::Timestamp::as_second), Some(60));
    world.pass(60);
    world.settle();

    assert_eq!(world.stands("a"), "Running/StepTimedOut");
    assert_eq!(world.log, ["create run-a-1", "cancel run-a-1"]);
    world.end_because("run-a-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();
    assert_eq!(world.names(), ["run-a-1", "run-a-2"]);
    assert_eq!(world.stands("a"), "Running");
    // The second attempt began at 60, and has as long as the first one.
    assert_eq!(world.wake_at.map(jiff::Timestamp::as_second), Some(120));
    world.pass(60);
    world.settle();
    assert_eq!(world.stands("a"), "Running/StepTimedOut");
    assert_eq!(world.log.last().map(String::as_str), Some("cancel run-a-2"));
}

#[test]
fn no_other_attempt_follows_one_that_could_not_be_stopped() {
    let mut world = World::of(json!([agent("a", json!({"retries": 1, "timeoutSeconds": 60}))]));
    world.settle();
    world.pass(60);
    world.settle();
    world.end_because("run-a-1", RunPhase::Cancelled, Reason::CancelTimedOut, json!({}));
    world.settle();

    assert_eq!(world.stands("a"), "Failed/StepTimedOut");
    assert_eq!(world.names(), ["run-a-1"]);
}

#[test]
fn failing_fast_stops_what_runs_and_skips_the_rest() {
    let mut world = World::with(
        json!([
            agent("a", json!({"dependsOn": []})),
            agent("b", json!({"dependsOn": []})),
            agent("c", json!({"dependsOn": ["b"]})),
        ]),
        json!({"failurePolicy": "FailFast"}),
    );
    world.settle();
    world.ends("run-a-1", RunPhase::Failed);

    assert!(
        world.log.contains(&"cancel run-b-1".to_owned()),
        "{:?}",
        world.log
    );
    assert_eq!(world.stands("c"), "Skipped/RunStopping");
    assert_eq!(world.step("c").caused_by.as_deref(), Some("a"));
    world.end_because("run-b-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();
    assert_eq!(world.stands("b"), "Cancelled/RunStopping");
    assert_eq!(world.phase(), RunPhase::Failed);
    assert_eq!(world.reason(&ConditionType::Failed), Some(Reason::AgentRunFailed));
}

#[test]
fn a_run_that_takes_too_long_stops_and_fails() {
    let mut world = World::with(diamond(), json!({"timeoutSeconds": 100}));
    world.settle();
    assert_eq!(world.wake_at.map(jiff::Timestamp::as_second), Some(100));
    world.pass(100);
    world.settle();
    world.end_because("run-a-1", RunPhase::Cancelled, Reason::Cancelled, json!({}));
    world.settle();

    assert_eq!(world.stands("a"), "Cancelled/RunStopping");
    assert_eq!(world.stands("d"), "Skipped/RunStopping");
    assert_eq!(world.reason(&ConditionType::Failed), Some(Reason::TimedOut));
}

#[test]
fn a_run_keeps_the_steps_it_started_with() {
    let mut world = World::of(diamond());
    world.settle();
    world.definition = None;
    world.ends("run-a-1", RunPhase::Succeeded);

    assert_eq!(world.names(), ["run-a-1", "run-b-1", "run-c-1"]);
}

#[test]
fn a_run_of_a_wrong_definition_waits_and_starts_when_it_is_mended() {
    let wrong = json!([agent("a", json!({"dependsOn": ["a"]}))]);
    let mut world = World::of(wrong.clone());
    world.settle();
    assert_eq!(
        world.reason(&ConditionType::Blocked),
        Some(Reason::InvalidDependency)
    );
    assert_eq!(world.phase(), RunPhase::Pending);
    world.definition.as_mut().expect("one").spec.steps[0].depends_on = None;
    world.settle();
    assert_eq!(world.phase(), RunPhase::Running);

    let mut world = World::of(wrong);
    world.pass(60);
    world.settle();
    assert_eq!(world.phase(), RunPhase::Failed);
    assert_eq!(
        world.reason(&ConditionType::InvalidSpec),
        Some(Reason::InvalidDependency)
    );
}

#[test]
fn a_run_without_a_definition_waits_for_the_grace_and_fails_then() {
    let mut world = World::of(diamond());
    world.definition = None;
    world.settle();
    assert_eq!(
        world.reason(&ConditionType::Blocked),
        Some(Reason::MissingOrchestration)
    );
    world.pass(60);
    world.settle();
    assert_eq!(
        world.reason(&ConditionType::Failed),
        Some(Reason::MissingOrchestration)
    );
}

#[test]
fn a_child_that_was_made_and_not_recorded_is_taken_on_and_not_made_again() {
    let mut world = World::of(json!([agent("a", json!({}))]));
    world.settle();
    // The status that was to record it is lost.
    let status = world
        .run
        .as_mut()
        .and_then(|run| run.status.as_mut())
        .expect("a status");
    status.step_statuses.clear();
    world.settle();

    assert_eq!(world.log, ["create run-a-1"]);
    assert_eq!(world.stands("a"), "Running");
}

#[test]
fn something_else_of_the_name_of_the_child_fails_the_step() {
    let mut world = World::of(json!([agent("a", json!({})), agent("b", json!({}))]));
    world.settle();
    let mut other = World::of(json!([agent("a", json!({})), agent("b", json!({}))]));
    other.children.clone_from(&world.children);
    other.edit(ChildKind::AgentRun, "run-a-1", |value| {
        value["metadata"]["ownerReferences"] = json!([]);
    });
    other.settle();

    assert_eq!(other.stands("a"), "Failed/NameTaken");
    assert_eq!(other.stands("b"), "Skipped/DependencyFailed");
}

#[test]
fn a_child_that_is_gone_is_missing_only_after_a_live_look() {
    let mut world = World::of(json!([agent("a", json!({"retries": 2}))]));
    world.settle();
    world.children.clear();
    assert!(matches!(world.plan(), Decision::Look(_)));
    world.settle();

    assert_eq!(world.stands("a"), "Failed/AgentRunMissing");
}

#[test]
fn a_child_that_the_api_server_will_not_have_fails_the_step_in_its_words() {
    let mut world = World::of(json!([agent("a", json!({}))]));
    let refusal = Refusal {
        code: 422,
        message: "spec.parameters: too many".to_owned(),
    };
    world
        .refusals
        .insert((ChildKind::AgentRun, "run-a-1".to_owned()), refusal);
    world.settle();

    assert_eq!(world.stands("a"), "Failed/ChildRejected");
}

#[test]
fn an_orchestration_may_run_another_but_not_itself() {
    let sub =
        |name: &str| json!([{"name": "sub", "kind": "SubOrchestration", "orchestrationRef": {"name": name}}]);
    let mut world = World::of(sub("other"));
    world.settle();
    let child = world.child("run-sub-1");
    assert_eq!(child["kind"], "OrchestrationRun");
    assert_eq!(
        child["metadata"]["annotations"]["jangar.proompteng.ai/orchestration-ancestors"],
        "pipeline"
    );

    let mut world = World::of(sub("pipeline"));
    world.settle();
    assert_eq!(world.phase(), RunPhase::Pending, "nothing starts");
    assert_eq!(
        world.reason(&ConditionType::Blocked),
        Some(Reason::RecursionRefused)
    );
}

#[test]
fn outputs_that_are_too_large_are_left_out_and_told() {
    let mut world = World::of(json!([agent("a", json!({}))]));
    world.settle();
    world.end(
        "run-a-1",
        RunPhase::Succeeded,
        json!({"text": "x".repeat(20_000)}),
    );
    world.settle();

    assert_eq!(world.stands("a"), "Succeeded/ResultUnavailable");
    assert_eq!(world.step("a").outputs, None);
}

#[test]
fn what_has_ended_is_quiet() {
    let mut world = World::of(json!([agent("a", json!({}))]));
    world.settle();
    world.ends("run-a-1", RunPhase::Succeeded);
    let writes = world.status_writes;
    world.pass(3600);
    world.settle();

    assert_eq!(world.status_writes, writes);
}

#[test]
fn a_child_of_an_earlier_run_of_the_name_is_waited_for_and_not_complained_of() {
    for deleting in [false, true] {
        let mut world = World::of(json!([agent("a", json!({}))]));
        let mut earlier = World::of(json!([agent("a", json!({}))]));
        earlier.settle();
        earlier.edit(ChildKind::AgentRun, "run-a-1", |child| {
            child["metadata"]["ownerReferences"][0]["uid"] = json!("an-earlier-run");
            child["metadata"]["finalizers"] = json!([]);
            if deleting {
                child["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
            }
        });
        world.children.clone_from(&earlier.children);
        world.settle();

        assert_eq!(world.stands("a"), "Pending/NameTaken");
        assert_eq!(world.wake_at.map(jiff::Timestamp::as_second), Some(5));
        let message = world.step("a").message.clone().unwrap_or_default();
        assert!(message.contains("of an earlier run of this name"), "{message}");
        world.children.clear();
        world.settle();
        assert_eq!(world.stands("a"), "Running");
        assert_eq!(world.step("a").message, None);
    }
}

#[test]
fn a_child_that_is_not_let_in_is_tried_again_and_does_not_hold_up_the_others() {
    for (code, words) in [
        (403, "exceeded quota: runs"),
        (429, "too many requests"),
        (500, "etcdserver: mvcc: database space exceeded"),
        (503, "the server is currently unable to handle the request"),
    ] {
        let mut world = World::of(json!([
            agent("a", json!({"dependsOn": []})),
            agent("b", json!({"dependsOn": []})),
        ]));
        let message = words.to_owned();
        let key = (ChildKind::AgentRun, "run-a-1".to_owned());
        world.refusals.insert(key.clone(), Refusal { code, message });
        world.settle();
        assert_eq!(world.stands("a"), "Pending/ChildForbidden", "{code}");
        let told = world.step("a").message.clone().unwrap_or_default();
        assert!(told.contains(words), "{told}");
        assert_eq!(world.wake_at.map(jiff::Timestamp::as_second), Some(30));
        world.ends("run-b-1", RunPhase::Succeeded);
        assert_eq!(world.stands("b"), "Succeeded", "its end is recorded all the same");
        assert!(!world.is_held("run-b-1"));

        world.refusals.remove(&key);
        world.settle();
        assert_eq!(world.stands("a"), "Running");
    }
}

#[test]
fn after_many_children_that_are_not_let_in_the_rest_is_not_tried() {
    let steps: Vec<_> = (0..40)
        .map(|number| agent(&format!("s{number}"), json!({"dependsOn": []})))
        .collect();
    let mut world = World::of(json!(steps));
    let refusal = Refusal {
        code: 403,
        message: "exceeded quota: runs".to_owned(),
    };
    for number in 0..32 {
        let key = (ChildKind::AgentRun, format!("run-s{number}-1"));
        world.refusals.insert(key, refusal.clone());
    }
    world.settle();

    assert!(world.names().is_empty());
    assert_eq!(world.stands("s39"), "Pending/ChildForbidden");
}

#[test]
fn orchestrations_may_not_run_each_other_in_a_circle_nor_be_nested_too_deeply() {
    let steps = json!([{"name": "sub", "kind": "SubOrchestration", "orchestrationRef": {"name": "other"}}]);
    let below = |ancestors: &str| {
        let mut world = World::of(steps.clone());
        let above = [(ORCHESTRATION_ANCESTORS.to_owned(), ancestors.to_owned())];
        world.run.as_mut().expect("a run").metadata.annotations = Some(above.into());
        world.settle();
        world
    };
    let circle = below("other");
    assert_eq!(circle.stands("sub"), "Failed/RecursionRefused");
    let message = circle.step("sub").message.clone().unwrap_or_default();
    assert!(message.contains("other -> pipeline -> other"), "{message}");

    let deepest = below("a,b,c,d,e,f");
    assert_eq!(deepest.stands("sub"), "Running");
    let child = deepest.child("run-sub-1");
    assert_eq!(
        child["metadata"]["annotations"][ORCHESTRATION_ANCESTORS],
        "a,b,c,d,e,f,pipeline"
    );
    let too_deep = below("a,b,c,d,e,f,g");
    assert_eq!(too_deep.stands("sub"), "Failed/RecursionRefused");
    let message = too_deep.step("sub").message.clone().unwrap_or_default();
    assert!(message.contains("nested 8 deep"), "{message}");
}

#[test]
fn the_texts_of_an_agent_can_say_what_other_steps_reported() {
    let mut world = World::of(json!([
        agent("build", json!({})),
        agent(
            "test",
            json!({
                "implementation": {"inline": {"text": "Test {{ steps.build.outputs.image }} with {{ .Values.x }}."}},
                "systemPrompt": "You work for {{ run.name }}.",
            })
        ),
        agent(
            "more",
            json!({"implementation": {"inline": {"text": "{{ steps.test.outputs.none }}"}}})
        ),
    ]));
    world.settle();
    world.end("run-build-1", RunPhase::Succeeded, json!({"image": "i:1"}));
    world.settle();
    let spec = &world.child("run-test-1")["spec"];
    assert_eq!(
        spec["implementation"]["inline"]["text"],
        "Test i:1 with {{ .Values.x }}."
    );
    assert_eq!(spec["systemPrompt"], "You work for run.");
    world.ends("run-test-1", RunPhase::Succeeded);
    assert_eq!(world.stands("more"), "Failed/InvalidTemplate");
}

#[test]
fn the_tool_of_a_step_runs_where_the_step_says() {
    let runtime = json!({"config": {"nodeSelector": {"pool": "tools"}}});
    let mut world = World::of(json!([
        {"name": "t", "kind": "ToolRun", "toolRef": {"name": "lint"}, "runtime": runtime},
    ]));
    world.settle();
    assert_eq!(world.child("run-t-1")["spec"]["runtime"], runtime);
}

#[test]
fn a_run_whose_steps_this_version_cannot_read_is_held_and_not_failed() {
    let mut world = World::of(diamond());
    world.settle();
    let kept = |world: &mut World| {
        let status = world.run.as_mut().and_then(|run| run.status.as_mut());
        status
            .and_then(|status| status.definition.as_mut())
            .expect("steps")
            .steps
            .clone()
    };
    let good = kept(&mut world);
    let set = |world: &mut World, steps: Vec<jangar_api::orchestration::Step>| {
        let status = world.run.as_mut().and_then(|run| run.status.as_mut());
        status
            .and_then(|status| status.definition.as_mut())
            .expect("steps")
            .steps = steps;
    };
    let mut bad = good.clone();
    bad[1].depends_on = Some(vec!["nobody".to_owned()]);
    set(&mut world, bad.clone());
    world.ends("run-a-1", RunPhase::Succeeded);
    assert_eq!(world.phase(), RunPhase::Running);
    assert_eq!(
        world.reason(&ConditionType::Blocked),
        Some(Reason::UnreadableDefinition)
    );
    assert!(
        world.is_held("run-a-1"),
        "its end is recorded by a version that can"
    );

    set(&mut world, good);
    world.settle();
    assert_eq!(world.names(), ["run-a-1", "run-b-1", "run-c-1"]);

    set(&mut world, bad);
    world.run.as_mut().expect("a run").spec.stop.cancel = true;
    world.settle();
    assert_eq!(world.phase(), RunPhase::Failed);
    assert!(
        world.log.contains(&"cancel run-b-1".to_owned()),
        "{:?}",
        world.log
    );
}
