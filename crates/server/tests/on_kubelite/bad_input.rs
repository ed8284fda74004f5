//! Requests that make no sense: each is told what is wrong, and nothing comes of it.

use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};

use crate::stage::{Stage, call, request};

fn raw(content_type: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(Method::POST)
        .uri("/v1/agent-runs")
        .header(header::AUTHORIZATION, "Bearer token-of-submitter")
        .header(header::CONTENT_TYPE, content_type)
        .header("Idempotency-Key", "k")
        .body(body.into())
        .unwrap()
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_told_where() {
    let stage = Stage::start().await;
    let huge = format!("{{\"x\": \"{}\"}}", "a".repeat(1024 * 1024));
    let chunks = futures::stream::iter((0..40).map(|_| Ok::<_, std::io::Error>("b".repeat(32 * 1024))));
    for (content_type, body, status, words) in [
        (
            "application/json",
            Body::from("{"),
            StatusCode::BAD_REQUEST,
            "the body cannot be read",
        ),
        (
            "application/json",
            Body::from(""),
            StatusCode::BAD_REQUEST,
            "the body cannot be read",
        ),
        (
            "application/json",
            Body::from("[]"),
            StatusCode::BAD_REQUEST,
            "the body cannot be read",
        ),
        (
            "application/json",
            Body::from("{\"agentRef\": 5}"),
            StatusCode::BAD_REQUEST,
            "agentRef",
        ),
        (
            "application/json",
            Body::from("{\"agentReff\": {}}"),
            StatusCode::BAD_REQUEST,
            "agentReff",
        ),
        (
            "application/json",
            Body::from(vec![0xff, 0xfe]),
            StatusCode::BAD_REQUEST,
            "the body cannot be read",
        ),
        (
            "text/plain",
            Body::from("{}"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Content-Type",
        ),
        (
            "application/yaml",
            Body::from("{}"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Content-Type",
        ),
        (
            "application/json",
            Body::from(huge),
            StatusCode::PAYLOAD_TOO_LARGE,
            "1 MiB",
        ),
        (
            "application/json",
            Body::from_stream(chunks),
            StatusCode::PAYLOAD_TOO_LARGE,
            "1 MiB",
        ),
    ] {
        let (found, answer) = call(&stage.http, raw(content_type, body)).await;
        assert_eq!(found, status, "{answer}");
        assert_eq!(answer["ok"], json!(false));
        assert!(answer["error"].as_str().unwrap().contains(words), "{answer}");
    }
}

#[tokio::test]
async fn a_mutation_without_its_key_is_refused_with_the_remedy() {
    let stage = Stage::start().await;
    for path in [
        "/v1/agents",
        "/v1/agent-runs",
        "/v1/orchestrations",
        "/v1/orchestration-runs",
        "/v1/memories",
        "/v1/runs/x/retry",
        "/api/agents/control-plane/resource",
    ] {
        let (status, body) = stage.post("submitter", path, None, json!({})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert_eq!(body["details"]["field"], "Idempotency-Key", "{path}: {body}");
        assert!(body["details"]["remedy"].is_string(), "{path}");
    }
}

#[tokio::test]
async fn a_query_that_makes_no_sense_is_told() {
    let stage = Stage::start().await;
    for (path, words) in [
        ("/v1/agent-runs?namespace=agents&limit=501", "limit="),
        ("/v1/agent-runs?namespace=agents&limit=many", "limit"),
        ("/v1/agent-runs?namespace=agents&colour=red", "colour"),
        ("/v1/agent-runs?namespace=agents&cursor=x", "cursor="),
        (
            "/v1/agent-runs?namespace=agents&labelSelector=a%20of%20b",
            "labelSelector=",
        ),
        ("/v1/agent-runs?namespace=Agents", "namespace="),
        ("/v1/agents/..%2F..%2Fsecrets?namespace=agents", "name="),
        ("/api/agents/control-plane/resources?kind=Pod", "kind="),
        ("/api/agents/control-plane/resources", "kind"),
        ("/v1/runs/x?kind=Pod", "kind="),
    ] {
        let (status, body) = stage.get("admin", path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {body}");
        assert!(body["error"].as_str().unwrap().contains(words), "{path}: {body}");
    }
}

#[tokio::test]
async fn an_address_or_a_method_that_is_not_there_has_the_same_envelope() {
    let stage = Stage::start().await;
    let (status, body) = stage.get("admin", "/v2/agents").await;
    assert_eq!((status, &body["ok"]), (StatusCode::NOT_FOUND, &json!(false)));
    let (status, body) = call(
        &stage.http,
        request(Method::DELETE, "admin", "/v1/agents", None, None),
    )
    .await;
    assert_eq!(
        (status, &body["ok"]),
        (StatusCode::METHOD_NOT_ALLOWED, &json!(false))
    );
}

#[tokio::test]
async fn what_the_api_server_refuses_is_passed_on_with_its_words() {
    let stage = Stage::start().await;
    let body = json!({"kind": "ImplementationSpec", "namespace": "agents", "name": "x", "spec": {"text": 5}});
    let (status, body) = stage
        .post("submitter", "/api/agents/control-plane/resource", Some("k"), body)
        .await;
    assert!(status.is_client_error(), "{status} {body}");
    assert!(body["error"].as_str().unwrap().contains("spec.text"), "{body}");
    let other = json!({"kind": "Agent", "namespace": "agents", "name": "x", "spec": {}});
    let (status, body): (_, Value) = stage
        .post(
            "submitter",
            "/api/agents/control-plane/resource",
            Some("l"),
            other,
        )
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
}
