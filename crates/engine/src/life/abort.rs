//! A run, or one attempt of it, that is given up while its Job is there: the pod is stopped first, then the run fails, or the
//! next attempt starts.

use jangar_api::{labels, reason::Reason};
use kube::ResourceExt;

use super::{
    Run, RunStatus, Situation, follow, jobs,
    leftovers::{self, Stopping},
    outcome::Verdict,
    retry,
};
use crate::decision::{Decision, Plan, Rejection};

/// Why the run, or its current attempt, is given up, if it is.
pub(crate) fn reason<R: Run>(situation: &Situation<'_, R>) -> Option<Rejection> {
    let enforced = situation.settings.runs.immutability_enforced || has_foreign_job(situation);
    if enforced && let Some(message) = edited(situation) {
        return Some(Rejection::new(Reason::SpecImmutableViolation, message));
    }
    situation.attempt.given_up.clone()
}

/// Whether it has a Job for a task that its spec does not have: it was made another kind of run, or lost steps. What the Job does
/// has no place in it any more.
fn has_foreign_job<R: Run>(situation: &Situation<'_, R>) -> bool {
    jobs::of_run(&situation.seen, situation.run)
        .filter_map(|job| jobs::place(job))
        .any(|place| situation.run.task(place.step).is_none())
}

/// What to say if the spec is not the one that was accepted, by the status or by a Job that was made for it.
pub(crate) fn edited<R: Run>(situation: &Situation<'_, R>) -> Option<String> {
    let of_job = || {
        let mut jobs = jobs::of_run(&situation.seen, situation.run);
        jobs.find_map(|job| job.annotations().get(labels::SPEC_HASH))
    };
    let accepted = situation.status.spec_hash().or_else(of_job)?;
    (*accepted != situation.run.spec_hash()).then(|| {
        "the spec was changed after the run was accepted: submit a new run with the changed spec instead"
            .to_owned()
    })
}

/// What follows when the pod has stopped.
enum Sequel {
    /// The run fails.
    End,
    /// Another attempt, if there is one left.
    Another(Verdict),
}

impl Sequel {
    fn of(reason: &Reason) -> Self {
        match reason {
            Reason::WorkflowStepTimedOut | Reason::TimedOut => Self::Another(Verdict::Failed),
            Reason::NodeLost => Self::Another(Verdict::Disrupted),
            _ => Self::End,
        }
    }
}

/// Stops the Jobs of the run, and lets it fail when they have stopped, or goes on with another attempt.
pub(crate) fn plan<R: Run>(situation: &Situation<'_, R>, rejection: Rejection) -> Decision<R::Status> {
    let sequel = Sequel::of(&rejection.reason);
    if matches!(sequel, Sequel::Another(_)) && follow::ended_by_itself(situation) {
        // What was finished before it was stopped is not done again.
        return follow::plan(situation);
    }
    let mut next = follow::as_it_stands(situation);
    next.warn(&rejection.reason, &rejection.message);
    match leftovers::stop_run(situation) {
        Stopping::Unsure(question) => Decision::look(question),
        Stopping::Going { effects, wake_at } => Decision::Act(Plan {
            effects,
            status: next.into_status(),
            wake_at,
            ..Plan::nothing()
        }),
        Stopping::Stopped => {
            let allowed = R::attempts_allowed(situation, situation.current_job().map(AsRef::as_ref));
            if let Sequel::Another(verdict) = sequel
                && let Some(attempt) = retry::next_attempt(situation, verdict, allowed)
            {
                return retry::again(situation, next, &rejection, &attempt);
            }
            next.failed(situation.now, &rejection.reason, &rejection.message);
            Decision::Act(Plan {
                status: next.into_status(),
                notices: vec![situation.warning(rejection.reason, rejection.message)],
                ..Plan::nothing()
            })
        }
    }
}
