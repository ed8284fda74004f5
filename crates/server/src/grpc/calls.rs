//! The calls that are about more than one object of one kind.

use std::sync::Arc;

use jangar_api::{
    Kind,
    orchestration::orchestration_run::ApprovalDecision,
    rights::{FOR_RUNS, TO_APPROVE},
};
use jangar_proto::v1::{
    CancelRequest, CancelResponse, ControllerStatus, CreateImplementationSpecRequest,
    CreateImplementationSpecResponse, DatabaseStatus, DecideRequest, DecideResponse, ExplainRequest,
    ExplainResponse, GetControlPlaneStatusRequest, GetControlPlaneStatusResponse, GetIdentityRequest,
    GetIdentityResponse, GetServerInfoRequest, GetServerInfoResponse, GrpcStatus, KeyValue,
    LeaderElectionStatus, ListApprovalsRequest, ListApprovalsResponse, ListRightsRequest, ListRightsResponse,
    NamespaceStatus, PendingApproval, RetryRequest, Right, RuntimeAdapterStatus, SubmitAgentRunRequest,
    SubmitOrchestrationRunRequest, SubmitResponse,
};
use serde_json::{Map, Value, json};
use tonic::{Request, Response};

use super::{caller, value};
pub(super) use super::{
    objects::{create_object, list_events},
    pods::list_run_pods,
};
use crate::{
    access::Question,
    plane::{
        Caller, ControlPlane,
        approvals::{Decision, GatesQuery},
        objects::checked_namespace,
        runs::Run,
        status::{SERVICE, StatusDocument},
        submit::{AgentRunSubmission, OrchestrationRunSubmission, PolicyRefs, Submitted, checked_key},
    },
    refusal::{Refusal, Trouble},
};

type Answer<T> = Result<Response<T>, Refusal>;

pub(super) async fn get_server_info(
    plane: &Arc<ControlPlane>,
    _: Request<GetServerInfoRequest>,
) -> Answer<GetServerInfoResponse> {
    let about = plane.about.clone();
    Ok(Response::new(GetServerInfoResponse {
        version: about.version,
        build_sha: about.build_sha,
        build_time: about.build_time,
        service: SERVICE.to_owned(),
    }))
}

pub(super) async fn get_identity(
    _: &Arc<ControlPlane>,
    request: Request<GetIdentityRequest>,
) -> Answer<GetIdentityResponse> {
    let caller = caller(&request)?;
    Ok(Response::new(GetIdentityResponse {
        user: caller.identity.user.clone(),
        groups: caller.identity.groups.clone(),
    }))
}

pub(super) async fn list_rights(
    plane: &Arc<ControlPlane>,
    request: Request<ListRightsRequest>,
) -> Answer<ListRightsResponse> {
    let caller = caller(&request)?;
    let namespace = match request.get_ref().namespace.as_str() {
        "" => plane.default_namespace(),
        namespace => namespace,
    };
    checked_namespace(namespace)?;
    let identity = &caller.identity;
    // In turn: who asks for all of them takes one place of those who ask Kubernetes, and not ten.
    let mut rights = Vec::new();
    for right in FOR_RUNS.iter().chain([&TO_APPROVE]) {
        let question = Question::Right {
            right: *right,
            namespace: namespace.to_owned(),
        };
        let allowed = plane.gatekeeper.may(identity, &question).await?;
        rights.push(Right {
            group: right.group.to_owned(),
            resource: right.resource.to_owned(),
            subresource: right.subresource.to_owned(),
            verb: right.verb.to_owned(),
            purpose: right.purpose.to_owned(),
            allowed,
        });
    }
    Ok(Response::new(ListRightsResponse { rights }))
}

pub(super) async fn get_control_plane_status(
    plane: &Arc<ControlPlane>,
    request: Request<GetControlPlaneStatusRequest>,
) -> Answer<GetControlPlaneStatusResponse> {
    let caller = caller(&request)?;
    let status = plane.status(&caller, Some(&request.get_ref().namespace)).await?;
    Ok(Response::new(of_status(status)))
}

