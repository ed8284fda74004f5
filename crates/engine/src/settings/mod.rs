//! What an operator can choose: plain values with defaults, read from the environment.
//!
//! `table` has one row for each variable: its name, its meaning, what it is when unset, and how it is read. Reading,
//! the list of mistakes and the reference for people are all made from that table.

mod control_plane;
mod custom;
mod legal;
mod limit_table;
pub(crate) mod limits;
mod mistakes;
mod parse;
mod reader;
mod reference;
mod runner;
mod table;
mod temporal;
#[cfg(test)]
mod tests;
mod unread;
mod vcs;
mod webhooks;

use std::{collections::BTreeSet, time::Duration};

pub(crate) use self::legal::is_label_key;
pub use self::{
    control_plane::{ControlPlaneSettings, TlsFiles},
    custom::CustomSettings,
    limits::{ConcurrencyLimits, LimitSettings, QueueLimits, RateLimits, RepositoryLimits},
    mistakes::{Mistake, Mistakes, Wrong},
    parse::{Parsed, is_variable},
    reference::reference,
    runner::{AuthSecret, Install, JobController, NatsAuth, RunnerSettings},
    temporal::{DEFAULT_ADDRESS as DEFAULT_TEMPORAL_ADDRESS, TemporalSettings},
    vcs::{PullRequestRate, VcsSettings},
    webhooks::WebhookSettings,
};

/// All settings of the controllers and of the control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether agents and their runs are looked after at all.
    pub agents_enabled: bool,
    /// Whether orchestrations and their runs are looked after.
    pub orchestrations_enabled: bool,
    /// In which of the namespaces that are looked after they are.
    pub orchestration_namespaces: Namespaces,
    /// Which namespaces are looked after.
    pub namespaces: Namespaces,
    pub lease: LeaseSettings,
    pub runs: RunSettings,
    pub limits: LimitSettings,
    pub policy: PolicySettings,
    pub runner: RunnerSettings,
    pub custom: CustomSettings,
    pub temporal: TemporalSettings,
    pub vcs: VcsSettings,
    pub control_plane: ControlPlaneSettings,
    pub webhooks: WebhookSettings,
    pub safeguards: Safeguards,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            agents_enabled: true,
            orchestrations_enabled: true,
            orchestration_namespaces: Namespaces::All,
            namespaces: Namespaces::These(BTreeSet::from(["agents".to_owned()])),
            lease: LeaseSettings::default(),
            runs: RunSettings::default(),
            limits: LimitSettings::default(),
            policy: PolicySettings::default(),
            runner: RunnerSettings::default(),
            custom: CustomSettings::default(),
            temporal: TemporalSettings::default(),
            vcs: VcsSettings::default(),
            control_plane: ControlPlaneSettings::default(),
            webhooks: WebhookSettings::default(),
            safeguards: Safeguards::default(),
        }
    }
}

impl Settings {
    /// Whether orchestrations and their runs are looked after in a namespace.
    pub fn orchestrates(&self, namespace: &str) -> bool {
        self.orchestrations_enabled && self.orchestration_namespaces.contains(namespace)
    }
}

/// Which namespaces are looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// Every one, also those made later. Needs rights in the whole cluster.
    All,
    These(BTreeSet<String>),
}

impl Namespaces {
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.contains(namespace),
        }
    }
}

/// How the one process that writes is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Off, whoever starts writes at once: for a single process only.
    pub enabled: bool,
    pub name: String,
    pub namespace: String,
    /// How long others wait for a holder that is silent.
    pub duration: Duration,
    /// When a holder that cannot renew gives up.
    pub renew_deadline: Duration,
    /// How often it is renewed, and asked for.
    pub retry_period: Duration,
    /// The file that says whether this process is a canary, which leaves the lease to others for a while. It may change.
    pub role_file: Option<String>,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            name: jangar_api::labels::LEADER_LEASE.to_owned(),
            namespace: "agents".to_owned(),
            duration: Duration::from_secs(30),
            renew_deadline: Duration::from_secs(20),
            retry_period: Duration::from_secs(5),
            role_file: None,
        }
    }
}

