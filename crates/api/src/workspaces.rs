//! The group `workspaces.proompteng.ai`: volumes that outlive a run.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    condition::CommonStatus,
    phase::WorkspacePhase,
    values::{Int32, absent_as_default},
};

/// How large the volume is, where it comes from, and how long it is kept.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "workspaces.proompteng.ai",
    version = "v1alpha1",
    kind = "Workspace",
    plural = "workspaces",
    namespaced,
    status = "WorkspaceStatus",
    derive = "PartialEq",
    shortname = "ws",
    doc = "A Workspace is a volume that runs can share and that outlives them: a PersistentVolumeClaim of the same name.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Volume", type_ = "string", json_path = ".status.volumeName")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct WorkspaceSpec {
    /// Storage class of the claim. Absent: the default of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Size of the volume as a Kubernetes quantity, for example `10Gi`. A Workspace without one is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Access modes of the claim. Default: `ReadWriteOnce`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<String>,
    /// How long the claim is kept after the Workspace was created, in seconds. Absent: for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<Int32>,
}

absent_as_default!(WorkspaceSpec);

/// Whether the volume is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// `Ready` when the claim is bound, `Pending` before, `Failed` when the volume was lost, `Expired` after its time,
    /// `Invalid` if the spec is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<WorkspacePhase>,
    /// Name of the PersistentVolume that the claim is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
}
