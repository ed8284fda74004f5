//! Runs whose work a Temporal workflow does, played on values.

use std::time::Duration;

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
    values::AnyMap,
};
use serde_json::{Value, json};

use super::{World, object};
use crate::{
    decision::{Effect, Sight},
    temporal::call::{Call, Closed, Following, Returned, Sight as WorkflowSight, Start, StartAnswer, What},
};

/// The id that follows from the UID of the run.
pub(super) const ID: &str = "agentrun-run-1";

pub(super) fn config() -> Value {
    json!({"workflowType": "Agent", "taskQueue": "agents"})
}

/// A run of the runtime `temporal` with this configuration.
pub(super) fn world(config: &Value) -> World {
    let mut world = World::new();
    world.settings.temporal.address = Some("temporal.example.com:7233".to_owned());
    world.edit(|run| {
        run.spec.runtime = object(json!({"type": "temporal", "config": config}));
    });
    world
}

/// A run whose workflow is being started.
pub(super) fn called() -> World {
    let mut world = world(&config());
    world.settle();
    assert_eq!(calls(&world), [format!("start 1 of {ID}")]);
    world
}

/// A run whose workflow is there.
pub(super) fn started() -> World {
    let mut world = called();
    start_answered(&mut world, 1, started_as("first"));
    assert_eq!(
        calls(&world),
        [format!("start 1 of {ID}"), format!("follow {ID} on agents")]
    );
    world
}

pub(super) fn started_as(run_id: &str) -> StartAnswer {
    StartAnswer::Started {
        run_id: run_id.to_owned(),
    }
}

pub(super) fn start_answered(world: &mut World, number: u32, answer: StartAnswer) {
    let known = world.observed.outside.workflow.start.as_mut();
    let known = known
        .filter(|known| known.number == number)
        .expect("it was called");
    assert_eq!(known.answer.replace(answer), None);
    world.settle();
}

/// The workflow is closed, and somebody has heard it.
pub(super) fn closed(world: &mut World, closed: Closed) {
    heard(world, None, Some(closed));
}

fn heard(world: &mut World, trouble: Option<&str>, closed: Option<Closed>) {
    let following = world.observed.outside.workflow.following.as_mut();
    *following.expect("it is followed") = Following {
        trouble: trouble.map(str::to_owned),
        closed,
    };
    world.settle();
}

/// Another process takes over: it knows nothing of what the one before it did.
pub(super) fn restart(world: &mut World) {
    world.observed.outside.process = "another".to_owned();
    world.observed.outside.workflow = WorkflowSight::default();
}

pub(super) fn end(world: &World) -> (Option<RunPhase>, Reason, String) {
    let condition = world.condition(&ConditionType::Succeeded);
    (world.phase(), condition.reason, condition.message)
}

/// The calls of the server that were made, as words.
pub(super) fn calls(world: &World) -> Vec<String> {
    let verbs = ["start ", "follow ", "cancel ", "terminate "];
    let is_call = |deed: &String| verbs.iter().any(|verb| deed.starts_with(verb));
    world.deeds().into_iter().filter(is_call).collect()
}

pub(super) fn record(world: &World) -> Value {
    Value::Object(world.status().runtime_ref.expect("a record").0)
}

fn start(world: &World) -> (&Call, &Start) {
    let found = world.done.iter().find_map(|effect| match effect {
        Effect::CallTemporal(call) => match &call.what {
            What::Start(start) => Some((&**call, &**start)),
            What::Follow { .. } | What::Stop(_) => None,
        },
        _ => None,
    });
    found.expect("a start")
}

fn unclear() -> StartAnswer {
    StartAnswer::Unclear {
        words: "the connection broke".to_owned(),
    }
}

fn not_taken() -> StartAnswer {
    StartAnswer::NotTaken {
        words: "connection refused".to_owned(),
    }
}

#[test]
fn the_workflow_is_named_in_the_status_before_it_is_started() {
    let world = called();

    assert_eq!(world.phase(), Some(RunPhase::Running));
    let record = record(&world);
    assert_eq!(record["type"], "temporal");
    assert_eq!(record["name"], ID);
    assert_eq!(record["workflowId"], ID);
    assert_eq!(record["namespace"], "default");
    assert_eq!(record["taskQueue"], "agents");
    assert_eq!(record["start"]["state"], "Intended");
    let (call, start) = start(&world);
    assert_eq!(call.workflow.id, ID);
    assert_eq!(start.workflow_type, "Agent");
    assert_eq!(
        start.argument["agentRun"],
        json!({"name": "mend", "namespace": "agents", "uid": "run-1"})
    );
    assert_eq!(start.argument["implementation"]["text"], "Mend it.");
    assert_eq!(start.argument["provider"], "scripted");
}

