//! The life of AgentRuns with the runtime `temporal`.

use std::time::Duration;

use jangar_api::phase::RunPhase;
use jangar_engine::temporal::call::Closed;
use serde_json::{Value, json};

use super::{
    End, Scenario, Step,
    queue::{limits, named},
    runs::{create, failed, run, story, succeeded},
};
use crate::endpoint::Deed;

/// Work that is cancelled long before it is done.
const LONG: Duration = Duration::from_mins(20);

pub(super) fn all() -> Vec<Scenario> {
    vec![
        ends("temporal-succeeds", "Succeeded", succeeded()),
        ends("temporal-fails", "Failed", failed()),
        told(
            "temporal-refused",
            Deed::Refuses,
            vec![create(temporal())],
            failed(),
        ),
        closed(),
        stopped(
            "temporal-cancelled",
            Step::Cancel("one"),
            End::Phase(RunPhase::Cancelled),
        ),
        stopped("temporal-deleted", Step::Delete("one"), End::Gone),
        cancelled_at_once(),
        one_start_at_a_time(),
        told(
            "temporal-away",
            Deed::Busy(Duration::from_secs(40), json!({"status": "Succeeded"})),
            vec![create(temporal())],
            succeeded(),
        ),
    ]
}

/// Two runs, one slot and one start within the window: no Job shows who has them.
fn one_start_at_a_time() -> Scenario {
    let deed = Deed::Reports(Duration::from_secs(10), json!({"status": "Succeeded"}));
    Scenario {
        limits: limits(|limits| {
            limits.concurrency.cluster = 1;
            limits.rate.cluster = Some(1);
        }),
        deeds: [("one", deed.clone()), ("two", deed)].into(),
        ..story(
            "temporal-one-slot",
            vec![create(temporal()), create(named("two", temporal()))],
            vec![("one", succeeded()), ("two", succeeded())],
        )
    }
}

fn ends(name: &'static str, how: &str, end: End) -> Scenario {
    let deed = Deed::Reports(Duration::from_secs(10), json!({"status": how}));
    told(name, deed, vec![create(temporal())], end)
}

/// Workflows that neither return nor fail: somebody terminates one, another has no time left, and the third is not known any more.
fn closed() -> Scenario {
    let vanished = Closed::Vanished {
        words: "not found".to_owned(),
    };
    let closed = [
        ("one", Closed::Terminated { words: None }),
        ("two", Closed::TimedOut),
        ("three", vanished),
    ];
    let steps = closed.iter().map(|(name, _)| create(named(name, temporal())));
    let ends = closed.iter().map(|(name, _)| (*name, failed()));
    let story = story("temporal-closed", steps.collect(), ends.collect());
    let deeds = closed.map(|(name, closed)| (name, Deed::IsClosed(Duration::from_secs(10), closed)));
    Scenario {
        deeds: deeds.into(),
        ..story
    }
}

/// The workflow is made to end before the run is over, or goes.
fn stopped(name: &'static str, stop: Step, end: End) -> Scenario {
    let steps = vec![
        create(temporal()),
        Step::AwaitAccepted("one"),
        Step::AwaitWork("one", 1),
        Step::Wait(Duration::from_secs(5)),
        stop,
    ];
    told(name, works_long(), steps, end)
}

/// Nobody waits for anything, so that the cancel may come before the start, with it, or after it: whichever it was, nothing
/// may work on.
fn cancelled_at_once() -> Scenario {
    let steps = vec![
        create(temporal()),
        Step::AwaitAccepted("one"),
        Step::Cancel("one"),
    ];
    Scenario {
        at_most_once: true,
        ..told(
            "temporal-cancelled-at-once",
            works_long(),
            steps,
            End::Phase(RunPhase::Cancelled),
        )
    }
}

fn works_long() -> Deed {
    Deed::Reports(LONG, json!({"status": "Succeeded"}))
}

fn told(name: &'static str, deed: Deed, steps: Vec<Step>, end: End) -> Scenario {
    Scenario {
        deeds: [("one", deed)].into(),
        ..story(name, steps, vec![("one", end)])
    }
}

fn temporal() -> Value {
    let mut run = run("one");
    run["spec"]["runtime"] = runtime();
    run
}

fn runtime() -> Value {
    json!({"type": "temporal", "config": {"workflowType": "Agent", "taskQueue": "agents"}})
}

/// The runtime of work that is cancelled long before it is done, and what the worker does with it.
pub(super) fn endless() -> (Value, Deed) {
    (runtime(), works_long())
}
