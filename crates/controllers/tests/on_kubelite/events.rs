//! Events as an API server keeps them.

use std::sync::Arc;

use jangar_api::reason::Reason;
use jangar_controllers::{
    events::{REPORTING_CONTROLLER, Reporter},
    lease::Leadership,
};
use jangar_engine::decision::{Notice, Severity, Uid};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{ConfigMap, ObjectReference},
    events::v1::Event,
};
use kube::{
    Api, Resource,
    api::{ListParams, PostParams},
};
use tokio::time::{Instant, sleep};

use crate::support::{Cluster, Counted, Fault, Line, config_map, identity, seconds};

/// Something to tell about.
async fn object(cluster: &Cluster) -> ObjectReference {
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let map = maps.create(&PostParams::default(), &config_map("fix-it")).await;
    map.unwrap().object_ref(&())
}

fn notice(message: &str) -> Notice {
    Notice {
        regarding: Uid("11111111-2222-3333-4444-555555555555".to_owned()),
        severity: Severity::Warning,
        reason: Reason::JobMissing,
        message: message.to_owned(),
    }
}

async fn leader(cluster: &Cluster) -> Leadership {
    cluster.elector("a").lead().await
}

async fn events(cluster: &Cluster) -> Vec<Event> {
    let api: Api<Event> = Api::default_namespaced(cluster.client());
    api.list(&ListParams::default()).await.unwrap().items
}

fn reporter(cluster: &Cluster, line: &Line, counted: &Counted, name: &str) -> Reporter {
    let metrics = Arc::clone(&counted.metrics);
    Reporter::new(cluster.client_in(line.weather()), identity(name), metrics)
}

#[tokio::test(start_paused = true)]
async fn an_event_says_what_happened_to_what_and_who_saw_it() {
    let cluster = Cluster::start().await;
    let (about, leadership, counted) = (object(&cluster).await, leader(&cluster).await, Counted::new());
    let reporter = reporter(&cluster, &Line::default(), &counted, "a");

    reporter
        .publish(
            &leadership.gate(),
            &about,
            &notice("Job fix-it-1 is gone"),
            Timestamp::now(),
        )
        .await;

    let events = events(&cluster).await;
    let [event] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.reason.as_deref(), Some("JobMissing"));
    assert_eq!(event.note.as_deref(), Some("Job fix-it-1 is gone"));
    assert_eq!(event.action.as_deref(), Some("Reconcile"));
    assert_eq!(event.reporting_controller.as_deref(), Some(REPORTING_CONTROLLER));
    assert_eq!(event.reporting_instance.as_deref(), Some("a"));
    assert!(event.event_time.is_some());
    let regarding = event.regarding.as_ref().unwrap();
    assert_eq!((&regarding.name, &regarding.uid), (&about.name, &about.uid));
}

#[tokio::test(start_paused = true)]
async fn the_same_thing_told_again_by_another_process_makes_no_second_event() {
    let cluster = Cluster::start().await;
    let (about, leadership, counted) = (object(&cluster).await, leader(&cluster).await, Counted::new());
    let gate = leadership.gate();

    for name in ["before-the-crash", "after-the-crash"] {
        let reporter = reporter(&cluster, &Line::default(), &counted, name);
        reporter
            .publish(&gate, &about, &notice("Job fix-it-1 is gone"), Timestamp::now())
            .await;
        sleep(seconds(1)).await;
    }
    let reporter = reporter(&cluster, &Line::default(), &counted, "a");
    reporter
        .publish(&gate, &about, &notice("Job fix-it-2 is gone"), Timestamp::now())
        .await;

    assert_eq!(events(&cluster).await.len(), 2);
    let count = |result: &str| counted.value(&format!("jangar_events_total{{result=\"{result}\"}}"));
    assert_eq!(
        (count("published"), count("repeated"), count("dropped")),
        (2, 1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_told_is_dropped_in_time_and_counted() {
    let cluster = Cluster::start().await;
    let (about, leadership, counted) = (object(&cluster).await, leader(&cluster).await, Counted::new());
    let gate = leadership.gate();
    let line = Line::default();
    let reporter = reporter(&cluster, &line, &counted, "a");
    let start = Instant::now();

    for fault in [Fault::Refuse, Fault::Hang] {
        line.set(fault);
        reporter
            .publish(&gate, &about, &notice("Job fix-it-1 is gone"), Timestamp::now())
            .await;
    }
    line.set(Fault::None);
    drop(leadership);
    reporter
        .publish(&gate, &about, &notice("Job fix-it-1 is gone"), Timestamp::now())
        .await;

    assert!(start.elapsed() < seconds(30), "{:?}", start.elapsed());
    assert_eq!(counted.value("jangar_events_total{result=\"dropped\"}"), 3);
    assert!(events(&cluster).await.is_empty());
}
