//! One run: found, explained, cancelled, run again.

use http::StatusCode;
use jangar_api::{Kind, labels};
use serde_json::{Value, json};

use crate::stage::{HIDDEN, NAMESPACE, Stage, agent_run};

#[tokio::test]
async fn a_run_is_found_by_its_uid_and_by_its_name() {
    let stage = Stage::start().await;
    let run = stage.create(Kind::AgentRun, NAMESPACE, agent_run("r")).await;
    let uid = run["metadata"]["uid"].as_str().unwrap();
    for id in [uid, "r"] {
        let (status, body) = stage
            .get("reader", &format!("/v1/runs/{id}?namespace=agents"))
            .await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(
            (&body["kind"], &body["run"]["id"]),
            (&json!("agent"), &json!(uid))
        );
        assert_eq!(body["archived"], json!(false));
    }
    let (status, _) = stage
        .get("reader", &format!("/v1/orchestration-runs/{uid}"))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_name_of_two_runs_asks_which_one() {
    let stage = Stage::start().await;
    stage.create(Kind::AgentRun, NAMESPACE, agent_run("r")).await;
    let orchestration_run = json!({"metadata": {"name": "r"}, "spec": {"orchestrationRef": {"name": "o"}}});
    stage
        .create(Kind::OrchestrationRun, NAMESPACE, orchestration_run)
        .await;
    let (status, body) = stage.get("reader", "/v1/runs/r?namespace=agents").await;
    assert_eq!(
        (status, &body["details"]["field"]),
        (StatusCode::CONFLICT, &json!("kind"))
    );
    let (status, body) = stage
        .get("reader", "/v1/runs/r?namespace=agents&kind=OrchestrationRun")
        .await;
    assert_eq!((status, &body["kind"]), (StatusCode::OK, &json!("orchestration")));
}

#[tokio::test]
async fn a_run_that_waits_says_for_what() {
    let stage = Stage::start().await;
    let mut run = agent_run("r");
    run["status"] = json!({"phase": "Pending", "conditions": [
        {"type": "Blocked", "status": "True", "reason": "QueueLimit", "message": "200 runs wait",
         "lastTransitionTime": "2026-03-01T12:00:00Z"}]});
    stage.create(Kind::AgentRun, NAMESPACE, run).await;
    let (status, body) = stage.get("reader", "/v1/runs/r/explain?namespace=agents").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(body["explanation"]["reason"], "QueueLimit");
    assert!(body.to_string().contains("200 runs wait"), "{body}");
}

#[tokio::test]
async fn a_repository_that_had_its_turn_stands_behind_one_that_had_none_also_when_that_is_over() {
    let stage = Stage::start().await;
    let of = |name: &str, repository: &str, status: Value| {
        let mut run = agent_run(name);
        run["spec"]["parameters"] = json!({"repository": repository});
        run["status"] = status;
        run
    };
    let waiting = || {
        json!({"phase": "Pending", "waiting": {"scope": "namespace", "name": "agents", "limit": 1}, "conditions": [
            {"type": "Blocked", "status": "True", "reason": "ConcurrencyLimit", "message": "1 of 1 is under way",
             "lastTransitionTime": "2026-03-01T12:00:00Z"}]})
    };
    let over = json!({"phase": "Succeeded", "admittedAt": "2026-03-01T11:59:00Z"});
    for run in [
        of("over", "team/served", over),
        of("again", "team/served", waiting()),
        of("other", "team/unserved", waiting()),
    ] {
        stage.create(Kind::AgentRun, NAMESPACE, run).await;
    }
    for (name, place) in [("again", 2), ("other", 1)] {
        let path = format!("/v1/runs/{name}/explain?namespace=agents");
        let (status, body) = stage.get("reader", &path).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(body["explanation"]["position"]["place"], place, "{body}");
    }
}

#[tokio::test]
async fn a_line_through_all_namespaces_is_counted_for_who_sees_them_all_and_for_nobody_else() {
    let stage = Stage::start().await;
    let of = |name: &str, status: Value| {
        let mut run = agent_run(name);
        run["spec"]["parameters"] = json!({"repository": "team/shared"});
        run["status"] = status;
        run
    };
    let waiting = || {
        let limit = json!({"scope": "repository", "name": "team/shared", "limit": 1});
        json!({"phase": "Pending", "waiting": limit, "conditions": [
            {"type": "Blocked", "status": "True", "reason": "ConcurrencyLimit", "message": "1 of 1 is under way",
             "lastTransitionTime": "2026-03-01T12:00:00Z"}]})
    };
    for (namespace, name, status) in [
        (
            HIDDEN,
            "works",
            json!({"phase": "Running", "admittedAt": "2026-03-01T11:59:00Z"}),
        ),
        (HIDDEN, "a-first", waiting()),
        (NAMESPACE, "second", waiting()),
    ] {
        stage.create(Kind::AgentRun, namespace, of(name, status)).await;
    }
    let path = "/v1/runs/second/explain?namespace=agents";

    let (status, body) = stage.get("admin", path).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let explanation = &body["explanation"];
    assert_eq!(explanation["position"]["of"], 2, "{body}");
    assert_eq!(
        explanation["commands"][0]["line"],
        format!("agentctl cancel run works -n {HIDDEN}"),
        "{body}"
    );

    let (status, body) = stage.get("reader", path).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert!(body["explanation"].get("position").is_none(), "{body}");
    assert!(!body.to_string().contains(HIDDEN), "{body}");
}

#[tokio::test]
async fn a_cancel_is_asked_for_once_and_a_run_that_has_ended_keeps_its_end() {
    let stage = Stage::start().await;
    stage.create(Kind::AgentRun, NAMESPACE, agent_run("r")).await;
    let body = json!({"reason": "not needed any more"});
    let (status, answer) = stage
        .post("submitter", "/v1/runs/r/cancel?namespace=agents", None, body)
        .await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["resource"]["spec"]["cancel"], json!(true));
    assert_eq!(answer["resource"]["spec"]["cancelReason"], "not needed any more");
    let mut ended = agent_run("e");
    ended["status"] = json!({"phase": "Succeeded"});
    stage.create(Kind::AgentRun, NAMESPACE, ended).await;
    let (status, answer) = stage
        .post("submitter", "/v1/runs/e/cancel?namespace=agents", None, json!({}))
        .await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        answer["message"].as_str().unwrap().contains("Succeeded"),
        "{answer}"
    );
    assert!(answer["resource"]["spec"].get("cancel").is_none());
}

