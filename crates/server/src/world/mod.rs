//! All objects of Jangar's kinds, as watches show them: one watch for each kind and namespace, or for each kind where all
//! namespaces are looked after, whatever the number of clients.

mod failure;
mod gates;
mod log;
mod object;
mod selector;
mod shelf;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use jangar_api::Kind;
use jangar_engine::{queue::Lane, settings::Namespaces};
use tokio::sync::watch as signal;

use self::{
    failure::{Failing, Failure},
    gates::Gates,
    shelf::{Put, Shelf},
};
pub use self::{
    log::{Action, Change, Log},
    object::{Object, Place},
    selector::Selector,
    watch::{Watches, start},
};
pub(crate) use self::{object::text, watch::resource};
use crate::metrics::Metrics;

/// Which objects a list is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Absent: all namespaces.
    pub namespace: Option<String>,
    pub selector: Selector,
    pub phase: Option<String>,
    pub runtime: Option<String>,
    pub subject: Option<String>,
    /// In lower case.
    pub words: Vec<String>,
}

impl Filter {
    pub fn matches(&self, object: &Object) -> bool {
        let same = |wanted: &Option<String>, found: Option<&str>| {
            wanted
                .as_deref()
                .is_none_or(|wanted| found.is_some_and(|found| found.eq_ignore_ascii_case(wanted)))
        };
        self.namespace
            .as_ref()
            .is_none_or(|namespace| *namespace == object.namespace)
            && same(&self.phase, object.phase.as_deref())
            && same(&self.runtime, object.runtime.as_deref())
            && self
                .subject
                .as_ref()
                .is_none_or(|subject| object.subject.as_ref() == Some(subject))
            && self.selector.matches(&object.labels)
            && object.contains(&self.words)
    }
}

/// What happened to an object, and what it was before.
type Changed = (Action, Arc<Object>, Option<Arc<Object>>);

/// The caches of all kinds.
#[derive(Debug)]
pub struct World {
    shelves: BTreeMap<Kind, RwLock<Shelf>>,
    pub log: Log,
    namespaces: Namespaces,
    /// What is not listed yet, and why: kind and namespace.
    missing: signal::Sender<BTreeMap<(Kind, String), Failure>>,
    /// Which watches fail although they were listed once.
    failing: Mutex<BTreeMap<(Kind, String), Failing>>,
    /// By namespace and name: an object that took the place of another one took its wait as well.
    waiting: Mutex<BTreeMap<(String, String), Lane>>,
    gates: Mutex<Gates>,
    metrics: Arc<Metrics>,
}

impl World {
    /// Empty caches. `epoch` tells the numbers of this process from those of others.
    pub fn new(namespaces: Namespaces, epoch: String, metrics: Arc<Metrics>) -> Self {
        let scopes = scopes(&namespaces);
        let missing = Kind::ALL.iter().flat_map(|kind| {
            let yet = |scope: &String| ((*kind, scope.clone()), Failure::none());
            scopes.iter().map(yet)
        });
        Self {
            shelves: Kind::ALL.iter().map(|kind| (*kind, RwLock::default())).collect(),
            log: Log::new(epoch),
            missing: signal::Sender::new(missing.collect()),
            failing: Mutex::default(),
            namespaces,
            waiting: Mutex::default(),
            gates: Mutex::default(),
            metrics,
        }
    }

