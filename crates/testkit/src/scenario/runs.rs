//! The life of AgentRuns with the runtime `job`.

use std::time::Duration;

use jangar_api::phase::RunPhase;
use jangar_engine::settings::LimitSettings;
use serde_json::{Value, json};

use super::{End, Place, Scenario, Step};
use crate::endpoint::Deeds;
use crate::forges::ForgeScript;
use crate::node::{Eviction, Lack, OnTerm, Script, Scripts};

pub(super) const SECOND: Duration = Duration::from_secs(1);
/// Long enough that no restart of a controller can take that long: what is cancelled meanwhile is cancelled for certain.
const LONG: Duration = Duration::from_hours(1);
/// More than is put into a pod's annotations.
const INPUTS_BYTES: usize = 200 * 1024;
/// Work that stops when it is told to.
pub(super) const OBEYS: OnTerm = OnTerm::Obeys(Duration::from_secs(2));

/// The life of runs by themselves.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        succeeds(),
        fails(),
        retried(),
        retries_exhausted(),
        cancelled(),
        cancelled_stubborn(),
        deleted(),
        evicted(Eviction::Drain),
        evicted(Eviction::Pressure),
        node_lost(),
        node_silent(),
        references_last(),
        agent_missing(),
        secret_last(),
        secret_missing(),
        metadata_missing(),
        kept(),
        forgotten(),
        image_missing(),
        name_reused(),
        crowded(),
        large_inputs(),
    ]
}

fn succeeds() -> Scenario {
    story("succeeds", vec![create(run("one"))], vec![("one", succeeded())])
}

fn fails() -> Scenario {
    Scenario {
        scripts: Scripts::default().with("one", 1, exits(3)),
        ..story("fails", vec![create(run("one"))], vec![("one", failed())])
    }
}

/// The first two attempts fail, the third succeeds.
fn retried() -> Scenario {
    Scenario {
        scripts: Scripts::default()
            .with("one", 1, exits(1))
            .with("one", 2, exits(1)),
        ..story(
            "retried",
            vec![create(with_retries(run("one"), 2))],
            vec![("one", succeeded())],
        )
    }
}

fn retries_exhausted() -> Scenario {
    Scenario {
        scripts: Scripts::default()
            .with("one", 1, exits(1))
            .with("one", 2, exits(1)),
        ..story(
            "retries-exhausted",
            vec![create(with_retries(run("one"), 1))],
            vec![("one", failed())],
        )
    }
}

fn cancelled() -> Scenario {
    let script = Script::Exits {
        after: LONG,
        code: 0,
        on_term: OBEYS,
    };
    cancelled_with("cancelled", script)
}

/// The work does not stop when it is told to, and is killed at the end of its grace.
fn cancelled_stubborn() -> Scenario {
    let script = Script::Runs {
        on_term: OnTerm::Ignores,
    };
    cancelled_with("cancelled-stubborn", script)
}

fn cancelled_with(name: &'static str, script: Script) -> Scenario {
    let mut steps = at_work(create(run("one")));
    steps.push(Step::Cancel("one"));
    Scenario {
        scripts: Scripts::default().with("one", 1, script),
        ..story(name, steps, vec![("one", End::Phase(RunPhase::Cancelled))])
    }
}

fn deleted() -> Scenario {
    let mut steps = at_work(create(run("one")));
    steps.push(Step::Delete("one"));
    Scenario {
        scripts: Scripts::default().with("one", 1, Script::Runs { on_term: OBEYS }),
        ..story("deleted", steps, vec![("one", End::Gone)])
    }
}

/// An eviction is no failure of the work: there is a second attempt although no retries were asked for.
fn evicted(by: Eviction) -> Scenario {
    let script = Script::Evicted {
        after: 10 * SECOND,
        by,
    };
    let name = match by {
        Eviction::Drain => "drained",
        Eviction::Pressure => "evicted",
    };
    Scenario {
        scripts: Scripts::default().with("one", 1, script),
        ..story(name, vec![create(run("one"))], vec![("one", succeeded())])
    }
}

fn node_lost() -> Scenario {
    let script = Script::NodeLost {
        after: 10 * SECOND,
        noticed_after: 2 * 60 * SECOND,
    };
    Scenario {
        scripts: Scripts::default().with("one", 1, script),
        ..story("node-lost", vec![create(run("one"))], vec![("one", succeeded())])
    }
}

