//! AgentRun: one piece of work, done once by one agent.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::agent_run_status::AgentRunStatus;
use super::{implementation_spec::ImplementationSpecSpec, workload::Workload};
use crate::{
    cancel::{CancelRequest, WRITABLE_FIELDS},
    refs::{LocalRef, PromptRef},
    rules,
    strings::string_enum,
    values::{AnyMap, Int32},
};

/// The fields that cannot be edited once the run was accepted: all but the request to cancel and the retention.
const FIXED_FIELDS: &[&str] = &[
    "agentRef",
    "idempotencyKey",
    "implementation",
    "implementationSpecRef",
    "memoryRef",
    "parameters",
    "priority",
    "runtime",
    "secrets",
    "systemPrompt",
    "systemPromptRef",
    "vcsPolicy",
    "vcsRef",
    "workflow",
    "workload",
];
/// Which agent does what, and how it is run. It cannot be edited once the run was accepted, except for `cancel`,
/// `desiredState`, `cancelReason` and `ttlSecondsAfterFinished`.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "agents.proompteng.ai",
    version = "v1alpha1",
    kind = "AgentRun",
    plural = "agentruns",
    namespaced,
    status = "AgentRunStatus",
    derive = "PartialEq",
    shortname = "ar",
    doc = "An AgentRun is one piece of work done once by one agent, as a Job, as a workflow of Jobs, as a Temporal \
           workflow or by an endpoint of your own.",
    validation = rules::run_name(),
    validation = rules::fixed_once_accepted(FIXED_FIELDS, WRITABLE_FIELDS),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Agent", type_ = "string", json_path = ".spec.agentRef.name"),
    printcolumn(name = "Succeeded", type_ = "string", json_path = ".status.conditions[?(@.type==\"Succeeded\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Succeeded\")].reason"),
    printcolumn(name = "StartTime", type_ = "date", json_path = ".status.startedAt"),
    printcolumn(name = "CompletionTime", type_ = "date", json_path = ".status.finishedAt"),
    printcolumn(name = "Runtime", type_ = "string", json_path = ".spec.runtime.type"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.workflow.steps[?(@.phase==\"Running\")].name"),
    printcolumn(name = "Priority", type_ = "integer", priority = 1, json_path = ".spec.priority"),
    printcolumn(name = "Repository", type_ = "string", priority = 1, json_path = ".status.vcs.repository")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::some_implementation(), rules::one_system_prompt()]))]
pub struct AgentRunSpec {
    /// The Agent that does the work.
    pub agent_ref: LocalRef,
    /// The ImplementationSpec that describes the work. `implementation` wins if both are set; one of them must be, unless
    /// every step of a workflow brings its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub implementation_spec_ref: Option<LocalRef>,
    /// The work, described in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub implementation: Option<InlineImplementation>,
    /// How the work is run.
    pub runtime: Runtime,
    /// The steps of the work, for the runtime `workflow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// The pod of the run, or of those of its steps that bring none of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Values for templates and for the agent, at most 100, each at most 2048 bytes long.
    #[schemars(extend("maxProperties" = 100))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Names of Secrets whose keys become environment variables of the pod. If the Agent restricts secrets, they must be
    /// among those it allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Order in the queue: runs with a larger number start first, whatever else waits. Default: 0; may be negative.
    #[serde(default)]
    pub priority: Int32,
    /// Makes submitting again harmless: of the runs of one agent in a namespace with the same key, one is executed. The others
    /// end as `Cancelled` with the reason `Duplicate`, and `status.canonicalRun` names the one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// System prompt, at most 16384 characters. Excludes `systemPromptRef`; absent, that of the Agent is used.
    #[schemars(length(max = 16384))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Where the system prompt is kept. Excludes `systemPrompt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt_ref: Option<PromptRef>,
    /// The Memory of the run. Absent: that of the Agent, or the default one of the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_ref: Option<LocalRef>,
    /// The VersionControlProvider of the run. Absent: that of the implementation, or that of the Agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcs_ref: Option<LocalRef>,
    /// What the run may do to the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcs_policy: Option<VcsPolicy>,
    /// How long the finished run is kept, in seconds; 0 keeps it for good. Absent: as the controllers are configured,
    /// which is 30 days by default. Can be changed at any time.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<Int32>,
    #[serde(flatten)]
    pub stop: CancelRequest,
}

