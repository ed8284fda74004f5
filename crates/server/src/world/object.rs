//! One object as the caches keep it: the document, and what lists are filtered and ordered by.

use std::{cmp::Reverse, collections::BTreeMap};

use jangar_api::{Kind, agents::agent_run::AgentRun};
use jangar_engine::queue::{Lane, waits_in};
use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// How much of an object a search looks at.
const HAYSTACK_MAX_BYTES: usize = 4 * 1024;

/// Where an object stands in a list: the newest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub created: Reverse<Timestamp>,
    pub namespace: String,
    pub name: String,
}

/// An object of one of the kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub version: String,
    pub created: Timestamp,
    pub labels: BTreeMap<String, String>,
    /// The phase; for kinds without one, whether they are ready.
    pub phase: Option<String>,
    /// `spec.runtime.type` of an AgentRun.
    pub runtime: Option<String>,
    /// The Agent, the Orchestration or the Tool that a run is of.
    pub subject: Option<String>,
    /// What an AgentRun that waits for its turn waits for.
    pub waiting: Option<Lane>,
    /// In lower case.
    haystack: String,
    /// About how long the document is as text.
    pub bytes: usize,
    /// The whole document, without the record of who owns which field.
    pub json: Value,
}

impl Object {
    /// `cancels` says whether the settings let runs be cancelled.
    pub fn read(kind: Kind, mut object: DynamicObject, cancels: bool) -> Self {
        object.metadata.managed_fields = None;
        let info = kind.info();
        // A list leaves the kind out of its items.
        object.types = Some(kube::api::TypeMeta {
            api_version: format!("{}/{}", info.group, info.version),
            kind: info.kind.clone(),
        });
        let metadata = object.metadata.clone();
        // Metadata and data are JSON already, so that this does not fail.
        let json = serde_json::to_value(&object).unwrap_or_else(|_| json!({}));
        let namespace = metadata.namespace.unwrap_or_default();
        let labels = metadata.labels.unwrap_or_default();
        let name = metadata.name.unwrap_or_default();
        let subject = subject(&json);
        Self {
            kind,
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            created: metadata
                .creation_timestamp
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            // A run that no controller has looked at waits.
            phase: phase(&json).or_else(|| kind.is_run().then(|| "Pending".to_owned())),
            runtime: text(&json, "/spec/runtime/type"),
            waiting: waiting(kind, &namespace, &json, cancels),
            haystack: haystack(&name, subject.as_deref(), &labels, &json),
            subject,
            namespace,
            name,
            labels,
            bytes: length(&json),
            json,
        }
    }

