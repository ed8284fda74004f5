//! What each reason means to whoever asks: what is the matter, and what kind of trouble that is.

use std::borrow::Cow;

use jangar_api::reason::Reason;

/// What kind of trouble a reason is, and with that who can do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It is as it should be.
    Fine,
    /// Too many runs are under way.
    Slots,
    /// Too many runs wait.
    Places,
    /// Too many runs have started lately.
    Rate,
    /// It passes by itself.
    Time,
    /// A pod does not start.
    Pod,
    /// A right or a quota is missing.
    Rights,
    /// Something else has the name.
    Name,
    /// Something that is referred to has to be created.
    Create(Referred),
    /// Something that is referred to has to be mended.
    Mend(Referred),
    /// Something that is referred to is wrong, and only the message tells what.
    Describe,
    /// The run has to be written otherwise.
    Spec,
    /// The run has to be written otherwise, or the operator has to allow what it wants.
    Policy,
    /// A template has no value: of the run, or of what it refers to.
    Template,
    /// It took longer than it may: the run, or what it refers to, says how long that is.
    Limit,
    /// The work itself went wrong.
    Work,
    /// It went wrong for a passing cause, or for one further down: it can be done again.
    Retry,
    /// Nobody knows how far it came.
    Lost,
    /// The endpoint or the Temporal server that does the work.
    Endpoint,
    /// The forge with the repository.
    Forge,
    /// A gate waits for people.
    Approval,
    /// A gate was closed.
    Denied,
    /// A step waits for an event from outside.
    Signal,
    /// Another run does the work.
    Duplicate,
    /// A cancel is under way.
    Stopping,
    /// It was cancelled.
    Cancelled,
    /// It was cancelled, and something of it may be alive.
    Survivors,
    /// It should be cancelled, and is not.
    CancelDisabled,
    /// How long it is kept is not clear.
    Retention,
    /// No controller has looked at it.
    Unseen,
    /// A word of another version, or one that says nothing.
    Unknown,
}

/// What a run can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Referred {
    Agent,
    AgentProvider,
    ImplementationSpec,
    Memory,
    VersionControlProvider,
    Secret,
    ConfigMap,
    SystemPrompt,
    Orchestration,
    ApprovalPolicy,
    Tool,
    Signal,
}

impl Referred {
    /// Its kind, as people write it.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Agent => "Agent",
            Self::AgentProvider => "AgentProvider",
            Self::ImplementationSpec => "ImplementationSpec",
            Self::Memory => "Memory",
            Self::VersionControlProvider => "VersionControlProvider",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::SystemPrompt => "Secret or ConfigMap",
            Self::Orchestration => "Orchestration",
            Self::ApprovalPolicy => "ApprovalPolicy",
            Self::Tool => "Tool",
            Self::Signal => "Signal",
        }
    }

    /// Its kind, as kubectl knows it.
    pub(super) const fn resource(self) -> &'static str {
        match self {
            Self::Agent => "agents",
            Self::AgentProvider => "agentproviders",
            Self::ImplementationSpec => "implementationspecs",
            Self::Memory => "memories",
            Self::VersionControlProvider => "versioncontrolproviders",
            Self::Secret => "secrets",
            Self::ConfigMap => "configmaps",
            Self::SystemPrompt => "secrets,configmaps",
            Self::Orchestration => "orchestrations",
            Self::ApprovalPolicy => "approvalpolicies",
            Self::Tool => "tools",
            Self::Signal => "signals",
        }
    }
}

/// What a reason means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub cause: Cause,
    clause: &'static str,
}

impl Row {
    const FINE: Self = told(Cause::Fine, "");
    /// There is no condition that says why.
    pub(super) const UNTOLD: Self = told(Cause::Unknown, "");
    pub(super) const AT_WORK: Self = told(Cause::Fine, "");
    pub(super) const UNSEEN: Self = told(
        Cause::Unseen,
        "no controller has told anything of it yet (its pod may be about to start)",
    );
    pub(super) const DELETED: Self = told(
        Cause::Stopping,
        "it was deleted, and not everything of it has stopped or is recorded yet",
    );

    /// What follows `because`.
    pub(super) fn clause(&self, reason: Option<&Reason>) -> Cow<'static, str> {
        match reason {
            Some(Reason::Other(word)) => {
                format!("of a reason that this version does not know ({word})").into()
            }
            _ => self.clause.into(),
        }
    }
}

