//! A Job whose pod has not ended: working, for too long or on a node that is silent, or not started, and then why.

use std::time::Duration;

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    labels,
    reason::Reason,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ContainerStateWaiting, Pod},
};
use kube::ResourceExt;

use super::{
    NextStatus, Run, RunStatus, Situation, abort, follow, jobs,
    kept::{self, First},
    leftovers::{self, after, sooner},
    start::{FORBIDDEN_RETRY, waiting_since},
    unreachable, vanished,
};
use crate::{
    decision::{Decision, Effect, Plan, PodSight, Question, Rejection},
    job::INSTALL_CONTAINER,
    leisure::UNTOLD_MAX,
    plain_status::PlainStatus,
    waiting::{Gate, Waiting},
};

/// How long a new run may say nothing while its pod starts. A quick start costs no write this way, and a run whose pod waits says
/// in one write that it has a Job and what its pod lacks.
const SILENCE: Duration = Duration::from_secs(5);
/// How long a pod that has begun may work before its run says so, where there is much to do. One that ends within that costs no write for it. A node tells whole
/// seconds, so it is between two and three.
const BRIEF: Duration = Duration::from_secs(3);
/// How long a pod may take to start before a run that has told of its Job says what it waits for, and any run where there is much to do.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a run that waits keeps to its words. A scheduler words the same wait anew whenever something changes in the cluster,
/// for every pod that waits, and each would be a write.
const REWORDING: Duration = Duration::from_mins(1);
/// How long an image or a configuration may be unavailable. Registries have their bad minutes.
const UNAVAILABLE_MAX: Duration = Duration::from_mins(5);

/// What names the image of the container that brings agent-runner.
const INSTALL_IMAGE: &str = "JANGAR_IMAGE of the controllers";

/// What a pod waits for that does not run.
struct Wait {
    /// Since when it could have started.
    since: Timestamp,
    waiting: Waiting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Image,
    Configuration,
}

impl Wait {
    /// Whether it lacks something that is not there and will not come by itself. Otherwise it is a place, a volume, or just
    /// its turn: somebody or something will give it.
    const fn is_vain(&self) -> bool {
        matches!(self.waiting.gate, Gate::Image { .. } | Gate::Configuration { .. })
    }
}

/// The pod works, or does not start.
pub(crate) fn plan<R: Run>(situation: &Situation<'_, R>, job: &Job, sight: &PodSight) -> Decision<R::Status> {
    let limit = limit(situation, job, sight);
    if let Some(limit) = limit.as_ref().filter(|limit| situation.now >= limit.at) {
        return match sight {
            // What a cache shows may be old: it may have ended well long ago.
            PodSight::Cached(_) => Decision::look(Question::PodsOf(jobs::uid(job))),
            PodSight::Live(_) => give_up(situation, job, &limit.why),
        };
    }
    let limit = limit.map(|limit| limit.at);
    let (wait, retry) = if kept::is_kept(job) && sight.pods().is_empty() {
        match kept::first_pod(&situation.seen, job, sight) {
            First::Make(pod) => {
                return Decision::Act(Plan {
                    effects: vec![Effect::CreatePod(pod)],
                    wake_at: limit,
                    ..Plan::nothing()
                });
            }
            First::Unsure(question) => return Decision::look(question),
            First::Suspended => (wait(situation, job, sight), None),
            First::Lost => return vanished::pod_lost(situation, job),
            First::Rejected(why) => return give_up(situation, job, &situation.task.says_why(why)),
            First::Refused(waiting) => {
                let since = jobs::created_at(job).unwrap_or(situation.now);
                let retry = after(situation.now, FORBIDDEN_RETRY);
                (Some(Wait { since, waiting }), Some(retry))
            }
        }
    } else {
        (wait(situation, job, sight), None)
    };
    // Kubernetes writes nothing about such a Job that would tell of a pod which the caches do not show.
    let unwatched = leftovers::unwatched(sight, situation.now).filter(|_| kept::is_kept(job));
    let limit = sooner(sooner(limit, retry), unwatched);
    let silent_until = match wait {
        Some(_) => silent_until(situation, job),
        None => brief_until(situation, job, sight),
    };
    if let Some(patience) = silent_until.filter(|patience| situation.now < *patience) {
        return Decision::Act(Plan {
            wake_at: sooner(Some(patience), limit),
            ..Plan::nothing()
        });
    }
    let mut next = follow::recorded(situation, job);
    let look_again = match wait {
        None => {
            next.unblocked();
            None
        }
        Some(wait) => {
            let patience = silent_until.unwrap_or_else(|| after(wait.since, PATIENCE));
            tell(situation, &mut next, &wait, patience)
        }
    };
    let in_turn = in_turn_until(situation, job);
    let wake_at = sooner(sooner(look_again, limit), in_turn);
    let plan = act(situation, job, next, wake_at);
    // The Job tells it when its run tells something: that is no reason to write by itself.
    let active = kept::tell_active(job, sight).filter(|_| in_turn.is_none() && plan.status.is_some());
    Decision::Act(Plan {
        gives_way: in_turn.is_some(),
        effects: active.into_iter().collect(),
        ..plan
    })
}