#[test]
fn what_the_run_says_of_its_workflow_is_what_is_started() {
    let mut world = world(&json!({
        "workflowType": "Agent", "taskQueue": "agents", "workflowId": "mine", "namespace": "team",
        "timeouts": {"workflowExecutionTimeoutMs": 60_000, "workflowRunTimeoutMs": 30_000, "workflowTaskTimeoutMs": 1_000},
    }));
    world.settle();

    let (call, start) = start(&world);
    assert_eq!(call.workflow.id, "mine");
    assert_eq!(call.workflow.namespace, "team");
    assert_eq!(start.timeouts.execution, Some(Duration::from_mins(1)));
    assert_eq!(start.timeouts.run, Some(Duration::from_secs(30)));
    assert_eq!(start.timeouts.task, Some(Duration::from_secs(1)));
}

#[test]
fn the_agents_time_counts_where_the_run_says_none() {
    let mut world = world(&config());
    world.observed.references.agent = Sight::Seen(std::sync::Arc::new(object(json!({
        "metadata": {"name": "fixer"},
        "spec": {"providerRef": {"name": "scripted"}, "defaults": {"timeoutSeconds": 90}},
    }))));
    world.settle();

    assert_eq!(start(&world).1.timeouts.execution, Some(Duration::from_secs(90)));
}

#[test]
fn a_workflow_that_completes_ends_the_run_with_what_it_returned() {
    let mut world = started();
    let record = record(&world);
    assert_eq!(record["runId"], "first");
    assert_eq!(record["start"]["state"], "Started");

    closed(
        &mut world,
        Closed::Completed(Returned::Json(
            json!({"summary": "mended", "outputs": {"answer": 42}}),
        )),
    );

    assert_eq!(
        end(&world),
        (Some(RunPhase::Succeeded), Reason::Completed, "mended".to_owned())
    );
    let outcome = world.status().outcome.expect("an outcome");
    assert_eq!(outcome.outputs.expect("outputs").0["answer"], 42);
    assert_eq!(calls(&world).len(), 2);
    assert!(world.run().metadata.finalizers.as_ref().is_none_or(Vec::is_empty));
}

#[test]
fn how_the_workflow_was_closed_is_how_the_run_ends() {
    let some = |text: &str| Some(text.to_owned());
    for (how, phase, reason, word) in [
        (
            Closed::Failed {
                kind: some("TestsRed"),
                message: "two tests are red".to_owned(),
            },
            RunPhase::Failed,
            Reason::Failed,
            "failed (TestsRed): two tests are red",
        ),
        (
            Closed::Canceled { words: None },
            RunPhase::Cancelled,
            Reason::Cancelled,
            "was cancelled",
        ),
        (
            Closed::Terminated { words: some("stuck") },
            RunPhase::Failed,
            Reason::Terminated,
            "by somebody: stuck",
        ),
        (
            Closed::TimedOut,
            RunPhase::Failed,
            Reason::TimedOut,
            "time was up",
        ),
        (
            Closed::Vanished {
                words: "not found".to_owned(),
            },
            RunPhase::Failed,
            Reason::TemporalError,
            "retention",
        ),
    ] {
        let mut world = started();
        closed(&mut world, how.clone());
        let (found, why, message) = end(&world);
        assert_eq!((found, why), (Some(phase), reason), "{how:?}");
        assert!(message.contains(word) && message.contains(ID), "{message}");
    }
}

#[test]
fn a_start_whose_answer_was_lost_is_made_again_and_finds_its_own() {
    let mut world = called();
    start_answered(&mut world, 1, unclear());
    let blocked = world.condition(&ConditionType::Blocked);
    assert_eq!(blocked.reason, Reason::EndpointUnavailable);
    assert!(
        blocked.message.contains("temporal.example.com:7233"),
        "{}",
        blocked.message
    );

    world.wait(6).settle();
    assert_eq!(calls(&world)[1], format!("start 2 of {ID}"));
    start_answered(&mut world, 2, started_as("first"));
    assert_eq!(record(&world)["runId"], "first");
    assert_eq!(
        world.condition(&ConditionType::Blocked).status,
        ConditionStatus::False
    );
}

