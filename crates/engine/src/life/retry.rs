//! Another attempt after one that ended badly.

use jiff::Timestamp;

use super::{
    NextStatus, Run, RunStatus, Situation, attempt::Attempt, leftovers::after, outcome::Verdict, task::Task,
};
use crate::{
    decision::{Decision, Plan, Rejection},
    job,
};

/// How often a run, or a step, may lose its pod to its node before that counts as a failure.
const DISRUPTIONS_MAX: u32 = 5;

/// The attempt that follows, if there is one left. `allowed` is how many the run, or the step, has in all.
pub(crate) fn next_attempt<R: Run>(
    situation: &Situation<'_, R>,
    verdict: Verdict,
    allowed: u32,
) -> Option<Attempt> {
    let so_far = &situation.attempt;
    let mut next = Attempt {
        number: so_far.current() + 1,
        job: None,
        first_seen: None,
        given_up: None,
        ..so_far.clone()
    };
    if verdict == Verdict::Disrupted && so_far.disruptions < DISRUPTIONS_MAX {
        next.disruptions += 1;
        next.not_before = Some(situation.now);
        return Some(next);
    }
    next.failures += 1;
    let wait = situation
        .task
        .backoff(next.failures, &situation.uid, so_far.current_place());
    next.not_before = Some(after(situation.now, wait));
    (next.failures < allowed).then_some(next)
}

/// Goes on to the next attempt. The Job of this one is let go once the status says so.
pub(crate) fn again<R: Run>(
    situation: &Situation<'_, R>,
    mut next: NextStatus<'_, R>,
    why: &Rejection,
    attempt: &Attempt,
) -> Decision<R::Status> {
    let key = situation.seen.key;
    let name: String = job::name(&key.name, attempt.current_place()).into();
    *next.status.course().runtime_ref = Some(attempt.stored(key, situation.task, &name));
    let due = attempt.not_before.unwrap_or(situation.now);
    let message = format!(
        "attempt {} ended: {}; attempt {} starts at {due}",
        situation.attempt.current(),
        why.message,
        attempt.number
    );
    next.going_on(&why.reason, &situation.task.says(&message));
    next.step_retrying(situation.task, due, &message);
    Decision::Act(Plan {
        status: next.into_status(),
        wake_at: Some(due),
        ..Plan::nothing()
    })
}

/// Until when the next attempt has to wait. A time farther away than any wait was written before the clock was set back.
pub(crate) fn waits_until(attempt: &Attempt, task: Task<'_>, now: Timestamp) -> Option<Timestamp> {
    attempt
        .not_before
        .filter(|due| *due > now && *due <= after(now, task.backoff_max()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_wait_from_before_the_clock_was_set_back_is_over() {
        let now = Timestamp::UNIX_EPOCH;
        let waits = |seconds| {
            let attempt = Attempt {
                not_before: Some(after(now, Duration::from_secs(seconds))),
                ..Attempt::default()
            };
            waits_until(&attempt, Task::Whole, now).is_some()
        };
        assert_eq!([0, 1, 360, 361].map(waits), [false, true, true, false]);
    }
}
