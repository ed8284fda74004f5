//! Forges and the runs that work there, on an API server.

use std::sync::Arc;

use jangar_api::{
    agents::{agent_run::AgentRun, version_control_provider::VersionControlProvider},
    condition::ConditionType,
};
use jangar_controllers::{Setup, State, start};
use jangar_engine::settings::{Settings, VcsSettings};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::PostParams};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    life::controllers,
    stage::{Props, cluster_with_kinds, settings},
    tap::Tap,
};
use crate::support::{Cluster, OddClock, identity, seconds, settle};

fn forge(defaults: &Value) -> VersionControlProvider {
    let forge = json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "VersionControlProvider",
        "metadata": { "name": "forge" },
        "spec": {
            "provider": "github",
            "auth": { "token": { "secretRef": { "name": "forge-token" } } },
            "defaults": defaults,
        },
    });
    serde_json::from_value(forge).unwrap()
}

async fn declare(cluster: &Cluster, defaults: &Value) {
    let forges: Api<VersionControlProvider> = Api::default_namespaced(cluster.client());
    forges
        .create(&PostParams::default(), &forge(defaults))
        .await
        .unwrap();
}

async fn token(cluster: &Cluster) {
    let secret = json!({ "metadata": { "name": "forge-token" }, "stringData": { "token": "not-for-logs" } });
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client());
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

/// A run of the agent `coder` on `example/adder`, with these parameters beside.
async fn run(props: &Props<'_>, name: &str, parameters: &Value) {
    let mut run = serde_json::to_value(props.new_run(name, "coder")).unwrap();
    run["spec"]["vcsRef"] = json!({ "name": "forge" });
    run["spec"]["parameters"] = parameters.clone();
    run["spec"]["parameters"]["repository"] = json!("example/adder");
    let run: AgentRun = serde_json::from_value(run).unwrap();
    props.runs().create(&PostParams::default(), &run).await.unwrap();
}

async fn ready(cluster: &Cluster) -> String {
    let forges: Api<VersionControlProvider> = Api::default_namespaced(cluster.client());
    let status = forges.get("forge").await.unwrap().status.unwrap();
    let condition = status.common.condition(&ConditionType::Ready).unwrap();
    condition.reason.as_str().to_owned()
}

async fn head(props: &Props<'_>, run: &str) -> Option<String> {
    let status = props.runs().get(run).await.unwrap().status?;
    status.vcs?.head_branch
}

async fn stage() -> Cluster {
    let cluster = cluster_with_kinds().await;
    let props = Props { cluster: &cluster };
    props.provider("shell").await;
    props.agent("coder", "shell").await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_forge_and_its_secret_may_come_after_the_run_that_works_there() {
    let cluster = stage().await;
    let props = Props { cluster: &cluster };
    let _controllers = controllers(&cluster, &Tap::new(), "one");
    settle().await;

    run(&props, "a", &json!({})).await;
    sleep(seconds(5)).await;
    assert_eq!(props.job_names().await, [] as [&str; 0]);
    declare(&cluster, &json!({})).await;
    sleep(seconds(5)).await;
    assert_eq!(ready(&cluster).await, "SecretNotFound");
    assert_eq!(props.job_names().await, [] as [&str; 0]);
    token(&cluster).await;
    sleep(seconds(31)).await;

    assert_eq!(ready(&cluster).await, "AuthReady");
    assert_eq!(props.job_names().await, ["a-job"]);
    assert_eq!(head(&props, "a").await.as_deref(), Some("agents/a"));
    let job = serde_json::to_string(&props.jobs().get("a-job").await.unwrap()).unwrap();
    assert!(!job.contains("not-for-logs"), "{job}");
}

#[tokio::test(start_paused = true)]
async fn a_run_on_a_branch_that_another_works_on_gets_one_of_its_own() {
    let cluster = stage().await;
    let props = Props { cluster: &cluster };
    token(&cluster).await;
    declare(
        &cluster,
        &json!({ "branchConflictSuffixTemplate": "{{ agentRun.name }}" }),
    )
    .await;
    let _controllers = controllers(&cluster, &Tap::new(), "one");
    settle().await;

    run(&props, "a", &json!({ "head": "fix" })).await;
    settle().await;
    run(&props, "b", &json!({ "head": "fix" })).await;
    run(&props, "c", &json!({ "head": "other" })).await;
    settle().await;
    assert_eq!(head(&props, "a").await.as_deref(), Some("fix"));
    assert_eq!(head(&props, "b").await.as_deref(), Some("fix-b"));
    assert_eq!(head(&props, "c").await.as_deref(), Some("other"));

    props.end_run("a").await;
    settle().await;
    run(&props, "d", &json!({ "head": "fix" })).await;
    settle().await;
    assert_eq!(
        head(&props, "d").await.as_deref(),
        Some("fix"),
        "the first has ended"
    );
}

#[tokio::test(start_paused = true)]
async fn switched_off_forges_are_not_even_watched() {
    let cluster = stage().await;
    let props = Props { cluster: &cluster };
    declare(&cluster, &json!({})).await;
    let tap = Tap::new();
    let controllers = start(Setup {
        client: tap.client(&cluster.server),
        settings: Arc::new(Settings {
            vcs: VcsSettings {
                enabled: false,
                ..VcsSettings::default()
            },
            ..settings()
        }),
        clock: OddClock::right(),
        identity: identity("one"),
        registry: &mut Registry::default(),
    });
    settle().await;

    run(&props, "a", &json!({})).await;
    sleep(seconds(5)).await;

    assert_eq!(*controllers.state().borrow(), State::Leading);
    assert_eq!(props.job_names().await, ["a-job"]);
    let status = props.runs().get("a").await.unwrap().status.unwrap();
    let skipped = status.common.condition(&ConditionType::VcsSkipped).unwrap();
    assert_eq!(skipped.reason.as_str(), "VcsProvidersDisabled");
    let asked: Vec<String> = tap
        .requests()
        .into_iter()
        .filter(|what| what.contains("versioncontrol"))
        .collect();
    assert_eq!(asked, [] as [&str; 0]);
}