fn act<R: Run>(
    situation: &Situation<'_, R>,
    job: &Job,
    next: NextStatus<'_, R>,
    wake_at: Option<Timestamp>,
) -> Plan<R::Status> {
    let submitted = || situation.normal(Reason::Submitted, format!("Job {} was created", job.name_any()));
    Plan {
        status: next.into_status(),
        notices: is_first(situation).then(submitted).into_iter().collect(),
        wake_at,
        ..Plan::nothing()
    }
}

/// The attempt is over, although its pod is there.
fn give_up<R: Run>(situation: &Situation<'_, R>, job: &Job, why: &Rejection) -> Decision<R::Status> {
    let mut next = follow::recorded(situation, job);
    next.given_up(why);
    Decision::Act(act(situation, job, next, None))
}

/// Whether the Job is the first of the run, and not recorded yet.
fn is_first<R: Run>(situation: &Situation<'_, R>) -> bool {
    let attempt = &situation.attempt;
    attempt.job.is_none() && attempt.current() == 1 && situation.task.is_first()
}

/// Until when a run need not say that it has a Job. The Job itself is the record that the run was let in, for as long as our
/// finalizer keeps it; most pods start soon, and then there is more to say. Only one of which nothing was told yet is silent.
fn silent_until<R: Run>(situation: &Situation<'_, R>, job: &Job) -> Option<Timestamp> {
    let made = jobs::time_in(job, labels::ADMITTED_AT).or_else(|| jobs::created_at(job))?;
    let silence = if situation.seen.busy { PATIENCE } else { SILENCE };
    let until = after(made, silence);
    // A clock that was set back would make it last.
    let soon = until <= after(situation.now, silence);
    (soon && is_untold(situation, job)).then_some(until)
}

/// Until when a run need not say that its pod has begun, because it may be over soon: one of which nothing was told, and one that says
/// what its pod waits for.
fn brief_until<R: Run>(situation: &Situation<'_, R>, job: &Job, sight: &PodSight) -> Option<Timestamp> {
    if !situation.seen.busy {
        return None;
    }
    let begun = sight
        .pods()
        .iter()
        .filter_map(|pod| began(pod, R::WORKER.container))
        .min()?;
    let until = after(begun, BRIEF);
    // The clock of a node may be ahead of ours.
    let soon = until <= after(situation.now, BRIEF);
    (soon && (is_told_to_wait(situation) || is_untold(situation, job))).then_some(until)
}

/// Until when a run can wait for its turn to say how its work goes, where there is much to do: the Job is the record meanwhile, or the
/// status has it and says what its pod waited for. Who wanted something else of the run is answered at once.
fn in_turn_until<R: Run>(situation: &Situation<'_, R>, job: &Job) -> Option<Timestamp> {
    let made = jobs::time_in(job, labels::ADMITTED_AT).or_else(|| jobs::created_at(job))?;
    let until = after(made, UNTOLD_MAX);
    // A clock that was set back would make it last.
    let in_time = situation.now < until && until <= after(situation.now, UNTOLD_MAX);
    let goes_well = is_told_to_wait(situation) || is_untold(situation, job);
    let answers = situation.refuses_to_stop() || abort::edited(situation).is_some();
    (situation.seen.busy && in_time && goes_well && !answers).then_some(until)
}

/// Whether the status has the Job, and says what its pod waits for.
fn is_told_to_wait<R: Run>(situation: &Situation<'_, R>) -> bool {
    let blocked = situation.status.common().condition(&ConditionType::Blocked);
    situation.attempt.job.is_some() && blocked.is_some_and(|blocked| blocked.status == ConditionStatus::True)
}

/// Whether nothing was told of the run, and the Job alone is the record that it was let in.
fn is_untold<R: Run>(situation: &Situation<'_, R>, job: &Job) -> bool {
    situation.status.phase().is_none() && is_first(situation) && jobs::is_held(job)
}

/// When a container of a pod was started, if it works.
fn began(pod: &Pod, container: &str) -> Option<Timestamp> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let known = containers.iter().find(|known| known.name == container)?;
    let running = known.state.as_ref()?.running.as_ref()?;
    running.started_at.as_ref().map(|time| time.0)
}

/// When an attempt is given up although its pod is there, and why.
struct Limit {
    at: Timestamp,
    why: Rejection,
}

