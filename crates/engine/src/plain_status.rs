//! A status that the API server refused, made plain enough to be taken.
//!
//! A status also holds the words of others: what an agent reported, what a node said, conditions of another program. One of
//! them can be more than the schema of the cluster allows, and then the API server refuses all of it, however often it is
//! sent. The end of a run must be recorded all the same, so what can be at fault is left out: what remains are our own words,
//! cut to a length that no schema objects to.

use jangar_api::{
    agents::{
        agent::AgentStatus,
        agent_provider::AgentProviderStatus,
        agent_run::AgentRunStatus,
        agent_run_status::{RunOutcome, WorkflowStatus, WorkflowStepStatus},
        implementation_spec::ImplementationSpecStatus,
        version_control_provider::VersionControlProviderStatus,
    },
    approvals::ApprovalPolicyStatus,
    condition::{CommonStatus, Condition, ConditionStatus, ConditionType},
    orchestration::{
        OrchestrationStatus,
        orchestration_run::{OrchestrationRunStatus, StepStatus},
    },
    reason::Reason,
    signals::{SignalDeliveryStatus, SignalStatus},
    tools::{ToolRunStatus, ToolStatus},
};

use crate::{conditions::says_the_same, decision::Refusal};

/// The most characters of any text in a plain status: enough for a sentence and what it quotes.
const TEXT_MAX: usize = 512;

/// A status that has a plain form.
pub trait PlainStatus: Clone + PartialEq {
    /// This status without its conditions and whatever else can be at fault.
    #[must_use]
    fn essentials(&self) -> Self;
    fn common(&self) -> &CommonStatus;
    fn common_mut(&mut self) -> &mut CommonStatus;

    /// What is left of this status after the API server refused it. `before` is the status that is there: what stays as it is
    /// keeps its times, so that the same plain status is not written twice.
    #[must_use]
    fn plain(&self, before: Option<&Self>, refusal: &Refusal) -> Self {
        let mut next = self.essentials();
        *next.common_mut() = plain_conditions(self.common(), before.map(Self::common), refusal);
        let Some(before) = before else { return next };
        // A time by itself is no change.
        let mut same = before.clone();
        same.common_mut().updated_at = next.common().updated_at;
        if same == next { before.clone() } else { next }
    }
}

/// Says where a status keeps what all have.
macro_rules! common_in_common {
    () => {
        fn common(&self) -> &CommonStatus {
            &self.common
        }

        fn common_mut(&mut self) -> &mut CommonStatus {
            &mut self.common
        }
    };
}

impl PlainStatus for AgentRunStatus {
    common_in_common!();

    fn essentials(&self) -> Self {
        Self {
            phase: self.phase.clone(),
            started_at: self.started_at,
            admitted_at: self.admitted_at,
            canonical_run: self.canonical_run.clone(),
            finished_at: self.finished_at,
            runtime_ref: self.runtime_ref.clone(),
            outcome: self.outcome.as_ref().map(plain_outcome),
            cancel_deadline: self.cancel_deadline,
            survivors_gone_at: self.survivors_gone_at,
            spec_hash: self.spec_hash.clone(),
            workflow: self.workflow.as_ref().map(plain_workflow),
            retention: self.retention.clone(),
            // A later attempt goes on with the same branch.
            vcs: self.vcs.clone(),
            ..Self::default()
        }
    }
}

impl PlainStatus for AgentStatus {
    common_in_common!();

    fn essentials(&self) -> Self {
        Self::default()
    }
}

impl PlainStatus for AgentProviderStatus {
    common_in_common!();

    fn essentials(&self) -> Self {
        Self::default()
    }
}

impl PlainStatus for VersionControlProviderStatus {
    common_in_common!();

    fn essentials(&self) -> Self {
        Self {
            last_validated_at: self.last_validated_at,
            ..Self::default()
        }
    }
}

impl PlainStatus for ImplementationSpecStatus {
    common_in_common!();

    fn essentials(&self) -> Self {
        Self {
            synced_at: self.synced_at,
            ..Self::default()
        }
    }
}

impl PlainStatus for OrchestrationStatus {
    common_in_common!();

