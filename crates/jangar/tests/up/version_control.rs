//! Version control on `jangar up`: a run clones from a forge on this machine, commits, pushes, opens a pull request, and the
//! controllers find at the forge what it says.

use jangar_api::{
    agents::{
        agent_run::{AgentRun, AgentRunStatus},
        version_control_provider::VersionControlProvider,
    },
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    values::Int32,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::DeleteParams,
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    agent_runs::{agent, reached, run},
    forge::{Forge, TOKEN},
    objects::create,
    process::{PATIENCE, Setup, Up, eventually},
};

const COMMITS: &str = "echo '1 + 1 = 2' > adder.txt && git commit --quiet --all --message 'Mend the adder'";

async fn up() -> (tempfile::TempDir, Up, Client) {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let client = up.client().await;
    (directory, up, client)
}

async fn secret(client: &Client, name: &str, key: &str, value: &str) {
    let secret = json!({"metadata": {"name": name}, "stringData": {key: value}});
    create::<Secret>(client, secret).await;
}

async fn provider(client: &Client, forge: &Forge, auth: Value) {
    let provider = json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "VersionControlProvider",
        "metadata": {"name": "forge"},
        "spec": {
            "provider": "github", "cloneBaseUrl": forge.url(), "auth": auth,
            "defaults": {
                "baseBranch": "main", "branchTemplate": "agents/{{ issueNumber }}-{{ agentRun.name }}",
                "commitAuthorName": "Example Robot", "commitAuthorEmail": "robot@example.com",
                "pullRequest": {"titleTemplate": "{{ issueTitle }} (#{{ issueNumber }})", "draft": true},
            },
        },
    });
    create::<VersionControlProvider>(client, provider).await;
}

async fn with_token(client: &Client, forge: &Forge) {
    secret(client, "forge-token", "token", TOKEN).await;
    let auth = json!({"method": "token", "token": {"secretRef": {"name": "forge-token"}}});
    provider(client, forge, auth).await;
}

async fn with_app(client: &Client, forge: &Forge) {
    let key = include_str!("../../../forge/tests/api/app-key.pem");
    secret(client, "app-key", "privateKey", key).await;
    let app = json!({"appId": 17, "installationId": 42, "privateKeySecretRef": {"name": "app-key"}});
    provider(client, forge, json!({"method": "app", "app": app})).await;
}

/// A run on `example/adder` that runs this shell script in the checkout.
async fn submit(client: &Client, name: &str, script: &str) -> AgentRun {
    agent(
        client,
        name,
        json!({"binary": "/bin/sh", "argsTemplate": ["-c", script]}),
    )
    .await;
    let changes = json!({
        "implementation": {"inline": {"summary": "Mend the adder", "text": "It adds wrongly."}},
        "vcsRef": {"name": "forge"}, "vcsPolicy": {"required": true},
        "parameters": {"repository": "example/adder", "issueNumber": "7"},
    });
    create(client, run(name, changes)).await
}

/// Waits until the forge has said what it has of the work.
async fn asked(client: &Client, name: &str) -> AgentRunStatus {
    let runs: Api<AgentRun> = Api::default_namespaced(client.clone());
    let settled = |run: Option<&AgentRun>| {
        let status = run.and_then(|run| run.status.as_ref());
        let condition = status.and_then(|status| status.common.condition(&ConditionType::Delivered));
        condition.is_some_and(|condition| condition.status != ConditionStatus::Unknown)
    };
    let waited = timeout(PATIENCE, await_condition(runs.clone(), name, settled)).await;
    let Ok(run) = waited else {
        panic!("{:#?}", runs.get(name).await.unwrap().status);
    };
    run.unwrap().unwrap().status.unwrap()
}

fn delivered(status: &AgentRunStatus) -> (&str, String) {
    let condition = status.common.condition(&ConditionType::Delivered).unwrap();
    (condition.reason.as_str(), condition.message.clone())
}

#[tokio::test]
async fn what_a_run_commits_arrives_at_the_forge_with_a_pull_request() {
    let forge = Forge::start().await;
    let (_directory, _up, client) = up().await;
    with_token(&client, &forge).await;

    submit(&client, "mend", COMMITS).await;
    reached(&client, "mend", &RunPhase::Succeeded).await;
    let status = asked(&client, "mend").await;

    assert_eq!(delivered(&status).0, "Delivered", "{status:#?}");
    let branch = "agents/7-mend";
    let commit = forge.git(&["rev-parse", branch]);
    let vcs = status.vcs.unwrap();
    assert_eq!(vcs.head_branch.as_deref(), Some(branch));
    assert_eq!(vcs.commit.as_deref(), Some(commit.as_str()));
    assert_eq!(vcs.commits_ahead.map(Int32::get), Some(1));
    let author = forge.git(&["log", "-1", "--format=%an <%ae>: %s", branch]);
    assert_eq!(author, "Example Robot <robot@example.com>: Mend the adder");
    assert_eq!(forge.git(&["show", "agents/7-mend:adder.txt"]), "1 + 1 = 2");
    let pulls = forge.pulls();
    assert_eq!(pulls.len(), 1, "{pulls:?}");
    assert_eq!(pulls[0]["title"], "Mend the adder (#7)");
    assert_eq!(pulls[0]["draft"], true);
    let url = pulls[0]["html_url"].as_str();
    assert_eq!(vcs.pull_request.unwrap().url.as_deref(), url);
}

#[tokio::test]
async fn nothing_changed_and_a_push_that_was_rejected_are_told_apart() {
    let forge = Forge::start().await;
    let (_directory, _up, client) = up().await;
    with_token(&client, &forge).await;

    submit(&client, "idle", "true").await;
    reached(&client, "idle", &RunPhase::Succeeded).await;
    assert_eq!(delivered(&asked(&client, "idle").await).0, "NothingChanged");

    forge.refuse("no pushes on Sundays");
    submit(&client, "rejected", COMMITS).await;
    let status = reached(&client, "rejected", &RunPhase::Failed).await;
    let (reason, message) = delivered(&status);
    assert_eq!(reason, "PushRejected", "{message}");
    assert!(message.contains("no pushes on Sundays"), "{message}");
    assert_eq!(forge.pulls(), [] as [Value; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_an_app_ends_with_its_run_also_if_that_is_deleted_while_it_works() {
    let forge = Forge::start().await;
    let (_directory, _up, client) = up().await;
    with_app(&client, &forge).await;

    submit(&client, "mend", COMMITS).await;
    let status = asked(&client, "mend").await;
    assert_eq!(delivered(&status).0, "Delivered", "{status:#?}");

    let created = submit(&client, "deleted", "while :; do sleep 1; done").await;
    reached(&client, "deleted", &RunPhase::Running).await;
    let runs: Api<AgentRun> = Api::default_namespaced(client.clone());
    runs.delete("deleted", &DeleteParams::default()).await.unwrap();
    let gone = is_deleted(created.metadata.uid.as_deref().unwrap());
    timeout(PATIENCE, await_condition(runs, "deleted", gone))
        .await
        .unwrap()
        .unwrap();

    // The first run, the question what it delivered, and the second.
    eventually("all tokens are taken back", || forge.tokens() == (3, Vec::new()));
}
