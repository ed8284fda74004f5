//! A run is made once for each key, however often and wherever it is asked for.

use std::sync::atomic::Ordering;

use futures::future::join_all;
use http::{Method, StatusCode};
use jangar_api::{Kind, labels};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::stage::{NAMESPACE, Stage, agent, call, request};

fn submission() -> Value {
    json!({"agentRef": {"name": "coder"}, "namespace": NAMESPACE, "runtime": {"type": "job"},
           "implementation": {"text": "do it"}, "parameters": {"repository": "Team/App"}})
}

async fn stage() -> Stage {
    let stage = Stage::start().await;
    stage.create(Kind::Agent, NAMESPACE, agent("coder")).await;
    stage
}

#[tokio::test]
async fn a_run_whose_answer_was_lost_is_found_by_its_key_on_any_replica() {
    let stage = stage().await;
    let (other, _watches) = stage.replica().await;
    stage.lost.store(1, Ordering::SeqCst);
    let (status, body) = stage
        .post("submitter", "/v1/agent-runs", Some("k"), submission())
        .await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "nobody knows: {body}");
    let again = request(
        Method::POST,
        "submitter",
        "/v1/agent-runs",
        Some("k"),
        Some(submission()),
    );
    let (status, body) = call(&other, again).await;
    assert_eq!(
        (status, &body["idempotent"]),
        (StatusCode::OK, &json!(true)),
        "{body}"
    );
    let runs = stage.api(Kind::AgentRun, NAMESPACE);
    assert_eq!(runs.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_run_that_was_just_made_is_there_for_every_replica() {
    let stage = stage().await;
    let (_, made) = stage
        .post("submitter", "/v1/agent-runs", Some("k"), submission())
        .await;
    let name = made["resource"]["metadata"]["name"].as_str().unwrap();
    let path = format!("/v1/runs/{name}/cancel?namespace=agents");
    let (status, body) = stage.post("submitter", &path, None, json!({})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
}

#[tokio::test]
async fn twenty_at_once_on_two_replicas_make_one_run() {
    let stage = stage().await;
    let (other, _watches) = stage.replica().await;
    let send = |index: usize| {
        let router = if index.is_multiple_of(2) {
            &stage.http
        } else {
            &other
        };
        let body = Some(submission());
        call(
            router,
            request(Method::POST, "submitter", "/v1/agent-runs", Some("k1"), body),
        )
    };
    let answers = join_all((0..20).map(send)).await;
    let created = answers
        .iter()
        .filter(|(status, _)| *status == StatusCode::CREATED)
        .count();
    assert_eq!(created, 1, "{answers:?}");
    let mut ids: Vec<&str> = answers
        .iter()
        .map(|(status, body)| {
            assert!(status.is_success(), "{body}");
            assert_eq!(body["idempotent"], json!(*status == StatusCode::OK));
            body["agentRun"]["id"].as_str().unwrap()
        })
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), 1);
    let runs = stage
        .api(Kind::AgentRun, NAMESPACE)
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(runs.items.len(), 1);
}

#[tokio::test]
async fn the_run_says_who_made_it_and_with_which_key() {
    let stage = stage().await;
    let key = "a key / with ünlabel-like characters";
    let (status, body) = stage
        .post("submitter", "/v1/agent-runs", Some(key), submission())
        .await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    assert_eq!(body["ok"], json!(true));
    let resource = &body["resource"];
    assert_eq!(resource["spec"]["idempotencyKey"], key);
    assert_eq!(
        resource["metadata"]["annotations"][labels::CREATED_BY],
        "submitter"
    );
    assert_eq!(resource["spec"]["implementation"]["inline"]["text"], "do it");
    assert_eq!(body["agentRun"]["agentName"], "coder");
    assert_eq!(body["agentRun"]["deliveryId"], key);
    let (again, body) = stage
        .post("submitter", "/v1/agent-runs", Some(key), submission())
        .await;
    assert_eq!((again, &body["idempotent"]), (StatusCode::OK, &json!(true)));
    let (other, _) = stage
        .post("submitter", "/v1/agent-runs", Some("another"), submission())
        .await;
    assert_eq!(other, StatusCode::CREATED);
}

#[tokio::test]
async fn a_name_that_somebody_else_took_is_told_and_not_taken_for_the_run() {
    let stage = stage().await;
    let name = jangar_server::plane::submit::run_name(NAMESPACE, "coder", "k");
    stage
        .create(Kind::AgentRun, NAMESPACE, crate::stage::agent_run(&name))
        .await;
    let (status, body) = stage
        .post("submitter", "/v1/agent-runs", Some("k"), submission())
        .await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
}

