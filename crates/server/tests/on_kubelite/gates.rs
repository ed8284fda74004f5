//! Orchestrations with gates: the policies that they name have to be there, and open.

use http::StatusCode;
use jangar_api::Kind;
use serde_json::{Value, json};

use crate::stage::{HIDDEN, NAMESPACE, Stage};

fn orchestration(namespace: &str) -> Value {
    json!({"name": "release", "namespace": namespace, "spec": {"steps": [
        {"name": "gate", "kind": "ApprovalGate", "policyRef": "release"}]}})
}

fn policy(phase: &str) -> Value {
    json!({"metadata": {"name": "release"}, "spec": {"mode": "phase"}, "status": {"phase": phase}})
}

#[tokio::test]
async fn an_orchestration_whose_policy_is_not_there_is_not_applied() {
    let stage = Stage::start().await;
    let apply = async |user: &str, namespace: &str| {
        stage
            .post(user, "/v1/orchestrations", Some("k"), orchestration(namespace))
            .await
    };
    let (status, body) = apply("submitter", NAMESPACE).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
    assert!(
        body["error"].as_str().unwrap().contains("ApprovalPolicy release"),
        "{body}"
    );
    // Whoever may not write there does not learn of policies.
    let (status, body) = apply("submitter", HIDDEN).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    stage
        .create(Kind::ApprovalPolicy, NAMESPACE, policy("Approved"))
        .await;
    let (status, body) = apply("submitter", NAMESPACE).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
}

#[tokio::test]
async fn a_run_whose_gate_is_closed_already_is_not_made() {
    let stage = Stage::start().await;
    stage
        .create(Kind::ApprovalPolicy, NAMESPACE, policy("Denied"))
        .await;
    let mut applied = orchestration(NAMESPACE);
    let definition = json!({"metadata": {"name": "release"}, "spec": applied["spec"].take()});
    stage.create(Kind::Orchestration, NAMESPACE, definition).await;
    let run = json!({"orchestrationRef": {"name": "release"}, "namespace": NAMESPACE});
    let (status, body) = stage
        .post("submitter", "/v1/orchestration-runs", Some("k"), run)
        .await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    assert!(body["error"].as_str().unwrap().contains("Denied"), "{body}");
}
