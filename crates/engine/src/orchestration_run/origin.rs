//! Whether a child that is there already is the one that a step would make.
//!
//! A child is made before its parent says so, and a crash in between leaves one that nobody recorded. It has the name that the step needs
//! and the right owner, but anybody who may make runs can write both; so its spec has to be the step's as well. What may be written
//! at any time does not count: the cancel, and how long the run is kept.

use jangar_api::{
    agents::agent_run::AgentRunSpec, cancel::CancelRequest, labels::SPEC_HASH,
    orchestration::orchestration_run::OrchestrationRunSpec, tools::ToolRunSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Number, Value};
use sha2::{Digest, Sha256};

use super::Child;
use crate::decision::NewChild;

/// The generation of an object whose spec nobody has changed since it was made.
const FIRST_GENERATION: i64 = 1;

impl Child {
    /// Whether it is what the step would make now: it says the same, or nobody has changed it since it was made to say that. The
    /// second is for what the API server itself adds to whatever is made, by a webhook for example.
    pub(super) fn is_made_as(&self, draft: &NewChild) -> bool {
        let (is, wanted) = match (self, draft) {
            (Self::AgentRun(child), NewChild::AgentRun(draft)) => {
                (of_agent_run(&child.spec), of_agent_run(&draft.spec))
            }
            (Self::ToolRun(child), NewChild::ToolRun(draft)) => {
                (of_tool_run(&child.spec), of_tool_run(&draft.spec))
            }
            (Self::OrchestrationRun(child), NewChild::OrchestrationRun(draft)) => (
                of_orchestration_run(&child.spec),
                of_orchestration_run(&draft.spec),
            ),
            _ => return false,
        };
        let metadata = self.metadata();
        let stamp = metadata.annotations.as_ref().and_then(|all| all.get(SPEC_HASH));
        let is_untouched = metadata.generation == Some(FIRST_GENERATION) && stamp == Some(&hash(&wanted));
        is == wanted || is_untouched
    }
}

/// Says on a child that is to be made which spec it was made with.
pub(super) fn stamped(mut child: NewChild) -> NewChild {
    let spec = match &child {
        NewChild::AgentRun(run) => of_agent_run(&run.spec),
        NewChild::ToolRun(run) => of_tool_run(&run.spec),
        NewChild::OrchestrationRun(run) => of_orchestration_run(&run.spec),
    };
    let metadata: &mut ObjectMeta = match &mut child {
        NewChild::AgentRun(run) => &mut run.metadata,
        NewChild::ToolRun(run) => &mut run.metadata,
        NewChild::OrchestrationRun(run) => &mut run.metadata,
    };
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(SPEC_HASH.to_owned(), hash(&spec));
    child
}

fn of_agent_run(spec: &AgentRunSpec) -> Value {
    let mut fixed = AgentRunSpec {
        stop: CancelRequest::default(),
        ttl_seconds_after_finished: None,
        ..spec.clone()
    };
    // Their order means nothing.
    fixed.secrets.sort();
    plain(fixed)
}

fn of_tool_run(spec: &ToolRunSpec) -> Value {
    plain(ToolRunSpec {
        stop: CancelRequest::default(),
        ttl_seconds_after_finished: None,
        ..spec.clone()
    })
}

fn of_orchestration_run(spec: &OrchestrationRunSpec) -> Value {
    plain(OrchestrationRunSpec {
        stop: CancelRequest::default(),
        ttl_seconds_after_finished: None,
        ..spec.clone()
    })
}

/// A spec as JSON with sorted keys. Our types fill in what the schema would.
fn plain(spec: impl Serialize) -> Value {
    // A spec is data with string keys, which always becomes JSON.
    let mut value = serde_json::to_value(spec).unwrap_or_default();
    settle(&mut value);
    value
}

/// Makes equal what an API server does not tell apart: a field that is null and one that is absent, 1.0 and 1. It goes as deep as the
/// value does, which has come through a parser that reads no more than 128 levels.
fn settle(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(settle);
        }
        Value::Array(items) => items.iter_mut().for_each(settle),
        Value::Number(number) => {
            if let Some(whole) = whole(number) {
                *number = whole;
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// A number with a fraction of nothing, as the whole number that it is.
fn whole(number: &Number) -> Option<Number> {
    let float = number.as_f64().filter(|_| number.is_f64())?;
    // Those that are written with an exponent are not whole, and stay what they are.
    let text = format!("{float}");
    text.parse::<i64>().ok().map(Number::from)
}

fn hash(spec: &Value) -> String {
    let digest = Sha256::digest(spec.to_string().as_bytes());
    format!("{digest:x}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_api_server_does_not_tell_apart_is_the_same() {
        for (one, other) in [
            (json!({"a": 1.0, "b": null}), json!({"a": 1})),
            (json!([{"a": -3.0}]), json!([{"a": -3}])),
            (json!({"a": {"b": null}}), json!({"a": {}})),
        ] {
            assert_eq!(plain(&one), plain(&other), "{one} {other}");
        }
        for (one, other) in [
            (json!({"a": 1.5}), json!({"a": 1})),
            (json!({"a": "1"}), json!({"a": 1})),
            (json!({"a": false}), json!({})),
            (json!([null]), json!([])),
            (json!({"a": 1e300}), json!({"a": 1})),
        ] {
            assert_ne!(plain(&one), plain(&other), "{one} {other}");
        }
    }
}
