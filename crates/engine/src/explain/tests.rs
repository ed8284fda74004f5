//! What people are told.

#![expect(
    clippy::needless_pass_by_value,
    reason = "every caller makes the value on the spot"
)]

use std::fmt::Write as _;

use jangar_api::reason::Reason;
use jiff::ToSpan;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-03-01T12:00:00Z";
const SINCE: &str = "2026-03-01T11:58:30Z";

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

fn read<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE})
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name, "namespace": "agents", "uid": format!("uid-{name}"), "creationTimestamp": "2026-03-01T11:00:00Z",
    })
}

fn agent_run(name: &str, status: Value) -> AgentRun {
    read(json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1",
        "kind": "AgentRun",
        "metadata": metadata(name),
        "spec": {
            "agentRef": {"name": "coder"},
            "implementationSpecRef": {"name": "feature"},
            "runtime": {"type": "job"},
        },
        "status": status,
    }))
}

fn tool_run(name: &str, status: Value) -> ToolRun {
    read(json!({
        "apiVersion": "tools.proompteng.ai/v1alpha1",
        "kind": "ToolRun",
        "metadata": metadata(name),
        "spec": {"toolRef": {"name": "lint"}},
        "status": status,
    }))
}

fn orchestration_run(name: &str, status: Value) -> OrchestrationRun {
    read(json!({
        "apiVersion": "orchestration.proompteng.ai/v1alpha1",
        "kind": "OrchestrationRun",
        "metadata": metadata(name),
        "spec": {"orchestrationRef": {"name": "release"}},
        "status": status,
    }))
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"phase": "Pending", "conditions": [condition("Blocked", "True", reason, message)]})
}

/// Waits for a limit on the runs of the Agent that all of them have.
fn in_line(reason: &str, message: &str) -> Value {
    let mut status = waiting(reason, message);
    status["waiting"] = json!({"scope": "agent", "name": "coder", "limit": 2});
    status
}

fn failed(reason: &str, message: &str) -> Value {
    json!({"phase": "Failed", "conditions": [condition("Failed", "True", reason, message)]})
}

fn running() -> Value {
    json!({"phase": "Running", "startedAt": SINCE, "conditions": []})
}

/// A step of an orchestration, whose child has the uid of its name.
fn step(name: &str, phase: &str, more: Value) -> Value {
    let mut step = json!({"name": name, "kind": "AgentRun", "phase": phase});
    let (Some(step_fields), Value::Object(more)) = (step.as_object_mut(), more) else {
        panic!("a step is an object");
    };
    step_fields.extend(more);
    step
}

fn child(name: &str) -> Value {
    json!({"resourceRef": {"kind": "AgentRun", "name": name, "namespace": "agents", "uid": format!("uid-{name}")}})
}

fn alone<'a>(what: impl Into<Subject<'a>>) -> Explanation {
    explain(what.into(), &Context::default(), now())
}

#[test]
fn every_reason_names_who_can_do_something_and_with_which_command() {
    for reason in Reason::KNOWN {
        let word = reason.as_str();
        for status in [waiting(word, "words"), failed(word, "words")] {
            let runs = (
                agent_run("a", status.clone()),
                tool_run("t", status.clone()),
                orchestration_run("o", status),
            );
            for told in [alone(&runs.0), alone(&runs.1), alone(&runs.2)] {
                let headline = &told.headline;
                let command = told.commands.first().expect(headline);
                assert!(headline.contains(&format!("`{}`", command.line)), "{headline}");
                assert!(
                    headline.ends_with('.') && !headline.contains(['\n', '\t']),
                    "{headline}"
                );
                assert!(!headline.contains("  ") && !headline.contains(" ,"), "{headline}");
                assert!(headline.contains("agents"), "{headline}");
                assert!(!told.who_can_unblock.is_empty(), "{headline}");
                assert_eq!(told.reason.as_deref(), Some(word));
                let fine = reasons::row(reason).cause == Cause::Fine;
                assert!(fine || headline.contains(" because "), "{word}: {headline}");
            }
        }
    }
}

