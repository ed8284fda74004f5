//! Whether many pods begin at once, so that what is soon over need not be told.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

use super::lifecycle::after;

/// So many beginnings within [`WITHIN`] are a crowd: as many as a person never starts, and enough that each word about one of them makes
/// the others wait.
const MANY: usize = 25;
const WITHIN: Duration = Duration::from_secs(1);
/// In a crowd, how long after its beginning a pod is said to run. Many of those that are short have ended by then, and that is told at
/// once, with when they began.
pub(crate) const UNTOLD_MAX: Duration = Duration::from_millis(1500);

/// The latest beginnings, no more than it takes to be a crowd.
#[derive(Debug, Default)]
pub(crate) struct Crowd(Mutex<VecDeque<Timestamp>>);

impl Crowd {
    /// A pod has begun.
    pub(crate) fn note(&self, now: Timestamp) {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if begun.len() >= MANY {
            begun.pop_front();
        }
        begun.push_back(now);
    }

    pub(crate) fn is_there(&self, now: Timestamp) -> bool {
        let begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that lies ahead was noted before the clock was set back.
        let is_fresh = |first: &Timestamp| *first <= now && after(*first, WITHIN) >= now;
        begun.len() >= MANY && begun.front().is_some_and(is_fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_within_a_second_are_a_crowd_and_fewer_are_not() {
        let at = |millisecond| Timestamp::from_millisecond(millisecond).unwrap();
        let crowd = Crowd::default();
        for _ in 1..MANY {
            crowd.note(at(0));
        }
        assert!(!crowd.is_there(at(0)));
        crowd.note(at(900));
        assert!(crowd.is_there(at(1000)));
        assert!(!crowd.is_there(at(1001)), "the first was more than a second ago");
    }
}
