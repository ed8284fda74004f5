//! The labels of the metrics. Every value comes from a closed list or from the name of a kind, so that the number of
//! time series has a bound whatever is in the cluster.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

use jangar_api::{phase::RunPhase, reason::Reason};
use jangar_engine::{
    decision::{Effect, Question},
    queue::Told,
};
use kube::Resource;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// Defines an enum together with the words that its variants have as values of a label.
macro_rules! label_values {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant),+
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
                encoder.write_str(match self { $(Self::$variant => $text),+ })
            }
        }
    };
}

label_values! {
    /// How a pass over one object ended.
    ReconcileResult {
        /// There is nothing left to do before something changes or a time comes.
        Settled = "settled",
        /// There is more to do, after others had their turn.
        Busy = "busy",
        /// Something went wrong that another attempt may get right.
        Retried = "retried",
        /// The lease was lost on the way.
        Cancelled = "cancelled",
    }
}

label_values! {
    /// What a watch delivered.
    WatchEvent {
        /// An object as a list showed it, at the start or after a break.
        Listed = "listed",
        Applied = "applied",
        Deleted = "deleted",
        /// An object that this version cannot read, and leaves alone.
        Unreadable = "unreadable",
        /// The watch broke, and is begun again.
        Failed = "failed",
    }
}

label_values! {
    /// What a request asks of the API server.
    Verb {
        Get = "get",
        List = "list",
        Create = "create",
        Update = "update",
        Patch = "patch",
        Delete = "delete",
    }
}

label_values! {
    /// What became of a request.
    RequestResult {
        Done = "done",
        NotFound = "not_found",
        /// The object has changed, or there is one of that name.
        Conflict = "conflict",
        /// The caller may not, or a quota is used up.
        Forbidden = "forbidden",
        /// The request itself is wrong.
        Rejected = "rejected",
        /// Too many requests.
        Throttled = "throttled",
        ServerError = "server_error",
        /// No answer that could be read.
        Unreachable = "unreachable",
        TimedOut = "timed_out",
        /// Not sent, for want of the lease.
        NotLeading = "not_leading",
    }
}

impl RequestResult {
    /// What became of a request that was answered, or not, in time.
    pub fn of<T>(result: &kube::Result<T>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(error) => Self::from(error),
        }
    }
}

impl From<&kube::Error> for RequestResult {
    fn from(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => match status.code {
                404 => Self::NotFound,
                409 => Self::Conflict,
                401 | 403 => Self::Forbidden,
                429 => Self::Throttled,
                400..=499 => Self::Rejected,
                _ => Self::ServerError,
            },
            _ => Self::Unreachable,
        }
    }
}

label_values! {
    /// What an effect does to the world.
    EffectKind {
        CreateConfigMap = "create_config_map",
        CreateJob = "create_job",
        CreatePod = "create_pod",
        TellJob = "tell_job",
        ReleasePods = "release_pods",
        StopJob = "stop_job",
        DeletePod = "delete_pod",
        ReleaseJob = "release_job",
        DeleteRun = "delete_run",
        SetFinalizers = "set_finalizers",
        PostCustom = "post_custom",
        MintToken = "mint_token",
        RevokeToken = "revoke_token",
        CallTemporal = "call_temporal",
        CreateChild = "create_child",
        CancelChild = "cancel_child",
        ReleaseChild = "release_child",
        ConsumeSignal = "consume_signal",
        MarkApproval = "mark_approval",
    }
}

impl From<&Effect> for EffectKind {
    fn from(effect: &Effect) -> Self {
        match effect {
            Effect::CreateConfigMap(_) => Self::CreateConfigMap,
            Effect::CreateJob(_) => Self::CreateJob,
            Effect::CreatePod(_) => Self::CreatePod,
            Effect::TellJob { .. } => Self::TellJob,
            Effect::ReleasePods(_) => Self::ReleasePods,
            Effect::StopJob { .. } => Self::StopJob,
            Effect::DeletePod { .. } => Self::DeletePod,
            Effect::ReleaseJob { .. } => Self::ReleaseJob,
            Effect::DeleteRun { .. } => Self::DeleteRun,
            Effect::SetFinalizers { .. } => Self::SetFinalizers,
            Effect::PostCustom(_) => Self::PostCustom,
            Effect::MintToken(_) => Self::MintToken,
            Effect::RevokeToken { .. } => Self::RevokeToken,
            Effect::CallTemporal(_) => Self::CallTemporal,
            Effect::CreateChild(_) => Self::CreateChild,
            Effect::CancelChild { .. } => Self::CancelChild,
            Effect::ReleaseChild { .. } => Self::ReleaseChild,
            Effect::ConsumeSignal { .. } => Self::ConsumeSignal,
            Effect::MarkApproval { .. } => Self::MarkApproval,
        }
    }
}

