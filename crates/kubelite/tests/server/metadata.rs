//! Metadata is held to the same rules for every kind, and a write cannot lose it by accident.

use http::Method;
use serde_json::{Value, json};

use crate::support::{APPLY, CONFIG_MAPS, JSON, MERGE, TestServer, config_map, request, uid};

fn with_metadata(metadata: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })
}

#[tokio::test(start_paused = true)]
async fn bad_metadata_of_a_built_in_kind_is_refused() {
    let server = TestServer::start().await;
    for metadata in [
        json!({ "name": "a", "labels": { "a b": "x" } }),
        json!({ "name": "a", "labels": { "a": "-" } }),
        json!({ "name": "a", "annotations": { "a b": "x" } }),
        json!({ "name": "a", "annotations": { "a": "x".repeat(300_000) } }),
        json!({ "name": "a", "finalizers": ["bad//y"] }),
        json!({ "name": "a", "ownerReferences": [{ "name": "a" }] }),
    ] {
        server
            .post(CONFIG_MAPS, &with_metadata(&metadata))
            .await
            .fails(422, "Invalid");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_changes_the_uid_of_a_built_in_kind() {
    let server = TestServer::start().await;
    let created = server.post(CONFIG_MAPS, &config_map("a")).await.created();
    let path = format!("{CONFIG_MAPS}/a");
    let patch = json!({ "metadata": { "uid": "another" } });
    let message = server.patch(&path, MERGE, &patch).await.fails(422, "Invalid");
    assert!(
        message.contains("metadata.uid") && message.contains("field is immutable"),
        "{message}"
    );
    assert_eq!(uid(&server.get(&path).await.ok()), uid(&created));
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_name_loses_nothing() {
    let server = TestServer::start().await;
    let object = with_metadata(&json!({ "name": "a", "finalizers": ["example.com/keep"] }));
    server.post(CONFIG_MAPS, &object).await.created();
    let path = format!("{CONFIG_MAPS}/a");
    server
        .patch(&path, MERGE, &json!({ "metadata": null }))
        .await
        .fails(400, "BadRequest");
    server
        .put(&path, &with_metadata(&json!({})))
        .await
        .fails(400, "BadRequest");
    let kept = server.get(&path).await.ok();
    assert_eq!(kept["metadata"]["finalizers"], json!(["example.com/keep"]));
}

#[tokio::test(start_paused = true)]
async fn a_patch_whose_result_cannot_be_decoded_is_invalid() {
    let server = TestServer::start().await;
    server.post(CONFIG_MAPS, &config_map("a")).await.created();
    let patch = json!({ "data": { "k": 5 } });
    let message = server
        .patch(&format!("{CONFIG_MAPS}/a"), MERGE, &patch)
        .await
        .fails(422, "Invalid");
    assert!(message.contains("patch: Invalid value"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn strict_apply_refuses_a_key_given_twice() {
    let server = TestServer::start().await;
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1","k":"2"}}"#;
    let uri = format!("{CONFIG_MAPS}/a?fieldManager=me&fieldValidation=Strict");
    let message = server
        .send(request(Method::PATCH, &uri, APPLY, body))
        .await
        .fails(400, "BadRequest");
    assert!(message.contains("duplicate field \"data.k\""), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_is_refused_with_its_limit() {
    let server = TestServer::start().await;
    let body = format!("{{\"data\":\"{}\"}}", "x".repeat(3 * 1024 * 1024));
    let answer = server.send(request(Method::POST, CONFIG_MAPS, JSON, body)).await;
    let message = answer.fails(413, "RequestEntityTooLarge");
    assert!(message.contains("3145728"), "{message}");
}
