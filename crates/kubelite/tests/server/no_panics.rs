//! Bad input: whatever comes in, the server answers as an API server does and goes on.
//!
//! Requests are made from valid ones by small damage, because most of what is wholly random is refused at the door.

mod documents;
mod requests;

use axum::body::Body;
use http::{Method, Request, header};
use proptest::{prelude::*, test_runner::FileFailurePersistence};
use serde_json::{Value, json};

use self::{
    documents::{objects, rich_spec},
    requests::{CURRENT, Sent, collection, sent},
};
use crate::support::{Answer, NAMESPACES, TestServer, definition, names};

/// Each case is a fresh server and some requests; together they take about ten seconds in a debug build. `PROPTEST_CASES`
/// asks for more.
const CASES: u32 = 128;
const REQUESTS_MAX: usize = 24;

/// What Kubernetes itself answers with 500, though the fault is the caller's.
const INTERNAL_ERRORS: [&str; 3] = [
    "failed to create typed patch object",
    "failed to create manager",
    "resourceVersion should not be set on objects to be created",
];

const YAML: &str = "application/yaml";

/// What an API server may answer. The failures of its own are those that Kubernetes gives for the same request.
fn check_answer(sent: &Sent, answer: &Answer) {
    // The answer to HEAD has no body, and what no route serves is told as Go's multiplexer tells it.
    let bare = sent.method == Method::HEAD || (answer.code == 404 && answer.text == "404 page not found\n");
    if answer.code < 300 || bare {
        assert_ne!(answer.code, 500, "an internal error: {sent:?}");
        return;
    }
    let status: Value = if answer.headers[header::CONTENT_TYPE] == YAML {
        serde_saphyr::from_str(&answer.text).unwrap_or_default()
    } else {
        answer.body.clone()
    };
    let context = || format!("{sent:?}\n{}", answer.text);
    assert_eq!(
        (&status["kind"], &status["status"], &status["code"]),
        (&json!("Status"), &json!("Failure"), &json!(answer.code)),
        "{}",
        context()
    );
    let message = status["message"].as_str().unwrap_or_default();
    let expected = match answer.code {
        400..=499 => true,
        500 => INTERNAL_ERRORS.iter().any(|known| message.contains(known)),
        // Nothing runs pods in this server, so their logs are not available.
        503 => sent.uri.contains("/log"),
        504 => message.contains("Too large resource version"),
        _ => false,
    };
    assert!(expected, "{}", context());
}

/// The request with the version of the object that it replaces.
async fn current(server: &TestServer, sent: &Sent) -> Sent {
    let mut sent = sent.clone();
    if sent.method == Method::PUT {
        let path = sent
            .uri
            .split('?')
            .next()
            .unwrap_or_default()
            .trim_end_matches("/status");
        if let Ok(request) = Request::get(path).body(Body::empty()) {
            let live = server.send(request).await.body;
            let version = live["metadata"]["resourceVersion"].as_str().unwrap_or("1");
            sent.body = String::from_utf8_lossy(&sent.body)
                .replace(CURRENT, version)
                .into_bytes();
        }
    }
    sent
}

async fn play(requests: &[Sent]) {
    let server = TestServer::start().await;
    server.define(definition(&rich_spec())).await;
    for object in objects() {
        // Some are there already and one has no collection.
        server.post(collection(&object), &object).await;
    }
    for sent in requests {
        let sent = current(&server, sent).await;
        if let Some(request) = sent.request() {
            check_answer(&sent, &server.send(request).await);
        }
    }
    // It still answers, and what it does on its own still gets done.
    server
        .post(NAMESPACES, &json!({ "metadata": { "name": "afterwards" } }))
        .await
        .created();
    server.settle().await;
    let accounts = server
        .get("/api/v1/namespaces/afterwards/serviceaccounts")
        .await
        .ok();
    assert_eq!(names(&accounts), ["default"]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES),
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_comes_in_gets_a_proper_answer(requests in prop::collection::vec(sent(), 1..REQUESTS_MAX)) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(play(&requests));
    }
}
