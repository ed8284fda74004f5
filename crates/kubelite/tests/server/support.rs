//! A server in the test's own process, and short ways to talk to it.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, BodyDataStream, to_bytes},
};
use futures::StreamExt;
use http::{HeaderMap, Method, Request, header};
use jiff::Timestamp;
use kube::Client;
use kubelite::{
    clock::{Ids, TokioClock},
    server::{Config, Server, Token, User},
    store::{Limits, Store},
};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const JSON: &str = "application/json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const NAMESPACES: &str = "/api/v1/namespaces";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The secret of the one caller that `router()` lets in.
pub(crate) const SECRET: &str = "open-sesame";

/// More than any answer of these tests.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A server whose clock is tokio's and whose identifiers repeat.
pub(crate) struct TestServer {
    pub(crate) server: Server,
    router: Router,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::settled(Limits::default()).await
    }

    /// A server that remembers only the last `events` changes of each collection.
    pub(crate) async fn with_history(events: usize) -> Self {
        Self::settled(Limits {
            history_events_per_collection: events,
            ..Limits::default()
        })
        .await
    }

    async fn settled(limits: Limits) -> Self {
        let this = Self::on(Store::in_memory(limits)).await;
        this.settle().await;
        this
    }

    /// A server on a store that may be on disk, where paused time would not wait for the disk: it has not settled.
    pub(crate) async fn on(store: Store) -> Self {
        let start: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let config = Config {
            clock: Arc::new(TokioClock::starting_at(start)),
            ids: Ids::seeded(7),
            tokens: vec![Token::new(SECRET, User::system("tester"))],
            ..Config::new(store)
        };
        let server = Server::start(config).await.unwrap();
        let router = server.local(User::system("tester"));
        Self { server, router }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.router.clone(), "default")
    }

    /// Returns once the server has nothing left to do on its own: paused time moves only when every task waits.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Defines a kind and waits until it is served.
    pub(crate) async fn define(&self, definition: Value) {
        self.post(DEFINITIONS, &definition).await.created();
        self.settle().await;
    }

    pub(crate) async fn raw(&self, request: Request<Body>) -> http::Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        Answer::read(self.raw(request).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(request(Method::GET, path, JSON, Body::empty())).await
    }

    /// A get or list in another form than plain JSON.
    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        let request = Request::get(path)
            .header(header::ACCEPT, accept)
            .body(Body::empty())
            .unwrap();
        self.send(request).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(request(Method::POST, path, JSON, body.to_string()))
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(request(Method::PUT, path, JSON, body.to_string()))
            .await
    }

    pub(crate) async fn patch(&self, path: &str, content_type: &str, body: &Value) -> Answer {
        self.send(request(Method::PATCH, path, content_type, body.to_string()))
            .await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(request(Method::DELETE, path, JSON, Body::empty()))
            .await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: &Value) -> Answer {
        self.send(request(Method::DELETE, path, JSON, options.to_string()))
            .await
    }

    /// Opens a watch. `path` carries its query, without `watch`.
    pub(crate) async fn watch(&self, path: &str) -> Events {
        self.watch_as(path, JSON).await
    }

    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Events {
        let joint = if path.contains('?') { '&' } else { '?' };
        let uri = format!("{path}{joint}watch=true");
        let response = self
            .raw(
                Request::get(uri)
                    .header(header::ACCEPT, accept)
                    .body(Body::empty())
                    .unwrap(),
            )
            .await;
        if response.status() != 200 {
            panic!("the watch was refused: {:?}", Answer::read(response).await);
        }
        Events {
            body: response.into_body().into_data_stream(),
            bytes: Vec::new(),
        }
    }

    /// The version of the newest change.
    pub(crate) async fn version(&self) -> u64 {
        let list = self.get(NAMESPACES).await.ok();
        list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    }
}

pub(crate) fn request(method: Method, uri: &str, content_type: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(uri)
        .header(header::CONTENT_TYPE, content_type)
        .header(header::USER_AGENT, "tests/1.0")
        .body(body.into())
        .unwrap()
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    /// Null where the body is not JSON.
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) async fn read(response: http::Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, ANSWER_BYTES_MAX).await.unwrap();
        Self {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.code, 200, "{}", self.text);
        self.body
    }

    #[track_caller]
    pub(crate) fn created(self) -> Value {
        assert_eq!(self.code, 201, "{}", self.text);
        self.body
    }

    /// The message of a `Status` with this code and reason.
    #[track_caller]
    pub(crate) fn fails(self, code: u16, reason: &str) -> String {
        assert_eq!(
            (
                self.code,
                &self.body["kind"],
                &self.body["code"],
                &self.body["reason"]
            ),
            (code, &json!("Status"), &json!(code), &json!(reason)),
            "{}",
            self.text
        );
        self.body["message"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let warnings = self.headers.get_all(header::WARNING).into_iter();
        warnings.map(|value| value.to_str().unwrap().to_owned()).collect()
    }
}

/// One line of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) type_: String,
    pub(crate) object: Value,
}

impl Event {
    /// `ADDED a`, `BOOKMARK`, `ERROR`.
    pub(crate) fn summary(&self) -> String {
        format!("{} {}", self.type_, name(&self.object))
            .trim_end()
            .to_owned()
    }

    pub(crate) fn version(&self) -> u64 {
        version(&self.object)
    }
}

/// An open watch.
pub(crate) struct Events {
    body: BodyDataStream,
    bytes: Vec<u8>,
}

impl Events {
    /// The next event; `None` when the server ended the watch.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let mut line: Value = serde_json::from_slice(&line).unwrap();
                let type_ = line["type"].as_str().unwrap().to_owned();
                return Some(Event {
                    type_,
                    object: line["object"].take(),
                });
            }
            match self.body.next().await {
                Some(chunk) => self.bytes.extend_from_slice(&chunk.unwrap()),
                None => return None,
            }
        }
    }

    pub(crate) async fn expect(&mut self) -> Event {
        self.next().await.expect("the watch ended")
    }

    /// The next events in short.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<String> {
        let mut summaries = Vec::new();
        for _ in 0..count {
            summaries.push(self.expect().await.summary());
        }
        summaries
    }

    /// Every event until the watch ends.
    pub(crate) async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// Every event until the watch ends, in short.
    pub(crate) async fn summaries(self) -> Vec<String> {
        self.rest().await.iter().map(Event::summary).collect()
    }
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The version of an object or a list as a number, so that versions can be compared.
pub(crate) fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("no version: {object}"))
}

/// The names in a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(name).collect()
}

/// A condition of an object.
pub(crate) fn condition<'v>(object: &'v Value, type_: &str) -> Option<&'v Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == type_)
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
}

pub(crate) fn widget(name: &str) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name }, "spec": { "size": 1 } })
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": { "containers": [{ "name": "main", "image": "example.com/image:1" }] },
    })
}

/// The definition of `widgets.example.com`, at `v1` with this schema of the spec and a status of its own.
pub(crate) fn definition(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": { "kind": "Widget", "plural": "widgets" },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": spec,
                        "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    },
                } },
            }],
        },
    })
}

/// A spec that is only a number.
pub(crate) fn sized() -> Value {
    json!({ "type": "object", "properties": { "size": { "type": "integer" } } })
}
