//! Server-sent events: what is there, what changes, and going on where one was.

use axum::{body::Body, response::Response};
use futures::{StreamExt, future::join_all, stream};
use http::{Method, StatusCode};
use jangar_api::{Kind, labels};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::stage::{NAMESPACE, Stage, agent, request};

/// A stream as a client reads it.
struct Events {
    body: futures::stream::BoxStream<'static, String>,
    pending: String,
}

/// One event: its id, its data, and whether it is only a comment.
#[derive(Debug)]
struct Event {
    id: Option<String>,
    data: Option<Value>,
}

impl Events {
    fn of(response: Response<Body>) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let chunks = response.into_body().into_data_stream();
        Self {
            body: chunks
                .map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap())
                .boxed(),
            pending: String::new(),
        }
    }

    async fn next(&mut self) -> Event {
        loop {
            if let Some((event, rest)) = self.pending.clone().split_once("\n\n") {
                rest.clone_into(&mut self.pending);
                let field = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(name));
                    line.map(|text| text.trim_start_matches(':').trim().to_owned())
                };
                return Event {
                    id: field("id"),
                    data: field("data").map(|data| serde_json::from_str(&data).unwrap()),
                };
            }
            let chunk = self.body.next().await.unwrap();
            self.pending.push_str(&chunk);
        }
    }

    async fn named(&mut self, name: &str) -> Event {
        loop {
            let event = self.next().await;
            if event.data.as_ref().is_some_and(|data| data["name"] == name) {
                return event;
            }
        }
    }
}

/// As many as there have to be at once.
const STREAMS: usize = 1_000;
const PATH: &str = "/api/agents/control-plane/resources?kind=Agent&namespace=agents&stream=true";

async fn open(stage: &Stage, path: &str, last_id: Option<&str>) -> Events {
    let mut request = request(Method::GET, "reader", path, None, None);
    if let Some(id) = last_id {
        request.headers_mut().insert("last-event-id", id.parse().unwrap());
    }
    Events::of(stage.http.clone().oneshot(request).await.unwrap())
}

#[tokio::test]
async fn a_new_client_is_told_what_is_there_and_then_what_changes() {
    let stage = Stage::start().await;
    stage.create(Kind::Agent, NAMESPACE, agent("one")).await;
    let mut events = open(&stage, PATH, None).await;
    assert_eq!(events.next().await.data.unwrap()["type"], "reset");
    let there = events.next().await.data.unwrap();
    assert_eq!(
        (there["type"].as_str(), there["name"].as_str()),
        (Some("resource"), Some("one"))
    );
    stage.create(Kind::Agent, NAMESPACE, agent("two")).await;
    let came = events.named("two").await.data.unwrap();
    assert_eq!(
        (&came["action"], &came["kind"]),
        (&"ADDED".into(), &"Agent".into())
    );
    assert_eq!(came["resource"]["spec"]["providerRef"]["name"], "p");
}

#[tokio::test]
async fn a_client_that_comes_back_misses_nothing_and_sees_nothing_twice() {
    let stage = Stage::start().await;
    let mut events = open(&stage, PATH, None).await;
    events.next().await;
    stage.create(Kind::Agent, NAMESPACE, agent("one")).await;
    let id = events.named("one").await.id.unwrap();
    drop(events);
    stage.create(Kind::Agent, NAMESPACE, agent("two")).await;
    stage.create(Kind::Agent, NAMESPACE, agent("three")).await;
    let mut events = open(&stage, PATH, Some(&id)).await;
    for expected in ["two", "three"] {
        assert_eq!(events.next().await.data.unwrap()["name"], expected);
    }
    let path = format!("{PATH}&lastEventId={id}");
    let mut events = open(&stage, &path, None).await;
    assert_eq!(events.next().await.data.unwrap()["name"], "two");
}

#[tokio::test]
async fn an_id_of_another_process_begins_again_and_says_so() {
    let stage = Stage::start().await;
    stage.create(Kind::Agent, NAMESPACE, agent("one")).await;
    for id in ["another-7", "one-99999", "one-18446744073709551615", "nonsense"] {
        let mut events = open(&stage, PATH, Some(id)).await;
        assert_eq!(events.next().await.data.unwrap()["type"], "reset", "{id}");
        assert_eq!(events.next().await.data.unwrap()["name"], "one");
    }
}

#[tokio::test]
async fn the_stream_of_everything_begins_with_the_status() {
    let stage = Stage::start().await;
    let path = "/api/agents/control-plane/stream?namespace=agents";
    let mut events = open(&stage, path, None).await;
    let first = events.next().await.data.unwrap();
    assert_eq!(
        (&first["type"], &first["status"]["service"]),
        (&"status".into(), &"jangar".into())
    );
    stage.create(Kind::Agent, NAMESPACE, agent("one")).await;
    assert_eq!(events.named("one").await.data.unwrap()["kind"], "Agent");
}

#[tokio::test]
async fn the_status_is_told_again_when_it_has_become_another_one() {
    let stage = Stage::start().await;
    let path = "/api/agents/control-plane/stream?namespace=agents";
    let mut events = open(&stage, path, None).await;
    let health = |event: &Event| {
        event
            .data
            .as_ref()
            .map(|data| data["status"]["namespaces"][0]["status"].clone())
    };
    assert_eq!(
        health(&events.next().await),
        Some("degraded".into()),
        "nobody leads"
    );
    let leases: Api<Lease> = Api::namespaced(stage.admin.clone(), NAMESPACE);
    let lease = json!({
        "metadata": {"name": labels::LEADER_LEASE, "namespace": NAMESPACE},
        "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 30, "renewTime": "2026-03-01T12:00:00.000000Z"},
    });
    let lease: Lease = serde_json::from_value(lease).unwrap();
    leases.create(&PostParams::default(), &lease).await.unwrap();
    let again = loop {
        let event = events.next().await;
        if event.data.as_ref().is_some_and(|data| data["type"] == "status") {
            break event;
        }
    };
    assert_eq!(health(&again), Some("healthy".into()));
}

#[tokio::test]
async fn deletions_are_told() {
    let stage = Stage::start().await;
    stage.create(Kind::Agent, NAMESPACE, agent("one")).await;
    let mut events = open(&stage, PATH, None).await;
    events.named("one").await;
    let path = "/api/agents/control-plane/resource?kind=Agent&name=one&namespace=agents";
    let deleted = crate::stage::call(
        &stage.http,
        request(Method::DELETE, "submitter", path, None, None),
    )
    .await;
    assert_eq!(deleted.0, StatusCode::OK, "{}", deleted.1);
    assert_eq!(events.named("one").await.data.unwrap()["action"], "DELETED");
}

#[tokio::test]
async fn a_thousand_streams_are_all_told_and_cost_the_api_server_nothing() {
    let stage = Stage::start().await;
    let opened = (0..STREAMS).map(|_| open(&stage, PATH, None));
    let mut streams: Vec<Events> = stream::iter(opened).buffer_unordered(64).collect().await;
    let watches = || stage.arrived(|arrived| arrived.query.contains("watch=true"));
    let before = watches();
    stage.create(Kind::Agent, NAMESPACE, agent("one")).await;
    let told = streams.iter_mut().map(|events| events.named("one"));
    for event in join_all(told).await {
        assert_eq!(event.data.unwrap()["action"], "ADDED");
    }
    assert!(
        watches() < before + STREAMS,
        "all of them share the watches that were there"
    );
    drop(streams);
    let mut again = open(&stage, PATH, None).await;
    again.named("one").await;
}
