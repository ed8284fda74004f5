//! Agents of `/v1`, and single objects: applied, shown, deleted, and what Events say about them.

use http::{Method, StatusCode};
use jangar_api::Kind;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::stage::{NAMESPACE, Stage, agent, call, request};

const RESOURCE: &str = "/api/agents/control-plane/resource";

fn new_agent(policy: &Value) -> Value {
    json!({"name": "coder", "namespace": NAMESPACE, "policy": policy,
           "spec": {"providerRef": {"name": "p"}, "security": {"allowedSecrets": ["key"]}}})
}

#[tokio::test]
async fn an_agent_that_may_use_secrets_needs_a_binding_that_covers_them() {
    let stage = Stage::start().await;
    let post = async |policy: Value| {
        stage
            .post("submitter", "/v1/agents", Some("k"), new_agent(&policy))
            .await
    };
    let (status, body) = post(json!({})).await;
    assert_eq!(
        (status, &body["details"]["field"]),
        (StatusCode::FORBIDDEN, &json!("policy.secretBindingRef")),
        "{body}"
    );
    let binding = json!({"metadata": {"name": "b"}, "spec": {
        "subjects": [{"kind": "Agent", "name": "coder"}], "allowedSecrets": ["key"]}});
    stage.create(Kind::SecretBinding, NAMESPACE, binding).await;
    let budget = json!({"metadata": {"name": "empty"}, "spec": {}, "status": {"phase": "Exceeded"}});
    stage.create(Kind::Budget, NAMESPACE, budget).await;
    let (status, body) = post(json!({"secretBindingRef": "b", "budgetRef": "empty"})).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    let (status, body) = post(json!({"secretBindingRef": "b"})).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let (status, body) = stage.get("reader", "/v1/agents/coder?namespace=agents").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(body["resource"]["spec"]["providerRef"]["name"], "p");
}

#[tokio::test]
async fn a_spec_is_created_and_updated_and_any_kind_is_deleted() {
    let stage = Stage::start().await;
    for text in ["first", "second"] {
        let spec = json!({"kind": "ImplementationSpec", "namespace": NAMESPACE, "name": "work", "spec": {"text": text}});
        let (status, body) = stage.post("submitter", RESOURCE, Some(text), spec).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        assert_eq!(body["resource"]["spec"]["text"], text);
    }
    let path = format!("{RESOURCE}?kind=impl&name=work&namespace=agents");
    let (status, body) = stage.get("reader", &path).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let delete = async |user: &str| call(&stage.http, request(Method::DELETE, user, &path, None, None)).await;
    assert_eq!(delete("reader").await.0, StatusCode::FORBIDDEN);
    assert_eq!(delete("submitter").await.0, StatusCode::OK);
    let (status, body) = delete("submitter").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
}

#[tokio::test]
async fn events_are_those_of_the_object_and_no_more_than_asked_for() {
    let stage = Stage::start().await;
    let one = stage.create(Kind::Agent, NAMESPACE, agent("one")).await;
    stage.create(Kind::Agent, NAMESPACE, agent("two")).await;
    let events: Api<Event> = Api::namespaced(stage.admin.clone(), NAMESPACE);
    for (index, (name, uid)) in [
        ("one", &one["metadata"]["uid"]),
        ("one", &json!("before")),
        ("two", &json!("x")),
    ]
    .into_iter()
    .enumerate()
    {
        let event: Event = serde_json::from_value(json!({
            "metadata": {"name": format!("e-{index}"), "namespace": NAMESPACE},
            "involvedObject": {"kind": "Agent", "name": name, "namespace": NAMESPACE, "uid": uid},
            "reason": "Happened", "message": format!("event {index}"), "type": "Normal",
            "lastTimestamp": format!("2026-03-01T12:00:0{index}Z"),
        }))
        .unwrap();
        events.create(&PostParams::default(), &event).await.unwrap();
    }
    let path = "/api/agents/control-plane/events?namespace=agents&kind=Agent&name=one";
    let told = async |more: &str| {
        let (status, body) = stage.get("reader", &format!("{path}{more}")).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let items = body["items"].as_array().unwrap().clone();
        items
            .iter()
            .map(|event| event["message"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(told("").await, ["event 1", "event 0"], "the latest first");
    assert_eq!(told("&limit=1").await, ["event 1"]);
    let uid = one["metadata"]["uid"].as_str().unwrap();
    assert_eq!(told(&format!("&uid={uid}")).await, ["event 0"]);
    let (status, body) = stage.get("reader", &format!("{path}&limit=201")).await;
    assert_eq!(
        (status, &body["details"]["field"]),
        (StatusCode::BAD_REQUEST, &json!("limit"))
    );
}
