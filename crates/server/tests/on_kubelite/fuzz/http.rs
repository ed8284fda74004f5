//! Addresses, queries, headers and bodies of HTTP.

use std::{fmt::Write as _, sync::LazyLock};

use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use proptest::{collection::vec, option, prelude::*, sample};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{
    PATIENCE, Target,
    damage::{Bytes, Change, bytes, change},
    play,
};
use crate::{stage::START, webhooks};

/// One route of the document, as a request is made from it.
#[derive(Clone, Debug)]
struct Route {
    method: Method,
    path: String,
    /// The names that its query knows.
    query: Vec<String>,
    /// A body that it takes.
    body: Value,
}

static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let document = jangar_server::http::openapi::document();
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let query = parameters
                .filter(|parameter| parameter["in"] == "query")
                .map(|parameter| parameter["name"].as_str().unwrap().to_owned());
            routes.push(Route {
                method: method.to_uppercase().parse().unwrap(),
                path: path.clone(),
                query: query.collect(),
                body: good_body(path),
            });
        }
    }
    routes
});

fn good_body(path: &str) -> Value {
    match path {
        "/v1/agents" => {
            json!({"name": "coder", "namespace": "agents", "spec": {"providerRef": {"name": "p"}}})
        }
        "/v1/agent-runs" => json!({
            "agentRef": {"name": "coder"}, "namespace": "agents",
            "runtime": {"type": "job", "config": {"serviceAccount": "default"}},
            "implementation": {"text": "do it"}, "parameters": {"repository": "team/app"}, "secrets": [],
            "workflow": {"steps": [{"name": "build"}]}, "ttlSecondsAfterFinished": 5, "priority": 1,
        }),
        "/v1/orchestrations" => json!({"name": "o", "namespace": "agents", "spec": {"steps": [
            {"name": "build", "kind": "AgentRun", "agentRef": {"name": "coder"},
             "implementationSpecRef": {"name": "work"}},
            {"name": "gate", "kind": "ApprovalGate", "dependsOn": ["build"], "policyRef": "p"}]}}),
        "/v1/orchestration-runs" => {
            json!({"orchestrationRef": {"name": "o"}, "namespace": "agents", "parameters": {"a": "b"}})
        }
        "/api/agents/control-plane/resource" => {
            json!({"kind": "ImplementationSpec", "name": "work", "namespace": "agents", "spec": {"text": "do it"}})
        }
        path if path.starts_with("/v1/approvals/") => json!({"digest": "d1", "comment": "good"}),
        path if path.ends_with("/cancel") => json!({"reason": "enough"}),
        _ => json!({}),
    }
}

/// A request that may make no sense.
#[derive(Clone, Debug)]
struct Sent {
    method: Method,
    uri: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
}

/// A part of an address: a good one, or any bytes.
fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => sample::select(vec!["coder", "agents", "r", "gate", "o", "hidden"]).prop_map(str::to_owned),
        2 => vec(any::<u8>(), 0..12).prop_map(|bytes| escaped(&bytes)),
        1 => sample::select(vec!["..%2F..%2Fsecrets", "%00", "%", "%f", "*", "."]).prop_map(str::to_owned),
        1 => Just("a".repeat(5_000)),
    ]
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "%{byte:02x}").unwrap();
        text
    })
}

/// A value of a query: a good one of some field, a cursor that was damaged, or any bytes.
fn value() -> impl Strategy<Value = String> {
    let good = vec![
        "agents",
        "*",
        "AgentRun",
        "agents.proompteng.ai",
        "5",
        "500",
        "true",
        "Failed",
        "job",
        "a=b,c%20in%20(d)",
        "one-1",
        "coder",
    ];
    let cursor =
        json!({"of": "AAAAAAAAAAAA", "created": "2026-03-01T12:00:00Z", "namespace": "a", "name": "x"});
    prop_oneof![
        6 => sample::select(good).prop_map(str::to_owned),
        2 => (change(), bytes()).prop_map(move |(change, bytes)| {
            let mut cursor = cursor.clone();
            change.apply(&mut cursor);
            URL_SAFE_NO_PAD.encode(bytes.apply(cursor.to_string().into_bytes()))
        }),
        2 => vec(any::<u8>(), 0..24).prop_map(|bytes| escaped(&bytes)),
        1 => ".{0,24}".prop_map(|text| escaped(text.as_bytes())),
        1 => sample::select(vec!["-1", "99999999999999999999", "1e3", "%ff", "NaN"]).prop_map(str::to_owned),
    ]
}

/// The bytes that a header may have.
fn header_bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![32_u8..127, 128_u8..=255], 0..32)
}

fn headers() -> impl Strategy<Value = Vec<(&'static str, Vec<u8>)>> {
    let good = |text: &'static str| Just(text.as_bytes().to_vec());
    let token = prop_oneof![
        8 => good("Bearer token-of-submitter"),
        1 => good("Bearer token-of-admin"),
        1 => header_bytes(),
    ];
    let media =
        prop_oneof![8 => good("application/json"), 1 => good("application/yaml"), 1 => header_bytes()];
    let key = prop_oneof![6 => header_bytes(), 1 => good("once")];
    let event = prop_oneof![
        good("one-1"),
        good("one-18446744073709551615"),
        good("-"),
        header_bytes()
    ];
    let length = prop_oneof![good("18446744073709551616"), good("-1"), header_bytes()];
    (
        token,
        option::weighted(0.9, media),
        option::weighted(0.9, key),
        option::weighted(0.3, event),
        option::weighted(0.1, length),
    )
        .prop_map(|(token, media, key, event, length)| {
            let rest = [
                ("content-type", media),
                ("idempotency-key", key),
                ("last-event-id", event),
                ("content-length", length),
            ];
            let rest = rest.into_iter().filter_map(|(name, value)| Some((name, value?)));
            [("authorization", token)].into_iter().chain(rest).collect()
        })
}

