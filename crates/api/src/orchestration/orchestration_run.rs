//! OrchestrationRun: one execution of an Orchestration.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::StepKind;
use crate::{
    cancel::CancelRequest,
    condition::CommonStatus,
    phase::RunPhase,
    reason::Reason,
    refs::LocalRef,
    rules,
    step::StepProgress,
    values::{FreeForm, Timestamp, absent_as_default, if_legible},
};

/// The fields that cannot be edited once the run was accepted: all but the request to cancel.
const FIXED_FIELDS: &[&str] = &["deliveryId", "orchestrationRef", "parameters"];

/// Which orchestration is run, with which parameters. It cannot be edited once the run was accepted, except for `cancel`,
/// `desiredState` and `cancelReason`.
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
    validation = rules::fixed_once_accepted(FIXED_FIELDS, CancelRequest::FIELDS),
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
    #[serde(flatten)]
    pub stop: CancelRequest,
}

absent_as_default!(OrchestrationRunSpec);

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
    /// What the step gave back. Any keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<FreeForm>,
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
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
