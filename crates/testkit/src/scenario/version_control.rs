//! Runs that work on a repository, or wait for what they need to do so.

use serde_json::{Value, json};

use super::{
    End, Scenario, Step,
    runs::{OBEYS, SECOND, create, exits, failed, object, run, story, succeeded},
};
use crate::node::{Script, Scripts};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        provider_last(),
        provider_missing(),
        token_missing(),
        work_arrives(),
        app_retried(),
        app_deleted(),
        app_in_steps(),
    ]
}

/// The forge is declared after the run that works there.
fn provider_last() -> Scenario {
    let steps = vec![
        create(on_repository("one", false)),
        Step::Wait(2 * SECOND),
        forge(&json!({"method": "none"})),
    ];
    story("forge-last", steps, vec![("one", succeeded())])
}

/// A run insists on a forge that nobody declares.
fn provider_missing() -> Scenario {
    let steps = vec![create(on_repository("one", true))];
    story("forge-missing", steps, vec![("one", failed())])
}

/// There is no Secret with the token: the run waits for it, and goes on without version control.
fn token_missing() -> Scenario {
    let auth = json!({"method": "token", "token": {"secretRef": {"name": "forge-token"}}});
    let steps = vec![forge(&auth), create(on_repository("one", false))];
    story("token-missing", steps, vec![("one", succeeded())])
}

/// A GitHub App gives the token, the work is pushed, and the forge is asked whether it arrived.
fn work_arrives() -> Scenario {
    let steps = vec![app_key(), forge(&app()), create(writing("one"))];
    story("work-arrives", steps, vec![("one", succeeded())])
}

/// Each attempt has a token of its own.
fn app_retried() -> Scenario {
    let mut run = writing("one");
    run["spec"]["runtime"]["config"]["backoffLimit"] = 1.into();
    Scenario {
        scripts: Scripts::default().with("one", 1, exits(1)),
        ..story(
            "app-retried",
            vec![app_key(), forge(&app()), create(run)],
            vec![("one", succeeded())],
        )
    }
}

/// The run is deleted while it works: nothing of its token is left.
fn app_deleted() -> Scenario {
    let steps = vec![
        app_key(),
        forge(&app()),
        create(writing("one")),
        Step::AwaitAccepted("one"),
        Step::AwaitWork("one", 1),
        Step::Wait(5 * SECOND),
        Step::Delete("one"),
    ];
    Scenario {
        scripts: Scripts::default().with("one", 1, Script::Runs { on_term: OBEYS }),
        ..story("app-deleted", steps, vec![("one", End::Gone)])
    }
}

/// Two steps on one branch, each with tokens of its own; the second takes two attempts.
fn app_in_steps() -> Scenario {
    let mut run = writing("one");
    run["spec"]["runtime"]["type"] = "workflow".into();
    run["spec"]["workflow"] = json!({"steps": [{"name": "plan"}, {"name": "build", "retries": 1}]});
    Scenario {
        scripts: Scripts::default().with_step("one", 2, 1, exits(1)),
        ..story(
            "app-in-steps",
            vec![app_key(), forge(&app()), create(run)],
            vec![("one", succeeded())],
        )
    }
}

/// A run that may write.
fn writing(name: &str) -> Value {
    let mut run = on_repository(name, true);
    run["spec"]["vcsPolicy"]["mode"] = "read-write".into();
    run["spec"]["parameters"]["head"] = "fix/adder".into();
    run
}

fn app() -> Value {
    json!({"method": "app", "app": {
        "appId": 17, "installationId": 42, "privateKeySecretRef": {"name": "app-key"},
    }})
}

fn app_key() -> Step {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "app-key"},
        "stringData": {"privateKey": "the key of the App"},
    });
    Step::Create("secrets", secret)
}

fn on_repository(name: &str, required: bool) -> Value {
    let mut run = run(name);
    run["spec"]["vcsRef"] = json!({"name": "forge"});
    run["spec"]["vcsPolicy"] = json!({"required": required, "mode": "read-only"});
    run["spec"]["parameters"]["repository"] = "example/adder".into();
    run
}

fn forge(auth: &Value) -> Step {
    let spec = json!({"provider": "github", "auth": auth, "defaults": {"baseBranch": "main"}});
    Step::Create(
        "versioncontrolproviders",
        object("VersionControlProvider", "forge", &spec),
    )
}
