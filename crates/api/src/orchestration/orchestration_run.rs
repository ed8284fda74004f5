//! OrchestrationRun: one execution of an Orchestration.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Step, StepKind};
use crate::{
    cancel::{CancelRequest, WRITABLE_FIELDS},
    condition::CommonStatus,
    phase::RunPhase,
    reason::Reason,
    refs::LocalRef,
    rules,
    step::StepProgress,
    strings::string_enum,
    values::{FreeForm, Int32, Int64, Timestamp, absent_as_default, if_legible},
};

/// The fields that cannot be edited once the run was accepted: all but the request to cancel and the retention.
const FIXED_FIELDS: &[&str] = &[
    "deliveryId",
    "failurePolicy",
    "orchestrationRef",
    "parameters",
    "timeoutSeconds",
];

/// Which orchestration is run, with which parameters. It cannot be edited once the run was accepted, except for `cancel`,
/// `desiredState`, `cancelReason` and `ttlSecondsAfterFinished`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "orchestration.proompteng.ai",
    version = "v1alpha1",
    kind = "OrchestrationRun",
    plural = "orchestrationruns",
    namespaced,
    status = "OrchestrationRunStatus",
    derive = "PartialEq",
    shortname = "orun",
    doc = "An OrchestrationRun executes the steps of an Orchestration once, with the definition as it was when the run \
           started.",
    validation = rules::run_name(),
    validation = rules::fixed_once_accepted(FIXED_FIELDS, WRITABLE_FIELDS),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Orchestration", type_ = "string", json_path = ".spec.orchestrationRef.name"),
    printcolumn(name = "RunId", type_ = "string", json_path = ".status.runId"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.stepStatuses[?(@.phase==\"Running\")].name"),
    printcolumn(name = "FailedStep", type_ = "string", priority = 1, json_path = ".status.stepStatuses[?(@.phase==\"Failed\")].name"),
    printcolumn(name = "StartTime", type_ = "date", priority = 1, json_path = ".status.startedAt"),
    printcolumn(name = "CompletionTime", type_ = "date", priority = 1, json_path = ".status.finishedAt")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct OrchestrationRunSpec {
    /// The Orchestration to run.
    pub orchestration_ref: LocalRef,
    /// Values for the steps.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Idempotency key of the request that created the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    /// What happens to the other steps when one has failed: `FinishIndependent` (the default) lets those go on that do not
    /// depend on it, `FailFast` cancels what runs and skips the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// How long the run may take, in seconds; absent or 0 means no limit. Then what runs is cancelled, and the run fails.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<Int32>,
    /// How long the finished run is kept, in seconds; 0 keeps it for good. Absent: as the controllers are configured,
    /// which is 30 days by default. Can be changed at any time.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<Int32>,
    #[serde(flatten)]
    pub stop: CancelRequest,
}

absent_as_default!(OrchestrationRunSpec);

string_enum! {
    /// What the failure of a step means for the others.
    closed enum FailurePolicy {
        /// Steps that do not depend on it go on.
        FinishIndependent,
        /// What runs is cancelled, and nothing new starts.
        FailFast,
    }
}

/// What became of the run, written by the controllers alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrchestrationRunStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// Where the run stands: Pending, Running, Cancelling, Succeeded, Failed or Cancelled. Absent means Pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// Id of the run, which is its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// When the run started.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the run ended.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Where the steps stand, in the order of the definition. The list has one writer and is replaced as a whole.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub step_statuses: Vec<StepStatus>,
    /// The steps of the Orchestration as they were when the run started. Later edits of it do not touch the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Definition>,
    /// What was decided about the gates of the run. Only Jangar writes here, in the name of whoever decided.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approval>,
    /// When a cancel that is under way is given up and reported as timed out.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_deadline: Option<Timestamp>,
    /// What was running when the run was cancelled, and what became of it. Work that could not be stopped for another reason stands here
    /// as well.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancel_receipt: Vec<CancelReceipt>,
}

/// An Orchestration as a run has kept it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// UID of the Orchestration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Its `metadata.generation` at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<Int64>,
    /// Its steps, as they were written.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

/// What somebody decided about one gate of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Name of the step.
    pub step: String,
    /// The ApprovalPolicy under which it was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Whether the gate was approved or denied.
    pub decision: ApprovalDecision,
    /// Who decided, as Kubernetes knows them.
    pub by: String,
    /// The groups that whoever decided belonged to, as far as the policy names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// When it was decided.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// What whoever decided said about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// SHA-256 of what was shown for the decision. If that changes, the decision no longer counts.
    pub digest: String,
}

string_enum! {
    /// What can be decided about a gate.
    closed enum ApprovalDecision { Approved, Denied }
}

/// What became of one object when its run was cancelled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelReceipt {
    /// Name of the step.
    pub step: String,
    /// The object that did the work of the step, by kind and name; absent for one that only waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_ref: Option<ResourceRef>,
    /// When it was asked to stop.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
    /// When it was known to have stopped. What was still there when the cancel was given up gets its time when it is gone; absent
    /// until then, and where nobody can know.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone_at: Option<Timestamp>,
    /// How it ended: the phase of the object, or `CancelTimedOut`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// Where one step stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// Name of the step.
    pub name: String,
    /// What the step does.
    pub kind: StepKind,
    #[serde(flatten)]
    pub progress: StepProgress,
    /// Why it stands there, in one word for programs, for example `DependencyFailed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Name of the step that is the cause of this one being skipped, however far up it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caused_by: Option<String>,
    /// Why it stands there, in words for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The object that does the work of the current attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_ref: Option<ResourceRef>,
    /// What a step that waits is waiting for: a gate the ApprovalPolicy, a signal its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
    /// What the step gave back. Any keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<FreeForm>,
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// What a step waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitsFor {
    /// Name of the ApprovalPolicy that decides the gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_policy: Option<String>,
    /// SHA-256 of what is shown for the decision, which a decision has to repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The values of `with` of the gate, as they are to be approved. The digest covers them, the parameters of the run, and the
    /// phases and outputs of all steps that the gate depends on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub with: BTreeMap<String, String>,
    /// Since when there is no such ApprovalPolicy, or none that can be read.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_missing_since: Option<Timestamp>,
    /// Name of the Signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// The one delivery of it that is waited for, by the id that its sender gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
}

/// An object, by its name and by its identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRef {
    /// Group and version of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// UID of the object, which tells it from another one of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}
