//! Runs that are not let in, or that somebody or something interferes with.

use serde_json::json;

use super::{
    Scenario, Step,
    misfortunes::DISRUPTIONS,
    runs::{OBEYS, SECOND, at_work, create, failed, large, run, story, succeeded},
    workflows::workflow,
};
use crate::node::{Eviction, Lack, Script, Scripts};

/// All scenarios, in a fixed order.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        job_deleted(),
        job_forbidden(),
        files_taken(),
        spec_changed(),
        configuration_missing(),
        nodes_lost(),
    ]
}

/// Somebody deletes the Jobs of two runs while they work. One of them says that its work may be done again.
fn job_deleted() -> Scenario {
    let steps = json!([{"name": "plan", "retries": 1, "onJobMissing": "Retry"}]);
    let mut story_steps = at_work(create(run("one")));
    story_steps.extend([
        create(workflow("two", &steps)),
        Step::AwaitStepWork("two", 1),
        Step::Wait(5 * SECOND),
        Step::DeleteJob("one"),
        Step::DeleteJob("two"),
    ]);
    let endless = || Script::Runs { on_term: OBEYS };
    Scenario {
        scripts: Scripts::default()
            .with("one", 1, endless())
            .with_step("two", 1, 1, endless()),
        at_most_once: true,
        ..story(
            "job-deleted",
            story_steps,
            vec![("one", failed()), ("two", succeeded())],
        )
    }
}

/// The quota has no room for a Job until somebody else's are gone.
fn job_forbidden() -> Scenario {
    Scenario {
        jobs_forbidden: 100 * SECOND,
        ..story(
            "hindered-job-forbidden",
            vec![create(run("one"))],
            vec![("one", succeeded())],
        )
    }
}

/// Somebody has a ConfigMap of the name that the run needs for its files, and takes it away later.
fn files_taken() -> Scenario {
    let taken = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one-spec"}, "data": {"notes": "not yours"},
    });
    let (mut steps, run) = large("one");
    steps.extend([
        Step::Create("configmaps", taken),
        create(run),
        Step::Wait(2 * SECOND),
        Step::Remove("configmaps", "one-spec"),
    ]);
    story("hindered-files-taken", steps, vec![("one", succeeded())])
}

/// Somebody changes the spec in the moment in which the run has a Job and does not say so yet, which is the last in which the API
/// server takes the change. It is another moment where something goes wrong, so that the end may be another one. The work takes longer than
/// any trouble: what had ended well would be lost.
fn spec_changed() -> Scenario {
    let steps = vec![
        create(run("one")),
        Step::AwaitJob("one"),
        Step::Change("one", json!({"spec": {"parameters": {"task": "subtractor"}}})),
    ];
    let long = Script::Exits {
        after: 20 * 60 * SECOND,
        code: 0,
        on_term: OBEYS,
    };
    Scenario {
        scripts: Scripts::default().with("one", 1, long),
        at_most_once: true,
        ..story("hindered-spec-changed", steps, vec![("one", failed())])
    }
}

/// What the pod mounts cannot be had, which its node says again and again.
fn configuration_missing() -> Scenario {
    let script = Script::NeverStarts(Lack::Configuration);
    Scenario {
        scripts: Scripts::default().with("one", 1, script),
        ..story(
            "hindered-configuration",
            vec![create(run("one"))],
            vec![("one", failed())],
        )
    }
}

/// Every node takes the pod away, and the last one is silent for so long that its pod is given up.
fn nodes_lost() -> Scenario {
    let evicted = || Script::Evicted {
        after: 10 * SECOND,
        by: Eviction::Pressure,
    };
    let scripts = (1..DISRUPTIONS).fold(Scripts::default(), |scripts, attempt| {
        scripts.with("one", attempt, evicted())
    });
    let silent = Script::NodeLost {
        after: 10 * SECOND,
        noticed_after: 12 * 60 * SECOND,
    };
    Scenario {
        scripts: scripts.with("one", DISRUPTIONS, silent),
        ..story(
            "hindered-nodes-lost",
            vec![create(run("one"))],
            vec![("one", failed())],
        )
    }
}
