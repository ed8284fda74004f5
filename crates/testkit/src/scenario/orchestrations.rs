//! The life of OrchestrationRuns whose steps run agents.

use std::time::Duration;

use jangar_api::phase::RunPhase;
use serde_json::{Value, json};

use super::{
    End, Scenario, Step, custom,
    misfortunes::SILENT,
    runs::{OBEYS, SECOND, ends_well_when_told, exits, failed, story, succeeded},
    temporal,
};
use crate::node::{OnTerm, Script, Scripts};

/// All of them, in a fixed order.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        diamond(),
        failing_branch(),
        retried(),
        timed_out(),
        cancelled(),
        cancelled_stubborn(),
        deleted(),
        child_deleted(),
        nested(),
        signalled(),
        forgotten(),
        gate(),
        gate_expired(),
        fail_fast(),
        run_timed_out(),
        nested_cancelled(),
        tool_cancelled(),
        retry_cancelled(),
        name_reused(),
        signal_contended(),
    ]
}

/// `a`, then `b` and `c` side by side, then `d`.
fn diamond() -> Scenario {
    story(
        "orchestration",
        runs("dag", &diamond_steps()),
        vec![("dag", succeeded())],
    )
}

/// One side of the diamond fails; what depends on it is skipped.
fn failing_branch() -> Scenario {
    Scenario {
        scripts: Scripts::default().with("dag-b-1", 1, exits(3)),
        ..story(
            "orchestration-failing-branch",
            runs("dag", &diamond_steps()),
            vec![("dag", failed())],
        )
    }
}

fn retried() -> Scenario {
    let steps = json!([
        agent("a", &json!({"retries": 1, "retryBackoffSeconds": 5})),
        agent("b", &json!({})),
    ]);
    Scenario {
        scripts: Scripts::default().with("dag-a-1", 1, exits(1)),
        ..story(
            "orchestration-retried",
            runs("dag", &steps),
            vec![("dag", succeeded())],
        )
    }
}

/// The first attempt would never end, and takes a while to stop. The second one starts when it has.
fn timed_out() -> Scenario {
    let steps = json!([
        agent("a", &json!({"retries": 1, "timeoutSeconds": 120})),
        agent("b", &json!({}))
    ]);
    Scenario {
        scripts: Scripts::default().with("dag-a-1", 1, Script::Runs { on_term: OBEYS }),
        ..story(
            "orchestration-timed-out",
            runs("dag", &steps),
            vec![("dag", succeeded())],
        )
    }
}

fn cancelled() -> Scenario {
    cancelled_with("orchestration-cancelled", OBEYS)
}

/// The work does not stop when it is told to, and is killed at the end of its grace.
fn cancelled_stubborn() -> Scenario {
    cancelled_with("orchestration-cancelled-stubborn", OnTerm::Ignores)
}

fn cancelled_with(name: &'static str, on_term: OnTerm) -> Scenario {
    let mut steps = runs("dag", &diamond_steps());
    steps.extend([
        Step::AwaitWork("dag-b-1", 1),
        Step::AwaitWork("dag-c-1", 1),
        Step::Wait(5 * SECOND),
        Step::Cancel("dag"),
    ]);
    Scenario {
        scripts: Scripts::default()
            .with("dag-b-1", 1, Script::Runs { on_term })
            .with("dag-c-1", 1, Script::Runs { on_term }),
        ..story(name, steps, vec![("dag", End::Phase(RunPhase::Cancelled))])
    }
}

/// Nothing of a deleted run goes on.
fn deleted() -> Scenario {
    let mut steps = runs("dag", &diamond_steps());
    steps.extend([
        Step::AwaitWork("dag-b-1", 1),
        Step::Wait(3 * SECOND),
        Step::Delete("dag"),
    ]);
    let endless = || Script::Runs { on_term: OBEYS };
    Scenario {
        scripts: Scripts::default()
            .with("dag-b-1", 1, endless())
            .with("dag-c-1", 1, endless()),
        ..story("orchestration-deleted", steps, vec![("dag", End::Gone)])
    }
}