const fn told(cause: Cause, clause: &'static str) -> Row {
    Row { cause, clause }
}

/// What a reason means. A word that is new in `jangar-api` has no row, and does not compile.
#[expect(clippy::too_many_lines, reason = "a table with one row for each reason")]
pub(super) const fn row(reason: &Reason) -> Row {
    match reason {
        Reason::Other(_) => Row::UNTOLD,
        // What is as it should be.
        Reason::Reconciled
        | Reason::Ready
        | Reason::Progressing
        | Reason::None
        | Reason::Valid
        | Reason::ValidSpec
        | Reason::Active
        | Reason::Submitted
        | Reason::Running
        | Reason::InProgress
        | Reason::Completed
        | Reason::WithinLimits
        | Reason::SecretResolved
        | Reason::AuthReady
        | Reason::NoAuth
        | Reason::WebhookDisabled
        | Reason::WebhookReady
        | Reason::WebhookSynced
        | Reason::Synced
        | Reason::Delivered => Row::FINE,

        // What a condition says when it has nothing more special to say.
        Reason::NotReady => told(Cause::Unknown, "it is not ready"),
        Reason::Degraded => told(Cause::Unknown, "something is wrong with it"),
        Reason::InvalidSpec => told(Cause::Spec, "its spec is wrong"),

        // The life of a run.
        Reason::Cancelled => told(Cause::Cancelled, "somebody asked for it"),
        Reason::SubmitFailed => told(Cause::Retry, "its work could not be handed over"),
        Reason::SubmitUnknown => told(Cause::Lost, "nobody knows whether its endpoint has the work"),
        Reason::EndpointUnavailable => told(
            Cause::Endpoint,
            "its endpoint does not take the work at the moment",
        ),
        Reason::SpecImmutableViolation => told(Cause::Spec, "its spec was changed after it was accepted"),
        Reason::Cancelling => told(
            Cause::Stopping,
            "a cancel was asked for, and not everything has stopped yet",
        ),
        Reason::Stopped => told(Cause::Cancelled, "it was deleted"),
        Reason::StatusRefused => told(Cause::Unknown, "the API server refused its status"),

        // Jobs and their names.
        Reason::JobFailed => told(Cause::Work, "its program ended with an error"),
        Reason::JobMissing => told(Cause::Lost, "its Job is gone and nobody knows how it ended"),
        Reason::JobRejected => told(Cause::Spec, "the API server refused its Job"),
        Reason::JobForbidden => told(
            Cause::Rights,
            "the API server does not let its Job in, for want of a right, of room in a quota or of a webhook that answers",
        ),
        Reason::PodWaiting => told(Cause::Pod, "its pod has not started"),
        Reason::ImageUnavailable => told(Cause::Pod, "its pod has no image"),
        Reason::ConfigurationUnavailable => {
            told(Cause::Pod, "its pod lacks a Secret, a ConfigMap or a volume")
        }
        Reason::Disrupted => told(
            Cause::Retry,
            "its pod was taken away by its node, again and again",
        ),
        Reason::NodeLost => told(Cause::Lost, "the node of its pod does not answer"),
        Reason::ResultUnavailable => told(Cause::Lost, "its pod was gone before its result could be read"),
        Reason::NameTaken => told(Cause::Name, "something else has a name that it needs"),
        Reason::PreviousJobTerminating => told(
            Cause::Time,
            "the Job of an earlier run of its name is still going away",
        ),
        Reason::JobOutlivesRun => told(Cause::Retention, "its Job is to be kept longer than the run"),
        Reason::InvalidRetain => told(Cause::Retention, "its retain mark is neither true nor false"),
        Reason::SpreadCountsOthers => told(
            Cause::Spec,
            "its pod is not among those that it is to be spread with",
        ),
        // Only an Event has it, of a run that is gone.
        Reason::NotArchived => told(Cause::Fine, "it was deleted before it was written into history"),

        // Workflow steps.
        Reason::MissingWorkflowSteps => told(Cause::Spec, "its workflow has no steps"),
        Reason::WorkflowStepMissingName => told(Cause::Spec, "a step of its workflow has no name"),
        Reason::WorkflowStepDuplicate => told(Cause::Spec, "two steps of its workflow have the same name"),
        Reason::WorkflowStepFailed => told(Cause::Work, "a step of its workflow failed"),
        Reason::WorkflowStepRetriesExhausted => {
            told(Cause::Work, "a step of its workflow failed in every attempt")
        }
        Reason::WorkflowStepTimedOut => told(Cause::Spec, "a step of its workflow took longer than it may"),
        Reason::WorkflowJobMissing => told(
            Cause::Lost,
            "the Job of a step is gone and nobody knows how it ended",
        ),
        Reason::WorkflowJobDeleted => told(Cause::Lost, "somebody deleted the Job of a step before it ended"),

        // Outcomes of Temporal workflows.
        Reason::Terminated => told(Cause::Retry, "its Temporal workflow was terminated"),
        Reason::TimedOut => told(Cause::Limit, "it took longer than it may"),
        Reason::Failed => told(Cause::Work, "its work failed"),
        Reason::TemporalError => told(Cause::Endpoint, "the Temporal server could not be asked"),

        // What is wrong with a run's spec or the objects it refers to.
        Reason::MissingRuntime => told(Cause::Spec, "its spec names no runtime"),
        Reason::UnsupportedRuntime => told(Cause::Spec, "this version does not execute its runtime"),
        Reason::InvalidRuntimeConfig => told(Cause::Spec, "a setting of its runtime has the wrong form"),
        Reason::InvalidTemplate => told(Cause::Template, "a template refers to a value that is not there"),
        Reason::InvalidVolume => told(Cause::Spec, "a volume of its workload lacks what it is made of"),
        Reason::InputsTooLarge => told(Cause::Spec, "its files are larger than a ConfigMap can hold"),
        Reason::MissingEndpoint => told(Cause::Spec, "its spec names no endpoint"),
        Reason::EndpointNotAllowed => told(Cause::Policy, "the controllers may not call its endpoint"),
        Reason::MissingTemporalConfig => {
            told(Cause::Spec, "its spec lacks settings of its Temporal workflow")
        }
        Reason::MissingAgent => told(Cause::Create(Referred::Agent), "its Agent does not exist"),
        Reason::MissingProvider => told(
            Cause::Create(Referred::AgentProvider),
            "the AgentProvider of its Agent does not exist",
        ),
        Reason::MissingProviderRef => told(Cause::Mend(Referred::Agent), "its Agent names no AgentProvider"),
        Reason::MissingMemory => told(Cause::Create(Referred::Memory), "its Memory does not exist"),
        Reason::MissingImplementation => told(
            Cause::Create(Referred::ImplementationSpec),
            "its ImplementationSpec does not exist",
        ),
        Reason::UnreadableReference => told(
            Cause::Describe,
            "something it refers to cannot be read by this version",
        ),
        Reason::MissingWorkloadImage => {
            told(Cause::Spec, "neither its workload nor the settings name an image")
        }
        Reason::MissingRequiredLabels => told(Cause::Policy, "it lacks labels that the settings require"),
        Reason::MissingRequiredMetadata => {
            told(Cause::Spec, "it lacks values that its implementation requires")
        }
        Reason::ParametersTooLarge => told(Cause::Spec, "its parameters are too many or too large"),
        Reason::ParameterNotString => told(Cause::Spec, "one of its parameters is not a string"),
        Reason::ParameterValueTooLarge => told(Cause::Spec, "one of its parameters is too large"),
        Reason::LabelBlocked => told(Cause::Policy, "the settings block one of its labels"),
        Reason::LabelNotAllowed => told(Cause::Policy, "the settings do not allow one of its labels"),
        Reason::ImageBlocked => told(Cause::Policy, "the settings block its image"),
        Reason::ImageNotAllowed => told(Cause::Policy, "the settings do not allow its image"),
        Reason::SecretBlocked => told(Cause::Policy, "the settings block one of its Secrets"),
        Reason::SecretNotAllowed => told(
            Cause::Policy,
            "its Agent or the settings do not allow one of its Secrets",
        ),
        Reason::ServiceAccountNotAllowed => told(
            Cause::Policy,
            "its Agent or the settings do not allow its service account",
        ),
        Reason::PriorityClassNotAllowed => {
            told(Cause::Policy, "the settings keep its priority class from runs")
        }
        Reason::PodSecurityNotAllowed => told(
            Cause::Policy,
            "its security context is looser than the settings allow",
        ),
        Reason::InvalidContract => told(
            Cause::Mend(Referred::ImplementationSpec),
            "the contract of its implementation is wrong",
        ),
        Reason::InvalidSystemPrompt => told(Cause::Spec, "its system prompt is wrong"),
        Reason::InvalidSystemPromptRef => told(Cause::Spec, "its reference to a system prompt is wrong"),
        Reason::MissingSystemPromptRef => told(
            Cause::Create(Referred::SystemPrompt),
            "the Secret or ConfigMap with its system prompt does not exist",
        ),
        Reason::SystemPromptTooLong => told(Cause::Spec, "its system prompt is too long"),

        // What a run waits for.
        Reason::ConcurrencyLimit => told(Cause::Slots, "every slot that it could have is taken"),
        Reason::QueueLimit => told(Cause::Places, "the queue is full"),
        Reason::RateLimit => told(Cause::Rate, "as many runs have started lately as may"),
        Reason::Duplicate => told(
            Cause::Duplicate,
            "another run of its Agent has the same idempotency key",
        ),
        Reason::RetryBackoff => told(Cause::Time, "its next attempt has its time"),

        // Version control.
        Reason::VcsProvidersDisabled => {
            told(Cause::Policy, "version control is switched off in the settings")
        }
        Reason::VcsDisabled => told(Cause::Forge, "version control is switched off for it"),
        Reason::VcsUnavailable => told(Cause::Forge, "its repository cannot be had"),
        Reason::VcsPolicyDenied => told(Cause::Policy, "a policy keeps it from its repository"),
        Reason::VcsCapabilityDenied => told(
            Cause::Forge,
            "its VersionControlProvider does not allow what it wants to do",
        ),
        Reason::VcsAuthUnavailable => told(
            Cause::Forge,
            "the credentials for its repository cannot be had at the moment",
        ),
        Reason::MissingVcsProvider => told(
            Cause::Create(Referred::VersionControlProvider),
            "its VersionControlProvider does not exist",
        ),
        Reason::MissingVcsAuth => told(
            Cause::Mend(Referred::VersionControlProvider),
            "its VersionControlProvider names no credentials",
        ),
        Reason::MissingRepository => told(Cause::Spec, "it names no repository"),
        Reason::UnsupportedVcsAuth => told(
            Cause::Mend(Referred::VersionControlProvider),
            "its VersionControlProvider names a way to log in that its forge does not have",
        ),
        Reason::InvalidBranch => told(Cause::Spec, "its branch has a name that git does not take"),
        Reason::NothingChanged => told(Cause::Work, "it made no commit"),
        Reason::PushRejected => told(Cause::Forge, "the forge did not take its commits"),
        Reason::PushFailed => told(Cause::Forge, "its commits could not be sent to the forge"),
        Reason::BranchMissing => told(Cause::Forge, "its branch is not at the forge"),
        Reason::PullRequestMissing => told(Cause::Forge, "its pull request is not at the forge"),
        Reason::DeliveryUnknown => told(
            Cause::Forge,
            "the forge could not be asked whether its work arrived",
        ),

        // Artifacts.
        Reason::TooManyArtifacts => told(Cause::Work, "it left more artifacts than may be"),
        Reason::UrlTooLong => told(Cause::Work, "the address of one of its artifacts is too long"),
        Reason::InlineUrlDisallowed => told(
            Cause::Work,
            "one of its artifacts carries its data in its address",
        ),
        Reason::MissingName => told(Cause::Work, "one of its artifacts has no name"),

        // Agents, providers, specs, sources, memories.
        Reason::MissingBinary => told(
            Cause::Mend(Referred::AgentProvider),
            "the AgentProvider of its Agent names no program",
        ),
        Reason::MissingText => told(
            Cause::Mend(Referred::ImplementationSpec),
            "its ImplementationSpec has no text",
        ),
        Reason::TextTooLarge => told(
            Cause::Mend(Referred::ImplementationSpec),
            "the text of its ImplementationSpec is too large",
        ),
        Reason::SummaryTooLong => told(
            Cause::Mend(Referred::ImplementationSpec),
            "the summary of its ImplementationSpec is too long",
        ),
        Reason::DescriptionTooLarge => told(
            Cause::Mend(Referred::ImplementationSpec),
            "the description of its ImplementationSpec is too large",
        ),
        Reason::AcceptanceCriteriaTooLong => told(
            Cause::Mend(Referred::ImplementationSpec),
            "its ImplementationSpec has too many acceptance criteria",
        ),
        Reason::MissingType => told(Cause::Describe, "something it refers to has no type"),
        Reason::MissingSecretRef => told(
            Cause::Mend(Referred::VersionControlProvider),
            "its VersionControlProvider names no Secret",
        ),
        Reason::MissingAppAuth => told(
            Cause::Mend(Referred::VersionControlProvider),
            "its VersionControlProvider lacks settings of its GitHub App",
        ),
        Reason::SecretNotFound => told(
            Cause::Create(Referred::Secret),
            "a Secret that it needs does not exist",
        ),
        Reason::SecretKeyMissing => told(
            Cause::Mend(Referred::Secret),
            "a Secret that it needs lacks a key",
        ),
        Reason::ConfigMapNotFound => told(
            Cause::Create(Referred::ConfigMap),
            "a ConfigMap that it needs does not exist",
        ),
        Reason::ConfigMapKeyMissing => told(
            Cause::Mend(Referred::ConfigMap),
            "a ConfigMap that it needs lacks a key",
        ),
        Reason::UnsupportedProvider => told(
            Cause::Mend(Referred::VersionControlProvider),
            "its VersionControlProvider names a forge that this version does not know",
        ),
        Reason::UnsupportedAuth => told(
            Cause::Mend(Referred::VersionControlProvider),
            "its VersionControlProvider names a way to log in that this version does not know",
        ),
        Reason::DeprecatedAuth => told(
            Cause::Mend(Referred::VersionControlProvider),
            "its VersionControlProvider names a way to log in that its forge gives up",
        ),
        Reason::WebhookFailed => told(Cause::Describe, "a webhook delivery could not be processed"),
        Reason::WebhookRetryDropped => told(Cause::Describe, "a webhook delivery was given up"),
        Reason::InvalidPayload => told(Cause::Describe, "a webhook delivery has the wrong form"),

        // What is wrong with an orchestration.
        Reason::MissingOrchestration => told(
            Cause::Create(Referred::Orchestration),
            "its Orchestration does not exist",
        ),
        Reason::MissingOrchestrationRef => told(Cause::Spec, "its spec names no Orchestration"),
        Reason::MissingSteps => told(
            Cause::Mend(Referred::Orchestration),
            "its Orchestration has no steps",
        ),
        Reason::StepMissingName => told(
            Cause::Mend(Referred::Orchestration),
            "a step of its Orchestration has no name",
        ),
        Reason::StepMissingKind => told(
            Cause::Mend(Referred::Orchestration),
            "a step of its Orchestration has no kind",
        ),
        Reason::DuplicateStep => told(
            Cause::Mend(Referred::Orchestration),
            "two steps of its Orchestration have the same name",
        ),
        Reason::EntrypointMissing => told(
            Cause::Mend(Referred::Orchestration),
            "the entrypoint of its Orchestration is none of its steps",
        ),
        Reason::MissingDependency => told(
            Cause::Mend(Referred::Orchestration),
            "a step of its Orchestration depends on one that does not exist",
        ),
        Reason::InvalidDependency => told(
            Cause::Mend(Referred::Orchestration),
            "a step of its Orchestration depends on itself",
        ),
        Reason::DependencyCycle => told(
            Cause::Mend(Referred::Orchestration),
            "steps of its Orchestration depend on each other in a circle",
        ),
        Reason::InvalidStep => told(
            Cause::Mend(Referred::Orchestration),
            "a step of its Orchestration has a field of the wrong form",
        ),
        Reason::InvalidCondition => told(
            Cause::Mend(Referred::Orchestration),
            "the condition of a step cannot be evaluated",
        ),
        Reason::OrchestrationTooLarge => told(
            Cause::Mend(Referred::Orchestration),
            "its Orchestration has more steps than a run can hold",
        ),
        Reason::RecursionRefused => told(
            Cause::Mend(Referred::Orchestration),
            "its orchestrations run each other, or are nested too deeply",
        ),

        // How a step of an orchestration ended.
        Reason::StepFailed => told(Cause::Retry, "one of its steps failed"),
        Reason::StepTimedOut => told(
            Cause::Mend(Referred::Orchestration),
            "one of its steps took longer than it may",
        ),
        Reason::StepError => told(Cause::Retry, "one of its steps could not be carried out"),
        Reason::StepCancelled => told(Cause::Retry, "somebody cancelled one of its steps"),
        Reason::RetriesExhausted => told(Cause::Retry, "one of its steps failed in every attempt"),
        Reason::UnsupportedStep => told(
            Cause::Mend(Referred::Orchestration),
            "its Orchestration has a step of a kind that this version does not execute",
        ),
        Reason::ApprovalDenied => told(Cause::Denied, "somebody denied a gate"),
        Reason::AgentRunFailed => told(Cause::Retry, "the AgentRun of a step failed"),
        Reason::AgentRunMissing => told(
            Cause::Lost,
            "the AgentRun of a step is gone and nobody knows how it ended",
        ),
        Reason::ToolRunFailed => told(Cause::Retry, "the ToolRun of a step failed"),
        Reason::ToolRunMissing => told(
            Cause::Lost,
            "the ToolRun of a step is gone and nobody knows how it ended",
        ),
        Reason::SubOrchestrationFailed => told(Cause::Retry, "the OrchestrationRun of a step failed"),
        Reason::SubOrchestrationMissing => told(
            Cause::Lost,
            "the OrchestrationRun of a step is gone and nobody knows how it ended",
        ),
        Reason::DependencyFailed => told(Cause::Retry, "a step that it depends on failed"),
        Reason::DependencySkipped => told(Cause::Fine, "a step that it depends on was skipped"),
        Reason::DependencyCancelled => told(Cause::Retry, "a step that it depends on was cancelled"),
        Reason::ConditionFalse => told(Cause::Fine, "its condition is false"),
        Reason::RunStopping => told(Cause::Retry, "another step failed or the time of the run was up"),
        Reason::RunCancelled => told(Cause::Cancelled, "its run was cancelled"),
        Reason::ChildRejected => told(
            Cause::Mend(Referred::Orchestration),
            "the API server refused the run of a step",
        ),
        Reason::ChildForbidden => told(
            Cause::Rights,
            "the API server does not let the run of a step in, for want of a right or of room in a quota, or because of its own trouble",
        ),
        Reason::UnreadableDefinition => told(
            Cause::Unknown,
            "this version of the controllers cannot read the steps that it has kept",
        ),
        Reason::ApprovalPending => told(Cause::Approval, "a gate waits for an approval"),
        Reason::ApprovalExpired => told(Cause::Denied, "nobody decided about a gate in time"),
        Reason::MissingApprovalPolicy => told(
            Cause::Create(Referred::ApprovalPolicy),
            "the ApprovalPolicy of a gate does not exist",
        ),
        Reason::SignalPending => told(Cause::Signal, "a step waits for a signal"),

        // Cancel.
        Reason::CancelTimedOut => told(
            Cause::Survivors,
            "somebody asked for it, and not everything has stopped in time",
        ),
        Reason::AlreadySucceeded => told(
            Cause::Fine,
            "it had already succeeded when a cancel was asked for",
        ),
        Reason::AlreadyFailed => told(Cause::Fine, "it had already failed when a cancel was asked for"),
        Reason::CancelDisabled => told(
            Cause::CancelDisabled,
            "the settings do not allow runs to be cancelled",
        ),

        // Tools and signals.
        Reason::MissingTool => told(Cause::Create(Referred::Tool), "its Tool does not exist"),
        Reason::InvalidTool => told(
            Cause::Mend(Referred::Tool),
            "its Tool cannot be run as it is written",
        ),
        Reason::OutputsTooLarge => told(
            Cause::Work,
            "its outputs are larger than Kubernetes keeps of a termination message",
        ),
        Reason::InvalidOutputs => told(Cause::Work, "its outputs have the wrong form"),
        Reason::SignalMissing => told(Cause::Create(Referred::Signal), "its Signal does not exist"),
    }
}
