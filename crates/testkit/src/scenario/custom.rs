//! The life of AgentRuns with the runtime `custom`.

use std::time::Duration;

use jangar_api::phase::RunPhase;
use serde_json::{Value, json};

use super::{
    End, Scenario, Step,
    queue::{limits, named},
    runs::{create, failed, run, story, succeeded},
};
use crate::endpoint::{Deed, ENDPOINT};

/// Longer than two leaders take to be replaced, and shorter than a simulation waits for the end of a run.
const TIMEOUT_SECONDS: u32 = 300;
/// For how long the endpoint takes nothing.
const BUSY: Duration = Duration::from_secs(40);
/// Work that is cancelled long before it is done.
const LONG: Duration = Duration::from_mins(20);
/// Longer than that, so that it is the cancel that ends it.
const LONG_TIMEOUT_SECONDS: u32 = 1500;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        reports(
            "custom-succeeds",
            json!({"status": "Succeeded", "summary": "mended"}),
            succeeded(),
        ),
        reports(
            "custom-fails",
            json!({"status": "Failed", "message": "out of luck"}),
            failed(),
        ),
        refused(),
        in_vain(),
        cancelled(),
        deleted(),
        one_slot(),
        busy(),
    ]
}

/// Two runs and one slot: no Job shows who has it.
fn one_slot() -> Scenario {
    let deed = Deed::Reports(Duration::from_secs(10), json!({"status": "Succeeded"}));
    let second = named("two", custom(TIMEOUT_SECONDS));
    Scenario {
        limits: limits(|limits| limits.concurrency.cluster = 1),
        deeds: [("one", deed.clone()), ("two", deed)].into(),
        at_most_once: true,
        ..story(
            "custom-one-slot",
            vec![create(custom(TIMEOUT_SECONDS)), create(second)],
            vec![("one", succeeded()), ("two", succeeded())],
        )
    }
}

/// The endpoint asks to be called later.
fn busy() -> Scenario {
    told(
        "custom-busy",
        Deed::Busy(BUSY, json!({"status": "Succeeded"})),
        vec![create(custom(TIMEOUT_SECONDS))],
        succeeded(),
    )
}

fn reports(name: &'static str, report: Value, end: End) -> Scenario {
    told(
        name,
        Deed::Reports(Duration::from_secs(10), report),
        vec![create(custom(TIMEOUT_SECONDS))],
        end,
    )
}

fn refused() -> Scenario {
    told(
        "custom-refused",
        Deed::Refuses,
        vec![create(custom(TIMEOUT_SECONDS))],
        failed(),
    )
}

/// The work of one run takes longer than it may, and nobody knows what the endpoint has made of the call of the other.
fn in_vain() -> Scenario {
    Scenario {
        deeds: [("one", endless().1), ("two", Deed::Mumbles)].into(),
        at_most_once: true,
        ..story(
            "custom-in-vain",
            vec![
                create(custom(TIMEOUT_SECONDS)),
                create(named("two", custom(TIMEOUT_SECONDS))),
            ],
            vec![("one", failed()), ("two", failed())],
        )
    }
}

fn cancelled() -> Scenario {
    stopped(
        "custom-cancelled",
        Step::Cancel("one"),
        End::Phase(RunPhase::Cancelled),
    )
}

/// The endpoint is told to stop before the run goes.
fn deleted() -> Scenario {
    stopped("custom-deleted", Step::Delete("one"), End::Gone)
}

fn stopped(name: &'static str, stop: Step, end: End) -> Scenario {
    let steps = vec![
        create(custom(LONG_TIMEOUT_SECONDS)),
        Step::AwaitAccepted("one"),
        Step::AwaitWork("one", 1),
        Step::Wait(Duration::from_secs(5)),
        stop,
    ];
    told(name, endless().1, steps, end)
}

/// What may have arrived is not sent again, so that trouble leaves its mark.
fn told(name: &'static str, deed: Deed, steps: Vec<Step>, end: End) -> Scenario {
    Scenario {
        deeds: [("one", deed)].into(),
        at_most_once: true,
        ..story(name, steps, vec![("one", end)])
    }
}

fn custom(timeout_seconds: u32) -> Value {
    let mut run = run("one");
    run["spec"]["runtime"] = runtime(timeout_seconds);
    run
}

fn runtime(timeout_seconds: u32) -> Value {
    json!({"type": "custom", "config": {"endpoint": ENDPOINT, "timeoutSeconds": timeout_seconds}})
}

/// The runtime of work that is cancelled long before it is done, and what the endpoint does with it.
pub(super) fn endless() -> (Value, Deed) {
    let deed = Deed::Reports(LONG, json!({"status": "Succeeded"}));
    (runtime(LONG_TIMEOUT_SECONDS), deed)
}
