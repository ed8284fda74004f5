//! From the object of a run to what is remembered of it: a pure function.
//!
//! It reads the object as JSON and not as one of our types, because it must not fail on an object of another version: what it
//! does not find is left empty. Only who the run is has to be there. Secrets are left out before anything else is
//! looked at, so that neither a column nor a word of the search can hold one.

use std::collections::BTreeMap;

use jangar_api::phase::{RunPhase, StepPhase};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Approval, ArtifactReference, CancelReceipt, Error, RunKind, Step, Transition, document::Document,
    withhold, words::Words,
};

/// A message is for people; the document has the rest.
const MAX_MESSAGE: usize = 4 << 10;
/// An orchestration has far fewer steps. Of more, the document has what fits into it.
const MAX_ENTRIES: usize = 2_000;

/// What is remembered of a run, ready to be written. It can be made from an object only, and holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    pub(crate) uid: String,
    pub(crate) kind: RunKind,
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subject: String,
    pub(crate) phase: RunPhase,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) priority: i64,
    pub(crate) runtime: Option<String>,
    pub(crate) parent: Option<String>,
    pub(crate) version: i64,
    pub(crate) created_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) words: String,
    pub(crate) document: Document,
    pub(crate) steps: Vec<Step>,
    pub(crate) transitions: Vec<Transition>,
    pub(crate) approvals: Vec<Approval>,
    pub(crate) cancel_receipts: Vec<CancelReceipt>,
    pub(crate) artifacts: Vec<ArtifactReference>,
}

impl RunRecord {
    /// Reads an object as the API server has it. `cluster` is what the caller calls the place where the run ran.
    pub fn of(object: &Value, cluster: &str) -> Result<Self, Error> {
        let kind = required(object, "kind", "/kind")?;
        let kind: RunKind = kind.parse().map_err(|_| Error::Record {
            field: "kind",
            why: format!("is {kind:?}, and only AgentRun, OrchestrationRun and ToolRun are remembered"),
        })?;
        let uid = required(object, "metadata.uid", "/metadata/uid")?;
        let namespace = required(object, "metadata.namespace", "/metadata/namespace")?;
        let name = required(object, "metadata.name", "/metadata/name")?;
        let created_at = time(object, "/metadata/creationTimestamp").ok_or_else(|| Error::Record {
            field: "metadata.creationTimestamp",
            why: "is not there, or is no time".to_owned(),
        })?;
        let version = required(object, "metadata.resourceVersion", "/metadata/resourceVersion")?;
        let version = version.parse().map_err(|_| Error::Record {
            field: "metadata.resourceVersion",
            why: format!("is {version:?} and no number, so that older and newer cannot be told apart"),
        })?;
        // From here on nothing is read from the object as it was given.
        let document = Document::of(object);
        let clean = &document.value;
        let phase = text(clean, "/status/phase").map_or(RunPhase::Pending, RunPhase::from);
        let (reason, message) = why(clean, &phase);
        let steps = steps(clean);
        let mut record = Self {
            kind,
            cluster: cluster.to_owned(),
            uid,
            namespace,
            name,
            subject: subject(clean, kind).unwrap_or_default().to_owned(),
            reason,
            message,
            priority: clean
                .pointer("/spec/priority")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            runtime: owned(clean, "/spec/runtime/type"),
            parent: parent(clean),
            version,
            created_at,
            started_at: time(clean, "/status/startedAt"),
            finished_at: time(clean, "/status/finishedAt"),
            labels: labels(clean),
            words: String::new(),
            transitions: Vec::new(),
            approvals: entries(clean, "/status/approvals", approval),
            cancel_receipts: entries(clean, "/status/cancelReceipt", cancel_receipt),
            artifacts: entries(clean, "/status/artifacts", artifact),
            phase,
            steps,
            document,
        };
        record.transitions = record.find_transitions();
        record.words = record.find_words();
        Ok(record)
    }

    /// With conditions that the run had before, each as the object had it. Those that do not say since when are left out.
    #[must_use]
    pub fn with_earlier(mut self, conditions: &[Value]) -> Self {
        let earlier = conditions.iter().take(MAX_ENTRIES).filter_map(|given| {
            let mut clean = given.clone();
            withhold(&mut clean);
            condition(&clean)
        });
        self.transitions.extend(earlier);
        self.transitions.sort_by_key(|transition| transition.at);
        self
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }

    pub fn kind(&self) -> RunKind {
        self.kind
    }

    /// Whether the run had ended.
    pub fn is_finished(&self) -> bool {
        self.phase.is_terminal()
    }

    /// Conditions have the time of their last change only. What they were before is for others to say.
    fn find_transitions(&self) -> Vec<Transition> {
        let of_run = |at: Option<Timestamp>, became: &str| {
            at.map(|at| Transition {
                at,
                subject: String::new(),
                what: "Phase".to_owned(),
                became: became.to_owned(),
                reason: String::new(),
                message: String::new(),
            })
        };
        let end = of_run(self.finished_at, self.phase.as_str()).map(|end| Transition {
            reason: self.reason.clone().unwrap_or_default(),
            message: self.message.clone().unwrap_or_default(),
            ..end
        });
        let phases = [
            of_run(Some(self.created_at), "Pending"),
            of_run(self.started_at, "Running"),
            end,
        ];
        let conditions = entries(&self.document.value, "/status/conditions", condition);
        let ends = self.steps.iter().filter_map(|step| {
            Some(Transition {
                at: step.finished_at?,
                subject: step.name.clone(),
                what: "Phase".to_owned(),
                became: step.phase.as_str().to_owned(),
                reason: step.reason.clone().unwrap_or_default(),
                message: step.message.clone().unwrap_or_default(),
            })
        });
        let mut all: Vec<Transition> = phases
            .into_iter()
            .flatten()
            .chain(conditions)
            .chain(ends)
            .collect();
        all.sort_by_key(|transition| transition.at);
        all
    }

    /// What comes first matters: there is a limit.
    fn find_words(&self) -> String {
        let mut words = Words::default();
        let clean = &self.document.value;
        for text in [&self.name, &self.subject, &self.namespace, &self.uid] {
            words.add(text);
        }
        for text in [&self.reason, &self.message].into_iter().flatten() {
            words.add(text);
        }
        for path in [
            "/status/vcs/repository",
            "/status/outcome/summary",
            "/spec/implementation/inline/summary",
        ] {
            words.add(text(clean, path).unwrap_or_default());
        }
        for (key, value) in &self.labels {
            words.add(key);
            words.add(value);
        }
        for step in &self.steps {
            words.add(&step.name);
            words.add(step.message.as_deref().unwrap_or_default());
        }
        for path in ["/spec", "/status/outcome", "/status/vcs"] {
            add_texts(clean.pointer(path), &mut words);
        }
        words.into_text()
    }
}

fn add_texts(value: Option<&Value>, words: &mut Words) {
    match value {
        Some(Value::String(text)) => words.add(text),
        Some(Value::Array(items)) => items.iter().for_each(|item| add_texts(Some(item), words)),
        Some(Value::Object(map)) => map.values().for_each(|item| add_texts(Some(item), words)),
        _ => {}
    }
}

fn required(object: &Value, field: &'static str, path: &str) -> Result<String, Error> {
    let found = text(object, path).filter(|text| !text.is_empty());
    found.map(str::to_owned).ok_or_else(|| Error::Record {
        field,
        why: "is not there".to_owned(),
    })
}

fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path)?.as_str()
}

fn owned(value: &Value, path: &str) -> Option<String> {
    text(value, path).map(str::to_owned)
}

fn time(value: &Value, path: &str) -> Option<Timestamp> {
    text(value, path)?.parse().ok()
}

/// A message of bounded length.
fn message(value: &Value, path: &str) -> Option<String> {
    let mut text = owned(value, path)?;
    if text.len() > MAX_MESSAGE {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE));
    }
    Some(text)
}

fn entries<T>(value: &Value, path: &str, read: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    let list = value.pointer(path).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .take(MAX_ENTRIES)
        .filter_map(read)
        .collect()
}

fn subject(object: &Value, kind: RunKind) -> Option<&str> {
    let path = match kind {
        RunKind::AgentRun => "/spec/agentRef/name",
        RunKind::OrchestrationRun => "/spec/orchestrationRef/name",
        RunKind::ToolRun => "/spec/toolRef/name",
    };
    text(object, path)
}

fn parent(object: &Value) -> Option<String> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners
        .iter()
        .find(|owner| owner["kind"] == RunKind::OrchestrationRun.as_str())?;
    owned(owner, "/uid")
}

fn labels(object: &Value) -> BTreeMap<String, String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let label = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    labels.into_iter().flatten().filter_map(label).collect()
}

