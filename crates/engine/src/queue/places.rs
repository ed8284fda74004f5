//! Places in the queue: the first so many of those who wait have one, in the order in which they were created.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::scope::{Lane, Scope};
use crate::decision::{Key, Uid};

/// When a run was created, and by what it is told from others of that time.
pub(super) type Arrival = (Timestamp, Uid, Key);

/// The places of every scope that has a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    scopes: BTreeMap<Scope, Rows>,
}

/// Those who wait in one scope. Nobody in `outside` came before anybody in `inside`.
#[derive(Clone, Debug, Default)]
struct Rows {
    inside: BTreeSet<Arrival>,
    outside: BTreeSet<Arrival>,
}

impl Places {
    pub(super) fn enter(&mut self, lane: &Lane, arrival: &Arrival, limit: impl Fn(&Scope) -> Option<u32>) {
        for scope in lane.scopes() {
            let Some(limit) = limit(&scope) else { continue };
            let rows = self.scopes.entry(scope).or_default();
            rows.inside.insert(arrival.clone());
            if rows.inside.len() > usize::try_from(limit).unwrap_or(usize::MAX)
                && let Some(last) = rows.inside.pop_last()
            {
                rows.outside.insert(last);
            }
        }
    }

    /// Leaves the queue. Returns those who got a place by that.
    pub(super) fn leave(&mut self, lane: &Lane, arrival: &Arrival) -> Vec<Key> {
        let mut promoted = Vec::new();
        for scope in lane.scopes() {
            let Some(rows) = self.scopes.get_mut(&scope) else {
                continue;
            };
            rows.outside.remove(arrival);
            if rows.inside.remove(arrival)
                && let Some(next) = rows.outside.pop_first()
            {
                promoted.push(next.2.clone());
                rows.inside.insert(next);
            }
            if rows.inside.is_empty() {
                self.scopes.remove(&scope);
            }
        }
        promoted
    }

    /// Whether there is no place for it.
    pub(super) fn is_outside(&self, scope: &Scope, arrival: &Arrival) -> bool {
        self.scopes
            .get(scope)
            .is_some_and(|rows| rows.outside.contains(arrival))
    }

    /// How many have a place.
    pub(super) fn taken(&self, scope: &Scope) -> usize {
        self.scopes.get(scope).map_or(0, |rows| rows.inside.len())
    }
}
