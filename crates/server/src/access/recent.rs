//! What was learned a moment ago: a small cache with a bound and an age.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Answers that are good for a while.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    age_max: Duration,
    entries_max: usize,
    inner: Mutex<Inner<K, V>>,
}

#[derive(Debug)]
struct Inner<K, V> {
    entries: HashMap<K, (Instant, V)>,
    /// In the order of their age. An entry that was replaced stands here twice, and the older mention is passed over.
    order: VecDeque<(Instant, K)>,
}

impl<K: Clone + Eq + Hash, V: Clone> Recent<K, V> {
    pub(crate) fn new(age_max: Duration, entries_max: usize) -> Self {
        Self {
            age_max,
            entries_max,
            inner: Mutex::new(Inner {
                entries: HashMap::new(),
                order: VecDeque::new(),
            }),
        }
    }

    pub(crate) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let inner = self.lock();
        let (since, value) = inner.entries.get(key)?;
        self.is_young(*since, now).then(|| value.clone())
    }

    /// Keeps an answer. What is too old goes, and the oldest where there is no room.
    pub(crate) fn put(&self, key: K, value: V, now: Instant) {
        let mut inner = self.lock();
        let Inner { entries, order } = &mut *inner;
        entries.insert(key.clone(), (now, value));
        order.push_back((now, key));
        while let Some((since, oldest)) = order.front() {
            if self.is_young(*since, now) && order.len() <= self.entries_max {
                break;
            }
            if entries.get(oldest).is_some_and(|(kept, _)| kept == since) {
                entries.remove(oldest);
            }
            order.pop_front();
        }
    }

    fn is_young(&self, since: Instant, now: Instant) -> bool {
        now.saturating_duration_since(since) < self.age_max
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner<K, V>> {
        // Every change is made in one go, so a panic elsewhere leaves it whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_forgotten_when_it_is_old_or_when_there_is_no_room() {
        let recent = Recent::new(Duration::from_secs(10), 2);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        recent.put("a", 1, at(0));
        recent.put("b", 2, at(4));
        assert_eq!(
            (recent.get(&"a", at(4)), recent.get(&"b", at(4))),
            (Some(1), Some(2))
        );
        recent.put("c", 3, at(4));
        assert_eq!(
            (recent.get(&"a", at(4)), recent.get(&"c", at(4))),
            (None, Some(3))
        );
        assert_eq!((recent.get(&"b", at(14)), recent.get(&"c", at(14))), (None, None));
        recent.put("d", 4, at(14));
        assert_eq!(recent.len(), 1);
    }

    #[test]
    fn an_answer_that_is_given_again_counts_from_then() {
        let recent = Recent::new(Duration::from_secs(10), 8);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        recent.put("a", 1, at(0));
        recent.put("a", 2, at(6));
        recent.put("b", 3, at(12));
        assert_eq!(recent.get(&"a", at(12)), Some(2));
    }
}
