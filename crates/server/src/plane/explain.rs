//! Why a run waits, or how it ended, from what its status says.

use jangar_api::{
    Kind,
    condition::{Condition, ConditionStatus, ConditionType},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::world::text;

/// Where a run stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Waiting,
    Working,
    Stopping,
    Succeeded,
    Failed,
    Cancelled,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Such as `AgentRun agents/fix-42`.
    pub subject: String,
    pub state: State,
    /// The word of the condition that decides.
    pub reason: Option<String>,
    /// One sentence.
    pub headline: String,
    /// More about it, the most important first.
    pub because: Vec<String>,
}

/// Why the run stands where it does.
pub fn explain(kind: Kind, run: &Value) -> Explanation {
    let name = text(run, "/metadata/name").unwrap_or_default();
    let namespace = text(run, "/metadata/namespace").unwrap_or_default();
    let phase = text(run, "/status/phase").unwrap_or_else(|| "Pending".to_owned());
    let conditions: Vec<Condition> = run
        .pointer("/status/conditions")
        .and_then(|conditions| serde_json::from_value(conditions.clone()).ok())
        .unwrap_or_default();
    let holding = |type_: ConditionType| {
        conditions
            .iter()
            .find(|condition| condition.type_ == type_ && condition.status == ConditionStatus::True)
    };
    let (state, condition) = match phase.as_str() {
        "Succeeded" => (State::Succeeded, holding(ConditionType::Succeeded)),
        "Failed" => (State::Failed, holding(ConditionType::Failed)),
        "Cancelled" => (State::Cancelled, holding(ConditionType::Cancelled)),
        "Cancelling" => (State::Stopping, None),
        "Running" => (State::Working, holding(ConditionType::Blocked)),
        _ => (State::Waiting, holding(ConditionType::Blocked)),
    };
    let subject = format!("{} {namespace}/{name}", kind.info().kind);
    let words = condition
        .map(|condition| condition.message.clone())
        .filter(|words| !words.is_empty());
    let headline = match &words {
        Some(words) => format!("{subject} is {phase}: {words}"),
        None => format!("{subject} is {phase}"),
    };
    Explanation {
        subject,
        state,
        reason: condition.map(|condition| condition.reason.to_string()),
        headline,
        because: steps(run),
    }
}

/// The steps that are not done, in their own words.
fn steps(run: &Value) -> Vec<String> {
    let steps = run
        .pointer("/status/stepStatuses")
        .or_else(|| run.pointer("/status/workflow/steps"))
        .and_then(Value::as_array);
    let told = steps.into_iter().flatten().filter_map(|step| {
        let name = text(step, "/name")?;
        let phase = text(step, "/phase")?;
        if matches!(phase.as_str(), "Succeeded" | "Pending") {
            return None;
        }
        let why = [text(step, "/reason"), text(step, "/message")];
        let why: Vec<String> = why.into_iter().flatten().collect();
        Some(if why.is_empty() {
            format!("step {name} is {phase}")
        } else {
            format!("step {name} is {phase}: {}", why.join(", "))
        })
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_that_waits_says_for_what_and_one_that_failed_says_why() {
        let run = |phase: &str, type_: &str, reason: &str, message: &str| {
            json!({
                "metadata": {"name": "r", "namespace": "a"},
                "status": {"phase": phase, "conditions": [
                    {"type": type_, "status": "True", "reason": reason, "message": message}]},
            })
        };
        let waits = explain(
            Kind::AgentRun,
            &run("Pending", "Blocked", "QueueLimit", "200 wait"),
        );
        assert_eq!(
            (waits.state, waits.reason.as_deref()),
            (State::Waiting, Some("QueueLimit"))
        );
        assert_eq!(waits.headline, "AgentRun a/r is Pending: 200 wait");
        let failed = explain(Kind::AgentRun, &run("Failed", "Failed", "JobMissing", "gone"));
        assert_eq!(
            (failed.state, failed.reason.as_deref()),
            (State::Failed, Some("JobMissing"))
        );
        let new = explain(
            Kind::AgentRun,
            &json!({"metadata": {"name": "r", "namespace": "a"}}),
        );
        assert_eq!((new.state, new.reason), (State::Waiting, None));
    }

    #[test]
    fn steps_that_are_not_done_are_named() {
        let run = json!({
            "metadata": {"name": "r", "namespace": "a"},
            "status": {"phase": "Running", "stepStatuses": [
                {"name": "one", "phase": "Succeeded"},
                {"name": "two", "phase": "Failed", "reason": "JobFailed", "message": "exit code 1"},
                {"name": "three", "phase": "Skipped", "reason": "DependencyFailed"},
                {"name": "four", "phase": "Running"}]},
        });
        assert_eq!(
            explain(Kind::OrchestrationRun, &run).because,
            [
                "step two is Failed: JobFailed, exit code 1",
                "step three is Skipped: DependencyFailed",
                "step four is Running",
            ]
        );
    }
}