/// A piece of work that is described in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlineImplementation {
    /// The description, with the fields of the spec of an ImplementationSpec.
    pub inline: ImplementationSpecSpec,
}

string_enum! {
    /// What executes a run.
    closed enum RuntimeType {
        /// Jobs, one after the other.
        Workflow = "workflow",
        /// One Job.
        Job = "job",
        /// A Temporal workflow.
        Temporal = "temporal",
        /// An HTTP endpoint of the user's own.
        Custom = "custom",
    }
}

/// What executes the run, with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// What executes the run: `workflow` (Jobs, one after the other), `job` (one Job), `temporal` (a Temporal workflow)
    /// or `custom` (an HTTP endpoint).
    #[serde(rename = "type")]
    pub type_: RuntimeType,
    /// Settings of the runtime. For Jobs: serviceAccount, nodeSelector, tolerations, topologySpreadConstraints, affinity,
    /// podSecurityContext, priorityClassName, schedulerName, imagePullSecrets, backoffLimit, ttlSecondsAfterFinished and
    /// logRetentionSeconds, each replacing what the controllers are configured with; an empty list or object clears it.
    /// For temporal: workflowType and taskQueue (required), workflowId, namespace, timeouts. For custom: endpoint
    /// (required), payload, timeoutSeconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<AnyMap>,
}

/// The steps of a run of the runtime `workflow`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workflow {
    /// Steps, executed in this order, one at a time, at most 100. Whatever more is to be done at once, or in another order,
    /// is an Orchestration.
    pub steps: Vec<WorkflowStep>,
}

/// One step of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStep {
    /// Name of the step; unique within the run.
    pub name: String,
    /// The ImplementationSpec of the step. Absent: what the run says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub implementation_spec_ref: Option<LocalRef>,
    /// The work of the step, described in place; wins over `implementationSpecRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub implementation: Option<InlineImplementation>,
    /// Values for this step, at most 100 together with those of the run, over which they win. `{{ steps.NAME.outputs.KEY }}`
    /// stands for what an earlier step reported, `{{ parameters.KEY }}` for a value of the run.
    #[schemars(extend("maxProperties" = 100))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// How often a failed attempt is followed by another one, at most 100 times; a negative number counts as 0. Absent: as for
    /// the runtime `job`, which is `runtime.config.backoffLimit`, else what the Agent says, else what the controllers are
    /// configured with, which is 0 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<Int32>,
    /// How long to wait before the second attempt, in seconds, at most 86400. Each later one waits twice as long as the one
    /// before, up to an hour or this number, whichever is more, and up to a fifth longer. Default: 0; a negative number
    /// counts as 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_backoff_seconds: Option<Int32>,
    /// How long one attempt may take from the creation of its Job, in seconds; 0 means no limit. The next attempt starts when
    /// no pod of this one is left. Absent: what the Agent says, counted from the start of its program, else no limit.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<Int32>,
    /// What follows when the Job of an attempt is gone, or deleted by somebody else, before it ended: `Fail` (the default),
    /// because nobody knows what it has done already, or `Retry`, as after any other failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_job_missing: Option<OnJobMissing>,
    /// The pod of the step. It replaces that of the run as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
}

string_enum! {
    /// What follows when a Job is not there any more although its end is not known.
    closed enum OnJobMissing {
        /// The step fails.
        Fail,
        /// The next attempt starts, if there is one left.
        Retry,
    }
}

string_enum! {
    /// What a run may do to its repository.
    closed enum VcsMode {
        ReadWrite = "read-write",
        ReadOnly = "read-only",
        None = "none",
    }
}

/// What the run may do to the repository, and whether it needs one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VcsPolicy {
    /// What the run may do: `read-write` (the default), `read-only`, or `none` to leave version control out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<VcsMode>,
    /// Fail the run if it cannot have that access, instead of going on without. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}
