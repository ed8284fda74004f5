//! Runs that can never start as they were written: for each reason one, all of them submitted together.

use jangar_engine::settings::Settings;
use json_patch::merge;
use serde_json::{Value, json};

use super::{
    End, Scenario, Step,
    runs::{create, failed, object, run, slow, story, succeeded},
    version_control::on_repository,
};
use crate::{endpoint::ENDPOINT, node::Scripts};

pub(super) fn all() -> Vec<Scenario> {
    vec![by_spec(), by_forge(), by_policy()]
}

/// What the run and the objects that it names say is enough to see that it cannot be.
fn by_spec() -> Scenario {
    let mut steps = agents();
    let refused = mistakes().into_iter().chain(workflow_mistakes());
    let ends = submit(&mut steps, run, refused.map(of_spec));
    story("refused-by-spec", steps, ends)
}

/// Agents with something wrong about them, by the name of what it is.
fn agents() -> Vec<Step> {
    // Each argument has all of the parameter, and together they have more than fits into the files of a run.
    let long: Vec<&str> = vec!["{{ parameters.task }}"; 600];
    let providers = [
        ("no-binary", json!({"binary": " "})),
        (
            "open-template",
            json!({"binary": "/agent", "argsTemplate": ["{{ parameters"]}),
        ),
        ("long-winded", json!({"binary": "/agent", "argsTemplate": long})),
    ];
    let mut steps = Vec::new();
    for (name, provider) in providers {
        let agent = json!({"providerRef": {"name": name}});
        steps.push(Step::Create(
            "agentproviders",
            object("AgentProvider", name, &provider),
        ));
        steps.push(Step::Create("agents", object("Agent", name, &agent)));
    }
    let nobodys = json!({"providerRef": {"name": " "}});
    let strict = json!({"providerRef": {"name": "scripted"}, "security": {"allowedSecrets": ["own"]}});
    for (name, agent) in [("nobodys", nobodys), ("strict", strict)] {
        steps.push(Step::Create("agents", object("Agent", name, &agent)));
    }
    steps
}

/// Runs of one Job or of none, as they differ from one that would succeed.
fn mistakes() -> Vec<(&'static str, Value)> {
    let config = |config: Value| json!({"runtime": {"config": config}});
    let inline = |inline: Value| json!({"implementationSpecRef": null, "implementation": {"inline": inline}});
    let by = |agent: &str| json!({"agentRef": {"name": agent}});
    let outside = |type_: &str, config: Value| json!({"runtime": {"type": type_, "config": config}});
    let volume = json!({"name": " ", "type": "emptyDir", "mountPath": "/cache"});
    vec![
        ("no-binary", by("no-binary")),
        ("template", by("open-template")),
        (
            "inputs",
            json!({"agentRef": {"name": "long-winded"}, "parameters": {"task": "x".repeat(2000)}}),
        ),
        ("provider-ref", by("nobodys")),
        (
            "secret",
            json!({"agentRef": {"name": "strict"}, "secrets": ["of-others"]}),
        ),
        (
            "contract",
            inline(json!({"text": "Mend it.", "contract": {"requiredKeys": [" "]}})),
        ),
        ("text", inline(json!({"text": " "}))),
        ("retries", config(json!({"backoffLimit": 101}))),
        ("priority-class", config(json!({"priorityClassName": "urgent"}))),
        ("account", config(json!({"serviceAccount": "admin"}))),
        (
            "prompt",
            json!({"systemPromptRef": {"kind": "ConfigMap", "name": " ", "key": "prompt"}}),
        ),
        ("volume", json!({"workload": {"volumes": [volume]}})),
        ("image", json!({"workload": null})),
        ("parameter", json!({"parameters": {"task": "x".repeat(2049)}})),
        ("no-endpoint", outside("custom", json!({}))),
        (
            "endpoint",
            outside("custom", json!({"endpoint": "http://endpoint.example/run"})),
        ),
        ("no-workflow", outside("temporal", json!({"taskQueue": "agents"}))),
    ]
}

/// The same for workflows.
fn workflow_mistakes() -> Vec<(&'static str, Value)> {
    let workflow = |steps: Value| json!({"runtime": {"type": "workflow"}, "workflow": {"steps": steps}});
    let values = |letter: &str| -> Value {
        let values = (0..60).map(|number| (format!("{letter}{number}"), Value::from("x")));
        Value::Object(values.collect())
    };
    let mut crowded = workflow(json!([{"name": "plan", "parameters": values("a")}]));
    crowded["parameters"] = values("b");
    vec![
        ("parameters", crowded),
        (
            "step-retries",
            workflow(json!([{"name": "plan", "retries": 101}])),
        ),
        ("no-steps", workflow(json!([]))),
        ("no-name", workflow(json!([{"name": " "}]))),
        ("one-name", workflow(json!([{"name": "plan"}, {"name": "plan"}]))),
    ]
}

