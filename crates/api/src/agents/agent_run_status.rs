//! The status of an AgentRun: what became of it, and what it left behind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent_run::VcsMode;
use crate::{
    condition::CommonStatus,
    phase::RunPhase,
    refs::ArtifactRef,
    step::StepProgress,
    strings::string_enum,
    values::{AnyMap, FreeForm, Int32, Int64, Timestamp, if_legible},
};

/// What became of the run, written by the controllers alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentRunStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// Where the run stands: Pending, Running, Cancelling, Succeeded, Failed or Cancelled. Absent means Pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// When the run started.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the queue last let the run start something: the Job of an attempt or of a step. It is stamped on that Job as well.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted_at: Option<Timestamp>,
    /// The limit for which the run waits for its turn. The condition Blocked says the same in words.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingStatus>,
    /// When the run ended.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// What executes the run: for Jobs type, name, namespace and uid, in a workflow also stepName; for Temporal also
    /// workflowId, runId and taskQueue; for an endpoint its address and answer; and the repository of which it takes a slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_ref: Option<AnyMap>,
    /// What the agent's run came to, as agent-runner reported it.
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
    /// The run that is executed in place of this one, which has the same `idempotencyKey`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canonical_run: Option<String>,
    /// Hash of the spec as it was accepted. An edit that gets past the API server is recognised by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,
    /// SHA-256 of the system prompt that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt_hash: Option<String>,
    /// What the implementation asked the run to know, and what was missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<ContractStatus>,
    /// The repository the run works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcs: Option<VcsStatus>,
    /// What the run left behind, at most 50 entries; of more, the last are kept.
    #[schemars(length(max = 50))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactRef>,
    /// Where the steps stand, for the runtime `workflow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowStatus>,
    /// How long what the run leaves is kept, as it was decided when the run last started an attempt, ended, or had its spec
    /// changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionStatus>,
}

string_enum! {
    /// What a limit counts the runs of.
    closed enum LimitScope {
        Agent = "agent",
        Repository = "repository",
        Namespace = "namespace",
        Cluster = "cluster",
    }
}

/// A limit that keeps a run from starting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingStatus {
    /// What is counted: the runs of an `agent`, a `repository`, a `namespace` or the `cluster`.
    pub scope: LimitScope,
    /// Name of the Agent, the repository or the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many there may be.
    #[serde(default)]
    pub limit: Int32,
    /// The repository of which the run takes a slot when it starts, in lower case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
}

/// How long what a run leaves is kept after its end, by the spec of the run and, where that is silent, by the settings of the
/// controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionStatus {
    /// How many seconds its finished Jobs are kept; 0 means until the run is deleted.
    #[serde(default)]
    pub job_ttl_seconds: Int32,
    /// How many seconds its archived logs are kept.
    #[serde(default)]
    pub log_retention_seconds: Int32,
    /// How many seconds the run itself is kept; 0 means for good.
    #[serde(default)]
    pub run_retention_seconds: Int32,
}

/// What a run came to. Of an agent that reported nothing more, only the exit code and the reason are known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunOutcome {
    /// Exit code of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<Int32>,
    /// One word for what happened, for example Completed, AgentFailed, HardDeadlineExceeded or OOMKilled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What went wrong, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the agent says it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// What the agent says it used, by name: tokens, for example, or money.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<FreeForm>,
    /// The commit that holds the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Values for programs, as the agent reported them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<FreeForm>,
}

/// What the implementation asked the run to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContractStatus {
    /// Keys the run had to have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_keys: Vec<String>,
    /// Those of them that had no value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_keys: Vec<String>,
}

/// The repository a run works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VcsStatus {
    /// Name of the VersionControlProvider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Repository as `owner/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Branch the work starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_branch: Option<String>,
    /// Branch the work goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_branch: Option<String>,
    /// What the run may do: `read-write`, `read-only` or `none`, after all policies were applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<VcsMode>,
    /// Last commit of the branch that the work went to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// How many commits that branch is ahead of the one that the work started from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits_ahead: Option<Int32>,
    /// Until when the run's token of a GitHub App is used. It is renewed before that as long as the run works.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_expires_at: Option<Timestamp>,
    /// The pull request for the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestStatus>,
}

/// A pull request at a forge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestStatus {
    /// Its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<Int64>,
    /// Where people find it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Where the steps of a workflow stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStatus {
    /// Where the workflow as a whole stands: as the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// When that phase last changed.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    /// The steps, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<WorkflowStepStatus>,
}

/// Where one step of a workflow stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStepStatus {
    /// Name of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(flatten)]
    pub progress: StepProgress,
    /// More about it, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The Job of the current attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_ref: Option<JobRef>,
    /// When the Job of the current attempt was first seen. Before that, its absence means nothing.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_observed_at: Option<Timestamp>,
    /// What the step reported for later steps, once it has succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<FreeForm>,
}

/// A Job, by its name and by its identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobRef {
    /// Name of the Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// UID of the Job, which tells it from another one of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}
