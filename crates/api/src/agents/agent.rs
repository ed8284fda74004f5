//! Agent: who does the work, with which defaults and within which limits.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    condition::CommonStatus,
    refs::{EnvVar, LocalRef, PromptRef},
    rules,
    values::{AnyMap, Int32},
};

/// Who the agent is, what it runs on, and what its runs may use.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "agents.proompteng.ai",
    version = "v1alpha1",
    kind = "Agent",
    plural = "agents",
    namespaced,
    status = "AgentStatus",
    derive = "PartialEq",
    shortname = "ag",
    doc = "An Agent is somebody who can be given work: a provider that runs it, defaults for its runs, and the secrets \
           and service accounts they may use.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.providerRef.name")
)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpec {
    /// The AgentProvider that says which program runs and how it is called.
    pub provider_ref: LocalRef,
    /// Settings for the templates of the provider, available there as `agent.config`. Jangar does not interpret them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<AnyMap>,
    /// Environment variables for the templates of the provider, available there as `agent.env`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Values that its runs use where they say nothing themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults: Option<AgentDefaults>,
    /// The Memory that its runs use unless they name another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_ref: Option<LocalRef>,
    /// The VersionControlProvider that its runs use unless the run or its implementation names another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcs_ref: Option<LocalRef>,
    /// What runs of this agent may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<AgentSecurity>,
}

/// Values that the runs of an agent use where they say nothing themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::one_system_prompt()]))]
pub struct AgentDefaults {
    /// How often a failed run, or a failed step of a workflow, may be tried again; 0 or more.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_limit: Option<Int32>,
    /// How long an attempt may take from the start of the agent, in seconds, where a step says nothing itself; 0 means no
    /// limit.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<Int32>,
    /// System prompt for runs that bring none, at most 16384 characters. Excludes `systemPromptRef`.
    #[schemars(length(max = 16384))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Where the system prompt for runs that bring none is kept. Excludes `systemPrompt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt_ref: Option<PromptRef>,
}

/// What the runs of an agent may use. An empty list restricts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSecurity {
    /// Names of the Secrets that runs may use. A run that asks for another one is refused with `SecretNotAllowed`. Empty
    /// or absent: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_secrets: Vec<String>,
    /// Names of the service accounts that the pods of runs may use. A run that asks for another one is refused with
    /// `ServiceAccountNotAllowed`. Empty or absent: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_service_accounts: Vec<String>,
}

/// Whether the agent can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
}
