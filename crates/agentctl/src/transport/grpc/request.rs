//! From a run as Kubernetes has it to a submission as the contract has it.

use jangar_api::Kind;
use jangar_proto::v1::{
    KeyValue, RuntimeConfigEntry, SubmitAgentRunRequest, SubmitOrchestrationRunRequest, Workload,
};
use prost_types::value::Kind as Structured;
use serde_json::{Map, Value};

use super::super::Submission;
use crate::error::Error;

/// The kind of a document that the control plane can apply.
pub(super) fn applicable(object: &Value) -> Result<Kind, Error> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, word) = (text("apiVersion"), text("kind"));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let found = Kind::ALL
        .iter()
        .copied()
        .find(|kind| kind.info().kind == word && kind.info().group == group);
    let Some(kind) = found else {
        return Err(Error::Validation(format!(
            "kind {word} of {api_version} is none of Jangar's, and the control plane applies no others: leave --grpc out, or use \
             kubectl"
        )));
    };
    let served = format!("{}/{}", kind.info().group, kind.info().version);
    if served == api_version {
        return Ok(kind);
    }
    Err(Error::Validation(format!(
        "apiVersion {api_version} of {word} is not served: write {served}"
    )))
}

pub(super) fn orchestration_run(submission: &Submission<'_>) -> SubmitOrchestrationRunRequest {
    SubmitOrchestrationRunRequest {
        namespace: submission.namespace.to_owned(),
        orchestration_name: submission.subject.to_owned(),
        parameters: pairs(submission.object.pointer("/spec/parameters")),
        idempotency_key: submission.key.to_owned(),
        budget_ref: submission.budget.unwrap_or_default().to_owned(),
    }
}

pub(super) fn agent_run(submission: &Submission<'_>) -> SubmitAgentRunRequest {
    let object = submission.object;
    let text = |pointer: &str| {
        let found = object.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    let secrets = object.pointer("/spec/secrets").and_then(Value::as_array);
    let workload = object.pointer("/spec/workload").map(|_| Workload {
        image: text("/spec/workload/image"),
        cpu: text("/spec/workload/resources/requests/cpu"),
        memory: text("/spec/workload/resources/requests/memory"),
    });
    let priority = object.pointer("/spec/priority").and_then(Value::as_i64);
    SubmitAgentRunRequest {
        namespace: submission.namespace.to_owned(),
        agent_name: submission.subject.to_owned(),
        implementation_name: text("/spec/implementationSpecRef/name"),
        runtime_type: text("/spec/runtime/type"),
        runtime_config: config(object.pointer("/spec/runtime/config")),
        parameters: pairs(object.pointer("/spec/parameters")),
        idempotency_key: submission.key.to_owned(),
        workload,
        memory_ref: text("/spec/memoryRef/name"),
        vcs_ref: text("/spec/vcsRef/name"),
        vcs_policy_mode: text("/spec/vcsPolicy/mode"),
        vcs_policy_required: object
            .pointer("/spec/vcsPolicy/required")
            .and_then(Value::as_bool)
            .unwrap_or_default(),
        secrets: secrets
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect(),
        budget_ref: submission.budget.unwrap_or_default().to_owned(),
        secret_binding_ref: submission.secret_binding.unwrap_or_default().to_owned(),
        // It comes from a flag that takes no larger number.
        priority: priority
            .and_then(|priority| i32::try_from(priority).ok())
            .unwrap_or_default(),
        implementation_text: text("/spec/implementation/inline/text"),
    }
}

fn entries(map: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    map.and_then(Value::as_object).into_iter().flatten()
}

fn pairs(map: Option<&Value>) -> Vec<KeyValue> {
    entries(map)
        .map(|(key, value)| KeyValue {
            key: key.clone(),
            value: value.as_str().unwrap_or_default().to_owned(),
        })
        .collect()
}

fn config(map: Option<&Value>) -> Vec<RuntimeConfigEntry> {
    entries(map)
        .map(|(key, value)| match value.as_str() {
            Some(text) => RuntimeConfigEntry {
                key: key.clone(),
                value: text.to_owned(),
                structured: None,
            },
            None => RuntimeConfigEntry {
                key: key.clone(),
                value: String::new(),
                structured: Some(structured(value)),
            },
        })
        .collect()
}

/// A value with its shape. How deep it can be is bounded by the parser that read it from the command line.
fn structured(value: &Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Structured::NullValue(0),
        Value::Bool(truth) => Structured::BoolValue(*truth),
        Value::Number(number) => Structured::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Structured::StringValue(text.clone()),
        Value::Array(items) => Structured::ListValue(prost_types::ListValue {
            values: items.iter().map(structured).collect(),
        }),
        Value::Object(map) => Structured::StructValue(fields(map)),
    };
    prost_types::Value { kind: Some(kind) }
}

fn fields(map: &Map<String, Value>) -> prost_types::Struct {
    prost_types::Struct {
        fields: map
            .iter()
            .map(|(key, value)| (key.clone(), structured(value)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_that_a_flag_says_is_lost_on_the_way() {
        let object = json!({
            "metadata": {"name": "n"},
            "spec": {
                "implementation": {"inline": {"text": "do it"}},
                "runtime": {"type": "job", "config": {"serviceAccount": "builder", "nodeSelector": {"pool": "agents"}}},
                "parameters": {"a": "b"}, "secrets": ["token"], "priority": -3,
                "workload": {"image": "agent:1", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}},
                "memoryRef": {"name": "notes"}, "vcsRef": {"name": "forge"}, "vcsPolicy": {"mode": "read-only", "required": true},
            },
        });
        let submission = Submission {
            kind: Kind::AgentRun,
            namespace: "team",
            subject: "coder",
            key: "k",
            object: &object,
            is_own: false,
            budget: Some("monthly"),
            secret_binding: Some("tokens"),
        };
        insta::assert_debug_snapshot!(agent_run(&submission));
    }

    #[test]
    fn only_kinds_of_jangar_are_applied() {
        let document = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind});
        assert_eq!(
            applicable(&document("agents.proompteng.ai/v1alpha1", "Agent")).ok(),
            Some(Kind::Agent)
        );
        for (document, words) in [
            (document("v1", "ConfigMap"), "leave --grpc out"),
            (
                document("agents.proompteng.ai/v1", "Agent"),
                "write agents.proompteng.ai/v1alpha1",
            ),
            (json!({}), "none of Jangar's"),
        ] {
            let error = applicable(&document).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