    pub fn place(&self) -> Place {
        Place {
            created: Reverse(self.created),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// Whether every word is in its name, its labels or what it is about. Words are in lower case.
    pub fn contains(&self, words: &[String]) -> bool {
        words.iter().all(|word| self.haystack.contains(word.as_str()))
    }
}

pub(crate) fn text(json: &Value, pointer: &str) -> Option<String> {
    let text = json.pointer(pointer)?.as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// About how long a document is as text. Escapes are not counted, and the API server has bounded its depth.
fn length(json: &Value) -> usize {
    match json {
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| length(item) + 1).sum::<usize>() + 2,
        Value::Object(map) => {
            let fields = map.iter().map(|(key, value)| key.len() + 4 + length(value));
            fields.sum::<usize>() + 2
        }
    }
}

fn phase(json: &Value) -> Option<String> {
    text(json, "/status/phase").or_else(|| {
        let conditions = json.pointer("/status/conditions")?.as_array()?;
        let ready = conditions
            .iter()
            .find(|condition| condition.get("type").and_then(Value::as_str) == Some("Ready"))?;
        Some(match ready.get("status").and_then(Value::as_str)? {
            "True" => "Ready".to_owned(),
            _ => text(ready, "/reason").unwrap_or_else(|| "NotReady".to_owned()),
        })
    })
}

fn subject(json: &Value) -> Option<String> {
    [
        "/spec/agentRef/name",
        "/spec/orchestrationRef/name",
        "/spec/toolRef/name",
    ]
    .iter()
    .find_map(|pointer| text(json, pointer))
}

fn waiting(kind: Kind, namespace: &str, json: &Value, cancels: bool) -> Option<Lane> {
    if kind != Kind::AgentRun {
        return None;
    }
    // A run that cannot be read waits for somebody who mends it, not for its turn.
    let run: AgentRun = serde_json::from_value(json.clone()).ok()?;
    waits_in(namespace, &run, cancels)
}

fn haystack(name: &str, subject: Option<&str>, labels: &BTreeMap<String, String>, json: &Value) -> String {
    let mut words = vec![name.to_owned()];
    words.extend(subject.map(str::to_owned));
    words.extend(labels.iter().map(|(key, value)| format!("{key}={value}")));
    let conditions = json.pointer("/status/conditions").and_then(Value::as_array);
    for condition in conditions.into_iter().flatten() {
        words.extend(
            ["/reason", "/message"]
                .iter()
                .filter_map(|pointer| text(condition, pointer)),
        );
    }
    let told = [
        "/spec/summary",
        "/spec/implementation/inline/summary",
        "/spec/implementationSpecRef/name",
        "/spec/idempotencyKey",
        "/spec/deliveryId",
        "/status/vcs/repository",
        "/spec/parameters/repository",
        "/status/phase",
        "/spec/text",
        "/spec/implementation/inline/text",
    ];
    words.extend(told.iter().filter_map(|pointer| text(json, pointer)));
    let mut all = words.join("\n").to_lowercase();
    let end = (0..=HAYSTACK_MAX_BYTES.min(all.len()))
        .rev()
        .find(|end| all.is_char_boundary(*end))
        .unwrap_or(0);
    all.truncate(end);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(status: &Value) -> Object {
        let object = serde_json::from_value(json!({
            "metadata": {"name": "r", "namespace": "a", "uid": "1", "resourceVersion": "5",
                         "creationTimestamp": "2026-03-01T12:00:00Z", "labels": {"team": "Blue"},
                         "managedFields": [{"manager": "x"}]},
            "spec": {"agentRef": {"name": "coder"}, "runtime": {"type": "job"},
                     "implementation": {"inline": {"text": "do", "summary": "Größe der Tür"}}},
            "status": status,
        }))
        .expect("an object");
        Object::read(Kind::AgentRun, object, true)
    }

    #[test]
    fn an_object_is_told_by_what_it_is_about() {
        let object = run(&json!({"phase": "Pending"}));
        assert_eq!(object.subject.as_deref(), Some("coder"));
        assert_eq!(object.runtime.as_deref(), Some("job"));
        assert_eq!(object.phase.as_deref(), Some("Pending"));
        assert!(object.waiting.is_some());
        assert_eq!(object.json["kind"], "AgentRun");
        assert!(object.json["metadata"].get("managedFields").is_none());
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(object.contains(&words("größe team=blue coder")));
        assert!(!object.contains(&words("coder green")));
    }

    #[test]
    fn the_length_of_a_document_is_about_that_of_its_text() {
        let object = run(&json!({"phase": "Pending", "list": [1, true, null, {"a": "b"}]}));
        let whole = object.json.to_string().len();
        assert!(
            object.bytes.abs_diff(whole) < whole / 10,
            "{} of {whole}",
            object.bytes
        );
    }

    #[test]
    fn a_search_finds_the_words_of_the_task_and_why_it_stands_where_it_does() {
        let object = run(
            &json!({"conditions": [{"type": "Failed", "reason": "JobFailed", "message": "exit code 3"}]}),
        );
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(object.contains(&words("do jobfailed exit")));
    }

    #[test]
    fn a_run_that_nobody_has_looked_at_waits() {
        assert_eq!(run(&Value::Null).phase.as_deref(), Some("Pending"));
        assert_eq!(run(&json!({})).phase.as_deref(), Some("Pending"));
        let agent = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("an object");
        assert_eq!(Object::read(Kind::Agent, agent, true).phase, None);
    }

    #[test]
    fn a_kind_without_a_phase_is_ready_or_says_why_not() {
        let ready = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Valid"}]});
        assert_eq!(run(&ready).phase.as_deref(), Some("Ready"));
        let not = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "MissingProvider"}]});
        assert_eq!(run(&not).phase.as_deref(), Some("MissingProvider"));
    }
}
