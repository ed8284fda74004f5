//! ImplementationSpec: a piece of work, described so that an agent can do it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    condition::CommonStatus,
    refs::LocalRef,
    strings::string_enum,
    values::{Timestamp, if_legible},
};

/// What is to be done, where it comes from, and what a run of it must bring along.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "agents.proompteng.ai",
    version = "v1alpha1",
    kind = "ImplementationSpec",
    plural = "implementationspecs",
    namespaced,
    status = "ImplementationSpecStatus",
    derive = "PartialEq",
    shortname = "impl",
    doc = "An ImplementationSpec is a piece of work for an agent: the text that describes it, its acceptance criteria, \
           and its origin.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Source", type_ = "string", json_path = ".spec.source.provider"),
    printcolumn(name = "Updated", type_ = "date", json_path = ".status.syncedAt")
)]
#[serde(rename_all = "camelCase")]
pub struct ImplementationSpecSpec {
    /// What is to be done, at most 131072 characters. It is the prompt unless a parameter `prompt` replaces it.
    #[schemars(length(max = 131_072))]
    pub text: String,
    /// One line about it, at most 256 characters.
    #[schemars(length(max = 256))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// More about it for people, at most 131072 characters.
    #[schemars(length(max = 131_072))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What must hold when the work is done, at most 50 entries.
    #[schemars(length(max = 50))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acceptance_criteria: Vec<String>,
    /// Labels of the work where it comes from, for example those of an issue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Where the work comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Origin>,
    /// The VersionControlProvider for runs of this work that name none themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcs_ref: Option<LocalRef>,
    /// What a run must know before it may start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<Contract>,
}

string_enum! {
    /// Where a piece of work can come from.
    closed enum OriginProvider {
        Github = "github",
        Linear = "linear",
        Manual = "manual",
        Custom = "custom",
    }
}

/// Where a piece of work comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The system it comes from: `github`, `linear`, `manual` or `custom`.
    pub provider: OriginProvider,
    /// Its id there, for GitHub `owner/repository#number`; repository and issue number of a run are taken from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// Its page there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// What a run must know before it may start, and under which names it finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contract {
    /// Keys that must have a value in the metadata of the run, at most 50. A run without them is refused with
    /// `MissingRequiredMetadata`.
    #[schemars(length(max = 50))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_keys: Vec<String>,
    /// Further names for parameters, at most 100 entries, applied after the built-in ones.
    #[schemars(length(max = 100))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mappings: Vec<KeyMapping>,
}

/// A parameter under another name. It fills the other name only where that has no value yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyMapping {
    /// Name of the parameter, at most 256 characters.
    #[schemars(length(max = 256))]
    pub from: String,
    /// Name of the metadata key it fills, at most 256 characters.
    #[schemars(length(max = 256))]
    pub to: String,
}

/// Whether the work is well described, and how fresh the description is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImplementationSpecStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// Version of the work at its origin when it was last read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_version: Option<String>,
    /// When the work was last read from its origin.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced_at: Option<Timestamp>,
}
