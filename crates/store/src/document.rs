//! The object of a run as it is kept: what it said and what became of it, without secrets and of a bounded size.

use serde_json::{Map, Value, json};

use crate::redact;

/// An object may have a megabyte and a half. Of one that is larger than this, long texts are shortened.
const MAX_BYTES: usize = 256 << 10;
/// The longest text of an object that is too large; half of it, and half again, until it fits.
const FIRST_CUT: usize = 16 << 10;
const LAST_CUT: usize = 64;
const CUT: &str = " […]";
/// Who has to give so many values anew writes a new run.
const MAX_ALTERED: usize = 100;
/// Parts of the metadata that tell who the run was. The rest is bookkeeping of the cluster.
const METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "resourceVersion",
    "generation",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];

/// What is kept of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) value: Value,
    pub(crate) text: String,
    /// Whether something was too long to be kept whole.
    pub(crate) cut: bool,
}

impl Document {
    pub(crate) fn of(object: &Value) -> Self {
        let mut value = essence(object);
        redact::withhold(&mut value);
        let mut text = value.to_string();
        let (mut cut, mut longest) = (false, FIRST_CUT);
        while text.len() > MAX_BYTES && longest >= LAST_CUT {
            shorten(&mut value, longest);
            text = value.to_string();
            cut = true;
            longest /= 2;
        }
        if text.len() > MAX_BYTES {
            // Thousands of entries rather than long texts: the rows beside the document still have the steps.
            value = without_lists(&value);
            text = value.to_string();
        }
        Self { value, text, cut }
    }
}

/// JSON pointers of the values below `spec` that are not as they were in the cluster, because they looked like a secret or were too
/// long: whoever wants to use them again has to know them from elsewhere. At most [`MAX_ALTERED`] of them.
pub fn altered(document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(spec) = document.get("spec") {
        find_altered(spec, "/spec".to_owned(), &mut found);
    }
    found
}

fn find_altered(value: &Value, path: String, found: &mut Vec<String>) {
    if found.len() == MAX_ALTERED {
        return;
    }
    match value {
        Value::String(text) if text.contains(redact::WITHHELD) || text.ends_with(CUT) => found.push(path),
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                find_altered(item, format!("{path}/{number}"), found);
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                find_altered(item, format!("{path}/{key}"), found);
            }
        }
        _ => {}
    }
}

fn essence(object: &Value) -> Value {
    let part = |name: &str| object.get(name).cloned().unwrap_or_default();
    let metadata: Map<String, Value> = METADATA
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), object.get("metadata")?.get(name)?.clone())))
        .collect();
    json!({
        "apiVersion": part("apiVersion"),
        "kind": part("kind"),
        "metadata": metadata,
        "spec": part("spec"),
        "status": part("status"),
    })
}

fn shorten(value: &mut Value, longest: usize) {
    match value {
        Value::String(text) if text.len() > longest => {
            text.truncate(text.floor_char_boundary(longest));
            text.push_str(CUT);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| shorten(item, longest)),
        Value::Object(map) => map.values_mut().for_each(|item| shorten(item, longest)),
        _ => {}
    }
}

/// Who the run was and where it ended, and nothing that can be long.
fn without_lists(value: &Value) -> Value {
    let of = |path: &str| value.pointer(path).cloned().unwrap_or_default();
    json!({
        "apiVersion": of("/apiVersion"),
        "kind": of("/kind"),
        "metadata": {
            "name": of("/metadata/name"),
            "namespace": of("/metadata/namespace"),
            "uid": of("/metadata/uid"),
            "creationTimestamp": of("/metadata/creationTimestamp"),
            "resourceVersion": of("/metadata/resourceVersion"),
        },
        "spec": {},
        "status": {
            "phase": of("/status/phase"),
            "startedAt": of("/status/startedAt"),
            "finishedAt": of("/status/finishedAt"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookkeeping_and_secrets_stay_behind() {
        let object = json!({
            "kind": "AgentRun",
            "metadata": {"name": "a", "managedFields": [{"manager": "x"}], "selfLink": "y"},
            "spec": {"parameters": {"API_KEY": "hunter2", "mode": "fast"}},
        });
        let document = Document::of(&object);
        assert_eq!(document.value["metadata"], json!({"name": "a"}));
        assert_eq!(document.value["spec"]["parameters"]["mode"], "fast");
        assert!(!document.text.contains("hunter2") && !document.cut);
    }

    #[test]
    fn what_is_not_as_it_was_is_named() {
        let long = "x".repeat(400 << 10);
        let object = json!({
            "kind": "AgentRun",
            "spec": {"parameters": {"API_KEY": "hunter2", "a/b_token": "x", "mode": "fast"}, "text": long},
        });
        let document = Document::of(&object).value;
        assert_eq!(
            altered(&document),
            [
                "/spec/parameters/API_KEY",
                "/spec/parameters/a~1b_token",
                "/spec/text"
            ]
        );
        assert!(altered(&json!({"spec": {"mode": "fast"}})).is_empty());
    }

    #[test]
    fn a_large_object_keeps_the_beginnings_of_its_texts() {
        let long = "é".repeat(400 << 10);
        let document = Document::of(&json!({"kind": "AgentRun", "spec": {"text": long, "name": "short"}}));
        assert!(document.cut && document.text.len() <= MAX_BYTES);
        assert_eq!(document.value["spec"]["name"], "short");
        assert!(
            document.value["spec"]["text"]
                .as_str()
                .is_some_and(|text| text.ends_with(CUT))
        );
    }

    #[test]
    fn an_object_of_too_many_entries_keeps_who_it_was() {
        let entries: Vec<Value> = (0..60_000).map(|number| json!({"n": number})).collect();
        let document = Document::of(&json!({
            "kind": "OrchestrationRun",
            "metadata": {"name": "large"},
            "status": {"phase": "Failed", "stepStatuses": entries},
        }));
        assert!(document.cut && document.text.len() < MAX_BYTES);
        assert_eq!(document.value["metadata"]["name"], "large");
        assert_eq!(document.value["status"]["phase"], "Failed");
    }
}
