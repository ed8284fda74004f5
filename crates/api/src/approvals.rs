//! The group `approvals.proompteng.ai`: who may let a run pass a gate.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    condition::CommonStatus,
    phase::ApprovalPolicyPhase,
    refs::Subject,
    values::{Timestamp, absent_as_default, if_legible},
};

/// Who decides, and what happens if nobody does. Keys beyond those listed are kept.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "approvals.proompteng.ai",
    version = "v1alpha1",
    kind = "ApprovalPolicy",
    plural = "approvalpolicies",
    namespaced,
    status = "ApprovalPolicyStatus",
    derive = "PartialEq",
    shortname = "ap",
    doc = "An ApprovalPolicy says who may approve the gates of orchestrations that name it.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ApprovalPolicySpec {
    /// How a gate is decided. With `phase`, the phase of this object decides, as it did in earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// What is decided when nobody does in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_decision: Option<String>,
    /// Who may decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<Subject>,
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

absent_as_default!(ApprovalPolicySpec);

/// Whether the policy is in effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalPolicyStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// `Active` or `Invalid`. With `spec.mode: phase` a person writes the decision here: Approved, Allowed, Ready or
    /// Succeeded let a gate pass; Denied, Rejected, Blocked or Failed close it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ApprovalPolicyPhase>,
    /// When a gate was last decided under this policy.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_decision_at: Option<Timestamp>,
}
