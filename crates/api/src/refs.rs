//! References from one object to another, always within the namespace unless they say otherwise.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::strings::string_enum;

/// A reference by name to an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// Name of the object, in the same namespace.
    pub name: String,
}

/// A reference by name that may be left empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OptionalRef {
    /// Name of the object, in the same namespace. A blank name counts as none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A reference to one key of a Secret or a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyRef {
    /// Name of the Secret or ConfigMap, in the same namespace.
    pub name: String,
    /// Key within it. Left out, the key that is usual for the purpose is used: `token` for tokens and webhook secrets,
    /// `privateKey` for the key of a GitHub App.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

string_enum! {
    /// The kinds of object that can hold a system prompt.
    closed enum PromptRefKind { Secret, ConfigMap }
}

/// A reference to a system prompt that is kept in a Secret or a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptRef {
    /// Whether the prompt is in a `Secret` or in a `ConfigMap`. A Secret must also be listed in the secrets of the run,
    /// and in those the agent allows if it restricts them.
    pub kind: PromptRefKind,
    /// Name of the Secret or ConfigMap, in the same namespace.
    pub name: String,
    /// Key whose value is the prompt.
    pub key: String,
}

/// Somebody or something that a policy speaks about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// What the subject is, for example `Agent`, `User`, `Group` or `ServiceAccount`.
    pub kind: String,
    /// Name of the subject.
    pub name: String,
    /// Namespace of the subject. Left out, the namespace of the policy is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// An environment variable with a literal value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// Name of the variable.
    pub name: String,
    /// Its value. Secrets do not belong here: they are referenced, so that they stay out of specs and logs.
    pub value: String,
}

/// A file or address that a run leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactRef {
    /// Name under which the artifact is listed; unique within a run.
    pub name: String,
    /// Path in the workspace of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Key in the store that holds the artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where to get it, at most 2048 characters. Inline `data:` addresses are not accepted.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
