//! How a simulation ended, without what differs from one to the next: times, UIDs, versions and generated names.

use std::{collections::BTreeMap, fmt::Write as _};

use jiff::Timestamp;
use kubelite::store::Store;
use serde_json::Value;

use crate::world::{NAMESPACE, all_runs, config_maps, jobs, objects, orchestration_runs, pods};

/// Differences that are printed; the first ones tell the story.
const DIFFERENCES_MAX: usize = 20;
/// A UUID in its usual form.
const UUID_LENGTH: usize = 36;
/// A time up to its seconds, as in `2026-03-01T12:00:00`.
const SECONDS_LENGTH: usize = 19;

/// What stands for the generated names of pods: that of their Job, and a number.
#[derive(Clone, Debug, Default)]
pub struct GeneratedNames(BTreeMap<String, String>);

impl GeneratedNames {
    /// Takes in a pod that is new.
    pub fn add(&mut self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let job = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"].as_str();
        let job = format!("{}<pod ", job.unwrap_or_default());
        let before = self.0.values().filter(|masked| masked.starts_with(&job)).count();
        self.0.insert(name.to_owned(), format!("{job}{before}>"));
    }
}

/// The objects that are left, by collection and name.
#[derive(Clone, Debug, PartialEq)]
pub struct EndState(BTreeMap<String, Value>);

impl EndState {
    /// What is left, with the names of pods replaced, of those that are gone as well: messages tell of them.
    pub fn of(store: &Store, generated: &GeneratedNames) -> Self {
        let generated = &generated.0;
        let mut all = BTreeMap::new();
        for collection in all_runs()
            .into_iter()
            .chain([orchestration_runs(), jobs(), pods(), config_maps()])
        {
            for object in objects(store, &collection) {
                let value = object.value();
                let name = value["metadata"]["name"].as_str().unwrap_or_default();
                let name = generated.get(name).map_or(name, String::as_str);
                let key = format!("{} {NAMESPACE}/{name}", collection.as_str());
                all.insert(key, mask(&value, generated));
            }
        }
        Self(all)
    }

    /// Where two ends differ, line by line; empty if they do not.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for key in self
            .0
            .keys()
            .chain(other.0.keys().filter(|key| !self.0.contains_key(*key)))
        {
            compare(key, self.0.get(key), other.0.get(key), &mut found);
        }
        found.truncate(DIFFERENCES_MAX);
        found
    }

    /// Of the runs that are left what became of them, and nothing else.
    #[must_use]
    pub fn phases(&self) -> Self {
        let runs = self.0.iter().filter(|(key, _)| key.contains("runs "));
        let phases = runs.map(|(key, run)| (key.clone(), run["status"]["phase"].clone()));
        Self(phases.collect())
    }

    /// The objects as they are compared.
    pub fn objects(&self) -> &BTreeMap<String, Value> {
        &self.0
    }
}

fn compare(path: &str, left: Option<&Value>, right: Option<&Value>, found: &mut Vec<String>) {
    match (left, right) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            for key in left
                .keys()
                .chain(right.keys().filter(|key| !left.contains_key(*key)))
            {
                compare(&format!("{path}.{key}"), left.get(key), right.get(key), found);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                compare(
                    &format!("{path}[{index}]"),
                    left.get(index),
                    right.get(index),
                    found,
                );
            }
        }
        (left, right) if left == right => {}
        (left, right) => {
            let mut line = format!("{path}: ");
            for (value, word) in [(left, " undisturbed, "), (right, " here")] {
                match value {
                    // Writing to a String cannot fail.
                    Some(value) => drop(write!(line, "{value}{word}")),
                    None => drop(write!(line, "nothing{word}")),
                }
            }
            found.push(line);
        }
    }
}

/// Fields that differ without meaning.
const UNSTEADY: &[&str] = &[
    "generation",
    "managedFields",
    "observedGeneration",
    "resourceVersion",
    "uid",
];

/// Of a `runtimeRef`: how whatever does the work outside was reached, which is another story after each trouble. Who asked it, whether
/// that is in doubt, and whether an answer named the execution.
const REACHED: &[&str] = &["start", "unclear", "runId"];

