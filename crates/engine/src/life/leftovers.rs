//! Jobs that are not needed any more: those of a run that is gone or being deleted, and those of earlier attempts and steps.
//! And how a Job is ended, which cancelling and giving up need as well.
//!
//! Nothing of a deleted run may go on running. No Job may be held by our finalizer for ever.

use std::{sync::Arc, time::Duration};

use jangar_api::reason::Reason;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{Run, RunStatus, Seen, Situation, attempt::Attempt, follow, jobs, kept};
use crate::{
    decision::{Decision, Effect, Notice, Plan, PodSight, Question, REQUEST_TIMEOUT, Severity, Uid},
    settings::Settings,
};

/// How long after its deletion a Job may still get its first pod: the Job controller may not have heard of it yet. It waits
/// for one second before it acts, and may be behind. Where we make the pods, it is a request of ours that may still be on its way.
const STRAGGLER: Duration = Duration::from_secs(5);
/// When to look again at pods that a live list shows and the cache does not: no event will come of them.
const UNWATCHED: Duration = Duration::from_secs(5);

/// Stops and lets go every Job that belonged to a run of this name which is not there any more, or will not be; and lets go
/// those whose end is recorded because a later attempt has begun.
///
/// A run carries no finalizer where its Job does: deleting the run makes Kubernetes delete the Job, which our finalizer holds
/// until a live list has shown that no pod of it is left. The error is what has to be known first.
pub(crate) fn clean_up<R: Run>(
    seen: &Seen<'_, R>,
    settings: &Settings,
    now: Timestamp,
) -> Result<Plan<R::Status>, Question> {
    let alive = seen.run.filter(|run| !jobs::is_deleting(*run));
    let mut plan = Plan::nothing();
    plan.effects = kept::stragglers(seen)?;
    for job in seen.jobs.values().filter(|job| kept::is_open(job)) {
        let owner = jobs::owner_run::<R>(job, &seen.key.name);
        match (alive, owner) {
            (Some(run), Some(owner)) if jobs::uid(run) == owner => {
                if is_past(job, run) {
                    plan.effects.push(let_go(job, run, seen, settings, now)?);
                }
            }
            (_, None) if !jobs::is_orphan(job) => {}
            // Whoever deleted the run wanted its Job to go on without it.
            (_, None) if !jobs::is_deleting(job.as_ref()) => {
                let (effect, wake_at) = kept::orphan(job, seen, now)?;
                plan.effects.extend(effect);
                plan.wake_at = sooner(plan.wake_at, wake_at);
            }
            (_, owner) => match stop(job, seen, now) {
                Stopping::Unsure(question) => return Err(question),
                Stopping::Going { effects, wake_at } => {
                    plan.effects.extend(effects);
                    plan.wake_at = sooner(plan.wake_at, wake_at);
                }
                Stopping::Stopped => {
                    let gone = PodSight::Live(Vec::new());
                    plan.effects.push(jobs::release(job, &gone, None, now)?);
                    plan.notices.extend(owner.map(|owner| stopped(job, owner)));
                }
            },
        }
    }
    Ok(plan)
}

/// Whether the run has gone on to a later attempt or step, which it does only after it has recorded the end of this one.
fn is_past<R: Run>(job: &Job, run: &R) -> bool {
    let attempt = Attempt::remembered(run.status().and_then(RunStatus::runtime_ref));
    jobs::place(job).is_some_and(|place| place < attempt.place())
}

