//! Runs whose work an endpoint does, played on values.

use std::{sync::Arc, time::Duration};

use jangar_api::{
    condition::ConditionStatus, condition::ConditionType, phase::RunPhase, reason::Reason, values::AnyMap,
};
use serde_json::{Value, json};

use super::{super::receipt, World, object};
use crate::{
    custom::{
        call::{Answer, CallId, CallState, Post, Purpose},
        callback::{Callback, Receipt, Report},
    },
    decision::{Effect, Sight, Uid},
};

pub(super) const ENDPOINT: &str = "https://agents.example.com/run";

/// A run of the runtime `custom` with this configuration.
pub(super) fn world(config: &Value) -> World {
    let mut world = World::new();
    world.settings.custom.callback_url = Some("https://jangar.example.com".to_owned());
    world.edit(|run| {
        run.spec.runtime = object(json!({"type": "custom", "config": config}));
    });
    world
}

/// A run whose endpoint has been called and has not answered yet.
pub(super) fn called() -> World {
    let mut world = world(&json!({"endpoint": ENDPOINT, "timeoutSeconds": 600}));
    world.settle();
    assert_eq!(calls(&world), [format!("submit 1 to {ENDPOINT} as run-1/1")]);
    world
}

/// A run whose endpoint has taken the work.
pub(super) fn taken() -> World {
    let mut world = called();
    answer(&mut world, Purpose::Submit, 1, taken_with(None));
    world.settle();
    world
}

pub(super) fn taken_with(response: Option<Value>) -> Answer {
    Answer::Taken { response }
}

pub(super) fn words(text: &str) -> String {
    text.to_owned()
}

pub(super) fn not_taken(text: &str) -> Answer {
    Answer::NotTaken {
        words: words(text),
        retry_after: None,
    }
}

pub(super) fn answer(world: &mut World, purpose: Purpose, number: u32, answer: Answer) {
    let id = CallId {
        run: Uid("run-1".to_owned()),
        purpose,
        number,
    };
    let calls = &mut world.observed.outside.calls;
    assert_eq!(
        calls.insert(id, CallState::Answered(answer)),
        Some(CallState::UnderWay)
    );
}

fn callback(report: &Value) -> Callback {
    Callback {
        run: Uid("run-1".to_owned()),
        attempt: 1,
        report: Report::read(report.to_string().as_bytes()).expect("a report"),
    }
}

/// The endpoint reports; returns what it is answered.
pub(super) fn report(world: &mut World, report: &Value) -> Receipt {
    let callback = callback(report);
    world.observed.outside.callbacks.push(callback.clone());
    world.settle();
    world.observed.outside.callbacks.clear();
    receipt(world.observed.run.as_deref(), &callback)
}

/// Another process takes over: it knows nothing of what the one before it did.
pub(super) fn restart(world: &mut World) {
    world.observed.outside.process = "another".to_owned();
    world.observed.outside.calls.clear();
}

pub(super) fn end(world: &World) -> (Option<RunPhase>, Reason, String) {
    let condition = world.condition(&ConditionType::Succeeded);
    (world.phase(), condition.reason, condition.message)
}

/// The calls that were made, as words.
pub(super) fn calls(world: &World) -> Vec<String> {
    let is_call = |deed: &String| deed.starts_with("submit") || deed.starts_with("cancel");
    world.deeds().into_iter().filter(is_call).collect()
}

fn first_call(world: &World) -> &Post {
    let call = world.done.iter().find_map(|effect| match effect {
        Effect::PostCustom(post) => Some(post),
        _ => None,
    });
    call.expect("a call")
}

pub(super) fn posts(world: &World) -> usize {
    let is_post = |effect: &&Effect| matches!(effect, Effect::PostCustom(_));
    world.done.iter().filter(is_post).count()
}

