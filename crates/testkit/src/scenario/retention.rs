//! Runs whose time has come, and runs that somebody wants to keep.

use std::time::Duration;

use jangar_api::labels;
use serde_json::{Value, json};

use super::{
    End, Scenario, Step,
    runs::{at_work, create, run, story, succeeded},
};

/// Until after the runs are due.
const HISTORY_AWAY: Duration = Duration::from_secs(150);

/// All scenarios, in a fixed order.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        forgotten_together(),
        retained("retained", "true"),
        retained("retained-in-doubt", "yes"),
        retained_late(),
    ]
}

/// More runs are due at the same moment than may be deleted in a minute, and history, which has to have them first, is not there
/// yet.
fn forgotten_together() -> Scenario {
    let steps = ["one", "two", "three"].map(|name| create(forgotten(name)));
    let ends = ["one", "two", "three"].map(|name| (name, End::Gone));
    Scenario {
        history_away: Some(HISTORY_AWAY),
        ..story("forgotten-together", steps.into(), ends.into())
    }
}

/// The run's time comes, and somebody has said that it is to be kept, or something that may mean it.
fn retained(name: &'static str, value: &str) -> Scenario {
    let mut run = forgotten("one");
    run["metadata"]["annotations"][labels::RETAIN] = value.into();
    story(name, vec![create(run)], vec![("one", succeeded())])
}

/// Somebody says while the run works that it is to be kept. Whoever looks at the run as it was before does not see that. Its time is
/// longer than it takes a new leader to say that the run was accepted, for which that somebody waits.
fn retained_late() -> Scenario {
    let retain = json!({"metadata": {"annotations": {labels::RETAIN: "true"}}});
    let mut run = forgotten("one");
    run["spec"]["ttlSecondsAfterFinished"] = 120.into();
    let mut steps = at_work(create(run));
    steps.push(Step::Change("one", retain));
    story("retained-late", steps, vec![("one", succeeded())])
}

/// A run that is deleted a minute after its end.
fn forgotten(name: &str) -> Value {
    let mut run = run(name);
    run["spec"]["ttlSecondsAfterFinished"] = 60.into();
    run
}
