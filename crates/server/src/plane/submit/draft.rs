//! A run that is not made yet: its name, which follows from the key, and its spec.

use std::collections::BTreeMap;

use jangar_api::{
    Kind,
    agents::agent_run::{AgentRunSpec, InlineImplementation, RuntimeType},
    labels,
    names::{DnsLabel, label_value},
    orchestration::orchestration_run::{OrchestrationRun, OrchestrationRunSpec},
};
use serde_json::{Value, json};

use super::{
    super::Caller,
    request::{AgentRunSubmission, Described},
};
use crate::refusal::{Refusal, Trouble};

/// What a new run is made of.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) action: &'static str,
    pub(super) namespace: String,
    /// The Agent or the Orchestration.
    pub(super) subject: String,
    pub(super) key: String,
    pub(super) spec: Value,
    pub(super) annotations: BTreeMap<String, String>,
}

impl Draft {
    pub(super) fn name(&self) -> String {
        run_name(&self.namespace, &self.subject, &self.key)
    }

    pub(super) fn manifest(&self) -> Value {
        let info = self.kind.info();
        json!({
            "apiVersion": format!("{}/{}", info.group, info.version),
            "kind": info.kind,
            "metadata": {
                "name": self.name(),
                "namespace": self.namespace,
                "labels": {labels::DELIVERY_ID: label_value(&self.key)},
                "annotations": self.annotations,
            },
            "spec": self.spec,
        })
    }
}

/// The name of the run that a key makes. agentctl makes the same one, so that a key used on both ways is one run.
pub fn run_name(namespace: &str, subject: &str, key: &str) -> String {
    DnsLabel::submission(namespace, subject, key).into()
}

/// Who made the run, as its annotations say.
pub(super) fn created_by(caller: &Caller) -> BTreeMap<String, String> {
    BTreeMap::from([(labels::CREATED_BY.to_owned(), caller.identity.user.clone())])
}

/// The spec of the run that a submission asks for.
pub(super) fn agent_run_spec(submission: AgentRunSubmission, key: &str) -> Result<AgentRunSpec, Refusal> {
    let described = submission.implementation.is_some() || submission.implementation_spec_ref.is_some();
    let has_steps = submission
        .workflow
        .as_ref()
        .is_some_and(|workflow| !workflow.steps.is_empty());
    if let RuntimeType::Other(word) = &submission.runtime.type_ {
        return Err(Refusal::field("runtime.type", word, "there is no such runtime")
            .remedy("give workflow, job, temporal or custom"));
    }
    if submission.runtime.type_ == RuntimeType::Workflow && !has_steps {
        return Err(Refusal::missing("workflow.steps")
            .remedy("give at least one step: the runtime workflow is made of them"));
    }
    if !described && !has_steps {
        return Err(Refusal::missing("implementationSpecRef.name")
            .remedy("name an ImplementationSpec, or describe the work as `implementation`"));
    }
    Ok(AgentRunSpec {
        agent_ref: submission.agent_ref,
        implementation_spec_ref: submission.implementation_spec_ref,
        implementation: submission.implementation.map(|described| match described {
            Described::Inline(inline) => inline,
            Described::Plain(inline) => InlineImplementation { inline },
        }),
        runtime: submission.runtime,
        workflow: submission.workflow,
        workload: submission.workload,
        parameters: submission.parameters,
        secrets: submission.secrets,
        priority: submission.priority,
        idempotency_key: Some(key.to_owned()),
        system_prompt: None,
        system_prompt_ref: None,
        memory_ref: submission.memory_ref,
        vcs_ref: submission.vcs_ref,
        vcs_policy: submission.vcs_policy,
        ttl_seconds_after_finished: submission.ttl_seconds_after_finished,
        stop: jangar_api::cancel::CancelRequest::default(),
    })
}

/// The kind's own way of writing its spec is that of the whole object.
pub(super) fn orchestration_run_json(spec: OrchestrationRunSpec) -> Result<Value, Refusal> {
    let run = OrchestrationRun::new("run", spec);
    let mut json = to_json(&run)?;
    Ok(json.get_mut("spec").map(Value::take).unwrap_or_default())
}

pub(super) fn to_json(value: &impl serde::Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(value)
        .map_err(|error| Refusal::new(Trouble::BadRequest, format!("the run cannot be written: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_follows_from_namespace_agent_and_key_alone() {
        let name = run_name("a", "coder", "k");
        assert_eq!(name, run_name("a", "coder", "k"));
        assert!(name.starts_with("coder-") && name.len() <= 63, "{name}");
        for other in [
            ("b", "coder", "k"),
            ("a", "coder2", "k"),
            ("a", "coder", "k2"),
            ("a", "coderk", ""),
        ] {
            assert_ne!(name, run_name(other.0, other.1, other.2));
        }
        assert!(run_name("a", &"x".repeat(200), "k").len() <= 63);
        assert_ne!(
            run_name("a", &"x".repeat(200), "k"),
            run_name("a", &"x".repeat(200), "l")
        );
    }

    fn submission(change: &Value) -> Result<AgentRunSubmission, String> {
        let mut body = json!({
            "agentRef": {"name": "coder"}, "runtime": {"type": "job"},
            "implementation": {"text": "do it"},
        });
        for (field, value) in change.as_object().expect("an object") {
            body[field] = value.clone();
        }
        serde_json::from_value(body).map_err(|error| error.to_string())
    }

    #[test]
    fn work_may_be_described_with_and_without_the_word_inline() {
        for described in [json!({"text": "x"}), json!({"inline": {"text": "x"}})] {
            let submission = submission(&json!({"implementation": described})).expect("a submission");
            let spec = agent_run_spec(submission, "k").expect("a spec");
            assert_eq!(
                spec.implementation.map(|work| work.inline.text),
                Some("x".to_owned())
            );
            assert_eq!(spec.idempotency_key.as_deref(), Some("k"));
        }
    }

    #[test]
    fn what_cannot_be_run_is_told_before_anything_is_made() {
        let error = submission(&json!({"systemPrompt": "be nice"})).expect_err("it is not taken");
        assert!(error.contains("systemPrompt"), "{error}");
        let no_steps = submission(&json!({"runtime": {"type": "workflow"}})).expect("a submission");
        let refusal = agent_run_spec(no_steps, "k").expect_err("no steps");
        assert!(refusal.to_string().starts_with("workflow.steps"), "{refusal}");
        let unknown = submission(&json!({"runtime": {"type": "pigeon"}})).expect("a submission");
        let refusal = agent_run_spec(unknown, "k").expect_err("no such runtime");
        assert!(
            refusal.to_string().starts_with("runtime.type=`pigeon`"),
            "{refusal}"
        );
        let nothing = submission(&json!({"implementation": null})).expect("a submission");
        let refusal = agent_run_spec(nothing, "k").expect_err("no work");
        assert!(
            refusal.to_string().starts_with("implementationSpecRef.name"),
            "{refusal}"
        );
    }
}
