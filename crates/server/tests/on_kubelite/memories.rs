//! Memories: applied as the caller, told without their secrets; and what earlier versions had and this one has not.

use http::StatusCode;
use jangar_api::Kind;
use serde_json::{Value, json};

use crate::stage::{NAMESPACE, Stage};

fn memory() -> Value {
    json!({"name": "notes", "namespace": NAMESPACE,
           "spec": {"type": "postgres", "connection": {"secretRef": {"name": "notes-db", "key": "url"}}}})
}

#[tokio::test]
async fn a_memory_is_applied_as_the_caller_and_told_without_its_secret() {
    let stage = Stage::start().await;
    let (status, body) = stage.post("submitter", "/v1/memories", Some("k"), memory()).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    assert_eq!(
        (&body["memory"]["memoryName"], &body["memory"]["provider"]),
        (&json!("notes"), &json!("postgres"))
    );
    assert_eq!(body["memory"]["id"], body["resource"]["metadata"]["uid"]);
    stage
        .eventually(|| stage.plane.world.get(Kind::Memory, NAMESPACE, "notes").is_some())
        .await;
    let (status, again) = stage.get("reader", "/v1/memories/notes?namespace=agents").await;
    assert_eq!(status, StatusCode::OK, "{again}");
    assert_eq!(
        again["resource"]["spec"]["connection"]["secretRef"],
        json!({"name": "notes-db", "key": "url"})
    );
    assert!(again["memory"].get("connectionSecret").is_none(), "{again}");
    assert_eq!(
        stage.arrived(|arrived| arrived.path.contains("/secrets")),
        0,
        "nobody looked at a Secret"
    );
}

#[tokio::test]
async fn whoever_may_not_write_memories_does_not_and_a_blank_secret_is_told() {
    let stage = Stage::start().await;
    let (status, body) = stage.post("reader", "/v1/memories", Some("k"), memory()).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    let mut blank = memory();
    blank["spec"]["connection"]["secretRef"]["name"] = json!(" ");
    let (status, body) = stage.post("submitter", "/v1/memories", Some("k"), blank).await;
    assert_eq!(
        (status, &body["details"]["field"]),
        (StatusCode::BAD_REQUEST, &json!("spec.connection.secretRef.name"))
    );
    let (status, _) = stage.get("reader", "/v1/memories/none?namespace=agents").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_is_not_there_any_more_says_what_is() {
    let stage = Stage::start().await;
    let query = json!({"memoryRef": "notes", "query": "x"});
    let (status, body) = stage.post("reader", "/v1/memory-queries", None, query).await;
    assert_eq!(
        (status, &body["ok"]),
        (StatusCode::NOT_IMPLEMENTED, &json!(false)),
        "{body}"
    );
    assert!(body["details"]["remedy"].is_string(), "{body}");
    let (status, body) = stage.get("reader", "/api/agents/events?runId=x").await;
    assert_eq!(status, StatusCode::GONE, "{body}");
    assert!(
        body["details"]["remedy"].as_str().unwrap().contains("/v1/runs/"),
        "{body}"
    );
}
