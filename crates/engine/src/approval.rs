//! Approvals: who may let a run pass a gate, and whether enough of them did.
//!
//! A decision is about one gate of one run, and about what was shown for it: its digest. It is given by a caller whom the
//! control plane has authenticated, and recorded in the status of the run by [`decide`]. [`verdict`] says what the decisions come
//! to; a decision whose digest is not that of the gate any more does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jangar_api::{
    approvals::{ApprovalPolicy, ApprovalPolicySpec},
    labels::CREATED_BY,
    orchestration::{
        OrchestrationSpec,
        orchestration_run::{Approval, ApprovalDecision, OrchestrationRun, OrchestrationRunStatus},
    },
    phase::{ApprovalPolicyPhase, StepPhase},
    reason::Reason,
    refs::Subject,
    values::{FreeForm, Int32, Timestamp},
};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::{
    decision::Rejection,
    orchestration::{
        self,
        size::{APPROVALS_MAX_BYTES, cut, json_bytes, json_text},
    },
};

/// The most decisions that a run keeps.
const APPROVALS_MAX: usize = 100;
/// The most bytes of a comment.
const COMMENT_MAX_BYTES: usize = 1024;

/// Who asks, as Kubernetes knows them. It comes from the caller's credentials, never from what they send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub user: String,
    pub groups: Vec<String>,
}

/// What a caller decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub step: String,
    pub decision: ApprovalDecision,
    pub comment: Option<String>,
    /// The digest of what the caller was shown.
    pub digest: String,
}

/// Why a decision is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("step {0} of the run does not wait for an approval")]
    NotPending(String),
    #[error("what is to be approved has changed since it was shown: look again, and decide then")]
    Outdated,
    #[error("ApprovalPolicy {policy} does not let {user} decide: its spec.subjects name who may")]
    NotAllowed { policy: String, user: String },
    #[error("{0} created the run, and its ApprovalPolicy does not let them approve it: somebody else has to")]
    Creator(String),
    #[error(
        "nobody knows who created the run, and allowCreator of ApprovalPolicy {0} is false: create runs through the control plane, \
         which writes down who does"
    )]
    CreatorUnknown(String),
    #[error(
        "the run keeps {APPROVALS_MAX} decisions with {APPROVALS_MAX_BYTES} bytes, and there is no room for another one"
    )]
    TooMany,
    #[error("spec.mode of ApprovalPolicy {0} is phase: write the decision to its status.phase")]
    ByPhase(String),
    #[error(
        "the time to decide about step {step} was up at {until}, by expiresAfterSeconds of ApprovalPolicy {policy}: its \
         defaultDecision holds; start the run again to be asked again"
    )]
    Expired {
        step: String,
        policy: String,
        until: jiff::Timestamp,
    },
}

/// Records a decision: the status of the run with it. A later decision of the same caller about the same gate replaces the
/// earlier one.
pub fn decide(
    run: &OrchestrationRun,
    policy: &ApprovalPolicy,
    caller: &Caller,
    request: Request,
    now: jiff::Timestamp,
) -> Result<OrchestrationRunStatus, Refused> {
    let mut status = run.status.clone().unwrap_or_default();
    let step = status.step_statuses.iter().find(|step| step.name == request.step);
    let waits_for = step
        .filter(|step| step.progress.phase == Some(StepPhase::Running))
        .and_then(|step| step.waits_for.as_ref())
        .filter(|waits_for| waits_for.approval_policy.as_deref() == Some(policy.name_any().as_str()))
        .ok_or_else(|| Refused::NotPending(request.step.clone()))?;
    if waits_for.digest.as_deref() != Some(request.digest.as_str()) {
        return Err(Refused::Outdated);
    }
    if is_by_phase(&policy.spec) {
        return Err(Refused::ByPhase(policy.name_any()));
    }
    let since = step.and_then(|step| step.progress.started_at);
    if let Some(until) = since
        .and_then(|since| expires_at(&policy.spec, since.0))
        .filter(|until| now >= *until)
    {
        return Err(Refused::Expired {
            step: request.step,
            policy: policy.name_any(),
            until,
        });
    }
    let namespace = policy.namespace().unwrap_or_default();
    if !may_decide(&policy.spec, &namespace, &caller.user, &caller.groups) {
        return Err(Refused::NotAllowed {
            policy: policy.name_any(),
            user: caller.user.clone(),
        });
    }
    let creator = run.annotations().get(CREATED_BY).map(String::as_str);
    if request.decision == ApprovalDecision::Approved && is_barred(&policy.spec, creator, &caller.user) {
        return Err(match creator {
            Some(_) => Refused::Creator(caller.user.clone()),
            None => Refused::CreatorUnknown(policy.name_any()),
        });
    }
    status
        .approvals
        .retain(|known| known.step != request.step || known.by != caller.user);
    if status.approvals.len() >= APPROVALS_MAX {
        return Err(Refused::TooMany);
    }
    let named: BTreeSet<&str> = policy
        .spec
        .subjects
        .iter()
        .map(|subject| subject.name.as_str())
        .collect();
    status.approvals.push(Approval {
        step: request.step,
        policy: policy.metadata.name.clone(),
        decision: request.decision,
        by: caller.user.clone(),
        groups: caller
            .groups
            .iter()
            .filter(|group| named.contains(group.as_str()))
            .cloned()
            .collect(),
        at: Some(Timestamp(now)),
        comment: request.comment.map(|comment| cut(&comment, COMMENT_MAX_BYTES)),
        digest: request.digest,
    });
    if json_bytes(&status.approvals) > APPROVALS_MAX_BYTES {
        return Err(Refused::TooMany);
    }
    Ok(status)
}

