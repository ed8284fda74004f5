//! All objects of Jangar's kinds, as watches show them: one watch for each kind and namespace, or for each kind where all
//! namespaces are looked after, whatever the number of clients.

mod gates;
mod log;
mod object;
mod selector;
mod shelf;
mod watch;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use jangar_api::Kind;
use jangar_engine::{queue::Lane, settings::Namespaces};
use tokio::sync::watch as signal;

use self::{
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
    missing: signal::Sender<BTreeMap<(Kind, String), String>>,
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
            let yet = |scope: &String| ((*kind, scope.clone()), "it is not listed yet".to_owned());
            scopes.iter().map(yet)
        });
        Self {
            shelves: Kind::ALL.iter().map(|kind| (*kind, RwLock::default())).collect(),
            log: Log::new(epoch),
            missing: signal::Sender::new(missing.collect()),
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

    /// What is not listed yet, in words.
    pub fn missing(&self) -> Vec<String> {
        let told = |((kind, scope), why): (&(Kind, String), &String)| {
            let place = if scope.is_empty() { "all namespaces" } else { scope };
            format!("{} in {place}: {why}", kind.info().plural)
        };
        self.missing.borrow().iter().map(told).collect()
    }

    /// The kinds that are not listed in this namespace.
    pub fn missing_kinds(&self, namespace: &str) -> Vec<Kind> {
        let missing = self.missing.borrow();
        let here = missing
            .keys()
            .filter(|(_, scope)| scope.is_empty() || scope == namespace);
        here.map(|(kind, _)| *kind).collect()
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
    fn failed(&self, kind: Kind, scope: &str, why: &str) {
        self.missing.send_if_modified(|missing| {
            let known = missing.get_mut(&(kind, scope.to_owned()));
            known.is_some_and(|known| {
                let changed = known != why;
                why.clone_into(known);
                changed
            })
        });
    }
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
