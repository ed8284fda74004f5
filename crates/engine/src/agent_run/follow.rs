//! A run and the Job of its current attempt: found, adopted, lost; and what its end means for the run.

use std::time::Duration;

use jangar_api::{
    agents::agent_run::AgentRunStatus,
    condition::{ConditionStatus, ConditionType},
    labels,
    reason::Reason,
};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{
    Scene, artifacts,
    attempt::Attempt,
    jobs,
    leftovers::{self, Gone},
    outcome::{self, Ending, Verdict},
    spec_hash,
    stamp::Stamp,
    standing::Standing,
    start, waiting,
};
use crate::{
    decision::{Decision, ObjectId, Plan, PodSight, Question},
    job,
};

/// How often a run may lose its pod to its node before that counts as a failure.
const DISRUPTIONS_MAX: u32 = 5;
/// How long the second attempt waits, as Kubernetes does with `backoffLimit`; each later one twice as long.
const BACKOFF_FIRST: Duration = Duration::from_secs(10);
/// The longest wait before an attempt.
const BACKOFF_MAX: Duration = Duration::from_mins(6);

/// The Job of the current attempt, as far as it can be found.
enum Located<'a> {
    Ours(&'a Job),
    /// There was one, and it is gone.
    Lost(&'a ObjectId),
    /// A cache does not show it, which proves nothing.
    Unsure(Question),
    /// Another one has its name.
    Taken(&'a Job),
    /// It was not made yet.
    Nowhere,
}

pub(super) fn plan(scene: &Scene<'_>) -> Decision<AgentRunStatus> {
    match locate(scene) {
        Located::Ours(job) => attend(scene, job),
        Located::Lost(job) => lost(scene, job),
        Located::Unsure(question) => Decision::look(question),
        Located::Taken(job) => start::name_taken(scene, job),
        Located::Nowhere => start::plan(scene),
    }
}

fn locate<'a>(scene: &'a Scene<'_>) -> Located<'a> {
    let observed = scene.observed;
    let Some(recorded) = &scene.attempt.job else {
        return match observed.jobs.get(&scene.job_name()) {
            Some(job) if is_own(scene, job) => Located::Ours(job),
            Some(job) => Located::Taken(job),
            None => Located::Nowhere,
        };
    };
    match observed.jobs.get(&recorded.name) {
        Some(job) if jobs::uid(job.as_ref()) == recorded.uid => Located::Ours(job),
        Some(_) => Located::Lost(recorded),
        None if observed.absent_jobs.contains(&recorded.name) => Located::Lost(recorded),
        None => Located::Unsure(Question::Job(recorded.name.clone())),
    }
}

/// Whether a Job that has the right name was made for this run. One that was made for an earlier version of the spec is
/// ours as well; `abort` sees to it.
fn is_own(scene: &Scene<'_>, job: &Job) -> bool {
    !scene.settings.safeguards.adoption_check
        || jobs::owner_run(job, &scene.observed.key.name).as_ref() == Some(&scene.uid)
}

/// The Job is there: its pod tells what comes next.
fn attend(scene: &Scene<'_>, job: &Job) -> Decision<AgentRunStatus> {
    let uid = jobs::uid(job);
    let sight = scene.observed.pods_of(&uid);
    if let Some(pod) = sight.pods().iter().find(|pod| jobs::has_ended(pod)) {
        let ending = outcome::of_pod(pod);
        let was_stopped = jobs::is_deleting(job) && jobs::is_deleting(pod.as_ref());
        if ending.verdict == Verdict::Succeeded || !was_stopped {
            return conclude(scene, job, &ending);
        }
    }
    if jobs::is_deleting(job) {
        return deleted(scene, job, &sight);
    }
    if sight.pods().is_empty()
        && let Some(ending) = outcome::of_job(job)
    {
        return match leftovers::pods_gone(&uid, &sight) {
            Gone::Unsure(question) => Decision::look(question),
            Gone::Yes | Gone::No => conclude(scene, job, &ending),
        };
    }
    waiting::plan(scene, job, &sight)
}

/// The status of a run whose Job is there, recorded if it was not yet; and whether this is the first time.
pub(super) fn recorded<'a>(scene: &'a Scene<'_>, job: &Job) -> (Standing<'a>, bool) {
    let mut standing = scene.standing();
    if scene.attempt.job.is_some() {
        return (standing, false);
    }
    let attempt = Attempt {
        number: scene.attempt.current(),
        job: Some(jobs::id(job)),
        not_before: None,
        ..scene.attempt.clone()
    };
    let admitted = jobs::time_in(job, labels::ADMITTED_AT).unwrap_or(scene.now);
    let name = job.name_any();
    standing.running(
        admitted,
        &format!("attempt {} runs as Job {name}", attempt.number),
    );
    standing.next.runtime_ref = Some(attempt.stored(&scene.observed.key.namespace, &name, Some(scene.now)));
    standing
        .next
        .spec_hash
        .get_or_insert_with(|| spec_hash(&scene.run.spec));
    let stamp = Stamp::of(job);
    standing.next.system_prompt_hash = stamp.system_prompt_hash;
    standing.next.contract = stamp.contract;
    if scene.run.spec.vcs_ref.is_some() {
        standing.conditions.set(
            ConditionType::VcsSkipped,
            ConditionStatus::True,
            Reason::VcsUnavailable,
            "spec.vcsRef is set, and this version has no version control: the agent clones the repository itself",
        );
    }
    (standing, true)
}

/// The Job ended: so does the run, unless another attempt is allowed.
fn conclude(scene: &Scene<'_>, job: &Job, ending: &Ending) -> Decision<AgentRunStatus> {
    let attempts = Stamp::of(job).attempts_allowed;
    let at = ending.at.unwrap_or(scene.now);
    let (mut standing, _) = recorded(scene, job);
    standing.next.outcome = Some(ending.report.clone());
    artifacts::record(&mut standing, &ending.artifacts, &scene.settings.runs);
    let notice = match ending.verdict {
        Verdict::Succeeded => {
            standing.succeeded(at, &ending.message);
            scene.normal(Reason::Completed, completed(&ending.message))
        }
        Verdict::SucceededUnseen => {
            standing.succeeded(at, &ending.message);
            standing.conditions.set(
                ConditionType::ResultUnavailable,
                ConditionStatus::True,
                Reason::ResultUnavailable,
                ending.message.clone(),
            );
            scene.warning(Reason::ResultUnavailable, ending.message.clone())
        }
        Verdict::Disrupted if scene.attempt.disruptions < DISRUPTIONS_MAX => {
            return again(scene, standing, &ending.message, true);
        }
        Verdict::Failed if scene.attempt.failures + 1 < attempts => {
            return again(scene, standing, &ending.message, false);
        }
        Verdict::Disrupted => {
            let message = format!(
                "{}; that happened {} times, which is as often as it may",
                ending.message,
                DISRUPTIONS_MAX + 1
            );
            standing.failed(at, &Reason::Disrupted, &message);
            scene.warning(Reason::Disrupted, message)
        }
        Verdict::Failed => {
            let message = in_all(&ending.message, scene.attempt.current());
            standing.failed(at, &Reason::JobFailed, &message);
            scene.warning(Reason::JobFailed, message)
        }
    };
    Decision::Act(Plan {
        status: standing.into_status(),
        notices: vec![notice],
        ..Plan::nothing()
    })
}

fn completed(summary: &str) -> String {
    if summary.is_empty() {
        "the agent has done its work".to_owned()
    } else {
        summary.to_owned()
    }
}

fn in_all(message: &str, attempts: u32) -> String {
    if attempts == 1 {
        message.to_owned()
    } else {
        format!("{message}; that was attempt {attempts}, the last")
    }
}

/// Another attempt. The Job of this one is let go once the status has gone on to the next.
fn again(
    scene: &Scene<'_>,
    mut standing: Standing<'_>,
    message: &str,
    disrupted: bool,
) -> Decision<AgentRunStatus> {
    let number = scene.attempt.current();
    let mut next = Attempt {
        number: number + 1,
        job: None,
        ..scene.attempt.clone()
    };
    let due = if disrupted {
        next.disruptions += 1;
        scene.now
    } else {
        next.failures += 1;
        scene
            .now
            .saturating_add(backoff(next.failures))
            .unwrap_or(scene.now)
    };
    next.not_before = Some(due);
    let name: String = job::name(&scene.observed.key.name, next.number).into();
    standing.next.runtime_ref = Some(next.stored(&scene.observed.key.namespace, &name, None));
    let text = format!(
        "attempt {number} ended: {message}; attempt {} starts at {due}",
        next.number
    );
    let reason = if disrupted {
        Reason::Disrupted
    } else {
        Reason::JobFailed
    };
    standing.conditions.set(
        ConditionType::InProgress,
        ConditionStatus::True,
        reason.clone(),
        text.clone(),
    );
    standing
        .conditions
        .set(ConditionType::Succeeded, ConditionStatus::Unknown, reason, text);
    Decision::Act(Plan {
        status: standing.into_status(),
        wake_at: Some(due),
        ..Plan::nothing()
    })
}

/// How long to wait after the given number of failures.
fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (BACKOFF_FIRST * 2_u32.pow(doublings)).min(BACKOFF_MAX)
}

