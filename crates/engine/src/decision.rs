//! What a decision is made of: what is known, what can be asked, what can be done.
//!
//! Every kind's `plan` has the same shape: `plan(&Observed, &Settings, now) -> Decision<Status>`. It either says what it
//! has to see first, or what is to be done. The caller carries a plan out, puts what it learned into the observation, and
//! asks again until there is nothing left to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jangar_api::{
    agents::{agent_run::AgentRun, version_control_provider::ForgeKind},
    orchestration::orchestration_run::OrchestrationRun,
    reason::Reason,
    signals::ConsumedBy,
    tools::ToolRun,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::{Job, JobStatus},
    core::v1::{ConfigMap, Pod, Secret},
};
use serde::Serialize;
use serde_json::Value;

use crate::{custom::call::Post, temporal};

/// Which object a decision is about. All it does and asks happens in that namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What tells an object from another one of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Uid(pub String);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One object, and no other that may take its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ObjectId {
    pub name: String,
    pub uid: Uid,
}

/// What is known of an object that another one refers to.
///
/// A cache can be late, so that an object is not in it proves nothing: only [`Sight::Absent`] does, which is the answer
/// of a live read.
#[derive(Debug)]
pub enum Sight<K> {
    Seen(Arc<K>),
    /// Not in the cache, and not asked for yet.
    Unseen,
    /// A live read found that there is none.
    Absent,
    /// It is there and cannot be read: it was stored under another schema than this version's. The words name the field.
    Illegible(String),
}

impl<K> Sight<K> {
    /// The object, if it is known.
    pub fn seen(&self) -> Option<&Arc<K>> {
        match self {
            Self::Seen(object) => Some(object),
            Self::Unseen | Self::Absent | Self::Illegible(_) => None,
        }
    }
}

impl<K> Clone for Sight<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Seen(object) => Self::Seen(Arc::clone(object)),
            Self::Unseen => Self::Unseen,
            Self::Absent => Self::Absent,
            Self::Illegible(words) => Self::Illegible(words.clone()),
        }
    }
}

/// What a decision has to see, read from the API server itself and not from a cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Question {
    /// The Agent of this name.
    Agent(String),
    /// The AgentProvider of this name.
    AgentProvider(String),
    /// The ImplementationSpec of this name.
    ImplementationSpec(String),
    /// The Memory of this name.
    Memory(String),
    /// The Orchestration of this name.
    Orchestration(String),
    /// The ApprovalPolicy of this name.
    ApprovalPolicy(String),
    /// The Signal of this name.
    Signal(String),
    /// The run of this kind and name, which may be the child of another one.
    Child(ChildKind, String),
    /// The VersionControlProvider of this name.
    VersionControlProvider(String),
    /// The Tool of this name.
    Tool(String),
    /// The Job of this name.
    Job(String),
    /// The pods that the Job of this UID controls.
    PodsOf(Uid),
    /// The keys of this Secret or ConfigMap.
    Keys(KeyHolder),
    /// What a forge has of the work of a run. It is not Kubernetes that is asked.
    Delivery(Box<DeliveryQuery>),
    /// Whether the run may start its next Job, which the queue answers.
    Slot {
        /// The Job that is about to be made; absent where none executes the run.
        job: Option<String>,
        /// The repository that it works on, in lower case, if it works on one.
        repository: Option<String>,
    },
}

/// What a forge is asked about the work of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DeliveryQuery {
    pub forge: ForgeKind,
    /// Address of its API.
    pub api: String,
    pub repository: String,
    /// The branch that the work started from; absent, how far it is ahead cannot be asked.
    pub base: Option<String>,
    pub head: String,
    /// The last commit that agent-runner pushed there.
    pub commit: String,
    /// The pull request that agent-runner opened for it.
    pub pull_request: Option<u64>,
    /// With what to ask.
    pub credentials: ApiCredentials,
}

/// With what the API of a forge is asked. Only names of Secrets stand in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ApiCredentials {
    Token {
        secret: String,
        key: String,
    },
    /// A GitHub App, which makes a token for the question.
    App {
        app_id: String,
        installation_id: String,
        secret: String,
        key: String,
    },
}

/// What a forge said about the work of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryAnswer {
    Found(Found),
    /// It could not be asked.
    Failed {
        /// The words of the forge, or about it.
        message: String,
        /// Whether it may be answered later.
        passing: bool,
        /// Until when the forge asks to be left alone.
        not_before: Option<Timestamp>,
    },
}