label_values! {
    /// What a canary says of an object that the leader looks after.
    CanaryOutcome {
        /// It would leave the object as it is.
        Same = "same",
        /// It would do something, but not for long enough to count.
        Recent = "recent",
        /// It would do what the leader does not.
        Differs = "differs",
        /// Whether it may start is the leader's to say.
        AsksForSlot = "asks_for_slot",
        /// What would be done cannot be compared.
        LeftToLeader = "left_to_leader",
        /// This version cannot plan it.
        Unplannable = "unplannable",
        /// Something could not be read this time.
        Unread = "unread",
    }
}

label_values! {
    /// What became of the report of an endpoint.
    CallbackResult {
        Recorded = "recorded",
        /// The run had ended otherwise, or is gone.
        TooLate = "too_late",
        /// The endpoint was asked to send it again.
        Later = "later",
        NotLeading = "not_leading",
        /// What was sent is no report.
        Illegible = "illegible",
        /// Without a token that is good for the run.
        Unauthorized = "unauthorized",
    }
}

label_values! {
    /// How carrying out an effect ended.
    EffectResult {
        Done = "done",
        /// It had been done before: the object exists already, or is gone already.
        Already = "already",
        /// The API server would refuse a repetition as well.
        Refused = "refused",
        /// Another attempt may get it right.
        Failed = "failed",
    }
}

label_values! {
    /// What becomes of a run whose time has come.
    DeletionResult {
        Begun = "begun",
        /// Too many were deleted in the last minute: it has a later turn.
        PutOff = "put_off",
    }
}

label_values! {
    /// What became of a run that was to be written into history.
    ArchiveResult {
        Written = "written",
        Failed = "failed",
        /// History will not have it, however often it is tried.
        Refused = "refused",
        /// Too many wait already; it is offered again later.
        Overflow = "overflow",
        /// It was deleted before it could be written.
        GivenUp = "given_up",
    }
}

label_values! {
    /// What became of the end of a log that was to be written into history.
    LogTailResult {
        Written = "written",
        /// It was there before.
        Already = "already",
        /// There was no log to read.
        Missing = "missing",
        Failed = "failed",
        /// It was tried too often.
        GivenUp = "given_up",
        /// Too many wait already; it is offered again later.
        Overflow = "overflow",
    }
}

label_values! {
    /// What is kept after its end.
    Kept {
        Job = "job",
        Logs = "logs",
        Run = "run",
    }
}

label_values! {
    /// What was read from the API server itself because a cache proves no absence.
    QuestionKind {
        Agent = "agent",
        AgentProvider = "agent_provider",
        ImplementationSpec = "implementation_spec",
        Memory = "memory",
        VersionControlProvider = "version_control_provider",
        Tool = "tool",
        Orchestration = "orchestration",
        ApprovalPolicy = "approval_policy",
        Signal = "signal",
        Child = "child",
        Job = "job",
        PodsOf = "pods_of",
        Keys = "keys",
        Slot = "slot",
        Delivery = "delivery",
    }
}

impl From<&Question> for QuestionKind {
    fn from(question: &Question) -> Self {
        match question {
            Question::Agent(_) => Self::Agent,
            Question::AgentProvider(_) => Self::AgentProvider,
            Question::ImplementationSpec(_) => Self::ImplementationSpec,
            Question::Memory(_) => Self::Memory,
            Question::VersionControlProvider(_) => Self::VersionControlProvider,
            Question::Tool(_) => Self::Tool,
            Question::Orchestration(_) => Self::Orchestration,
            Question::ApprovalPolicy(_) => Self::ApprovalPolicy,
            Question::Signal(_) => Self::Signal,
            Question::Child(..) => Self::Child,
            Question::Job(_) => Self::Job,
            Question::PodsOf(_) => Self::PodsOf,
            Question::Keys(_) => Self::Keys,
            Question::Slot { .. } => Self::Slot,
            Question::Delivery(_) => Self::Delivery,
        }
    }
}