fn of_status(status: StatusDocument) -> GetControlPlaneStatusResponse {
    let controllers = status.controllers.into_iter().map(|controller| ControllerStatus {
        name: controller.name,
        enabled: controller.enabled,
        started: controller.started,
        crds_ready: controller.crds_ready,
        missing_crds: controller.missing_crds,
        last_checked_at: controller.last_checked_at,
        status: controller.status.text().to_owned(),
        message: controller.message,
    });
    let adapters = status
        .runtime_adapters
        .into_iter()
        .map(|adapter| RuntimeAdapterStatus {
            name: adapter.name,
            available: adapter.available,
            status: adapter.status.text().to_owned(),
            message: adapter.message,
        });
    let namespaces = status.namespaces.into_iter().map(|namespace| NamespaceStatus {
        namespace: namespace.namespace,
        status: namespace.status.text().to_owned(),
        degraded_components: namespace.degraded_components,
    });
    GetControlPlaneStatusResponse {
        service: status.service,
        generated_at: status.generated_at,
        controllers: controllers.collect(),
        runtime_adapters: adapters.collect(),
        database: Some(DatabaseStatus {
            configured: status.database.configured,
            connected: status.database.connected,
            status: status.database.status.text().to_owned(),
            message: status.database.message,
            latency_ms: i64::try_from(status.database.latency_ms).unwrap_or(i64::MAX),
        }),
        grpc: Some(GrpcStatus {
            enabled: status.grpc.enabled,
            address: status.grpc.address,
            status: status.grpc.status.text().to_owned(),
            message: status.grpc.message,
        }),
        namespaces: namespaces.collect(),
        leader_election: Some(LeaderElectionStatus {
            enabled: status.leader_election.enabled,
            lease_name: status.leader_election.lease_name,
            lease_namespace: status.leader_election.lease_namespace,
            holder: status.leader_election.holder.unwrap_or_default(),
        }),
    }
}

pub(super) async fn create_implementation_spec(
    plane: &Arc<ControlPlane>,
    request: Request<CreateImplementationSpecRequest>,
) -> Answer<CreateImplementationSpecResponse> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let namespace = plane.namespace(Some(&request.namespace))?;
    if request.text.trim().is_empty() {
        return Err(Refusal::missing("text").remedy("say what is to be done"));
    }
    let mut spec = json!({"text": request.text});
    if !request.summary.is_empty() {
        spec["summary"] = json!(request.summary);
    }
    if let Some(source) = request.source {
        let mut origin = json!({"provider": source.provider});
        for (field, text) in [("externalId", source.external_id), ("url", source.url)] {
            if !text.is_empty() {
                origin[field] = json!(text);
            }
        }
        spec["source"] = origin;
    }
    let info = Kind::ImplementationSpec.info();
    let manifest = json!({
        "apiVersion": format!("{}/{}", info.group, info.version), "kind": info.kind,
        "metadata": {"generateName": "impl-"}, "spec": spec,
    });
    let object = plane
        .create(
            &caller,
            "implementation_spec.created",
            Kind::ImplementationSpec,
            &namespace,
            manifest,
        )
        .await?;
    Ok(Response::new(CreateImplementationSpecResponse {
        json: object.json.to_string(),
    }))
}

pub(super) async fn submit_agent_run(
    plane: &Arc<ControlPlane>,
    request: Request<SubmitAgentRunRequest>,
) -> Answer<SubmitResponse> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let key = checked_key("idempotency_key", Some(&request.idempotency_key))?;
    let submission = submission(request)?;
    let submitted = plane.submit_agent_run(&caller, &key, submission).await?;
    Ok(of_submitted(&submitted))
}

