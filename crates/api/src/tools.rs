//! The group `tools.proompteng.ai`: programs without an agent, and runs of them.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    agents::{
        agent_run_status::{RetentionStatus, RunOutcome},
        workload::WorkloadResources,
    },
    cancel::{CancelRequest, WRITABLE_FIELDS},
    condition::CommonStatus,
    phase::{ObjectPhase, RunPhase},
    refs::{EnvVar, LocalRef},
    rules,
    values::{AnyMap, FreeForm, Int32, Timestamp, absent_as_default, if_legible},
};

/// Which program runs, in which image, with which arguments.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tools.proompteng.ai",
    version = "v1alpha1",
    kind = "Tool",
    plural = "tools",
    namespaced,
    status = "ToolStatus",
    derive = "PartialEq",
    shortname = "tl",
    doc = "A Tool is a program in a container that can be run with parameters, without an agent.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ToolSpec {
    /// Container image. A Tool without one is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Program to start. `{{ path.to.value }}` is replaced from `parameters`, `tool` and `toolRun`. A Tool needs a
    /// command or arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Arguments of the program; templates like the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables of the program; their values are templates like the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Service account of the pod. Absent: that of the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Directory to start in. Absent: `/workspace`, which is empty but for `run.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Names of Secrets whose keys become environment variables of the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// What the container asks for and may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<WorkloadResources>,
    /// How long a run may take from the creation of its Job, in seconds; absent or 0 means no limit. When the time is up, the
    /// pod is stopped, and the run has failed once it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<Int32>,
    /// How long the Job of a finished run is kept, in seconds; 0 means until the run is deleted. Absent: as the controllers are
    /// configured. It counts from the recording of the run's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<Int32>,
}

absent_as_default!(ToolSpec);

/// Whether the tool can be run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// `Ready`, or `Invalid`: the condition `Ready` tells everything that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ObjectPhase>,
}

/// The fields of a ToolRun that cannot be edited once it was accepted: all but the request to cancel and the retention.
const FIXED_FIELDS: &[&str] = &["deliveryId", "parameters", "runtime", "toolRef"];

/// Which tool is run, with which parameters. It cannot be edited once the run was accepted, except for `cancel`,
/// `desiredState`, `cancelReason` and `ttlSecondsAfterFinished`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tools.proompteng.ai",
    version = "v1alpha1",
    kind = "ToolRun",
    plural = "toolruns",
    namespaced,
    status = "ToolRunStatus",
    derive = "PartialEq",
    shortname = "tr",
    doc = "A ToolRun runs a Tool once, as a Job.",
    validation = rules::run_name(),
    validation = rules::fixed_once_accepted(FIXED_FIELDS, WRITABLE_FIELDS),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Tool", type_ = "string", json_path = ".spec.toolRef.name"),
    printcolumn(name = "StartTime", type_ = "date", priority = 1, json_path = ".status.startedAt"),
    printcolumn(name = "CompletionTime", type_ = "date", priority = 1, json_path = ".status.finishedAt")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ToolRunSpec {
    /// The Tool to run.
    pub tool_ref: LocalRef,
    /// Values for the templates of the tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Idempotency key of the request that created the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    /// Settings of the runtime. Of `config`, the keys that an AgentRun of the runtime `job` knows are read; any others are
    /// accepted for compatibility.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<FreeForm>,
    /// How long the finished run is kept, in seconds; 0 keeps it for good. Absent: as the controllers are configured,
    /// which is 30 days by default. Can be changed at any time.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<Int32>,
    #[serde(flatten)]
    pub stop: CancelRequest,
}

absent_as_default!(ToolRunSpec);

/// What became of the run, written by the controllers alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolRunStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// Where the run stands: Pending, Running, Cancelling, Succeeded, Failed or Cancelled. Absent means Pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// Id of the run, which is its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The Job that executes the run: type, name, namespace and uid.
    #[schemars(with = "Option<FreeForm>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_ref: Option<AnyMap>,
    /// When the run started.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the run ended.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// What the run came to: the exit code, and in `outputs` what the tool wrote as `{"outputs": {…}}` to its termination
    /// message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// When a cancel that is under way is given up and reported as timed out.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_deadline: Option<Timestamp>,
    /// When it was seen that nothing was left of a run whose cancel had been given up with the reason `CancelTimedOut`. Absent as long
    /// as something is, and where nobody can know.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub survivors_gone_at: Option<Timestamp>,
    /// Hash of the spec as it was accepted. An edit that gets past the API server is recognised by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,
    /// How long what the run leaves is kept, as it was decided when the run last started an attempt, ended, or had its spec
    /// changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionStatus>,
}