/// What is to be approved, as the status of a run shows it. The digest of the gate covers all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The values of the gate itself.
    pub with: BTreeMap<String, String>,
    /// The parameters of the run.
    pub parameters: BTreeMap<String, String>,
    /// What became of the steps that it depends on, and what they gave back.
    pub steps: Vec<ShownStep>,
}

/// A step that a gate depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownStep {
    pub name: String,
    pub phase: StepPhase,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<FreeForm>,
}

/// What is to be approved at a gate. `None` if the steps of the run cannot be read.
pub fn shown(run: &OrchestrationRun, gate: &str) -> Option<Shown> {
    let status = run.status.as_ref()?;
    let spec = OrchestrationSpec {
        steps: status.definition.as_ref()?.steps.clone(),
        ..OrchestrationSpec::default()
    };
    let graph = orchestration::read(&spec).ok()?;
    let find = |name: &str| status.step_statuses.iter().find(|step| step.name == name);
    let steps = graph.ancestors(graph.find(gate)?).filter_map(|above| {
        let known = find(graph.name(above))?;
        Some(ShownStep {
            name: known.name.clone(),
            phase: known.progress.phase.clone().unwrap_or(StepPhase::Pending),
            outputs: known.outputs.clone(),
        })
    });
    Some(Shown {
        with: find(gate)?.waits_for.as_ref()?.with.clone(),
        parameters: run.spec.parameters.clone(),
        steps: steps.collect(),
    })
}

impl Shown {
    /// The same for people, a line for each value.
    pub fn lines(&self) -> Vec<String> {
        let own = self.with.iter().map(|(key, value)| format!("{key}: {value}"));
        let parameters = self.parameters.iter();
        let parameters = parameters.map(|(key, value)| format!("parameter {key}: {value}"));
        let steps = self.steps.iter().map(|step| match &step.outputs {
            Some(outputs) => format!("step {} {}: {}", step.name, step.phase, json_text(outputs)),
            None => format!("step {} {}", step.name, step.phase),
        });
        own.chain(parameters).chain(steps).collect()
    }
}

/// A gate that waits.
#[derive(Clone, Copy, Debug)]
pub struct Gate<'a> {
    pub step: &'a str,
    pub digest: &'a str,
    pub since: jiff::Timestamp,
    /// Who created the run, if that is known.
    pub creator: Option<&'a str>,
    pub approvals: &'a [Approval],
}

/// What the decisions about a gate come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By these.
    Approved(Vec<String>),
    Denied(Rejection),
    Pending {
        /// When it is decided because nobody did.
        until: Option<jiff::Timestamp>,
    },
}

/// What the decisions about a gate come to. One that denies outweighs all that approve.
pub fn verdict(policy: &ApprovalPolicy, gate: &Gate<'_>, now: jiff::Timestamp) -> Verdict {
    let spec = &policy.spec;
    let name = policy.name_any();
    if is_by_phase(spec) {
        return by_phase(policy, &name).unwrap_or_else(|| expiry(spec, &name, gate.since, now));
    }
    let namespace = policy.namespace().unwrap_or_default();
    // The gate may be looked at long after its time was up: what was decided too late does not count then either.
    let until = expires_at(spec, gate.since).unwrap_or(jiff::Timestamp::MAX);
    let counts = gate.approvals.iter().filter(|approval| {
        approval.step == gate.step
            && approval.digest == gate.digest
            && approval.at.map_or(now, |at| at.0) < until
            && may_decide(spec, &namespace, &approval.by, &approval.groups)
    });
    let (approved, denied): (Vec<_>, Vec<_>) =
        counts.partition(|approval| approval.decision == ApprovalDecision::Approved);
    if let Some(denial) = denied.first() {
        let comment = denial
            .comment
            .as_deref()
            .map_or_else(String::new, |words| format!(": {words}"));
        return Verdict::Denied(Rejection::new(
            Reason::ApprovalDenied,
            format!("{} denied it{comment}", denial.by),
        ));
    }
    let by: BTreeSet<&str> = approved
        .iter()
        .map(|approval| approval.by.as_str())
        .filter(|by| !is_barred(spec, gate.creator, by))
        .collect();
    let required = usize::try_from(spec.required_approvals.map_or(1, Int32::get))
        .unwrap_or(1)
        .max(1);
    if by.len() >= required {
        return Verdict::Approved(by.into_iter().map(str::to_owned).collect());
    }
    expiry(spec, &name, gate.since, now)
}