#[test]
fn an_endpoint_is_told_of_no_secret_that_is_blocked() {
    let memory = json!({
        "metadata": {"name": "notes"},
        "spec": {"type": "postgres", "connection": {"secretRef": {"name": "root", "key": "url"}}},
    });
    let plays: [fn(&mut World, Value); 2] = [
        |world, _| {
            world.edit(|run| run.spec.secrets = vec!["root".to_owned()]);
        },
        |world, memory| {
            world.edit(|run| run.spec.memory_ref = Some(object(json!({"name": "notes"}))));
            world.observed.references.memory = Some(Sight::Seen(Arc::new(object(memory))));
        },
    ];
    for play in plays {
        let mut world = world(&json!({"endpoint": ENDPOINT}));
        world.settings.policy.blocked_secrets.insert("root".to_owned());
        play(&mut world, memory.clone());
        world.settle();
        assert_eq!(world.phase(), Some(RunPhase::Failed));
        assert_eq!(
            world.condition(&ConditionType::InvalidSpec).reason,
            Reason::SecretBlocked
        );
        assert!(calls(&world).is_empty(), "nothing is told");
    }
}

#[test]
fn the_intent_is_written_before_the_call_and_holds_who_makes_it() {
    let world = called();

    let status = world.status();
    assert_eq!(status.phase, Some(RunPhase::Running));
    let reference = status.runtime_ref.expect("a record").0;
    assert_eq!(reference["type"], "custom");
    assert_eq!(reference["name"], ENDPOINT);
    assert_eq!(reference["namespace"], "external");
    assert_eq!(reference["submission"]["state"], "Intended");
    assert_eq!(reference["submission"]["by"], "me");
    assert!(status.spec_hash.is_some());
    assert_eq!(world.wake_at, Some(world.now + Duration::from_mins(10)));
    let post = first_call(&world);
    assert_eq!(
        post.body["agentRun"],
        json!({"name": "mend", "namespace": "agents", "uid": "run-1"})
    );
    assert_eq!(post.body["implementation"]["text"], "Mend it.");
    assert_eq!(post.body["memory"], Value::Null);
}

#[test]
fn a_payload_of_the_users_own_is_sent_as_it_is() {
    let payload = json!({"anything": [1, 2]});
    let mut world = world(&json!({"endpoint": ENDPOINT, "payload": payload}));
    world.settle();

    let post = first_call(&world);
    assert_eq!(post.body, payload);
}

#[test]
fn the_endpoint_gets_the_system_prompt_and_one_that_only_a_pod_could_read_is_refused() {
    let mut world = world(&json!({"endpoint": ENDPOINT}));
    world.edit(|run| run.spec.system_prompt = Some("Be brief.".to_owned()));
    world.settle();
    assert_eq!(first_call(&world).body["systemPrompt"], "Be brief.");

    for config in [
        json!({"endpoint": ENDPOINT}),
        json!({"endpoint": ENDPOINT, "payload": {"task": 7}}),
    ] {
        let mut world = self::world(&config);
        world.edit(|run| {
            run.spec.system_prompt_ref = Some(object(
                json!({"kind": "ConfigMap", "name": "prompts", "key": "main"}),
            ));
        });
        world.settle();
        let invalid = world.condition(&ConditionType::InvalidSpec);
        assert_eq!(invalid.reason, Reason::InvalidSystemPromptRef);
        assert_eq!(posts(&world), 0);
    }
}

#[test]
fn an_endpoint_that_takes_the_work_and_reports_its_end_ends_the_run() {
    let mut world = called();
    answer(
        &mut world,
        Purpose::Submit,
        1,
        taken_with(Some(json!({"job": 7}))),
    );
    world.settle();

    let reference = world.status().runtime_ref.expect("a record").0;
    assert_eq!(reference["submission"], json!({"state": "Taken"}));
    assert_eq!(reference["response"], json!({"job": 7}));
    assert_eq!(world.phase(), Some(RunPhase::Running));

    let received = report(
        &mut world,
        &json!({"status": "Succeeded", "summary": "mended", "outputs": {"answer": 42}}),
    );

    assert_eq!(received, Receipt::Recorded(RunPhase::Succeeded));
    assert_eq!(
        end(&world),
        (Some(RunPhase::Succeeded), Reason::Completed, words("mended"))
    );
    let outcome = world.status().outcome.expect("an outcome");
    assert_eq!(outcome.outputs.expect("outputs").0["answer"], 42);
    assert_eq!(posts(&world), 1);
}

#[test]
fn a_failure_that_is_reported_is_told_in_the_endpoints_words() {
    let mut world = taken();

    report(
        &mut world,
        &json!({"status": "Failed", "reason": "NoMoney", "message": "the budget is used up"}),
    );

    let (phase, reason, message) = end(&world);
    assert_eq!((phase, reason), (Some(RunPhase::Failed), Reason::Failed));
    assert!(
        message.contains("NoMoney") && message.contains("the budget is used up"),
        "{message}"
    );
}

