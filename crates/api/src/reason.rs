//! Why an object is in the state it is in: the machine-readable words beside conditions and steps.
//!
//! Scripts and dashboards match these words, so a word is never renamed. The message beside it is for people and may
//! change.

use crate::strings::string_enum;

string_enum! {
    /// The reason of a condition or of a step.
    open enum Reason {
        // What a condition says when it has nothing more special to say.
        Reconciled,
        Ready,
        NotReady,
        Progressing,
        Degraded,
        None,
        Valid,
        ValidSpec,
        InvalidSpec,
        Active,

        // The life of a run.
        Submitted,
        Running,
        InProgress,
        Completed,
        Cancelled,
        SubmitFailed,
        /// It is not known whether the endpoint of the run has the work, and it is not sent again.
        SubmitUnknown,
        /// The endpoint of the run cannot be reached at the moment, or asks to be called later.
        EndpointUnavailable,
        SpecImmutableViolation,
        /// A cancel is under way.
        Cancelling,
        /// What a deleted run had running has stopped.
        Stopped,
        /// The API server refused the whole status, so that a shorter one was written; the message has its words.
        StatusRefused,

        // Jobs and their names.
        JobFailed,
        JobMissing,
        /// The API server refused the Job; the message has its words.
        JobRejected,
        /// The API server does not let the Job in at the moment: a right is missing, a quota is used up, or it has a trouble of
        /// its own that lasts, such as a webhook that does not answer.
        JobForbidden,
        /// The pod does not start; the message has the scheduler's or the node's words.
        PodWaiting,
        /// The pod could not start for want of its image or its configuration, for too long; the message says which.
        ImageUnavailable,
        /// The pod waits for a Secret or a ConfigMap that is not there, or its container cannot be made as it is described.
        ConfigurationUnavailable,
        /// The node took the pod away: evicted, preempted, or lost with its node.
        Disrupted,
        /// The node of the pod has not answered for too long. Whether the pod still works is not known.
        NodeLost,
        /// The Job completed, but no pod was left to read its result from.
        ResultUnavailable,
        NameTaken,
        PreviousJobTerminating,
        /// The Job is to be kept for longer than its run, with which it goes; the message has both numbers.
        JobOutlivesRun,
        /// The label or annotation `agents.proompteng.ai/retain` is neither `true` nor `false`, so that the run is kept.
        InvalidRetain,
        /// A topology spread constraint of the pod selects other pods and not this one, so that it spreads nothing.
        SpreadCountsOthers,
        /// The run was deleted before it could be written into history.
        NotArchived,

        // Workflow steps.
        MissingWorkflowSteps,
        WorkflowStepMissingName,
        WorkflowStepDuplicate,
        WorkflowStepFailed,
        WorkflowStepRetriesExhausted,
        WorkflowStepTimedOut,
        WorkflowJobMissing,
        WorkflowJobDeleted,

        // Outcomes of Temporal workflows.
        Terminated,
        TimedOut,
        Failed,
        TemporalError,

        // What is wrong with a run's spec or the objects it refers to.
        /// The schema refuses such a run before it is stored, so that no controller says it; the word is known.
        MissingRuntime,
        /// The runtime is one that this version does not execute.
        UnsupportedRuntime,
        /// A setting in `spec.runtime.config` has the wrong form.
        InvalidRuntimeConfig,
        /// A template of the provider cannot be rendered.
        InvalidTemplate,
        /// A volume of the workload lacks what it is made of.
        InvalidVolume,
        /// The files of the run are larger than a ConfigMap can hold.
        InputsTooLarge,
        MissingEndpoint,
        /// The endpoint of the run is none that the controllers may call.
        EndpointNotAllowed,
        MissingTemporalConfig,
        MissingAgent,
        MissingProvider,
        MissingProviderRef,
        MissingMemory,
        MissingImplementation,
        /// Something the object refers to is there, and cannot be read by this version.
        UnreadableReference,
        MissingWorkloadImage,
        MissingRequiredLabels,
        MissingRequiredMetadata,
        ParametersTooLarge,
        /// As [`Self::MissingRuntime`]: the schema refuses it.
        ParameterNotString,
        ParameterValueTooLarge,
        LabelBlocked,
        LabelNotAllowed,
        ImageBlocked,
        ImageNotAllowed,
        SecretBlocked,
        SecretNotAllowed,
        ServiceAccountNotAllowed,
        /// The run chooses a priority class that the operator keeps from runs.
        PriorityClassNotAllowed,
        /// The run chooses a security context that is looser than the operator allows.
        PodSecurityNotAllowed,
        InvalidContract,
        /// As [`Self::MissingRuntime`]: the schema refuses it.
        InvalidSystemPrompt,
        InvalidSystemPromptRef,
        MissingSystemPromptRef,
        SystemPromptTooLong,

        // What a run waits for.
        ConcurrencyLimit,
        QueueLimit,
        RateLimit,
        /// Not executed: another run of the agent has the same idempotency key; `status.canonicalRun` names it.
        Duplicate,
        /// Between two attempts.
        RetryBackoff,

        // Version control.
        VcsProvidersDisabled,
        VcsDisabled,
        VcsUnavailable,
        VcsPolicyDenied,
        VcsCapabilityDenied,
        VcsAuthUnavailable,
        MissingVcsProvider,
        MissingVcsAuth,
        MissingRepository,
        UnsupportedVcsAuth,
        /// A branch has a name that git does not take, or is the one that the work starts from.
        InvalidBranch,
        /// The run came to its end without a commit, so that there was nothing to deliver.
        NothingChanged,
        /// The forge did not take the commits; the message has its words.
        PushRejected,
        /// The commits could not be sent to the forge; the message has git's words.
        PushFailed,
        /// The forge has no such branch, or nothing on it, although agent-runner said that it pushed.
        BranchMissing,
        /// The commits are there, and the pull request that was asked for is not.
        PullRequestMissing,
        /// The forge could not be asked whether the work arrived.
        DeliveryUnknown,

        // Artifacts.
        TooManyArtifacts,
        UrlTooLong,
        InlineUrlDisallowed,
        MissingName,
        WithinLimits,

        // Agents, providers, specs, sources, memories.
        MissingBinary,
        MissingText,
        TextTooLarge,
        SummaryTooLong,
        DescriptionTooLarge,
        AcceptanceCriteriaTooLong,
        MissingType,
        MissingSecretRef,
        MissingAppAuth,
        SecretNotFound,
        SecretKeyMissing,
        SecretResolved,
        ConfigMapNotFound,
        ConfigMapKeyMissing,
        UnsupportedProvider,
        UnsupportedAuth,
        DeprecatedAuth,
        AuthReady,
        NoAuth,
        WebhookDisabled,
        WebhookReady,
        WebhookSynced,
        WebhookFailed,
        WebhookRetryDropped,
        InvalidPayload,
        Synced,

        // What is wrong with an orchestration.
        MissingOrchestration,
        MissingOrchestrationRef,
        MissingSteps,
        StepMissingName,
        StepMissingKind,
        DuplicateStep,
        EntrypointMissing,
        MissingDependency,
        InvalidDependency,
        DependencyCycle,
        /// A field of a step has the wrong form; the message names it.
        InvalidStep,
        /// The condition of a step cannot be read, or not be evaluated.
        InvalidCondition,
        /// The steps are more than the status of a run can hold; the message has the numbers.
        OrchestrationTooLarge,
        /// An orchestration runs itself, directly or through another one, or they are nested too deeply.
        RecursionRefused,

        // How a step of an orchestration ended.
        StepFailed,
        StepTimedOut,
        StepError,
        StepCancelled,
        RetriesExhausted,
        UnsupportedStep,
        ApprovalDenied,
        AgentRunFailed,
        AgentRunMissing,
        ToolRunFailed,
        ToolRunMissing,
        SubOrchestrationFailed,
        SubOrchestrationMissing,
        /// Skipped: a step it depends on failed, directly or further up; `causedBy` names it.
        DependencyFailed,
        /// Skipped: a step it depends on was skipped for a cause other than a failure.
        DependencySkipped,
        /// Skipped: a step it depends on was cancelled.
        DependencyCancelled,
        /// Skipped: its own condition is false.
        ConditionFalse,
        /// Skipped or cancelled: another step failed, and the run is to fail fast, or has run out of time.
        RunStopping,
        /// Skipped or cancelled: the run was cancelled.
        RunCancelled,
        /// The API server refused the child of the step; the message has its words.
        ChildRejected,
        /// The API server does not let the child of the step in, for want of a right or of room in a quota, or because of a trouble that
        /// lasts; it is tried again.
        ChildForbidden,
        /// This version cannot read the steps that the run has kept: nothing starts, and what runs goes on.
        UnreadableDefinition,
        /// The step waits for an approval.
        ApprovalPending,
        /// The gate was decided because nobody did in time.
        ApprovalExpired,
        MissingApprovalPolicy,
        /// The step waits for a signal.
        SignalPending,

        // Cancel.
        /// The deadline passed with pods still alive; the message names them, and their removal goes on.
        CancelTimedOut,
        /// The cancel came too late: the run had already succeeded.
        AlreadySucceeded,
        /// The cancel came too late: the run had already failed.
        AlreadyFailed,
        /// The cancel was not honoured because the feature is switched off.
        CancelDisabled,

        // Tools and signals.
        MissingTool,
        /// The Tool that a run refers to is there and cannot be run as it is written.
        InvalidTool,
        /// The tool wrote more to its termination message than Kubernetes keeps of one.
        OutputsTooLarge,
        /// What the tool wrote to its termination message is not `{"outputs": {…}}`.
        InvalidOutputs,
        SignalMissing,
        Delivered,
    }
}

impl Default for Reason {
    /// What a condition without a reason is read as.
    fn default() -> Self {
        Self::Reconciled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_legal_in_a_condition() {
        for reason in Reason::KNOWN {
            let text = reason.as_str();
            assert!(text.chars().all(|c| c.is_ascii_alphanumeric()), "{text}");
            assert!(text.starts_with(|c: char| c.is_ascii_uppercase()), "{text}");
        }
    }
}