    /// Whether the caches hold the objects of this namespace.
    pub fn covers(&self, namespace: &str) -> bool {
        match &self.namespaces {
            Namespaces::All => true,
            Namespaces::These(these) => these.contains(namespace),
        }
    }

    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.shelf(kind)?.get(namespace, name).cloned()
    }

    pub fn by_uid(&self, kind: Kind, uid: &str) -> Option<Arc<Object>> {
        self.shelf(kind)?.by_uid(uid).cloned()
    }

    /// The first so many objects after a place that the filter lets through, the newest first.
    pub fn list(&self, kind: Kind, filter: &Filter, after: Option<&Place>, most: usize) -> Vec<Arc<Object>> {
        let Some(shelf) = self.shelf(kind) else {
            return Vec::new();
        };
        let matching = shelf.after(after).filter(|object| filter.matches(object));
        matching.take(most).cloned().collect()
    }

    /// How many there are in each phase.
    pub fn phases(&self, kind: Kind, filter: &Filter) -> BTreeMap<String, usize> {
        let mut phases = BTreeMap::new();
        if let Some(shelf) = self.shelf(kind) {
            for object in shelf.after(None).filter(|object| filter.matches(object)) {
                let phase = object.phase.clone().unwrap_or_else(|| "Pending".to_owned());
                *phases.entry(phase).or_default() += 1;
            }
        }
        phases
    }

    /// What the AgentRuns wait for that wait for their turn.
    pub fn waiting(&self) -> Vec<Lane> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.values().cloned().collect()
    }

    /// What is not listed yet, in words for everybody: they name no namespace, and nothing that the API server said.
    pub fn missing(&self) -> Vec<String> {
        let missing = self.missing.borrow();
        let mut counts: BTreeMap<(Kind, &str), usize> = BTreeMap::new();
        for ((kind, _), failure) in &*missing {
            *counts.entry((*kind, failure.sort)).or_default() += 1;
        }
        let told = |((kind, sort), count): (&(Kind, &str), &usize)| {
            let namespaces = match (&self.namespaces, *count) {
                (Namespaces::All, _) => "in all namespaces".to_owned(),
                (_, 1) => "in one namespace".to_owned(),
                (_, count) => format!("in {count} namespaces"),
            };
            format!("{} {namespaces}: {sort}", kind.info().plural)
        };
        counts.iter().map(told).collect()
    }

    /// The kinds that are not listed in this namespace, and why.
    pub fn missing_in(&self, namespace: &str) -> BTreeMap<Kind, String> {
        let missing = self.missing.borrow();
        let here = missing.iter().filter(|((_, scope), _)| is_of(scope, namespace));
        here.map(|((kind, _), failure)| (*kind, failure.words.clone()))
            .collect()
    }

    /// The kinds whose watches have failed for so long that what the caches have of them may be old.
    pub fn stale(&self) -> BTreeSet<Kind> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = failing.iter().filter(|(_, failing)| failing.is_stale());
        stale.map(|((kind, _), _)| *kind).collect()
    }

    /// The same of one namespace, and why.
    pub fn stale_in(&self, namespace: &str) -> BTreeMap<Kind, String> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let here = failing
            .iter()
            .filter(|((_, scope), failing)| is_of(scope, namespace) && failing.is_stale());
        here.map(|((kind, _), failing)| (*kind, failing.why.clone()))
            .collect()
    }

    /// Counts them. Watches that are well again do not say so, so that somebody has to look from time to time.
    fn count_stale(&self) {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = failing.values().filter(|failing| failing.is_stale()).count();
        self.metrics.stale_watches(stale);
    }

    /// Waits until everything was listed once.
    pub async fn complete(&self) {
        // The sender is ours, so waiting cannot fail.
        let _ = self.missing.subscribe().wait_for(BTreeMap::is_empty).await;
    }

    fn shelf(&self, kind: Kind) -> Option<RwLockReadGuard<'_, Shelf>> {
        let shelf = self.shelves.get(&kind)?;
        // A shelf is changed in steps that leave it readable.
        Some(shelf.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes a shelf and tells the log what came of it.
    fn change(&self, kind: Kind, change: impl FnOnce(&mut Shelf) -> Vec<Changed>) {
        let Some(shelf) = self.shelves.get(&kind) else {
            return;
        };
        let mut shelf = shelf.write().unwrap_or_else(PoisonError::into_inner);
        for (action, object, before) in change(&mut shelf) {
            match kind {
                Kind::AgentRun => self.note_waiting(action, &object),
                Kind::OrchestrationRun => self.note_gates(action, &object),
                _ => {}
            }
            self.log.record(action, object, before);
        }
        self.metrics.objects(kind, shelf.len());
    }

    fn note_waiting(&self, action: Action, object: &Object) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (object.namespace.clone(), object.name.clone());
        match &object.waiting {
            Some(lane) if action != Action::Deleted => {
                waiting.insert(key, lane.clone());
            }
            _ => {
                waiting.remove(&key);
            }
        }
        self.metrics.waiting(waiting.len());
    }

    fn note_gates(&self, action: Action, run: &Object) {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.note(action, run);
        self.metrics.approvals(gates.waiting(), gates.oldest());
    }

    /// A watch shows this state of an object.
    pub(crate) fn apply(&self, object: Object) {
        let object = Arc::new(object);
        self.change(object.kind, |shelf| match shelf.put(Arc::clone(&object)) {
            Put::Added => vec![(Action::Added, object, None)],
            Put::Changed(before) => vec![(Action::Modified, object, Some(before))],
            Put::Same => Vec::new(),
        });
    }

    fn delete(&self, kind: Kind, namespace: &str, name: &str) {
        self.change(kind, |shelf| {
            let gone = shelf.remove(namespace, name);
            gone.map(|object| (Action::Deleted, object, None))
                .into_iter()
                .collect()
        });
    }

    fn list_begins(&self, kind: Kind, scope: &str) {
        self.change(kind, |shelf| {
            shelf.list_begins(scope);
            Vec::new()
        });
    }

    fn listed(&self, scope: &str, object: Object) {
        self.change(object.kind, |shelf| {
            shelf.listed(scope, &object);
            Vec::new()
        });
        self.apply(object);
    }

    fn list_ends(&self, kind: Kind, scope: &str) {
        self.change(kind, |shelf| {
            let gone = shelf.list_ends(scope);
            gone.into_iter()
                .map(|object| (Action::Deleted, object, None))
                .collect()
        });
        self.missing
            .send_if_modified(|missing| missing.remove(&(kind, scope.to_owned())).is_some());
    }

    /// The watch failed. What was listed before stays, and is as old as that.
    fn failed(&self, kind: Kind, scope: &str, failure: Failure) {
        let place = (kind, scope.to_owned());
        let why = failure.words.clone();
        let is_missing = self.missing.borrow().contains_key(&place);
        self.missing
            .send_if_modified(|missing| match missing.get_mut(&place) {
                Some(known) if *known != failure => {
                    *known = failure;
                    true
                }
                _ => false,
            });
        if !is_missing {
            let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
            failing.entry(place).or_insert_with(Failing::new).again(why);
        }
    }

    /// The watch is answered.
    fn answered(&self, kind: Kind, scope: &str) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if !failing.is_empty() {
            failing.remove(&(kind, scope.to_owned()));
        }
    }
}

fn is_of(scope: &str, namespace: &str) -> bool {
    scope.is_empty() || scope == namespace
}

/// The namespaces that watches are of; one that is empty stands for all.
fn scopes(namespaces: &Namespaces) -> Vec<String> {
    match namespaces {
        Namespaces::All => vec![String::new()],
        Namespaces::These(these) => these.iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests;