label_values! {
    /// What a live read found.
    Answer {
        Found = "found",
        Absent = "absent",
        Failed = "failed",
    }
}

label_values! {
    /// The gate that a run waits at.
    QueueGate {
        Agent = "agent",
        Repository = "repository",
        Namespace = "namespace",
        Cluster = "cluster",
        /// Beyond the last place in the queue.
        Queue = "queue",
        /// Too many have started lately.
        Rate = "rate",
    }
}

impl From<Told> for QueueGate {
    fn from(told: Told) -> Self {
        match told {
            Told::Agent => Self::Agent,
            Told::Repository => Self::Repository,
            Told::Namespace => Self::Namespace,
            Told::Cluster => Self::Cluster,
            Told::Queue => Self::Queue,
            Told::Rate => Self::Rate,
        }
    }
}

label_values! {
    /// What became of an Event.
    EventResult {
        Published = "published",
        /// It had been told before.
        Repeated = "repeated",
        /// Before its turn came there was something newer to tell.
        Superseded = "superseded",
        Dropped = "dropped",
    }
}

label_values! {
    /// What became of an attempt to renew the lease.
    RenewalResult {
        Renewed = "renewed",
        Failed = "failed",
        TimedOut = "timed_out",
        /// Somebody else holds it, or it is gone.
        Lost = "lost",
    }
}

label_values! {
    /// Why the gate did not let a write through to its end.
    WriteStop {
        /// It was not sent.
        NotLeading = "not_leading",
        /// It was cut off.
        TimedOut = "timed_out",
    }
}

label_values! {
    /// What a process has become.
    Role {
        Leader = "leader",
        Follower = "follower",
    }
}

/// The name of a kind of object. Only a type has one, so that no other text gets into a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKind(Cow<'static, str>);

impl ObjectKind {
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self(K::kind(&()))
    }
}

impl EncodeLabelValue for ObjectKind {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(&self.0)
    }
}

/// A phase or a reason. All words that this version does not know are one value: they come from stored objects, and there
/// may be any number of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Word(String);

impl Word {
    const UNKNOWN: &'static str = "Other";
}

impl From<&RunPhase> for Word {
    fn from(phase: &RunPhase) -> Self {
        let text = match phase {
            RunPhase::Other(_) => Self::UNKNOWN,
            known => known.as_str(),
        };
        Self(text.to_owned())
    }
}

impl From<&Reason> for Word {
    fn from(reason: &Reason) -> Self {
        let text = match reason {
            Reason::Other(_) => Self::UNKNOWN,
            known => known.as_str(),
        };
        Self(text.to_owned())
    }
}

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(&self.0)
    }
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct ControllerLabels {
    pub(super) controller: ObjectKind,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct ReconcileLabels {
    pub(super) controller: ObjectKind,
    pub(super) result: ReconcileResult,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct WatchLabels {
    pub(super) kind: ObjectKind,
    pub(super) event: WatchEvent,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct RequestLabels {
    pub(super) verb: Verb,
    pub(super) kind: ObjectKind,
    pub(super) result: RequestResult,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct EffectLabels {
    pub(super) effect: EffectKind,
    pub(super) result: EffectResult,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct QuestionLabels {
    pub(super) question: QuestionKind,
    pub(super) answer: Answer,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct GateLabels {
    pub(super) gate: QueueGate,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct ScopeLabels {
    pub(super) scope: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct EventLabels {
    pub(super) result: EventResult,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct CallbackLabels {
    pub(super) result: CallbackResult,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct RenewalLabels {
    pub(super) result: RenewalResult,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct WriteStopLabels {
    pub(super) cause: WriteStop,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct RoleLabels {
    pub(super) to: Role,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct RunLabels {
    pub(super) kind: ObjectKind,
    pub(super) phase: Word,
    pub(super) reason: Word,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct JobLabels {
    pub(super) phase: Word,
    pub(super) reason: Word,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct DeletionLabels {
    pub(super) result: DeletionResult,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct ArchiveLabels {
    pub(super) result: ArchiveResult,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct LogTailLabels {
    pub(super) result: LogTailResult,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct KeptLabels {
    pub(super) what: Kept,
}

#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(super) struct CanaryLabels {
    pub(super) controller: &'static str,
    pub(super) outcome: CanaryOutcome,
}
