//! Gates that wait for a decision.

use std::sync::Arc;

use axum::extract::State;
use jangar_api::orchestration::orchestration_run::ApprovalDecision;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    answer::Answer,
    extract::{Address, Document, Params, Who},
    objects::InNamespace,
};
use crate::{
    plane::{Caller, ControlPlane, approvals::Decision},
    refusal::Refusal,
};

/// What is decided about a gate.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DecisionBody {
    /// The digest as the list of approvals shows it: so that nobody decides about something else than they saw.
    digest: String,
    /// What there is to say about it.
    comment: Option<String>,
}

pub(super) async fn list(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Params(at): Params<InNamespace>,
) -> Result<Answer, Refusal> {
    let namespace = at
        .namespace
        .unwrap_or_else(|| plane.default_namespace().to_owned());
    let gates = plane.approvals(&caller, &namespace).await?;
    // It is made of texts and numbers.
    Ok(Answer::ok(serde_json::to_value(&gates).unwrap_or_default()))
}

/// Namespace, run and step.
type Gate = (String, String, String);

pub(super) async fn approve(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(gate): Address<Gate>,
    Document(body): Document<DecisionBody>,
) -> Result<Answer, Refusal> {
    decide(&plane, &caller, gate, body, ApprovalDecision::Approved).await
}

pub(super) async fn reject(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(gate): Address<Gate>,
    Document(body): Document<DecisionBody>,
) -> Result<Answer, Refusal> {
    decide(&plane, &caller, gate, body, ApprovalDecision::Denied).await
}

async fn decide(
    plane: &Arc<ControlPlane>,
    caller: &Caller,
    (namespace, run, step): Gate,
    body: DecisionBody,
    decision: ApprovalDecision,
) -> Result<Answer, Refusal> {
    let decision = Decision {
        namespace,
        run,
        step,
        digest: body.digest,
        comment: body.comment,
        decision,
    };
    let resource = plane.decide(caller, decision).await?;
    Ok(Answer::ok(json!({"resource": resource})))
}