/// Lets a Job go whose end is recorded, and says how long it is kept. It was made with a legal time to live.
pub(crate) fn let_go<R: Run>(
    job: &Job,
    run: &R,
    seen: &Seen<'_, R>,
    settings: &Settings,
    now: Timestamp,
) -> Result<Effect, Question> {
    let pods = seen.pods_of(&jobs::uid(job));
    jobs::release(job, &pods, run.job_ttl(job, settings), now)
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
pub(crate) enum Stopping {
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
pub(crate) fn stop<R>(job: &Job, seen: &Seen<'_, R>, now: Timestamp) -> Stopping {
    let Some(deleted_at) = &job.metadata.deletion_timestamp else {
        return Stopping::going(vec![Effect::StopJob { job: jobs::id(job) }]);
    };
    let uid = jobs::uid(job);
    let sight = seen.pods_of(&uid);
    match pods_gone(&uid, &sight) {
        Gone::Unsure(question) => Stopping::Unsure(question),
        Gone::Yes => {
            let straggler = if kept::is_kept(job) {
                REQUEST_TIMEOUT
            } else {
                STRAGGLER
            };
            let sure_at = after(deleted_at.0, straggler);
            // A deletion that lies ahead was stamped before the clock was set back: nobody knows how long ago that was.
            if jobs::had_a_pod(job) || now >= sure_at || deleted_at.0 > after(now, straggler) {
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
            let mut effects = if jobs::deletes_its_pods(job) {
                Vec::new()
            } else {
                delete_pods(&sight)
            };
            effects.extend(kept::let_pods_go(job, &sight));
            Stopping::Going {
                effects,
                wake_at: unwatched(&sight, now),
            }
        }
    }
}

/// When to look again at pods of which no event will come.
pub(super) fn unwatched(sight: &PodSight, now: Timestamp) -> Option<Timestamp> {
    match sight {
        PodSight::Cached(_) => None,
        PodSight::Live(_) => Some(after(now, UNWATCHED)),
    }
}

/// Ends all that a run may have running: its Jobs, and what is left of a Job that vanished.
pub(crate) fn stop_run<R: Run>(situation: &Situation<'_, R>) -> Stopping {
    if let Some(question) = unsure_of_job(situation) {
        return Stopping::Unsure(question);
    }
    let ghost = situation
        .attempt
        .job
        .as_ref()
        .filter(|job| situation.seen.is_absent(&job.name))
        .map(|job| stop_pods_of(&job.uid, situation));
    let jobs: Vec<&Arc<Job>> = situation.unfinished_jobs().collect();
    let each = jobs
        .into_iter()
        .map(|job| stop(job, &situation.seen, situation.now))
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

/// The run was deleted, and its parent has not recorded its end: there is one when its pod is gone. What has to be done for
/// that is done as for any other run that is deleted.
pub(crate) fn farewell<R: Run>(situation: &Situation<'_, R>) -> Decision<R::Status> {
    match stop_run(situation) {
        Stopping::Unsure(question) => Decision::look(question),
        Stopping::Going { wake_at, .. } => Decision::Act(Plan {
            wake_at,
            ..Plan::nothing()
        }),
        Stopping::Stopped => {
            let message = "the run was deleted before it ended, and nothing of it is running any more";
            let mut next = follow::as_it_stands(situation);
            next.cancelled(&Reason::Stopped, message);
            Decision::Act(Plan {
                status: next.into_status(),
                ..Plan::nothing()
            })
        }
    }
}

/// A run that knows of no Job may still have one: it could have been created a moment before the status was to say so.
pub(crate) fn unsure_of_job<R: Run>(situation: &Situation<'_, R>) -> Option<Question> {
    let recorded = situation.attempt.job.as_ref();
    let name = recorded.map_or_else(|| situation.job_name(), |job| job.name.clone());
    let seen = &situation.seen;
    let known = seen.jobs.contains_key(&name) || seen.live_jobs.contains(&name);
    (!known).then_some(Question::Job(name))
}

/// Ends the pods of a Job that is not there any more.
pub(crate) fn stop_pods_of<R: Run>(job: &Uid, situation: &Situation<'_, R>) -> Stopping {
    let sight = situation.seen.pods_of(job);
    match pods_gone(job, &sight) {
        Gone::Unsure(question) => Stopping::Unsure(question),
        Gone::Yes => Stopping::Stopped,
        Gone::No => Stopping::Going {
            effects: delete_pods(&sight)
                .into_iter()
                .chain(kept::let_orphans_go(&sight))
                .collect(),
            wake_at: unwatched(&sight, situation.now),
        },
    }
}

/// Whether the pods of a Job are gone.
pub(crate) enum Gone {
    Unsure(Question),
    Yes,
    No,
}

/// That no pod is left is believed of a live list alone.
pub(crate) fn pods_gone(job: &Uid, sight: &PodSight) -> Gone {
    match sight {
        PodSight::Cached(pods) if pods.is_empty() => Gone::Unsure(Question::PodsOf(job.clone())),
        PodSight::Live(pods) if pods.is_empty() => Gone::Yes,
        PodSight::Cached(_) | PodSight::Live(_) => Gone::No,
    }
}

/// Deletes the pods that nobody has deleted yet, with their own grace.
pub(crate) fn delete_pods(sight: &PodSight) -> Vec<Effect> {
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
pub(crate) fn sooner(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// A time that is so much later.
pub(crate) fn after(start: Timestamp, wait: Duration) -> Timestamp {
    start.saturating_add(wait).unwrap_or(Timestamp::MAX)
}