#[test]
fn the_headlines_of_all_reasons() {
    let mut text = String::new();
    for reason in Reason::KNOWN {
        if reasons::row(reason).cause == Cause::Fine {
            continue;
        }
        let run = agent_run("fix", failed(reason.as_str(), ""));
        writeln!(text, "{reason}\n  {}", alone(&run).headline).expect("written");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_run_in_line_is_told_its_place_and_whom_to_cancel() {
    let words = "as many runs of Agent coder are under way as may be at once, which is 2: the run starts in its turn when one of \
                 them has ended; cancel one, or raise JANGAR_AGENTS_CONTROLLER_CONCURRENCY_AGENT";
    let run = agent_run("fix-3", in_line("ConcurrencyLimit", words));
    let other = agent_run("fix-2", in_line("ConcurrencyLimit", words));
    let (first, second) = (agent_run("old", running()), agent_run("new", running()));
    let mut elsewhere = agent_run("elsewhere", running());
    elsewhere.spec.agent_ref.name = "reviewer".to_owned();
    let context = Context {
        agent_runs: vec![&first, &other, &elsewhere, &run, &second],
        ..Context::default()
    };
    let told = explain(Subject::AgentRun(&run), &context, now());
    assert_eq!(
        told.position,
        Some(Position {
            place: 2,
            of: Some(2)
        })
    );
    insta::assert_snapshot!(told);
}

#[test]
fn no_place_is_told_where_only_some_of_those_who_wait_are_known() {
    let run = agent_run("a-first", in_line("ConcurrencyLimit", "wait"));
    let other = agent_run("other", in_line("ConcurrencyLimit", "wait"));
    let context = Context {
        agent_runs: vec![&run, &other],
        more_agent_runs: true,
        ..Context::default()
    };
    let told = explain(Subject::AgentRun(&run), &context, now());
    assert_eq!(told.position, None);
    assert!(!told.headline.contains("number"), "{}", told.headline);
}

#[test]
fn a_more_important_run_is_ahead_whenever_it_came() {
    let words = "as many runs of Agent coder are under way as may be at once, which is 2: wait";
    let run = agent_run("a-first", in_line("ConcurrencyLimit", words));
    let mut urgent = agent_run("urgent", in_line("ConcurrencyLimit", words));
    urgent.spec.priority = 10.into();
    let context = Context {
        agent_runs: vec![&run, &urgent],
        ..Context::default()
    };
    let place = |run: &AgentRun| {
        explain(Subject::AgentRun(run), &context, now())
            .position
            .map(|at| at.place)
    };
    assert_eq!((place(&urgent), place(&run)), (Some(1), Some(2)));
}

#[test]
fn whom_to_cancel_for_a_place_came_earlier_however_important() {
    let mut runs = ["old", "asks", "young"].map(|name| agent_run(name, in_line("QueueLimit", "wait")));
    for (second, run) in runs.iter_mut().enumerate() {
        let created = now() - (60 - i64::try_from(second).unwrap()).seconds();
        run.metadata.creation_timestamp = Some(Time(created));
    }
    runs[2].spec.priority = 10.into();
    let context = Context {
        agent_runs: runs.iter().collect(),
        ..Context::default()
    };
    let told = explain(Subject::AgentRun(&runs[1]), &context, now());
    let cancels: Vec<&str> = told
        .commands
        .iter()
        .map(|command| command.line.as_str())
        .collect();
    assert_eq!(cancels, ["agentctl cancel run old -n agents"]);
}

/// What a run has whose first attempt failed.
fn between_attempts() -> Value {
    let words = "attempt 1 ended: exit code 3; attempt 2 starts at 2026-03-01T13:00:00Z";
    json!({
        "phase": "Running", "startedAt": SINCE,
        "conditions": [condition("InProgress", "True", "JobFailed", words)],
        "runtimeRef": {
            "type": "job", "name": "fix-job-attempt-2", "namespace": "agents", "attempt": 2, "failures": 1,
            "nextAttemptAt": "2026-03-01T13:00:00Z",
        },
    })
}

#[test]
fn a_run_between_two_attempts_holds_no_slot() {
    let run = agent_run("fix", in_line("ConcurrencyLimit", "wait"));
    let (works, waits) = (
        agent_run("works", running()),
        agent_run("waits", between_attempts()),
    );
    let context = Context {
        agent_runs: vec![&works, &waits, &run],
        ..Context::default()
    };
    let told = explain(Subject::AgentRun(&run), &context, now());
    let lines: Vec<&str> = told
        .commands
        .iter()
        .map(|command| command.line.as_str())
        .collect();
    assert_eq!(lines, ["agentctl cancel run works -n agents"]);
}

#[test]
fn a_run_between_two_attempts_waits_and_says_until_when() {
    let told = alone(&agent_run("fix", between_attempts()));
    assert_eq!(told.state, State::Waiting);
    assert_eq!(told.reason.as_deref(), Some("RetryBackoff"));
    assert!(
        told.headline.contains("its next attempt has its time"),
        "{}",
        told.headline
    );
    assert!(
        told.because[0].contains("attempt 2 starts at 2026-03-01T13:00:00Z"),
        "{:?}",
        told.because
    );
}

#[test]
fn what_somebody_knows_better_counts() {
    let run = agent_run("fix", waiting("RateLimit", "wait"));
    let context = Context {
        position: Some(Position { place: 7, of: None }),
        ..Context::default()
    };
    let told = explain(Subject::AgentRun(&run), &context, now());
    assert!(told.headline.contains("number 7 in line"), "{}", told.headline);
}

fn gated(approvals: Value) -> OrchestrationRun {
    let mut run = orchestration_run(
        "ship-1",
        json!({
            "phase": "Running",
            "conditions": [condition("Blocked", "True", "ApprovalPending", "step sign off: waits")],
            "approvals": approvals,
            "stepStatuses": [
                step("build", "Succeeded", json!({})),
                step("test", "Running", child("ship-1-test-1")),
                step("sign off", "Running", json!({
                    "kind": "ApprovalGate", "waitsFor": {"approvalPolicy": "release", "digest": "d1"},
                })),
            ],
        }),
    );
    run.metadata.annotations = Some(
        [(jangar_api::labels::CREATED_BY.to_owned(), "ada".to_owned())]
            .into_iter()
            .collect(),
    );
    run
}

fn policy(spec: Value) -> ApprovalPolicy {
    read(json!({
        "apiVersion": "approvals.proompteng.ai/v1alpha1",
        "kind": "ApprovalPolicy",
        "metadata": metadata("release"),
        "spec": spec,
    }))
}

#[test]
fn a_gate_names_who_may_approve_and_how() {
    let run = gated(json!([
        {"step": "sign off", "decision": "Approved", "by": "grace", "digest": "d1"},
        {"step": "sign off", "decision": "Approved", "by": "linus", "digest": "another"},
    ]));
    let policy = policy(json!({
        "requiredApprovals": 2,
        "subjects": [{"kind": "Group", "name": "releasers"}, {"kind": "User", "name": "grace"}],
    }));
    let context = Context {
        policies: vec![&policy],
        ..Context::default()
    };
    insta::assert_snapshot!(explain(Subject::OrchestrationRun(&run), &context, now()));
    insta::assert_snapshot!(alone(&run));
}

#[test]
fn a_gate_that_a_phase_decides_names_the_phase() {
    let run = gated(json!([]));
    let policy = policy(json!({"mode": "phase"}));
    let context = Context {
        policies: vec![&policy],
        ..Context::default()
    };
    let told = explain(Subject::OrchestrationRun(&run), &context, now());
    let first = told.commands.first().expect("a command");
    assert!(first.line.contains("--subresource=status"), "{}", first.line);
}

#[test]
fn a_step_that_waits_for_a_signal_names_how_to_deliver_it() {
    let run = orchestration_run(
        "ship-1",
        json!({
            "phase": "Running",
            "conditions": [condition("Blocked", "True", "SignalPending", "step go: waits for Signal go")],
            "stepStatuses": [step("go", "Running", json!({
                "kind": "SignalWait", "waitsFor": {"signal": "go", "deliveryId": "77"},
            }))],
        }),
    );
    insta::assert_snapshot!(alone(&run));
}

#[test]
fn an_orchestration_waits_for_what_its_step_waits_for() {
    let run = orchestration_run(
        "ship-1",
        json!({"phase": "Running", "stepStatuses": [step("build", "Running", child("ship-1-build-1"))]}),
    );
    let build = agent_run(
        "ship-1-build-1",
        waiting(
            "MissingAgent",
            "spec.agentRef.name is coder, and there is no such Agent",
        ),
    );
    let context = Context {
        agent_runs: vec![&build],
        ..Context::default()
    };
    let told = explain(Subject::OrchestrationRun(&run), &context, now());
    assert_eq!(told.state, State::Waiting);
    insta::assert_snapshot!(told);
    // Nobody knows of the child: the orchestration is at work.
    assert_eq!(alone(&run).state, State::Working);
}

#[test]
fn an_orchestration_failed_because_of_the_step_that_may_not() {
    let status = json!({
        "phase": "Failed",
        "conditions": [condition("Failed", "True", "AgentRunFailed", "step build failed: words")],
        "definition": {"steps": [
            {"name": "lint", "kind": "AgentRun", "continueOnFailure": true},
            {"name": "build", "kind": "AgentRun"},
            {"name": "ship", "kind": "AgentRun"},
        ]},
        "stepStatuses": [
            step("lint", "Failed", child("ship-1-lint-1")),
            step("build", "Failed", child("ship-1-build-1")),
            step("ship", "Skipped", json!({"reason": "DependencyFailed", "causedBy": "build"})),
        ],
    });
    let run = orchestration_run("ship-1", status);
    let mut build = agent_run(
        "ship-1-build-1",
        failed("JobFailed", "attempt 1: the program failed"),
    );
    let outcome = json!({"exitCode": 2, "message": "no such branch"});
    build.status.as_mut().expect("a status").outcome = Some(read(outcome));
    let context = Context {
        agent_runs: vec![&build],
        ..Context::default()
    };
    insta::assert_snapshot!(explain(Subject::OrchestrationRun(&run), &context, now()));
    insta::assert_snapshot!(alone(&run));
}

#[test]
fn nested_orchestrations_are_followed_down_to_the_run_that_waits() {
    let outer = orchestration_run(
        "outer",
        json!({"phase": "Running", "stepStatuses": [step("inner", "Running", child("outer-inner-1"))]}),
    );
    let inner = orchestration_run(
        "outer-inner-1",
        json!({"phase": "Running", "stepStatuses": [step("leaf", "Running", child("leaf"))]}),
    );
    let leaf = agent_run(
        "leaf",
        waiting("PodWaiting", "pod leaf-x cannot be placed on a node"),
    );
    let context = Context {
        agent_runs: vec![&leaf],
        orchestration_runs: vec![&inner],
        ..Context::default()
    };
    let told = explain(Subject::OrchestrationRun(&outer), &context, now());
    assert_eq!(told.state, State::Waiting);
    assert!(
        told.headline
            .contains("AgentRun agents/leaf waits because its pod has not started")
    );
}

#[test]
fn an_orchestration_that_is_its_own_child_is_no_endless_story() {
    let run = orchestration_run(
        "ring",
        json!({"phase": "Running", "stepStatuses": [step("again", "Running", child("ring"))]}),
    );
    let context = Context {
        orchestration_runs: vec![&run],
        ..Context::default()
    };
    assert!(
        !explain(Subject::OrchestrationRun(&run), &context, now())
            .headline
            .is_empty()
    );
}

#[test]
fn other_standings_are_told_too() {
    let unseen = AgentRun {
        status: None,
        ..agent_run("fresh", json!({}))
    };
    let mut deleted = agent_run("leaving", running());
    deleted.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    let cancelling = agent_run(
        "stopping",
        json!({
            "phase": "Cancelling",
            "cancelDeadline": "2026-03-01T12:01:00Z",
            "conditions": [condition("Succeeded", "Unknown", "Cancelling", "the run is being cancelled")],
        }),
    );
    let duplicate = agent_run(
        "twin",
        json!({
            "phase": "Cancelled",
            "canonicalRun": "first",
            "conditions": [condition("Cancelled", "True", "Duplicate", "run first has the same idempotencyKey")],
        }),
    );
    let done = agent_run(
        "done",
        json!({
            "phase": "Succeeded",
            "conditions": [
                condition("Succeeded", "True", "Completed", "the agent has finished"),
                condition("ResultUnavailable", "True", "ResultUnavailable", "its pod was gone"),
            ],
        }),
    );
    let disobedient = agent_run(
        "busy",
        json!({
            "phase": "Running",
            "conditions": [condition("Cancelled", "False", "CancelDisabled", "the settings do not allow it")],
        }),
    );
    let tool = tool_run("lint-1", failed("TimedOut", "it took longer than 60 s"));
    let strange = agent_run("strange", waiting("SolarFlare", "wait for the sun"));
    let told: Vec<String> = [
        alone(&unseen),
        alone(&deleted),
        alone(&cancelling),
        alone(&duplicate),
        alone(&done),
        alone(&disobedient),
        alone(&tool),
        alone(&strange),
    ]
    .iter()
    .map(ToString::to_string)
    .collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn an_answer_survives_the_way_to_another_program() {
    let run = agent_run(
        "fix",
        in_line("QueueLimit", "as many runs of Agent coder wait as may"),
    );
    let told = alone(&run);
    let text = serde_json::to_string_pretty(&told).expect("it is JSON");
    assert_eq!(
        serde_json::from_str::<Explanation>(&text).expect("it is read"),
        told
    );
    insta::assert_snapshot!(text);
}

#[test]
fn of_a_run_that_is_gone_the_end_is_told_and_no_command_needs_the_run() {
    let gone = |run: &AgentRun| explain_gone(run.into(), &Context::default(), now());
    let told = gone(&agent_run("fix", failed("JobFailed", "exit code 3")));
    assert_eq!(told.state, State::Failed);
    assert!(
        told.headline.starts_with("AgentRun agents/fix failed")
            && told
                .headline
                .ends_with("; it is gone from the cluster, and this is what history has of it."),
        "{}",
        told.headline
    );
    assert_eq!(told.because.first().map(String::as_str), Some("exit code 3"));
    let lines: Vec<&str> = told
        .commands
        .iter()
        .map(|command| command.line.as_str())
        .collect();
    assert_eq!(lines, ["agentctl logs run fix -n agents"]);

    let told = gone(&agent_run("fix", running()));
    assert_eq!(
        told.headline,
        "AgentRun agents/fix was deleted before its end; what was last seen of it, at 2026-03-01T12:00:00Z, is that it is at work."
    );
    let run = orchestration_run("ship", failed("StepFailed", "step build failed"));
    let told = explain_gone((&run).into(), &Context::default(), now());
    assert!(told.commands.is_empty() && told.position.is_none(), "{told:?}");
}
