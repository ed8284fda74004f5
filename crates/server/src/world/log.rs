//! The changes of late, numbered, so that a client that was away goes on where it was.
//!
//! There is one list for all clients, with a bound: a client has no queue of its own, only a number. Who falls behind the oldest
//! entry is told to look at everything again.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::object::Object;

/// Some minutes of a busy cluster. An entry shares its object with the cache for as long as that has it.
const CHANGES_MAX: usize = 8_192;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Added,
    Modified,
    Deleted,
}

impl Action {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    pub number: u64,
    pub action: Action,
    pub object: Arc<Object>,
    /// What it was before, if it was there: for who looks at some of the objects only.
    pub before: Option<Arc<Object>>,
}

/// The changes of late.
#[derive(Debug)]
pub struct Log {
    /// Tells this process from the one before it and from other replicas, whose numbers mean something else.
    epoch: String,
    changes: Mutex<VecDeque<Change>>,
    latest: watch::Sender<u64>,
}

impl Log {
    pub(super) fn new(epoch: String) -> Self {
        Self {
            epoch,
            changes: Mutex::default(),
            latest: watch::Sender::new(0),
        }
    }

    pub(super) fn record(&self, action: Action, object: Arc<Object>, before: Option<Arc<Object>>) {
        let mut changes = self.lock();
        let number = *self.latest.borrow() + 1;
        changes.push_back(Change {
            number,
            action,
            object,
            before,
        });
        if changes.len() > CHANGES_MAX {
            changes.pop_front();
        }
        // Within the lock, so that whoever sees the number finds the change.
        self.latest.send_replace(number);
    }

    /// The number of the last change.
    pub fn latest(&self) -> u64 {
        *self.latest.borrow()
    }

    /// Tells of new numbers.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// What came after this number, at most so many; `None` if some of it is forgotten already.
    pub fn since(&self, number: u64, most: usize) -> Option<Vec<Change>> {
        let changes = self.lock();
        let oldest = changes
            .front()
            .map_or_else(|| self.latest() + 1, |change| change.number);
        // The number is what a client says, so it may be any: the first question keeps the sum from overflowing.
        if number > self.latest() || number + 1 < oldest {
            return None;
        }
        let skip = usize::try_from(number + 1 - oldest).unwrap_or(usize::MAX);
        Some(changes.iter().skip(skip).take(most).cloned().collect())
    }

    /// A number as clients keep it.
    pub fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.epoch)
    }

    /// The number that a client kept; `None` if it is of another process, or none at all.
    pub fn number(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.trim().rsplit_once('-')?;
        (epoch == self.epoch).then(|| number.parse().ok()).flatten()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Change>> {
        // An entry is added in one go, so a panic elsewhere leaves the list whole.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use jangar_api::Kind;
    use serde_json::json;

    use super::*;

    fn object() -> Arc<Object> {
        let object = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("an object");
        Arc::new(Object::read(Kind::Agent, object, true))
    }

    #[test]
    fn a_client_goes_on_where_it_was_or_learns_that_it_cannot() {
        let log = Log::new("e1".to_owned());
        assert!(log.since(0, 9).is_some_and(|changes| changes.is_empty()));
        for _ in 0..3 {
            log.record(Action::Added, object(), None);
        }
        let numbers = |from, most| {
            let changes = log.since(from, most)?;
            Some(changes.iter().map(|change| change.number).collect::<Vec<_>>())
        };
        assert_eq!(numbers(0, 9), Some(vec![1, 2, 3]));
        assert_eq!(numbers(1, 1), Some(vec![2]));
        assert_eq!(numbers(3, 9), Some(vec![]));
        assert_eq!(numbers(4, 9), None);
        assert_eq!(numbers(u64::MAX, 9), None);
        for _ in 0..CHANGES_MAX {
            log.record(Action::Modified, object(), None);
        }
        assert_eq!(numbers(2, 1), None);
        assert_eq!(numbers(3, 1), Some(vec![4]));
    }

    #[test]
    fn a_number_of_another_process_means_nothing() {
        let log = Log::new("e-1".to_owned());
        assert_eq!(log.number(&log.id(7)), Some(7));
        for id in ["", "7", "e-2-7", "e-1-x", "e-1-"] {
            assert_eq!(log.number(id), None, "{id}");
        }
    }
}
