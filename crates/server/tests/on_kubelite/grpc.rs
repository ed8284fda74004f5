//! The same over gRPC.

use axum::Router;
use futures::StreamExt;
use jangar_api::{Kind, labels};
use jangar_proto::v1::{
    ApplyRequest, CancelRequest, CreateObjectRequest, DecideRequest, DeleteRequest, ExplainRequest,
    GetControlPlaneStatusRequest, GetIdentityRequest, GetRequest, GetServerInfoRequest, ListRequest,
    ListRightsRequest, ListRunPodsRequest, RetryRequest, RuntimeConfigEntry, StreamStatusRequest,
    SubmitAgentRunRequest, WatchObjectsRequest, agentctl_service_client::AgentctlServiceClient,
    watch_objects_response::Change,
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tonic::{Code, Request};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::stage::{HIDDEN, NAMESPACE, Stage, agent, agent_run};

pub(crate) fn asked<T>(user: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let token = format!("Bearer token-of-{user}");
    request
        .metadata_mut()
        .insert("authorization", token.parse().unwrap());
    request
}

pub(crate) async fn serve(stage: &Stage) -> Router {
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

/// JSON as a value of protobuf.
fn structured(json: &Value) -> prost_types::Value {
    use prost_types::value::Kind;
    let kind = match json {
        Value::Null => Kind::NullValue(0),
        Value::Bool(truth) => Kind::BoolValue(*truth),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => Kind::ListValue(prost_types::ListValue {
            values: items.iter().map(structured).collect(),
        }),
        Value::Object(fields) => Kind::StructValue(prost_types::Struct {
            fields: fields
                .iter()
                .map(|(name, value)| (name.clone(), structured(value)))
                .collect(),
        }),
    };
    prost_types::Value { kind: Some(kind) }
}

#[tokio::test]
async fn a_submission_with_structured_settings_is_made_once() {
    let stage = Stage::start().await;
    stage.create(Kind::Agent, NAMESPACE, agent("coder")).await;
    let mut client = AgentctlServiceClient::new(serve(&stage).await);
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "agent"}},
    }]);
    let submission = SubmitAgentRunRequest {
        namespace: NAMESPACE.to_owned(),
        agent_name: "coder".to_owned(),
        implementation_name: "work".to_owned(),
        runtime_type: "workflow".to_owned(),
        idempotency_key: "k".to_owned(),
        runtime_config: vec![RuntimeConfigEntry {
            key: "topologySpreadConstraints".to_owned(),
            value: String::new(),
            structured: Some(structured(&spread)),
        }],
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
    assert_eq!(
        resource["spec"]["runtime"]["config"]["topologySpreadConstraints"],
        spread
    );
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
async fn a_run_that_has_ended_is_run_again_once() {
    let stage = Stage::start().await;
    let ended = |mut run: Value| {
        run["status"] = json!({"phase": "Failed"});
        run
    };
    stage
        .create(Kind::AgentRun, NAMESPACE, ended(agent_run("r")))
        .await;
    let orchestration = json!({"metadata": {"name": "o"}, "spec": {"orchestrationRef": {"name": "release"}}});
    stage
        .create(Kind::OrchestrationRun, NAMESPACE, ended(orchestration))
        .await;
    let mut client = AgentctlServiceClient::new(serve(&stage).await);
    let again = |name: &str, key: &str| RetryRequest {
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        idempotency_key: key.to_owned(),
    };
    for (name, key_field) in [("r", "idempotencyKey"), ("o", "deliveryId")] {
        let mut made = Vec::new();
        for _ in 0..2 {
            let request = asked("submitter", again(name, "again"));
            let answer = match name {
                "r" => client.retry_agent_run(request).await,
                _ => client.retry_orchestration_run(request).await,
            };
            made.push(answer.unwrap().into_inner());
        }
        assert_eq!((made[0].idempotent, made[1].idempotent), (false, true), "{name}");
        let run: Value = serde_json::from_str(&made[0].resource_json).unwrap();
        assert_eq!(run["metadata"]["annotations"][labels::RETRY_OF], name);
        assert_eq!(run["spec"][key_field], "again");
    }
    let keyless = client.retry_agent_run(asked("submitter", again("r", ""))).await;
    assert_eq!(keyless.unwrap_err().code(), Code::InvalidArgument);
    let refused = client.retry_agent_run(asked("reader", again("r", "k"))).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_gate_is_decided_by_whom_the_policy_names() {
    let stage = crate::approvals::stage().await;
    let mut client = AgentctlServiceClient::new(serve(&stage).await);
    let decision = |digest: &str| DecideRequest {
        namespace: NAMESPACE.to_owned(),
        run: "r".to_owned(),
        step: "gate".to_owned(),
        digest: digest.to_owned(),
        comment: "looks good".to_owned(),
    };
    let other = client
        .approve_orchestration_run(asked("approver", decision("d0")))
        .await;
    assert_eq!(
        other.unwrap_err().code(),
        Code::FailedPrecondition,
        "they saw something else"
    );
    for user in ["reader", "stranger"] {
        let refused = client.reject_orchestration_run(asked(user, decision("d1"))).await;
        assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied, "{user}");
    }
    let decided = async || {
        let run = stage.api(Kind::OrchestrationRun, NAMESPACE).get("r").await;
        run.unwrap().data["status"]["approvals"].clone()
    };
    assert_eq!(decided().await, Value::Null);
    client
        .approve_orchestration_run(asked("approver", decision("d1")))
        .await
        .unwrap();
    assert_eq!(decided().await[0]["decision"], "Approved");
    client
        .reject_orchestration_run(asked("approver", decision("d1")))
        .await
        .unwrap();
    let decided = decided().await;
    assert_eq!(
        (
            &decided[0]["decision"],
            &decided[0]["by"],
            decided.as_array().unwrap().len()
        ),
        (&json!("Denied"), &json!("approver"), 1)
    );
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
async fn what_the_caller_may_do_is_what_kubernetes_says_of_them() {
    let stage = Stage::start().await;
    let client = AgentctlServiceClient::new(serve(&stage).await);
    let lacking = async |user: &str, namespace: &str| -> Vec<String> {
        let request = ListRightsRequest {
            namespace: namespace.to_owned(),
        };
        let rights = client.clone().list_rights(asked(user, request)).await.unwrap();
        let rights = rights.into_inner().rights.into_iter();
        let lacking = rights.filter(|right| !right.allowed);
        lacking
            .map(|right| format!("{} {}", right.verb, right.resource))
            .collect()
    };
    assert!(lacking("admin", NAMESPACE).await.is_empty());
    assert_eq!(
        lacking("submitter", NAMESPACE).await,
        ["approve orchestrationruns"]
    );
    assert_eq!(
        lacking("approver", NAMESPACE).await,
        [
            "create agentruns",
            "patch agentruns",
            "create orchestrationruns",
            "patch orchestrationruns"
        ]
    );
    // Of a namespace that they may not see nothing is told, not even whether it is there.
    let hidden = lacking("approver", HIDDEN).await;
    assert_eq!(hidden, lacking("approver", "nowhere").await);
    assert_eq!(hidden.len(), 10);
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
