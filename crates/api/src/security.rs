//! The group `security.proompteng.ai`: who may use which Secrets.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{condition::CommonStatus, phase::ObjectPhase, refs::Subject, values::absent_as_default};

/// Who may use which Secrets.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "security.proompteng.ai",
    version = "v1alpha1",
    kind = "SecretBinding",
    plural = "secretbindings",
    namespaced,
    status = "SecretBindingStatus",
    derive = "PartialEq",
    shortname = "sb",
    doc = "A SecretBinding lets the agents it names use the Secrets it lists. A submission that needs Secrets must name \
           one that covers them.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct SecretBindingSpec {
    /// Who may use the Secrets, usually of kind `Agent`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<Subject>,
    /// Names of the Secrets, in the namespace of the binding.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_secrets: Vec<String>,
}

absent_as_default!(SecretBindingSpec);

/// Whether the binding is in effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretBindingStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// `Ready`, or `Invalid` if it has no subjects or no secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ObjectPhase>,
}
