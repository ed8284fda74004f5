//! Forges and the runs that work there, on an API server.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, future::BoxFuture};
use jangar_api::{
    agents::{agent_run::AgentRun, version_control_provider::VersionControlProvider},
    condition::ConditionType,
    labels,
    reason::Reason,
};
use jangar_controllers::{
    Setup, State,
    forges::{Credential, Failure, Forges, Minted},
    start, start_with,
};
use jangar_engine::{
    decision::{DeliveryAnswer, DeliveryQuery, Found, NewToken},
    settings::{Settings, VcsSettings},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    life::controllers,
    stage::{Props, cluster_with_kinds, settings},
    tap::{Answer, Tap, failure},
};
use crate::support::{Cluster, OddClock, identity, seconds, settle, settle_silence};

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
    settle_silence().await;
    assert_eq!(head(&props, "a").await.as_deref(), Some("fix"));
    assert_eq!(head(&props, "b").await.as_deref(), Some("fix-b"));
    assert_eq!(head(&props, "c").await.as_deref(), Some("other"));

    props.end_run("a").await;
    settle().await;
    run(&props, "d", &json!({ "head": "fix" })).await;
    settle_silence().await;
    assert_eq!(
        head(&props, "d").await.as_deref(),
        Some("fix"),
        "the first has ended"
    );
}

#[tokio::test(start_paused = true)]
async fn of_runs_that_start_in_the_same_moment_one_has_the_branch() {
    let cluster = stage().await;
    let props = Props { cluster: &cluster };
    token(&cluster).await;
    declare(
        &cluster,
        &json!({ "branchConflictSuffixTemplate": "{{ agentRun.name }}" }),
    )
    .await;
    let names = ["a", "b", "c", "d"];
    for name in names {
        run(&props, name, &json!({ "head": "fix" })).await;
    }
    // They are all there when the controllers begin.
    let _controllers = controllers(&cluster, &Tap::new(), "one");
    settle_silence().await;

    let mut heads = BTreeSet::new();
    for name in names {
        heads.insert(head(&props, name).await.unwrap());
    }
    assert_eq!(heads.len(), names.len(), "{heads:?}");
    assert!(heads.contains("fix"), "{heads:?}");
}

