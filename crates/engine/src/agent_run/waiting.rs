//! A Job whose pod has not ended: working, for too long or on a node that is silent, or not started, and then why.

use std::time::Duration;

use jangar_api::{agents::agent_run::AgentRunStatus, labels, reason::Reason};
use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ContainerStateWaiting, Pod},
};
use kube::ResourceExt;

use super::{
    NextStatus, Situation, follow, jobs,
    leftovers::{after, sooner},
    unreachable,
};
use crate::decision::{Decision, Plan, PodSight, Question, Rejection};

/// How long a pod may take to start before the run says what it waits for. A quick start costs no write this way.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an image or a configuration may be unavailable. Registries have their bad minutes.
const UNAVAILABLE_MAX: Duration = Duration::from_mins(5);

/// What a pod waits for that does not run.
struct Wait {
    since: Timestamp,
    cause: Cause,
    message: String,
}

/// Why a pod waits, and whether that can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// A place, a volume, or just its turn. Somebody or something will give it.
    NotReady,
    /// Something that is not there, and will not come by itself.
    Lacks(Need),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Image,
    Configuration,
}

impl Cause {
    const fn reason(self) -> Reason {
        match self {
            Self::NotReady => Reason::PodWaiting,
            Self::Lacks(Need::Image) => Reason::ImageUnavailable,
            Self::Lacks(Need::Configuration) => Reason::ConfigurationUnavailable,
        }
    }
}

/// The pod works, or does not start.
pub(super) fn plan(situation: &Situation<'_>, job: &Job, sight: &PodSight) -> Decision<AgentRunStatus> {
    let mut next = follow::recorded(situation, job);
    let attempt = &situation.attempt;
    let first = attempt.job.is_none() && attempt.current() == 1 && situation.task.is_first();
    let submitted = || situation.normal(Reason::Submitted, format!("Job {} was created", job.name_any()));
    let wake_at = match limit(situation, job, sight) {
        // What a cache shows may be old: it may have ended well long ago.
        Some(limit) if situation.now >= limit.at && matches!(sight, PodSight::Cached(_)) => {
            return Decision::look(Question::PodsOf(jobs::uid(job)));
        }
        Some(limit) if situation.now >= limit.at => {
            next.given_up(&limit.why);
            None
        }
        limit => {
            let look_again = match wait(situation, job, sight) {
                None => {
                    next.unblocked();
                    None
                }
                Some(wait) => tell(situation, &mut next, &wait),
            };
            sooner(look_again, limit.map(|limit| limit.at))
        }
    };
    Decision::Act(Plan {
        effects: Vec::new(),
        status: next.into_status(),
        notices: first.then(submitted).into_iter().collect(),
        wake_at,
    })
}

/// When an attempt is given up although its pod is there, and why.
struct Limit {
    at: Timestamp,
    why: Rejection,
}

/// The first of the limits that an attempt has.
fn limit(situation: &Situation<'_>, job: &Job, sight: &PodSight) -> Option<Limit> {
    let task = situation.task;
    let silent = sight.pods().iter().filter_map(|pod| {
        Some(Limit {
            at: unreachable::given_up_at(pod)?,
            why: task.says_why(unreachable::lost(pod)),
        })
    });
    let timeout = task.timeout().map(|timeout| {
        // Our own clock, where the Job has it: Kubernetes knows whole seconds only.
        let began = jobs::time_in(job, labels::ADMITTED_AT).or_else(|| jobs::created_at(job));
        let why = format!(
            "attempt {} took longer than the {} s of its timeoutSeconds: raise it, or give the step less to do",
            situation.attempt.current(),
            timeout.as_secs()
        );
        Limit {
            at: after(began.unwrap_or(situation.now), timeout),
            why: task.says_why(Rejection::new(Reason::WorkflowStepTimedOut, why)),
        }
    });
    silent.chain(timeout).min_by_key(|limit| limit.at)
}

