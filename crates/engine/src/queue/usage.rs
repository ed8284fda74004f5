//! What is taken of every limit, and who was let in lately.

use std::{collections::BTreeMap, ops::Bound};

use jiff::Timestamp;

use super::scope::{Lane, Scope};
use crate::{decision::Uid, settings::LimitSettings};

/// When which run was let in. A run is let in once for each of its Jobs, at different times.
pub(super) type Admission = (Timestamp, Uid);

/// How many slots are taken, and how many runs were let in within the window.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    slots: BTreeMap<Scope, u32>,
    /// Those of the window, oldest first. One stays although its objects are gone: it happened.
    recent: BTreeMap<Admission, Lane>,
    starts: BTreeMap<Scope, u32>,
}

impl Usage {
    pub(super) fn take(&mut self, lane: &Lane) {
        for scope in lane.scopes() {
            *self.slots.entry(scope).or_default() += 1;
        }
    }

    pub(super) fn give_back(&mut self, lane: &Lane) {
        for scope in lane.scopes() {
            lower(&mut self.slots, &scope);
        }
    }

    /// Counts an admission within the window, once. It is forgotten by [`Self::expire`].
    pub(super) fn admitted(
        &mut self,
        admission: &Admission,
        lane: &Lane,
        limits: &LimitSettings,
        now: Timestamp,
    ) {
        if is_counted(admission.0, limits, now)
            && self.recent.insert(admission.clone(), lane.clone()).is_none()
        {
            for scope in lane.scopes() {
                *self.starts.entry(scope).or_default() += 1;
            }
        }
    }

    /// What was let in and has not started after all does not count.
    pub(super) fn withdraw(&mut self, admission: &Admission) {
        if let Some(lane) = self.recent.remove(admission) {
            for scope in lane.scopes() {
                lower(&mut self.starts, &scope);
            }
        }
    }

    /// Forgets what has left the window, and returns the lanes that were concerned.
    pub(super) fn expire(&mut self, limits: &LimitSettings, now: Timestamp) -> Vec<Lane> {
        let counted = |at: Timestamp| is_counted(at, limits, now);
        let old = self
            .recent
            .keys()
            .take_while(|(at, _)| *at <= now && !counted(*at));
        let ahead = self
            .recent
            .range((Bound::Excluded((now, Uid(String::new()))), Bound::Unbounded))
            .map(|(admission, _)| admission)
            .filter(|(at, _)| !counted(*at));
        let gone: Vec<Admission> = old.chain(ahead).cloned().collect();
        let lanes = gone.iter().filter_map(|admission| self.recent.get(admission));
        let lanes = lanes.cloned().collect();
        for admission in &gone {
            self.withdraw(admission);
        }
        lanes
    }

    /// When the oldest admission leaves the window.
    pub(super) fn next_expiry(&self, limits: &LimitSettings) -> Option<Timestamp> {
        let ((oldest, _), _) = self.recent.first_key_value()?;
        oldest.checked_add(limits.rate.window).ok()
    }

    pub(super) fn slots(&self, scope: &Scope) -> u32 {
        self.slots.get(scope).copied().unwrap_or(0)
    }

    pub(super) fn starts(&self, scope: &Scope) -> u32 {
        self.starts.get(scope).copied().unwrap_or(0)
    }

    /// Whether one more would be too many, at once or within the window.
    pub(super) fn is_full(&self, scope: &Scope, limits: &LimitSettings) -> bool {
        concurrency_limit(scope, limits).is_some_and(|limit| self.slots(scope) >= limit)
            || self.is_fast(scope, limits)
    }

    /// Whether one more would be too many within the window.
    pub(super) fn is_fast(&self, scope: &Scope, limits: &LimitSettings) -> bool {
        rate_limit(scope, limits).is_some_and(|limit| self.starts(scope) >= limit)
    }
}

/// Whether an admission is within the window. One that is farther ahead than the window is long was stamped by a clock that
/// has been set back since; it would count for as long as it is ahead.
fn is_counted(at: Timestamp, limits: &LimitSettings, now: Timestamp) -> bool {
    let age = now.duration_since(at);
    age.unsigned_abs() < limits.rate.window
}

fn lower(counts: &mut BTreeMap<Scope, u32>, scope: &Scope) {
    if let Some(count) = counts.get_mut(scope) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(scope);
        }
    }
}

/// How many may be under way at once.
pub(super) fn concurrency_limit(scope: &Scope, limits: &LimitSettings) -> Option<u32> {
    let limits = &limits.concurrency;
    match scope {
        Scope::Agent { .. } => Some(limits.agent),
        Scope::Repository(name) => limits.repositories.as_ref()?.of(name),
        Scope::Namespace(_) => Some(limits.namespace),
        Scope::Cluster => Some(limits.cluster),
    }
}

/// How many may start within the window.
pub(super) fn rate_limit(scope: &Scope, limits: &LimitSettings) -> Option<u32> {
    let limits = &limits.rate;
    match scope {
        Scope::Agent { .. } => None,
        Scope::Repository(_) => limits.repository,
        Scope::Namespace(_) => limits.namespace,
        Scope::Cluster => limits.cluster,
    }
}

/// How many may wait.
pub(super) fn queue_limit(scope: &Scope, limits: &LimitSettings) -> Option<u32> {
    let limits = &limits.queue;
    match scope {
        Scope::Agent { .. } => None,
        Scope::Repository(_) => limits.repository,
        Scope::Namespace(_) => limits.namespace,
        Scope::Cluster => limits.cluster,
    }
}
