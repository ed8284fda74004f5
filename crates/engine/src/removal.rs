//! What a run that is over may still have outside of the cluster.
//!
//! A cancel that came to its deadline, and a run whose time was up, are over for whoever waits for them. What does their work
//! may not know yet: the controllers go on telling it, ever more rarely and for a bounded time, and `status.runtimeRef` says so
//! until they have. As with a pod, the slot of the run is taken for as long.

use std::time::Duration;

use jangar_api::{agents::agent_run::AgentRun, phase::RunPhase};
use jiff::Timestamp;

/// How long the controllers go on after the end of the run. Whoever cannot be told for that long has to be looked after by a
/// person, and must not hold a slot for ever.
pub(crate) const REMOVAL_MAX: Duration = Duration::from_hours(1);
/// How long to wait before whoever could not be told is told again, while somebody waits for it.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// The longest of the waits after that.
const AGAIN_MAX: Duration = Duration::from_mins(5);
/// The field of `status.runtimeRef` that says until when.
const FIELD: &str = "removingUntil";

/// Whether the run is over, and the controllers are still making its work end.
pub fn is_under_way(run: &AgentRun) -> bool {
    let Some(status) = &run.status else { return false };
    let over = status.phase.as_ref().is_some_and(RunPhase::is_terminal);
    let record = status.runtime_ref.as_ref();
    over && record.is_some_and(|record| record.0.get(FIELD).is_some_and(|until| !until.is_null()))
}

/// When whoever could not be told to stop is told again: `since` is when that began, `last` the last try, and `patience` how
/// long somebody waits for it.
pub(crate) fn again_at(since: Timestamp, last: Timestamp, patience: Duration) -> Timestamp {
    let lasted = Duration::try_from(last.duration_since(since)).unwrap_or_default();
    let wait = if lasted < patience {
        AGAIN_AFTER
    } else {
        (lasted / 2).clamp(AGAIN_AFTER, AGAIN_MAX)
    };
    last.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_somebody_cannot_be_told_the_more_rarely_it_is_tried() {
        let at = |second: i64| Timestamp::from_second(1_000 + second).expect("a time");
        let patience = Duration::from_mins(1);
        for (last, next) in [
            (0, 10),
            (50, 60),
            (60, 90),
            (90, 135),
            (600, 900),
            (3_000, 3_300),
            // The clock was set back.
            (-500, -490),
        ] {
            assert_eq!(again_at(at(0), at(last), patience), at(next), "{last}");
        }
    }
}