/// The node is silent for so long that its pod is given up, and then somebody deletes the Node. The next attempt starts after
/// that and not before.
fn node_silent() -> Scenario {
    let script = Script::NodeLost {
        after: 10 * SECOND,
        noticed_after: 15 * 60 * SECOND,
    };
    Scenario {
        scripts: Scripts::default().with("one", 1, script),
        ..story(
            "node-silent",
            vec![create(run("one"))],
            vec![("one", succeeded())],
        )
    }
}

/// The run comes first, and what it refers to in the opposite order.
fn references_last() -> Scenario {
    let mut steps = vec![create(run("one"))];
    for object in [implementation(), agent(), provider()] {
        steps.push(Step::Wait(2 * SECOND));
        steps.push(object);
    }
    Scenario {
        steps,
        ..story("references-last", vec![], vec![("one", succeeded())])
    }
}

/// Nobody ever creates the Agent.
fn agent_missing() -> Scenario {
    let mut run = run("one");
    run["spec"]["agentRef"]["name"] = "nobody".into();
    story("agent-missing", vec![create(run)], vec![("one", failed())])
}

/// A run whose pod cannot start without a Secret.
fn with_secret(mut run: Value) -> Value {
    run["spec"]["secrets"] = json!(["keys"]);
    run
}

fn secret_last() -> Scenario {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"token": "t"},
    });
    let steps = vec![
        create(with_secret(run("one"))),
        Step::Wait(20 * SECOND),
        Step::Create("secrets", secret),
    ];
    story("secret-last", steps, vec![("one", succeeded())])
}

fn secret_missing() -> Scenario {
    let steps = vec![create(with_secret(run("one")))];
    story("secret-missing", steps, vec![("one", failed())])
}

/// The work asks for something that the run does not say.
fn metadata_missing() -> Scenario {
    let spec = json!({"text": "Mend it.", "contract": {"requiredKeys": ["customer"]}});
    let mut run = run("one");
    run["spec"]["implementationSpecRef"]["name"] = "for-somebody".into();
    let steps = vec![
        Step::Create(
            "implementationspecs",
            object("ImplementationSpec", "for-somebody", &spec),
        ),
        create(run),
    ];
    story("metadata-missing", steps, vec![("one", failed())])
}

/// The Job stays when it is let go.
fn kept() -> Scenario {
    let mut run = run("one");
    run["spec"]["runtime"]["config"]["ttlSecondsAfterFinished"] = 0.into();
    story("kept", vec![create(run)], vec![("one", succeeded())])
}

/// The run is deleted a minute after its end.
fn forgotten() -> Scenario {
    let mut run = run("one");
    run["spec"]["ttlSecondsAfterFinished"] = 60.into();
    story("forgotten", vec![create(run)], vec![("one", End::Gone)])
}

fn image_missing() -> Scenario {
    Scenario {
        scripts: Scripts::default().with("one", 1, Script::NeverStarts(Lack::Image)),
        ..story("image-missing", vec![create(run("one"))], vec![("one", failed())])
    }
}

/// A run is deleted while it works, and another one takes its name at once. The old work takes its time to end, and ends
/// well: whoever takes it for the new run's believes that the new one succeeded.
fn name_reused() -> Scenario {
    let steps = replaced(create(run("one")));
    Scenario {
        scripts: Scripts::default().with("one", 1, ends_well_when_told()),
        ..story("name-reused", steps, vec![("one", succeeded())])
    }
}

/// The run `one` is created, and is at work.
pub(super) fn at_work(create: Step) -> Vec<Step> {
    vec![
        create,
        Step::AwaitAccepted("one"),
        Step::AwaitWork("one", 1),
        Step::Wait(5 * SECOND),
    ]
}

/// The run `one` is deleted while it works, and another one like it takes its name at once.
pub(super) fn replaced(create: Step) -> Vec<Step> {
    let mut steps = at_work(create.clone());
    steps.extend([Step::Delete("one"), Step::AwaitGone("one"), create]);
    steps
}

/// Work that ends well when it is told to stop, after a while.
pub(super) fn ends_well_when_told() -> Script {
    Script::Exits {
        after: 60 * SECOND,
        code: 0,
        on_term: OnTerm::Finishes(10 * SECOND),
    }
}

