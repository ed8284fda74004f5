//! Tokens of a GitHub App at a forge where they end: the run has a good one for as long as it works.

use std::sync::{Arc, Mutex};

use futures::{FutureExt, future::BoxFuture};
use jangar_api::{
    agents::{agent_run::AgentRun, version_control_provider::VersionControlProvider},
    condition::{ConditionStatus, ConditionType},
    reason::Reason,
};
use jangar_controllers::{
    Setup,
    forges::{Credential, Failure, Forges, Minted},
    start_with,
};
use jangar_engine::decision::{DeliveryAnswer, DeliveryQuery, NewToken};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::stage::{Props, cluster_with_kinds, settings};
use crate::support::{OddClock, identity, seconds, settle, settle_silence};

/// How long a token is good. It is renewed five minutes before its end.
const LASTS_SECONDS: u32 = 720;

/// A token, and when it ends.
#[derive(Debug)]
struct Given {
    token: Vec<u8>,
    ends: Instant,
}

/// A forge that takes a token until its time is over, or until it is taken back.
#[derive(Debug, Default)]
struct Ends {
    given: Mutex<Vec<Given>>,
    minted: Mutex<usize>,
    /// Whether it gives no more.
    refuses: Mutex<bool>,
}

impl Ends {
    fn takes(&self, token: &[u8]) -> bool {
        let given = self.given.lock().unwrap();
        given
            .iter()
            .any(|given| given.token == token && Instant::now() < given.ends)
    }

    fn minted(&self) -> usize {
        *self.minted.lock().unwrap()
    }

    fn refuse(&self, refuses: bool) {
        *self.refuses.lock().unwrap() = refuses;
    }

    fn answered(&self, now: Timestamp) -> Result<Minted, Failure> {
        if *self.refuses.lock().unwrap() {
            return Err(failure("HTTP 502"));
        }
        let mut minted = self.minted.lock().unwrap();
        *minted += 1;
        let token = format!("made-{minted}").into_bytes();
        self.given.lock().unwrap().push(Given {
            token: token.clone(),
            ends: Instant::now() + seconds(LASTS_SECONDS.into()),
        });
        Ok(Minted {
            token: Credential(token),
            expires_at: now + SignedDuration::from_secs(LASTS_SECONDS.into()),
        })
    }
}

fn failure(message: &str) -> Failure {
    Failure {
        message: message.to_owned(),
        not_before: None,
    }
}

impl Forges for Ends {
    fn delivery<'a>(
        &'a self,
        _: &'a DeliveryQuery,
        _: Credential,
        _: Timestamp,
    ) -> BoxFuture<'a, DeliveryAnswer> {
        let answer = DeliveryAnswer::Failed {
            message: "nobody asks here".to_owned(),
            passing: false,
            not_before: None,
        };
        async move { answer }.boxed()
    }

    fn mint<'a>(
        &'a self,
        _: &'a NewToken,
        _: Credential,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Minted, Failure>> {
        let answered = self.answered(now);
        async move { answered }.boxed()
    }

    fn revoke<'a>(&'a self, _: &'a str, token: Credential) -> BoxFuture<'a, Result<(), Failure>> {
        let known = self.takes(&token.0);
        self.given.lock().unwrap().retain(|given| given.token != token.0);
        let answer = if known {
            Ok(())
        } else {
            Err(failure("HTTP 401: Bad credentials"))
        };
        async move { answer }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_works_always_has_a_token_that_the_forge_takes() {
    let cluster = cluster_with_kinds().await;
    let props = Props { cluster: &cluster };
    props.provider("shell").await;
    props.agent("coder", "shell").await;
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client());
    let key = json!({ "metadata": { "name": "app-key" }, "stringData": { "privateKey": "the-key" } });
    let key: Secret = serde_json::from_value(key).unwrap();
    secrets.create(&PostParams::default(), &key).await.unwrap();
    let app = json!({ "appId": 17, "installationId": "42", "privateKeySecretRef": { "name": "app-key" } });
    let provider = json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "VersionControlProvider",
        "metadata": { "name": "forge" },
        "spec": { "provider": "github", "auth": { "method": "app", "app": app } },
    });
    let provider: VersionControlProvider = serde_json::from_value(provider).unwrap();
    let providers: Api<VersionControlProvider> = Api::default_namespaced(cluster.client());
    providers.create(&PostParams::default(), &provider).await.unwrap();
    let forge = Arc::new(Ends::default());
    let setup = Setup {
        client: cluster.client(),
        lease_client: cluster.client(),
        settings: Arc::new(settings()),
        clock: OddClock::right(),
        identity: identity("one"),
        registry: &mut Registry::default(),
        outside: Arc::default(),
    };
    let _controllers = start_with(setup, Arc::clone(&forge) as Arc<dyn Forges>);
    settle().await;
    let mut run = serde_json::to_value(props.new_run("a", "coder")).unwrap();
    run["spec"]["vcsRef"] = json!({ "name": "forge" });
    run["spec"]["parameters"] = json!({ "repository": "example/adder" });
    let run: AgentRun = serde_json::from_value(run).unwrap();
    props.runs().create(&PostParams::default(), &run).await.unwrap();
    settle_silence().await;
    let token = async || {
        let secret = secrets.get("a-vcs-token").await.unwrap();
        secret.data.unwrap()["token"].0.clone()
    };
    let ends = async || {
        let status = props.runs().get("a").await.unwrap().status.unwrap();
        status.vcs.unwrap().token_expires_at.unwrap().0
    };
    let warning = async || {
        let status = props.runs().get("a").await.unwrap().status.unwrap();
        status.common.condition(&ConditionType::Warning).cloned()
    };
    let (first, first_ends) = (token().await, ends().await);
    assert!(forge.takes(&first));

    // For three times as long as a token is good; for some of it the forge gives none.
    for minute in 0..36 {
        forge.refuse((20..23).contains(&minute));
        sleep(seconds(60)).await;
        assert!(forge.takes(&token().await), "after {} minutes", minute + 1);
        if minute == 21 {
            let warned = warning().await.unwrap();
            assert_eq!(warned.status, ConditionStatus::True);
            assert_eq!(warned.reason, Reason::VcsAuthUnavailable);
        }
    }

    assert!(!forge.takes(&first), "it has ended");
    assert!(forge.minted() >= 4, "{}", forge.minted());
    assert!(ends().await > first_ends);
    let warned = warning().await.unwrap();
    assert_eq!(warned.status, ConditionStatus::False, "{}", warned.message);
    let last = token().await;
    let cancel = Patch::Merge(json!({ "spec": { "cancel": true } }));
    props
        .runs()
        .patch("a", &PatchParams::default(), &cancel)
        .await
        .unwrap();
    sleep(seconds(60)).await;
    assert!(secrets.get_opt("a-vcs-token").await.unwrap().is_none());
    assert!(!forge.takes(&last), "it was taken back before its time");
}
