//! AgentProvider: the program behind an agent, and how it is called.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{condition::CommonStatus, refs::ArtifactRef};

/// Which program runs in the pod, with which arguments, environment and files.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "agents.proompteng.ai",
    version = "v1alpha1",
    kind = "AgentProvider",
    plural = "agentproviders",
    namespaced,
    status = "AgentProviderStatus",
    derive = "PartialEq",
    shortname = "aprov",
    doc = "An AgentProvider says how the program behind an agent is started: binary, arguments, environment, input \
           files, and what it leaves behind.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AgentProviderSpec {
    /// The program to start in the container, by path or by name.
    pub binary: String,
    /// Arguments of the program. `{{ path.to.value }}` is replaced from the run: `agentRun`, `agent`, `implementation`,
    /// `parameters`, `memory` and `vcs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args_template: Vec<String>,
    /// Environment variables of the program by name. Values are templates like those of the arguments.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env_template: BTreeMap<String, String>,
    /// Files to put in place before the program starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_files: Vec<InputFile>,
    /// What a run of the program leaves behind, passed to it in its run document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_artifacts: Vec<ArtifactRef>,
}

/// A file that is mounted into the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InputFile {
    /// Absolute path of the file in the container.
    pub path: String,
    /// Content of the file, taken as it is: templates are not replaced.
    pub content: String,
}

/// Whether the provider can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentProviderStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
}