#[tokio::test(start_paused = true)]
async fn switched_off_forges_are_not_even_watched() {
    let cluster = stage().await;
    let props = Props { cluster: &cluster };
    declare(&cluster, &json!({})).await;
    let tap = Tap::new();
    let controllers = start(Setup {
        client: tap.client(&cluster.server),
        lease_client: tap.client(&cluster.server),
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
        outside: Arc::default(),
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

/// A forge that says what the test tells it to, and remembers what it was asked with.
#[derive(Debug, Default)]
struct Told {
    answers: Mutex<Vec<DeliveryAnswer>>,
    asked: Mutex<Vec<(String, Vec<u8>)>>,
}

impl Forges for Told {
    fn delivery<'a>(
        &'a self,
        query: &'a DeliveryQuery,
        credential: Credential,
        _: Timestamp,
    ) -> BoxFuture<'a, DeliveryAnswer> {
        self.asked
            .lock()
            .unwrap()
            .push((query.head.clone(), credential.0));
        let answer = self.answers.lock().unwrap().remove(0);
        async move { answer }.boxed()
    }

    fn mint<'a>(
        &'a self,
        new: &'a NewToken,
        key: Credential,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Minted, Failure>> {
        self.asked
            .lock()
            .unwrap()
            .push((format!("mint {}", new.repository), key.0));
        let token = format!("made-{}", self.asked.lock().unwrap().len());
        let minted = Minted {
            token: Credential(token.into_bytes()),
            expires_at: now + jiff::SignedDuration::from_hours(1),
        };
        async move { Ok(minted) }.boxed()
    }

    fn revoke<'a>(&'a self, _: &'a str, token: Credential) -> BoxFuture<'a, Result<(), Failure>> {
        self.asked.lock().unwrap().push(("revoke".to_owned(), token.0));
        async move { Ok(()) }.boxed()
    }
}

fn found(commit: &str) -> DeliveryAnswer {
    DeliveryAnswer::Found(Found {
        commit: Some(commit.to_owned()),
        commits_ahead: Some(2),
        pull_request: Some((7, "https://forge.example/7".to_owned())),
        merged: None,
    })
}

fn down() -> DeliveryAnswer {
    DeliveryAnswer::Failed {
        message: "GET /repos/example/adder/branches/x: 503".to_owned(),
        passing: true,
        not_before: None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_forge_is_asked_after_the_end_until_it_answers_and_never_again() {
    let cluster = stage().await;
    let props = Props { cluster: &cluster };
    token(&cluster).await;
    declare(&cluster, &json!({ "baseBranch": "main" })).await;
    let forges = Arc::new(Told::default());
    forges.answers.lock().unwrap().extend([down(), found("c0ffee")]);
    let setup = Setup {
        client: cluster.client(),
        lease_client: cluster.client(),
        settings: Arc::new(settings()),
        clock: OddClock::right(),
        identity: identity("one"),
        registry: &mut Registry::default(),
        outside: Arc::default(),
    };
    let _controllers = start_with(setup, Arc::clone(&forges) as Arc<dyn Forges>);
    settle().await;
    run(&props, "a", &json!({})).await;
    settle_silence().await;
    assert_eq!(*forges.asked.lock().unwrap(), [], "nothing was pushed yet");

    // As agent-runner reports it.
    let ended = json!({ "status": {
        "phase": "Succeeded", "finishedAt": Timestamp::now(),
        "vcs": { "commit": "f00", "commitsAhead": 2 },
        "conditions": [{
            "type": "Delivered", "status": "Unknown", "reason": "Progressing", "message": "",
            "lastTransitionTime": Timestamp::now(),
        }],
    } });
    let params = PatchParams::default();
    props
        .runs()
        .patch_status("a", &params, &Patch::Merge(ended))
        .await
        .unwrap();
    settle().await;
    let delivered = async || {
        let status = props.runs().get("a").await.unwrap().status.unwrap();
        let condition = status
            .common
            .condition(&ConditionType::Delivered)
            .unwrap()
            .clone();
        (
            condition.status.as_str().to_owned(),
            condition.reason.as_str().to_owned(),
            condition.message,
        )
    };
    let (status, reason, message) = delivered().await;
    assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "DeliveryUnknown"));
    assert!(message.contains("503"), "{message}");

    sleep(seconds(31)).await;
    let (status, reason, message) = delivered().await;
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("True", "Delivered"),
        "{message}"
    );
    let vcs = props.runs().get("a").await.unwrap().status.unwrap().vcs.unwrap();
    assert_eq!(vcs.commit.as_deref(), Some("c0ffee"));
    assert_eq!(
        vcs.pull_request.unwrap().url.as_deref(),
        Some("https://forge.example/7")
    );
    sleep(seconds(3600)).await;
    let asked = forges.asked.lock().unwrap().clone();
    assert_eq!(asked, vec![("agents/a".to_owned(), b"not-for-logs".to_vec()); 2]);
}

/// The documents of every block of YAML on the page about version control.
fn documents() -> Vec<Value> {
    let page = include_str!("../../../../../docs/version-control.md");
    let blocks = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let documents = blocks.flat_map(|block| block.split("\n---\n"));
    documents
        .map(|text| serde_saphyr::from_str(text).unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_examples_of_the_manual_work_as_it_says() {
    let cluster = cluster_with_kinds().await;
    let props = Props { cluster: &cluster };
    let _controllers = controllers(&cluster, &Tap::new(), "one");
    settle().await;
    let documents = documents();
    assert!(documents.len() >= 8, "{documents:?}");
    for document in &documents {
        let object: DynamicObject = serde_json::from_value(document.clone()).unwrap();
        let types = object.types.clone().unwrap();
        let (group, version) = types
            .api_version
            .split_once('/')
            .unwrap_or(("", &types.api_version));
        let plural = format!("{}s", types.kind.to_ascii_lowercase());
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &types.kind), &plural);
        let api: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &resource);
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    sleep(seconds(40)).await;

    let forges: Api<VersionControlProvider> = Api::default_namespaced(cluster.client());
    for forge in forges.list(&ListParams::default()).await.unwrap() {
        let status = forge.status.unwrap();
        let ready = status.common.condition(&ConditionType::Ready).unwrap();
        assert_eq!(ready.reason.as_str(), "AuthReady", "{}", ready.message);
    }
    assert_eq!(props.job_names().await, ["fix-7-job"]);
    assert_eq!(head(&props, "fix-7").await.as_deref(), Some("agents/7-fix-7"));
}