/// Somebody deletes a child while it works: it goes when its pod has stopped, and its end is told before.
fn child_deleted() -> Scenario {
    let mut steps = runs("dag", &diamond_steps());
    steps.extend([
        Step::AwaitWork("dag-a-1", 1),
        Step::Wait(3 * SECOND),
        Step::Delete("dag-a-1"),
    ]);
    Scenario {
        scripts: Scripts::default().with("dag-a-1", 1, Script::Runs { on_term: OBEYS }),
        ..story("orchestration-child-deleted", steps, vec![("dag", failed())])
    }
}

/// A step that is an orchestration itself.
fn nested() -> Scenario {
    let outer = json!([
        {"name": "inner", "kind": "SubOrchestration", "orchestrationRef": {"name": "inner"}},
        agent("last", &json!({})),
    ]);
    let inner = json!([
        agent("x", &json!({"dependsOn": []})),
        agent("y", &json!({"dependsOn": []}))
    ]);
    let mut steps = vec![definition("inner", &inner)];
    steps.extend(runs("dag", &outer));
    story(
        "orchestration-nested",
        steps,
        vec![("dag", succeeded()), ("dag-inner-1", succeeded())],
    )
}

/// A step waits for a signal, which comes twice; the second delivery is left over.
fn signalled() -> Scenario {
    let steps = json!([
        {"name": "wait", "kind": "SignalWait", "signalRef": {"name": "merged"}},
        agent("after", &json!({})),
    ]);
    let delivery = |name: &str| {
        let object = json!({
            "apiVersion": "signals.proompteng.ai/v1alpha1", "kind": "SignalDelivery", "metadata": {"name": name},
            "spec": {"signalRef": {"name": "merged"}, "payload": {"commit": "abc"}},
        });
        Step::Create("signaldeliveries", object)
    };
    let mut all = runs("dag", &steps);
    all.extend([Step::Wait(30 * SECOND), delivery("one"), delivery("two")]);
    story("orchestration-signalled", all, vec![("dag", succeeded())])
}

/// A tool, then an agent, and a minute after the end nothing of them is left.
fn forgotten() -> Scenario {
    let written = json!([
        {"name": "t", "kind": "ToolRun", "toolRef": {"name": "lint"}},
        agent("a", &json!({})),
    ]);
    let mut steps = vec![tool()];
    steps.extend(runs("dag", &written));
    if let Some(Step::Create(_, run)) = steps.last_mut() {
        run["spec"]["ttlSecondsAfterFinished"] = 60.into();
    }
    story("orchestration-forgotten", steps, vec![("dag", End::Gone)])
}

/// Somebody lets the run pass after a while.
fn gate() -> Scenario {
    let steps = json!([
        agent("build", &json!({})),
        {"name": "gate", "kind": "ApprovalGate", "policyRef": "people", "with": {"stage": "{{ run.name }}"}},
        agent("deploy", &json!({})),
    ]);
    let mut all = vec![policy(&json!({"subjects": [{"kind": "User", "name": "bob"}]}))];
    all.extend(runs("dag", &steps));
    all.extend([
        Step::AwaitWork("dag-build-1", 1),
        Step::Wait(60 * SECOND),
        Step::Approve("dag", "gate"),
    ]);
    story("orchestration-gate", all, vec![("dag", succeeded())])
}

/// Nobody decides, and the other branch goes on meanwhile.
fn gate_expired() -> Scenario {
    let steps = json!([
        {"name": "gate", "kind": "ApprovalGate", "policyRef": "people", "dependsOn": []},
        agent("deploy", &json!({"dependsOn": ["gate"]})),
        agent("other", &json!({"dependsOn": []})),
    ]);
    let mut all = vec![policy(&json!({"expiresAfterSeconds": 90}))];
    all.extend(runs("dag", &steps));
    story("orchestration-gate-expired", all, vec![("dag", failed())])
}

/// A step fails, which ends the other one and the wait beside it.
fn fail_fast() -> Scenario {
    let steps = json!([
        agent("a", &json!({"dependsOn": []})),
        agent("b", &json!({"dependsOn": []})),
        {"name": "wait", "kind": "SignalWait", "signalRef": {"name": "merged"}, "dependsOn": []},
        agent("c", &json!({"dependsOn": ["b"]})),
    ]);
    Scenario {
        scripts: Scripts::default().with("dag-a-1", 1, exits(3)).with(
            "dag-b-1",
            1,
            Script::Runs { on_term: OBEYS },
        ),
        ..story(
            "orchestration-fail-fast",
            runs_with("dag", &steps, &json!({"failurePolicy": "FailFast"})),
            vec![("dag", failed())],
        )
    }
}