    fn essentials(&self) -> Self {
        Self {
            phase: self.phase.clone(),
            ..Self::default()
        }
    }
}

impl PlainStatus for OrchestrationRunStatus {
    common_in_common!();

    fn essentials(&self) -> Self {
        let step = |step: &StepStatus| StepStatus {
            message: step.message.as_deref().map(cut),
            outputs: None,
            ..step.clone()
        };
        Self {
            step_statuses: self.step_statuses.iter().map(step).collect(),
            ..self.clone()
        }
    }
}

impl PlainStatus for ApprovalPolicyStatus {
    common_in_common!();

    fn essentials(&self) -> Self {
        // The phase may be a person's decision.
        self.clone()
    }
}

impl PlainStatus for SignalStatus {
    common_in_common!();

    fn essentials(&self) -> Self {
        self.clone()
    }
}

impl PlainStatus for SignalDeliveryStatus {
    common_in_common!();

    fn essentials(&self) -> Self {
        self.clone()
    }
}

impl PlainStatus for ToolStatus {
    common_in_common!();

    fn essentials(&self) -> Self {
        Self {
            phase: self.phase.clone(),
            ..Self::default()
        }
    }
}

impl PlainStatus for ToolRunStatus {
    common_in_common!();

    fn essentials(&self) -> Self {
        Self {
            outcome: self.outcome.as_ref().map(plain_outcome),
            ..self.clone()
        }
    }
}

/// What an agent reported, without the values that can have any form and size.
fn plain_outcome(outcome: &RunOutcome) -> RunOutcome {
    let text = |text: &Option<String>| text.as_deref().map(cut);
    RunOutcome {
        exit_code: outcome.exit_code,
        reason: text(&outcome.reason),
        message: text(&outcome.message),
        summary: text(&outcome.summary),
        commit: text(&outcome.commit),
        usage: None,
        outputs: None,
    }
}

/// Where the steps stand, without what they reported. A later step that needs it says so.
fn plain_workflow(workflow: &WorkflowStatus) -> WorkflowStatus {
    let step = |step: &WorkflowStepStatus| WorkflowStepStatus {
        message: step.message.as_deref().map(cut),
        outputs: None,
        ..step.clone()
    };
    WorkflowStatus {
        steps: workflow.steps.iter().map(step).collect(),
        ..workflow.clone()
    }
}

/// Our own conditions, and a warning that this is not all there was to say.
fn plain_conditions(
    planned: &CommonStatus,
    before: Option<&CommonStatus>,
    refusal: &Refusal,
) -> CommonStatus {
    let ours = |condition: &&Condition| {
        !matches!(condition.type_, ConditionType::Other(_))
            && !matches!(condition.reason, Reason::Other(_))
            && condition.last_transition_time.is_some()
    };
    let mut conditions: Vec<Condition> = planned
        .conditions
        .iter()
        .filter(ours)
        .map(|condition| Condition {
            message: cut(&condition.message),
            ..condition.clone()
        })
        .collect();
    warn(&mut conditions, planned, refusal);
    for condition in &mut conditions {
        let known = before.and_then(|before| before.condition(&condition.type_));
        if let Some(known) = known.filter(|known| says_the_same(known, condition)) {
            *condition = known.clone();
        }
    }
    CommonStatus {
        conditions,
        ..planned.clone()
    }
}

/// Says what happened, behind what there was to warn of already.
fn warn(conditions: &mut Vec<Condition>, planned: &CommonStatus, refusal: &Refusal) {
    let message = cut(&format!(
        "the API server refused the whole status, so that outputs, usage and artifacts are left out; the log of the \
         controllers has them. It said: {}",
        refusal.message
    ));
    let warning = conditions
        .iter_mut()
        .find(|condition| condition.type_ == ConditionType::Warning);
    match warning {
        Some(warning) if warning.status == ConditionStatus::True => {
            warning.message = format!("{}; {message}", warning.message);
        }
        Some(warning) => {
            warning.status = ConditionStatus::True;
            warning.reason = Reason::StatusRefused;
            warning.message = message;
        }
        None => conditions.push(Condition {
            type_: ConditionType::Warning,
            status: ConditionStatus::True,
            reason: Reason::StatusRefused,
            message,
            last_transition_time: planned.updated_at,
            observed_generation: planned.observed_generation,
        }),
    }
}

