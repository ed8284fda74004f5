//! What gRPC tells a caller of a namespace that they may not see: nothing, not even whether it exists.

use jangar_api::Kind;
use jangar_proto::v1::{
    ApplyRequest, CancelRequest, CreateObjectRequest, DecideRequest, DeleteRequest, ExplainRequest,
    GetControlPlaneStatusRequest, GetRequest, ListApprovalsRequest, ListEventsRequest, ListRequest,
    ListRunPodsRequest, RetryRequest, StreamAgentRunLogsRequest, StreamStatusRequest, SubmitAgentRunRequest,
    SubmitOrchestrationRunRequest, WatchObjectsRequest, agentctl_service_client::AgentctlServiceClient,
};
use serde_json::json;
use tonic::{Code, Status};

use crate::{
    grpc::{asked, serve},
    stage::{HIDDEN, Stage, agent, agent_run},
};

const NOWHERE: &str = "nowhere";
const NAME: &str = "secret-run";

/// A namespace with a run in it, and a queue that is full with that.
async fn stage() -> Stage {
    let stage = Stage::with(|settings| settings.limits.queue.namespace = Some(1)).await;
    stage.create(Kind::Agent, HIDDEN, agent(NAME)).await;
    stage.create(Kind::AgentRun, HIDDEN, agent_run(NAME)).await;
    stage.create(Kind::ToolRun, HIDDEN, agent_run(NAME)).await;
    stage
        .create(Kind::OrchestrationRun, HIDDEN, agent_run(NAME))
        .await;
    stage
}

fn manifest(kind: Kind, name: &str) -> String {
    let info = kind.info();
    let mut manifest = agent_run(name);
    manifest["apiVersion"] = json!(format!("{}/{}", info.group, info.version));
    manifest["kind"] = json!(info.kind);
    manifest.to_string()
}

/// Asks about both namespaces, and holds the refusals against each other.
fn alike<T, U>(what: &str, there: Result<T, Status>, absent: Result<U, Status>) {
    let refused = (there.err(), absent.err());
    assert!(matches!(refused, (Some(_), Some(_))), "{what} is answered");
    let (there, absent) = (refused.0.unwrap(), refused.1.unwrap());
    assert!(
        matches!(there.code(), Code::NotFound | Code::PermissionDenied),
        "{what}: {there}"
    );
    assert_eq!(there.code(), absent.code(), "{what}: {there}, {absent}");
    assert_eq!(
        there.message().replace(HIDDEN, NOWHERE),
        absent.message(),
        "{what}"
    );
}

#[tokio::test]
async fn objects_of_no_kind_are_told_or_changed() {
    let stage = stage().await;
    let router = serve(&stage).await;
    for kind in Kind::ALL {
        let word = kind.info().kind.as_str();
        macro_rules! both {
            ($message:expr) => {{
                let message = $message;
                let there = jangar_proto::call(router.clone(), word, asked("reader", message(HIDDEN))).await;
                let absent =
                    jangar_proto::call(router.clone(), word, asked("reader", message(NOWHERE))).await;
                alike(&format!("{word}: {:?}", message(HIDDEN)), there, absent);
            }};
        }
        both!(|namespace: &str| ListRequest {
            namespace: namespace.to_owned(),
            ..ListRequest::default()
        });
        for archived_too in [false, true] {
            both!(|namespace: &str| GetRequest {
                namespace: namespace.to_owned(),
                name: NAME.to_owned(),
                archived_too,
            });
        }
        both!(|namespace: &str| DeleteRequest {
            namespace: namespace.to_owned(),
            name: NAME.to_owned(),
        });
        for (name, dry_run) in [(NAME, false), ("new", false), ("new", true)] {
            both!(|namespace: &str| ApplyRequest {
                namespace: namespace.to_owned(),
                manifest_yaml: manifest(*kind, name),
                dry_run,
                ..ApplyRequest::default()
            });
        }
        let mut client = AgentctlServiceClient::new(router.clone());
        let create = |namespace: &str| CreateObjectRequest {
            namespace: namespace.to_owned(),
            manifest_yaml: manifest(*kind, "new"),
        };
        let there = client.create_object(asked("reader", create(HIDDEN))).await;
        let absent = client.create_object(asked("reader", create(NOWHERE))).await;
        alike(&format!("create {word}"), there, absent);
    }
}

#[tokio::test]
async fn nothing_is_told_of_runs_and_nothing_done_with_them() {
    let stage = stage().await;
    let mut client = AgentctlServiceClient::new(serve(&stage).await);
    macro_rules! both {
        ($($method:ident),+: $message:expr) => {{
            let message = $message;
            $(
                let there = client.$method(asked("reader", message(HIDDEN.to_owned()))).await;
                let absent = client.$method(asked("reader", message(NOWHERE.to_owned()))).await;
                alike(stringify!($method), there, absent);
            )+
        }};
    }
    let name = || NAME.to_owned();
    both!(explain_agent_run, explain_orchestration_run: |namespace| ExplainRequest { namespace, name: name() });
    both!(cancel_agent_run, cancel_orchestration_run, cancel_tool_run: |namespace| CancelRequest {
        namespace,
        name: name(),
        reason: String::new(),
    });
    both!(retry_agent_run, retry_orchestration_run: |namespace| RetryRequest {
        namespace,
        name: name(),
        idempotency_key: "k".to_owned(),
    });
    both!(stream_agent_run_status, stream_orchestration_run_status: |namespace| StreamStatusRequest {
        namespace,
        name: name(),
    });
    both!(stream_agent_run_logs, stream_tool_run_logs: |namespace| StreamAgentRunLogsRequest {
        namespace,
        name: name(),
        ..StreamAgentRunLogsRequest::default()
    });
    both!(submit_agent_run: |namespace| SubmitAgentRunRequest {
        namespace,
        agent_name: name(),
        implementation_text: "do it".to_owned(),
        runtime_type: "job".to_owned(),
        idempotency_key: "k".to_owned(),
        ..SubmitAgentRunRequest::default()
    });
    both!(submit_orchestration_run: |namespace| SubmitOrchestrationRunRequest {
        namespace,
        orchestration_name: name(),
        idempotency_key: "k".to_owned(),
        ..SubmitOrchestrationRunRequest::default()
    });
    both!(approve_orchestration_run, reject_orchestration_run: |namespace| DecideRequest {
        namespace,
        run: name(),
        step: "gate".to_owned(),
        digest: "d".to_owned(),
        comment: String::new(),
    });
    both!(list_approvals: |namespace| ListApprovalsRequest {
        namespace,
        ..ListApprovalsRequest::default()
    });
    both!(list_events: |namespace| ListEventsRequest {
        namespace,
        kind: "AgentRun".to_owned(),
        name: name(),
        ..ListEventsRequest::default()
    });
    both!(list_run_pods: |namespace| ListRunPodsRequest {
        namespace,
        kind: "AgentRun".to_owned(),
        name: name(),
        step: String::new(),
    });
    both!(watch_objects: |namespace| WatchObjectsRequest {
        namespace,
        kind: "AgentRun".to_owned(),
        ..WatchObjectsRequest::default()
    });
    both!(get_control_plane_status: |namespace| GetControlPlaneStatusRequest { namespace });
}
