//! gRPC: `proompteng.jangar.v1.AgentctlService`, its reflection, and the health service.

mod calls;
mod kinds;
mod objects;
mod pods;
mod streams;
mod value;

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request as HttpRequest, State},
    middleware::{self, Next},
    response::Response as HttpResponse,
};
use jangar_api::Kind;
use jangar_proto::{
    DESCRIPTORS, SERVICE,
    v1::{
        ApplyRequest, ApplyResponse, CancelRequest, CancelResponse, CreateImplementationSpecRequest,
        CreateImplementationSpecResponse, CreateObjectRequest, CreateObjectResponse, DecideRequest,
        DecideResponse, DeleteRequest, DeleteResponse, ExplainRequest, ExplainResponse,
        GetControlPlaneStatusRequest, GetControlPlaneStatusResponse, GetIdentityRequest, GetIdentityResponse,
        GetRequest, GetResponse, GetServerInfoRequest, GetServerInfoResponse, ListApprovalsRequest,
        ListApprovalsResponse, ListEventsRequest, ListEventsResponse, ListRequest, ListResponse,
        ListRightsRequest, ListRightsResponse, ListRunPodsRequest, ListRunPodsResponse, RetryRequest,
        StreamAgentRunLogsRequest, StreamAgentRunLogsResponse, StreamStatusRequest, StreamStatusResponse,
        SubmitAgentRunRequest, SubmitOrchestrationRunRequest, SubmitResponse, WatchObjectsRequest,
        WatchObjectsResponse,
        agentctl_service_server::{AgentctlService, AgentctlServiceServer},
    },
};
use prost::Message;
use prost_types::FileDescriptorSet;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, codegen::BoxStream, service::Routes};

use crate::{
    access::Token,
    http::Peer,
    metrics::Protocol,
    plane::{Caller, ControlPlane},
    refusal::{Refusal, Trouble},
};

/// The largest message that is read. Kubernetes keeps no object that is much larger.
const MESSAGE_MAX_BYTES: usize = 1024 * 1024;
/// How long a call may take until its answer begins. A stream goes on after that.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Calls at once whose answer has not begun. What is more is told to come back.
const CALLS_MAX: usize = 512;
/// What may be called without a token, and is answered whatever else is under way. To watch the health needs one: such a call never ends, and
/// whoever reaches the port could begin any number of them.
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// The paths of all methods, which metrics name.
static METHODS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    // The descriptors are part of the program, and a test reads them.
    let set = FileDescriptorSet::decode(DESCRIPTORS).unwrap_or_default();
    let services = set.file.iter().flat_map(|file| &file.service);
    let methods = services.flat_map(|service| &service.method);
    methods
        .map(|method| format!("/{SERVICE}/{}", method.name()))
        .collect()
});

/// The service for callers.
pub async fn router(plane: Arc<ControlPlane>) -> Result<Router, tonic_reflection::server::Error> {
    let service = AgentctlServiceServer::new(Service {
        plane: Arc::clone(&plane),
    })
    .max_decoding_message_size(MESSAGE_MAX_BYTES);
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<AgentctlServiceServer<Service>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let routes = Routes::new(service).add_service(health).add_service(reflection);
    let bounds = Bounds {
        plane,
        places: Arc::new(Semaphore::new(CALLS_MAX)),
    };
    Ok(routes
        .into_axum_router()
        .layer(middleware::from_fn_with_state(bounds, known)))
}

#[derive(Clone)]
struct Bounds {
    plane: Arc<ControlPlane>,
    places: Arc<Semaphore>,
}

/// Says who calls, bounds calls in number and time, and counts them.
async fn known(State(bounds): State<Bounds>, mut request: HttpRequest, next: Next) -> HttpResponse {
    let Bounds { plane, places } = bounds;
    let started = Instant::now();
    let path = request.uri().path().to_owned();
    let route = METHODS.get(&path).map_or("other", String::as_str);
    let called = async {
        let _place = if path == HEALTH_CHECK {
            None
        } else {
            let place = places
                .try_acquire()
                .map_err(|_| Refusal::unavailable("too many calls are under way"))?;
            let token = Token::of(request.headers())?;
            let identity = plane.gatekeeper.identify(&token).await?;
            let peer = request.extensions().get::<Peer>();
            let source = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.0.to_string());
            request.extensions_mut().insert(Caller { identity, source });
            Some(place)
        };
        Ok::<_, Refusal>(next.run(request).await)
    };
    let response = match tokio::time::timeout(CALL_TIMEOUT, called).await {
        Ok(Ok(response)) => response,
        Ok(Err(refusal)) => Status::from(refusal).into_http(),
        Err(_) => Status::deadline_exceeded("the call took longer than 30 s").into_http(),
    };
    let code = response.headers().get("grpc-status");
    let code = code
        .and_then(|code| code.to_str().ok()?.parse().ok())
        .unwrap_or(0);
    plane
        .metrics
        .request(Protocol::Grpc, "post", route, code, started.elapsed());
    response
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.trouble.grpc(), refusal.to_string())
    }
}

/// Whose call it is.
fn caller<T>(request: &Request<T>) -> Result<Caller, Refusal> {
    let known = request.extensions().get::<Caller>().cloned();
    known.ok_or_else(|| Refusal::new(Trouble::Internal, "nobody said who calls"))
}

/// Answers calls.
#[derive(Debug)]
struct Service {
    plane: Arc<ControlPlane>,
}

