//! How many runs may be under way, may wait, and may start in a while.

use std::{collections::BTreeMap, time::Duration};

/// The limits that the queue keeps. An absent one is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitSettings {
    pub concurrency: ConcurrencyLimits,
    pub queue: QueueLimits,
    pub rate: RateLimits,
}

/// How many runs may be under way at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConcurrencyLimits {
    pub agent: u32,
    /// Absent: repositories are not counted.
    pub repositories: Option<RepositoryLimits>,
    pub namespace: u32,
    pub cluster: u32,
}

impl Default for ConcurrencyLimits {
    fn default() -> Self {
        Self {
            agent: 5,
            repositories: None,
            namespace: 10,
            cluster: 100,
        }
    }
}

/// How many runs may be under way on one repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepositoryLimits {
    pub default: Option<u32>,
    /// By the name of the repository in lower case. One without a limit is exempt from the default.
    pub overrides: BTreeMap<String, Option<u32>>,
}

impl RepositoryLimits {
    /// The limit of a repository, given in lower case.
    pub fn of(&self, repository: &str) -> Option<u32> {
        match self.overrides.get(repository) {
            Some(limit) => *limit,
            None => self.default,
        }
    }
}

/// How many runs may wait before more are told that the queue is full. They start in their turn all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    pub namespace: Option<u32>,
    pub repository: Option<u32>,
    pub cluster: Option<u32>,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            namespace: Some(200),
            repository: Some(50),
            cluster: Some(1000),
        }
    }
}

/// How many runs may start within any window of this length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimits {
    pub window: Duration,
    pub namespace: Option<u32>,
    pub repository: Option<u32>,
    pub cluster: Option<u32>,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            window: Duration::from_mins(1),
            namespace: Some(120),
            repository: Some(30),
            cluster: Some(600),
        }
    }
}

/// The names of the variables, which messages repeat as what to change.
pub(crate) mod names {
    pub(crate) const CONCURRENCY_AGENT: &str = "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_AGENT";
    pub(crate) const CONCURRENCY_NAMESPACE: &str = "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_NAMESPACE";
    pub(crate) const CONCURRENCY_CLUSTER: &str = "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_CLUSTER";
    pub(crate) const REPO_ENABLED: &str = "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_ENABLED";
    pub(crate) const REPO_DEFAULT: &str = "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_DEFAULT";
    pub(crate) const REPO_OVERRIDES: &str = "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_OVERRIDES";
    pub(crate) const QUEUE_NAMESPACE: &str = "JANGAR_AGENTS_CONTROLLER_QUEUE_NAMESPACE";
    pub(crate) const QUEUE_REPO: &str = "JANGAR_AGENTS_CONTROLLER_QUEUE_REPO";
    pub(crate) const QUEUE_CLUSTER: &str = "JANGAR_AGENTS_CONTROLLER_QUEUE_CLUSTER";
    pub(crate) const RATE_WINDOW: &str = "JANGAR_AGENTS_CONTROLLER_RATE_WINDOW_SECONDS";
    pub(crate) const RATE_NAMESPACE: &str = "JANGAR_AGENTS_CONTROLLER_RATE_NAMESPACE";
    pub(crate) const RATE_REPO: &str = "JANGAR_AGENTS_CONTROLLER_RATE_REPO";
    pub(crate) const RATE_CLUSTER: &str = "JANGAR_AGENTS_CONTROLLER_RATE_CLUSTER";
}
