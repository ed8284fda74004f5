//! The keys of labels, annotations and finalizers that Jangar reads and writes, and the name of its Lease.

/// Label on everything a run owns: the name of the AgentRun.
pub const AGENT_RUN: &str = "agents.proompteng.ai/agent-run";
/// Label on the Job, pod and ConfigMaps of a run: the name of its Agent.
pub const AGENT: &str = "agents.proompteng.ai/agent";
/// Label on the Job, pod and ConfigMaps of a run: the name of its AgentProvider.
pub const PROVIDER: &str = "agents.proompteng.ai/provider";
/// Label on the Job, pod and ConfigMaps of a run: the name of its ImplementationSpec, if it refers to one.
pub const IMPLEMENTATION: &str = "agents.proompteng.ai/implementation";
/// Label on the Job of a workflow step: the name of the step.
pub const STEP: &str = "agents.proompteng.ai/step";
/// Label on the Job of a workflow step: its position, counted from one.
pub const STEP_INDEX: &str = "agents.proompteng.ai/step-index";
/// Label on an ImplementationSpec that a webhook made: where it came from.
pub const SOURCE_PROVIDER: &str = "agents.proompteng.ai/source-provider";
/// Annotation on the same: the version of the work at its origin that the spec was last made from. It is written together with
/// the spec, so that an older version never takes the place of a newer one.
pub const SOURCE_VERSION: &str = "agents.proompteng.ai/source-version";
/// Annotation with the time of the last change, for those who order objects by it.
pub const UPDATED_AT: &str = "agents.proompteng.ai/updatedAt";
/// Label or annotation that keeps a finished run from being deleted by retention: `true` does, `false` does not, and anything
/// else does with a warning.
pub const RETAIN: &str = "agents.proompteng.ai/retain";

/// Annotation on a Job: hash of the spec of the run it was made for. On the child of an OrchestrationRun: hash of the spec that it was
/// made with.
pub const SPEC_HASH: &str = "agents.proompteng.ai/spec-hash";
/// Annotation on a Job: when its run was let in.
pub const ADMITTED_AT: &str = "agents.proompteng.ai/admitted-at";
/// Annotation on a Job: the repository that its run works on, as the queue counts it.
pub const REPOSITORY: &str = "agents.proompteng.ai/repository";
/// Annotation on a Job: which attempt it is, counted from one.
pub const ATTEMPT: &str = "agents.proompteng.ai/attempt";
/// Annotation on a Job: how many attempts its run has in all.
pub const ATTEMPTS: &str = "agents.proompteng.ai/attempts";
/// Annotation on a Job: SHA-256 of the system prompt it was made with.
pub const SYSTEM_PROMPT_HASH: &str = "agents.proompteng.ai/system-prompt-hash";
/// Annotation on a Job: what the implementation asked the run to know, as JSON.
pub const CONTRACT: &str = "agents.proompteng.ai/contract";
/// Annotation on a Job: the repository and the branches it was made for, or why it has none, as JSON.
pub const VERSION_CONTROL: &str = "agents.proompteng.ai/version-control";
/// Annotation on the Secret with a run's token of a GitHub App: until when the token is used.
pub const EXPIRES_AT: &str = "agents.proompteng.ai/expires-at";
/// Annotation on the same Secret: the address of the forge's API that gave the token, and takes it back.
pub const API_BASE_URL: &str = "agents.proompteng.ai/api-base-url";
/// Annotation on the Job of a ToolRun: how many seconds it may take; absent, as many as it likes.
pub const TIMEOUT_SECONDS: &str = "agents.proompteng.ai/timeout-seconds";
/// Annotation on the Job of a ToolRun: how many seconds it is kept after its end; 0 for as long as its run.
pub const TTL_SECONDS: &str = "agents.proompteng.ai/ttl-seconds";

/// Finalizer on a run: what it left behind outside its Job, or its parent's record of its end, is not settled yet.
pub const RUNTIME_CLEANUP_FINALIZER: &str = "agents.proompteng.ai/runtime-cleanup";
/// Finalizer on a run that has ended while history was away: it is not written there yet.
pub const ARCHIVE_FINALIZER: &str = "agents.proompteng.ai/archive";
/// Finalizer on a Job: its outcome is not recorded in the status of its run yet. Also on the pod of a Job that we look after
/// ourselves: what became of it does not stand in the status of the Job yet.
pub const JOB_STATUS_FINALIZER: &str = "agents.proompteng.ai/job-status";

