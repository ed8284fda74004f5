//! Gates that wait for a decision.

use std::sync::Arc;

use axum::extract::State;
use jangar_api::orchestration::orchestration_run::ApprovalDecision;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    answer::Answer,
    bodies::OneObject,
    extract::{Address, Document, Params, Who},
};
use crate::{
    plane::{
        Caller, ControlPlane,
        approvals::{Decision, Gates, GatesQuery},
    },
    refusal::Refusal,
};

/// Which gates are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct GateList {
    /// `*` is every one; absent: the namespace of Jangar itself.
    namespace: Option<String>,
    /// At most 500. The gates of one run are not parted, so that there may be more by those of the last run.
    limit: Option<u32>,
    /// Where the page before this one ended.
    cursor: Option<String>,
}

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
    Params(query): Params<GateList>,
) -> Result<Answer<Gates>, Refusal> {
    let query = GatesQuery {
        namespace: query
            .namespace
            .unwrap_or_else(|| plane.default_namespace().to_owned()),
        limit: query.limit.unwrap_or_default(),
        brief: false,
        cursor: query.cursor.unwrap_or_default(),
    };
    Ok(Answer::ok(plane.approvals(&caller, query).await?))
}

/// Namespace, run and step.
type Gate = (String, String, String);

pub(super) async fn approve(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(gate): Address<Gate>,
    Document(body): Document<DecisionBody>,
) -> Result<Answer<OneObject>, Refusal> {
    decide(&plane, &caller, gate, body, ApprovalDecision::Approved).await
}

pub(super) async fn reject(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(gate): Address<Gate>,
    Document(body): Document<DecisionBody>,
) -> Result<Answer<OneObject>, Refusal> {
    decide(&plane, &caller, gate, body, ApprovalDecision::Denied).await
}

async fn decide(
    plane: &Arc<ControlPlane>,
    caller: &Caller,
    (namespace, run, step): Gate,
    body: DecisionBody,
    decision: ApprovalDecision,
) -> Result<Answer<OneObject>, Refusal> {
    let decision = Decision {
        namespace,
        run,
        step,
        digest: body.digest,
        comment: body.comment,
        decision,
    };
    let resource = plane.decide(caller, decision).await?.into();
    Ok(Answer::ok(OneObject { resource }))
}
