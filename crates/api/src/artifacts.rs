//! The group `artifacts.proompteng.ai`: what runs leave behind, as objects of their own.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    condition::CommonStatus,
    phase::ObjectPhase,
    refs::OptionalRef,
    values::{Int32, absent_as_default},
};

/// Where the artifact is kept, and for how long.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "artifacts.proompteng.ai",
    version = "v1alpha1",
    kind = "Artifact",
    plural = "artifacts",
    namespaced,
    status = "ArtifactStatus",
    derive = "PartialEq",
    shortname = "art",
    doc = "An Artifact is something that a run left behind and that others can refer to.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "URI", type_ = "string", json_path = ".status.uri")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ArtifactSpec {
    /// The store that keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_ref: Option<OptionalRef>,
    /// How long it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<ArtifactLifecycle>,
}

absent_as_default!(ArtifactSpec);

/// How long an artifact is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactLifecycle {
    /// Days after which it may be deleted. Absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_days: Option<Int32>,
}

/// Where the artifact is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// `Ready` once the artifact was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ObjectPhase>,
    /// Address of the artifact: `storage://<store>`, or `artifact://<namespace>/<name>` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Checksum of its content, as its writer gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}