fn sent() -> impl Strategy<Value = Sent> {
    let route = sample::select(ROUTES.clone());
    let pair = (any::<sample::Index>(), option::weighted(0.1, part()), value());
    (
        route,
        vec(part(), 3),
        vec(pair, 0..4),
        headers(),
        vec(change(), 0..3),
        bytes(),
    )
        .prop_map(|(route, parts, pairs, headers, changes, bytes)| {
            let uri = uri(&route, &parts, &pairs);
            let body = body(route.body, &changes, &bytes);
            Sent {
                method: route.method,
                uri,
                headers,
                body,
            }
        })
}

/// A delivery of a webhook that was damaged before it was signed: so it gets as far as those who read it.
fn delivered() -> impl Strategy<Value = Sent> {
    let sent_at = START.parse::<Timestamp>().unwrap().as_millisecond();
    let good = vec![
        (webhooks::GITHUB, webhooks::issue(1)),
        (webhooks::LINEAR, webhooks::linear_issue(sent_at)),
    ];
    let event = sample::select(vec!["issues", "Issue", "ping", "push", ""]);
    (
        sample::select(good),
        option::weighted(0.2, event),
        "[a-z0-9-]{0,40}",
        vec(change(), 0..4),
        bytes(),
    )
        .prop_map(|((path, good), event, id, changes, bytes)| {
            let body = body(good, &changes, &bytes);
            let signature = webhooks::signature(webhooks::SECRET, &body);
            let usual = if path == webhooks::GITHUB {
                "issues"
            } else {
                "Issue"
            };
            let event = event.unwrap_or(usual).as_bytes().to_vec();
            let id = id.into_bytes();
            Sent {
                method: Method::POST,
                uri: path.to_owned(),
                headers: vec![
                    ("content-type", b"application/json".to_vec()),
                    ("x-github-event", event.clone()),
                    ("x-github-delivery", id.clone()),
                    ("x-hub-signature-256", format!("sha256={signature}").into_bytes()),
                    ("linear-event", event),
                    ("linear-delivery", id),
                    ("linear-signature", signature.into_bytes()),
                ],
                body,
            }
        })
}

type Pair = (sample::Index, Option<String>, String);

fn uri(route: &Route, parts: &[String], pairs: &[Pair]) -> String {
    let mut given = parts.iter();
    let path: Vec<&str> = route
        .path
        .split('/')
        .map(|part| {
            if part.starts_with('{') {
                given.next().map_or("x", String::as_str)
            } else {
                part
            }
        })
        .collect();
    let query: Vec<String> = pairs
        .iter()
        .map(|(at, other, value)| {
            let known = (!route.query.is_empty()).then(|| at.get(&route.query).clone());
            let name = other.clone().or(known).unwrap_or_else(|| "x".to_owned());
            format!("{name}={value}")
        })
        .collect();
    format!("{}?{}", path.join("/"), query.join("&"))
}

fn body(mut good: Value, changes: &[Change], bytes: &Bytes) -> Vec<u8> {
    for change in changes {
        change.apply(&mut good);
    }
    bytes.apply(good.to_string().into_bytes())
}

impl Sent {
    /// `None` where no such request can arrive.
    fn request(&self) -> Option<Request<Body>> {
        let mut request = Request::builder().method(&self.method).uri(&self.uri);
        for (name, value) in &self.headers {
            request = request.header(*name, HeaderValue::from_bytes(value).ok()?);
        }
        request.body(Body::from(self.body.clone())).ok()
    }
}

/// It is done, or it is told what is wrong, and never that something here is.
async fn answered(target: &Target, sent: Sent) {
    status(target, sent).await;
}

/// The same, and it is read: its signature is good.
async fn taken(target: &Target, sent: Sent) {
    assert_ne!(status(target, sent).await, Some(StatusCode::UNAUTHORIZED));
}

/// The status of a proper answer; absent where no such request can arrive.
async fn status(target: &Target, sent: Sent) -> Option<StatusCode> {
    let request = sent.request()?;
    let answer = tokio::time::timeout(PATIENCE, target.http.clone().oneshot(request));
    let response = answer.await.unwrap().unwrap();
    let status = response.status();
    let media = response.headers().get(header::CONTENT_TYPE).cloned();
    if status.is_success() {
        // A stream goes on for ever.
        return Some(status);
    }
    let body = tokio::time::timeout(PATIENCE, response.into_body().collect());
    let bytes = body.await.unwrap().unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes);
    let context = || format!("{status} to {sent:?}\n{text}");
    let expected = status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED;
    assert!(expected, "{}", context());
    assert_eq!(
        media,
        Some(HeaderValue::from_static("application/json")),
        "{}",
        context()
    );
    let envelope: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    assert_eq!(envelope["ok"], json!(false), "{}", context());
    let told = envelope["error"].as_str().unwrap_or_default();
    assert!(!told.is_empty() && told.len() < 20_000, "{}", context());
    Some(status)
}

#[test]
fn every_request_of_http_is_done_or_told_what_is_wrong() {
    play(&sent(), &answered);
}

#[test]
fn every_delivery_of_a_webhook_that_is_signed_is_taken_or_told_what_is_wrong() {
    play(&delivered(), &taken);
}
