//! A Job that went away before its end was recorded: deleted by somebody, or gone without a trace. What it was doing may have
//! been done, so it is never done again blindly: only a step that says so is tried again, and only when no pod is left.

use jangar_api::{agents::agent_run::AgentRunStatus, reason::Reason};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{
    NextStatus, Situation,
    attempt::Attempt,
    follow, jobs,
    leftovers::{self, Stopping},
    outcome::{self, Verdict},
    retry,
};
use crate::decision::{Decision, ObjectId, Plan, PodSight, Rejection};

/// Somebody else deleted the Job while its pod was working.
pub(super) fn deleted(situation: &Situation<'_>, job: &Job, sight: &PodSight) -> Decision<AgentRunStatus> {
    let name = job.name_any();
    let mut next = follow::recorded(situation, job);
    if jobs::had_a_pod(job) || !sight.pods().is_empty() {
        next.warn(
            &Reason::WorkflowJobDeleted,
            &format!("Job {name} was deleted by somebody else before it ended; its pod is being stopped"),
        );
    }
    match leftovers::stop(job, situation.observed, situation.now) {
        Stopping::Unsure(question) => Decision::look(question),
        Stopping::Going { effects, wake_at } => Decision::Act(Plan {
            effects,
            status: next.into_status(),
            notices: Vec::new(),
            wake_at,
        }),
        Stopping::Stopped => {
            let message = format!(
                "Job {name} was deleted by somebody else before it ended, and its pod has stopped: submit the run again if \
                 its work is still wanted"
            );
            let why = Rejection::new(Reason::WorkflowJobDeleted, message);
            without_result(situation, next, why, Some(job))
        }
    }
}

/// The Job is gone, and a live read has said so.
pub(super) fn lost(situation: &Situation<'_>, job: &ObjectId) -> Decision<AgentRunStatus> {
    let sight = situation.observed.pods_of(&job.uid);
    let missing = situation.task.job_missing();
    let mut next = situation.next_status();
    if let Some(pod) = sight.pods().iter().find(|pod| jobs::has_ended(pod)) {
        let ending = outcome::of_pod(pod);
        next.warn(
            &missing,
            &format!("Job {} is gone; its pod was still there", job.name),
        );
        if ending.verdict == Verdict::Succeeded {
            return follow::succeed(situation, next, &ending);
        }
        let message = situation.task.says(&ending.message);
        let why = Rejection::new(missing.clone(), &ending.message);
        if let Some(attempt) = replacement(situation, None) {
            return retry::again(situation, next, &why, &attempt);
        }
        next.status.outcome = Some(ending.report);
        next.failed(ending.at.unwrap_or(situation.now), &missing, &message);
        return Decision::Act(Plan {
            status: next.into_status(),
            notices: vec![situation.warning(missing, message)],
            ..Plan::nothing()
        });
    }
    match leftovers::stop_pods_of(&job.uid, situation) {
        Stopping::Unsure(question) => Decision::look(question),
        Stopping::Going { effects, wake_at } => {
            let pods = jobs::names(sight.pods().iter().map(AsRef::as_ref));
            next.warn(
                &missing,
                &format!("Job {} is gone; its pod {pods} is being stopped", job.name),
            );
            Decision::Act(Plan {
                effects,
                status: next.into_status(),
                notices: Vec::new(),
                wake_at,
            })
        }
        Stopping::Stopped => {
            let message = format!(
                "Job {} is gone, and nothing is left of it to read a result from: submit the run again if its work is still \
                 wanted",
                job.name
            );
            without_result(situation, next, Rejection::new(missing, message), None)
        }
    }
}

/// The attempt that takes the place of one whose Job is not there any more, where the step asks for it.
fn replacement(situation: &Situation<'_>, job: Option<&Job>) -> Option<Attempt> {
    let allowed = situation.attempts_allowed(job);
    let wanted = situation.task.replaces_missing_job();
    let next = retry::next_attempt(situation, Verdict::Failed, allowed);
    next.filter(|_| wanted)
}

/// Ends the run, unless the step asks for another attempt; what an earlier attempt reported is not its result.
fn without_result(
    situation: &Situation<'_>,
    mut next: NextStatus<'_>,
    why: Rejection,
    job: Option<&Job>,
) -> Decision<AgentRunStatus> {
    next.warn(&why.reason, &why.message);
    if let Some(attempt) = replacement(situation, job) {
        return retry::again(situation, next, &why, &attempt);
    }
    let Rejection { reason, message } = situation.task.says_why(why);
    next.failed(situation.now, &reason, &message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(reason, message)],
        ..Plan::nothing()
    })
}