/// The beginning of a text.
fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use jangar_api::{phase::RunPhase, values};
    use serde_json::json;

    use super::*;

    fn refusal() -> Refusal {
        Refusal {
            code: 422,
            message: "status.outcome.outputs: too long".to_owned(),
        }
    }

    fn at(second: i64) -> values::Timestamp {
        values::Timestamp(jiff::Timestamp::from_second(second).expect("a time"))
    }

    fn planned(second: i64) -> AgentRunStatus {
        let time = at(second);
        serde_json::from_value(json!({
            "phase": "Failed", "finishedAt": at(1), "updatedAt": time,
            "artifacts": [{"name": "log"}],
            "outcome": {"exitCode": 3, "summary": "x".repeat(5000), "outputs": {"answer": 42}},
            "conditions": [
                {"type": "Failed", "status": "True", "reason": "JobFailed", "message": "y".repeat(5000),
                 "lastTransitionTime": time},
                {"type": "their.domain/Mood", "status": "True", "reason": "Sunny", "lastTransitionTime": time},
            ],
        }))
        .expect("a status")
    }

    #[test]
    fn the_end_stays_and_what_can_be_at_fault_goes() {
        let plain = planned(5).plain(None, &refusal());

        assert_eq!(plain.phase, Some(RunPhase::Failed));
        assert_eq!(plain.finished_at, Some(at(1)));
        let outcome = plain.outcome.expect("what can be kept of it");
        assert_eq!(outcome.exit_code.map(jangar_api::values::Int32::get), Some(3));
        assert_eq!(outcome.outputs, None);
        assert_eq!(outcome.summary.expect("a summary").chars().count(), TEXT_MAX + 1);
        assert!(plain.artifacts.is_empty());
        let types: Vec<_> = plain.common.conditions.iter().map(|one| &one.type_).collect();
        assert_eq!(types, [&ConditionType::Failed, &ConditionType::Warning]);
        let failed = plain.common.condition(&ConditionType::Failed).expect("ours");
        assert_eq!(failed.reason, Reason::JobFailed);
        let warning = plain.common.condition(&ConditionType::Warning).expect("told");
        assert_eq!(warning.reason, Reason::StatusRefused);
        assert!(
            warning.message.contains(&refusal().message),
            "{}",
            warning.message
        );
    }

    #[test]
    fn where_the_steps_stand_stays_without_what_they_reported() {
        let mut planned = planned(5);
        planned.workflow = serde_json::from_value(json!({"phase": "Running", "steps": [
            {"name": "plan", "phase": "Succeeded", "attempt": 2, "outputs": {"branch": "fix"}},
            {"name": "build", "phase": "Pending", "message": "z".repeat(5000)},
        ]}))
        .expect("steps");

        let workflow = planned.plain(None, &refusal()).workflow.expect("the steps");

        let [plan, build] = workflow.steps.as_slice() else {
            panic!("{workflow:#?}")
        };
        assert_eq!(plan.progress, planned.workflow.expect("steps").steps[0].progress);
        assert_eq!(plan.outputs, None);
        let message = build.message.as_deref().expect("a message");
        assert_eq!(message.chars().count(), TEXT_MAX + 1);
    }

    #[test]
    fn a_plain_status_that_is_there_already_is_not_another_one_later() {
        let first = planned(5).plain(None, &refusal());

        assert_eq!(planned(60).plain(Some(&first), &refusal()), first);
    }

    #[test]
    fn a_warning_that_was_there_keeps_its_reason() {
        let mut planned = planned(5);
        planned.common.conditions.push(
            serde_json::from_value(json!({
                "type": "Warning", "status": "True", "reason": "JobMissing", "message": "it is gone",
                "lastTransitionTime": at(2),
            }))
            .expect("a condition"),
        );

        let plain = planned.plain(None, &refusal());

        let warning = plain.common.condition(&ConditionType::Warning).expect("told");
        assert_eq!(warning.reason, Reason::JobMissing);
        assert!(warning.message.starts_with("it is gone; "), "{}", warning.message);
    }
}