/// The condition that explains the phase, with its reason and message.
fn why(object: &Value, phase: &RunPhase) -> (Option<String>, Option<String>) {
    let types: &[&str] = match phase {
        RunPhase::Succeeded => &["Succeeded", "Complete"],
        RunPhase::Failed => &["Failed", "InvalidSpec"],
        RunPhase::Cancelled | RunPhase::Cancelling => &["Cancelled"],
        RunPhase::Pending => &["Blocked"],
        RunPhase::Running | RunPhase::Other(_) => &["Blocked", "Running"],
    };
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let holds = |type_: &&str| {
        let mut all = conditions.into_iter().flatten();
        all.find(|condition| condition["type"] == **type_ && condition["status"] == "True")
    };
    match types.iter().find_map(holds) {
        Some(condition) => (owned(condition, "/reason"), message(condition, "/message")),
        None => (None, None),
    }
}

fn condition(value: &Value) -> Option<Transition> {
    Some(Transition {
        at: time(value, "/lastTransitionTime")?,
        subject: String::new(),
        what: owned(value, "/type")?,
        became: owned(value, "/status")?,
        reason: owned(value, "/reason").unwrap_or_default(),
        message: message(value, "/message").unwrap_or_default(),
    })
}

/// Workflows and orchestrations keep their steps in different places and in nearly the same words.
fn steps(object: &Value) -> Vec<Step> {
    let paths = ["/status/stepStatuses", "/status/workflow/steps"];
    let found = paths
        .iter()
        .map(|path| entries(object, path, step))
        .find(|steps| !steps.is_empty());
    let mut steps = found.unwrap_or_default();
    for (position, step) in (0..).zip(&mut steps) {
        step.position = position;
    }
    steps
}

fn step(value: &Value) -> Option<Step> {
    let child = ["/resourceRef", "/jobRef"]
        .iter()
        .find_map(|path| value.pointer(path));
    Some(Step {
        position: 0,
        name: owned(value, "/name")?,
        kind: owned(value, "/kind"),
        phase: text(value, "/phase").map_or(StepPhase::Pending, StepPhase::from),
        reason: owned(value, "/reason"),
        message: message(value, "/message"),
        caused_by: owned(value, "/causedBy"),
        attempt: value.pointer("/attempt").and_then(Value::as_i64),
        started_at: time(value, "/startedAt"),
        finished_at: time(value, "/finishedAt"),
        child: child.and_then(|child| owned(child, "/name")),
        child_uid: child.and_then(|child| owned(child, "/uid")),
    })
}

fn approval(value: &Value) -> Option<Approval> {
    Some(Approval {
        step: owned(value, "/step")?,
        decision: owned(value, "/decision")?,
        by: owned(value, "/by").unwrap_or_default(),
        groups: entries(value, "/groups", |group| group.as_str().map(str::to_owned)),
        at: time(value, "/at"),
        comment: message(value, "/comment"),
        digest: owned(value, "/digest").unwrap_or_default(),
    })
}

fn cancel_receipt(value: &Value) -> Option<CancelReceipt> {
    let name = text(value, "/resourceRef/name");
    let kind = text(value, "/resourceRef/kind").unwrap_or_default();
    Some(CancelReceipt {
        step: owned(value, "/step")?,
        resource: name.map(|name| format!("{kind}/{name}")),
        asked_at: time(value, "/askedAt"),
        gone_at: time(value, "/goneAt"),
        result: message(value, "/result"),
    })
}

