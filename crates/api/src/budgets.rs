//! The group `budgets.proompteng.ai`: how much may be used.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{condition::CommonStatus, phase::BudgetPhase, values::absent_as_default};

/// How much may be used.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "budgets.proompteng.ai",
    version = "v1alpha1",
    kind = "Budget",
    plural = "budgets",
    namespaced,
    status = "BudgetStatus",
    derive = "PartialEq",
    shortname = "bud",
    doc = "A Budget bounds what runs may use. A submission that names a Budget is refused when it is used up.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct BudgetSpec {
    /// The most that may be used. What is left out is not limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Amounts>,
}

absent_as_default!(BudgetSpec);

/// Amounts by resource. Keys beyond those listed are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// Tokens of language models, as a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<String>,
    /// US dollars, as a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dollars: Option<String>,
    /// Processors, as a Kubernetes quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory, as a Kubernetes quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Graphics processors, as a Kubernetes quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// How much has been used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// Where the budget stands: Active, or Exceeded, Blocked, Failed or Denied, which refuse submissions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<BudgetPhase>,
    /// What has been used so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Amounts>,
}