/// The rules of a run's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSettings {
    /// How long a run waits for an object it refers to before it fails.
    pub reference_grace: Duration,
    /// How long finished runs are kept; absent, for good.
    pub retention: Option<Duration>,
    /// How many of those whose time has come are deleted in a minute, at most.
    pub deletions_per_minute: u32,
    /// Whether a run whose accepted spec was changed is stopped, or only warned about.
    pub immutability_enforced: bool,
    /// Whether runs are cancelled on request, or the request is only answered.
    pub cancel_enabled: bool,
    /// How long a cancel may take before it is reported as timed out.
    pub cancel_timeout: Duration,
    /// How many artifacts a status lists.
    pub artifacts_max: usize,
    /// Whether more artifacts than that, or bad ones, fail the run.
    pub artifacts_strict: bool,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            reference_grace: Duration::from_mins(1),
            retention: Some(Duration::from_hours(30 * 24)),
            deletions_per_minute: 300,
            immutability_enforced: true,
            cancel_enabled: true,
            cancel_timeout: Duration::from_mins(1),
            artifacts_max: 50,
            artifacts_strict: false,
        }
    }
}

/// What runs may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// Labels that every run must have, by key.
    pub labels_required: Vec<String>,
    /// Patterns of label keys, with `*`, that no run may have.
    pub labels_denied: Vec<String>,
    /// Patterns of label keys that a run may have; empty allows all.
    pub labels_allowed: Vec<String>,
    /// Patterns of images that no run may use.
    pub images_denied: Vec<String>,
    /// Patterns of images that a run may use; empty allows all.
    pub images_allowed: Vec<String>,
    /// Secrets that no run may use, by name.
    pub blocked_secrets: BTreeSet<String>,
    /// Service accounts that a run may choose, where its Agent allows them; empty allows those that the Agent names.
    pub service_accounts_allowed: Vec<String>,
    /// Priority classes that a run may choose; empty allows none.
    pub priority_classes_allowed: Vec<String>,
    /// Whether the security context that a run chooses for its pod has to keep to the Pod Security Standard `restricted`.
    pub pod_security_restricted: bool,
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            labels_required: Vec::new(),
            labels_denied: Vec::new(),
            labels_allowed: Vec::new(),
            images_denied: Vec::new(),
            images_allowed: Vec::new(),
            blocked_secrets: BTreeSet::new(),
            service_accounts_allowed: Vec::new(),
            priority_classes_allowed: Vec::new(),
            pod_security_restricted: true,
        }
    }
}

/// What keeps a step from being done twice, and what was cancelled from going on. No operator can choose these: the simulation
/// takes one away at a time, to show that it finds what the safeguard is for. Without the last one there is always much to do, so that
/// it plays what gives way to a crowd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Safeguards {
    /// An object is not planned again before the caches show what was written for it.
    pub barrier: bool,
    /// A Job that is already there is taken for the run's own only if it carries the run's UID and the hash of its spec.
    pub adoption_check: bool,
    /// A Job cannot vanish before its end is recorded.
    pub job_finalizer: bool,
    /// An endpoint is called only by the process that said it would.
    pub one_caller: bool,
    /// An OrchestrationRun that is being cancelled starts no step any more.
    pub cancel_closes: bool,
    /// An OrchestrationRun that was cancelled has waited until its children had stopped.
    pub cancel_waits: bool,
    /// Where there is little to do, nothing is put off.
    pub leisure: bool,
}

impl Default for Safeguards {
    fn default() -> Self {
        Self {
            barrier: true,
            adoption_check: true,
            job_finalizer: true,
            one_caller: true,
            cancel_closes: true,
            cancel_waits: true,
            leisure: true,
        }
    }
}
