//! How many runs are deleted in a minute.
//!
//! After a stop of a week, or when somebody sets a shorter retention, thousands of runs are due at once. Each deletion makes
//! Kubernetes remove a Job and pods as well, so that all of them together would hold up the work of those that live.

use std::{collections::VecDeque, time::Duration};

const MINUTE: Duration = Duration::from_mins(1);
/// A minute's deletions come in this many batches, so that they do not all come in its first second.
const BATCHES: u8 = 6;

/// Who may be deleted now. The time is that since the beginning of a leadership, by a clock that only counts forward: a time of
/// day that is set ahead makes runs due, but not more of them at once.
#[derive(Clone, Debug)]
pub struct Budget {
    per_minute: usize,
    /// When those were deleted that still count, the oldest first. It holds at most `per_minute`.
    spent: VecDeque<Duration>,
    /// Where the line of those that wait ends.
    line: Duration,
}

/// The answer to one who asks for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Now,
    /// Not before this long from now. It is a place in line, so that each asks again when there should be room for it, and
    /// not all of them every time.
    In(Duration),
}

impl Budget {
    /// A budget of so many in any minute; at least one, because otherwise nothing would ever end.
    pub fn new(per_minute: u32) -> Self {
        Self {
            per_minute: usize::try_from(per_minute).unwrap_or(usize::MAX).max(1),
            spent: VecDeque::new(),
            line: Duration::ZERO,
        }
    }

    /// Asks for one deletion. That it may be now counts as done.
    pub fn ask(&mut self, now: Duration) -> Turn {
        while self.spent.front().is_some_and(|at| *at + MINUTE <= now) {
            self.spent.pop_front();
        }
        let recent = self.spent.iter().rev();
        let recent = recent
            .take_while(|at| **at + MINUTE / u32::from(BATCHES) > now)
            .count();
        if self.spent.len() < self.per_minute && recent < self.batch() {
            self.spent.push_back(now);
            return Turn::Now;
        }
        self.line = self.line.max(now) + self.spacing();
        Turn::In(self.line.saturating_sub(now))
    }

    /// How many wait in line, as far as is known: those that have gone another way meanwhile count until their turn.
    pub fn waiting(&self, now: Duration) -> u64 {
        let left = self.line.saturating_sub(now).as_micros();
        let waiting = left.div_ceil(self.spacing().as_micros().max(1));
        u64::try_from(waiting).unwrap_or(u64::MAX)
    }

    fn batch(&self) -> usize {
        self.per_minute.div_ceil(usize::from(BATCHES))
    }

    /// How far the places in line are from each other.
    fn spacing(&self) -> Duration {
        let places = u32::try_from(self.per_minute).unwrap_or(u32::MAX);
        (MINUTE / places).max(Duration::from_micros(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    /// Lets so many be due at once, each asking again at its turn, and returns when each was deleted.
    fn drain(per_minute: u32, due: usize) -> (Vec<Duration>, usize) {
        let mut budget = Budget::new(per_minute);
        let mut asking: VecDeque<Duration> = std::iter::repeat_n(Duration::ZERO, due).collect();
        let (mut deleted, mut asked) = (Vec::new(), 0);
        while let Some(now) = asking.pop_front() {
            asked += 1;
            match budget.ask(now) {
                Turn::Now => deleted.push(now),
                Turn::In(wait) => {
                    let at = asking.partition_point(|other| *other <= now + wait);
                    asking.insert(at, now + wait);
                }
            }
        }
        (deleted, asked)
    }

    /// The most in any span of time that begins with a deletion.
    fn most_within(span: Duration, deleted: &[Duration]) -> usize {
        let within = |start: &Duration| {
            let later = deleted.iter().filter(|at| *at >= start && **at < *start + span);
            later.count()
        };
        deleted.iter().map(within).max().unwrap_or_default()
    }

    #[test]
    fn what_is_due_at_once_goes_in_batches_and_all_of_it_goes() {
        let (deleted, asked) = drain(300, 1_000);
        assert_eq!(deleted.len(), 1_000);
        assert_eq!(deleted.iter().filter(|at| at.is_zero()).count(), 50, "one batch");
        assert!(most_within(MINUTE, &deleted) <= 300);
        assert!(most_within(MINUTE / 6, &deleted) <= 50);
        let last = deleted.last().expect("some").as_secs();
        assert!((120..=300).contains(&last), "the last after {last} s");
        assert!(asked < 3_000, "{asked} asked, and most of them in vain");
    }

    #[test]
    fn a_few_do_not_wait() {
        let mut budget = Budget::new(300);
        for _ in 0..50 {
            assert_eq!(budget.ask(Duration::ZERO), Turn::Now);
        }
        assert_eq!(budget.waiting(Duration::ZERO), 0);
        assert_eq!(budget.ask(Duration::ZERO), Turn::In(Duration::from_millis(200)));
        assert_eq!(budget.ask(Duration::ZERO), Turn::In(Duration::from_millis(400)));
        assert_eq!(budget.waiting(Duration::ZERO), 2);
        assert_eq!(budget.waiting(Duration::from_secs(1)), 0);
    }

    proptest! {
        #[test]
        fn no_minute_has_more_than_the_bound_whenever_somebody_asks(
            per_minute in 1_u32..40, asks in proptest::collection::vec(0_u64..20_000, 1..300),
        ) {
            let mut budget = Budget::new(per_minute);
            let mut now = Duration::ZERO;
            let mut deleted = Vec::new();
            for pause in asks {
                now += Duration::from_millis(pause);
                if budget.ask(now) == Turn::Now {
                    deleted.push(now);
                }
            }
            prop_assert!(most_within(MINUTE, &deleted) <= usize::try_from(per_minute).unwrap_or_default());
        }

        #[test]
        fn everything_that_is_due_goes(per_minute in any::<u32>(), due in 1_usize..60) {
            let (deleted, _) = drain(per_minute.max(1), due);
            prop_assert!(deleted.len() == due);
        }
    }
}
