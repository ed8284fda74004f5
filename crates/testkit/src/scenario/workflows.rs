//! The life of AgentRuns with the runtime `workflow`.

use jangar_api::phase::RunPhase;
use serde_json::{Value, json};

use super::{
    End, Scenario, Step,
    runs::{OBEYS, SECOND, create, exits, failed, run, story, succeeded},
};
use crate::node::{Script, Scripts};

/// All of them, in a fixed order.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        three_steps(),
        step_retried(),
        step_timed_out(),
        step_failed(),
        step_never_works(),
        step_never_ends(),
        cancelled_in_step(),
        cancelled_between_attempts(),
        deleted(),
    ]
}

/// Each step hands something to the next.
fn three_steps() -> Scenario {
    let steps = json!([
        {"name": "plan"},
        {"name": "build", "parameters": {"branch": "{{ steps.plan.outputs.branch }}"}},
        {"name": "review", "parameters": {"both": "{{ steps.plan.outputs.branch }} {{ steps.build.outputs.branch }}"}},
    ]);
    story(
        "workflow",
        vec![create(workflow("one", &steps))],
        vec![("one", succeeded())],
    )
}

/// The second step fails at first. A Job that somebody deletes is replaced as well.
fn step_retried() -> Scenario {
    let steps = json!([
        {"name": "plan"},
        {"name": "build", "retries": 1, "retryBackoffSeconds": 10, "onJobMissing": "Retry"},
    ]);
    Scenario {
        scripts: Scripts::default().with_step("one", 2, 1, exits(1)),
        ..story(
            "workflow-retried",
            vec![create(workflow("one", &steps))],
            vec![("one", succeeded())],
        )
    }
}

/// The first attempt would never end, and takes a while to stop. The second one starts when it has.
fn step_timed_out() -> Scenario {
    let steps = json!([{"name": "plan", "timeoutSeconds": 120, "retries": 1}, {"name": "build"}]);
    let endless = Script::Runs { on_term: OBEYS };
    Scenario {
        scripts: Scripts::default().with_step("one", 1, 1, endless),
        ..story(
            "workflow-timed-out",
            vec![create(workflow("one", &steps))],
            vec![("one", succeeded())],
        )
    }
}

fn step_never_works() -> Scenario {
    let steps = json!([{"name": "plan", "retries": 1, "onJobMissing": "Retry"}]);
    Scenario {
        scripts: Scripts::default()
            .with_step("one", 1, 1, exits(1))
            .with_step("one", 1, 2, exits(1)),
        ..story(
            "workflow-exhausted",
            vec![create(workflow("one", &steps))],
            vec![("one", failed())],
        )
    }
}

fn step_never_ends() -> Scenario {
    let steps = json!([{"name": "plan", "timeoutSeconds": 120}]);
    let endless = Script::Runs { on_term: OBEYS };
    Scenario {
        scripts: Scripts::default().with_step("one", 1, 1, endless),
        ..story(
            "workflow-never-ends",
            vec![create(workflow("one", &steps))],
            vec![("one", failed())],
        )
    }
}

fn step_failed() -> Scenario {
    let steps = json!([{"name": "plan"}, {"name": "build"}, {"name": "review"}]);
    Scenario {
        scripts: Scripts::default().with_step("one", 2, 1, exits(3)),
        ..story(
            "workflow-failed",
            vec![create(workflow("one", &steps))],
            vec![("one", failed())],
        )
    }
}

fn cancelled_in_step() -> Scenario {
    let steps = json!([{"name": "plan"}, {"name": "build"}, {"name": "review"}]);
    let endless = Script::Runs { on_term: OBEYS };
    let acts = vec![
        create(workflow("one", &steps)),
        Step::AwaitStepWork("one", 2),
        Step::Wait(5 * SECOND),
        Step::Cancel("one"),
    ];
    Scenario {
        scripts: Scripts::default().with_step("one", 2, 1, endless),
        ..story(
            "workflow-cancelled",
            acts,
            vec![("one", End::Phase(RunPhase::Cancelled))],
        )
    }
}

/// Nothing runs at the moment of the cancel: the next attempt is not due for a long time.
fn cancelled_between_attempts() -> Scenario {
    let steps = json!([{"name": "plan"}, {"name": "build", "retries": 3, "retryBackoffSeconds": 3600}]);
    let acts = vec![
        create(workflow("one", &steps)),
        Step::AwaitStepWork("one", 2),
        Step::Wait(60 * SECOND),
        Step::Cancel("one"),
    ];
    Scenario {
        scripts: Scripts::default().with_step("one", 2, 1, exits(1)),
        ..story(
            "workflow-cancelled-waiting",
            acts,
            vec![("one", End::Phase(RunPhase::Cancelled))],
        )
    }
}

fn deleted() -> Scenario {
    let steps = json!([{"name": "plan"}, {"name": "build"}]);
    let endless = Script::Runs { on_term: OBEYS };
    let acts = vec![
        create(workflow("one", &steps)),
        Step::AwaitStepWork("one", 2),
        Step::Wait(5 * SECOND),
        Step::Delete("one"),
    ];
    Scenario {
        scripts: Scripts::default().with_step("one", 2, 1, endless),
        ..story("workflow-deleted", acts, vec![("one", End::Gone)])
    }
}

/// A run with these steps.
pub(super) fn workflow(name: &str, steps: &Value) -> Value {
    let mut run = run(name);
    run["spec"]["runtime"]["type"] = "workflow".into();
    run["spec"]["workflow"] = json!({ "steps": steps });
    run
}