/// More runs than the node has places, one of which is cancelled before it got one.
fn crowded() -> Scenario {
    let mut steps: Vec<Step> = ["one", "two", "three"].map(|name| create(run(name))).into();
    steps.push(Step::AwaitAccepted("three"));
    steps.push(Step::Cancel("three"));
    let ends = vec![
        ("one", succeeded()),
        ("two", succeeded()),
        ("three", End::Phase(RunPhase::Cancelled)),
    ];
    let mut crowded = story("crowded", steps, ends);
    crowded.place.slots = 1;
    crowded.scripts = Scripts::default()
        .with("one", 1, slow())
        .with("two", 1, slow())
        .with("three", 1, slow())
        .with("four", 1, slow());
    crowded
}

/// A run whose files do not fit into the pod's annotations and need a ConfigMap, and then another one of its name.
fn large_inputs() -> Scenario {
    let (mut steps, run) = large("one");
    steps.extend(replaced(create(run)));
    Scenario {
        scripts: Scripts::default().with("one", 1, ends_well_when_told()),
        ..story("large-inputs", steps, vec![("one", succeeded())])
    }
}

/// What a run needs whose files do not fit into the pod's annotations, and the run.
pub(super) fn large(name: &str) -> (Vec<Step>, Value) {
    let file = json!({"path": "/notes.txt", "content": "x".repeat(INPUTS_BYTES)});
    let provider = json!({"binary": "/usr/local/bin/agent", "inputFiles": [file]});
    let agent = json!({"providerRef": {"name": "well-read"}});
    let mut run = run(name);
    run["spec"]["agentRef"]["name"] = "reader".into();
    let steps = vec![
        Step::Create("agentproviders", object("AgentProvider", "well-read", &provider)),
        Step::Create("agents", object("Agent", "reader", &agent)),
    ];
    (steps, run)
}

/// Work that takes longer than a restart of the controllers, so that the run that waits is cancelled before its turn.
pub(super) fn slow() -> Script {
    Script::Exits {
        after: 4 * 60 * SECOND,
        code: 0,
        on_term: OBEYS,
    }
}

/// A story with everything a run refers to in place from the beginning.
pub(super) fn story(name: &'static str, steps: Vec<Step>, ends: Vec<(&'static str, End)>) -> Scenario {
    let mut all = vec![provider(), agent(), implementation()];
    all.extend(steps);
    Scenario {
        name,
        place: Place {
            slots: 4,
            job_sync_delay: SECOND,
        },
        limits: LimitSettings::default(),
        settings: |_| {},
        jobs_forbidden: Duration::ZERO,
        scripts: Scripts::default(),
        deeds: Deeds::new(),
        forge: ForgeScript::default(),
        history_away: None,
        at_most_once: false,
        steps: all,
        ends,
    }
}

pub(super) fn succeeded() -> End {
    End::Phase(RunPhase::Succeeded)
}

pub(super) fn failed() -> End {
    End::Phase(RunPhase::Failed)
}

pub(super) fn exits(code: i32) -> Script {
    Script::Exits {
        after: 10 * SECOND,
        code,
        on_term: OBEYS,
    }
}

pub(super) fn create(run: Value) -> Step {
    Step::Create("agentruns", run)
}

fn provider() -> Step {
    let spec = json!({"binary": "/usr/local/bin/agent", "argsTemplate": ["{{ parameters.task }}"]});
    Step::Create("agentproviders", object("AgentProvider", "scripted", &spec))
}

fn agent() -> Step {
    let spec = json!({"providerRef": {"name": "scripted"}});
    Step::Create("agents", object("Agent", "fixer", &spec))
}

fn implementation() -> Step {
    let spec = json!({"summary": "Mend the adder", "text": "The test of the adder fails. Mend the code."});
    Step::Create(
        "implementationspecs",
        object("ImplementationSpec", "mend-the-adder", &spec),
    )
}

/// A run whose Job is kept for half a minute.
pub(super) fn run(name: &str) -> Value {
    let spec = json!({
        "agentRef": {"name": "fixer"},
        "implementationSpecRef": {"name": "mend-the-adder"},
        "runtime": {"type": "job", "config": {"ttlSecondsAfterFinished": 30}},
        "workload": {"image": "example/agent:1"},
        "parameters": {"task": "adder"},
    });
    object("AgentRun", name, &spec)
}

pub(super) fn with_retries(mut run: Value, retries: u32) -> Value {
    run["spec"]["runtime"]["config"]["backoffLimit"] = retries.into();
    run
}

pub(super) fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}
