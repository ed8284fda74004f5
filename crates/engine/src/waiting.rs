//! Why something waits, as a value: what holds it up, and what would release it.
//!
//! Conditions are written from it, and where a limit is reached `status.waiting` as well, which whoever explains a run reads, so
//! that all say the same. The sentence names the remedy; a test does what it says and sees the wait end.
//!
//! A sentence holds nothing that changes while the wait goes on. Positions and numbers in use do, all the time, and each
//! change would be a write: they belong to the value alone.

use std::{fmt, time::Duration};

use jangar_api::{
    agents::agent_run_status::{LimitScope, WaitingStatus},
    reason::Reason,
};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    decision::{Owner, Rejection},
    queue::Scope,
    settings::limits::names,
};

/// Why something waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    pub gate: Gate,
    /// When the wait is over whatever happens, one way or the other.
    pub until: Option<Timestamp>,
}

impl Waiting {
    pub const fn at(gate: Gate) -> Self {
        Self { gate, until: None }
    }

    #[must_use]
    pub fn until(self, until: Timestamp) -> Self {
        Self {
            until: Some(until),
            ..self
        }
    }

    pub fn reason(&self) -> Reason {
        self.gate.reason()
    }
}

/// What holds something up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Gate {
    /// Something that it refers to.
    Reference { why: Rejection, remedy: Remedy },
    /// Too many are under way.
    Concurrency(Full),
    /// Too many wait.
    Queue(Full),
    /// Too many have started lately.
    Rate { full: Full, window: Duration },
    /// A Job of an earlier object of the same name, which is going away.
    PreviousJob { job: String },
    /// The files of an earlier object of the same name, which are going away.
    PreviousFiles { config_map: String },
    /// A ConfigMap of somebody else has the name of the one with the files.
    FilesTaken {
        config_map: String,
        owner: Option<Owner>,
        retry: Duration,
    },
    /// The API server does not let the Job in at the moment: a quota, a right, or a trouble of its own that lasts.
    Forbidden {
        /// The Job of the run, or its pod where we make it.
        what: &'static str,
        words: String,
        retry: Duration,
    },
    /// The Job has no pod.
    NoPod { job: String },
    /// The scheduler finds no node.
    Unscheduled { pod: String, words: Option<String> },
    /// The node is at it.
    Starting { pod: String, words: Option<String> },
    /// The image cannot be had.
    Image {
        pod: String,
        cause: String,
        words: Option<String>,
        image: Option<String>,
        /// The field or the setting that names it.
        field: &'static str,
    },
    /// A Secret, a ConfigMap or a volume cannot be had, or the container cannot be made as it is described.
    Configuration {
        pod: String,
        cause: String,
        words: Option<String>,
        /// Who names it.
        named_by: &'static str,
    },
    /// The endpoint that is to do the work did not take it.
    Endpoint {
        endpoint: String,
        words: String,
        due: Timestamp,
    },
    /// An attempt failed, and the next one has its time.
    Retry { attempt: u32, due: Timestamp },
}

/// A limit that is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Full {
    pub scope: Scope,
    pub in_use: u32,
    pub limit: u32,
}

/// What ends the wait for an object that is referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Remedy {
    Create,
    Mend,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create it",
            Self::Mend => "mend it",
        })
    }
}

impl Gate {
    /// One word for it, which scripts may match.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Reference { why, .. } => why.reason.clone(),
            Self::Concurrency(_) => Reason::ConcurrencyLimit,
            Self::Queue(_) => Reason::QueueLimit,
            Self::Rate { .. } => Reason::RateLimit,
            Self::PreviousJob { .. } => Reason::PreviousJobTerminating,
            Self::PreviousFiles { .. } | Self::FilesTaken { .. } => Reason::NameTaken,
            Self::Forbidden { .. } => Reason::JobForbidden,
            Self::NoPod { .. } | Self::Unscheduled { .. } | Self::Starting { .. } => Reason::PodWaiting,
            Self::Image { .. } => Reason::ImageUnavailable,
            Self::Configuration { .. } => Reason::ConfigurationUnavailable,
            Self::Endpoint { .. } => Reason::EndpointUnavailable,
            Self::Retry { .. } => Reason::RetryBackoff,
        }
    }

    /// What is counted, where there is a limit.
    pub const fn scope(&self) -> Option<&Scope> {
        match self {
            Self::Concurrency(full) | Self::Queue(full) | Self::Rate { full, .. } => Some(&full.scope),
            _ => None,
        }
    }
}

