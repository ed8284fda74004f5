//! ApprovalPolicy: whether it makes sense, so that a gate that nobody could ever open is told before a run waits at it.

use std::sync::Arc;

use jangar_api::{
    approvals::{ApprovalPolicy, ApprovalPolicySpec, ApprovalPolicyStatus},
    orchestration::orchestration_run::OrchestrationRun,
    phase::ApprovalPolicyPhase,
    reason::Reason,
    values::{self, Int32},
};
use jiff::Timestamp;

use crate::{
    approval::{is_by_phase, is_decision},
    conditions::touched,
    decision::{Decision, Plan, Rejection},
    settings::Settings,
    tool::all_told,
    validity,
};

/// The ways in which a gate is decided, as `spec.mode` names them.
const MODES: [&str; 2] = ["manual", "phase"];
/// Who can decide.
const DECIDERS: [&str; 3] = ["User", "Group", "ServiceAccount"];

/// What is known about an ApprovalPolicy.
#[derive(Clone, Debug)]
pub struct Observed {
    pub policy: Arc<ApprovalPolicy>,
    /// The runs with gates that somebody decided under it.
    pub runs: Vec<Arc<OrchestrationRun>>,
}

impl Observed {
    /// When a gate was last decided. Runs are deleted at some time, and what they told is not forgotten.
    fn last_decision_at(&self, before: &ApprovalPolicyStatus) -> Option<values::Timestamp> {
        let name = self.policy.metadata.name.as_deref();
        let statuses = self.runs.iter().filter_map(|run| run.status.as_ref());
        let decided = statuses
            .flat_map(|status| &status.approvals)
            .filter(|approval| approval.policy.as_deref() == name)
            .filter_map(|approval| approval.at);
        decided.chain(before.last_decision_at).max_by_key(|at| at.0)
    }
}

