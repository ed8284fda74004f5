//! Another attempt after one that ended badly.

use std::time::Duration;

use jangar_api::{agents::agent_run::AgentRunStatus, reason::Reason};
use jiff::Timestamp;

use super::{
    NextStatus, Situation,
    attempt::Attempt,
    leftovers::after,
    outcome::{Ending, Verdict},
};
use crate::{
    decision::{Decision, Plan},
    job,
};

/// How often a run may lose its pod to its node before that counts as a failure.
const DISRUPTIONS_MAX: u32 = 5;
/// How long the second attempt waits, as Kubernetes does with `backoffLimit`; each later one twice as long.
const BACKOFF_FIRST: Duration = Duration::from_secs(10);
/// The longest wait before an attempt.
const BACKOFF_MAX: Duration = Duration::from_mins(6);

/// The attempt that follows, if there is one left. `allowed` is how many the run has in all.
pub(super) fn next_attempt(situation: &Situation<'_>, verdict: Verdict, allowed: u32) -> Option<Attempt> {
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
    next.not_before = Some(after(situation.now, backoff(next.failures)));
    (next.failures < allowed).then_some(next)
}

/// Goes on to the next attempt. The Job of this one is let go once the status says so.
pub(super) fn again(
    situation: &Situation<'_>,
    mut next: NextStatus<'_>,
    ending: &Ending,
    attempt: &Attempt,
) -> Decision<AgentRunStatus> {
    let name: String = job::name(&situation.observed.key.name, attempt.number).into();
    next.status.runtime_ref = Some(attempt.stored(&situation.observed.key.namespace, &name));
    let due = attempt.not_before.unwrap_or(situation.now);
    let reason = match ending.verdict {
        Verdict::Disrupted => Reason::Disrupted,
        Verdict::Failed | Verdict::Succeeded | Verdict::SucceededUnseen => Reason::JobFailed,
    };
    next.retrying(
        &reason,
        &format!(
            "attempt {} ended: {}; attempt {} starts at {due}",
            situation.attempt.current(),
            ending.message,
            attempt.number
        ),
    );
    Decision::Act(Plan {
        status: next.into_status(),
        wake_at: Some(due),
        ..Plan::nothing()
    })
}

/// Until when the next attempt has to wait. A time farther away than any wait was written before the clock was set back.
pub(super) fn waits_until(attempt: &Attempt, now: Timestamp) -> Option<Timestamp> {
    attempt
        .not_before
        .filter(|due| *due > now && *due <= after(now, BACKOFF_MAX))
}

/// How long to wait after the given number of failures.
fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (BACKOFF_FIRST * 2_u32.pow(doublings)).min(BACKOFF_MAX)
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
    fn a_wait_from_before_the_clock_was_set_back_is_over() {
        let now = Timestamp::UNIX_EPOCH;
        let waits = |seconds| {
            let attempt = Attempt {
                not_before: Some(after(now, Duration::from_secs(seconds))),
                ..Attempt::default()
            };
            waits_until(&attempt, now).is_some()
        };
        assert_eq!([0, 1, 360, 361].map(waits), [false, true, true, false]);
    }
}
