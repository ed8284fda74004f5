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
    values::{Int32, Timestamp, absent_as_default, if_legible},
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
    /// What is decided when nobody does in time: `approve`, or `deny`, which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_decision: Option<String>,
    /// Who may decide: kind `User`, `Group` or `ServiceAccount`. Empty: everybody who may approve at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<Subject>,
    /// How many of them have to approve. Default: 1.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_approvals: Option<Int32>,
    /// Whether whoever created the run may approve it. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_creator: Option<bool>,
    /// After how many seconds a gate is decided as `defaultDecision` says; absent or 0 means never.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_after_seconds: Option<Int32>,
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