#[tokio::test]
async fn what_the_submission_names_has_to_be_there() {
    let stage = stage().await;
    let mut unknown = submission();
    unknown["agentRef"]["name"] = json!("nobody");
    let (status, body) = stage
        .post("submitter", "/v1/agent-runs", Some("k"), unknown)
        .await;
    assert_eq!(
        (status, &body["details"]["field"]),
        (StatusCode::NOT_FOUND, &json!("agentRef.name"))
    );
    let mut budget = submission();
    budget["policy"] = json!({"budgetRef": "none"});
    let (status, body) = stage.post("submitter", "/v1/agent-runs", Some("k"), budget).await;
    assert_eq!(
        (status, &body["details"]["field"]),
        (StatusCode::NOT_FOUND, &json!("policy.budgetRef"))
    );
    let orchestration = json!({"orchestrationRef": {"name": "none"}, "namespace": NAMESPACE});
    let (status, body) = stage
        .post("submitter", "/v1/orchestration-runs", Some("k"), orchestration)
        .await;
    assert_eq!(
        (status, &body["details"]["field"]),
        (StatusCode::NOT_FOUND, &json!("orchestrationRef.name"))
    );
}

#[tokio::test]
async fn policies_are_kept_before_anything_is_made() {
    let stage = stage().await;
    stage
        .create(
            Kind::Budget,
            NAMESPACE,
            json!({"metadata": {"name": "b"}, "spec": {"limits": {"dollars": "1"}},
            "status": {"phase": "Exceeded"}}),
        )
        .await;
    let mut over = submission();
    over["policy"] = json!({"budgetRef": "b"});
    let (status, body) = stage.post("submitter", "/v1/agent-runs", Some("k"), over).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    let mut secret = submission();
    secret["secrets"] = json!(["token"]);
    let (status, body) = stage.post("submitter", "/v1/agent-runs", Some("k"), secret).await;
    assert_eq!(
        (status, &body["details"]["field"]),
        (StatusCode::FORBIDDEN, &json!("policy.secretBindingRef"))
    );
    let runs = stage
        .api(Kind::AgentRun, NAMESPACE)
        .list(&ListParams::default())
        .await
        .unwrap();
    assert!(runs.items.is_empty());
}

#[tokio::test]
async fn whoever_may_not_create_runs_learns_nothing_of_agents() {
    let stage = stage().await;
    let (there, one) = stage
        .post("reader", "/v1/agent-runs", Some("k"), submission())
        .await;
    let mut unknown = submission();
    unknown["agentRef"]["name"] = json!("nobody");
    let (absent, two) = stage.post("reader", "/v1/agent-runs", Some("k"), unknown).await;
    assert_eq!((there, absent), (StatusCode::FORBIDDEN, StatusCode::FORBIDDEN));
    assert_eq!(one, two);
}

#[tokio::test]
async fn a_full_queue_is_told_with_its_scope() {
    let stage = Stage::with(|settings| settings.limits.queue.namespace = Some(2)).await;
    stage.create(Kind::Agent, NAMESPACE, agent("coder")).await;
    for key in ["k1", "k2"] {
        let (status, body) = stage
            .post("submitter", "/v1/agent-runs", Some(key), submission())
            .await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
    }
    stage.eventually(|| stage.plane.world.waiting().len() == 2).await;
    let (status, body) = stage
        .post("submitter", "/v1/agent-runs", Some("k3"), submission())
        .await;
    assert_eq!(
        (status, &body["details"]["scope"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("namespace"))
    );
    let (again, _) = stage
        .post("submitter", "/v1/agent-runs", Some("k1"), submission())
        .await;
    assert_eq!(again, StatusCode::OK, "what was made before is still told");
}

#[tokio::test]
async fn an_orchestration_is_checked_applied_and_run_once() {
    let stage = stage().await;
    let orchestration = |depends: &str| {
        json!({"name": "release", "namespace": NAMESPACE, "spec": {"steps": [
            {"name": "build", "kind": "AgentRun", "dependsOn": [depends],
             "agentRef": {"name": "coder"}, "implementationSpecRef": {"name": "work"}}]}})
    };
    let (status, body) = stage
        .post(
            "submitter",
            "/v1/orchestrations",
            Some("k"),
            orchestration("nothing"),
        )
        .await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    assert!(body["error"].as_str().unwrap().contains("nothing"), "{body}");
    let mut good = orchestration("x");
    good["spec"]["steps"][0]["dependsOn"] = json!([]);
    let (status, body) = stage
        .post("submitter", "/v1/orchestrations", Some("k"), good)
        .await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    stage
        .eventually(|| {
            stage
                .plane
                .world
                .get(Kind::Orchestration, NAMESPACE, "release")
                .is_some()
        })
        .await;
    let run =
        json!({"orchestrationRef": {"name": "release"}, "namespace": NAMESPACE, "parameters": {"a": "b"}});
    let (first, body) = stage
        .post("submitter", "/v1/orchestration-runs", Some("k"), run.clone())
        .await;
    assert_eq!(first, StatusCode::CREATED, "{body}");
    assert_eq!(body["resource"]["spec"]["deliveryId"], "k");
    let (second, again) = stage
        .post("submitter", "/v1/orchestration-runs", Some("k"), run)
        .await;
    assert_eq!((second, &again["idempotent"]), (StatusCode::OK, &json!(true)));
    assert_eq!(again["orchestrationRun"]["id"], body["orchestrationRun"]["id"]);
}