#[test]
fn another_process_starts_the_same_workflow_again() {
    let mut world = called();
    restart(&mut world);
    world.settle();

    assert_eq!(
        calls(&world),
        [format!("start 1 of {ID}"), format!("start 1 of {ID}")]
    );
    assert_eq!(record(&world)["start"]["by"], "another");
    start_answered(&mut world, 1, started_as("first"));
    restart(&mut world);
    world.settle();
    assert_eq!(calls(&world).last(), Some(&format!("follow {ID} on agents")));
}

#[test]
fn a_server_that_cannot_be_reached_is_tried_ever_more_rarely_and_then_given_up() {
    for (answer, reason, word) in [
        (not_taken(), Reason::SubmitFailed, "can be reached"),
        (unclear(), Reason::SubmitUnknown, "may be there"),
    ] {
        let mut world = called();
        let begin = world.now;
        let mut number = 1;
        loop {
            start_answered(&mut world, number, answer.clone());
            if world.phase() == Some(RunPhase::Failed) {
                break;
            }
            let blocked = world.condition(&ConditionType::Blocked);
            assert_eq!(blocked.reason, Reason::EndpointUnavailable);
            world.now = world.wake_at.expect("a time");
            world.settle();
            number += 1;
        }
        assert!(number < 12, "{number}");
        assert!(world.now.duration_since(begin).as_secs() <= 600);
        let (_, found, message) = end(&world);
        assert_eq!(found, reason);
        assert!(message.contains(word) && message.contains(ID), "{message}");
    }
}

#[test]
fn a_server_that_can_be_reached_again_ends_the_wait() {
    let mut world = called();
    start_answered(&mut world, 1, not_taken());
    let blocked = world.condition(&ConditionType::Blocked);
    assert_eq!(
        (&blocked.status, &blocked.reason),
        (&ConditionStatus::True, &Reason::EndpointUnavailable)
    );
    let due = world.wake_at.expect("it is tried again");
    let remedy = format!("it is tried again at {due}: see that it can be reached");
    assert!(blocked.message.contains(&remedy), "{}", blocked.message);

    world.now = due;
    world.settle();
    start_answered(&mut world, 2, started_as("first"));
    assert_eq!(world.phase(), Some(RunPhase::Running));
    assert_eq!(
        world.condition(&ConditionType::Blocked).status,
        ConditionStatus::False
    );
}

#[test]
fn an_id_that_somebody_else_has_and_a_refusal_fail_the_run() {
    for (answer, word) in [
        (
            StartAnswer::Occupied {
                words: "already started".to_owned(),
            },
            "spec.runtime.config.workflowId",
        ),
        (
            StartAnswer::Refused {
                words: "no such namespace".to_owned(),
            },
            "no such namespace",
        ),
    ] {
        let mut world = called();
        start_answered(&mut world, 1, answer);
        let (phase, reason, message) = end(&world);
        assert_eq!((phase, reason), (Some(RunPhase::Failed), Reason::SubmitFailed));
        assert!(message.contains(word), "{message}");
        assert_eq!(calls(&world).len(), 1);
    }
}

#[test]
fn what_keeps_a_workflow_from_going_on_is_told_until_it_does() {
    let mut world = started();
    heard(&mut world, Some("no worker polls task queue agents"), None);
    let warning = world.condition(&ConditionType::Warning);
    assert_eq!(
        (warning.status, warning.reason),
        (ConditionStatus::True, Reason::TemporalError)
    );
    assert_eq!(world.phase(), Some(RunPhase::Running));
    heard(&mut world, None, None);
    assert_eq!(
        world.condition(&ConditionType::Warning).status,
        ConditionStatus::False
    );
}

#[test]
fn a_workflow_that_outlives_its_time_by_far_is_stopped_and_the_run_has_timed_out() {
    let mut config = config();
    config["timeouts"] = json!({"workflowExecutionTimeoutMs": 60_000});
    let mut world = world(&config);
    world.settle();
    start_answered(&mut world, 1, started_as("first"));
    world.now = world.wake_at.expect("a deadline");
    world.settle();

    assert_eq!(calls(&world).last(), Some(&format!("cancel 1 of {ID}")));
    closed(&mut world, Closed::Canceled { words: None });
    let (phase, reason, _) = end(&world);
    assert_eq!((phase, reason), (Some(RunPhase::Failed), Reason::TimedOut));
}

