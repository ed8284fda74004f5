//! What the pod of a run is told about its repository, for each forge and each way of authenticating.

use jangar_api::agents::version_control_provider::ForgeKind;
use serde_json::{Value, json};

use super::{
    super::{Place, build},
    World, as_json,
};
use crate::{settings::PullRequestRate, vcs::tests::Forge};

fn world(forge: &Forge) -> World {
    let mut world = World::minimal();
    let mut vcs = forge.ready();
    if matches!(vcs.auth.credentials, crate::vcs::Credentials::App(_)) {
        vcs.token_secret = Some("fix-1-vcs-token".to_owned());
    }
    world.vcs = Some(Box::new(vcs));
    world
}

/// What version control adds to the Job of a minimal run.
fn added(forge: &Forge) -> Value {
    let (with, without) = (world(forge), World::minimal());
    let beyond = |pointer: &str| {
        let list = |world: &World| {
            as_json(&world.pod())
                .pointer(pointer)
                .cloned()
                .unwrap_or_default()
        };
        let (with, without) = (list(&with), list(&without));
        let before = without.as_array().expect("a list").clone();
        let new = with
            .as_array()
            .expect("a list")
            .iter()
            .filter(|entry| !before.contains(entry));
        new.cloned().collect::<Vec<_>>()
    };
    let document = with.document("run.json");
    json!({
        "env": beyond("/containers/0/env"),
        "volumes": beyond("/volumes"),
        "mounts": beyond("/containers/0/volumeMounts"),
        "run.json": {"vcs": document["vcs"], "base": document["base"], "head": document["head"]},
    })
}

fn ssh() -> Value {
    json!({"ssh": {
        "privateKeySecretRef": {"name": "forge-key"}, "knownHostsConfigMapRef": {"name": "hosts"},
    }})
}

#[test]
fn the_runner_is_told_whether_the_branch_can_have_work_of_the_run_already() {
    let told = |step, attempt| {
        let world = world(&Forge::github());
        let mut request = world.request();
        request.place = Place { step, attempt };
        let built = build(&request, &world.settings).expect("the Job is made");
        let job = serde_json::to_string(&built.job).expect("JSON");
        job.contains(r#"{"name":"VCS_EARLIER_WORK","value":"true"}"#)
    };
    let places = [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)];
    assert_eq!(
        places.map(|(step, attempt)| told(step, attempt)),
        [false, true, false, true, true]
    );
}

#[test]
fn the_job_for_each_forge_and_way_of_authenticating() {
    let own = |provider: &str| {
        Forge::github()
            .provider("/provider", json!(provider))
            .provider("/cloneBaseUrl", json!("https://git.example.com"))
    };
    let everything = || {
        let mut forge = Forge::github().provider(
            "/defaults",
            json!({
                "baseBranch": "main", "branchTemplate": "fix/{{ issueNumber }}",
                "branchConflictSuffixTemplate": "{{ agentRun.name }}",
                "commitAuthorName": "Robot $(HOME)", "commitAuthorEmail": "robot@example.com",
                "pullRequest": {"titleTemplate": "Mend {{ issueNumber }}", "bodyTemplate": "It cost 5$.", "draft": true},
            }),
        );
        let rate = PullRequestRate {
            window_seconds: Some(60),
            max_requests: Some(5),
            backoff_seconds: None,
        };
        forge.settings.vcs.rate_limits.insert(ForgeKind::Github, rate);
        forge
    };
    let app = json!({"method": "app", "app": {
        "appId": 17, "installationId": 42, "privateKeySecretRef": {"name": "app-key"},
    }});
    let cases = vec![
        ("github, app", Forge::github().provider("/auth", app)),
        ("github, token, everything", everything()),
        ("github, ssh", Forge::github().provider("/auth", ssh())),
        (
            "github, none",
            Forge::github().provider("/auth", json!({"method": "none"})),
        ),
        ("gitlab, token", own("gitlab")),
        ("bitbucket, token", own("bitbucket")),
        (
            "gitea, token",
            own("gitea").provider("/auth/username", json!("robot")),
        ),
        ("generic, token", own("generic")),
        (
            "generic, ssh",
            own("generic")
                .provider("/auth", ssh())
                .provider("/sshUser", json!("builder")),
        ),
    ];
    let all: serde_json::Map<String, Value> = cases
        .iter()
        .map(|(name, forge)| ((*name).to_owned(), added(forge)))
        .collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&all).unwrap());
}

#[test]
fn no_token_stands_in_a_job() {
    let container = as_json(&world(&Forge::github()).container());
    let env = container["env"].as_array().expect("variables");
    for name in ["VCS_TOKEN", "GITHUB_TOKEN", "GH_TOKEN"] {
        let variable = env.iter().find(|variable| variable["name"] == name).expect("set");
        assert_eq!(variable.get("value"), None, "{name}");
        assert_eq!(
            variable["valueFrom"]["secretKeyRef"],
            json!({"name": "forge-token", "key": "token"})
        );
    }
}

#[test]
fn neither_the_agent_nor_its_provider_can_say_where_the_runner_pushes() {
    let world = world(&Forge::github())
        .with_agent(&json!({"env": [{"name": "VCS_HEAD_BRANCH", "value": "main"}]}))
        .with_provider(
            &json!({"envTemplate": {"VCS_WRITE_ENABLED": "true", "VCS_OTHER": "x", "GITHUB_TOKEN": "mine"}}),
        );
    let env = world.container().env.expect("variables");
    let named = |name: &str| env.iter().filter(|variable| variable.name == name).count();
    assert_eq!(named("VCS_HEAD_BRANCH"), 1);
    assert_eq!(named("VCS_WRITE_ENABLED"), 1);
    assert_eq!(named("VCS_OTHER"), 0);
    assert_eq!(named("GITHUB_TOKEN"), 1);
}

#[test]
fn templates_of_the_provider_can_name_the_repository() {
    let world = world(&Forge::github())
        .with_provider(&json!({"argsTemplate": ["{{ vcs.repository }}@{{ vcs.headBranch }}"]}));
    let args = &world.document("agent-runner.json")["providerSpec"]["args"];
    assert_eq!(*args, json!(["example/adder@agents/mend"]));
}