/// The work would never end, and does not stop when it is told to.
fn run_timed_out() -> Scenario {
    let steps = json!([agent("a", &json!({})), agent("b", &json!({}))]);
    let script = Script::Runs {
        on_term: OnTerm::Ignores,
    };
    Scenario {
        scripts: Scripts::default().with("dag-a-1", 1, script),
        ..story(
            "orchestration-run-timed-out",
            runs_with("dag", &steps, &json!({"timeoutSeconds": 600})),
            vec![("dag", failed())],
        )
    }
}

/// A cancel goes down the whole tree, and the run above ends when the last pod below is gone.
fn nested_cancelled() -> Scenario {
    let outer = json!([
        {"name": "inner", "kind": "SubOrchestration", "orchestrationRef": {"name": "inner"}},
        agent("last", &json!({})),
    ]);
    let inner = json!([
        agent("x", &json!({"dependsOn": []})),
        agent("y", &json!({"dependsOn": []})),
        agent("z", &json!({"dependsOn": ["x"]})),
    ]);
    let mut steps = vec![definition("inner", &inner)];
    steps.extend(runs("dag", &outer));
    steps.extend([
        Step::AwaitWork("dag-inner-1-x-1", 1),
        Step::AwaitWork("dag-inner-1-y-1", 1),
        Step::Wait(5 * SECOND),
        Step::Cancel("dag"),
    ]);
    let cancelled = || End::Phase(RunPhase::Cancelled);
    Scenario {
        scripts: Scripts::default()
            .with("dag-inner-1-x-1", 1, Script::Runs { on_term: OBEYS })
            .with(
                "dag-inner-1-y-1",
                1,
                Script::Runs {
                    on_term: OnTerm::Ignores,
                },
            ),
        ..story(
            "orchestration-nested-cancelled",
            steps,
            vec![("dag", cancelled()), ("dag-inner-1", cancelled())],
        )
    }
}

/// The nodes of an agent and of a tool are dead, one of them two levels down, so that both outlive the cancel. The receipts say when they were
/// gone, long after the end of the run. Which of them gives up first is a matter of moments, so that trouble leaves its mark.
pub fn cancel_timed_out() -> Scenario {
    let inner = json!([
        agent("x", &json!({"dependsOn": []})),
        agent("y", &json!({"dependsOn": []})),
    ]);
    let outer = json!([
        {"name": "inner", "kind": "SubOrchestration", "orchestrationRef": {"name": "inner"}, "dependsOn": []},
        {"name": "t", "kind": "ToolRun", "toolRef": {"name": "lint"}, "dependsOn": []},
    ]);
    let mut steps = vec![tool(), definition("inner", &inner)];
    steps.extend(runs("dag", &outer));
    steps.extend([
        Step::AwaitWork("dag-inner-1-x-1", 1),
        Step::AwaitWork("dag-inner-1-y-1", 1),
        Step::AwaitWork("dag-t-1", 1),
        Step::Wait(5 * SECOND),
        Step::Cancel("dag"),
        Step::AwaitEnd("dag"),
        Step::Wait(SILENT),
    ]);
    let lost = || Script::NodeLost {
        after: 2 * SECOND,
        noticed_after: SILENT,
    };
    let cancelled = || End::Phase(RunPhase::Cancelled);
    Scenario {
        scripts: Scripts::default()
            .with("dag-inner-1-x-1", 1, lost())
            .with("dag-inner-1-y-1", 1, Script::Runs { on_term: OBEYS })
            .with("dag-t-1", 1, lost()),
        ..story(
            "orchestration-cancel-timed-out",
            steps,
            vec![
                ("dag", cancelled()),
                ("dag-inner-1", cancelled()),
                ("dag-inner-1-x-1", cancelled()),
                ("dag-t-1", cancelled()),
            ],
        )
    }
}

