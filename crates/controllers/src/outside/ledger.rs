//! The calls that this process has begun. What stands in here is never begun again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jangar_engine::{
    custom::call::{Answer, CallId, CallState, Purpose},
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

/// What is known of one run is found without a look at the others: every reconcile asks.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    calls: BTreeMap<CallId, Entry>,
    /// The runs that have calls, by their key.
    runs: BTreeMap<Key, BTreeSet<Uid>>,
}

#[derive(Debug)]
struct Entry {
    state: CallState,
    /// Since when the run is over.
    over: Option<Instant>,
}

impl Ledger {
    /// Whether the call is to be begun: it was not yet.
    pub(super) fn begin(&mut self, id: &CallId, key: &Key) -> Result<bool, Full> {
        if self.calls.contains_key(id) {
            return Ok(false);
        }
        if self.calls.len() >= CALLS_MAX {
            self.forget();
        }
        if self.calls.len() >= CALLS_MAX {
            return Err(Full);
        }
        let entry = Entry {
            state: CallState::UnderWay,
            over: None,
        };
        self.calls.insert(id.clone(), entry);
        self.runs.entry(key.clone()).or_default().insert(id.run.clone());
        Ok(true)
    }

    /// Forgets what is long over.
    fn forget(&mut self) {
        self.calls
            .retain(|_, entry| entry.over.is_none_or(|over| over.elapsed() < KEPT));
        let left: BTreeSet<&Uid> = self.calls.keys().map(|id| &id.run).collect();
        self.runs.retain(|_, runs| {
            runs.retain(|run| left.contains(run));
            !runs.is_empty()
        });
    }

    pub(super) fn answered(&mut self, id: &CallId, answer: Answer) {
        if let Some(entry) = self.calls.get_mut(id) {
            entry.state = CallState::Answered(answer);
        }
    }

    pub(super) fn of_run(&self, run: &Uid) -> BTreeMap<CallId, CallState> {
        let mine = self
            .calls
            .range(first(run)..)
            .take_while(|(id, _)| id.run == *run);
        mine.map(|(id, entry)| (id.clone(), entry.state.clone()))
            .collect()
    }

    /// The run of this key is over.
    pub(super) fn over(&mut self, key: &Key) {
        for run in self.runs.get(key).into_iter().flatten() {
            let mine = self.calls.range_mut(first(run)..);
            for (_, entry) in mine.take_while(|(id, _)| id.run == *run) {
                entry.over.get_or_insert_with(Instant::now);
            }
        }
    }
}

/// What comes before every call of a run.
fn first(run: &Uid) -> CallId {
    CallId {
        run: run.clone(),
        purpose: Purpose::Submit,
        number: 0,
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn the_calls_of_a_run_are_found_among_those_of_others() {
        let mut ledger = Ledger::default();
        let call = |run: &str, purpose, number| CallId {
            run: Uid(run.to_owned()),
            purpose,
            number,
        };
        let mine = [
            call("b", Purpose::Submit, 1),
            call("b", Purpose::Submit, 2),
            call("b", Purpose::Cancel, 1),
        ];
        for id in [call("a", Purpose::Cancel, 9), call("b2", Purpose::Submit, 1)]
            .iter()
            .chain(&mine)
        {
            assert!(ledger.begin(id, &key(1)).unwrap());
        }
        let found: Vec<CallId> = ledger.of_run(&Uid("b".to_owned())).into_keys().collect();
        assert_eq!(found, mine);
        assert!(ledger.of_run(&Uid("c".to_owned())).is_empty());
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
        assert!(!ledger.runs.contains_key(&key(0)));
    }
}
