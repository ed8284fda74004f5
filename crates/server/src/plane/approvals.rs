//! The gates that wait for a decision, and decisions about them.
//!
//! A decision is the one thing that the control plane writes with its own account, because it is written to the status: for a
//! caller who holds the verb `approve` on the OrchestrationRun, and whom the ApprovalPolicy of the gate names.

use std::{collections::BTreeMap, sync::Arc};

use jangar_api::{
    Kind,
    approvals::ApprovalPolicy,
    labels::CREATED_BY,
    orchestration::orchestration_run::{ApprovalDecision, OrchestrationRun},
    phase::StepPhase,
    values::{FreeForm, Int32},
};
use jangar_engine::approval::{self, Refused};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Caller, ControlPlane, FIELD_MANAGER, cursor, live,
    objects::{ListQuery, checked_name, checked_namespace},
};
use crate::{
    access::Question,
    audit::Deed,
    metrics::Loss,
    refusal::{Refusal, Trouble},
    world::Object,
};

/// The verb of RBAC that lets somebody decide gates of OrchestrationRuns.
pub const APPROVE_VERB: &str = "approve";
/// How often a decision is tried again because the status changed meanwhile. The controllers write it a few times in a second
/// at most.
const TRIES_MAX: usize = 8;
/// The most bytes, as JSON, of what all gates of one page show together.
const SHOWN_MAX_BYTES: usize = 4 * 1024 * 1024;

/// A gate that waits for a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingApproval {
    pub namespace: String,
    /// The OrchestrationRun.
    pub run: String,
    pub run_uid: String,
    pub step: String,
    /// The ApprovalPolicy that says who may decide.
    pub policy: String,
    /// SHA-256 of what is to be decided. A decision repeats it.
    pub digest: String,
    /// Since when it waits.
    pub since: Option<String>,
    pub created_by: Option<String>,
    /// How many have to approve.
    pub required: u32,
    /// Who has approved so far.
    pub approved_by: Vec<String>,
    /// What is to be decided: all that the digest covers. Absent where a list would become too long by it, or if the steps of the
    /// run cannot be read; the run itself has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<Shown>,
}

/// What a gate shows to those who decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shown {
    /// The values of the gate itself.
    pub with: BTreeMap<String, String>,
    /// The parameters of the run.
    pub parameters: BTreeMap<String, String>,
    /// What became of the steps that it depends on.
    pub steps: Vec<ShownStep>,
}

/// A step that a gate depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ShownStep {
    pub name: String,
    pub phase: StepPhase,
    /// What it gave back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<FreeForm>,
}

impl From<approval::Shown> for Shown {
    fn from(shown: approval::Shown) -> Self {
        let steps = shown.steps.into_iter().map(|step| ShownStep {
            name: step.name,
            phase: step.phase,
            outputs: step.outputs,
        });
        Self {
            with: shown.with,
            parameters: shown.parameters,
            steps: steps.collect(),
        }
    }
}

/// A run that may have gates, and that cannot be read: most likely a later version wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unreadable {
    pub namespace: String,
    /// The OrchestrationRun.
    pub run: String,
    pub error: String,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            namespace,
            run,
            error,
        } = self;
        write!(f, "OrchestrationRun {namespace}/{run} cannot be read: {error}")
    }
}

/// A page of the gates that wait, and what keeps others from being known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gates {
    pub approvals: Vec<PendingApproval>,
    pub unreadable: Vec<Unreadable>,
    /// What the next request gives as its cursor; null at the end.
    pub next_cursor: Option<String>,
}

impl Gates {
    fn len(&self) -> usize {
        self.approvals.len() + self.unreadable.len()
    }
}

/// Which gates are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatesQuery {
    /// `*` is every one.
    pub namespace: String,
    /// 0: as the server likes.
    pub limit: u32,
    pub cursor: String,
    /// Without what they show.
    pub brief: bool,
}

/// A decision that somebody sends.
#[derive(Clone, Debug)]
pub struct Decision {
    pub namespace: String,
    pub run: String,
    pub step: String,
    pub digest: String,
    pub comment: Option<String>,
    pub decision: ApprovalDecision,
}

