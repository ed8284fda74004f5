//! Runs that lack something which they cannot start without: nobody ever creates it, or somebody does in time.

use jangar_engine::settings::{AuthSecret, Settings};
use serde_json::{Value, json};

use super::{
    End, Scenario, Step,
    runs::{SECOND, create, failed, object, run, story, succeeded},
};

/// The Secret of which every run needs a key, and the key.
const LOGIN: &str = "login";
const KEY: &str = "auth.json";

pub(super) fn all() -> Vec<Scenario> {
    vec![for_good(), comes()]
}

/// What nobody creates ends each of the runs.
fn for_good() -> Scenario {
    without("missing-for-good", Vec::new(), &failed())
}

/// All of it is created while the runs wait.
fn comes() -> Scenario {
    let mut later = vec![Step::Wait(20 * SECOND)];
    later.extend(what_is_missing());
    without("missing-comes", later, &succeeded())
}

/// Runs that each lack something else, what happens then, and how all of them end.
fn without(name: &'static str, later: Vec<Step>, end: &End) -> Scenario {
    let login = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": LOGIN}, "stringData": {"user": "agent"},
    });
    let lost = json!({"providerRef": {"name": "lost"}});
    let mut steps = vec![
        Step::Create("secrets", login),
        Step::Create("agents", object("Agent", "lost", &lost)),
    ];
    let runs = lacking();
    let ends = runs.iter().map(|(name, _)| (*name, end.clone())).collect();
    steps.extend(runs.into_iter().map(|(_, run)| create(run)));
    steps.extend(later);
    Scenario {
        settings: with_login,
        ..story(name, steps, ends)
    }
}

/// Runs by the names of what they lack.
fn lacking() -> Vec<(&'static str, Value)> {
    let lost = || json!({"name": "lost"});
    let prompt = json!({"kind": "ConfigMap", "name": "prompts", "key": "system"});
    let mut runs: Vec<_> = [
        ("provider", "agentRef", lost()),
        ("implementation", "implementationSpecRef", lost()),
        ("memory", "memoryRef", lost()),
        ("prompt", "systemPromptRef", prompt),
    ]
    .map(|(name, field, value)| {
        let mut run = run(name);
        run["spec"][field] = value;
        (name, run)
    })
    .into();
    // It lacks nothing but what all of them do.
    runs.push(("key", run("key")));
    runs
}

fn what_is_missing() -> Vec<Step> {
    let provider = json!({"binary": "/usr/local/bin/agent"});
    let work = json!({"text": "Mend it."});
    let memory = json!({"type": "postgres", "connection": {"secretRef": {"name": LOGIN}}});
    let prompts = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prompts"}, "data": {"system": "You mend."},
    });
    vec![
        Step::Create("agentproviders", object("AgentProvider", "lost", &provider)),
        Step::Create("implementationspecs", object("ImplementationSpec", "lost", &work)),
        Step::Create("memories", object("Memory", "lost", &memory)),
        Step::Create("configmaps", prompts),
        Step::Mend("secrets", LOGIN, json!({"stringData": {KEY: "{}"}})),
    ]
}

/// Every run of the installation has a key of one Secret.
fn with_login(settings: &mut Settings) {
    settings.runner.auth_secret = Some(AuthSecret {
        name: LOGIN.to_owned(),
        key: KEY.to_owned(),
        mount_path: "/login".to_owned(),
    });
}