/// The submission that HTTP has as JSON. A workflow has one step, which is called after the parameter or the setting `stage`.
fn submission(request: SubmitAgentRunRequest) -> Result<AgentRunSubmission, Refusal> {
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let mut parameters = pairs(request.parameters);
    let config: Map<String, Value> = request
        .runtime_config
        .into_iter()
        .map(|entry| {
            let plain = Value::String(entry.value);
            (entry.key, entry.structured.map_or(plain, value::json))
        })
        .collect();
    let mut body = json!({
        "agentRef": {"name": request.agent_name},
        "runtime": {"type": request.runtime_type},
        "secrets": request.secrets,
        "priority": request.priority,
        "policy": {
            "budgetRef": given(&request.budget_ref),
            "secretBindingRef": given(&request.secret_binding_ref),
        },
    });
    if request.runtime_type == "workflow" {
        let stage = parameters
            .get("stage")
            .or_else(|| config.get("stage"))
            .and_then(Value::as_str)
            .unwrap_or("implement")
            .to_owned();
        parameters.insert("stage".to_owned(), json!(stage));
        body["workflow"] = json!({"steps": [{"name": stage}]});
    }
    body["parameters"] = Value::Object(parameters);
    if !config.is_empty() {
        body["runtime"]["config"] = Value::Object(config);
    }
    for (field, name) in [
        ("implementationSpecRef", &request.implementation_name),
        ("memoryRef", &request.memory_ref),
        ("vcsRef", &request.vcs_ref),
    ] {
        if !name.is_empty() {
            body[field] = json!({"name": name});
        }
    }
    if let Some(text) = given(&request.implementation_text) {
        body["implementation"] = json!({"inline": {"text": text}});
    }
    if let Some(namespace) = given(&request.namespace) {
        body["namespace"] = json!(namespace);
    }
    if !request.vcs_policy_mode.is_empty() || request.vcs_policy_required {
        body["vcsPolicy"] = json!({"required": request.vcs_policy_required});
        if let Some(mode) = given(&request.vcs_policy_mode) {
            body["vcsPolicy"]["mode"] = json!(mode);
        }
    }
    if let Some(workload) = request.workload {
        body["workload"] = self::workload(&workload);
    }
    serde_path_to_error::deserialize(body).map_err(|error| {
        let path = error.path().to_string();
        Refusal::new(Trouble::BadRequest, format!("{path}: {}", error.inner()))
            .named(&path)
            .remedy("correct the field")
    })
}

fn workload(workload: &jangar_proto::v1::Workload) -> Value {
    let mut body = json!({});
    if !workload.image.is_empty() {
        body["image"] = json!(workload.image);
    }
    // What the pod asks for is what it may use.
    let amounts: Map<String, Value> = [("cpu", &workload.cpu), ("memory", &workload.memory)]
        .into_iter()
        .filter(|(_, amount)| !amount.is_empty())
        .map(|(name, amount)| (name.to_owned(), json!(amount)))
        .collect();
    if !amounts.is_empty() {
        body["resources"] = json!({"requests": amounts, "limits": amounts});
    }
    body
}

fn pairs(pairs: Vec<KeyValue>) -> Map<String, Value> {
    pairs
        .into_iter()
        .map(|pair| (pair.key, Value::String(pair.value)))
        .collect()
}

pub(super) async fn submit_orchestration_run(
    plane: &Arc<ControlPlane>,
    request: Request<SubmitOrchestrationRunRequest>,
) -> Answer<SubmitResponse> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let key = checked_key("idempotency_key", Some(&request.idempotency_key))?;
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    let submission = OrchestrationRunSubmission {
        orchestration_ref: jangar_api::refs::LocalRef {
            name: request.orchestration_name,
        },
        namespace: given(request.namespace),
        parameters: request
            .parameters
            .into_iter()
            .map(|pair| (pair.key, pair.value))
            .collect(),
        policy: Some(PolicyRefs {
            budget_ref: given(request.budget_ref),
            secret_binding_ref: None,
        }),
    };
    let submitted = plane.submit_orchestration_run(&caller, &key, submission).await?;
    Ok(of_submitted(&submitted))
}

fn of_submitted(submitted: &Submitted) -> Response<SubmitResponse> {
    Response::new(SubmitResponse {
        resource_json: submitted.resource.to_string(),
        // It is made of texts.
        record_json: serde_json::to_string(&submitted.record).unwrap_or_default(),
        idempotent: submitted.idempotent,
    })
}