/// The variable that sets how many may be under way.
const fn concurrency_variable(scope: &Scope) -> &'static str {
    match scope {
        Scope::Agent { .. } => names::CONCURRENCY_AGENT,
        Scope::Repository(_) => names::REPO_OVERRIDES,
        Scope::Namespace(_) => names::CONCURRENCY_NAMESPACE,
        Scope::Cluster => names::CONCURRENCY_CLUSTER,
    }
}

/// The variable that sets how many may wait. Agents have no such limit.
const fn queue_variable(scope: &Scope) -> &'static str {
    match scope {
        Scope::Repository(_) => names::QUEUE_REPO,
        Scope::Namespace(_) => names::QUEUE_NAMESPACE,
        Scope::Agent { .. } | Scope::Cluster => names::QUEUE_CLUSTER,
    }
}

/// The variable that sets how many may start within the window. Agents have no such limit.
const fn rate_variable(scope: &Scope) -> &'static str {
    match scope {
        Scope::Repository(_) => names::RATE_REPO,
        Scope::Namespace(_) => names::RATE_NAMESPACE,
        Scope::Agent { .. } | Scope::Cluster => names::RATE_CLUSTER,
    }
}

/// The limit that holds a run up, as its status has it for programs; `repository` is the one whose slot the run would take.
pub(crate) fn limit_status(gate: &Gate, repository: Option<String>) -> Option<WaitingStatus> {
    let (Gate::Concurrency(full) | Gate::Queue(full) | Gate::Rate { full, .. }) = gate else {
        return None;
    };
    let (scope, name) = match &full.scope {
        Scope::Agent { name, .. } => (LimitScope::Agent, Some(name.clone())),
        Scope::Repository(name) => (LimitScope::Repository, Some(name.clone())),
        Scope::Namespace(name) => (LimitScope::Namespace, Some(name.clone())),
        Scope::Cluster => (LimitScope::Cluster, None),
    };
    Some(WaitingStatus {
        scope,
        name,
        limit: i32::try_from(full.limit).unwrap_or(i32::MAX).into(),
        repository,
    })
}

/// What is counted by the limit that holds up a run of this namespace.
pub(crate) fn scope_told(told: &WaitingStatus, namespace: &str) -> Option<Scope> {
    match (&told.scope, &told.name) {
        (LimitScope::Agent, Some(name)) => Some(Scope::Agent {
            namespace: namespace.to_owned(),
            name: name.clone(),
        }),
        (LimitScope::Repository, Some(name)) => Some(Scope::Repository(name.clone())),
        (LimitScope::Namespace, Some(name)) => Some(Scope::Namespace(name.clone())),
        (LimitScope::Cluster, _) => Some(Scope::Cluster),
        (LimitScope::Agent | LimitScope::Repository | LimitScope::Namespace, None)
        | (LimitScope::Other(_), _) => None,
    }
}