impl ControlPlane {
    /// A page of the gates of a namespace that wait, those of the newest run first. The gates of one run are not parted, so that a
    /// page may have more than were asked for by what its last run has.
    pub async fn approvals(&self, caller: &Caller, query: GatesQuery) -> Result<Gates, Refusal> {
        let list = ListQuery {
            namespace: query.namespace,
            phase: "Running".to_owned(),
            limit: query.limit,
            cursor: query.cursor,
            ..ListQuery::default()
        };
        let kind = Kind::OrchestrationRun;
        let filter = list.filter()?;
        let limit = list.limit()?;
        let after = match list.cursor.as_str() {
            "" => None,
            text => Some(cursor::decode(kind, &filter, text)?),
        };
        self.require_list(caller, kind, filter.namespace.as_deref())
            .await?;
        let mut gates = Gates::default();
        let mut last = None;
        for object in self.world.list(kind, &filter, after.as_ref(), usize::MAX) {
            let found = self.gates_of(&object, query.brief);
            if found.len() == 0 {
                continue;
            }
            // Only what is there makes another page: most runs have no gate that waits.
            if gates.len() >= limit {
                gates.next_cursor = last.map(|last| cursor::encode(kind, &filter, &last));
                break;
            }
            gates.approvals.extend(found.approvals);
            gates.unreadable.extend(found.unreadable);
            last = Some(object.place());
        }
        let mut left = SHOWN_MAX_BYTES;
        for gate in &mut gates.approvals {
            let bytes = serde_json::to_vec(&gate.shown).map_or(usize::MAX, |json| json.len());
            match left.checked_sub(bytes) {
                Some(rest) => left = rest,
                None => gate.shown = None,
            }
        }
        Ok(gates)
    }

    /// The gates of one run.
    fn gates_of(&self, object: &Object, brief: bool) -> Gates {
        let mut gates = Gates::default();
        match serde_json::from_value::<OrchestrationRun>(object.json.clone()) {
            Ok(run) => gates.approvals = self.gates(object, &run, brief),
            Err(error) => gates.unreadable.push(self.unreadable(object, &error)),
        }
        gates
    }

    fn unreadable(&self, object: &Object, error: &serde_json::Error) -> Unreadable {
        self.metrics.loss(Loss::Unreadable);
        let unreadable = Unreadable {
            namespace: object.namespace.clone(),
            run: object.name.clone(),
            error: error.to_string(),
        };
        tracing::warn!("{unreadable}, so that its gates are not listed");
        unreadable
    }

    fn gates(&self, object: &Object, run: &OrchestrationRun, brief: bool) -> Vec<PendingApproval> {
        let status = run.status.clone().unwrap_or_default();
        let waiting = status.step_statuses.iter().filter_map(|step| {
            let waits_for = step.waits_for.as_ref()?;
            let policy = waits_for.approval_policy.clone()?;
            let running = step.progress.phase == Some(StepPhase::Running);
            let digest = waits_for.digest.clone().filter(|_| running)?;
            let approved = status.approvals.iter().filter(|approval| {
                approval.step == step.name
                    && approval.digest == digest
                    && approval.decision == ApprovalDecision::Approved
            });
            Some(PendingApproval {
                namespace: object.namespace.clone(),
                run: object.name.clone(),
                run_uid: object.uid.clone(),
                step: step.name.clone(),
                required: self.required(&object.namespace, &policy),
                since: step.progress.started_at.map(|at| at.to_string()),
                created_by: run.annotations().get(CREATED_BY).cloned(),
                approved_by: approved.map(|approval| approval.by.clone()).collect(),
                shown: (!brief)
                    .then(|| approval::shown(run, &step.name))
                    .flatten()
                    .map(Shown::from),
                policy,
                digest,
            })
        });
        waiting.collect()
    }

    fn required(&self, namespace: &str, policy: &str) -> u32 {
        let policy = self.world.get(Kind::ApprovalPolicy, namespace, policy);
        let policy =
            policy.and_then(|policy| serde_json::from_value::<ApprovalPolicy>(policy.json.clone()).ok());
        let required = policy
            .and_then(|policy| policy.spec.required_approvals)
            .map_or(1, Int32::get);
        u32::try_from(required).unwrap_or(1).max(1)
    }