async fn find(
    plane: &ControlPlane,
    caller: &Caller,
    kind: Kind,
    namespace: &str,
    name: &str,
) -> Result<Run, Refusal> {
    let namespace = plane.namespace(Some(namespace))?;
    plane.run(caller, name, Some(&namespace), Some(kind)).await
}

pub(super) async fn cancel_agent_run(
    plane: &Arc<ControlPlane>,
    request: Request<CancelRequest>,
) -> Answer<CancelResponse> {
    cancel(plane, Kind::AgentRun, request).await
}

pub(super) async fn cancel_orchestration_run(
    plane: &Arc<ControlPlane>,
    request: Request<CancelRequest>,
) -> Answer<CancelResponse> {
    cancel(plane, Kind::OrchestrationRun, request).await
}

pub(super) async fn cancel_tool_run(
    plane: &Arc<ControlPlane>,
    request: Request<CancelRequest>,
) -> Answer<CancelResponse> {
    cancel(plane, Kind::ToolRun, request).await
}

async fn cancel(
    plane: &Arc<ControlPlane>,
    kind: Kind,
    request: Request<CancelRequest>,
) -> Answer<CancelResponse> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let run = find(plane, &caller, kind, &request.namespace, &request.name).await?;
    let cancelled = plane.cancel(&caller, run.live()?, Some(&request.reason)).await?;
    Ok(Response::new(CancelResponse {
        ok: true,
        message: cancelled.message,
        json: cancelled.resource.to_string(),
    }))
}

pub(super) async fn retry_agent_run(
    plane: &Arc<ControlPlane>,
    request: Request<RetryRequest>,
) -> Answer<SubmitResponse> {
    retry(plane, Kind::AgentRun, request).await
}

pub(super) async fn retry_orchestration_run(
    plane: &Arc<ControlPlane>,
    request: Request<RetryRequest>,
) -> Answer<SubmitResponse> {
    retry(plane, Kind::OrchestrationRun, request).await
}

async fn retry(
    plane: &Arc<ControlPlane>,
    kind: Kind,
    request: Request<RetryRequest>,
) -> Answer<SubmitResponse> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let key = checked_key("idempotency_key", Some(&request.idempotency_key))?;
    let run = find(plane, &caller, kind, &request.namespace, &request.name).await?;
    let submitted = plane.retry(&caller, run.live()?, &key).await?;
    Ok(of_submitted(&submitted))
}

pub(super) async fn explain_agent_run(
    plane: &Arc<ControlPlane>,
    request: Request<ExplainRequest>,
) -> Answer<ExplainResponse> {
    explained(plane, Kind::AgentRun, request).await
}

pub(super) async fn explain_orchestration_run(
    plane: &Arc<ControlPlane>,
    request: Request<ExplainRequest>,
) -> Answer<ExplainResponse> {
    explained(plane, Kind::OrchestrationRun, request).await
}

async fn explained(
    plane: &Arc<ControlPlane>,
    kind: Kind,
    request: Request<ExplainRequest>,
) -> Answer<ExplainResponse> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let run = find(plane, &caller, kind, &request.namespace, &request.name).await?;
    let explanation = plane.explain(&caller, &run).await?;
    Ok(Response::new(ExplainResponse {
        text: explanation.headline.clone(),
        // It is made of texts.
        json: serde_json::to_string(&explanation).unwrap_or_default(),
        archived: run.live().is_err(),
    }))
}

