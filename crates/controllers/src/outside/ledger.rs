//! The calls that this process has begun. What stands in here is never begun again.

use std::{collections::BTreeMap, time::Duration};

use jangar_engine::{
    custom::call::{Answer, CallId, CallState},
    decision::{Key, Uid},
};
use thiserror::Error;
use tokio::time::Instant;

/// How many calls are remembered. A run under way has one or two, so that this is more than a cluster has of them.
const CALLS_MAX: usize = 20_000;
/// How long the calls of a run that is over are remembered: longer than any cache can be behind. A cache that shows the run as
/// it was must not lead to a call that was made.
const KEPT: Duration = Duration::from_hours(1);

/// Too many calls are remembered to begin another one. Forgetting one could make it happen twice.
#[derive(Clone, Copy, Debug, Error)]
#[error("{CALLS_MAX} calls of endpoints are remembered already")]
pub struct Full;

#[derive(Debug, Default)]
pub(super) struct Ledger(BTreeMap<CallId, Entry>);

#[derive(Debug)]
struct Entry {
    key: Key,
    state: CallState,
    /// Since when the run is over.
    over: Option<Instant>,
}

impl Ledger {
    /// Whether the call is to be begun: it was not yet.
    pub(super) fn begin(&mut self, id: &CallId, key: &Key) -> Result<bool, Full> {
        if self.0.contains_key(id) {
            return Ok(false);
        }
        if self.0.len() >= CALLS_MAX {
            self.0
                .retain(|_, entry| entry.over.is_none_or(|over| over.elapsed() < KEPT));
        }
        if self.0.len() >= CALLS_MAX {
            return Err(Full);
        }
        let entry = Entry {
            key: key.clone(),
            state: CallState::UnderWay,
            over: None,
        };
        self.0.insert(id.clone(), entry);
        Ok(true)
    }

    pub(super) fn answered(&mut self, id: &CallId, answer: Answer) {
        if let Some(entry) = self.0.get_mut(id) {
            entry.state = CallState::Answered(answer);
        }
    }

    pub(super) fn of_run(&self, run: &Uid) -> BTreeMap<CallId, CallState> {
        let mine = self.0.iter().filter(|(id, _)| id.run == *run);
        mine.map(|(id, entry)| (id.clone(), entry.state.clone()))
            .collect()
    }

    /// The run of this key is over.
    pub(super) fn over(&mut self, key: &Key) {
        for entry in self.0.values_mut().filter(|entry| entry.key == *key) {
            entry.over.get_or_insert_with(Instant::now);
        }
    }
}

#[cfg(test)]
mod tests {
    use jangar_engine::custom::call::Purpose;

    use super::*;

    fn id(run: usize) -> CallId {
        CallId {
            run: Uid(run.to_string()),
            purpose: Purpose::Submit,
            number: 1,
        }
    }

    fn key(name: usize) -> Key {
        Key {
            namespace: "agents".to_owned(),
            name: name.to_string(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_begun_once_also_after_its_run_is_over() {
        let mut ledger = Ledger::default();
        assert!(ledger.begin(&id(1), &key(1)).unwrap());
        assert!(!ledger.begin(&id(1), &key(1)).unwrap());
        ledger.answered(&id(1), Answer::Taken { response: None });
        ledger.over(&key(1));
        assert!(!ledger.begin(&id(1), &key(1)).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_ledger_forgets_only_what_is_long_over() {
        let mut ledger = Ledger::default();
        for number in 0..CALLS_MAX {
            assert!(ledger.begin(&id(number), &key(number)).unwrap());
        }
        assert!(ledger.begin(&id(CALLS_MAX), &key(CALLS_MAX)).is_err());
        ledger.over(&key(0));
        assert!(ledger.begin(&id(CALLS_MAX), &key(CALLS_MAX)).is_err());
        tokio::time::advance(KEPT).await;
        assert!(ledger.begin(&id(CALLS_MAX), &key(CALLS_MAX)).unwrap());
        assert!(!ledger.begin(&id(1), &key(1)).unwrap());
    }
}
