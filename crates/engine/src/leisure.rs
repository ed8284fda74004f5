//! What nobody waits for gives way while there is much to do that somebody waits for.
//!
//! A Job that has ended, or a child whose end its parent has, is let go by a write that frees nothing and tells nobody anything. While
//! many runs begin and end, the API server has better things to do. So whoever wants to write such a thing asks here first, and is
//! put off for as long as much else is written, up to a bound.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{decision::Key, retention::Turn};

/// So many other writes within [`BUSY_WITHIN`] are much to do: some fifteen runs that begin and end. A person who applies a directory of
/// manifests causes fewer.
const BUSY_WRITES: usize = 50;
const BUSY_WITHIN: Duration = Duration::from_secs(1);
/// How long one can be put off in all. A Job is kept for thirty seconds at least after its end, so it is let go before it would go.
const PUT_OFF_MAX: Duration = Duration::from_secs(25);
/// When who was put off asks again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// How much there is to do, and who is put off because of it. Times are counted from any one moment.
#[derive(Debug, Default)]
pub struct Leisure {
    /// The latest writes that somebody waited for, no more than it takes to be busy.
    written: VecDeque<Duration>,
    /// Who was put off, and since when.
    waiting: BTreeMap<Key, Duration>,
}

impl Leisure {
    /// Something was written that somebody waited for.
    pub fn wrote(&mut self, now: Duration) {
        if self.written.len() >= BUSY_WRITES {
            self.written.pop_front();
        }
        self.written.push_back(now);
    }

    /// Somebody wants to write what nobody waits for.
    pub fn ask(&mut self, key: &Key, now: Duration) -> Turn {
        if !self.is_busy(now) {
            // Whoever else is waiting has its turn when it asks.
            self.waiting.clear();
            return Turn::Now;
        }
        let since = *self.waiting.entry(key.clone()).or_insert(now);
        let left = PUT_OFF_MAX.saturating_sub(now.saturating_sub(since));
        if left.is_zero() {
            self.waiting.remove(key);
            return Turn::Now;
        }
        Turn::In(left.min(ASK_AGAIN))
    }

    /// Whether much is written that somebody waits for.
    pub fn is_busy(&self, now: Duration) -> bool {
        let oldest = self.written.front();
        self.written.len() >= BUSY_WRITES
            && oldest.is_some_and(|oldest| now.saturating_sub(*oldest) < BUSY_WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(name: &str) -> Key {
        Key {
            namespace: "agents".to_owned(),
            name: name.to_owned(),
        }
    }

    /// Has written this often at this time.
    fn busy(leisure: &mut Leisure, now: Duration) {
        for _ in 0..BUSY_WRITES {
            leisure.wrote(now);
        }
    }

    #[test]
    fn where_little_is_written_nobody_is_put_off() {
        let mut leisure = Leisure::default();
        for _ in 1..BUSY_WRITES {
            leisure.wrote(SECOND);
        }

        assert_eq!(leisure.ask(&key("a"), SECOND), Turn::Now);
    }

    #[test]
    fn who_is_put_off_has_its_turn_when_the_crowd_is_gone() {
        let mut leisure = Leisure::default();
        busy(&mut leisure, SECOND);

        assert_eq!(leisure.ask(&key("a"), SECOND), Turn::In(ASK_AGAIN));
        assert_eq!(leisure.ask(&key("a"), SECOND + ASK_AGAIN), Turn::Now);
    }

    #[test]
    fn nobody_is_put_off_for_longer_than_the_bound() {
        let mut leisure = Leisure::default();
        let mut now = SECOND;
        let begun = now;
        loop {
            busy(&mut leisure, now);
            match leisure.ask(&key("a"), now) {
                Turn::Now => break,
                Turn::In(wait) => now += wait,
            }
        }

        assert_eq!(now.saturating_sub(begun), PUT_OFF_MAX);
        busy(&mut leisure, now);
        assert!(
            matches!(leisure.ask(&key("a"), now), Turn::In(_)),
            "the next thing begins to wait anew"
        );
    }
}