pub(super) async fn list_approvals(
    plane: &Arc<ControlPlane>,
    request: Request<ListApprovalsRequest>,
) -> Answer<ListApprovalsResponse> {
    let caller = caller(&request)?;
    let ListApprovalsRequest {
        namespace,
        limit,
        cursor,
        brief,
    } = request.into_inner();
    let query = GatesQuery {
        namespace: match namespace.as_str() {
            "" => plane.default_namespace().to_owned(),
            _ => namespace,
        },
        limit,
        cursor,
        brief,
    };
    let gates = plane.approvals(&caller, query).await?;
    let approvals = gates.approvals.into_iter().map(|approval| PendingApproval {
        namespace: approval.namespace,
        run: approval.run,
        step: approval.step,
        policy: approval.policy,
        digest: approval.digest,
        since: approval.since.unwrap_or_default(),
        created_by: approval.created_by.unwrap_or_default(),
        required: approval.required,
        approved_by: approval.approved_by,
        // It is made of texts and of JSON.
        shown_json: approval
            .shown
            .and_then(|shown| serde_json::to_string(&shown).ok())
            .unwrap_or_default(),
    });
    Ok(Response::new(ListApprovalsResponse {
        approvals: approvals.collect(),
        unreadable: gates.unreadable.iter().map(ToString::to_string).collect(),
        next_cursor: gates.next_cursor.unwrap_or_default(),
    }))
}

pub(super) async fn approve_orchestration_run(
    plane: &Arc<ControlPlane>,
    request: Request<DecideRequest>,
) -> Answer<DecideResponse> {
    decide(plane, request, ApprovalDecision::Approved).await
}

pub(super) async fn reject_orchestration_run(
    plane: &Arc<ControlPlane>,
    request: Request<DecideRequest>,
) -> Answer<DecideResponse> {
    decide(plane, request, ApprovalDecision::Denied).await
}

async fn decide(
    plane: &Arc<ControlPlane>,
    request: Request<DecideRequest>,
    decision: ApprovalDecision,
) -> Answer<DecideResponse> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let decision = Decision {
        namespace: plane.namespace(Some(&request.namespace))?,
        run: request.run,
        step: request.step,
        digest: request.digest,
        comment: Some(request.comment).filter(|comment| !comment.is_empty()),
        decision,
    };
    let resource = plane.decide(&caller, decision).await?;
    Ok(Response::new(DecideResponse {
        json: resource.to_string(),
    }))
}

#[cfg(test)]
mod tests {
    use jangar_proto::v1::RuntimeConfigEntry;
    use prost_types::value::Kind as Structured;

    use super::*;

    fn request(runtime: &str) -> SubmitAgentRunRequest {
        SubmitAgentRunRequest {
            namespace: "a".to_owned(),
            agent_name: "coder".to_owned(),
            implementation_name: "work".to_owned(),
            runtime_type: runtime.to_owned(),
            ..SubmitAgentRunRequest::default()
        }
    }

    #[test]
    fn a_workflow_has_one_step_called_after_its_stage() {
        let implement = submission(request("workflow")).expect("a submission");
        let step = |submission: &AgentRunSubmission| {
            let workflow = submission.workflow.as_ref().expect("steps");
            workflow.steps.first().map(|step| step.name.clone())
        };
        assert_eq!(step(&implement), Some("implement".to_owned()));
        assert_eq!(
            implement.parameters.get("stage").map(String::as_str),
            Some("implement")
        );
        let mut review = request("workflow");
        review.parameters.push(KeyValue {
            key: "stage".to_owned(),
            value: "review".to_owned(),
        });
        assert_eq!(
            step(&submission(review).expect("a submission")),
            Some("review".to_owned())
        );
        assert!(
            submission(request("job"))
                .expect("a submission")
                .workflow
                .is_none()
        );
    }

    #[test]
    fn a_structured_setting_wins_over_a_plain_one() {
        let mut asked = request("job");
        asked.runtime_config = vec![
            RuntimeConfigEntry {
                key: "backoffLimit".to_owned(),
                value: "text".to_owned(),
                structured: Some(prost_types::Value {
                    kind: Some(Structured::NumberValue(2.0)),
                }),
            },
            RuntimeConfigEntry {
                key: "serviceAccount".to_owned(),
                value: "runner".to_owned(),
                structured: None,
            },
        ];
        let config = submission(asked).expect("a submission").runtime.config;
        let config = serde_json::to_value(config).expect("JSON");
        assert_eq!(config, json!({"backoffLimit": 2, "serviceAccount": "runner"}));
    }
}
