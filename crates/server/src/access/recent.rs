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

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let inner = self.lock();
        let (since, value) = inner.entries.get(key)?;
        (since.elapsed() < self.age_max).then(|| value.clone())
    }

    /// Keeps an answer. What is too old goes, and the oldest where there is no room.
    pub(crate) fn put(&self, key: K, value: V) {
        let now = Instant::now();
        let mut inner = self.lock();
        let Inner { entries, order } = &mut *inner;
        entries.insert(key.clone(), (now, value));
        order.push_back((now, key));
        while let Some((since, oldest)) = order.front() {
            let too_old = since.elapsed() >= self.age_max;
            if !too_old && order.len() <= self.entries_max {
                break;
            }
            if entries.get(oldest).is_some_and(|(kept, _)| kept == since) {
                entries.remove(oldest);
            }
            order.pop_front();
        }
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

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_forgotten_when_it_is_old_or_when_there_is_no_room() {
        let recent = Recent::new(Duration::from_secs(10), 2);
        recent.put("a", 1);
        tokio::time::advance(Duration::from_secs(4)).await;
        recent.put("b", 2);
        assert_eq!((recent.get(&"a"), recent.get(&"b")), (Some(1), Some(2)));
        recent.put("c", 3);
        assert_eq!((recent.get(&"a"), recent.get(&"c")), (None, Some(3)));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!((recent.get(&"b"), recent.get(&"c")), (None, None));
        recent.put("d", 4);
        assert_eq!(recent.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_given_again_counts_from_then() {
        let recent = Recent::new(Duration::from_secs(10), 8);
        recent.put("a", 1);
        tokio::time::advance(Duration::from_secs(6)).await;
        recent.put("a", 2);
        tokio::time::advance(Duration::from_secs(6)).await;
        recent.put("b", 3);
        assert_eq!(recent.get(&"a"), Some(2));
    }
}
