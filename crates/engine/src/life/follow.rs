//! A run and the Job of its current attempt: found or adopted, attended while it works, and what its end means for the run.

use std::sync::Arc;

use jangar_api::reason::Reason;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};

use super::{
    NextStatus, Run, RunStatus, Situation,
    attempt::{Attempt, FirstSight},
    following, jobs,
    leftovers::{self, Gone},
    outcome::{self, Ending, Verdict},
    retry, start,
    task::Task,
    vanished, waiting,
};
use crate::{
    decision::{Decision, ObjectId, Plan, Question, Rejection},
    job::{self, Place},
    last_sight::LastSight,
};

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

pub(crate) fn plan<R: Run>(situation: &Situation<'_, R>) -> Decision<R::Status> {
    match locate(situation) {
        Located::Ours(job) => attend(situation, job),
        Located::Lost(job) => vanished::lost(situation, job),
        Located::Unsure(question) => Decision::look(question),
        Located::Taken(job) => start::name_taken(situation, job),
        Located::Nowhere => R::start(situation),
    }
}

fn locate<'a, R: Run>(situation: &'a Situation<'_, R>) -> Located<'a> {
    let seen = &situation.seen;
    let Some(recorded) = &situation.attempt.job else {
        return match seen.jobs.get(&situation.job_name()) {
            Some(job) if is_own(situation, job) => Located::Ours(job),
            Some(job) => Located::Taken(job),
            None => Located::Nowhere,
        };
    };
    match seen.jobs.get(&recorded.name) {
        Some(job) if jobs::uid(job.as_ref()) == recorded.uid => Located::Ours(job),
        Some(_) | None if seen.live_jobs.contains(&recorded.name) => Located::Lost(recorded),
        Some(_) | None => Located::Unsure(Question::Job(recorded.name.clone())),
    }
}

/// Whether a Job that has the right name was made for this run. One that was made for an earlier version of the spec is
/// ours as well; `abort` sees to it.
fn is_own<R: Run>(situation: &Situation<'_, R>, job: &Job) -> bool {
    !situation.settings.safeguards.adoption_check
        || jobs::owner_run::<R>(job, &situation.seen.key.name).as_ref() == Some(&situation.uid)
}

/// The Job is there: its pod tells what comes next.
fn attend<R: Run>(situation: &Situation<'_, R>, job: &Job) -> Decision<R::Status> {
    let uid = jobs::uid(job);
    let sight = situation.seen.pods_of(&uid);
    if let Some(pod) = sight.pods().iter().find(|pod| jobs::has_ended(pod)) {
        let ending = outcome::of_pod(pod, &R::WORKER);
        if ending.verdict == Verdict::Succeeded || !was_stopped::<R>(job, pod) {
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
    R::attended(situation, job, waiting::plan(situation, job, &sight))
}

/// How a Job ended by itself, as its own conditions tell. A Job that was deleted later still does: our finalizer holds it.
pub(super) fn own_end(job: &Job) -> Option<Ending> {
    let ending = outcome::of_job(job)?;
    let deleted_at = job.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let before = |deleted_at| ending.at.is_some_and(|ended_at| ended_at < deleted_at);
    (ending.verdict == Verdict::SucceededUnseen || deleted_at.is_none_or(before)).then_some(ending)
}

/// Whether a pod ended because its Job was deleted, and not by itself before that.
pub(crate) fn was_stopped<R: Run>(job: &Job, pod: &Pod) -> bool {
    let Some(deleted_at) = &job.metadata.deletion_timestamp else {
        return false;
    };
    jobs::is_deleting(pod)
        && outcome::of_pod(pod, &R::WORKER)
            .at
            .is_none_or(|ended_at| ended_at >= deleted_at.0)
}

/// The status of a run whose Job is there, recorded if it was not yet.
pub(crate) fn recorded<'a, R: Run>(situation: &'a Situation<'_, R>, job: &Job) -> NextStatus<'a, R> {
    let mut next = situation.next_status();
    if situation.attempt.job.is_some() {
        return next;
    }
    let attempt = begin(situation, &mut next, jobs::id(job), &LastSight::of(job));
    R::begun(situation, &mut next, job, &attempt);
    next
}

/// The status of a run whose Job is gone, recorded if it went before that was done: whoever reads the status has to see that
/// something was started.
pub(crate) fn recorded_gone<'a, R: Run>(situation: &'a Situation<'_, R>) -> NextStatus<'a, R> {
    let mut next = situation.next_status();
    if let (Some(sight), Some(job)) = (situation.untold(), &situation.attempt.job) {
        let attempt = begin(situation, &mut next, job.clone(), sight);
        R::begun_unseen(situation, &mut next, &sight.made_for, &attempt);
    }
    next
}

/// Records that an attempt has begun as this Job, and what every kind has to say of that.
fn begin<R: Run>(
    situation: &Situation<'_, R>,
    next: &mut NextStatus<'_, R>,
    job: ObjectId,
    sight: &LastSight,
) -> Attempt {
    let task = situation.task;
    let made_for = &sight.made_for;
    let name = job.name.clone();
    let attempt = Attempt {
        number: situation.attempt.current(),
        job: Some(job),
        first_seen: Some(FirstSight {
            at: situation.now,
            version: Some(sight.version.clone()).filter(|version| !version.is_empty()),
        }),
        not_before: None,
        ..situation.attempt.clone()
    };
    next.attempt_begins();
    let message = format!("attempt {} runs as Job {name}", attempt.number);
    next.running(made_for.admitted_at.unwrap_or(situation.now), &task.says(message));
    let course = next.status.course();
    *course.runtime_ref = Some(attempt.stored(situation.seen.key, task, &name));
    // What the Job was made for: the spec may have been changed since.
    let accepted = made_for.spec_hash.clone();
    course
        .spec_hash
        .get_or_insert_with(|| accepted.unwrap_or_else(|| situation.run.spec_hash()));
    attempt
}

/// The status, with a Job that was made a moment before and is not recorded yet: what it did is part of what is stopped.
pub(crate) fn as_it_stands<'a, R: Run>(situation: &'a Situation<'_, R>) -> NextStatus<'a, R> {
    match situation.current_job() {
        Some(job) => recorded(situation, job),
        None => recorded_gone(situation),
    }
}

/// The Job ended: so does the run, unless another attempt is allowed or another step follows.
fn conclude<R: Run>(situation: &Situation<'_, R>, job: &Job, ending: &Ending) -> Decision<R::Status> {
    let mut next = recorded(situation, job);
    let task = situation.task;
    let allowed = R::attempts_allowed(situation, Some(job));
    let timed_out = task.step().is_some() && ending.ran_out_of_time();
    let (of_job, of_attempt) = match ending.verdict {
        Verdict::Succeeded | Verdict::SucceededUnseen => return succeed(situation, next, ending),
        Verdict::Disrupted => (Reason::Disrupted, Reason::Disrupted),
        Verdict::Failed if timed_out => (Reason::JobFailed, Reason::WorkflowStepTimedOut),
        Verdict::Failed => (Reason::JobFailed, task.failed(Reason::JobFailed, 1)),
    };
    if let Some(attempt) = retry::next_attempt(situation, ending.verdict, allowed) {
        let why = Rejection::new(of_attempt, &ending.message);
        return retry::again(situation, next, &why, &attempt);
    }
    let reason = if timed_out {
        Reason::WorkflowStepTimedOut
    } else {
        task.failed(of_job, allowed)
    };
    report(&mut next, ending);
    let message = task.says(match situation.attempt.current() {
        1 => ending.message.clone(),
        number => format!("{}; that was attempt {number}, the last", ending.message),
    });
    // The run has failed for a reason of its own, so that what is wrong with what it left changes nothing.
    let _ = R::take_over(situation, &mut next, ending);
    next.failed(ending.at.unwrap_or(situation.now), &reason, &message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(reason, message)],
        ..Plan::nothing()
    })
}

