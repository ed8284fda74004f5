//! What gates of an Orchestration need before it is applied or run through the control plane: ApprovalPolicies that are there,
//! and that nobody has closed. Nobody has to have approved yet.

use std::collections::BTreeSet;

use jangar_api::{
    Kind, approvals::ApprovalPolicy, orchestration::OrchestrationSpec, phase::ApprovalPolicyPhase,
};
use jangar_engine::orchestration::{read, work::Work};

use super::ControlPlane;
use crate::refusal::{Refusal, Trouble};

/// What the name of a policy contains that is known only when the run gets there.
const TEMPLATE: &str = "{{";
/// The mode in which a person decides by writing the phase of the policy.
const BY_PHASE: &str = "phase";

/// The policies that the gates of these steps name. Steps that make no sense have none: that is told elsewhere.
fn policies(spec: &OrchestrationSpec) -> BTreeSet<String> {
    let Ok(graph) = read(spec) else {
        return BTreeSet::new();
    };
    let named = graph.steps().filter_map(|(_, node)| match &node.work {
        Work::ApprovalGate { policy } => Some(policy.trim().to_owned()),
        Work::AgentRun(_)
        | Work::ToolRun { .. }
        | Work::SubOrchestration { .. }
        | Work::SignalWait { .. }
        | Work::Checkpoint => None,
    });
    named.filter(|name| !name.contains(TEMPLATE)).collect()
}

/// Whether a policy lets nobody through any more.
fn closed(policy: &ApprovalPolicy) -> Option<&ApprovalPolicyPhase> {
    let by_phase = policy
        .spec
        .mode
        .as_deref()
        .is_some_and(|mode| mode.trim().eq_ignore_ascii_case(BY_PHASE));
    let phase = policy.status.as_ref()?.phase.as_ref()?;
    let denied = matches!(
        phase,
        ApprovalPolicyPhase::Denied
            | ApprovalPolicyPhase::Rejected
            | ApprovalPolicyPhase::Blocked
            | ApprovalPolicyPhase::Failed
    );
    (by_phase && denied).then_some(phase)
}

impl ControlPlane {
    /// Whether every gate of an Orchestration can be passed.
    pub(crate) async fn check_gates(&self, namespace: &str, spec: &OrchestrationSpec) -> Result<(), Refusal> {
        for name in policies(spec) {
            let Some(found) = self.seen(Kind::ApprovalPolicy, namespace, &name).await? else {
                return Err(Refusal::new(
                    Trouble::NotFound,
                    format!(
                        "a step names the ApprovalPolicy {name}, and there is none in namespace {namespace}"
                    ),
                )
                .named("spec.steps")
                .remedy("create the ApprovalPolicy first, or name another one"));
            };
            // One that cannot be read is told when the run gets there.
            let Ok(policy) = serde_json::from_value::<ApprovalPolicy>(found.json.clone()) else {
                continue;
            };
            if let Some(phase) = closed(&policy) {
                return Err(Refusal::new(
                    Trouble::Forbidden,
                    format!("a step names the ApprovalPolicy {name}, whose phase is {phase}"),
                )
                .named("spec.steps")
                .remedy("set status.phase of the ApprovalPolicy to Approved, or name another one"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(mode: &str, phase: &str) -> ApprovalPolicy {
        serde_json::from_value(json!({
            "apiVersion": "approvals.proompteng.ai/v1alpha1", "kind": "ApprovalPolicy", "metadata": {"name": "p"},
            "spec": {"mode": mode}, "status": {"phase": phase},
        }))
        .expect("a policy")
    }

    fn steps(steps: &Value) -> OrchestrationSpec {
        serde_json::from_value(json!({"steps": steps})).expect("steps")
    }

    #[test]
    fn a_policy_is_closed_only_by_a_phase_that_a_person_wrote() {
        assert!(closed(&policy("phase", "Denied")).is_some());
        assert!(closed(&policy("phase", "Approved")).is_none());
        assert!(closed(&policy("manual", "Failed")).is_none());
    }

    #[test]
    fn the_policies_of_gates_are_named_once_and_templates_are_left_for_later() {
        let spec = steps(&json!([
            {"name": "a", "kind": "ApprovalGate", "policyRef": "release"},
            {"name": "b", "kind": "ApprovalGate", "policyRef": "release", "dependsOn": ["a"]},
            {"name": "c", "kind": "ApprovalGate", "policyRef": "{{ parameters.policy }}"},
            {"name": "d", "kind": "Checkpoint"},
        ]));
        assert_eq!(policies(&spec), BTreeSet::from(["release".to_owned()]));
        assert!(policies(&steps(&json!([{"name": "a", "kind": "ApprovalGate"}]))).is_empty());
    }
}
