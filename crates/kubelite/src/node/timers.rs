//! What has to be looked at again, and when.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

/// At most one time per key.
#[derive(Debug)]
pub(super) struct Timers<K> {
    by_time: BTreeSet<(Timestamp, K)>,
    by_key: BTreeMap<K, Timestamp>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self {
            by_time: BTreeSet::new(),
            by_key: BTreeMap::new(),
        }
    }
}

impl<K: Clone + Ord> Timers<K> {
    /// Makes a key due at this time, or earlier if it is due earlier already.
    pub(super) fn add(&mut self, key: K, at: Timestamp) {
        if self.by_key.get(&key).is_none_or(|known| *known > at) {
            self.remove(&key);
            self.by_key.insert(key.clone(), at);
            self.by_time.insert((at, key));
        }
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some(at) = self.by_key.remove(key) {
            self.by_time.remove(&(at, key.clone()));
        }
    }

    /// Takes out the keys that are due, by time and then by key, but not more than `most`.
    pub(super) fn take_due(&mut self, now: Timestamp, most: usize) -> Vec<K> {
        let mut due = Vec::new();
        while due.len() < most
            && let Some((at, _)) = self.by_time.first()
            && *at <= now
            && let Some((_, key)) = self.by_time.pop_first()
        {
            self.by_key.remove(&key);
            due.push(key);
        }
        due
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn earliest_time_of_a_key_wins_and_is_due_once() {
        let mut timers = Timers::default();
        timers.add("b", at(5));
        timers.add("b", at(3));
        timers.add("b", at(9));
        timers.add("a", at(3));
        timers.add("c", at(4));
        timers.add("d", at(1));
        timers.remove(&"d");
        assert_eq!(timers.next(), Some(at(3)));
        assert_eq!(timers.take_due(at(2), 9), Vec::<&str>::new());
        assert_eq!(timers.take_due(at(4), 2), ["a", "b"]);
        assert_eq!(timers.next(), Some(at(4)), "what is left stays due");
        assert_eq!(timers.take_due(at(4), 2), ["c"]);
        assert_eq!(timers.next(), None);
    }
}
