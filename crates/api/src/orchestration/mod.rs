//! The group `orchestration.proompteng.ai`: graphs of steps, and runs of them.

pub mod orchestration_run;

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    condition::CommonStatus,
    phase::ObjectPhase,
    refs::OptionalRef,
    strings::string_enum,
    values::{FreeForm, Int32, absent_as_default},
};

/// The steps and how they depend on each other.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "orchestration.proompteng.ai",
    version = "v1alpha1",
    kind = "Orchestration",
    plural = "orchestrations",
    namespaced,
    status = "OrchestrationStatus",
    derive = "PartialEq",
    shortname = "orch",
    doc = "An Orchestration is a graph of steps: runs of agents and tools, approvals, signals, and other orchestrations. \
           It does nothing until an OrchestrationRun runs it.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Entrypoint", type_ = "string", json_path = ".spec.entrypoint")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct OrchestrationSpec {
    /// Name of a step that must exist. It has no effect on the order of execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<String>,
    /// The steps. If any of them has `dependsOn`, even an empty one, they form a graph; if none has, each depends on the
    /// one before it.
    pub steps: Vec<Step>,
    /// Policies for the runs, for tools that read them. Any keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<FreeForm>,
}

absent_as_default!(OrchestrationSpec);

string_enum! {
    /// What a step does.
    open enum StepKind {
        /// Runs an agent.
        AgentRun,
        /// Runs a tool.
        ToolRun,
        /// Runs another orchestration.
        SubOrchestration,
        /// Waits for an approval.
        ApprovalGate,
        /// Waits for a signal.
        SignalWait,
        /// Marks a point in the run.
        Checkpoint,
        /// Reads or writes a memory.
        MemoryOp,
    }
}

/// One step. Keys beyond those listed are kept and passed on, for example implementationSpecRef, implementation, runtime,
/// workload, workflow, memoryRef, secrets, signalRef and deliveryId.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Name of the step; unique within the orchestration.
    pub name: String,
    /// What the step does: AgentRun, ToolRun, SubOrchestration, ApprovalGate, SignalWait or Checkpoint.
    pub kind: StepKind,
    /// Names of the steps that must succeed before this one may start. An empty list means that it may start at once,
    /// and makes the steps a graph; leaving the field out of every step makes them a sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<Vec<String>>,
    /// If this step fails, let the steps that depend on it run all the same, and do not fail the run for it. Default:
    /// false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continue_on_failure: Option<bool>,
    /// The Agent to run, for kind AgentRun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_ref: Option<OptionalRef>,
    /// The Tool to run, for kind ToolRun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_ref: Option<OptionalRef>,
    /// The Orchestration to run, for kind SubOrchestration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orchestration_ref: Option<OptionalRef>,
    /// Name of the ApprovalPolicy that decides, for kind ApprovalGate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_ref: Option<String>,
    /// Parameters of the child, which win over those of the run. `{{ parameters.KEY }}` stands for a value of the run,
    /// `{{ steps.NAME.outputs.KEY }}` for what a step reported that this one depends on, directly or further up, and
    /// `{{ run.name }}` for the name of the run. What is not there is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<BTreeMap<String, String>>,
    /// A condition in CEL over `parameters`, `run` and `steps`, where `steps.NAME` has `phase` and `outputs` for every step
    /// that this one depends on, directly or further up. If it is false, the step is skipped with the reason
    /// `ConditionFalse`. For example `steps.review.outputs.verdict == 'good'`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// How often a failed attempt is followed by another one, at most 100 times. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<Int32>,
    /// How long to wait before the second attempt, in seconds, at most 86400. Each later one waits twice as long as the one
    /// before, up to an hour or this number, whichever is more, and up to a fifth longer. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_backoff_seconds: Option<Int32>,
    /// How long one attempt may take, in seconds; absent or 0 means no limit. The next attempt starts when this one has
    /// stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<Int32>,
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// Whether the orchestration can be run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrchestrationStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// `Ready` if the steps are well formed, `Invalid` if not; the condition `Ready` says what is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ObjectPhase>,
}
