//! Jobs that are not needed any more: those of a run that is gone or being deleted, and those of earlier attempts and steps.
//! And how a Job is ended, which cancelling and giving up need as well.
//!
//! Nothing of a deleted run may go on running. No Job may be held by our finalizer for ever.

use std::{sync::Arc, time::Duration};

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus},
    reason::Reason,
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{Observed, Situation, attempt::Attempt, jobs};
use crate::{
    decision::{Effect, Notice, Plan, PodSight, Question, Severity, Uid},
    job, parent,
    settings::Settings,
};

/// How long after its deletion a Job may still get its first pod: the Job controller may not have heard of it yet. It waits
/// for one second before it acts, and may be behind.
const STRAGGLER: Duration = Duration::from_secs(5);
/// When to look again at pods that a live list shows and the cache does not: no event will come of them.
const UNWATCHED: Duration = Duration::from_secs(5);

/// Stops and lets go every Job that belonged to a run of this name which is not there any more, or will not be; and lets go
/// those whose end is recorded because a later attempt has begun.
///
/// A run carries no finalizer where its Job does: deleting the run makes Kubernetes delete the Job, which our finalizer holds
/// until a live list has shown that no pod of it is left. The error is what has to be known first.
pub(super) fn clean_up(
    observed: &Observed,
    settings: &Settings,
    now: Timestamp,
) -> Result<Plan<AgentRunStatus>, Question> {
    let alive = observed
        .run
        .as_ref()
        .filter(|run| !jobs::is_deleting(run.as_ref()) || parent::is_held(&run.metadata));
    let mut plan = Plan::nothing();
    for job in observed.jobs.values().filter(|job| jobs::is_held(job)) {
        let owner = jobs::owner_run(job, &observed.key.name);
        match (alive, owner) {
            (Some(run), Some(owner)) if jobs::uid(run.as_ref()) == owner => {
                if is_past(job, run) {
                    plan.effects.push(let_go(job, run, settings));
                }
            }
            (_, None) if !jobs::is_orphan(job) => {}
            // Whoever deleted the run wanted its Job to go on without it.
            (_, None) if !jobs::is_deleting(job.as_ref()) => plan.effects.push(jobs::release(job, None)),
            (_, owner) => match stop(job, observed, now) {
                Stopping::Unsure(question) => return Err(question),
                Stopping::Going { effects, wake_at } => {
                    plan.effects.extend(effects);
                    plan.wake_at = sooner(plan.wake_at, wake_at);
                }
                Stopping::Stopped => {
                    plan.effects.push(jobs::release(job, None));
                    plan.notices.extend(owner.map(|owner| stopped(job, owner)));
                }
            },
        }
    }
    Ok(plan)
}

/// Whether the run has gone on to a later attempt or step, which it does only after it has recorded the end of this one.
fn is_past(job: &Job, run: &AgentRun) -> bool {
    let attempt = run.status.as_ref().map(Attempt::remembered).unwrap_or_default();
    jobs::place(job).is_some_and(|place| place < attempt.place())
}

/// Lets a Job go whose end is recorded, and says how long it is kept. It was made with a legal time to live.
pub(super) fn let_go(job: &Job, run: &AgentRun, settings: &Settings) -> Effect {
    let ttl = job::ttl_seconds(run, settings).unwrap_or(settings.runner.job_ttl_seconds);
    jobs::release(job, ttl)
}

fn stopped(job: &Job, owner: Uid) -> Notice {
    Notice {
        regarding: owner,
        severity: Severity::Normal,
        reason: Reason::Stopped,
        message: format!(
            "Job {} and its pod have stopped, because the run was deleted",
            job.name_any()
        ),
    }
}

/// How far the end of a Job has come.
pub(super) enum Stopping {
    Unsure(Question),
    /// These have to be done; without any, there is only to wait.
    Going {
        effects: Vec<Effect>,
        wake_at: Option<Timestamp>,
    },
    /// A live list has shown that no pod is left, and none can come.
    Stopped,
}

impl Stopping {
    fn going(effects: Vec<Effect>) -> Self {
        Self::Going {
            effects,
            wake_at: None,
        }
    }
}

