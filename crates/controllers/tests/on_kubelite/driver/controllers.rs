//! The controllers with the engine's own plans.

use std::sync::Arc;

use jangar_api::{
    agents::agent::Agent,
    condition::{CommonStatus, ConditionType},
};
use jangar_controllers::{Setup, State, start};
use jangar_engine::settings::Settings;
use kube::Api;
use prometheus_client::registry::Registry;
use tokio::time::sleep;

use super::{
    life::controllers,
    stage::{Props, cluster_with_kinds, settings},
    tap::Tap,
};
use crate::support::{Cluster, OddClock, identity, seconds, settle};

/// What was sent, apart from the lease.
fn sent(tap: &Tap) -> Vec<String> {
    let requests = tap.requests().into_iter();
    requests.filter(|request| !request.contains("leases")).collect()
}

async fn readiness(cluster: &Cluster, agent: &str) -> (String, String) {
    let agents: Api<Agent> = Api::default_namespaced(cluster.client());
    let status: CommonStatus = agents.get(agent).await.unwrap().status.unwrap().common;
    let ready = status.condition(&ConditionType::Ready).unwrap();
    (ready.status.as_str().to_owned(), ready.reason.as_str().to_owned())
}

#[tokio::test(start_paused = true)]
async fn objects_applied_in_any_order_become_ready_and_the_run_gets_its_job() {
    let cluster = cluster_with_kinds().await;
    let tap = Tap::new();
    let _controllers = controllers(&cluster, &tap, "one");
    settle().await;
    let props = Props { cluster: &cluster };

    props.run("a", "coder").await;
    props.agent("coder", "shell").await;
    sleep(seconds(5)).await;
    assert_eq!(
        readiness(&cluster, "coder").await,
        ("False".to_owned(), "MissingProvider".to_owned())
    );
    assert_eq!(props.job_names().await, [] as [&str; 0]);

    props.provider("shell").await;
    settle().await;

    assert_eq!(readiness(&cluster, "coder").await.0, "True");
    let run = props.runs().get("a").await.unwrap();
    assert_eq!(props.job_names().await.len(), 1, "{:?}", run.status);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_nothing_changes() {
    let cluster = cluster_with_kinds().await;
    let tap = Tap::new();
    let _controllers = controllers(&cluster, &tap, "one");
    let props = Props { cluster: &cluster };
    props.provider("shell").await;
    props.agent("coder", "shell").await;
    props.run("ended", "coder").await;
    sleep(seconds(5)).await;
    props.end_run("ended").await;
    sleep(seconds(60)).await;
    tap.forget();

    sleep(seconds(3600)).await;

    assert_eq!(sent(&tap), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn switched_off_they_touch_nothing() {
    let cluster = cluster_with_kinds().await;
    let tap = Tap::new();
    let controllers = start(Setup {
        client: tap.client(&cluster.server),
        settings: Arc::new(Settings {
            agents_enabled: false,
            ..settings()
        }),
        clock: OddClock::right(),
        identity: identity("one"),
        registry: &mut Registry::default(),
    });
    Props { cluster: &cluster }.run("a", "coder").await;

    sleep(seconds(300)).await;

    assert_eq!(*controllers.state().borrow(), State::Leading);
    assert_eq!(sent(&tap), [] as [&str; 0]);
}