/// What a forge has of the work of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The last commit of the branch; absent if there is no such branch.
    pub commit: Option<String>,
    /// How many commits it is ahead, if that was asked.
    pub commits_ahead: Option<u32>,
    /// The open pull request for it, by number and address.
    pub pull_request: Option<(u64, String)>,
    /// The pull request with which the work was merged; asked only where none is open.
    pub merged: Option<(u64, String)>,
}

/// What holds values by key. These kinds are not watched: a cache would hold every Secret of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum KeyHolder {
    ConfigMap(String),
    Secret(String),
}

impl fmt::Display for KeyHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfigMap(name) => write!(f, "ConfigMap {name}"),
            Self::Secret(name) => write!(f, "Secret {name}"),
        }
    }
}

/// What a live read found of a [`KeyHolder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Its keys, each with the SHA-256 of its value in hexadecimal digits. The values themselves stay where they are.
    Of(BTreeMap<String, String>),
    Absent,
    /// We may not look. Whoever mounts it will see.
    Forbidden,
}

/// Something to be done to the world. The list is closed: whatever Jangar does to a cluster is one of these.
///
/// All but one are safe to repeat: creation is by a name that follows from the run, and everything else names the UID it is
/// meant for. A call of somebody's endpoint is not, so it comes after a status that says it is about to be made, and whoever
/// carries it out makes each only once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Effect {
    /// Creates the files of an attempt that are too large for the pod's own annotations. If there is one of that name
    /// already, it is left as it is; one that was not made for this run is observed.
    CreateConfigMap(Box<ConfigMap>),
    /// Creates the Job of an attempt. If there is one of that name already, nothing happens, and it is observed.
    CreateJob(Box<NewJob>),
    /// Deletes a Job in the foreground: its pods get their grace and go first.
    StopJob { job: ObjectId },
    /// Deletes a pod, with this many seconds of grace or with its own.
    DeletePod {
        pod: ObjectId,
        grace_seconds: Option<u32>,
    },
    /// Lets a Job go whose end is recorded: one patch sets how long it is kept and takes our finalizer away.
    ReleaseJob {
        job: ObjectId,
        /// All its finalizers as they were seen, with ours among them: the list must not have changed since.
        finalizers: Vec<String>,
        /// Absent: it is kept until somebody deletes it.
        ttl_seconds_after_finished: Option<u32>,
        /// What has to be written before that, if we look after the Job.
        #[serde(skip_serializing_if = "Option::is_none")]
        kept: Option<Box<Settlement>>,
    },
    /// Creates the pod of a Job that we look after. If there is one of that name already, nothing happens, and it is observed.
    CreatePod(Box<Pod>),
    /// Writes what became of the pod of a Job that we look after into the status of the Job.
    TellJob { job: ObjectId, status: Box<JobStatus> },
    /// Lets pods go of which their Job tells, or whose Job is gone.
    ReleasePods(Vec<HeldPod>),
    /// Deletes a run that has been kept for long enough, if it is still the version that was seen: somebody may have asked to
    /// keep it since.
    DeleteRun { run: ObjectId, version: String },
    /// Holds a run that has something outside of the cluster, or lets it go: its finalizers become these, if it is still the
    /// version that was seen.
    SetFinalizers {
        run: ObjectId,
        version: String,
        finalizers: Vec<String>,
    },
    /// Begins to call an endpoint. The answer comes later, as part of another observation.
    PostCustom(Box<Post>),
    /// Creates the run that does the work of a step. If there is one of that name already, nothing happens, and it is observed.
    CreateChild(Box<NewChild>),
    /// Asks a run to stop, and says until when its parent waits for that.
    CancelChild {
        child: ChildId,
        reason: String,
        deadline: Option<Timestamp>,
    },
    /// Lets a run go whose end its parent has recorded: takes our finalizer away.
    ReleaseChild {
        child: ChildId,
        /// All its finalizers as they were seen, with ours among them: the list must not have changed since.
        finalizers: Vec<String>,
    },
    /// Says which step a delivery of a signal released, if nobody else has said so since it was looked at.
    ConsumeSignal {
        delivery: ObjectId,
        version: String,
        by: ConsumedBy,
    },
    /// Marks an OrchestrationRun that waits for an approval, or takes the mark away.
    MarkApproval { run: ObjectId, pending: bool },
    /// Sees to it that a Secret of the run holds a token of a GitHub App that is good for long enough. One that does already is
    /// left as it is. A token whose answer is lost is not found again, and ends by itself within the hour.
    MintToken(Box<NewToken>),
    /// Takes the token in a Secret back, and removes the Secret. The Secret says where the token is from.
    RevokeToken {
        secret: String,
        /// The run that the Secret has to belong to; absent if the run was deleted without what it owned.
        run: Option<Uid>,
    },
    /// Begins to call a Temporal server, unless the same call is under way. What comes of it is part of another observation.
    CallTemporal(Box<temporal::call::Call>),
}