/// Writes the service from a table: for each kind its four methods, and then the others, each with the module that has it.
macro_rules! service {
    (
        kinds { $($kind:ident: $list:ident $get:ident $apply:ident $delete:ident,)+ }
        calls { $($method:ident($request:ident) -> $response:ident,)+ }
        streams { $($stream:ident = $stream_method:ident($stream_request:ident) -> $item:ident,)+ }
    ) => {
        #[tonic::async_trait]
        impl AgentctlService for Service {
            $(
                async fn $list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
                    Ok(kinds::list(&self.plane, Kind::$kind, request).await?)
                }

                async fn $get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
                    Ok(kinds::get(&self.plane, Kind::$kind, request).await?)
                }

                async fn $apply(&self, request: Request<ApplyRequest>) -> Result<Response<ApplyResponse>, Status> {
                    Ok(kinds::apply(&self.plane, Kind::$kind, request).await?)
                }

                async fn $delete(&self, request: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
                    Ok(kinds::delete(&self.plane, Kind::$kind, request).await?)
                }
            )+
            $(
                async fn $method(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                    Ok(calls::$method(&self.plane, request).await?)
                }
            )+
            $(
                type $stream = BoxStream<$item>;

                async fn $stream_method(
                    &self,
                    request: Request<$stream_request>,
                ) -> Result<Response<Self::$stream>, Status> {
                    Ok(streams::$stream_method(&self.plane, request).await?)
                }
            )+
        }

        #[cfg(test)]
        const KINDS: &[Kind] = &[$(Kind::$kind),+];
    };
}

service! {
    kinds {
        Agent: list_agents get_agent apply_agent delete_agent,
        AgentProvider: list_agent_providers get_agent_provider apply_agent_provider delete_agent_provider,
        ImplementationSpec: list_implementation_specs get_implementation_spec apply_implementation_spec delete_implementation_spec,
        ImplementationSource: list_implementation_sources get_implementation_source apply_implementation_source delete_implementation_source,
        VersionControlProvider: list_version_control_providers get_version_control_provider apply_version_control_provider delete_version_control_provider,
        Memory: list_memories get_memory apply_memory delete_memory,
        Tool: list_tools get_tool apply_tool delete_tool,
        ToolRun: list_tool_runs get_tool_run apply_tool_run delete_tool_run,
        Orchestration: list_orchestrations get_orchestration apply_orchestration delete_orchestration,
        OrchestrationRun: list_orchestration_runs get_orchestration_run apply_orchestration_run delete_orchestration_run,
        ApprovalPolicy: list_approval_policies get_approval_policy apply_approval_policy delete_approval_policy,
        Budget: list_budgets get_budget apply_budget delete_budget,
        SecretBinding: list_secret_bindings get_secret_binding apply_secret_binding delete_secret_binding,
        Signal: list_signals get_signal apply_signal delete_signal,
        SignalDelivery: list_signal_deliveries get_signal_delivery apply_signal_delivery delete_signal_delivery,
        Schedule: list_schedules get_schedule apply_schedule delete_schedule,
        Artifact: list_artifacts get_artifact apply_artifact delete_artifact,
        Workspace: list_workspaces get_workspace apply_workspace delete_workspace,
        AgentRun: list_agent_runs get_agent_run apply_agent_run delete_agent_run,
    }
    calls {
        get_server_info(GetServerInfoRequest) -> GetServerInfoResponse,
        get_control_plane_status(GetControlPlaneStatusRequest) -> GetControlPlaneStatusResponse,
        create_implementation_spec(CreateImplementationSpecRequest) -> CreateImplementationSpecResponse,
        submit_agent_run(SubmitAgentRunRequest) -> SubmitResponse,
        cancel_agent_run(CancelRequest) -> CancelResponse,
        retry_agent_run(RetryRequest) -> SubmitResponse,
        explain_agent_run(ExplainRequest) -> ExplainResponse,
        submit_orchestration_run(SubmitOrchestrationRunRequest) -> SubmitResponse,
        cancel_orchestration_run(CancelRequest) -> CancelResponse,
        retry_orchestration_run(RetryRequest) -> SubmitResponse,
        explain_orchestration_run(ExplainRequest) -> ExplainResponse,
        list_approvals(ListApprovalsRequest) -> ListApprovalsResponse,
        approve_orchestration_run(DecideRequest) -> DecideResponse,
        reject_orchestration_run(DecideRequest) -> DecideResponse,
        get_identity(GetIdentityRequest) -> GetIdentityResponse,
        create_object(CreateObjectRequest) -> CreateObjectResponse,
        list_events(ListEventsRequest) -> ListEventsResponse,
        list_run_pods(ListRunPodsRequest) -> ListRunPodsResponse,
        cancel_tool_run(CancelRequest) -> CancelResponse,
        list_rights(ListRightsRequest) -> ListRightsResponse,
    }
    streams {
        StreamAgentRunLogsStream = stream_agent_run_logs(StreamAgentRunLogsRequest) -> StreamAgentRunLogsResponse,
        StreamAgentRunStatusStream = stream_agent_run_status(StreamStatusRequest) -> StreamStatusResponse,
        StreamOrchestrationRunStatusStream = stream_orchestration_run_status(StreamStatusRequest) -> StreamStatusResponse,
        StreamToolRunLogsStream = stream_tool_run_logs(StreamAgentRunLogsRequest) -> StreamAgentRunLogsResponse,
        WatchObjectsStream = watch_objects(WatchObjectsRequest) -> WatchObjectsResponse,
    }
}

#[cfg(test)]
mod tests {
    use jangar_proto::Verb;

    use super::*;

    #[test]
    fn every_kind_of_the_one_table_has_its_methods() {
        let mut kinds = KINDS.to_vec();
        kinds.sort();
        assert_eq!(kinds, Kind::ALL);
        for kind in Kind::ALL {
            for verb in Verb::ALL {
                let path = format!("/{SERVICE}/{}", verb.method(&kind.info().kind));
                assert!(METHODS.contains(&path), "{path} is not in the contract");
            }
        }
    }
}
