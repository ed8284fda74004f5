//! Runs that have to wait for their turn.

use std::collections::BTreeMap;

use jangar_api::phase::RunPhase;
use jangar_engine::settings::{LimitSettings, RepositoryLimits};
use serde_json::Value;

use super::{
    End, Scenario, Step,
    runs::{SECOND, create, exits, object, run, slow, story, succeeded, with_retries},
};
use crate::node::Scripts;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        one_at_a_time(),
        taking_turns(),
        paced(),
        duplicate(),
        cancelled_in_the_queue(),
        issues_of_one_repository(),
    ]
}

pub(super) fn limits(change: impl FnOnce(&mut LimitSettings)) -> LimitSettings {
    let mut limits = LimitSettings::default();
    change(&mut limits);
    limits
}

/// The same run under another name.
pub(super) fn named(name: &str, mut run: Value) -> Value {
    run["metadata"]["name"] = name.into();
    run
}

fn prioritised(mut run: Value, priority: i32) -> Value {
    run["spec"]["priority"] = priority.into();
    run
}

fn of_repository(mut run: Value, repository: &str) -> Value {
    run["spec"]["parameters"]["repository"] = repository.into();
    run
}

fn of_agent(mut run: Value, agent: &str) -> Value {
    run["spec"]["agentRef"]["name"] = agent.into();
    run
}

fn helper() -> Step {
    let spec = serde_json::json!({"providerRef": {"name": "scripted"}});
    Step::Create("agents", object("Agent", "helper", &spec))
}

/// One slot in all, a queue with one place, and a run that needs two attempts.
fn one_at_a_time() -> Scenario {
    let steps = vec![
        create(with_retries(run("one"), 1)),
        create(run("two")),
        create(prioritised(run("three"), 5)),
    ];
    let ends = vec![("one", succeeded()), ("two", succeeded()), ("three", succeeded())];
    Scenario {
        limits: limits(|limits| {
            limits.concurrency.cluster = 1;
            limits.queue.namespace = Some(1);
        }),
        scripts: Scripts::default().with("one", 1, exits(1)),
        ..story("one-at-a-time", steps, ends)
    }
}

/// Two agents with one slot each, two repositories with one slot each, and runs that need one of both.
fn taking_turns() -> Scenario {
    let steps = vec![
        helper(),
        create(of_repository(run("one"), "Team/A")),
        create(of_repository(of_agent(run("two"), "helper"), "team/a")),
        create(of_repository(of_agent(run("three"), "helper"), "team/b")),
    ];
    let ends = vec![("one", succeeded()), ("two", succeeded()), ("three", succeeded())];
    Scenario {
        limits: limits(|limits| {
            limits.concurrency.agent = 1;
            limits.concurrency.repositories = Some(RepositoryLimits {
                default: None,
                overrides: BTreeMap::from([("team/a".to_owned(), Some(1)), ("team/b".to_owned(), Some(1))]),
            });
        }),
        ..story("taking-turns", steps, ends)
    }
}

/// Two runs whose work is an issue of the same repository, which nothing but the issue names, and one slot of it.
fn issues_of_one_repository() -> Scenario {
    let spec = serde_json::json!({
        "text": "Mend it.", "source": {"provider": "github", "externalId": "Team/App#7"},
    });
    let of_issue = |name: &str| {
        let mut run = run(name);
        run["spec"]["implementationSpecRef"] = serde_json::json!({"name": "issue-7"});
        create(run)
    };
    Scenario {
        limits: limits(|limits| {
            limits.concurrency.repositories = Some(RepositoryLimits {
                default: Some(1),
                overrides: BTreeMap::new(),
            });
        }),
        ..story(
            "issues-of-one-repository",
            vec![
                Step::Create(
                    "implementationspecs",
                    object("ImplementationSpec", "issue-7", &spec),
                ),
                of_issue("one"),
                of_issue("two"),
            ],
            vec![("one", succeeded()), ("two", succeeded())],
        )
    }
}

/// One start within the window: time alone lets the second run in.
fn paced() -> Scenario {
    let steps = vec![create(run("one")), create(run("two"))];
    Scenario {
        limits: limits(|limits| limits.rate.namespace = Some(1)),
        ..story("paced", steps, vec![("one", succeeded()), ("two", succeeded())])
    }
}

/// The same work submitted twice, and a third time when it is done.
fn duplicate() -> Scenario {
    let submitted = |name: &str| {
        let mut run = run(name);
        run["spec"]["idempotencyKey"] = "delivery-7".into();
        create(run)
    };
    let steps = vec![
        submitted("one"),
        Step::Wait(2 * SECOND),
        submitted("two"),
        Step::AwaitEnd("one"),
        submitted("three"),
    ];
    let ends = vec![
        ("one", succeeded()),
        ("two", End::Phase(RunPhase::Cancelled)),
        ("three", End::Phase(RunPhase::Cancelled)),
    ];
    story("duplicate", steps, ends)
}

/// A run that waits is cancelled, another one is deleted, and both leave the queue to the third.
fn cancelled_in_the_queue() -> Scenario {
    let steps = vec![
        create(run("one")),
        Step::AwaitWork("one", 1),
        create(prioritised(run("two"), 9)),
        create(prioritised(run("three"), 5)),
        create(run("four")),
        Step::Wait(5 * SECOND),
        Step::Cancel("two"),
        Step::Delete("three"),
    ];
    let ends = vec![
        ("one", succeeded()),
        ("two", End::Phase(RunPhase::Cancelled)),
        ("three", End::Gone),
        ("four", succeeded()),
    ];
    Scenario {
        limits: limits(|limits| limits.concurrency.agent = 1),
        scripts: Scripts::default().with("one", 1, slow()),
        ..story("cancelled-in-the-queue", steps, ends)
    }
}
