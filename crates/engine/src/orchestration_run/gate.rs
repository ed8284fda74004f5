//! A gate: a step that waits until somebody approves.

use std::collections::BTreeMap;

use jangar_api::{
    labels::{APPROVAL, CREATED_BY},
    orchestration::orchestration_run::{StepStatus, WaitsFor},
    reason::Reason,
};
use kube::ResourceExt;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Situation, after, begin::rendered, follow::Walk, step_end::StepEnd};
use crate::{
    approval::{Gate, Verdict, verdict},
    decision::{Effect, Question, Rejection, Sight},
    orchestration::{
        Node, StepId,
        size::{SHOWN_MAX_BYTES, json_bytes},
        work,
    },
};

impl Walk<'_> {
    pub(super) fn look_at_gate(&mut self, step: StepId, node: &Node, known: &StepStatus) {
        let Some(waits_for) = known.waits_for.clone() else {
            return;
        };
        let policy_name = waits_for.approval_policy.clone().unwrap_or_default();
        let shown = match self.shown(step, &policy_name) {
            Ok(shown) => shown,
            Err(why) => {
                self.fail(step, &why);
                return;
            }
        };
        let digest = shown.digest.clone().unwrap_or_default();
        // What was shown before does not count any more if it is something else now.
        self.next.step_shows(
            step,
            WaitsFor {
                policy_missing_since: waits_for.policy_missing_since,
                ..shown
            },
        );
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
                self.lacks_policy(step, words);
                return;
            }
            Some(Sight::Illegible(words)) => {
                let words = format!("ApprovalPolicy {policy_name} cannot be read ({words}): mend it");
                self.lacks_policy(step, words);
                return;
            }
        };
        self.next.step_has_policy(step);
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

    /// A policy that is replaced may be away for a moment, however long the gate has been waiting by then.
    fn lacks_policy(&mut self, step: StepId, words: String) {
        let since = self.next.step_lacks_policy(step);
        let until = after(since, self.situation.settings.runs.reference_grace);
        let why = Rejection::new(Reason::MissingApprovalPolicy, words);
        if self.situation.now >= until {
            self.fail(step, &why);
        } else {
            self.next.step_note(step, &why);
            self.wake(until);
        }
    }

    /// What is shown for the decision about a gate: its own values, and a hash of them, of the parameters of the run, and of what
    /// the steps before it gave back.
    pub(super) fn shown(&self, step: StepId, policy: &str) -> Result<WaitsFor, Rejection> {
        let values = self.values(step);
        let with = self.graph.node(step).map(|node| work::parameters(&node.step));
        let with = rendered(&with.unwrap_or_default(), &values)?;
        self.fits(step, &with)?;
        let covered = json!({
            "step": self.graph.name(step),
            "policy": policy,
            "parameters": values.get("parameters"),
            "with": with,
            "steps": values.get("steps"),
        });
        Ok(WaitsFor {
            approval_policy: Some(policy.to_owned()),
            digest: Some(format!("{:x}", Sha256::digest(covered.to_string().as_bytes()))),
            with,
            ..WaitsFor::default()
        })
    }

    /// Nobody is asked to approve what cannot be shown.
    fn fits(&self, step: StepId, with: &BTreeMap<String, String>) -> Result<(), Rejection> {
        let name = self.graph.name(step);
        let others = self.next.status.step_statuses.iter();
        let others = others.filter(|other| other.name != name);
        let others: usize = others
            .filter_map(|other| other.waits_for.as_ref())
            .map(|waits_for| json_bytes(&waits_for.with))
            .sum();
        let own = json_bytes(with);
        if own + others <= SHOWN_MAX_BYTES {
            return Ok(());
        }
        Err(Rejection::new(
            Reason::InvalidStep,
            format!(
                "with has {own} bytes, and those of other gates that wait {others}, together more than the {SHOWN_MAX_BYTES} that \
                 can be shown for a decision: shorten them"
            ),
        ))
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
