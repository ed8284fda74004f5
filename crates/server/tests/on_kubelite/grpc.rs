//! The same over gRPC.

use axum::Router;
use futures::StreamExt;
use jangar_api::Kind;
use jangar_proto::v1::{
    ApplyRequest, CancelRequest, CreateObjectRequest, DeleteRequest, ExplainRequest,
    GetControlPlaneStatusRequest, GetIdentityRequest, GetRequest, GetServerInfoRequest, ListRequest,
    ListRunPodsRequest, StreamStatusRequest, SubmitAgentRunRequest, WatchObjectsRequest,
    agentctl_service_client::AgentctlServiceClient, watch_objects_response::Change,
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tonic::{Code, Request};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::stage::{NAMESPACE, Stage, agent, agent_run};

fn asked<T>(user: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let token = format!("Bearer token-of-{user}");
    request
        .metadata_mut()
        .insert("authorization", token.parse().unwrap());
    request
}

async fn serve(stage: &Stage) -> Router {
    jangar_server::grpc::router(stage.plane.clone()).await.unwrap()
}

#[tokio::test]
async fn every_kind_can_be_listed_and_what_is_applied_can_be_got_and_deleted() {
    let stage = Stage::start().await;
    let router = serve(&stage).await;
    for kind in Kind::ALL {
        let request = asked(
            "reader",
            ListRequest {
                namespace: NAMESPACE.to_owned(),
                ..ListRequest::default()
            },
        );
        let answer = jangar_proto::call(router.clone(), &kind.info().kind, request)
            .await
            .unwrap();
        let list: Value = serde_json::from_str(&answer.into_inner().json).unwrap();
        assert_eq!(list["kind"], format!("{}List", kind.info().kind));
    }
    let manifest = "apiVersion: agents.proompteng.ai/v1alpha1\nkind: Agent\nmetadata: {name: coder}\n\
                    spec: {providerRef: {name: p}}\n";
    let apply = |manifest: &str| ApplyRequest {
        namespace: NAMESPACE.to_owned(),
        manifest_yaml: manifest.to_owned(),
        ..ApplyRequest::default()
    };
    jangar_proto::call(router.clone(), "Agent", asked("submitter", apply(manifest)))
        .await
        .unwrap();
    let of = |name: &str| GetRequest {
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        ..GetRequest::default()
    };
    let got = jangar_proto::call(router.clone(), "Agent", asked("reader", of("coder")))
        .await
        .unwrap();
    let got: Value = serde_json::from_str(&got.into_inner().json).unwrap();
    assert_eq!(got["spec"]["providerRef"]["name"], "p");
    let wrong = jangar_proto::call(router.clone(), "Tool", asked("submitter", apply(manifest))).await;
    assert_eq!(
        wrong.unwrap_err().code(),
        Code::InvalidArgument,
        "the method says which kind"
    );
    let refused = jangar_proto::call(router.clone(), "Agent", asked("reader", apply(manifest))).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    let delete = DeleteRequest {
        namespace: NAMESPACE.to_owned(),
        name: "coder".to_owned(),
    };
    let deleted = jangar_proto::call(router.clone(), "Agent", asked("submitter", delete))
        .await
        .unwrap();
    assert!(deleted.into_inner().ok);
    let gone = jangar_proto::call(router, "Agent", asked("reader", of("never"))).await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn only_health_answers_without_a_token() {
    let stage = Stage::start().await;
    let router = serve(&stage).await;
    let mut health = HealthClient::new(router.clone());
    let request = HealthCheckRequest {
        service: jangar_proto::SERVICE.to_owned(),
    };
    let answer = health.check(request.clone()).await.unwrap().into_inner();
    assert_eq!(answer.status, 1, "serving");
    let refused = health.watch(request).await;
    assert_eq!(
        refused.unwrap_err().code(),
        Code::Unauthenticated,
        "it would never end"
    );
    let mut client = AgentctlServiceClient::new(router);
    let refused = client.get_server_info(GetServerInfoRequest {}).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    let refused = client
        .get_server_info(asked("nobody", GetServerInfoRequest {}))
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    let info = client
        .get_server_info(asked("reader", GetServerInfoRequest {}))
        .await
        .unwrap();
    assert_eq!(
        (info.get_ref().version.as_str(), info.get_ref().service.as_str()),
        ("1.2.3", "jangar")
    );
}

#[tokio::test]
async fn a_submission_with_structured_settings_is_made_once() {
    let stage = Stage::start().await;
    stage.create(Kind::Agent, NAMESPACE, agent("coder")).await;
    let mut client = AgentctlServiceClient::new(serve(&stage).await);
    let submission = SubmitAgentRunRequest {
        namespace: NAMESPACE.to_owned(),
        agent_name: "coder".to_owned(),
        implementation_name: "work".to_owned(),
        runtime_type: "workflow".to_owned(),
        idempotency_key: "k".to_owned(),
        ..SubmitAgentRunRequest::default()
    };
    let first = client
        .submit_agent_run(asked("submitter", submission.clone()))
        .await
        .unwrap()
        .into_inner();
    let second = client
        .submit_agent_run(asked("submitter", submission.clone()))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((first.idempotent, second.idempotent), (false, true));
    let resource: Value = serde_json::from_str(&first.resource_json).unwrap();
    assert_eq!(resource["spec"]["workflow"]["steps"][0]["name"], "implement");
    assert_eq!(resource["spec"]["parameters"]["stage"], "implement");
    let without = SubmitAgentRunRequest {
        idempotency_key: String::new(),
        ..submission
    };
    let refused = client
        .submit_agent_run(asked("submitter", without))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("idempotency_key"), "{refused}");
}

#[tokio::test]
async fn a_stream_of_the_status_ends_when_the_run_has() {
    let stage = Stage::start().await;
    stage.create(Kind::AgentRun, NAMESPACE, agent_run("r")).await;
    let mut client = AgentctlServiceClient::new(serve(&stage).await);
    let request = StreamStatusRequest {
        namespace: NAMESPACE.to_owned(),
        name: "r".to_owned(),
    };
    let mut states = client
        .stream_agent_run_status(asked("reader", request))
        .await
        .unwrap()
        .into_inner();
    let mut phases = vec![states.next().await.unwrap().unwrap().phase];
    for phase in ["Running", "Succeeded"] {
        let patch = json!({"status": {"phase": phase}});
        stage
            .api(Kind::AgentRun, NAMESPACE)
            .patch_status("r", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
        phases.push(states.next().await.unwrap().unwrap().phase);
    }
    assert_eq!(phases, ["Pending", "Running", "Succeeded"]);
    assert!(states.next().await.is_none());
}

#[tokio::test]
async fn runs_are_explained_and_cancelled_and_the_status_is_told() {
    let stage = Stage::start().await;
    stage.create(Kind::AgentRun, NAMESPACE, agent_run("r")).await;
    let mut client = AgentctlServiceClient::new(serve(&stage).await);
    let explain = ExplainRequest {
        namespace: NAMESPACE.to_owned(),
        name: "r".to_owned(),
    };
    let told = client
        .explain_agent_run(asked("reader", explain))
        .await
        .unwrap()
        .into_inner();
    assert!(
        !told.text.is_empty() && told.json.contains("agents/r"),
        "{}",
        told.json
    );
    let cancel = CancelRequest {
        namespace: NAMESPACE.to_owned(),
        name: "r".to_owned(),
        reason: "enough".to_owned(),
    };
    let cancelled = client
        .cancel_agent_run(asked("submitter", cancel))
        .await
        .unwrap()
        .into_inner();
    let run: Value = serde_json::from_str(&cancelled.json).unwrap();
    assert_eq!(
        (&run["spec"]["cancel"], &run["spec"]["cancelReason"]),
        (&json!(true), &json!("enough"))
    );
    let status = GetControlPlaneStatusRequest {
        namespace: NAMESPACE.to_owned(),
    };
    let status = client
        .get_control_plane_status(asked("reader", status))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(status.controllers.len(), 3);
    assert_eq!(status.grpc.unwrap().address, "127.0.0.1:50051");
}

#[tokio::test]
async fn an_object_of_any_kind_is_made_once_and_says_who_made_it() {
    let stage = Stage::start().await;
    let mut client = AgentctlServiceClient::new(serve(&stage).await);
    let manifest = json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun",
        "metadata": {"name": "mine", "labels": {"team": "web"}}, "spec": agent_run("mine")["spec"],
    });
    let create = |manifest: &Value| CreateObjectRequest {
        namespace: NAMESPACE.to_owned(),
        manifest_yaml: manifest.to_string(),
    };
    let refused = client.create_object(asked("reader", create(&manifest))).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    let mut exists = Vec::new();
    let mut made = Vec::new();
    for _ in 0..2 {
        let answer = client
            .create_object(asked("submitter", create(&manifest)))
            .await
            .unwrap()
            .into_inner();
        exists.push(answer.exists);
        made.push(answer.json);
    }
    assert_eq!(exists, [false, true]);
    let run: Value = serde_json::from_str(&made[0]).unwrap();
    assert_eq!(
        run["metadata"]["annotations"]["jangar.proompteng.ai/created-by"],
        "submitter"
    );
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}});
    let refused = client.create_object(asked("admin", create(&other))).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    let identity = client
        .get_identity(asked("reader", GetIdentityRequest {}))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((identity.user.as_str(), identity.groups.len()), ("reader", 1));
    let pods = ListRunPodsRequest {
        namespace: NAMESPACE.to_owned(),
        kind: "AgentRun".to_owned(),
        name: "mine".to_owned(),
        step: String::new(),
    };
    stage
        .eventually(|| stage.plane.world.get(Kind::AgentRun, NAMESPACE, "mine").is_some())
        .await;
    let pods = client.list_run_pods(asked("reader", pods)).await.unwrap();
    assert_eq!(pods.into_inner().json, "[]");
}

#[tokio::test]
async fn a_watch_tells_what_is_there_then_that_this_is_all_then_changes() {
    let stage = Stage::start().await;
    stage.create(Kind::Agent, NAMESPACE, agent("one")).await;
    let mut client = AgentctlServiceClient::new(serve(&stage).await);
    let request = |namespace: &str| WatchObjectsRequest {
        namespace: namespace.to_owned(),
        kind: "Agent".to_owned(),
        ..WatchObjectsRequest::default()
    };
    let refused = client.watch_objects(asked("reader", request("hidden"))).await;
    assert_eq!(refused.unwrap_err().code(), Code::NotFound);
    let mut changes = client
        .watch_objects(asked("reader", request(NAMESPACE)))
        .await
        .unwrap()
        .into_inner();
    let mut told = Vec::new();
    while told.last() != Some(&Change::Listed) {
        told.push(changes.next().await.unwrap().unwrap().change());
    }
    assert_eq!(told, [Change::Relisting, Change::Seen, Change::Listed]);
    stage
        .api(Kind::Agent, NAMESPACE)
        .delete("one", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    let last = changes.next().await.unwrap().unwrap();
    assert_eq!(last.change(), Change::Gone);
    assert!(last.json.contains("\"one\""), "{}", last.json);
}
