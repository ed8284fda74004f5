//! Cancel: nothing new starts, the pod is stopped, and the run is `Cancelled` when a live list shows that it is gone.

use std::{sync::Arc, time::Duration};

use jangar_api::{phase::RunPhase, reason::Reason};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{
    Run, RunStatus, Situation, follow, jobs,
    leftovers::{self, Stopping, after, sooner},
};
use crate::{
    decision::{Decision, Effect, Plan},
    parent,
};

/// What is kept of the time for a cancel, so that a pod that was killed can also be seen to be gone.
const CONFIRMATION: Duration = Duration::from_secs(10);
/// Kubernetes knows no finer times than this.
const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn plan<R: Run>(situation: &Situation<'_, R>) -> Decision<R::Status> {
    let begun = situation.status.phase() == Some(&RunPhase::Cancelling);
    if !begun && has_ended(situation) {
        // What was finished before the cancel began is not undone by it.
        return follow::plan(situation);
    }
    let timeout = situation.settings.runs.cancel_timeout;
    let deadline = situation
        .status
        .cancel_deadline()
        .unwrap_or_else(|| parent::cancel_deadline(situation.run.meta(), timeout, situation.now));
    match leftovers::stop_run(situation) {
        Stopping::Unsure(question) => Decision::look(question),
        Stopping::Stopped => cancelled(
            situation,
            &Reason::Cancelled,
            &because(situation, "the run was cancelled"),
        ),
        Stopping::Going { .. } if situation.now >= deadline => timed_out(situation, deadline),
        Stopping::Going { effects, wake_at } => {
            let mut next = follow::as_it_stands(situation);
            let message = "the run is being cancelled: its pod is being stopped";
            next.cancelling(deadline, &because(situation, message));
            let effects = if begun || parent::is_stopped_from_above(situation.run.meta()) {
                shorten_grace(situation, deadline)
                    .into_iter()
                    .chain(effects)
                    .collect()
            } else {
                // The intent comes first: a Job that is being deleted does not tell who wanted it. What a parent wants is
                // recorded there, so that many children stop sooner.
                Vec::new()
            };
            Decision::Act(Plan {
                effects,
                status: next.into_status(),
                wake_at: sooner(Some(deadline), wake_at),
                ..Plan::nothing()
            })
        }
    }
}

/// The OrchestrationRun above is being cancelled, and has not said so to this run yet. Nothing starts from now on, and what works
/// is stopped: of many children, the last is told long after the first, and none of them is to work meanwhile. What is written
/// waits for the word of the parent, so that it is written once.
pub(crate) fn ahead<R: Run>(situation: &Situation<'_, R>, deadline: Timestamp) -> Decision<R::Status> {
    if has_ended(situation) {
        return follow::plan(situation);
    }
    if situation.now >= deadline {
        // Nobody has come to tell it: it may be that nobody looks after the run above any more.
        return plan(situation);
    }
    let effects = match leftovers::stop_run(situation) {
        // Pods with more grace than there is time for are told of it before their Job goes, and that is not decided here.
        Stopping::Going { effects, .. } if shorten_grace(situation, deadline).is_empty() => effects,
        Stopping::Going { .. } | Stopping::Unsure(_) | Stopping::Stopped => Vec::new(),
    };
    Decision::Act(Plan {
        effects,
        wake_at: Some(deadline),
        ..Plan::nothing()
    })
}

/// Whether the pod of the current attempt has ended by itself.
fn has_ended<R: Run>(situation: &Situation<'_, R>) -> bool {
    situation
        .own_jobs()
        .filter(|job| job.name_any() == situation.job_name())
        .any(|job| {
            let pods = situation.seen.pods_of(&jobs::uid(job.as_ref()));
            let by_itself = |pod: &Arc<Pod>| jobs::has_ended(pod) && !follow::was_stopped::<R>(job, pod);
            pods.pods().iter().any(by_itself) || (pods.pods().is_empty() && follow::own_end(job).is_some())
        })
}

/// Takes grace from pods that have more of it than the cancel has time. It comes before the end of their Job, because a
/// kubelet that has begun to stop a container does not hear of a shorter grace.
fn shorten_grace<R: Run>(situation: &Situation<'_, R>, deadline: Timestamp) -> Vec<Effect> {
    let end = deadline - CONFIRMATION;
    let left = end.duration_since(situation.now).as_secs().max(1);
    let lasts_longer = |pod: &Arc<Pod>| match &pod.metadata.deletion_timestamp {
        // When its grace ends. The API server only ever shortens it, so that this comes to an end.
        Some(killed_at) => killed_at.0 > after(end, SECOND),
        None => {
            let spec = pod.spec.as_ref();
            let grace = spec.and_then(|spec| spec.termination_grace_period_seconds);
            !jobs::has_ended(pod) && grace.is_some_and(|grace| grace > left)
        }
    };
    survivors(situation)
        .filter(lasts_longer)
        .map(|pod| Effect::DeletePod {
            pod: jobs::id(pod.as_ref()),
            grace_seconds: u32::try_from(left).ok(),
        })
        .collect()
}

/// The pods of the run that are still there.
fn survivors<'a, R: Run>(situation: &'a Situation<'_, R>) -> impl Iterator<Item = Arc<Pod>> + 'a {
    situation
        .own_jobs()
        .flat_map(|job| situation.seen.pods_of(&jobs::uid(job.as_ref())).pods().to_vec())
}

/// The deadline passed. The controller goes on removing what is left.
fn timed_out<R: Run>(situation: &Situation<'_, R>, deadline: Timestamp) -> Decision<R::Status> {
    let mut left: Vec<String> = survivors(situation)
        .map(|pod| format!("pod {}", pod.name_any()))
        .collect();
    if left.is_empty() {
        left.extend(situation.own_jobs().map(|job| format!("Job {}", job.name_any())));
    }
    let message = format!(
        "the cancel had time until {deadline}; still there, and being removed: {}",
        left.join(", ")
    );
    cancelled(situation, &Reason::CancelTimedOut, &because(situation, &message))
}

fn cancelled<R: Run>(situation: &Situation<'_, R>, reason: &Reason, message: &str) -> Decision<R::Status> {
    let mut next = follow::as_it_stands(situation);
    next.cancelled(reason, message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.normal(reason.clone(), message)],
        ..Plan::nothing()
    })
}

/// What is said, with the reason that whoever cancelled gave.
pub(crate) fn because<R: Run>(situation: &Situation<'_, R>, message: &str) -> String {
    let stop = situation.run.stop();
    let reason = stop
        .cancel_reason
        .as_deref()
        .map(str::trim)
        .filter(|reason| !reason.is_empty());
    let mut text = match reason {
        None => message.to_owned(),
        Some(reason) => format!("{message} ({reason})"),
    };
    if !stop.is_requested() {
        text.push_str("; a cancel that has begun cannot be taken back");
    }
    text
}
