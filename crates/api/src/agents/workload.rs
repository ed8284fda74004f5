//! The pod of a run: image, resources and volumes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::strings::string_enum;

/// The pod that a run or a step of it runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Container image. Absent: the image that the controllers are configured with; if there is none either, the run is
    /// refused with `MissingWorkloadImage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What the container asks for and may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<WorkloadResources>,
    /// Volumes to mount into the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<WorkloadVolume>,
}

/// Resources of the container, as Kubernetes quantities by resource name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadResources {
    /// The most the container may use, for example `cpu: "2"` or `memory: 4Gi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<BTreeMap<String, String>>,
    /// What is set aside for the container on its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<BTreeMap<String, String>>,
}

string_enum! {
    /// What a volume is made of.
    closed enum VolumeType {
        EmptyDir = "emptyDir",
        Pvc = "pvc",
        Secret = "secret",
    }
}

/// A volume and where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadVolume {
    /// Name of the volume; unique within the pod.
    pub name: String,
    /// What the volume is made of: `emptyDir`, `pvc` or `secret`.
    #[serde(rename = "type")]
    pub type_: VolumeType,
    /// Absolute path in the container.
    pub mount_path: String,
    /// Mount it so that it cannot be written to. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// PersistentVolumeClaim to mount, for type `pvc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// Secret to mount, for type `secret`. It must be one that the agent allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// Where an `emptyDir` is kept: empty for the disk of the node, `Memory` for memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medium: Option<String>,
    /// How large an `emptyDir` may get, as a Kubernetes quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<String>,
}