#[tokio::test(start_paused = true)]
async fn a_token_of_an_app_lives_in_a_secret_of_the_run_until_its_job_is_let_go() {
    let cluster = stage().await;
    let props = Props { cluster: &cluster };
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client());
    let key = json!({ "metadata": { "name": "app-key" }, "stringData": { "privateKey": "the-key" } });
    let key: Secret = serde_json::from_value(key).unwrap();
    secrets.create(&PostParams::default(), &key).await.unwrap();
    let mut provider = serde_json::to_value(forge(&json!({}))).unwrap();
    provider["spec"]["auth"] = json!({ "method": "app", "app": {
        "appId": 17, "installationId": "42", "privateKeySecretRef": { "name": "app-key" },
    } });
    let provider: VersionControlProvider = serde_json::from_value(provider).unwrap();
    let providers: Api<VersionControlProvider> = Api::default_namespaced(cluster.client());
    providers.create(&PostParams::default(), &provider).await.unwrap();
    let forges = Arc::new(Told::default());
    let setup = Setup {
        client: cluster.client(),
        lease_client: cluster.client(),
        settings: Arc::new(settings()),
        clock: OddClock::right(),
        identity: identity("one"),
        registry: &mut Registry::default(),
        outside: Arc::default(),
    };
    let _controllers = start_with(setup, Arc::clone(&forges) as Arc<dyn Forges>);
    settle().await;

    run(&props, "a", &json!({})).await;
    settle_silence().await;
    let owned = secrets.get("a-vcs-token").await.unwrap();
    assert_eq!(owned.data.unwrap()["token"].0, b"made-1");
    assert_eq!(owned.metadata.owner_references.unwrap()[0].kind, "AgentRun");
    let job = serde_json::to_string(&props.jobs().get("a-job").await.unwrap()).unwrap();
    assert!(job.contains("a-vcs-token"), "{job}");
    assert!(!job.contains("made-1") && !job.contains("the-key"), "{job}");
    let status = props.runs().get("a").await.unwrap().status.unwrap();
    assert!(status.vcs.unwrap().token_expires_at.is_some());

    // It is cancelled before it has a pod.
    let cancel = Patch::Merge(json!({ "spec": { "cancel": true } }));
    props
        .runs()
        .patch("a", &PatchParams::default(), &cancel)
        .await
        .unwrap();
    sleep(seconds(60)).await;
    assert!(
        secrets.get_opt("a-vcs-token").await.unwrap().is_none(),
        "{:?}",
        props.runs().get("a").await.unwrap().status
    );
    assert_eq!(props.runs().get("a").await.unwrap().metadata.finalizers, None);

    // Another is deleted while it works: it goes, and its token first.
    run(&props, "b", &json!({})).await;
    settle().await;
    let held = props.runs().get("b").await.unwrap().metadata.finalizers;
    assert_eq!(held.unwrap(), [labels::RUNTIME_CLEANUP_FINALIZER]);
    props.runs().delete("b", &DeleteParams::default()).await.unwrap();
    sleep(seconds(60)).await;
    assert!(props.runs().get_opt("b").await.unwrap().is_none());
    assert!(secrets.get_opt("b-vcs-token").await.unwrap().is_none());

    let asked = forges.asked.lock().unwrap().clone();
    let minted = || ("mint example/adder".to_owned(), b"the-key".to_vec());
    let revoked = |token: &str| ("revoke".to_owned(), token.as_bytes().to_vec());
    assert_eq!(asked, [minted(), revoked("made-1"), minted(), revoked("made-3")]);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_secrets_the_controllers_may_not_read_says_so_and_holds_no_slot() {
    let cluster = stage().await;
    let props = Props { cluster: &cluster };
    let mut provider = serde_json::to_value(forge(&json!({}))).unwrap();
    provider["spec"]["auth"] = json!({ "method": "app", "app": {
        "appId": 17, "installationId": "42", "privateKeySecretRef": { "name": "app-key" },
    } });
    let provider: VersionControlProvider = serde_json::from_value(provider).unwrap();
    let forges: Api<VersionControlProvider> = Api::default_namespaced(cluster.client());
    forges.create(&PostParams::default(), &provider).await.unwrap();
    let tap = Tap::new();
    tap.answer(|request| match request {
        request if request.starts_with("GET secrets/") => failure(403, "Forbidden", &json!({})),
        _ => Answer::Server,
    });
    let _controllers = controllers(&cluster, &tap, "one");
    settle().await;

    run(&props, "a", &json!({})).await;
    sleep(seconds(10)).await;
    let status = props.runs().get("a").await.unwrap().status.unwrap();
    let blocked = status.common.condition(&ConditionType::Blocked).unwrap();
    assert_eq!(blocked.reason, Reason::VcsAuthUnavailable);
    assert!(
        blocked.message.contains("may not read Secret") && blocked.message.contains("let them get it"),
        "{}",
        blocked.message
    );

    // It does not insist on its repository, and goes on without when it has waited for long enough.
    sleep(seconds(61)).await;
    assert_eq!(props.job_names().await, ["a-job"]);
}
