//! Runs that work on a repository, or wait for what they need to do so.

use serde_json::{Value, json};

use super::{
    Scenario, Step,
    runs::{SECOND, create, failed, object, run, story, succeeded},
};

pub(super) fn all() -> Vec<Scenario> {
    vec![provider_last(), provider_missing(), token_missing()]
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