/// Says whether gates can be decided under it, and when one last was. Where its phase is a person's decision, that is left alone.
pub fn plan(observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<ApprovalPolicyStatus> {
    let policy = &observed.policy;
    if !settings.orchestrates(policy.metadata.namespace.as_deref().unwrap_or_default()) {
        return Decision::Act(Plan::nothing());
    }
    let checked = match all_told(&mistakes(&policy.spec)) {
        None => Ok(()),
        Some(message) => Err(Rejection::new(Reason::InvalidSpec, message)),
    };
    let before = policy.status.clone().unwrap_or_default();
    let mut next = before.clone();
    next.last_decision_at = observed.last_decision_at(&before);
    if !is_by_phase(&policy.spec) {
        next.phase = Some(match checked {
            Ok(()) => ApprovalPolicyPhase::Active,
            Err(_) => ApprovalPolicyPhase::Invalid,
        });
    }
    let generation = policy.metadata.generation;
    next.common = validity::report_as(&Reason::Active, &before.common, generation, checked, now);
    Decision::Act(Plan {
        status: touched(&before, next, |status| &mut status.common, now),
        ..Plan::nothing()
    })
}

/// Everything that is wrong with a policy.
fn mistakes(spec: &ApprovalPolicySpec) -> Vec<String> {
    let mut wrong = Vec::new();
    let mode = spec
        .mode
        .as_deref()
        .map(str::trim)
        .filter(|mode| !mode.is_empty());
    if let Some(mode) = mode.filter(|mode| MODES.iter().all(|known| !known.eq_ignore_ascii_case(mode))) {
        wrong.push(format!(
            "spec.mode is {mode:?}: write manual, or phase if the phase of this object is to decide, or leave it out"
        ));
    }
    if let Some(decision) = spec.default_decision.as_deref().filter(|word| !is_decision(word)) {
        wrong.push(format!(
            "spec.defaultDecision is {decision:?}, and would count as deny: write approve or deny, or leave it out"
        ));
    }
    for (index, subject) in spec.subjects.iter().enumerate() {
        if !DECIDERS.contains(&subject.kind.as_str()) {
            wrong.push(format!(
                "spec.subjects[{index}].kind is {:?}, and nobody who decides is one: write {}",
                subject.kind,
                DECIDERS.join(", ")
            ));
        }
        if subject.name.trim().is_empty() {
            wrong.push(format!(
                "spec.subjects[{index}].name is blank: name who may decide"
            ));
        }
    }
    wrong.extend(too_few(spec));
    if let Some(seconds) = spec
        .expires_after_seconds
        .map(Int32::get)
        .filter(|seconds| *seconds < 0)
    {
        wrong.push(format!(
            "spec.expiresAfterSeconds is {seconds}: it must be 0 or more, or be left out"
        ));
    }
    wrong
}

/// More approvals are needed than there are people. A group may have any number of members.
fn too_few(spec: &ApprovalPolicySpec) -> Option<String> {
    let required = spec.required_approvals.map_or(1, Int32::get);
    if required < 1 {
        return Some(format!(
            "spec.requiredApprovals is {required}: it must be 1 or more, or be left out"
        ));
    }
    let groups = spec.subjects.iter().any(|subject| subject.kind == "Group");
    let people = spec.subjects.len();
    let enough = spec.subjects.is_empty()
        || groups
        || i64::from(required) <= i64::try_from(people).unwrap_or(i64::MAX);
    (!enough).then(|| {
        format!(
            "spec.requiredApprovals is {required}, and spec.subjects names {people} who may decide, so that no gate could ever \
             pass: name more, or require fewer"
        )
    })
}

#[cfg(test)]
mod tests {
    use jangar_api::condition::{ConditionStatus, ConditionType};
    use serde_json::{Value, json};

    use super::*;

    #[expect(
        clippy::needless_pass_by_value,
        reason = "every caller makes the value on the spot"
    )]
    fn policy(spec: Value, status: Value) -> ApprovalPolicy {
        serde_json::from_value(json!({
            "apiVersion": "approvals.proompteng.ai/v1alpha1", "kind": "ApprovalPolicy",
            "metadata": {"name": "release", "namespace": "agents", "generation": 1}, "spec": spec, "status": status,
        }))
        .expect("a policy")
    }

    fn planned(policy: ApprovalPolicy, settings: &Settings) -> Option<ApprovalPolicyStatus> {
        planned_with(policy, &[], settings)
    }

    fn planned_with(
        policy: ApprovalPolicy,
        decisions: &[(&str, &str)],
        settings: &Settings,
    ) -> Option<ApprovalPolicyStatus> {
        let run = |(policy, at): &(&str, &str)| {
            let run = json!({
                "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun",
                "metadata": {"name": "r", "namespace": "agents"}, "spec": {"orchestrationRef": {"name": "o"}},
                "status": {"approvals": [
                    {"step": "gate", "policy": policy, "decision": "Approved", "by": "ada", "at": at, "digest": "d"}]},
            });
            Arc::new(serde_json::from_value(run).expect("a run"))
        };
        let observed = Observed {
            policy: Arc::new(policy),
            runs: decisions.iter().map(run).collect(),
        };
        match plan(&observed, settings, Timestamp::UNIX_EPOCH) {
            Decision::Act(plan) => plan.status,
            Decision::Look(questions) => panic!("nothing has to be asked: {questions:?}"),
        }
    }

    fn status(spec: Value) -> ApprovalPolicyStatus {
        planned(policy(spec, Value::Null), &Settings::default()).expect("a first status")
    }

    #[test]
    fn a_policy_that_makes_sense_is_active() {
        for spec in [
            json!({}),
            json!({"mode": "manual", "subjects": [{"kind": "User", "name": "ada"}]}),
            json!({"requiredApprovals": 3, "subjects": [{"kind": "Group", "name": "releasers"}]}),
            json!({"defaultDecision": "Approve", "expiresAfterSeconds": 60}),
        ] {
            let status = status(spec.clone());
            let ready = status
                .common
                .condition(&ConditionType::Ready)
                .expect("it is told");
            assert_eq!(
                (status.phase, &ready.status, &ready.reason),
                (
                    Some(ApprovalPolicyPhase::Active),
                    &ConditionStatus::True,
                    &Reason::Active
                ),
                "{spec}"
            );
        }
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let status = status(json!({
            "mode": "vote",
            "defaultDecision": "perhaps",
            "requiredApprovals": 3,
            "subjects": [{"kind": "Agent", "name": "codex"}, {"kind": "User", "name": " "}],
        }));
        assert_eq!(status.phase, Some(ApprovalPolicyPhase::Invalid));
        let ready = status
            .common
            .condition(&ConditionType::Ready)
            .expect("it is told");
        assert_eq!(
            (&ready.status, &ready.reason),
            (&ConditionStatus::False, &Reason::InvalidSpec)
        );
        let wrong = status
            .common
            .condition(&ConditionType::InvalidSpec)
            .expect("it is told");
        insta::assert_snapshot!(wrong.message);
    }

    #[test]
    fn the_last_decision_is_remembered_after_its_run_is_gone() {
        let told = |status: Option<ApprovalPolicyStatus>| {
            let at = status.and_then(|status| status.last_decision_at);
            at.map(|at| at.0.to_string())
        };
        let settings = Settings::default();
        let decisions = [
            ("release", "2026-03-01T12:00:00Z"),
            ("release", "2026-03-01T12:05:00Z"),
            ("another", "2026-03-01T13:00:00Z"),
        ];
        let first = planned_with(policy(json!({}), Value::Null), &decisions, &settings);
        assert_eq!(told(first.clone()).as_deref(), Some("2026-03-01T12:05:00Z"));
        let known = policy(json!({}), serde_json::to_value(first).expect("JSON"));
        assert_eq!(planned_with(known.clone(), &decisions, &settings), None);
        assert_eq!(planned_with(known.clone(), &[], &settings), None);
        let again = planned_with(known, &[("release", "2026-03-01T14:00:00Z")], &settings);
        assert_eq!(told(again).as_deref(), Some("2026-03-01T14:00:00Z"));
    }

    #[test]
    fn a_decision_that_a_person_wrote_as_the_phase_stays() {
        let decided = policy(json!({"mode": "phase"}), json!({"phase": "Approved"}));
        let status = planned(decided, &Settings::default()).expect("the conditions are new");
        assert_eq!(status.phase, Some(ApprovalPolicyPhase::Approved));
    }

    #[test]
    fn a_policy_that_was_checked_is_left_alone_and_so_is_one_of_a_namespace_without_orchestrations() {
        let first = status(json!({}));
        let again = policy(json!({}), serde_json::to_value(&first).expect("JSON"));
        assert_eq!(planned(again, &Settings::default()), None);
        let off = Settings {
            orchestrations_enabled: false,
            ..Settings::default()
        };
        assert_eq!(planned(policy(json!({}), Value::Null), &off), None);
    }
}
