//! A run and the Job of its current attempt: found or adopted, attended while it works, and what its end means for the run.

use jangar_api::{agents::agent_run::AgentRunStatus, labels, reason::Reason};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::ResourceExt;

use super::{
    NextStatus, Situation, artifacts,
    attempt::Attempt,
    jobs,
    leftovers::{self, Gone},
    outcome::{self, Ending, Verdict},
    retry, spec_hash,
    stamp::Stamp,
    start, token, vanished, version_control, waiting,
};
use crate::decision::{Decision, ObjectId, Plan, Question};

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

pub(super) fn plan(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    match locate(situation) {
        Located::Ours(job) => attend(situation, job),
        Located::Lost(job) => vanished::lost(situation, job),
        Located::Unsure(question) => Decision::look(question),
        Located::Taken(job) => start::name_taken(situation, job),
        Located::Nowhere => start::plan(situation),
    }
}

fn locate<'a>(situation: &'a Situation<'_>) -> Located<'a> {
    let observed = situation.observed;
    let Some(recorded) = &situation.attempt.job else {
        return match observed.jobs.get(&situation.job_name()) {
            Some(job) if is_own(situation, job) => Located::Ours(job),
            Some(job) => Located::Taken(job),
            None => Located::Nowhere,
        };
    };
    match observed.jobs.get(&recorded.name) {
        Some(job) if jobs::uid(job.as_ref()) == recorded.uid => Located::Ours(job),
        Some(_) | None if observed.live_jobs.contains(&recorded.name) => Located::Lost(recorded),
        Some(_) | None => Located::Unsure(Question::Job(recorded.name.clone())),
    }
}

/// Whether a Job that has the right name was made for this run. One that was made for an earlier version of the spec is
/// ours as well; `abort` sees to it.
fn is_own(situation: &Situation<'_>, job: &Job) -> bool {
    !situation.settings.safeguards.adoption_check
        || jobs::owner_run(job, &situation.observed.key.name).as_ref() == Some(&situation.uid)
}

/// The Job is there: its pod tells what comes next.
fn attend(situation: &Situation<'_>, job: &Job) -> Decision<AgentRunStatus> {
    let uid = jobs::uid(job);
    let sight = situation.observed.pods_of(&uid);
    if let Some(pod) = sight.pods().iter().find(|pod| jobs::has_ended(pod)) {
        let ending = outcome::of_pod(pod);
        if ending.verdict == Verdict::Succeeded || !was_stopped(job, pod) {
            return conclude(situation, job, &ending);
        }
    }
    if sight.pods().is_empty()
        && let Some(ending) = own_end(job)
    {
        return match leftovers::pods_gone(&uid, &sight) {
            Gone::Unsure(question) => Decision::look(question),
            Gone::Yes | Gone::No => conclude(situation, job, &ending),
        };
    }
    if jobs::is_deleting(job) {
        return vanished::deleted(situation, job, &sight);
    }
    token::kept_fresh(situation, job, waiting::plan(situation, job, &sight))
}

/// How a Job ended by itself, as its own conditions tell. A Job that was deleted later still does: our finalizer holds it.
fn own_end(job: &Job) -> Option<Ending> {
    let ending = outcome::of_job(job)?;
    let deleted_at = job.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let before = |deleted_at| ending.at.is_some_and(|ended_at| ended_at < deleted_at);
    (ending.verdict == Verdict::SucceededUnseen || deleted_at.is_none_or(before)).then_some(ending)
}

/// Whether a pod ended because its Job was deleted, and not by itself before that.
pub(super) fn was_stopped(job: &Job, pod: &Pod) -> bool {
    let Some(deleted_at) = &job.metadata.deletion_timestamp else {
        return false;
    };
    jobs::is_deleting(pod)
        && outcome::of_pod(pod)
            .at
            .is_none_or(|ended_at| ended_at >= deleted_at.0)
}

/// The status of a run whose Job is there, recorded if it was not yet.
pub(super) fn recorded<'a>(situation: &'a Situation<'_>, job: &Job) -> NextStatus<'a> {
    let mut next = situation.next_status();
    if situation.attempt.job.is_some() {
        return next;
    }
    let attempt = Attempt {
        number: situation.attempt.current(),
        job: Some(jobs::id(job)),
        not_before: None,
        ..situation.attempt.clone()
    };
    let admitted = jobs::time_in(job, labels::ADMITTED_AT).unwrap_or(situation.now);
    let name = job.name_any();
    next.running(
        admitted,
        &format!("attempt {} runs as Job {name}", attempt.number),
    );
    next.status.runtime_ref =
        Some(attempt.stored(&situation.observed.key.namespace, &name, Some(situation.now)));
    next.status
        .spec_hash
        .get_or_insert_with(|| spec_hash(&situation.run.spec));
    let stamp = Stamp::of(job);
    next.status.system_prompt_hash = stamp.system_prompt_hash;
    next.status.contract = stamp.contract;
    version_control::record(&mut next, stamp.vcs);
    next
}

/// The Job ended: so does the run, unless another attempt is allowed.
fn conclude(situation: &Situation<'_>, job: &Job, ending: &Ending) -> Decision<AgentRunStatus> {
    let mut next = recorded(situation, job);
    let reason = match ending.verdict {
        Verdict::Succeeded | Verdict::SucceededUnseen => return succeed(situation, next, ending),
        Verdict::Disrupted => Reason::Disrupted,
        Verdict::Failed => Reason::JobFailed,
    };
    if let Some(attempt) = retry::next_attempt(situation, ending.verdict, Stamp::of(job).attempts_allowed) {
        return retry::again(situation, next, ending, &attempt);
    }
    report(&mut next, ending);
    let message = match situation.attempt.current() {
        1 => ending.message.clone(),
        number => format!("{}; that was attempt {number}, the last", ending.message),
    };
    // The run has failed for a reason of its own, so that too many artifacts change nothing.
    let _ = artifacts::record(&mut next, &ending.artifacts, &situation.settings.runs);
    next.failed(ending.at.unwrap_or(situation.now), &reason, &message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(reason, message)],
        ..Plan::nothing()
    })
}

/// The work is done.
pub(super) fn succeed(
    situation: &Situation<'_>,
    mut next: NextStatus<'_>,
    ending: &Ending,
) -> Decision<AgentRunStatus> {
    let at = ending.at.unwrap_or(situation.now);
    report(&mut next, ending);
    let within = artifacts::record(&mut next, &ending.artifacts, &situation.settings.runs);
    let notice = match within {
        Err(exceeded) => {
            next.failed(at, &exceeded.reason, &exceeded.message);
            situation.warning(exceeded.reason, exceeded.message)
        }
        Ok(()) => {
            next.succeeded(at, &ending.message);
            if ending.verdict == Verdict::SucceededUnseen {
                next.without_result(&ending.message);
                situation.warning(Reason::ResultUnavailable, ending.message.clone())
            } else if ending.message.is_empty() {
                situation.normal(Reason::Completed, "the agent has done its work")
            } else {
                situation.normal(Reason::Completed, ending.message.clone())
            }
        }
    };
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![notice],
        ..Plan::nothing()
    })
}

/// Takes over what the agent reported.
fn report(next: &mut NextStatus<'_>, ending: &Ending) {
    next.status.outcome = Some(ending.report.clone());
    version_control::report(next, ending);
}