fn artifact(value: &Value) -> Option<ArtifactReference> {
    Some(ArtifactReference {
        name: owned(value, "/name")?,
        path: owned(value, "/path"),
        key: owned(value, "/key"),
        url: owned(value, "/url"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1",
            "kind": "AgentRun",
            "metadata": {
                "name": "fix-login", "namespace": "team", "uid": "u-1", "resourceVersion": "41",
                "creationTimestamp": "2026-03-01T10:00:00Z",
                "labels": {"team": "web"},
                "ownerReferences": [{"kind": "OrchestrationRun", "name": "release", "uid": "u-0"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"hunter2\": 1}"},
            },
            "spec": {
                "agentRef": {"name": "coder"}, "runtime": {"type": "workflow"}, "priority": 3,
                "parameters": {"API_TOKEN": "hunter2", "goal": "mend the login page"},
            },
            "status": {
                "phase": "Failed", "startedAt": "2026-03-01T10:00:02Z", "finishedAt": "2026-03-01T10:05:00Z",
                "conditions": [
                    {"type": "Failed", "status": "True", "reason": "AgentFailed", "message": "exit code 2",
                     "lastTransitionTime": "2026-03-01T10:05:00Z"},
                    {"type": "Succeeded", "status": "False", "lastTransitionTime": "2026-03-01T10:05:00Z"},
                ],
                "workflow": {"steps": [
                    {"name": "plan", "phase": "Succeeded", "attempt": 1, "finishedAt": "2026-03-01T10:02:00Z",
                     "jobRef": {"name": "fix-login-plan-1", "uid": "j-1"}},
                    {"name": "build", "phase": "Failed", "attempt": 2, "message": "it broke"},
                ]},
                "artifacts": [{"name": "patch", "url": "https://user:hunter2@example.com/patch"}],
            },
        })
    }

    fn record() -> RunRecord {
        RunRecord::of(&object(), "here").expect("a run")
    }

    #[test]
    fn a_run_is_read_from_its_object() {
        let record = record();
        assert_eq!(
            (record.kind, record.subject.as_str(), record.priority),
            (RunKind::AgentRun, "coder", 3)
        );
        assert_eq!((record.version, record.parent.as_deref()), (41, Some("u-0")));
        assert_eq!(record.reason.as_deref(), Some("AgentFailed"));
        assert_eq!(record.message.as_deref(), Some("exit code 2"));
        assert_eq!(record.labels["team"], "web");
        assert!(record.is_finished());
    }

    #[test]
    fn steps_keep_their_order_and_their_jobs() {
        let record = record();
        let steps: Vec<_> = record
            .steps
            .iter()
            .map(|step| (step.position, step.name.as_str()))
            .collect();
        assert_eq!(steps, [(0, "plan"), (1, "build")]);
        assert_eq!(record.steps[0].child.as_deref(), Some("fix-login-plan-1"));
        assert_eq!(record.steps[1].attempt, Some(2));
    }

    #[test]
    fn transitions_tell_the_life_of_the_run_in_order() {
        let record = record();
        let told: Vec<_> = record
            .transitions
            .iter()
            .map(|change| {
                (
                    change.subject.as_str(),
                    change.what.as_str(),
                    change.became.as_str(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("", "Phase", "Pending"),
                ("", "Phase", "Running"),
                ("plan", "Phase", "Succeeded"),
                ("", "Phase", "Failed"),
                ("", "Failed", "True"),
                ("", "Succeeded", "False"),
            ]
        );
    }

    #[test]
    fn no_part_of_a_record_holds_a_secret() {
        let record = record();
        assert!(!format!("{record:?}").contains("hunter2"), "{record:?}");
        assert_eq!(
            record.artifacts[0].url.as_deref(),
            Some("https://user:[withheld]@example.com/patch")
        );
    }

    #[test]
    fn a_run_is_found_by_its_names_and_by_what_was_said() {
        let words = format!(" {} ", record().words);
        for word in ["fix", "login", "coder", "web", "agentfailed", "mend", "broke"] {
            assert!(words.contains(&format!(" {word} ")), "{word} in {words}");
        }
    }

    #[test]
    fn what_is_no_run_is_told_with_the_field() {
        let without = |path: &str, key: &str| {
            let mut object = object();
            let parent = object
                .pointer_mut(path)
                .and_then(Value::as_object_mut)
                .expect("a map");
            parent.remove(key);
            RunRecord::of(&object, "here").expect_err("no run").to_string()
        };
        assert!(without("", "kind").contains("kind is not there"));
        assert!(without("/metadata", "uid").contains("metadata.uid is not there"));
        assert!(without("/metadata", "creationTimestamp").contains("metadata.creationTimestamp"));
        let agent = json!({"kind": "Agent"});
        assert!(
            RunRecord::of(&agent, "here")
                .expect_err("no run")
                .to_string()
                .contains("only AgentRun")
        );
    }

    #[test]
    fn a_status_of_another_version_is_read_as_far_as_it_goes() {
        let mut object = object();
        object["status"] = json!({"phase": 7, "conditions": "none", "stepStatuses": [{"phase": "Odd"}, 5]});
        let record = RunRecord::of(&object, "here").expect("a run");
        assert_eq!(
            (record.phase, record.steps.len(), record.reason),
            (RunPhase::Pending, 0, None)
        );
    }
}
