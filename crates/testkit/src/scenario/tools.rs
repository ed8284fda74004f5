//! The life of ToolRuns.

use jangar_api::phase::RunPhase;
use serde_json::{Value, json};

use super::{
    End, Scenario, Step,
    runs::{OBEYS, SECOND, at_work, ends_well_when_told, exits, failed, replaced, succeeded},
};
use crate::node::{Eviction, OnTerm, Script, Scripts};

/// All of them, in a fixed order.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        succeeds(),
        fails(),
        retried(),
        timed_out(),
        cancelled_stubborn(),
        deleted(),
        drained(),
        tool_last(),
        name_reused(),
    ]
}

fn succeeds() -> Scenario {
    story(
        "tool-succeeds",
        vec![create(run("one"))],
        vec![("one", succeeded())],
    )
}

fn fails() -> Scenario {
    Scenario {
        scripts: Scripts::default().with("one", 1, exits(3)),
        ..story("tool-fails", vec![create(run("one"))], vec![("one", failed())])
    }
}

fn retried() -> Scenario {
    let mut run = run("one");
    run["spec"]["runtime"]["config"]["backoffLimit"] = 1.into();
    Scenario {
        scripts: Scripts::default().with("one", 1, exits(1)),
        ..story("tool-retried", vec![create(run)], vec![("one", succeeded())])
    }
}

/// The tool would never end, and does not stop when it is told to: the run has failed when it was killed, and not before.
fn timed_out() -> Scenario {
    let script = Script::Runs {
        on_term: OnTerm::Ignores,
    };
    Scenario {
        scripts: Scripts::default().with("one", 1, script),
        steps: vec![tool(120), create(run("one"))],
        ..story("tool-timed-out", vec![], vec![("one", failed())])
    }
}

fn cancelled_stubborn() -> Scenario {
    let script = Script::Runs {
        on_term: OnTerm::Ignores,
    };
    let mut steps = at_work(create(run("one")));
    steps.push(Step::Cancel("one"));
    Scenario {
        scripts: Scripts::default().with("one", 1, script),
        ..story(
            "tool-cancelled",
            steps,
            vec![("one", End::Phase(RunPhase::Cancelled))],
        )
    }
}

fn deleted() -> Scenario {
    let mut steps = at_work(create(run("one")));
    steps.push(Step::Delete("one"));
    Scenario {
        scripts: Scripts::default().with("one", 1, Script::Runs { on_term: OBEYS }),
        ..story("tool-deleted", steps, vec![("one", End::Gone)])
    }
}

/// An eviction is no failure of the tool: there is a second attempt although no retries were asked for.
fn drained() -> Scenario {
    let script = Script::Evicted {
        after: 10 * SECOND,
        by: Eviction::Drain,
    };
    Scenario {
        scripts: Scripts::default().with("one", 1, script),
        ..story(
            "tool-drained",
            vec![create(run("one"))],
            vec![("one", succeeded())],
        )
    }
}

/// The run comes before its Tool.
fn tool_last() -> Scenario {
    Scenario {
        steps: vec![create(run("one")), Step::Wait(2 * SECOND), tool(0)],
        ..story("tool-last", vec![], vec![("one", succeeded())])
    }
}

/// A run is deleted while it works, and another one takes its name at once. The old work ends well.
fn name_reused() -> Scenario {
    let steps = replaced(create(run("one")));
    Scenario {
        scripts: Scripts::default().with("one", 1, ends_well_when_told()),
        ..story("tool-name-reused", steps, vec![("one", succeeded())])
    }
}

/// A story with the Tool in place from the beginning.
fn story(name: &'static str, steps: Vec<Step>, ends: Vec<(&'static str, End)>) -> Scenario {
    Scenario {
        steps: [tool(0)].into_iter().chain(steps).collect(),
        ..super::runs::story(name, vec![], ends)
    }
}

fn create(run: Value) -> Step {
    Step::Create("toolruns", run)
}

/// A Tool whose runs may take this many seconds; 0 means any time.
fn tool(timeout: u32) -> Step {
    let spec = json!({
        "image": "example/tool:1",
        "args": ["--path", "{{ parameters.path }}"],
        "timeoutSeconds": timeout,
    });
    Step::Create("tools", object("Tool", "linter", &spec))
}

/// A run whose Job is kept for half a minute.
fn run(name: &str) -> Value {
    let spec = json!({
        "toolRef": {"name": "linter"},
        "parameters": {"path": "src"},
        "runtime": {"config": {"ttlSecondsAfterFinished": 30}},
    });
    object("ToolRun", name, &spec)
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "tools.proompteng.ai/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}