/// Whether the finalizers of a Job, or of a pod, keep it until its end is recorded.
pub fn is_held(finalizers: &[String]) -> bool {
    finalizers.iter().any(|name| name == JOB_STATUS_FINALIZER)
}

/// Label on objects that were submitted through the API, agentctl or a Schedule: the idempotency key of the request.
pub const DELIVERY_ID: &str = "jangar.proompteng.ai/delivery-id";
/// Label on the children of an OrchestrationRun: its name.
pub const ORCHESTRATION_RUN: &str = "jangar.proompteng.ai/orchestration-run";
/// Label on the children of an OrchestrationRun: the step they belong to.
pub const ORCHESTRATION_STEP: &str = "jangar.proompteng.ai/orchestration-step";
/// Annotation on the children of an OrchestrationRun: which attempt of the step they are, counted from one.
pub const ORCHESTRATION_ATTEMPT: &str = "jangar.proompteng.ai/orchestration-attempt";
/// Annotation on an OrchestrationRun that another one started: the Orchestrations above it, the root first, with commas.
pub const ORCHESTRATION_ANCESTORS: &str = "jangar.proompteng.ai/orchestration-ancestors";
/// Label on an OrchestrationRun that waits for an approval: `pending`.
pub const APPROVAL: &str = "jangar.proompteng.ai/approval";
/// Annotation on a run: who created it, as the control plane knows them.
pub const CREATED_BY: &str = "jangar.proompteng.ai/created-by";
/// Annotation on a run that does the work of another one again: the name of that one.
pub const RETRY_OF: &str = "jangar.proompteng.ai/retry-of";
/// Annotation on a run that its parent cancels: when that is given up.
pub const CANCEL_DEADLINE: &str = "jangar.proompteng.ai/cancel-deadline";
/// Annotation on a run that its parent stops: the UID of that parent. It tells such a stop from the wish of a person, who may not
/// be allowed to cancel.
pub const STOPPED_BY: &str = "jangar.proompteng.ai/stopped-by";
/// Label on the Job and ConfigMap of a ToolRun: its name.
pub const TOOL_RUN: &str = "jangar.proompteng.ai/tool-run";
/// Label on what a Schedule made: its name.
pub const SCHEDULE: &str = "schedules.proompteng.ai/schedule";
/// Label on the PersistentVolumeClaim of a Workspace: its name.
pub const WORKSPACE: &str = "workspaces.proompteng.ai/workspace";

/// Under this name the writes of the controllers stand in the managed fields of objects.
pub const FIELD_MANAGER: &str = "jangar-controllers";

/// `spec.managedBy` of a Job that we look after ourselves, and the Job controller of Kubernetes does not.
pub const JOB_CONTROLLER: &str = "agents.proompteng.ai/jangar";

/// Labels by which Kubernetes marks the pods of a Job, also those that we make: the API server writes them into the template of every Job.
pub const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
pub const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// The Lease whose holder is the one process that writes, in the release namespace.
pub const LEADER_LEASE: &str = "jangar-controller-leader";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_are_legal_and_distinct() {
        let keys = [
            AGENT_RUN,
            AGENT,
            PROVIDER,
            IMPLEMENTATION,
            STEP,
            STEP_INDEX,
            SOURCE_PROVIDER,
            SOURCE_VERSION,
            UPDATED_AT,
            RETAIN,
            SPEC_HASH,
            ADMITTED_AT,
            REPOSITORY,
            ATTEMPT,
            ATTEMPTS,
            SYSTEM_PROMPT_HASH,
            CONTRACT,
            VERSION_CONTROL,
            EXPIRES_AT,
            API_BASE_URL,
            TIMEOUT_SECONDS,
            TTL_SECONDS,
            RUNTIME_CLEANUP_FINALIZER,
            ARCHIVE_FINALIZER,
            JOB_STATUS_FINALIZER,
            DELIVERY_ID,
            ORCHESTRATION_RUN,
            ORCHESTRATION_STEP,
            ORCHESTRATION_ATTEMPT,
            ORCHESTRATION_ANCESTORS,
            APPROVAL,
            CREATED_BY,
            RETRY_OF,
            CANCEL_DEADLINE,
            STOPPED_BY,
            TOOL_RUN,
            SCHEDULE,
            WORKSPACE,
        ];
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
        for key in keys {
            let (domain, name) = key.split_once('/').expect(key);
            assert!(domain.ends_with(".proompteng.ai"), "{key}");
            assert!(
                name.len() <= 63 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
                "{key}"
            );
        }
    }
}