/// Somebody else deleted the Job while its pod was working.
fn deleted(scene: &Scene<'_>, job: &Job, sight: &PodSight) -> Decision<AgentRunStatus> {
    let name = job.name_any();
    let effects = match leftovers::pods_gone(&jobs::uid(job), sight) {
        Gone::Unsure(question) => return Decision::look(question),
        Gone::Yes => {
            let message =
                format!("Job {name} was deleted by somebody else before it ended, and its pod has stopped");
            return end_without_result(scene, job, &Reason::WorkflowJobDeleted, &message);
        }
        Gone::No if jobs::deletes_its_pods(job) => Vec::new(),
        Gone::No => leftovers::delete_pods(sight),
    };
    let (mut standing, _) = recorded(scene, job);
    standing.warn(
        &Reason::WorkflowJobDeleted,
        &format!("Job {name} was deleted by somebody else before it ended; its pod is being stopped"),
    );
    Decision::Act(Plan {
        effects,
        status: standing.into_status(),
        ..Plan::nothing()
    })
}

fn end_without_result(
    scene: &Scene<'_>,
    job: &Job,
    reason: &Reason,
    message: &str,
) -> Decision<AgentRunStatus> {
    let (mut standing, _) = recorded(scene, job);
    standing.warn(reason, message);
    standing.failed(scene.now, reason, message);
    Decision::Act(Plan {
        status: standing.into_status(),
        notices: vec![scene.warning(reason.clone(), message)],
        ..Plan::nothing()
    })
}