#[tokio::test]
async fn only_a_run_that_has_ended_is_run_again_and_once_for_each_key() {
    let stage = Stage::start().await;
    let mut run = agent_run("r");
    run["spec"]["cancel"] = json!(true);
    run["status"] = json!({"phase": "Cancelled"});
    stage.create(Kind::AgentRun, NAMESPACE, run).await;
    stage.create(Kind::AgentRun, NAMESPACE, agent_run("busy")).await;
    let path = "/v1/runs/r/retry?namespace=agents";
    let (status, body) = stage.post("submitter", path, Some("again"), json!({})).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let spec = &body["resource"]["spec"];
    assert_eq!(spec["idempotencyKey"], "again");
    assert!(spec.get("cancel").is_none(), "{spec}");
    assert_eq!(body["resource"]["metadata"]["annotations"][labels::RETRY_OF], "r");
    let (status, second) = stage.post("submitter", path, Some("again"), json!({})).await;
    assert_eq!(
        (status, &second["run"]["id"]),
        (StatusCode::OK, &body["run"]["id"])
    );
    let (status, body) = stage
        .post(
            "submitter",
            "/v1/runs/busy/retry?namespace=agents",
            Some("k"),
            json!({}),
        )
        .await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
}

#[tokio::test]
async fn a_run_without_a_pod_has_no_log_and_says_so() {
    let stage = Stage::start().await;
    stage.create(Kind::AgentRun, NAMESPACE, agent_run("r")).await;
    let (status, body) = stage.get("reader", "/v1/runs/r/logs?namespace=agents").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
    assert!(body["error"].as_str().unwrap().contains("has no pod"), "{body}");
    let (status, body) = stage
        .get("reader", "/v1/runs/r/logs?namespace=agents&tailLines=9999")
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    let (status, body) = stage.get("reader", "/v1/runs/r/events?namespace=agents").await;
    assert_eq!((status, &body["events"]), (StatusCode::OK, &json!([])));
}
