//! What those who wait were told: the limit of each, and who was told of one that does not bite any more.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    scope::Scope,
    usage::{Usage, concurrency_limit},
};
use crate::{decision::Key, settings::LimitSettings, waiting::Gate};

/// The gate that a waiting run was told of, for whoever counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Told {
    Agent,
    Repository,
    Namespace,
    Cluster,
    Queue,
    Rate,
}

/// The limit that a waiting run was told of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Limit {
    pub gate: Told,
    scope: Scope,
}

impl Limit {
    pub(super) fn of(gate: &Gate) -> Option<Self> {
        let (told, full) = match gate {
            Gate::Concurrency(full) => {
                let told = match full.scope {
                    Scope::Agent { .. } => Told::Agent,
                    Scope::Repository(_) => Told::Repository,
                    Scope::Namespace(_) => Told::Namespace,
                    Scope::Cluster => Told::Cluster,
                };
                (told, full)
            }
            Gate::Queue(full) => (Told::Queue, full),
            Gate::Rate { full, .. } => (Told::Rate, full),
            _ => return None,
        };
        Some(Self {
            gate: told,
            scope: full.scope.clone(),
        })
    }

    /// Whether it keeps runs from starting.
    fn bites(&self, usage: &Usage, limits: &LimitSettings) -> bool {
        match self.gate {
            Told::Agent | Told::Repository | Told::Namespace | Told::Cluster => {
                let limit = concurrency_limit(&self.scope, limits);
                limit.is_some_and(|limit| usage.slots(&self.scope) >= limit)
            }
            Told::Rate => usage.is_fast(&self.scope, limits),
            // Whoever gets a place is told at once.
            Told::Queue => true,
        }
    }
}

/// Who was told what.
#[derive(Clone, Debug, Default)]
pub(super) struct Tellings {
    counts: BTreeMap<Told, usize>,
    who: BTreeMap<Limit, BTreeSet<Key>>,
}

impl Tellings {
    /// How many wait at each gate.
    pub(super) const fn counts(&self) -> &BTreeMap<Told, usize> {
        &self.counts
    }

    pub(super) fn change(&mut self, key: &Key, before: Option<&Limit>, after: Option<&Limit>) {
        if before == after {
            return;
        }
        if let Some(limit) = before {
            if let Some(count) = self.counts.get_mut(&limit.gate) {
                *count = count.saturating_sub(1);
            }
            if let Some(keys) = self.who.get_mut(limit) {
                keys.remove(key);
                if keys.is_empty() {
                    self.who.remove(limit);
                }
            }
        }
        if let Some(limit) = after {
            *self.counts.entry(limit.gate).or_default() += 1;
            self.who.entry(limit.clone()).or_default().insert(key.clone());
        }
    }

    /// So many at most of those who were told of a limit that does not bite any more: another one keeps them.
    pub(super) fn outdated(&self, at_most: usize, usage: &Usage, limits: &LimitSettings) -> BTreeSet<Key> {
        let passed = self.who.iter().filter(|(limit, _)| !limit.bites(usage, limits));
        passed.flat_map(|(_, keys)| keys).take(at_most).cloned().collect()
    }
}