/// The Job is gone, and a live read has said so. What it was doing may have been done: it is never done again blindly.
fn lost(scene: &Scene<'_>, job: &ObjectId) -> Decision<AgentRunStatus> {
    let sight = scene.observed.pods_of(&job.uid);
    let message = format!(
        "Job {} is gone, and nothing is left of it to read a result from",
        job.name
    );
    let mut standing = scene.standing();
    let ended = sight.pods().iter().find(|pod| jobs::has_ended(pod));
    if let Some(pod) = ended {
        let ending = outcome::of_pod(pod);
        let at = ending.at.unwrap_or(scene.now);
        standing.warn(
            &Reason::JobMissing,
            &format!("Job {} is gone; its pod was still there", job.name),
        );
        standing.next.outcome = Some(ending.report.clone());
        let notice = if ending.verdict == Verdict::Succeeded {
            standing.succeeded(at, &ending.message);
            scene.normal(Reason::Completed, completed(&ending.message))
        } else {
            standing.failed(at, &Reason::JobMissing, &ending.message);
            scene.warning(Reason::JobMissing, ending.message.clone())
        };
        return Decision::Act(Plan {
            status: standing.into_status(),
            notices: vec![notice],
            ..Plan::nothing()
        });
    }
    match leftovers::pods_gone(&job.uid, &sight) {
        Gone::Unsure(question) => Decision::look(question),
        Gone::No => {
            standing.warn(
                &Reason::JobMissing,
                &format!(
                    "Job {} is gone; its pod {} is being stopped",
                    job.name,
                    jobs::names(sight.pods().iter().map(AsRef::as_ref))
                ),
            );
            Decision::Act(Plan {
                effects: leftovers::delete_pods(&sight),
                status: standing.into_status(),
                ..Plan::nothing()
            })
        }
        Gone::Yes => {
            standing.warn(&Reason::JobMissing, &message);
            standing.failed(scene.now, &Reason::JobMissing, &message);
            Decision::Act(Plan {
                status: standing.into_status(),
                notices: vec![scene.warning(Reason::JobMissing, message)],
                ..Plan::nothing()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_and_has_an_end() {
        let waits: Vec<u64> = [1, 2, 3, 6, 7, 40, u32::MAX]
            .map(|failures| backoff(failures).as_secs())
            .into();
        assert_eq!(waits, [10, 20, 40, 320, 360, 360, 360]);
    }

    #[test]
    fn a_time_in_the_far_future_does_not_overflow() {
        assert!(jiff::Timestamp::MAX.saturating_add(backoff(9)).is_ok());
    }
}
