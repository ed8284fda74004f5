//! Jobs that are not needed any more: those of a run that is gone or being deleted, and those of earlier attempts.
//!
//! Nothing of the former may go on running. None may be held by our finalizer for ever.

use std::sync::Arc;

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus},
    labels,
    reason::Reason,
};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{Observed, attempt::Attempt, jobs};
use crate::{
    decision::{Effect, Notice, Plan, PodSight, Question, Severity, Uid},
    job,
    settings::Settings,
};

/// Stops and lets go every Job that belonged to a run of this name which is not there any more, or will not be; and lets go
/// those whose end is recorded because a later attempt has begun.
///
/// A run carries no finalizer where its Job does: deleting the run makes Kubernetes delete the Job, which our finalizer holds
/// until a live list has shown that no pod of it is left. The error is what has to be known first.
pub(super) fn clean_up(observed: &Observed, settings: &Settings) -> Result<Plan<AgentRunStatus>, Question> {
    let alive = observed
        .run
        .as_ref()
        .filter(|run| !jobs::is_deleting(run.as_ref()));
    let mut plan = Plan::nothing();
    for job in observed.jobs.values().filter(|job| jobs::is_held(job)) {
        let Some(owner) = jobs::owner_run(job, &observed.key.name) else {
            continue;
        };
        match alive {
            Some(run) if jobs::uid(run.as_ref()) == owner => {
                if is_past(job, run) {
                    plan.effects.push(let_go(job, run, settings));
                }
            }
            Some(_) | None => match stop(job, observed) {
                Stopping::Unsure(question) => return Err(question),
                Stopping::Act(effects) => plan.effects.extend(effects),
                Stopping::Stopped => {
                    plan.effects.push(jobs::release(job, None));
                    plan.notices.push(stopped(job, owner));
                }
            },
        }
    }
    Ok(plan)
}

/// Whether the run has gone on to a later attempt, which it does only after it has recorded the end of this one.
fn is_past(job: &Job, run: &AgentRun) -> bool {
    let attempt = run.status.as_ref().map(Attempt::remembered).unwrap_or_default();
    let number = job
        .annotations()
        .get(labels::ATTEMPT)
        .and_then(|text| text.parse().ok());
    number.is_some_and(|number: u32| number < attempt.number)
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
    /// These have to be done; without any, there is only to wait for the pods' grace.
    Act(Vec<Effect>),
    /// A live list has shown that no pod is left.
    Stopped,
}

/// Ends a Job: deletes it so that its pods go first, and knows when they have gone.
pub(super) fn stop(job: &Job, observed: &Observed) -> Stopping {
    if !jobs::is_deleting(job) {
        return Stopping::Act(vec![Effect::StopJob { job: jobs::id(job) }]);
    }
    let uid = jobs::uid(job);
    let sight = observed.pods_of(&uid);
    match pods_gone(&uid, &sight) {
        Gone::Unsure(question) => Stopping::Unsure(question),
        Gone::Yes => Stopping::Stopped,
        // Kubernetes deletes the pods itself. Any other way of deleting a Job leaves them to us, because our finalizer keeps
        // the Job, and the Job its pods.
        Gone::No if jobs::deletes_its_pods(job) => Stopping::Act(Vec::new()),
        Gone::No => Stopping::Act(delete_pods(&sight)),
    }
}

/// Ends several Jobs.
pub(super) fn stop_all<'a>(jobs: impl IntoIterator<Item = &'a Arc<Job>>, observed: &Observed) -> Stopping {
    let mut all = Vec::new();
    let mut stopped = true;
    for job in jobs {
        match stop(job, observed) {
            unsure @ Stopping::Unsure(_) => return unsure,
            Stopping::Act(effects) => {
                stopped = false;
                all.extend(effects);
            }
            Stopping::Stopped => {}
        }
    }
    if stopped {
        Stopping::Stopped
    } else {
        Stopping::Act(all)
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