/// A tool that does not listen is killed, and the run is cancelled then.
fn tool_cancelled() -> Scenario {
    let written = json!([
        {"name": "t", "kind": "ToolRun", "toolRef": {"name": "lint"}},
        agent("a", &json!({})),
    ]);
    let mut steps = vec![tool()];
    steps.extend(runs("dag", &written));
    steps.extend([
        Step::AwaitWork("dag-t-1", 1),
        Step::Wait(5 * SECOND),
        Step::Cancel("dag"),
    ]);
    let script = Script::Runs {
        on_term: OnTerm::Ignores,
    };
    Scenario {
        scripts: Scripts::default().with("dag-t-1", 1, script),
        ..story(
            "orchestration-tool-cancelled",
            steps,
            vec![
                ("dag", End::Phase(RunPhase::Cancelled)),
                ("dag-t-1", End::Phase(RunPhase::Cancelled)),
            ],
        )
    }
}

/// The work is done outside of the cluster: an endpoint is told to stop, and a workflow is cancelled. What may have been sent to
/// the endpoint is not sent again, so that trouble leaves its mark.
pub fn outside_cancelled() -> Scenario {
    let ((custom, endpoint), (temporal, worker)) = (custom::endless(), temporal::endless());
    let written = json!([
        agent("custom", &json!({"dependsOn": [], "runtime": custom})),
        agent("temporal", &json!({"dependsOn": [], "runtime": temporal})),
        agent("after", &json!({"dependsOn": ["custom", "temporal"]})),
    ]);
    let mut steps = runs("dag", &written);
    steps.extend([
        Step::AwaitWork("dag-custom-1", 1),
        Step::AwaitWork("dag-temporal-1", 1),
        Step::Wait(5 * SECOND),
        Step::Cancel("dag"),
    ]);
    let cancelled = || End::Phase(RunPhase::Cancelled);
    Scenario {
        deeds: [("dag-custom-1", endpoint), ("dag-temporal-1", worker)].into(),
        at_most_once: true,
        ..story(
            "orchestration-outside-cancelled",
            steps,
            vec![
                ("dag", cancelled()),
                ("dag-custom-1", cancelled()),
                ("dag-temporal-1", cancelled()),
            ],
        )
    }
}

/// The run is cancelled while it waits for the next attempt.
fn retry_cancelled() -> Scenario {
    let written = json!([agent("a", &json!({"retries": 3, "retryBackoffSeconds": 600}))]);
    let mut steps = runs("dag", &written);
    steps.extend([
        Step::AwaitWork("dag-a-1", 1),
        Step::AwaitEnd("dag-a-1"),
        Step::Wait(5 * SECOND),
        Step::Cancel("dag"),
    ]);
    Scenario {
        scripts: Scripts::default().with("dag-a-1", 1, exits(1)),
        ..story(
            "orchestration-retry-cancelled",
            steps,
            vec![("dag", End::Phase(RunPhase::Cancelled))],
        )
    }
}

/// A run is deleted while it works, and another one takes its name at once. The children of the first are in its way for a while.
fn name_reused() -> Scenario {
    let written = json!([agent("a", &json!({})), agent("b", &json!({}))]);
    let mut steps = runs("dag", &written);
    let again = steps.last().cloned();
    steps.extend([
        Step::AwaitWork("dag-a-1", 1),
        Step::Wait(5 * SECOND),
        Step::Delete("dag"),
        Step::AwaitGone("dag"),
    ]);
    steps.extend(again);
    Scenario {
        scripts: Scripts::default().with("dag-a-1", 1, ends_well_when_told()),
        ..story("orchestration-name-reused", steps, vec![("dag", succeeded())])
    }
}

/// Two runs wait for the same signal. The one that has waited longer is being cancelled when it comes, which takes a while, so
/// that the other one gets it.
fn signal_contended() -> Scenario {
    let written = json!([
        {"name": "wait", "kind": "SignalWait", "signalRef": {"name": "merged"}, "dependsOn": []},
        agent("beside", &json!({"dependsOn": []})),
    ]);
    let delivery = json!({
        "apiVersion": "signals.proompteng.ai/v1alpha1", "kind": "SignalDelivery", "metadata": {"name": "one"},
        "spec": {"signalRef": {"name": "merged"}, "payload": {"commit": "abc"}},
    });
    let mut steps = runs("dag", &written);
    steps.extend([
        Step::AwaitWork("dag-beside-1", 1),
        run("later", &json!({})),
        Step::AwaitWork("later-beside-1", 1),
        Step::Cancel("dag"),
        // Who does not know of the cancel would rightly give it to the first.
        Step::AwaitStopping("dag"),
        Step::Create("signaldeliveries", delivery),
    ]);
    let script = Script::Runs {
        on_term: OnTerm::Ignores,
    };
    Scenario {
        scripts: Scripts::default().with("dag-beside-1", 1, script),
        ..story(
            "orchestration-signal-contended",
            steps,
            vec![("dag", End::Phase(RunPhase::Cancelled)), ("later", succeeded())],
        )
    }
}