/// Says what the pod waits for, once it is worth saying, and when to look again.
fn tell(situation: &Situation<'_>, next: &mut NextStatus<'_>, wait: &Wait) -> Option<Timestamp> {
    let patience = after(wait.since, PATIENCE);
    let end = after(wait.since, UNAVAILABLE_MAX);
    if situation.now < patience {
        return Some(patience);
    }
    match wait.cause {
        Cause::Lacks(_) if situation.now >= end => {
            // One public word for both ends; the message says what was missing.
            let why = Rejection::new(Reason::ImageUnavailable, &wait.message);
            next.given_up(&situation.task.says_why(why));
            None
        }
        Cause::Lacks(_) => {
            // A node alternates between two wordings of the same trouble; each change would be a write.
            if !next.is_blocked(&wait.cause.reason()) {
                next.blocked(&wait.cause.reason(), &wait.message);
            }
            Some(end)
        }
        Cause::NotReady => {
            next.blocked(&wait.cause.reason(), &wait.message);
            None
        }
    }
}

/// What the pod of a Job waits for, if it does.
fn wait(situation: &Situation<'_>, job: &Job, sight: &PodSight) -> Option<Wait> {
    let Some(pod) = sight.pods().first() else {
        let name = job.name_any();
        return Some(Wait {
            since: jobs::created_at(job).unwrap_or(situation.now),
            cause: Cause::NotReady,
            message: format!("Job {name} has no pod yet: kubectl describe job {name} shows why"),
        });
    };
    if !jobs::is_pending(pod) {
        return None;
    }
    let name = pod.name_any();
    let created = jobs::created_at(pod.as_ref()).unwrap_or(situation.now);
    let scheduled = jobs::pod_condition(pod, "PodScheduled");
    if let Some(refused) = scheduled.filter(|condition| condition.status == "False") {
        let words = refused
            .message
            .as_deref()
            .unwrap_or("the scheduler gives no reason");
        return Some(Wait {
            since: created,
            cause: Cause::NotReady,
            message: format!("pod {name} cannot be placed on a node: {words}"),
        });
    }
    // Its time on the node counts, not the one it waited for it.
    let since = scheduled
        .and_then(|condition| condition.last_transition_time.as_ref())
        .map_or(created, |time| time.0);
    let waiting = container_waiting(pod);
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    let words = waiting.and_then(|waiting| waiting.message.as_deref());
    let (cause, message) = match reason.and_then(|reason| Some((reason, need(reason)?))) {
        Some((reason, need)) => (
            Cause::Lacks(need),
            format!(
                "pod {name} cannot start ({reason}): {}; {}",
                words.unwrap_or("no more is known"),
                remedy(need)
            ),
        ),
        None => (
            Cause::NotReady,
            match words {
                Some(words) => format!("pod {name} is being started by its node: {words}"),
                None => format!(
                    "pod {name} is being started by its node: kubectl describe pod {name} shows what it waits for"
                ),
            },
        ),
    };
    Some(Wait {
        since,
        cause,
        message,
    })
}

/// Why the first container that waits does so; init containers come first.
fn container_waiting(pod: &Pod) -> Option<&ContainerStateWaiting> {
    let status = pod.status.as_ref()?;
    status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten())
        .find_map(|container| container.state.as_ref()?.waiting.as_ref())
}

/// What a pod lacks, by the reasons of a node for not starting a container that do not mend themselves.
fn need(reason: &str) -> Option<Need> {
    match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "ErrImageNeverPull"
        | "InvalidImageName"
        | "ImageInspectError"
        | "RegistryUnavailable" => Some(Need::Image),
        "CreateContainerConfigError" | "CreateContainerError" => Some(Need::Configuration),
        _ => None,
    }
}

const fn remedy(need: Need) -> &'static str {
    match need {
        Need::Image => "check spec.workload.image, and the Secrets that the image is pulled with",
        Need::Configuration => "check the Secrets, ConfigMaps and volumes that the run and its provider name",
    }
}
