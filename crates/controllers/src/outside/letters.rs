//! Reports on their way into the status of a run. Each is answered when there is nothing left to do about it.

use std::collections::BTreeMap;

use jangar_api::agents::agent_run::AgentRun;
use jangar_engine::{
    agent_run::receipt,
    custom::callback::{Callback, Receipt},
    decision::Key,
};
use tokio::sync::oneshot;

/// How many reports about one run wait at once. An endpoint sends one after the other.
const PER_RUN_MAX: usize = 8;
/// How many reports wait in all. Each holds a request open.
const LETTERS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Letters {
    waiting: BTreeMap<Key, Vec<Letter>>,
    count: usize,
}

#[derive(Debug)]
struct Letter {
    callback: Callback,
    /// Whether it was part of an observation.
    read: bool,
    answer: oneshot::Sender<Receipt>,
}

impl Letters {
    /// Takes a report in; `None` if too many wait.
    pub(super) fn post(&mut self, key: &Key, callback: Callback) -> Option<oneshot::Receiver<Receipt>> {
        self.forget_given_up(key);
        let of_run = self.waiting.get(key).map_or(0, Vec::len);
        if of_run >= PER_RUN_MAX || self.count >= LETTERS_MAX {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        self.waiting.entry(key.clone()).or_default().push(Letter {
            callback,
            read: false,
            answer,
        });
        self.count += 1;
        Some(answered)
    }

    /// Those for whose answer nobody waits any more.
    fn forget_given_up(&mut self, key: &Key) {
        if let Some(letters) = self.waiting.get_mut(key) {
            let before = letters.len();
            letters.retain(|letter| !letter.answer.is_closed());
            self.count -= before - letters.len();
        }
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.waiting.get(key).is_some_and(|letters| !letters.is_empty())
    }

    /// All reports about a run, which count as read from now on.
    pub(super) fn read(&mut self, key: &Key) -> Vec<Callback> {
        let letters = self.waiting.get_mut(key).into_iter().flatten();
        let read = letters.map(|letter| {
            letter.read = true;
            letter.callback.clone()
        });
        read.collect()
    }

    /// Answers those that were read; one that came later is still to be looked at.
    pub(super) fn answer(&mut self, key: &Key, run: Option<&AgentRun>) {
        let Some(letters) = self.waiting.remove(key) else {
            return;
        };
        let (read, unread): (Vec<Letter>, Vec<Letter>) = letters.into_iter().partition(|letter| letter.read);
        self.count -= read.len();
        for letter in read {
            // An error means that nobody waits any more.
            let _gave_up = letter.answer.send(receipt(run, &letter.callback));
        }
        if !unread.is_empty() {
            self.waiting.insert(key.clone(), unread);
        }
    }

    /// Drops all of them, which whoever waits for an answer notices.
    pub(super) fn discard(&mut self) {
        self.waiting.clear();
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use jangar_engine::{custom::callback::Report, decision::Uid};

    use super::*;

    fn key() -> Key {
        Key {
            namespace: "agents".to_owned(),
            name: "mend".to_owned(),
        }
    }

    fn callback() -> Callback {
        Callback {
            run: Uid("u".to_owned()),
            attempt: 1,
            report: Report::read(b"{\"status\": \"Running\"}").unwrap(),
        }
    }

    #[test]
    fn only_what_was_read_is_answered() {
        let mut letters = Letters::default();
        let mut first = letters.post(&key(), callback()).unwrap();
        assert_eq!(letters.read(&key()).len(), 1);
        let mut second = letters.post(&key(), callback()).unwrap();

        letters.answer(&key(), None);

        assert_eq!(first.try_recv(), Ok(Receipt::Gone));
        assert!(second.try_recv().is_err());
        assert!(letters.has(&key()));
        letters.discard();
        assert!(!letters.has(&key()));
    }

    #[test]
    fn a_run_has_a_few_letters_and_who_gave_up_makes_room() {
        let mut letters = Letters::default();
        let mut waiting: Vec<_> = (0..PER_RUN_MAX)
            .map(|_| letters.post(&key(), callback()).unwrap())
            .collect();
        assert!(letters.post(&key(), callback()).is_none());
        waiting.pop();
        assert!(letters.post(&key(), callback()).is_some());
    }
}
