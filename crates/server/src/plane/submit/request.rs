//! What callers send to submit a run.

use std::collections::BTreeMap;

use jangar_api::{
    agents::{
        agent_run::{InlineImplementation, Runtime, VcsPolicy, Workflow},
        implementation_spec::ImplementationSpecSpec,
        workload::Workload,
    },
    refs::LocalRef,
    values::Int32,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::refusal::Refusal;

/// The longest key. It is kept in the spec of the run.
const KEY_MAX_BYTES: usize = 256;

/// What a submission has to keep to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyRefs {
    /// The Budget that must not be used up.
    pub budget_ref: Option<String>,
    /// The SecretBinding that covers the Secrets of the run.
    pub secret_binding_ref: Option<String>,
}

/// The work of a run, described in place: the fields of an ImplementationSpec, or the same below `inline`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Described {
    Inline(InlineImplementation),
    Plain(ImplementationSpecSpec),
}

/// A new AgentRun.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentRunSubmission {
    /// The Agent that does the work.
    pub agent_ref: LocalRef,
    /// Where the run is made. Absent: the namespace of Jangar itself.
    pub namespace: Option<String>,
    /// The ImplementationSpec that describes the work.
    pub implementation_spec_ref: Option<LocalRef>,
    /// The work, described in place; goes before `implementationSpecRef`.
    pub implementation: Option<Described>,
    /// How the work is run.
    pub runtime: Runtime,
    /// The steps, which the runtime `workflow` needs.
    pub workflow: Option<Workflow>,
    /// The pod of the run.
    pub workload: Option<Workload>,
    pub memory_ref: Option<LocalRef>,
    pub vcs_ref: Option<LocalRef>,
    pub vcs_policy: Option<VcsPolicy>,
    /// Values for templates and for the agent.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Names of Secrets, which the SecretBinding of `policy` has to cover.
    #[serde(default)]
    pub secrets: Vec<String>,
    pub policy: Option<PolicyRefs>,
    /// How long the finished run is kept, in seconds.
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<Int32>,
    /// Order in the queue: larger numbers start first.
    #[serde(default)]
    pub priority: Int32,
}

/// A new OrchestrationRun.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OrchestrationRunSubmission {
    /// The Orchestration to run.
    pub orchestration_ref: LocalRef,
    /// Where the run is made. Absent: the namespace of Jangar itself.
    pub namespace: Option<String>,
    /// Values for the steps.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    pub policy: Option<PolicyRefs>,
}

/// Checks the key of a request.
pub fn checked_key(field: &str, key: Option<&str>) -> Result<String, Refusal> {
    let key = key.map(str::trim).filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| {
        Refusal::missing(field)
            .remedy("send a text of your own, such as a UUID, and the same one if you repeat the request")
    })?;
    if key.len() > KEY_MAX_BYTES || key.chars().any(char::is_control) {
        return Err(Refusal::field(field, key, "this is too long, or no plain text")
            .remedy("send at most 256 bytes of plain text"));
    }
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_any_plain_text_of_a_bounded_length() {
        assert_eq!(
            checked_key("Idempotency-Key", Some(" ä b/c ")),
            Ok("ä b/c".to_owned())
        );
        for key in [None, Some(""), Some("  "), Some("a\nb")] {
            assert!(checked_key("Idempotency-Key", key).is_err(), "{key:?}");
        }
        assert!(checked_key("Idempotency-Key", Some(&"k".repeat(257))).is_err());
    }
}