#[test]
fn progress_is_recorded_at_most_once_a_second_and_not_twice() {
    let mut world = taken();
    let half = json!({"status": "Running", "percent": 50, "message": "half way"});

    assert_eq!(report(&mut world, &half), Receipt::Recorded(RunPhase::Running));
    assert_eq!(
        world.condition(&ConditionType::InProgress).message,
        "50 %: half way"
    );
    let before = world.status();
    assert_eq!(report(&mut world, &half), Receipt::Recorded(RunPhase::Running));
    assert_eq!(world.status(), before);
    let more = json!({"status": "Running", "percent": 60});
    assert_eq!(report(&mut world, &more), Receipt::TooOften(RunPhase::Running));
    assert_eq!(world.status(), before);
    world.wait(1);
    assert_eq!(report(&mut world, &more), Receipt::Recorded(RunPhase::Running));
}

#[test]
fn an_answer_that_is_read_after_the_first_report_is_kept() {
    let ticket = json!({"ticket": 7});
    let mut world = called();

    let receipt = report(&mut world, &json!({"status": "Running", "percent": 50}));
    assert_eq!(receipt, Receipt::Recorded(RunPhase::Running));
    answer(&mut world, Purpose::Submit, 1, taken_with(Some(ticket.clone())));
    let done = json!({"status": "Succeeded"});
    assert_eq!(report(&mut world, &done), Receipt::Recorded(RunPhase::Succeeded));

    let reference = world.status().runtime_ref.expect("a reference");
    assert_eq!(reference.0["response"], ticket);
}

#[test]
fn a_refusal_fails_the_run_and_is_not_repeated() {
    let mut world = called();
    answer(
        &mut world,
        Purpose::Submit,
        1,
        Answer::Refused {
            words: words("HTTP 422: no such team"),
        },
    );
    world.settle();

    let (phase, reason, message) = end(&world);
    assert_eq!((phase, reason), (Some(RunPhase::Failed), Reason::SubmitFailed));
    assert!(message.contains("HTTP 422: no such team"), "{message}");
    assert_eq!(posts(&world), 1);
}

#[test]
fn an_answer_that_never_came_is_waited_for_until_the_deadline_and_never_sent_again() {
    let mut world = called();
    answer(
        &mut world,
        Purpose::Submit,
        1,
        Answer::Unknown {
            words: words("HTTP 502"),
        },
    );
    world.settle();

    let warning = world.condition(&ConditionType::Warning);
    assert_eq!(warning.reason, Reason::SubmitUnknown);
    assert!(warning.message.contains("HTTP 502"), "{}", warning.message);
    assert_eq!(world.phase(), Some(RunPhase::Running));
    world.wait(599).settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
    world.wait(1).settle();
    let (phase, reason, _) = end(&world);
    assert_eq!((phase, reason), (Some(RunPhase::Failed), Reason::SubmitUnknown));
    let sent = calls(&world);
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(
        sent[1].starts_with("cancel 1"),
        "what may be working is told to stop: {sent:?}"
    );
}

#[test]
fn a_process_that_finds_the_intent_of_another_does_not_call() {
    let mut world = called();
    restart(&mut world);
    world.settle();

    assert_eq!(
        world.condition(&ConditionType::Warning).reason,
        Reason::SubmitUnknown
    );
    assert_eq!(posts(&world), 1);
    let received = report(&mut world, &json!({"status": "Running"}));
    assert_eq!(received, Receipt::Recorded(RunPhase::Running));
    assert_eq!(
        world.condition(&ConditionType::Warning).status,
        ConditionStatus::False
    );
    report(&mut world, &json!({"status": "Succeeded"}));
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert_eq!(posts(&world), 1);
}

#[test]
fn the_process_that_wrote_the_intent_and_has_not_called_yet_still_does() {
    let mut world = called();
    // Its write was answered by nobody, and it led again later.
    world.observed.outside.calls.clear();
    world.done.clear();
    world.wait(30).settle();

    assert_eq!(calls(&world), [format!("submit 1 to {ENDPOINT} as run-1/1")]);
}