/// The first of the limits that an attempt has.
fn limit<R: Run>(situation: &Situation<'_, R>, job: &Job, sight: &PodSight) -> Option<Limit> {
    let task = situation.task;
    let silent = sight.pods().iter().filter_map(|pod| {
        Some(Limit {
            at: unreachable::given_up_at(pod)?,
            why: task.says_why(unreachable::lost(pod)),
        })
    });
    let timeout = R::timeout(situation, job).map(|(timeout, why)| {
        // Our own clock, where the Job has it: Kubernetes knows whole seconds only.
        let began = jobs::time_in(job, labels::ADMITTED_AT).or_else(|| jobs::created_at(job));
        Limit {
            at: after(began.unwrap_or(situation.now), timeout),
            why: task.says_why(why),
        }
    });
    silent.chain(timeout).min_by_key(|limit| limit.at)
}

/// Says what the pod waits for, once nobody should be patient any more, and when to look again.
fn tell<R: Run>(
    situation: &Situation<'_, R>,
    next: &mut NextStatus<'_, R>,
    wait: &Wait,
    patience: Timestamp,
) -> Option<Timestamp> {
    if situation.now < patience {
        return Some(patience);
    }
    let Some(end) = wait.waiting.until.filter(|_| wait.is_vain()) else {
        let again = next.told_otherwise(&wait.waiting).map(|at| after(at, REWORDING));
        let early = again.filter(|again| situation.now < *again);
        if early.is_none() {
            next.waits(&wait.waiting);
        }
        return early;
    };
    if situation.now >= end {
        // One public word for both ends; the message says what was missing.
        let message = wait.waiting.to_string();
        let why = Rejection::new(Reason::ImageUnavailable, message);
        next.given_up(&situation.task.says_why(why));
        return None;
    }
    // A node alternates between two wordings of the same trouble; each change would be a write.
    if !next.is_blocked(&wait.waiting.reason()) {
        next.waits(&wait.waiting);
    }
    Some(end)
}

/// What the pod of a Job waits for, if it does.
fn wait<R: Run>(situation: &Situation<'_, R>, job: &Job, sight: &PodSight) -> Option<Wait> {
    let Some(pod) = sight.pods().first() else {
        return Some(Wait {
            since: jobs::created_at(job).unwrap_or(situation.now),
            waiting: Waiting::at(Gate::NoPod { job: job.name_any() }),
        });
    };
    if !jobs::is_pending(pod) {
        return None;
    }
    let name = pod.name_any();
    let created = jobs::created_at(pod.as_ref()).unwrap_or(situation.now);
    let scheduled = jobs::pod_condition(pod, "PodScheduled");
    if let Some(refused) = scheduled.filter(|condition| condition.status == "False") {
        return Some(Wait {
            since: created,
            waiting: Waiting::at(Gate::Unscheduled {
                pod: name,
                words: refused.message.clone(),
            }),
        });
    }
    // Its time on the node counts, not the one it waited for it.
    let since = scheduled
        .and_then(|condition| condition.last_transition_time.as_ref())
        .map_or(created, |time| time.0);
    let container = container_waiting(pod);
    let waiting = container.map(|(_, waiting)| waiting);
    let cause = waiting.and_then(|waiting| waiting.reason.clone());
    let words = waiting.and_then(|waiting| waiting.message.clone());
    let needed = cause.as_deref().and_then(need);
    let (pod, cause) = (name, cause.unwrap_or_default());
    // A pod does not say since when it lacks something. It may have been at a large image, or at a volume, for long before
    // the first error: what counts is the time since the run has told of it.
    let end = |reason: &Reason| {
        let told = waiting_since(situation, reason).unwrap_or(situation.now);
        after(told, UNAVAILABLE_MAX)
    };
    let waiting = match needed {
        None => Waiting::at(Gate::Starting { pod, words }),
        Some(Need::Image) => {
            let container = container.map(|(name, _)| name).unwrap_or_default();
            let gate = Gate::Image {
                pod,
                cause,
                words,
                image: image_of(job, container),
                field: match container {
                    INSTALL_CONTAINER => INSTALL_IMAGE,
                    _ => R::WORKER.image,
                },
            };
            Waiting::at(gate).until(end(&Reason::ImageUnavailable))
        }
        Some(Need::Configuration) => {
            let named_by = R::WORKER.configuration;
            let gate = Gate::Configuration {
                pod,
                cause,
                words,
                named_by,
            };
            Waiting::at(gate).until(end(&Reason::ConfigurationUnavailable))
        }
    };
    Some(Wait { since, waiting })
}

/// The first container that waits, and why it does so; init containers come first.
fn container_waiting(pod: &Pod) -> Option<(&str, &ContainerStateWaiting)> {
    let status = pod.status.as_ref()?;
    status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten())
        .find_map(|container| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            Some((container.name.as_str(), waiting))
        })
}

/// The image that a container of the Job's pod is to have.
fn image_of(job: &Job, container: &str) -> Option<String> {
    let spec = job.spec.as_ref()?.template.spec.as_ref()?;
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let found = containers.find(|known| known.name == container)?;
    found.image.clone()
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
