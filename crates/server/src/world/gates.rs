//! The gates that wait for people, and since when: somebody may have to be reminded.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{Action, Object, text};

/// Since when the gates of OrchestrationRuns wait, by namespace and name of the run. Runs without one are not in it.
#[derive(Debug, Default)]
pub(super) struct Gates(BTreeMap<(String, String), Vec<Timestamp>>);

impl Gates {
    /// What a change of an OrchestrationRun says about its gates.
    pub(super) fn note(&mut self, action: Action, run: &Object) {
        let key = (run.namespace.clone(), run.name.clone());
        let since = match action {
            Action::Deleted => Vec::new(),
            Action::Added | Action::Modified => since(run),
        };
        if since.is_empty() {
            self.0.remove(&key);
        } else {
            self.0.insert(key, since);
        }
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Since when the one waits that has waited longest.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.0.values().flatten().min().copied()
    }
}

/// Since when each gate of a run waits; one that does not say has waited as long as the run is there.
fn since(run: &Object) -> Vec<Timestamp> {
    let steps = run.json.pointer("/status/stepStatuses").and_then(Value::as_array);
    let waits = |step: &&Value| {
        text(step, "/phase").as_deref() == Some("Running")
            && text(step, "/waitsFor/approvalPolicy").is_some()
            && text(step, "/waitsFor/digest").is_some()
    };
    let started = |step: &Value| -> Option<Timestamp> { text(step, "/startedAt")?.parse().ok() };
    let waiting = steps.into_iter().flatten().filter(waits);
    waiting.map(|step| started(step).unwrap_or(run.created)).collect()
}

#[cfg(test)]
mod tests {
    use jangar_api::Kind;
    use serde_json::json;

    use super::*;

    fn run(name: &str, steps: &Value) -> Object {
        let object = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "a", "creationTimestamp": "2026-03-01T12:00:00Z"},
            "spec": {"orchestrationRef": {"name": "release"}},
            "status": {"phase": "Running", "stepStatuses": steps},
        }))
        .expect("an object");
        Object::read(Kind::OrchestrationRun, object, true)
    }

    fn gate(phase: &str, started: Option<&str>) -> Value {
        json!({"name": "gate", "phase": phase, "startedAt": started, "waitsFor": {"approvalPolicy": "leads", "digest": "0"}})
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn gates_wait_until_they_are_decided_or_their_run_is_gone() {
        let mut gates = Gates::default();
        let work = json!({"name": "build", "phase": "Running", "startedAt": "2026-03-01T11:00:00Z"});
        let first = json!([work, gate("Running", Some("2026-03-01T13:00:00Z"))]);
        gates.note(Action::Added, &run("first", &first));
        gates.note(Action::Added, &run("second", &json!([gate("Running", None)])));
        assert_eq!(gates.waiting(), 2);
        assert_eq!(
            gates.oldest(),
            Some(at("2026-03-01T12:00:00Z")),
            "it says nothing, so its run counts"
        );
        gates.note(Action::Deleted, &run("second", &json!([gate("Running", None)])));
        assert_eq!(gates.oldest(), Some(at("2026-03-01T13:00:00Z")));
        gates.note(
            Action::Modified,
            &run("first", &json!([work, gate("Succeeded", None)])),
        );
        assert_eq!((gates.waiting(), gates.oldest()), (0, None));
    }
}