#[test]
fn a_call_that_was_surely_not_made_until_the_deadline_is_no_unknown_one() {
    let mut world = called();
    // It is still to be made by this process, which was away for long.
    world.observed.outside.calls.clear();
    world.done.clear();
    world.wait(600).settle();

    let (phase, reason, message) = end(&world);
    assert_eq!((phase, reason), (Some(RunPhase::Failed), Reason::SubmitFailed));
    assert!(message.contains("does not have the work"), "{message}");
    assert_eq!(calls(&world), [] as [&str; 0], "there is nobody to tell to stop");
}

#[test]
fn work_whose_taking_is_read_at_the_deadline_has_timed_out() {
    let mut world = called();
    world.wait(600);
    answer(&mut world, Purpose::Submit, 1, taken_with(None));
    world.settle();

    let (phase, reason, _) = end(&world);
    assert_eq!((phase, reason), (Some(RunPhase::Failed), Reason::TimedOut));
}

#[test]
fn a_call_that_did_not_arrive_is_made_again_ever_more_rarely_and_then_given_up() {
    let mut world = called();
    let mut waits = Vec::new();
    for number in 1.. {
        answer(
            &mut world,
            Purpose::Submit,
            number,
            not_taken("connection refused"),
        );
        world.settle();
        if world.phase() == Some(RunPhase::Failed) {
            break;
        }
        let blocked = world.condition(&ConditionType::Blocked);
        assert_eq!(blocked.reason, Reason::EndpointUnavailable);
        let due = world.wake_at.expect("a time");
        waits.push(due.duration_since(world.now).as_secs());
        world.now = due;
        world.settle();
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 120, 120, 120]);
    let (_, reason, message) = end(&world);
    assert_eq!(reason, Reason::SubmitFailed);
    assert!(message.contains("connection refused"), "{message}");
}

#[test]
fn an_endpoint_that_asks_to_be_called_later_is_and_the_wait_is_over_then() {
    let mut world = called();
    let later = Answer::NotTaken {
        words: words("HTTP 429"),
        retry_after: Some(Duration::from_mins(1)),
    };
    answer(&mut world, Purpose::Submit, 1, later);
    world.settle();
    assert_eq!(world.wake_at, Some(world.now + Duration::from_mins(1)));
    world.wait(60).settle();
    answer(&mut world, Purpose::Submit, 2, taken_with(None));
    world.settle();

    assert_eq!(
        world.condition(&ConditionType::Blocked).status,
        ConditionStatus::False
    );
    assert_eq!(
        calls(&world),
        [
            format!("submit 1 to {ENDPOINT} as run-1/1"),
            format!("submit 2 to {ENDPOINT} as run-1/1")
        ]
    );
}

#[test]
fn an_address_that_may_not_be_connected_to_is_a_fault_of_the_spec() {
    let mut world = called();
    let refused = Answer::NotAllowed {
        words: words("10.0.0.1 is a private address"),
    };
    answer(&mut world, Purpose::Submit, 1, refused);
    world.settle();

    let invalid = world.condition(&ConditionType::InvalidSpec);
    assert_eq!(invalid.reason, Reason::EndpointNotAllowed);
    assert!(invalid.message.contains("10.0.0.1"), "{}", invalid.message);
    assert_eq!(world.phase(), Some(RunPhase::Failed));
}

#[test]
fn work_that_is_not_reported_in_time_has_timed_out() {
    let mut world = taken();
    world.wait(600).settle();

    let (phase, reason, _) = end(&world);
    assert_eq!((phase, reason), (Some(RunPhase::Failed), Reason::TimedOut));
    let late = report(&mut world, &json!({"status": "Succeeded"}));
    assert!(
        matches!(late, Receipt::Ended(RunPhase::Failed, ref why) if why.starts_with("TimedOut")),
        "{late:?}"
    );
    assert!(
        !crate::removal::is_under_way(world.run()),
        "whoever has reported an end has stopped"
    );
}

