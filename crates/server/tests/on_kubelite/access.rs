//! Who may see what, and what it costs to find out.

use http::{Method, StatusCode};
use jangar_api::Kind;
use serde_json::{Value, json};

use crate::stage::{BREAK_GLASS, HIDDEN, NAMESPACE, Stage, agent, agent_run, call, request};

#[tokio::test]
async fn no_route_but_probes_and_webhooks_answers_without_a_token() {
    let stage = Stage::start().await;
    let document = jangar_server::http::openapi::document();
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let path = path.replace(['{', '}'], "");
            let (status, body) = call(&stage.http, request(method, "", &path, None, None)).await;
            // A webhook without a signature is refused in the same way as a request without a token.
            let open = matches!(path.as_str(), "/health" | "/ready");
            let expected = if open {
                StatusCode::OK
            } else {
                StatusCode::UNAUTHORIZED
            };
            assert_eq!(status, expected, "{path}: {body}");
            asked += 1;
        }
    }
    assert!(asked > 25);
    let (status, _) = call(&stage.http, request(Method::GET, "", "/metrics", None, None)).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_token_that_nobody_knows_is_refused_and_not_asked_about_again() {
    let stage = Stage::start().await;
    let reviews = || stage.arrived(|arrived| arrived.path.ends_with("/selfsubjectreviews"));
    for _ in 0..5 {
        let (status, body) = stage.get("nobody", "/v1/approvals").await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        assert_eq!(body["ok"], json!(false));
        assert!(
            body["error"]
                .as_str()
                .unwrap()
                .contains("does not know the token"),
            "{body}"
        );
    }
    assert_eq!(reviews(), 1);
}

#[tokio::test]
async fn a_caller_is_asked_about_once_for_many_requests() {
    let stage = Stage::start().await;
    for _ in 0..10 {
        let (status, _) = stage.get("reader", "/v1/agent-runs?namespace=agents").await;
        assert_eq!(status, StatusCode::OK);
    }
    let of_reader = |path: &'static str| stage.arrived(|arrived| arrived.path.ends_with(path));
    assert_eq!(of_reader("/selfsubjectreviews"), 1);
    assert_eq!(of_reader("/selfsubjectaccessreviews"), 1);
}

#[tokio::test]
async fn a_namespace_that_one_may_not_see_looks_like_one_that_is_not_there() {
    let stage = Stage::start().await;
    stage.create(Kind::Agent, HIDDEN, agent("spy")).await;
    let run = stage
        .create(Kind::AgentRun, HIDDEN, agent_run("secret-run"))
        .await;
    let uid = run["metadata"]["uid"].as_str().unwrap();
    for path in [
        "/v1/agents/spy?namespace=NS",
        "/v1/agent-runs?namespace=NS",
        "/v1/runs/secret-run?namespace=NS",
        "/v1/runs/secret-run/explain?namespace=NS",
        "/v1/approvals?namespace=NS",
        "/api/agents/control-plane/resources?kind=Agent&namespace=NS",
        "/api/agents/control-plane/resource?kind=Agent&name=spy&namespace=NS",
        "/api/agents/control-plane/events?kind=Agent&name=spy&namespace=NS",
        "/api/agents/control-plane/status?namespace=NS",
        "/api/agents/control-plane/summary?namespace=NS",
        "/api/agents/control-plane/stream?namespace=NS",
    ] {
        let (there, hidden) = stage.get("reader", &path.replace("NS", HIDDEN)).await;
        let (nowhere, absent) = stage.get("reader", &path.replace("NS", "nowhere")).await;
        assert_eq!(there, StatusCode::NOT_FOUND, "{path}: {hidden}");
        assert_eq!(nowhere, there, "{path}");
        let same: Value = serde_json::from_str(&hidden.to_string().replace(HIDDEN, "nowhere")).unwrap();
        assert_eq!(same, absent, "{path}");
    }
    let (by_uid, body) = stage.get("reader", &format!("/v1/runs/{uid}")).await;
    assert_eq!(by_uid, StatusCode::NOT_FOUND);
    assert!(
        !body.to_string().contains(HIDDEN) && !body.to_string().contains("secret-run"),
        "{body}"
    );
    let (of_admin, _) = stage.get("admin", &format!("/v1/runs/{uid}")).await;
    assert_eq!(of_admin, StatusCode::OK);
}

#[tokio::test]
async fn what_is_changed_is_changed_with_the_callers_own_token() {
    let stage = Stage::start().await;
    stage.create(Kind::Agent, NAMESPACE, agent("coder")).await;
    stage.create(Kind::AgentRun, NAMESPACE, agent_run("r")).await;
    let (status, _) = stage
        .post("submitter", "/v1/runs/r/cancel?namespace=agents", None, json!({}))
        .await;
    assert_eq!(status, StatusCode::OK);
    let writes = |user: &str| {
        stage.arrived(|arrived| {
            arrived.user == user && arrived.method == Method::PATCH && arrived.path.contains("/agentruns/")
        })
    };
    assert_eq!((writes("submitter"), writes("own")), (1, 0));
    let (status, body) = stage
        .post("reader", "/v1/runs/r/cancel?namespace=agents", None, json!({}))
        .await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
}

#[tokio::test]
async fn whoever_breaks_the_glass_has_the_rights_of_the_control_plane() {
    let stage = Stage::start().await;
    stage.create(Kind::AgentRun, NAMESPACE, agent_run("r")).await;
    let (status, _) = stage.get(BREAK_GLASS, "/v1/runs/r?namespace=agents").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        stage.arrived(|arrived| arrived.path.ends_with("/selfsubjectreviews")),
        0
    );
    let (status, _) = stage
        .get("break-glass-in-an-emergencx", "/v1/runs/r?namespace=agents")
        .await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn metrics_need_the_right_to_their_path() {
    let stage = Stage::start().await;
    assert_eq!(stage.get("admin", "/metrics").await.0, StatusCode::OK);
    assert_eq!(stage.get("reader", "/metrics").await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn there_is_one_watch_for_each_kind_whatever_the_number_of_clients() {
    let stage = Stage::start().await;
    let mut streams = Vec::new();
    for _ in 0..50 {
        let request = request(
            Method::GET,
            "reader",
            "/api/agents/control-plane/stream?namespace=agents",
            None,
            None,
        );
        let response = tower::ServiceExt::oneshot(stage.http.clone(), request)
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        streams.push(response);
    }
    for kind in Kind::ALL {
        let plural = &kind.info().plural;
        let watches = stage.arrived(|arrived| {
            arrived.query.contains("watch=true")
                && arrived
                    .path
                    .ends_with(&format!("/namespaces/{NAMESPACE}/{plural}"))
        });
        assert_eq!(watches, 1, "{plural}");
    }
}
