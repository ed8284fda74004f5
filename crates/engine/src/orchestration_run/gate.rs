//! A gate: a step that waits until somebody approves.

use jangar_api::{
    labels::{APPROVAL, CREATED_BY},
    orchestration::orchestration_run::{StepStatus, WaitsFor},
    reason::Reason,
};
use kube::ResourceExt;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Situation, after, begin::rendered, follow::Walk, next_status::StepEnd};
use crate::{
    approval::{Gate, Verdict, verdict},
    decision::{Effect, Question, Rejection, Sight},
    orchestration::{Node, StepId, work},
};

impl Walk<'_> {
    pub(super) fn look_at_gate(&mut self, step: StepId, node: &Node, known: &StepStatus) {
        let Some(waits_for) = known.waits_for.clone() else {
            return;
        };
        let policy_name = waits_for.approval_policy.clone().unwrap_or_default();
        let digest = match self.digest(step, &policy_name) {
            Ok(digest) => digest,
            Err(why) => {
                self.fail(step, &why);
                return;
            }
        };
        if waits_for.digest.as_ref() != Some(&digest) {
            // What was shown before does not count any more.
            self.next.step_shows(
                step,
                WaitsFor {
                    digest: Some(digest.clone()),
                    ..waits_for
                },
            );
        }
        let started = known.progress.started_at.map_or(self.situation.now, |at| at.0);
        let observed = self.situation.observed;
        let policy = match observed.policies.get(&policy_name) {
            Some(Sight::Seen(policy)) => policy,
            // It is looked for once the status says that it is needed.
            None => return,
            Some(Sight::Unseen) => {
                self.questions.insert(Question::ApprovalPolicy(policy_name));
                return;
            }
            Some(Sight::Absent) => {
                let words = format!("there is no ApprovalPolicy {policy_name} in this namespace: create it");
                self.lacks_policy(step, started, words);
                return;
            }
            Some(Sight::Illegible(words)) => {
                let words = format!("ApprovalPolicy {policy_name} cannot be read ({words}): mend it");
                self.lacks_policy(step, started, words);
                return;
            }
        };
        let run = self.situation.run;
        let gate = Gate {
            step: &node.name,
            digest: &digest,
            since: started,
            creator: run.annotations().get(CREATED_BY).map(String::as_str),
            approvals: &self.situation.status.approvals,
        };
        match verdict(policy, &gate, self.situation.now) {
            Verdict::Approved(_) => self.next.step_ended(step, StepEnd::succeeded(None)),
            Verdict::Denied(why) => self.fail(step, &why),
            Verdict::Pending { until } => {
                if known.reason != Some(Reason::ApprovalPending) {
                    self.next.step_note(step, &pending(&policy_name));
                }
                if let Some(until) = until {
                    self.wake(until);
                }
                self.look_at_the_clock(step, node, known);
            }
        }
    }

    /// A step that only waits is over at once when its time is up.
    pub(super) fn look_at_the_clock(&mut self, step: StepId, node: &Node, known: &StepStatus) {
        let Some((until, why)) = self.time_limit(node, known) else {
            return;
        };
        if self.situation.now >= until {
            self.attempt_failed(step, node, known, &why);
        } else {
            self.wake(until);
        }
    }

    fn lacks_policy(&mut self, step: StepId, since: jiff::Timestamp, words: String) {
        let until = after(since, self.situation.settings.runs.reference_grace);
        let why = Rejection::new(Reason::MissingApprovalPolicy, words);
        if self.situation.now >= until {
            self.fail(step, &why);
        } else {
            self.next.step_note(step, &why);
            self.wake(until);
        }
    }

    /// A hash of what is shown for the decision about a gate: its own values, and what the steps before it gave back.
    pub(super) fn digest(&self, step: StepId, policy: &str) -> Result<String, Rejection> {
        let values = self.values(step);
        let with = self.graph.node(step).map(|node| work::parameters(&node.step));
        let with = rendered(&with.unwrap_or_default(), &values)?;
        let shown = json!({
            "step": self.graph.name(step),
            "policy": policy,
            "parameters": values.get("parameters"),
            "with": with,
            "steps": values.get("steps"),
        });
        Ok(format!("{:x}", Sha256::digest(shown.to_string().as_bytes())))
    }
}

/// What is said of a gate that waits.
pub(super) fn pending(policy: &str) -> Rejection {
    Rejection::new(
        Reason::ApprovalPending,
        format!("waits for an approval under ApprovalPolicy {policy}"),
    )
}

/// Marks the run by a label while a gate of it waits, so that people find it.
pub(super) fn mark(walk: &Walk<'_>) -> Option<Effect> {
    let mut steps = walk.next.status.step_statuses.iter();
    let pending = steps.any(|step| {
        let waits_for = step.waits_for.as_ref();
        waits_for.is_some_and(|waits_for| waits_for.approval_policy.is_some())
    });
    let over = walk
        .next
        .status
        .phase
        .as_ref()
        .is_some_and(jangar_api::phase::RunPhase::is_terminal);
    set_mark(walk.situation, pending && !over)
}

/// A run that has ended waits for nobody.
pub(super) fn unmark(situation: &Situation<'_>) -> Option<Effect> {
    set_mark(situation, false)
}

fn set_mark(situation: &Situation<'_>, pending: bool) -> Option<Effect> {
    let marked = situation.run.labels().contains_key(APPROVAL);
    (marked != pending).then(|| Effect::MarkApproval {
        run: situation.id(),
        pending,
    })
}
