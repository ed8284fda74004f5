//! A Job that went away before its end was recorded: deleted by somebody, or gone without a trace. What it was doing may have
//! been done, so it is never done again blindly.

use jangar_api::{agents::agent_run::AgentRunStatus, reason::Reason};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{
    NextStatus, Situation, follow, jobs,
    leftovers::{self, Stopping},
    outcome::{self, Verdict},
};
use crate::decision::{Decision, ObjectId, Plan, PodSight};

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
            without_result(situation, next, &Reason::WorkflowJobDeleted, &message)
        }
    }
}

/// The Job is gone, and a live read has said so.
pub(super) fn lost(situation: &Situation<'_>, job: &ObjectId) -> Decision<AgentRunStatus> {
    let sight = situation.observed.pods_of(&job.uid);
    let mut next = situation.next_status();
    if let Some(pod) = sight.pods().iter().find(|pod| jobs::has_ended(pod)) {
        let ending = outcome::of_pod(pod);
        next.warn(
            &Reason::JobMissing,
            &format!("Job {} is gone; its pod was still there", job.name),
        );
        if ending.verdict == Verdict::Succeeded {
            return follow::succeed(situation, next, &ending);
        }
        next.status.outcome = Some(ending.report);
        next.failed(
            ending.at.unwrap_or(situation.now),
            &Reason::JobMissing,
            &ending.message,
        );
        return Decision::Act(Plan {
            status: next.into_status(),
            notices: vec![situation.warning(Reason::JobMissing, ending.message)],
            ..Plan::nothing()
        });
    }
    match leftovers::stop_pods_of(&job.uid, situation) {
        Stopping::Unsure(question) => Decision::look(question),
        Stopping::Going { effects, wake_at } => {
            let pods = jobs::names(sight.pods().iter().map(AsRef::as_ref));
            next.warn(
                &Reason::JobMissing,
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
            without_result(situation, next, &Reason::JobMissing, &message)
        }
    }
}

/// Ends the run; what an earlier attempt reported is not its result.
fn without_result(
    situation: &Situation<'_>,
    mut next: NextStatus<'_>,
    reason: &Reason,
    message: &str,
) -> Decision<AgentRunStatus> {
    next.warn(reason, message);
    next.failed(situation.now, reason, message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(reason.clone(), message)],
        ..Plan::nothing()
    })
}
