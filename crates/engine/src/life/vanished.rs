//! A Job that went away before its end was recorded: deleted by somebody, or gone without a trace. What it was doing may have
//! been done, so it is never done again blindly: only a step that says so is tried again, and only when no pod is left.

use jangar_api::{labels, reason::Reason};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{
    NextStatus, Run, Situation,
    attempt::Attempt,
    evidence, follow, jobs,
    leftovers::{self, Stopping},
    outcome::{self, Ending, Verdict},
    retry,
};
use crate::{
    decision::{Decision, Notice, ObjectId, Plan, PodSight, Rejection},
    last_sight::about_job,
};

/// Somebody else deleted the Job while its pod was working.
pub(crate) fn deleted<R: Run>(
    situation: &Situation<'_, R>,
    job: &Job,
    sight: &PodSight,
) -> Decision<R::Status> {
    let about = about_job(&job.name_any());
    let mut next = follow::recorded(situation, job);
    let known = evidence::of_deleted(job);
    // What a Job shows changes while it goes, and each change would be a write: what was noticed first is told.
    if (jobs::had_a_pod(job) || !sight.pods().is_empty()) && !next.is_warned_of(&Reason::WorkflowJobDeleted) {
        next.warn(
            &Reason::WorkflowJobDeleted,
            &format!(
                "{about} was deleted by somebody else before it ended; its pod is being stopped ({known})"
            ),
        );
    }
    match leftovers::stop(job, &situation.seen, situation.now) {
        Stopping::Unsure(question) => Decision::look(question),
        Stopping::Going { effects, wake_at } => Decision::Act(Plan {
            effects,
            status: next.into_status(),
            wake_at,
            ..Plan::nothing()
        }),
        Stopping::Stopped => {
            let message = format!(
                "{about} was deleted by somebody else before it ended, and its pod has stopped: submit the run again if \
                 its work is still wanted ({known})"
            );
            let why = Rejection::new(Reason::WorkflowJobDeleted, message);
            without_result(situation, next, why, Some(job))
        }
    }
}

/// The Job is gone, and a live read has said so.
pub(crate) fn lost<R: Run>(situation: &Situation<'_, R>, job: &ObjectId) -> Decision<R::Status> {
    let sight = situation.seen.pods_of(&job.uid);
    let missing = situation.task.job_missing();
    let mut next = follow::recorded_gone(situation);
    let known = evidence::of_missing(situation, job);
    let about = about_job(&job.name);
    if let Some(pod) = sight.pods().iter().find(|pod| jobs::has_ended(pod)) {
        let told = format!("{about} is gone; its pod was still there ({known})");
        next.warn(&missing, &told);
        return with_result(situation, next, &outcome::of_pod(pod, &R::WORKER), &told);
    }
    match leftovers::stop_pods_of(&job.uid, situation) {
        Stopping::Unsure(question) => Decision::look(question),
        Stopping::Going { effects, wake_at } => {
            if !next.is_warned_of(&missing) {
                let pods = jobs::names(sight.pods().iter().map(AsRef::as_ref));
                let told = format!("{about} is gone; its pod {pods} is being stopped ({known})");
                next.warn(&missing, &told);
            }
            Decision::Act(Plan {
                effects,
                status: next.into_status(),
                wake_at,
                ..Plan::nothing()
            })
        }
        Stopping::Stopped => {
            let message = format!(
                "{about} is gone, and nothing is left of it to read a result from: submit the run again if its work is \
                 still wanted ({known})"
            );
            without_result(situation, next, Rejection::new(missing, message), None)
        }
    }
}

/// The pod that we made for the Job is gone, and nothing tells how it ended: somebody took our finalizer from it.
pub(super) fn pod_lost<R: Run>(situation: &Situation<'_, R>, job: &Job) -> Decision<R::Status> {
    let next = follow::recorded(situation, job);
    let message = format!(
        "{} is there and its pod is gone, with nothing left to read a result from: somebody took the finalizer {} from the pod; submit \
         the run again if its work is still wanted",
        about_job(&job.name_any()),
        labels::JOB_STATUS_FINALIZER
    );
    let why = Rejection::new(situation.task.job_missing(), message);
    without_result(situation, next, why, Some(job))
}

/// The attempt that takes the place of one whose Job is not there any more, where the step asks for it.
fn replacement<R: Run>(situation: &Situation<'_, R>, job: Option<&Job>) -> Option<Attempt> {
    let allowed = R::attempts_allowed(situation, job);
    let wanted = situation.task.replaces_missing_job();
    let next = retry::next_attempt(situation, Verdict::Failed, allowed);
    next.filter(|_| wanted)
}

/// Ends the task as its pod did, unless the step asks for another attempt.
fn with_result<R: Run>(
    situation: &Situation<'_, R>,
    mut next: NextStatus<'_, R>,
    ending: &Ending,
    told: &str,
) -> Decision<R::Status> {
    let missing = situation.task.job_missing();
    let notice = situation.warning(missing.clone(), told);
    if ending.verdict == Verdict::Succeeded {
        also_telling(follow::succeed(situation, next, ending), notice)
    } else if let Some(attempt) = replacement(situation, None) {
        let why = Rejection::new(missing, &ending.message);
        also_telling(retry::again(situation, next, &why, &attempt), notice)
    } else {
        follow::report(&mut next, ending);
        let at = ending.at.unwrap_or(situation.now);
        next.failed(at, &missing, &situation.task.says(&ending.message));
        Decision::Act(Plan {
            status: next.into_status(),
            notices: vec![notice],
            ..Plan::nothing()
        })
    }
}

/// The same, with the Event about the Job that is not there: it is told too if the run goes on, or ended well.
fn also_telling<S>(mut decision: Decision<S>, notice: Notice) -> Decision<S> {
    if let Decision::Act(plan) = &mut decision {
        plan.notices.push(notice);
    }
    decision
}

/// Ends the run, unless the step asks for another attempt; what an earlier attempt reported is not its result.
fn without_result<R: Run>(
    situation: &Situation<'_, R>,
    mut next: NextStatus<'_, R>,
    why: Rejection,
    job: Option<&Job>,
) -> Decision<R::Status> {
    next.warn(&why.reason, &why.message);
    if let Some(attempt) = replacement(situation, job) {
        let notice = situation.warning(why.reason.clone(), &why.message);
        return also_telling(retry::again(situation, next, &why, &attempt), notice);
    }
    let Rejection { reason, message } = situation.task.says_why(why);
    next.failed(situation.now, &reason, &message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(reason, message)],
        ..Plan::nothing()
    })
}