impl Effect {
    /// Whether a run begins, goes on or ends by it. Nobody waits for the rest, which is no sign of a crowd.
    pub const fn is_awaited(&self) -> bool {
        match self {
            Self::CreateConfigMap(_)
            | Self::CreateJob(_)
            | Self::CreatePod(_)
            | Self::StopJob { .. }
            | Self::DeletePod { .. }
            | Self::PostCustom(_)
            | Self::CreateChild(_)
            | Self::CancelChild { .. }
            | Self::ConsumeSignal { .. }
            | Self::MarkApproval { .. }
            | Self::MintToken(_)
            | Self::CallTemporal(_) => true,
            Self::ReleaseJob { .. }
            | Self::TellJob { .. }
            | Self::ReleasePods(_)
            | Self::ReleaseChild { .. }
            | Self::DeleteRun { .. }
            | Self::SetFinalizers { .. }
            | Self::RevokeToken { .. } => false,
        }
    }

    /// What is let go by it, if it lets something go that has ended.
    pub const fn lets_go(&self) -> Option<&Uid> {
        match self {
            Self::ReleaseJob { job, .. } => Some(&job.uid),
            Self::ReleaseChild { child, .. } => Some(&child.id.uid),
            Self::CreateConfigMap(_)
            | Self::CreateJob(_)
            | Self::CreatePod(_)
            | Self::TellJob { .. }
            | Self::ReleasePods(_)
            | Self::StopJob { .. }
            | Self::DeletePod { .. }
            | Self::DeleteRun { .. }
            | Self::SetFinalizers { .. }
            | Self::PostCustom(_)
            | Self::CreateChild(_)
            | Self::CancelChild { .. }
            | Self::ConsumeSignal { .. }
            | Self::MarkApproval { .. }
            | Self::MintToken(_)
            | Self::RevokeToken { .. }
            | Self::CallTemporal(_) => None,
        }
    }
}

/// How long a write may take, whatever is left of the lease. The API server gives an admission webhook ten seconds unless
/// it is told otherwise; what takes longer than that and its own work is not going to come.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// What has to be written of a Job that we look after before it is let go.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settlement {
    /// How it ended, if it does not say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<JobStatus>,
    pub pods: Vec<HeldPod>,
}

/// A pod that our finalizer holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldPod {
    pub pod: ObjectId,
    /// All its finalizers as they were seen, with ours among them: the list must not have changed since.
    pub finalizers: Vec<String>,
}

/// The kinds of runs that can do the work of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ChildKind {
    AgentRun,
    ToolRun,
    OrchestrationRun,
}

impl fmt::Display for ChildKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One run that does the work of a step, and no other that may take its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChildId {
    pub kind: ChildKind,
    pub id: ObjectId,
    /// The run that it does the work of a step for.
    pub parent: Option<Uid>,
}

/// A run that is to be created.
#[expect(clippy::large_enum_variant, reason = "an effect holds it in a box")]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum NewChild {
    AgentRun(AgentRun),
    ToolRun(ToolRun),
    OrchestrationRun(OrchestrationRun),
}

/// A token of a GitHub App that is to be made for one repository.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewToken {
    /// The Secret that it goes to, without it.
    pub secret: Secret,
    /// Address of the forge's API.
    pub api: String,
    pub app_id: String,
    pub installation_id: String,
    /// The Secret with the App's private key, and the key in it.
    pub key_secret: String,
    pub key: String,
    pub repository: String,
    pub writes: bool,
    /// A token that lasts longer than this need not be replaced.
    pub good_until: Timestamp,
    /// The new one is used until then at the latest.
    pub used_until: Timestamp,
}