/// The sentence: what holds it up, and what would release it.
impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.gate, self.until) {
            (Gate::Reference { why, remedy }, Some(deadline)) => {
                write!(f, "{}: {remedy} before {deadline}, or the run fails", why.message)
            }
            (gate, _) => gate.fmt(f),
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reference { why, remedy } => write!(f, "{}: {remedy}", why.message),
            Self::Concurrency(Full { scope, limit, .. }) => write!(
                f,
                "as many runs of {scope} are under way as may be at once, which is {limit}: the run starts in its turn when one \
                 of them has ended; cancel one, or raise {}",
                concurrency_variable(scope)
            ),
            Self::Queue(Full { scope, limit, .. }) => write!(
                f,
                "as many runs of {scope} wait as the queue has places, which is {limit}: the run gets a place when one of them \
                 has started, and starts in its turn; cancel runs that wait and are not needed, or raise {}",
                queue_variable(scope)
            ),
            Self::Rate { full, window } => write!(
                f,
                "as many runs of {} have started within {} s as may, which is {}: the run starts in its turn when that time has \
                 passed for one of them; wait, or raise {}",
                full.scope,
                window.as_secs(),
                full.limit,
                rate_variable(&full.scope)
            ),
            Self::PreviousJob { job } => write!(
                f,
                "Job {job} is still there and belongs to something else that is going away; the run starts when it has gone"
            ),
            Self::PreviousFiles { config_map } => write!(
                f,
                "ConfigMap {config_map} belongs to an earlier run of this name, and Kubernetes is removing it; the run starts \
                 when it has gone"
            ),
            Self::FilesTaken {
                config_map,
                owner,
                retry,
            } => {
                let whose = match owner {
                    Some(owner) => format!("belongs to {} {}", owner.kind, owner.name),
                    None => "does not belong to it".to_owned(),
                };
                write!(
                    f,
                    "the run needs a ConfigMap called {config_map} for its files, and there is one that {whose}: delete that \
                     ConfigMap, or submit the run under another name; it is looked for again every {} s",
                    retry.as_secs()
                )
            }
            Self::Forbidden { what, words, retry } => write!(
                f,
                "the API server does not let the {what} of the run in: {words}; it is tried again every {} s: give the right or the \
                 room in the quota, or mend the webhook, that it speaks of",
                retry.as_secs()
            ),
            Self::Endpoint { endpoint, words, due } => write!(
                f,
                "{endpoint} did not take the work: {words}; it is tried again at {due}: see that it can be reached, or cancel \
                 the run"
            ),
            Self::Retry { attempt, due } => {
                write!(f, "attempt {attempt} starts at {due}; wait, or cancel the run")
            }
            Self::NoPod { .. }
            | Self::Unscheduled { .. }
            | Self::Starting { .. }
            | Self::Image { .. }
            | Self::Configuration { .. } => self.about_pod(f),
        }
    }
}

impl Gate {
    /// The sentence of a Job whose pod does not start.
    fn about_pod(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = "no more is known";
        match self {
            Self::NoPod { job } => {
                write!(
                    f,
                    "Job {job} has no pod yet: kubectl describe job {job} shows why"
                )
            }
            Self::Unscheduled { pod, words } => write!(
                f,
                "pod {pod} cannot be placed on a node: {}",
                words.as_deref().unwrap_or("the scheduler gives no reason")
            ),
            Self::Starting {
                pod,
                words: Some(words),
            } => {
                write!(f, "pod {pod} is being started by its node: {words}")
            }
            Self::Starting { pod, words: None } => write!(
                f,
                "pod {pod} is being started by its node: kubectl describe pod {pod} shows what it waits for"
            ),
            Self::Image {
                pod,
                cause,
                words,
                image,
                field,
            } => write!(
                f,
                "pod {pod} cannot start ({cause}): {}; image {} cannot be had: check {field}, and the Secrets that the image is \
                 pulled with",
                words.as_deref().unwrap_or(unknown),
                image.as_deref().unwrap_or("of its container")
            ),
            Self::Configuration {
                pod,
                cause,
                words,
                named_by,
            } => write!(
                f,
                "pod {pod} cannot start ({cause}): {}; check the Secrets, ConfigMaps and volumes that {named_by} name",
                words.as_deref().unwrap_or(unknown)
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Lane;

    #[test]
    fn status_of_a_run_in_the_queue_tells_what_is_counted() {
        let lane = Lane {
            namespace: "agents".to_owned(),
            agent: "coder".to_owned(),
            repository: Some("a/b".to_owned()),
        };
        for scope in lane.scopes() {
            let full = Full {
                scope: scope.clone(),
                in_use: 1,
                limit: 1,
            };
            let window = Duration::from_mins(1);
            for gate in [
                Gate::Concurrency(full.clone()),
                Gate::Queue(full.clone()),
                Gate::Rate { full, window },
            ] {
                let told = limit_status(&gate, None).expect("a limit");
                assert_eq!(scope_told(&told, "agents"), Some(scope.clone()), "{told:?}");
            }
        }
        let job = "x".to_owned();
        assert_eq!(limit_status(&Gate::PreviousJob { job }, None), None);
    }
}