/// What becomes of a gate about which enough people have not decided.
fn expiry(spec: &ApprovalPolicySpec, name: &str, since: jiff::Timestamp, now: jiff::Timestamp) -> Verdict {
    let Some(until) = expires_at(spec, since) else {
        return Verdict::Pending { until: None };
    };
    if now < until {
        return Verdict::Pending { until: Some(until) };
    }
    if lets_pass(spec.default_decision.as_deref()) {
        return Verdict::Approved(Vec::new());
    }
    Verdict::Denied(Rejection::new(
        Reason::ApprovalExpired,
        format!(
            "nobody decided within the {} s of ApprovalPolicy {name}, and its defaultDecision is to deny",
            expires_after(spec)
        ),
    ))
}

/// For how many seconds a gate waits; 0 if it always does.
fn expires_after(spec: &ApprovalPolicySpec) -> u64 {
    let seconds = spec.expires_after_seconds.map_or(0, Int32::get);
    u64::try_from(seconds).unwrap_or(0)
}

/// From when a gate that has waited since then is decided without anybody, if its policy says so. No decision counts any more.
fn expires_at(spec: &ApprovalPolicySpec, since: jiff::Timestamp) -> Option<jiff::Timestamp> {
    let seconds = Some(expires_after(spec)).filter(|seconds| *seconds > 0)?;
    let until = since.saturating_add(Duration::from_secs(seconds));
    Some(until.unwrap_or(jiff::Timestamp::MAX))
}

/// Whether the phase of the policy decides, and not the decisions about each gate.
pub(crate) fn is_by_phase(spec: &ApprovalPolicySpec) -> bool {
    spec.mode
        .as_deref()
        .is_some_and(|mode| mode.trim().eq_ignore_ascii_case("phase"))
}

/// As earlier versions did: a person writes the decision to the status of the policy. `None` if nobody has.
fn by_phase(policy: &ApprovalPolicy, name: &str) -> Option<Verdict> {
    let phase = policy.status.as_ref().and_then(|status| status.phase.as_ref());
    match phase {
        Some(
            ApprovalPolicyPhase::Approved
            | ApprovalPolicyPhase::Allowed
            | ApprovalPolicyPhase::Ready
            | ApprovalPolicyPhase::Succeeded,
        ) => Some(Verdict::Approved(Vec::new())),
        Some(
            phase @ (ApprovalPolicyPhase::Denied
            | ApprovalPolicyPhase::Rejected
            | ApprovalPolicyPhase::Blocked
            | ApprovalPolicyPhase::Failed),
        ) => Some(Verdict::Denied(Rejection::new(
            Reason::ApprovalDenied,
            format!("status.phase of ApprovalPolicy {name} is {phase}"),
        ))),
        Some(ApprovalPolicyPhase::Active | ApprovalPolicyPhase::Invalid | ApprovalPolicyPhase::Other(_))
        | None => None,
    }
}

/// Whether a word is one of those that decide.
pub(crate) fn is_decision(word: &str) -> bool {
    let word = word.trim().to_ascii_lowercase();
    lets_pass(Some(&word)) || matches!(word.as_str(), "" | "deny" | "denied" | "reject")
}

fn lets_pass(decision: Option<&str>) -> bool {
    let decision = decision.map(|word| word.trim().to_ascii_lowercase());
    matches!(decision.as_deref(), Some("approve" | "approved" | "allow"))
}

/// Whether somebody may not approve because they created the run, or may have: a policy that says in so many words that whoever
/// created a run may not approve it cannot be kept where nobody knows who that was.
fn is_barred(spec: &ApprovalPolicySpec, creator: Option<&str>, user: &str) -> bool {
    match (spec.allow_creator, creator) {
        (Some(true), _) | (None, None) => false,
        (Some(false), None) => true,
        (Some(false) | None, Some(creator)) => creator == user,
    }
}

/// Whether the policy names this caller. Without anybody named, whoever may approve at all may.
fn may_decide(spec: &ApprovalPolicySpec, namespace: &str, user: &str, groups: &[String]) -> bool {
    spec.subjects.is_empty()
        || spec
            .subjects
            .iter()
            .any(|subject| is_named(subject, namespace, user, groups))
}

fn is_named(subject: &Subject, namespace: &str, user: &str, groups: &[String]) -> bool {
    match subject.kind.as_str() {
        "User" => subject.name == user,
        "Group" => groups.contains(&subject.name),
        "ServiceAccount" => {
            let namespace = subject.namespace.as_deref().unwrap_or(namespace);
            user == format!("system:serviceaccount:{namespace}:{}", subject.name)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