/// A diamond that is cancelled after this time, whatever it is at then.
pub fn cancelled_after(time: Duration) -> Scenario {
    let mut steps = runs("dag", &diamond_steps());
    steps.extend([Step::Wait(time), Step::Cancel("dag")]);
    story(
        "orchestration-cancelled-at-any-time",
        steps,
        vec![("dag", End::Phase(RunPhase::Cancelled))],
    )
}

/// A run of these steps, where these of them fail.
pub fn of_steps(steps: &Value, fail: &[String], end: RunPhase) -> Scenario {
    let mut scripts = Scripts::default();
    for step in fail {
        scripts = scripts.with(&format!("dag-{step}-1"), 1, exits(1));
    }
    Scenario {
        scripts,
        ..story(
            "orchestration-random",
            runs("dag", steps),
            vec![("dag", End::Phase(end))],
        )
    }
}

/// The same, cancelled after this time.
pub fn of_steps_cancelled_after(time: Duration, steps: &Value, fail: &[String]) -> Scenario {
    let mut scenario = of_steps(steps, fail, RunPhase::Cancelled);
    scenario.name = "orchestration-random-cancelled";
    scenario.steps.extend([Step::Wait(time), Step::Cancel("dag")]);
    scenario
}

/// A step that runs an agent, with these fields.
pub fn agent(name: &str, fields: &Value) -> Value {
    let mut step = json!({
        "name": name, "kind": "AgentRun", "agentRef": {"name": "fixer"},
        "implementationSpecRef": {"name": "mend-the-adder"},
        "runtime": {"type": "job", "config": {"ttlSecondsAfterFinished": 30}},
        "workload": {"image": "example/agent:1"},
        "with": {"task": "adder"},
    });
    if let (Some(step), Some(fields)) = (step.as_object_mut(), fields.as_object()) {
        step.extend(fields.clone());
    }
    step
}

fn diamond_steps() -> Value {
    json!([
        agent("a", &json!({"dependsOn": []})),
        agent("b", &json!({"dependsOn": ["a"]})),
        agent("c", &json!({"dependsOn": ["a"]})),
        agent("d", &json!({"dependsOn": ["b", "c"]})),
    ])
}

fn definition(name: &str, steps: &Value) -> Step {
    let object = json!({
        "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "Orchestration", "metadata": {"name": name},
        "spec": {"steps": steps},
    });
    Step::Create("orchestrations", object)
}

/// A definition, and a run of it.
fn runs(name: &str, steps: &Value) -> Vec<Step> {
    runs_with(name, steps, &json!({}))
}

/// The same, where the run has these fields as well.
fn runs_with(name: &str, steps: &Value, fields: &Value) -> Vec<Step> {
    vec![definition("pipeline", steps), run(name, fields)]
}

/// A run of the definition, with these fields.
fn run(name: &str, fields: &Value) -> Step {
    let mut spec = json!({"orchestrationRef": {"name": "pipeline"}});
    if let (Some(spec), Some(fields)) = (spec.as_object_mut(), fields.as_object()) {
        spec.extend(fields.clone());
    }
    let run = json!({
        "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun", "metadata": {"name": name},
        "spec": spec,
    });
    Step::Create("orchestrationruns", run)
}

fn policy(spec: &Value) -> Step {
    let object = json!({
        "apiVersion": "approvals.proompteng.ai/v1alpha1", "kind": "ApprovalPolicy", "metadata": {"name": "people"},
        "spec": spec,
    });
    Step::Create("approvalpolicies", object)
}

fn tool() -> Step {
    let tool = json!({
        "apiVersion": "tools.proompteng.ai/v1alpha1", "kind": "Tool", "metadata": {"name": "lint"},
        "spec": {"image": "example/tool:1", "command": ["lint"]},
    });
    Step::Create("tools", tool)
}
