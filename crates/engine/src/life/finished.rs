//! A run that has ended: its Jobs are let go, and it is deleted when it has been kept for long enough.

use std::time::Duration;

use jangar_api::{condition::ConditionType, phase::RunPhase, reason::Reason, values};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{
    Hold, NextStatus, Run, RunStatus, Situation, jobs, kept,
    leftovers::{self, Stopping, sooner},
};
use crate::{
    decision::{Decision, Effect, Plan, Question},
    plain_status::PlainStatus,
    retention::{self, Retain},
};

/// How long the Job controller may take to write that a Job has ended before the Job is let go without that. It waits for one
/// second by itself, and for more where it has much to do.
const JOB_END_PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn plan<R: Run>(situation: &Situation<'_, R>) -> Decision<R::Status> {
    let mut plan = Plan {
        status: settled(situation).into_status(),
        ..Plan::nothing()
    };
    let mut held = false;
    for job in situation.own_jobs().filter(|job| kept::is_open(job)) {
        // One that is only to be told how it ended goes with its run, if nobody lets us tell it.
        held |= jobs::is_held(job);
        if ended_by_itself(situation, job) {
            match still_written_until(situation, job) {
                Some(until) => plan.wake_at = sooner(plan.wake_at, Some(until)),
                None => match let_go(situation, job) {
                    Ok(effect) => plan.effects.push(effect),
                    Err(question) => return Decision::look(question),
                },
            }
            continue;
        }
        // Something of it may still be there, whatever the phase says.
        match leftovers::stop(job, &situation.seen, situation.now) {
            Stopping::Unsure(question) => return Decision::look(question),
            Stopping::Going { effects, wake_at } => {
                held = true;
                plan.effects.extend(effects);
                plan.wake_at = sooner(plan.wake_at, wake_at);
            }
            // No Event: a run has one for its start and one for its end, and a cancel that took too long has had both.
            Stopping::Stopped => match let_go(situation, job) {
                Ok(effect) => plan.effects.push(effect),
                Err(question) => return Decision::look(question),
            },
        }
    }
    // What the run has outside is over when its Jobs are.
    match R::hold(situation) {
        Hold::Ours(let_go) if !held && plan.status.is_none() => {
            held = true;
            plan.effects.extend(let_go);
        }
        Hold::Parent => held = true,
        Hold::Ours(_) | Hold::Nothing => {}
    }
    if !held
        && plan.status.is_none()
        && let Some(due) = kept_until(situation)
    {
        if situation.now >= due {
            plan.effects.push(Effect::DeleteRun {
                run: jobs::id(situation.run),
                version: situation.run.resource_version().unwrap_or_default(),
            });
        } else {
            plan.wake_at = Some(due);
        }
    }
    Decision::Act(plan)
}

/// The status of a run that has ended, with what is missing in it.
pub(super) fn settled<'a, R: Run>(situation: &'a Situation<'_, R>) -> NextStatus<'a, R> {
    let mut next = situation.next_status();
    if next.status.finished_at().is_none() {
        // Somebody else wrote the phase. Without a time the run would be kept for ever.
        *next.status.course().finished_at = Some(values::Timestamp(situation.now));
    }
    too_late_to_cancel(situation, &mut next);
    unclear_retain(situation, &mut next);
    // A change of the settings does not count: it would be a write for every run there is.
    let edited = situation.run.meta().generation != observed_generation(situation.status);
    if edited {
        next.keeps();
    }
    next
}

/// The version of the spec that the status speaks about.
fn observed_generation(status: &impl PlainStatus) -> Option<i64> {
    status.common().observed_generation.map(values::Int64::get)
}

/// Whether a Job is over without anybody having stopped it. That no pod is known proves nothing: the first may be on its way.
fn ended_by_itself<R: Run>(situation: &Situation<'_, R>, job: &Job) -> bool {
    let sight = situation.seen.pods_of(&jobs::uid(job));
    let pods = sight.pods();
    situation.status.phase() != Some(&RunPhase::Cancelled)
        && pods.iter().all(|pod| jobs::has_ended(pod))
        && (!pods.is_empty() || jobs::end(job).is_some())
}

/// Lets a Job of the run go. The error is what has to be known first.
pub(super) fn let_go<R: Run>(situation: &Situation<'_, R>, job: &Job) -> Result<Effect, Question> {
    leftovers::let_go(
        job,
        situation.run,
        &situation.seen,
        situation.settings,
        situation.now,
    )
}

/// Until when the Job controller may still be writing the end of a Job whose pod has ended. Letting the Job go meanwhile would
/// make its own writes fail, and cost the API server two more for each Job; the Job's condition tells when it is done.
fn still_written_until<R: Run>(situation: &Situation<'_, R>, job: &Job) -> Option<Timestamp> {
    if jobs::end(job).is_some() || jobs::is_deleting(job) || kept::is_kept(job) {
        return None;
    }
    let until = leftovers::after(situation.status.finished_at()?, JOB_END_PATIENCE);
    (situation.now < until).then_some(until)
}

/// A cancel of a run that had already ended is answered, and changes nothing.
fn too_late_to_cancel<R: Run>(situation: &Situation<'_, R>, next: &mut NextStatus<'_, R>) {
    let answered = situation
        .status
        .common()
        .condition(&ConditionType::Cancelled)
        .is_some();
    if !situation.run.stop().is_requested() || answered {
        return;
    }
    let (reason, how) = match situation.status.phase() {
        Some(RunPhase::Succeeded) => (Reason::AlreadySucceeded, "succeeded"),
        Some(RunPhase::Failed) => (Reason::AlreadyFailed, "failed"),
        _ => return,
    };
    next.not_cancelled(
        &reason,
        &format!("the run had already {how} when the cancel was asked for"),
    );
}

/// When the run may be deleted, if ever.
fn kept_until<R: Run>(situation: &Situation<'_, R>) -> Option<Timestamp> {
    let kept = situation.run.retention(situation.settings);
    retention::kept_until(situation.run, situation.status.finished_at(), kept)
}

/// Somebody wants something of the run's retention, and we do not know what.
fn unclear_retain<R: Run>(situation: &Situation<'_, R>, next: &mut NextStatus<'_, R>) {
    let told = Retain::of(situation.run).remark();
    next.note(&Reason::InvalidRetain, told.as_deref());
}
