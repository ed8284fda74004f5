//! Runs that something happens to which they did not ask for.

use jangar_api::phase::RunPhase;
use serde_json::{Value, json};

use super::{
    End, Scenario, Step,
    runs::{OBEYS, SECOND, at_work, create, failed, run, story, succeeded},
    workflows::workflow,
};
use crate::node::{Eviction, Script, Scripts};

/// Nobody says of a node that is silent for this long that it is gone. It is longer than a cancel waits in a simulation, however
/// much goes wrong meanwhile.
pub(super) const SILENT: std::time::Duration = std::time::Duration::from_mins(20);
/// How often a node takes a pod away before that ends a run.
pub(super) const DISRUPTIONS: u32 = 6;

/// All scenarios, in a fixed order.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        cancel_timed_out(),
        disrupted(),
        name_taken(),
        rejected(),
        job_taken(),
        step_taken(),
        step_taken_and_replaced(),
    ]
}

/// The node of the pod is dead, so that nobody says that the pod has stopped until long after the time for the cancel.
fn cancel_timed_out() -> Scenario {
    let script = Script::NodeLost {
        after: 2 * SECOND,
        noticed_after: SILENT,
    };
    let mut steps = at_work(create(run("one")));
    // The pod goes after the end of the run.
    steps.extend([Step::Cancel("one"), Step::AwaitEnd("one"), Step::Wait(SILENT)]);
    Scenario {
        scripts: Scripts::default().with("one", 1, script),
        ..story(
            "cancel-timed-out",
            steps,
            vec![("one", End::Phase(RunPhase::Cancelled))],
        )
    }
}

/// Every node takes the pod away.
fn disrupted() -> Scenario {
    let script = || Script::Evicted {
        after: 10 * SECOND,
        by: Eviction::Pressure,
    };
    let scripts = (1..=DISRUPTIONS).fold(Scripts::default(), |scripts, attempt| {
        scripts.with("one", attempt, script())
    });
    Scenario {
        scripts,
        ..story("disrupted", vec![create(run("one"))], vec![("one", failed())])
    }
}

/// Somebody has a Job of the name that the run needs for its own.
fn name_taken() -> Scenario {
    let container = json!({"name": "worker", "image": "example/worker:1"});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one-job"},
        "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    });
    let steps = vec![Step::Create("jobs", job), create(run("one"))];
    story("name-taken", steps, vec![("one", failed())])
}

/// The API server takes no Job that spreads twice over the same nodes.
fn rejected() -> Scenario {
    let zones = json!({
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
    });
    let mut run = run("one");
    run["spec"]["runtime"]["config"]["topologySpreadConstraints"] = json!([zones, zones]);
    story("rejected", vec![create(run)], vec![("one", failed())])
}

fn job_taken() -> Scenario {
    taken("job-taken", run("one"), 0, failed())
}

/// The Job is there for a moment only, and where there is much to do the run has not told of it.
pub(super) fn job_taken_untold() -> Scenario {
    let steps = vec![
        create(run("one")),
        Step::AwaitWork("one", 1),
        Step::TakeJob("one"),
    ];
    Scenario {
        scripts: Scripts::default().with_step("one", 0, 1, Script::Runs { on_term: OBEYS }),
        at_most_once: true,
        ..story("job-taken-untold", steps, vec![("one", failed())])
    }
}

fn step_taken() -> Scenario {
    let run = workflow("one", &json!([{"name": "plan", "retries": 1}, {"name": "build"}]));
    taken("workflow-job-taken", run, 1, failed())
}

/// The step says that it may be done again.
fn step_taken_and_replaced() -> Scenario {
    let steps = json!([{"name": "plan", "retries": 1, "onJobMissing": "Retry"}, {"name": "build"}]);
    taken("workflow-job-replaced", workflow("one", &steps), 1, succeeded())
}

/// Somebody takes the Job away under the work. How much of it is left to be seen is a matter of moments, and of what is left depends
/// what is said.
fn taken(name: &'static str, run: Value, step: u32, end: End) -> Scenario {
    let steps = vec![
        create(run),
        Step::AwaitRunning("one"),
        Step::Wait(5 * SECOND),
        Step::TakeJob("one"),
    ];
    Scenario {
        scripts: Scripts::default().with_step("one", step, 1, Script::Runs { on_term: OBEYS }),
        at_most_once: true,
        ..story(name, steps, vec![("one", end)])
    }
}
