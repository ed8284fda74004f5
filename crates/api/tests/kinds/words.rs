//! The public words of the status. Scripts and dashboards match them, so none may be renamed or dropped.

use jangar_api::{
    condition::ConditionType,
    phase::{RunPhase, StepPhase},
    reason::Reason,
};

const REASONS: &str = "
    AcceptanceCriteriaTooLong Active AgentRunFailed AgentRunMissing AlreadyFailed AlreadySucceeded ApprovalDenied
    AuthReady CancelDisabled CancelTimedOut Cancelled Completed ConcurrencyLimit ConfigMapKeyMissing
    ConfigMapNotFound Degraded Delivered DependencyCancelled DependencyCycle DependencyFailed DependencySkipped
    DeprecatedAuth DescriptionTooLarge DuplicateStep EntrypointMissing Failed ImageBlocked ImageNotAllowed
    InProgress InlineUrlDisallowed InvalidContract InvalidDependency InvalidPayload InvalidSpec InvalidSystemPrompt
    InvalidSystemPromptRef JobFailed JobMissing LabelBlocked LabelNotAllowed MissingAgent MissingAppAuth
    MissingBinary MissingDependency MissingEndpoint MissingImplementation MissingMemory MissingName
    MissingOrchestration MissingOrchestrationRef MissingProvider MissingProviderRef MissingRepository
    MissingRequiredLabels MissingRequiredMetadata MissingRuntime MissingSecretRef MissingSteps
    MissingSystemPromptRef MissingTemporalConfig MissingText MissingTool MissingType MissingVcsAuth
    MissingVcsProvider MissingWorkflowSteps MissingWorkloadImage NameTaken NoAuth None NotReady ParameterNotString
    ParameterValueTooLarge ParametersTooLarge PreviousJobTerminating Progressing QueueLimit RateLimit Ready
    Reconciled RetriesExhausted Running SecretBlocked SecretKeyMissing SecretNotAllowed SecretNotFound
    SecretResolved ServiceAccountNotAllowed SignalMissing SpecImmutableViolation StepCancelled StepError StepFailed
    StepMissingKind StepMissingName StepTimedOut SubOrchestrationFailed SubOrchestrationMissing SubmitFailed
    Submitted SummaryTooLong Synced SystemPromptTooLong TemporalError Terminated TextTooLarge TimedOut
    TooManyArtifacts ToolRunFailed ToolRunMissing UnsupportedAuth UnsupportedProvider UnsupportedStep
    UnsupportedVcsAuth UrlTooLong Valid ValidSpec VcsAuthUnavailable VcsCapabilityDenied VcsDisabled VcsPolicyDenied
    VcsProvidersDisabled VcsUnavailable WebhookDisabled WebhookFailed WebhookReady WebhookRetryDropped WebhookSynced
    WithinLimits WorkflowJobDeleted WorkflowJobMissing WorkflowStepDuplicate WorkflowStepFailed
    WorkflowStepMissingName WorkflowStepRetriesExhausted WorkflowStepTimedOut
";

const CONDITION_TYPES: &str = "
    Accepted ArtifactsLimitExceeded ArtifactsLimited Blocked Cancelled Complete Degraded Delivered Error Failed
    InProgress InvalidSpec Progressing Ready ResultUnavailable Running Succeeded Unreachable VcsSkipped Warning
";

#[test]
fn reasons_are_kept() {
    for word in REASONS.split_whitespace() {
        assert!(
            !matches!(Reason::from(word), Reason::Other(_)),
            "the reason {word} is gone"
        );
    }
}

#[test]
fn condition_types_are_kept() {
    for word in CONDITION_TYPES.split_whitespace() {
        assert!(
            !matches!(ConditionType::from(word), ConditionType::Other(_)),
            "the type {word} is gone"
        );
    }
}

#[test]
fn phases_of_runs_and_steps_are_kept() {
    let runs: Vec<&str> = RunPhase::KNOWN.iter().map(RunPhase::as_str).collect();
    assert_eq!(
        runs,
        [
            "Pending",
            "Running",
            "Cancelling",
            "Succeeded",
            "Failed",
            "Cancelled"
        ]
    );
    let steps: Vec<&str> = StepPhase::KNOWN.iter().map(StepPhase::as_str).collect();
    assert_eq!(
        steps,
        [
            "Pending",
            "Running",
            "Retrying",
            "Succeeded",
            "Failed",
            "Skipped",
            "Cancelled"
        ]
    );
}