/// The work is done: so is the run, unless another step follows.
pub(crate) fn succeed<R: Run>(
    situation: &Situation<'_, R>,
    mut next: NextStatus<'_, R>,
    ending: &Ending,
) -> Decision<R::Status> {
    let at = ending.at.unwrap_or(situation.now);
    let task = situation.task;
    let within = R::take_over(situation, &mut next, ending);
    let unseen = ending.verdict == Verdict::SucceededUnseen;
    let told = match within {
        Err(exceeded) => {
            let message = task.says(&exceeded.message);
            report(&mut next, ending);
            next.failed(at, &exceeded.reason, &message);
            Some(situation.warning(exceeded.reason, message))
        }
        Ok(()) => {
            let message = task.says(&ending.message);
            next.step_succeeded(task, at, ending.report.outputs.as_ref());
            if unseen {
                next.without_result(&message);
            }
            let following = following(situation.run, task);
            match following {
                Some(following) => {
                    R::delivered(&mut next, ending);
                    go_on(situation, &mut next, following);
                }
                None => {
                    report(&mut next, ending);
                    next.succeeded(at, &ending.message);
                }
            }
            match following {
                _ if unseen => Some(situation.warning(Reason::ResultUnavailable, message)),
                // A run has one Event for its start and one for its end.
                Some(_) => None,
                None if ending.message.is_empty() => {
                    Some(situation.normal(Reason::Completed, R::WORKER.done))
                }
                None => Some(situation.normal(Reason::Completed, ending.message.clone())),
            }
        }
    };
    Decision::Act(Plan {
        status: next.into_status(),
        notices: told.into_iter().collect(),
        ..Plan::nothing()
    })
}

/// Goes on to the next step. Its Job is made, and the one of this step let go, once the status says so.
fn go_on<R: Run>(situation: &Situation<'_, R>, next: &mut NextStatus<'_, R>, following: Task<'_>) {
    let attempt = Attempt::at(Place {
        step: following.number(),
        attempt: 1,
    });
    let key = situation.seen.key;
    let name: String = job::name(&key.name, attempt.place()).into();
    *next.status.course().runtime_ref = Some(attempt.stored(key, following, &name));
    next.going_on(&Reason::Running, &following.says("it is the next"));
}

/// Takes over what the agent or the tool reported.
pub(crate) fn report<R: Run>(next: &mut NextStatus<'_, R>, ending: &Ending) {
    *next.status.course().outcome = Some(ending.report.clone());
    R::delivered(next, ending);
}

/// Whether the current attempt came to an end of its own, before anybody stopped it.
pub(crate) fn ended_by_itself<R: Run>(situation: &Situation<'_, R>) -> bool {
    situation.current_job().is_some_and(|job| {
        let pods = situation.seen.pods_of(&jobs::uid(job.as_ref()));
        let by_itself = |pod: &Arc<Pod>| jobs::has_ended(pod) && !was_stopped::<R>(job, pod);
        pods.pods().iter().any(by_itself) || (pods.pods().is_empty() && own_end(job).is_some())
    })
}