/// What became of the token that a plan asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSight {
    Ready {
        expires_at: Timestamp,
    },
    /// It could not be had; the words are the forge's, or about it, and do not change with the time.
    Failed {
        message: String,
        /// Until when the forge asks to be left alone.
        not_before: Option<Timestamp>,
    },
}

/// A Job that is to be created.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewJob {
    pub job: Job,
    /// Fields of the pod's spec as they were given, where they hold more than our types of Kubernetes know. They take the
    /// place of what stands in the Job.
    pub pod_fields: PodFields,
}

/// Fields of a pod's spec, by their names.
pub type PodFields = BTreeMap<&'static str, Value>;

impl From<Job> for NewJob {
    fn from(job: Job) -> Self {
        Self {
            job,
            pod_fields: PodFields::new(),
        }
    }
}

/// What an Event tells those who watch an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Notice {
    /// The object it is about. It may be gone, but it is the one that people ask about.
    pub regarding: Uid,
    pub severity: Severity,
    pub reason: Reason,
    pub message: String,
}

/// How much an Event deserves attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Severity {
    Normal,
    Warning,
}

/// What is to be done about one object.
///
/// Effects come first and in this order; then the status is written, once; the notices go out when there is nothing else left
/// to do. A plan that does nothing is complete: the object is looked at again when something changes, or at `wake_at`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan<S> {
    pub effects: Vec<Effect>,
    /// The whole status as it should be; absent if it is that already.
    pub status: Option<S>,
    pub notices: Vec<Notice>,
    /// When to look again although nothing happened.
    pub wake_at: Option<Timestamp>,
    /// The status tells nothing but how the work goes, so that it gives way to a crowd.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gives_way: bool,
}

impl<S> Plan<S> {
    /// Nothing to do.
    pub const fn nothing() -> Self {
        Self {
            effects: Vec::new(),
            status: None,
            notices: Vec::new(),
            wake_at: None,
            gives_way: false,
        }
    }

    /// Whether carrying the plan out changes nothing.
    pub fn is_idle(&self) -> bool {
        self.effects.is_empty() && self.status.is_none()
    }
}

/// What a decision comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Decision<S> {
    /// It cannot be made before these are answered.
    Look(BTreeSet<Question>),
    Act(Plan<S>),
}

impl<S> Decision<S> {
    /// Asks for one thing.
    pub fn look(question: Question) -> Self {
        Self::Look(BTreeSet::from([question]))
    }

    /// The same with another status, if one is to be written.
    #[must_use]
    pub fn map_status(self, change: impl FnOnce(S) -> S) -> Self {
        match self {
            Self::Act(plan) => Self::Act(Plan {
                status: plan.status.map(change),
                ..plan
            }),
            look @ Self::Look(_) => look,
        }
    }
}

/// A write that the API server refused, with its own words. It would refuse a repetition as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// HTTP status: 400, 413 and 422 mean that the object is wrong, 403 that we may not, or that a quota is used up.
    pub code: u16,
    pub message: String,
}

impl Refusal {
    /// Whether it may be taken another time: a right, a quota, a name that is taken, or a trouble that lasts.
    pub const fn may_pass(&self) -> bool {
        matches!(self.code, 403 | 409 | 429 | 500..)
    }
}

/// An object that has the name of one that was to be created, and was not made for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Occupant {
    pub name: String,
    /// What it belongs to; absent if to nothing.
    pub owner: Option<Owner>,
}

/// What an object belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    pub kind: String,
    pub name: String,
}

/// Why an object as it was written can never work: what a condition says about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rejection {
    pub reason: Reason,
    /// Names the field, the value and the remedy.
    pub message: String,
}

impl Rejection {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// The pods that one Job controls, and how they are known.
#[derive(Clone, Debug)]
pub enum PodSight {
    /// As a cache has them: what is there exists, what is not there may.
    Cached(Vec<Arc<Pod>>),
    /// As a live read listed them: what is not there does not exist.
    Live(Vec<Arc<Pod>>),
}

impl PodSight {
    /// The pods, however they are known.
    pub fn pods(&self) -> &[Arc<Pod>] {
        match self {
            Self::Cached(pods) | Self::Live(pods) => pods,
        }
    }
}