#[test]
fn bad_configuration_is_told_by_its_field() {
    for (config, reason, word) in [
        (json!({}), Reason::MissingEndpoint, "endpoint"),
        (json!({"endpoint": " "}), Reason::MissingEndpoint, "endpoint"),
        (json!({"endpoint": 7}), Reason::InvalidRuntimeConfig, "a number"),
        (
            json!({"endpoint": "agents.example.com"}),
            Reason::InvalidRuntimeConfig,
            "https://",
        ),
        (
            json!({"endpoint": "https://me:secret@a.example"}),
            Reason::InvalidRuntimeConfig,
            "password",
        ),
        (
            json!({"endpoint": "http://a.example"}),
            Reason::EndpointNotAllowed,
            "ALLOWED_ENDPOINTS",
        ),
        (
            json!({"endpoint": ENDPOINT, "timeoutSeconds": 0}),
            Reason::InvalidRuntimeConfig,
            "timeoutSeconds",
        ),
        (
            json!({"endpoint": ENDPOINT, "timeoutSeconds": "1h"}),
            Reason::InvalidRuntimeConfig,
            "timeoutSeconds",
        ),
        (
            json!({"endpoint": ENDPOINT, "timeoutSeconds": 1.5}),
            Reason::InvalidRuntimeConfig,
            "timeoutSeconds",
        ),
        (
            json!({"endpoint": ENDPOINT, "payload": "x".repeat(1024 * 1024)}),
            Reason::InputsTooLarge,
            "payload",
        ),
    ] {
        let mut world = world(&config);
        world.settle();

        let (phase, found, message) = end(&world);
        assert_eq!((phase, found), (Some(RunPhase::Failed), reason), "{config}");
        assert!(message.contains(word), "{message}");
        assert_eq!(posts(&world), 0);
    }
}

#[test]
fn an_installation_without_callbacks_says_so() {
    let mut world = world(&json!({"endpoint": ENDPOINT}));
    world.settings.custom.callback_url = None;
    world.settle();

    let (_, reason, message) = end(&world);
    assert_eq!(reason, Reason::UnsupportedRuntime);
    assert!(
        message.contains("JANGAR_CUSTOM_RUNTIME_CALLBACK_URL"),
        "{message}"
    );
}

#[test]
fn a_missing_agent_has_its_grace_and_nothing_is_called_before() {
    let mut world = world(&json!({"endpoint": ENDPOINT}));
    world.observed.references.agent = Sight::Absent;
    world.settle();

    assert_eq!(
        world.condition(&ConditionType::Blocked).reason,
        Reason::MissingAgent
    );
    assert_eq!(posts(&world), 0);
}

#[test]
fn the_agents_time_counts_where_the_run_says_none() {
    let mut world = world(&json!({"endpoint": ENDPOINT}));
    let agent = json!({
        "metadata": {"name": "fixer"},
        "spec": {"providerRef": {"name": "scripted"}, "defaults": {"timeoutSeconds": 30}},
    });
    world.observed.references.agent = Sight::Seen(std::sync::Arc::new(object(agent)));
    world.settle();

    assert_eq!(world.wake_at, Some(world.now + Duration::from_secs(30)));
}

#[test]
fn a_record_that_cannot_be_read_never_leads_to_a_call() {
    let mut world = taken();
    world.edit(|run| {
        let status = run.status.get_or_insert_default();
        status.runtime_ref = Some(AnyMap(object(json!({"type": "custom", "name": 7}))));
    });
    world.settle();

    let (phase, reason, _) = end(&world);
    assert_eq!((phase, reason), (Some(RunPhase::Failed), Reason::SubmitUnknown));
    assert_eq!(posts(&world), 1);
}

#[test]
fn a_report_about_something_else_is_answered_and_changes_nothing() {
    let world = taken();
    let run = world.observed.run.as_deref();
    let mut report = callback(&json!({"status": "Succeeded"}));

    assert_eq!(receipt(run, &report), Receipt::Later);
    report.attempt = 2;
    assert_eq!(receipt(run, &report), Receipt::Superseded);
    report.run = Uid("another".to_owned());
    assert_eq!(receipt(run, &report), Receipt::Gone);
    assert_eq!(receipt(None, &report), Receipt::Gone);
    let mut world = world;
    world.observed.outside.callbacks.push(report);
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
}

#[test]
fn below_a_run_that_is_being_cancelled_nothing_is_begun_and_at_its_deadline_it_is_cancelled() {
    let mut world = world(&json!({"endpoint": ENDPOINT, "timeoutSeconds": 600}));
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