/// What the forge is, or what it lets runs do, is not what they insist on.
fn by_forge() -> Scenario {
    let token = json!({"method": "token", "token": {"secretRef": {"name": "forge-token"}}});
    let forges = [
        ("open", json!({"auth": {"method": "none"}})),
        ("mute", json!({"auth": token, "capabilities": {"write": false}})),
        (
            "private",
            json!({"auth": {"method": "none"}, "repositoryPolicy": {"deny": ["example/*"]}}),
        ),
        ("tokenless", json!({"auth": {"method": "token"}})),
        (
            "appless",
            json!({"provider": "generic", "auth": {"method": "app"}}),
        ),
    ];
    let mut steps = Vec::new();
    for (name, fields) in forges {
        let mut spec = json!({"provider": "github"});
        merge(&mut spec, &fields);
        steps.push(Step::Create(
            "versioncontrolproviders",
            object("VersionControlProvider", name, &spec),
        ));
    }
    let at = |forge: &str| json!({"vcsRef": {"name": forge}});
    let mut unnamed = at("open");
    unnamed["parameters"] = json!({"repository": null});
    let mut no_branch = at("open");
    no_branch["parameters"] = json!({"base": "main..next"});
    let mut writing = at("mute");
    writing["vcsPolicy"] = json!({"mode": "read-write"});
    let mut outside = at("open");
    outside["runtime"] = json!({"type": "custom", "config": {"endpoint": ENDPOINT}});
    let refused = [
        ("repository", unnamed),
        ("branch", no_branch),
        ("capability", writing),
        ("outside", outside),
        ("denied", at("private")),
        ("no-token", at("tokenless")),
        ("no-method", at("appless")),
    ];
    let insisting = |name: &str| on_repository(name, true);
    let ends = submit(&mut steps, insisting, refused.map(of_spec));
    story("refused-by-forge", steps, ends)
}

/// What this installation does not let runs do. Nor does it let anybody stop one, which changes nothing about its end.
fn by_policy() -> Scenario {
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let spec = |spec: Value| json!({"spec": spec});
    let refused = [
        ("no-label", labels(json!({"team": null}))),
        ("bad-label", labels(json!({"secret-plan": "x"}))),
        ("other-label", labels(json!({"colour": "red"}))),
        ("bad-image", spec(json!({"workload": {"image": "bad/agent:1"}}))),
        (
            "other-image",
            spec(json!({"workload": {"image": "other/agent:1"}})),
        ),
        ("bad-secret", spec(json!({"secrets": ["crown"]}))),
        (
            "root",
            spec(json!({"runtime": {"config": {"podSecurityContext": {"runAsUser": 0}}}})),
        ),
        (
            "forge",
            spec(json!({"vcsRef": {"name": "forge"}, "vcsPolicy": {"required": true}})),
        ),
        (
            "outside",
            spec(json!({"runtime": {"type": "custom", "config": {"endpoint": ENDPOINT}}})),
        ),
    ];
    let mut steps = Vec::new();
    let mut ends = submit(&mut steps, of_team, refused);
    ends.push(("stays", succeeded()));
    steps.extend([
        create(of_team("stays")),
        Step::AwaitWork("stays", 1),
        Step::Cancel("stays"),
    ]);
    Scenario {
        settings: strict,
        scripts: Scripts::default().with("stays", 1, slow()),
        ..story("refused-by-policy", steps, ends)
    }
}

fn of_team(name: &str) -> Value {
    let mut run = run(name);
    run["metadata"]["labels"]["team"] = "red".into();
    run
}

fn strict(settings: &mut Settings) {
    let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let policy = &mut settings.policy;
    policy.labels_required = list(&["team"]);
    policy.labels_denied = list(&["secret-*"]);
    policy.labels_allowed = list(&["team"]);
    policy.images_denied = list(&["bad/*"]);
    policy.images_allowed = list(&["example/*"]);
    policy.blocked_secrets = ["crown".to_owned()].into();
    settings.vcs.enabled = false;
    settings.custom.callback_url = None;
    settings.runs.cancel_enabled = false;
}

/// Submits runs that differ in this from ones that would succeed, so that all of them fail.
fn submit(
    steps: &mut Vec<Step>,
    good: impl Fn(&str) -> Value,
    refused: impl IntoIterator<Item = (&'static str, Value)>,
) -> Vec<(&'static str, End)> {
    let submitted = refused.into_iter().map(|(name, patch)| {
        let mut run = good(name);
        merge(&mut run, &patch);
        steps.push(create(run));
        (name, failed())
    });
    submitted.collect()
}

fn of_spec((name, patch): (&'static str, Value)) -> (&'static str, Value) {
    (name, json!({ "spec": patch }))
}