fn mask(value: &Value, names: &BTreeMap<String, String>) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| !UNSTEADY.contains(&key.as_str()))
            .map(|(key, value)| {
                let mut masked = mask(value, names);
                if key == "runtimeRef"
                    && let Value::Object(record) = &mut masked
                {
                    record.retain(|key, _| !REACHED.contains(&key.as_str()));
                }
                (key.clone(), masked)
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) if items.iter().any(is_condition) => conditions(items, names),
        Value::Array(items) => items.iter().map(|item| mask(item, names)).collect(),
        Value::String(text) => mask_text(text, names).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn is_condition(item: &Value) -> bool {
    item["type"].is_string() && item["status"].is_string()
}

/// Conditions by their type: their order says when each was first needed. A run that waited for something, or had to warn of it, says
/// for ever that it does not any more, which is no different from one that never had to.
fn conditions(items: &[Value], names: &BTreeMap<String, String>) -> Value {
    let passing = |item: &Value| item["type"] == "Blocked" || item["type"] == "Warning";
    let lasting = items
        .iter()
        .filter(|item| !passing(item) || item["status"] != "False");
    let by_type = lasting.map(|item| {
        let key = item["type"].as_str().unwrap_or_default();
        (key.to_owned(), mask(item, names))
    });
    by_type.collect::<serde_json::Map<_, _>>().into()
}

fn mask_text(text: &str, names: &BTreeMap<String, String>) -> String {
    if text.parse::<Timestamp>().is_ok() {
        return "<time>".to_owned();
    }
    let mut text = text.to_owned();
    for (name, masked) in names {
        text = text.replace(name, masked);
    }
    let mut masked = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        let (piece, step) = match (rest.get(..UUID_LENGTH), time_length(rest)) {
            (Some(head), _) if is_uuid(head) => ("<uid>", UUID_LENGTH),
            (_, Some(length)) => ("<time>", length),
            _ => (&rest[..first.len_utf8()], first.len_utf8()),
        };
        masked.push_str(piece);
        rest = &rest[step..];
    }
    masked
}

/// How long the time is that a text begins with, if it does: messages tell of deadlines.
fn time_length(text: &str) -> Option<usize> {
    let seconds = text.get(..SECONDS_LENGTH)?;
    let is_time = seconds.char_indices().all(|(index, sign)| match index {
        4 | 7 => sign == '-',
        10 => sign == 'T',
        13 | 16 => sign == ':',
        _ => sign.is_ascii_digit(),
    });
    let end = text.find('Z').filter(|_| is_time)?;
    text[..=end].parse::<Timestamp>().is_ok().then_some(end + 1)
}

fn is_uuid(text: &str) -> bool {
    text.char_indices().all(|(index, sign)| match index {
        8 | 13 | 18 | 23 => sign == '-',
        _ => sign.is_ascii_hexdigit(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_without_meaning_is_masked() {
        let names = BTreeMap::from([("one-1-x7k2p".to_owned(), "one-1<pod 0>".to_owned())]);
        let object = json!({
            "metadata": {"uid": "u", "resourceVersion": "7", "name": "one"},
            "at": "2026-03-01T12:00:00Z",
            "message": "pod one-1-x7k2p of job 6b4a1f0e-1a2b-4c3d-8e9f-0123456789ab ended at 2026-03-01T12:00:00.25Z, not before",
        });
        let expected = json!({
            "metadata": {"name": "one"}, "at": "<time>", "message": "pod one-1<pod 0> of job <uid> ended at <time>, not before",
        });
        assert_eq!(mask(&object, &names), expected);
    }

    #[test]
    fn conditions_are_compared_by_their_type() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        let names = BTreeMap::new();
        let one = json!([
            condition("Blocked", "False"),
            condition("Ready", "True"),
            condition("Done", "True")
        ]);
        let two = json!([condition("Done", "True"), condition("Ready", "True")]);
        assert_eq!(mask(&one, &names), mask(&two, &names));
        assert_ne!(
            mask(&one, &names),
            mask(&json!([condition("Ready", "True")]), &names)
        );
    }

    #[test]
    fn differences_name_the_path_and_both_values() {
        let end = |phase: &str| {
            EndState(BTreeMap::from([(
                "runs one".to_owned(),
                json!({"status": {"phase": phase, "steps": [1]}}),
            )]))
        };
        assert!(end("Failed").differences(&end("Failed")).is_empty());
        assert_eq!(
            end("Succeeded").differences(&end("Failed")),
            ["runs one.status.phase: \"Succeeded\" undisturbed, \"Failed\" here"]
        );
        assert_eq!(end("Failed").differences(&EndState(BTreeMap::new())).len(), 1);
    }
}