    /// Records what the caller decides about a gate.
    pub async fn decide(self: &Arc<Self>, caller: &Caller, decision: Decision) -> Result<Value, Refusal> {
        checked_namespace(&decision.namespace)?;
        checked_name("run", &decision.run)?;
        for (field, text) in [("step", &decision.step), ("digest", &decision.digest)] {
            if text.trim().is_empty() {
                return Err(Refusal::missing(field)
                    .remedy("repeat step and digest as the list of approvals shows them"));
            }
        }
        let deed = Deed {
            action: match decision.decision {
                ApprovalDecision::Denied => "orchestration_run.rejected",
                _ => "orchestration_run.approved",
            },
            kind: Kind::OrchestrationRun,
            namespace: decision.namespace.clone(),
            name: decision.run.clone(),
        };
        let (plane, decider) = (Arc::clone(self), caller.clone());
        let work = Box::pin(async move { plane.decided(&decider, &decision).await });
        self.audited(caller, deed, work).await
    }

    async fn decided(&self, caller: &Caller, decision: &Decision) -> Result<Value, Refusal> {
        let Decision { namespace, run, .. } = decision;
        // Who may not see the run learns nothing of it, not even that they may not decide.
        let get = Question::get(Kind::OrchestrationRun, namespace, run);
        self.gatekeeper.require(&caller.identity, &get).await?;
        let approve = Question::on(APPROVE_VERB, Kind::OrchestrationRun, namespace, run);
        self.gatekeeper.require(&caller.identity, &approve).await?;
        if !self.world.covers(namespace) {
            return Err(self.not_covered(namespace));
        }
        let runs: Api<OrchestrationRun> = Api::namespaced(self.own.clone(), namespace);
        let policies: Api<ApprovalPolicy> = Api::namespaced(self.own.clone(), namespace);
        for _ in 0..TRIES_MAX {
            let found = live(runs.get_opt(run)).await?;
            let found = found.ok_or_else(|| Refusal::not_found("OrchestrationRun", namespace, run))?;
            let policy = live(policies.get_opt(&policy_of(&found, &decision.step)?)).await?;
            let policy = policy.ok_or_else(|| {
                Refusal::new(
                    Trouble::Conflict,
                    format!("the ApprovalPolicy of step {} is not there", decision.step),
                )
                .remedy("create it")
            })?;
            let status = approval::decide(
                &found,
                &policy,
                &approval::Caller {
                    user: caller.identity.user.clone(),
                    groups: caller.identity.groups.clone(),
                },
                approval::Request {
                    step: decision.step.clone(),
                    decision: decision.decision.clone(),
                    comment: decision.comment.clone(),
                    digest: decision.digest.trim().to_owned(),
                },
                self.now(),
            )
            .map_err(|why| refused(&why))?;
            // Only the list of decisions, and only if nothing has changed since: the rest belongs to the controllers.
            let patch = json!({
                "metadata": {"resourceVersion": found.resource_version(), "uid": found.uid()},
                "status": {"approvals": status.approvals},
            });
            let params = PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            match live(runs.patch_status(run, &params, &Patch::Merge(&patch))).await {
                Ok(written) => return Ok(serde_json::to_value(&written).unwrap_or_default()),
                Err(refusal) if refusal.trouble == Trouble::Conflict => {}
                Err(refusal) if refusal.trouble == Trouble::Forbidden => {
                    return Err(Refusal::unavailable(format!(
                        "the control plane may not record decisions: {refusal}"
                    ))
                    .remedy("give its account the verb patch on orchestrationruns/status"));
                }
                Err(refusal) => return Err(refusal),
            }
        }
        Err(Refusal::unavailable(
            "the run changes too fast to record the decision: try again",
        ))
    }
}

/// The policy that decides this gate, as the run says.
fn policy_of(run: &OrchestrationRun, step: &str) -> Result<String, Refusal> {
    let status = run.status.as_ref();
    let found = status
        .into_iter()
        .flat_map(|status| &status.step_statuses)
        .find(|status| status.name == step);
    found
        .and_then(|step| step.waits_for.as_ref()?.approval_policy.clone())
        .ok_or_else(|| refused(&Refused::NotPending(step.to_owned())))
}

fn refused(why: &Refused) -> Refusal {
    let trouble = match why {
        Refused::NotAllowed { .. } | Refused::Creator(_) | Refused::CreatorUnknown(_) => Trouble::Forbidden,
        Refused::NotPending(_)
        | Refused::Outdated
        | Refused::TooMany
        | Refused::ByPhase(_)
        | Refused::Expired { .. } => Trouble::Conflict,
    };
    Refusal::new(trouble, why.to_string())
}