#[test]
fn bad_configuration_is_told_by_its_field() {
    let long = "x".repeat(1001);
    for (config, reason, word) in [
        (
            json!({}),
            Reason::MissingTemporalConfig,
            "config.workflowType is missing",
        ),
        (
            json!({"workflowType": "Agent", "taskQueue": " "}),
            Reason::MissingTemporalConfig,
            "config.taskQueue is missing",
        ),
        (
            json!({"workflowType": 1, "taskQueue": "agents"}),
            Reason::InvalidRuntimeConfig,
            "config.workflowType is 1",
        ),
        (
            json!({"workflowType": "Agent", "taskQueue": "/_sys/x"}),
            Reason::InvalidRuntimeConfig,
            "config.taskQueue is \"/_sys/x\"",
        ),
        (
            json!({"workflowType": "Agent", "taskQueue": "agents", "workflowId": long}),
            Reason::InvalidRuntimeConfig,
            "config.workflowId is 1001 bytes long",
        ),
        (
            json!({"workflowType": "Agent", "taskQueue": "agents", "timeouts": 5}),
            Reason::InvalidRuntimeConfig,
            "config.timeouts is 5",
        ),
        (
            json!({"workflowType": "Agent", "taskQueue": "agents", "timeouts": {"workflowRunTimeoutMs": "1m"}}),
            Reason::InvalidRuntimeConfig,
            "config.timeouts.workflowRunTimeoutMs is \"1m\"",
        ),
    ] {
        let mut world = world(&config);
        world.settle();
        let invalid = world.condition(&ConditionType::InvalidSpec);
        assert_eq!(invalid.reason, reason, "{}", invalid.message);
        assert!(invalid.message.contains(word), "{}", invalid.message);
        assert!(calls(&world).is_empty());
    }
}

#[test]
fn an_installation_without_a_server_says_so() {
    let mut world = world(&config());
    world.settings.temporal.address = None;
    world.settle();

    let invalid = world.condition(&ConditionType::InvalidSpec);
    assert_eq!(invalid.reason, Reason::UnsupportedRuntime);
    assert!(
        invalid.message.contains("TEMPORAL_ADDRESS"),
        "{}",
        invalid.message
    );
}

#[test]
fn no_image_is_needed_where_there_is_no_pod() {
    let mut world = world(&config());
    world.settings.runner.image = None;
    world.settle();

    assert_eq!(calls(&world).len(), 1);
}

#[test]
fn a_prompt_that_only_a_pod_could_read_is_refused() {
    let mut world = world(&config());
    world.edit(|run| {
        run.spec.system_prompt_ref = Some(object(
            json!({"kind": "ConfigMap", "name": "prompts", "key": "main"}),
        ));
    });
    world.settle();

    let invalid = world.condition(&ConditionType::InvalidSpec);
    assert_eq!(invalid.reason, Reason::InvalidSystemPromptRef);
    assert!(invalid.message.contains("prompts"), "{}", invalid.message);
}

#[test]
fn a_record_that_cannot_be_read_never_leads_to_a_start() {
    let mut world = world(&config());
    world.edit(|run| {
        let mut status = run.status.clone().unwrap_or_default();
        status.runtime_ref = Some(AnyMap(object(json!({"type": "temporal", "workflowId": 7}))));
        run.status = Some(status);
    });
    world.settle();

    let (phase, reason, _) = end(&world);
    assert_eq!((phase, reason), (Some(RunPhase::Failed), Reason::SubmitUnknown));
    assert!(calls(&world).is_empty());
}

#[test]
fn below_a_run_that_is_being_cancelled_nothing_is_begun_and_at_its_deadline_it_is_cancelled() {
    let mut world = world(&config());
    let deadline = world.now + Duration::from_secs(58);
    world.observed.cancel_above = Some(deadline);

    world.settle();
    assert_eq!(calls(&world), [] as [&str; 0]);
    assert_eq!(world.wake_at, Some(deadline));

    world.now = deadline;
    world.settle();
    assert_eq!(calls(&world), [] as [&str; 0]);
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
}
