//! What a workflow returned, as the outcome of a run.

use jangar_api::{agents::agent_run_status::RunOutcome, refs::ArtifactRef, values::FreeForm};
use serde_json::{Map, Value};

use super::call::Returned;

/// The most characters of each text. A status has to hold all of them.
const TEXT_MAX: usize = 4096;
/// The most bytes of a result that a status takes over.
pub const RESULT_MAX_BYTES: usize = 16 * 1024;

/// The fields by which a result is known as a report.
const FIELDS: [&str; 6] = ["summary", "message", "commit", "usage", "outputs", "artifacts"];

/// The outcome of a run whose workflow returned this. An object with a field of a report is one; every other value is an output.
pub fn outcome(returned: &Returned) -> (RunOutcome, Vec<ArtifactRef>) {
    match returned {
        Returned::Nothing | Returned::Json(Value::Null) => (RunOutcome::default(), Vec::new()),
        Returned::Hidden(why) => {
            let message = Some(format!("what the workflow returned is not shown here: {why}"));
            let outcome = RunOutcome {
                message,
                ..RunOutcome::default()
            };
            (outcome, Vec::new())
        }
        Returned::Json(Value::Object(fields)) if FIELDS.iter().any(|field| fields.contains_key(*field)) => {
            report(fields)
        }
        Returned::Json(Value::Object(fields)) => (outputs(fields.clone()), Vec::new()),
        Returned::Json(value) => {
            let fields = Map::from_iter([("result".to_owned(), value.clone())]);
            (outputs(fields), Vec::new())
        }
    }
}

fn outputs(fields: Map<String, Value>) -> RunOutcome {
    RunOutcome {
        outputs: Some(FreeForm(fields)),
        ..RunOutcome::default()
    }
}

/// A field of the wrong type is left out, and the message says so.
fn report(fields: &Map<String, Value>) -> (RunOutcome, Vec<ArtifactRef>) {
    let mut wrong = Vec::new();
    let mut text = |name: &'static str| match fields.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.chars().take(TEXT_MAX).collect::<String>()),
        Some(_) => {
            wrong.push(name);
            None
        }
    };
    let (summary, mut message, commit) = (text("summary"), text("message"), text("commit"));
    let mut object = |name: &'static str| match fields.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::Object(fields)) => Some(FreeForm(fields.clone())),
        Some(_) => {
            wrong.push(name);
            None
        }
    };
    let (usage, outputs) = (object("usage"), object("outputs"));
    let artifacts = match fields.get("artifacts") {
        None | Some(Value::Null) => Vec::new(),
        Some(list) => serde_json::from_value(list.clone()).unwrap_or_else(|_| {
            wrong.push("artifacts");
            Vec::new()
        }),
    };
    if !wrong.is_empty() {
        let list = wrong.join(", ");
        message.get_or_insert_with(|| {
            format!("what the workflow returned has fields of the wrong type: {list}")
        });
    }
    let outcome = RunOutcome {
        exit_code: None,
        reason: None,
        message,
        summary,
        usage,
        commit,
        outputs,
    };
    (outcome, artifacts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> (RunOutcome, Vec<ArtifactRef>) {
        outcome(&Returned::Json(value))
    }

    #[test]
    fn a_result_with_a_field_of_a_report_is_one() {
        let (outcome, artifacts) = read(json!({
            "summary": "mended", "commit": "abc", "outputs": {"answer": 42}, "artifacts": [{"name": "log"}], "extra": 1,
        }));
        assert_eq!(outcome.summary.as_deref(), Some("mended"));
        assert_eq!(outcome.commit.as_deref(), Some("abc"));
        assert_eq!(outcome.outputs.unwrap().0["answer"], 42);
        assert_eq!(artifacts.len(), 1);
    }

    #[test]
    fn every_other_result_is_an_output() {
        assert_eq!(read(json!({"answer": 42})).0.outputs.unwrap().0["answer"], 42);
        assert_eq!(read(json!([1, 2])).0.outputs.unwrap().0["result"], json!([1, 2]));
        assert_eq!(outcome(&Returned::Nothing).0, RunOutcome::default());
        assert_eq!(read(json!(null)).0, RunOutcome::default());
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named() {
        let (outcome, artifacts) = read(json!({"summary": 1, "outputs": [], "artifacts": "log"}));
        let message = outcome.message.unwrap();
        for field in ["summary", "outputs", "artifacts"] {
            assert!(message.contains(field), "{message}");
        }
        assert!(artifacts.is_empty());
        let hidden = super::outcome(&Returned::Hidden("it has 9 bytes".to_owned()));
        assert!(hidden.0.message.unwrap().contains("9 bytes"));
    }
}
