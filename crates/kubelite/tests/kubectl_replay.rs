//! Replays what kubectl sent while it ran the script of `kubectl.rs`, and compares the answers with those it got then.
//!
//! This needs no kubectl, so that every `cargo test` holds the server to what kubectl relies on. After an intended change
//! of an answer the traffic is recorded anew: `JANGAR_RECORD=1 make kubectl-tests`.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "kubectl/fixture.rs"]
mod fixture;
#[path = "kubectl/traffic.rs"]
mod traffic;

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Body};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures::StreamExt;
use http::header;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use crate::{
    fixture::{ManualClock, TOKEN, settle},
    traffic::{Answer, Content, Exchange, Request, Step, Symbols, is_watch, keeps_body},
};

const TRAFFIC: &str = include_str!("kubectl/traffic.jsonl");
/// Everything that a watch has to say is there once the server has settled; only a watch that misses a line waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// A watch that is still open.
struct Open<'a> {
    position: usize,
    exchange: &'a Exchange,
    answer: Answer,
    body: Body,
}

#[tokio::test(start_paused = true)]
async fn recorded_requests_get_the_recorded_answers() {
    let clock = Arc::new(ManualClock::new());
    let server = fixture::server(clock.clone()).await;
    let router = server.router();
    let steps: Vec<Step> = TRAFFIC
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is a step"))
        .collect();
    assert!(!steps.is_empty());

    let mut symbols = Symbols::default();
    let mut open: Vec<Open<'_>> = Vec::new();
    for (position, step) in steps.iter().enumerate() {
        match step {
            Step::Advance(seconds) => clock.advance(*seconds),
            Step::Exchange(exchange) => {
                let (answer, body) = send(&router, &symbols.resolve(&exchange.request)).await;
                if is_watch(&exchange.request.uri) {
                    open.push(Open {
                        position,
                        exchange,
                        answer,
                        body,
                    });
                } else {
                    let bytes = body.collect().await.expect("a whole body").to_bytes();
                    let kept =
                        keeps_body(&exchange.request.uri).then(|| Content::of(&bytes, &answer.content_type));
                    let answer = Answer {
                        body: kept.flatten(),
                        ..answer
                    };
                    compare(position, exchange, &symbols.hide(&answer));
                }
            }
        }
        let (ended, still_open) = open
            .into_iter()
            .partition(|watch| watch.exchange.until == Some(position + 1));
        open = still_open;
        for watch in ended {
            let answer = Answer {
                body: Some(lines_of(watch.body, watch.exchange).await),
                ..watch.answer
            };
            compare(watch.position, watch.exchange, &symbols.hide(&answer));
        }
    }
    assert!(open.is_empty(), "every watch has an end");
    server.stop().await;
}

async fn send(router: &Router, request: &Request) -> (Answer, Body) {
    let body = match &request.body {
        None | Some(Content::Lines(_)) => Body::empty(),
        Some(Content::Json(value)) => Body::from(value.to_string()),
        Some(Content::Text(text)) => Body::from(text.clone()),
        Some(Content::Base64(text)) => Body::from(STANDARD.decode(text).expect("recorded as base64")),
    };
    let mut builder = http::Request::builder()
        .method(request.method.as_str())
        .uri(request.uri.as_str())
        .header(header::HOST, "localhost")
        // Where a request does not name a field manager, its user agent does.
        .header(header::USER_AGENT, "kubectl")
        .header(
            header::AUTHORIZATION,
            format!("Bearer {}", request.stranger.as_deref().unwrap_or(TOKEN)),
        );
    for (name, value) in [
        (header::ACCEPT, &request.accept),
        (header::CONTENT_TYPE, &request.content_type),
    ] {
        if !value.is_empty() {
            builder = builder.header(name, value);
        }
    }
    let request = builder.body(body).expect("a request");
    let response = match router.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    settle().await;
    (
        Answer::new(response.status(), response.headers()),
        response.into_body(),
    )
}

/// As many lines of a watch as were recorded.
async fn lines_of(body: Body, recorded: &Exchange) -> Content {
    let wanted = match &recorded.answer.body {
        Some(Content::Lines(lines)) => lines.len(),
        _ => 0,
    };
    let mut stream = body.into_data_stream();
    let (mut received, mut lines) = (Vec::new(), 0);
    while lines < wanted {
        match tokio::time::timeout(PATIENCE, stream.next()).await {
            Ok(Some(Ok(chunk))) => {
                received.extend_from_slice(&chunk);
                lines += chunk.split(|byte| *byte == b'\n').count() - 1;
            }
            Ok(Some(Err(_)) | None) | Err(_) => break,
        }
    }
    Content::lines(&received)
}

fn compare(position: usize, exchange: &Exchange, answer: &Answer) {
    let value = |answer: &Answer| serde_json::to_value(answer).expect("an answer has a JSON form");
    let (recorded, answered) = (value(&exchange.answer), value(answer));
    let Some((path, recorded, answered)) = first_difference(&recorded, &answered) else {
        return;
    };
    let Request { method, uri, .. } = &exchange.request;
    panic!(
        "line {} of the traffic: {method} {uri}\nat {path}\nrecorded: {recorded}\nanswered: {answered}",
        position + 1
    );
}

/// Where two values first differ, and what is there.
fn first_difference<'v>(one: &'v Value, other: &'v Value) -> Option<(String, &'v Value, &'v Value)> {
    let below = |name: String, one: Option<&'v Value>, other: Option<&'v Value>| {
        let (path, one, other) =
            first_difference(one.unwrap_or(&Value::Null), other.unwrap_or(&Value::Null))?;
        Some((format!("/{name}{path}"), one, other))
    };
    match (one, other) {
        (Value::Object(some), Value::Object(others)) => {
            let names = some.keys().chain(others.keys());
            names
                .into_iter()
                .find_map(|name| below(name.clone(), some.get(name), others.get(name)))
        }
        (Value::Array(some), Value::Array(others)) => (0..some.len().max(others.len()))
            .find_map(|index| below(index.to_string(), some.get(index), others.get(index))),
        _ => (one != other).then(|| (String::new(), one, other)),
    }
}