/// Ends a Job: deletes it so that its pods go first, and knows when they have gone.
pub(super) fn stop(job: &Job, observed: &Observed, now: Timestamp) -> Stopping {
    let Some(deleted_at) = &job.metadata.deletion_timestamp else {
        return Stopping::going(vec![Effect::StopJob { job: jobs::id(job) }]);
    };
    let uid = jobs::uid(job);
    let sight = observed.pods_of(&uid);
    match pods_gone(&uid, &sight) {
        Gone::Unsure(question) => Stopping::Unsure(question),
        Gone::Yes => {
            let sure_at = after(deleted_at.0, STRAGGLER);
            // A deletion that lies ahead was stamped before the clock was set back: nobody knows how long ago that was.
            if jobs::had_a_pod(job) || now >= sure_at || deleted_at.0 > after(now, STRAGGLER) {
                return Stopping::Stopped;
            }
            // Its only pod may be on its way.
            Stopping::Going {
                effects: Vec::new(),
                wake_at: Some(sure_at),
            }
        }
        Gone::No => {
            // Kubernetes deletes the pods itself after a deletion in the foreground. Any other way leaves them to us, because
            // our finalizer keeps the Job, and the Job its pods.
            let effects = if jobs::deletes_its_pods(job) {
                Vec::new()
            } else {
                delete_pods(&sight)
            };
            Stopping::Going {
                effects,
                wake_at: unwatched(&sight, now),
            }
        }
    }
}

/// When to look again at pods of which no event will come.
fn unwatched(sight: &PodSight, now: Timestamp) -> Option<Timestamp> {
    match sight {
        PodSight::Cached(_) => None,
        PodSight::Live(_) => Some(after(now, UNWATCHED)),
    }
}

/// Ends all that a run may have running: its Jobs, and what is left of a Job that vanished.
pub(super) fn stop_run(situation: &Situation<'_>) -> Stopping {
    if let Some(question) = unsure_of_job(situation) {
        return Stopping::Unsure(question);
    }
    let ghost = situation
        .attempt
        .job
        .as_ref()
        .filter(|job| situation.observed.is_absent(&job.name))
        .map(|job| stop_pods_of(&job.uid, situation));
    let jobs: Vec<&Arc<Job>> = situation.unfinished_jobs().collect();
    let each = jobs
        .into_iter()
        .map(|job| stop(job, situation.observed, situation.now))
        .chain(ghost);
    let mut all = Vec::new();
    let mut soonest = None;
    let mut stopped = true;
    for stopping in each {
        match stopping {
            unsure @ Stopping::Unsure(_) => return unsure,
            Stopping::Going { effects, wake_at } => {
                stopped = false;
                all.extend(effects);
                soonest = sooner(soonest, wake_at);
            }
            Stopping::Stopped => {}
        }
    }
    if stopped {
        return Stopping::Stopped;
    }
    Stopping::Going {
        effects: all,
        wake_at: soonest,
    }
}

/// A run that knows of no Job may still have one: it could have been created a moment before the status was to say so.
fn unsure_of_job(situation: &Situation<'_>) -> Option<Question> {
    let recorded = situation.attempt.job.as_ref();
    let name = recorded.map_or_else(|| situation.job_name(), |job| job.name.clone());
    let observed = situation.observed;
    let known = observed.jobs.contains_key(&name) || observed.live_jobs.contains(&name);
    (!known).then_some(Question::Job(name))
}

/// Ends the pods of a Job that is not there any more.
pub(super) fn stop_pods_of(job: &Uid, situation: &Situation<'_>) -> Stopping {
    let sight = situation.observed.pods_of(job);
    match pods_gone(job, &sight) {
        Gone::Unsure(question) => Stopping::Unsure(question),
        Gone::Yes => Stopping::Stopped,
        Gone::No => Stopping::Going {
            effects: delete_pods(&sight),
            wake_at: unwatched(&sight, situation.now),
        },
    }
}

/// Whether the pods of a Job are gone.
pub(super) enum Gone {
    Unsure(Question),
    Yes,
    No,
}

/// That no pod is left is believed of a live list alone.
pub(super) fn pods_gone(job: &Uid, sight: &PodSight) -> Gone {
    match sight {
        PodSight::Cached(pods) if pods.is_empty() => Gone::Unsure(Question::PodsOf(job.clone())),
        PodSight::Live(pods) if pods.is_empty() => Gone::Yes,
        PodSight::Cached(_) | PodSight::Live(_) => Gone::No,
    }
}

/// Deletes the pods that nobody has deleted yet, with their own grace.
pub(super) fn delete_pods(sight: &PodSight) -> Vec<Effect> {
    sight
        .pods()
        .iter()
        .filter(|pod| !jobs::is_deleting(pod.as_ref()))
        .map(|pod| Effect::DeletePod {
            pod: jobs::id(pod.as_ref()),
            grace_seconds: None,
        })
        .collect()
}

/// The sooner of two times, if there are two.
pub(super) fn sooner(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// A time that is so much later.
pub(super) fn after(start: Timestamp, wait: Duration) -> Timestamp {
    start.saturating_add(wait).unwrap_or(Timestamp::MAX)
}
