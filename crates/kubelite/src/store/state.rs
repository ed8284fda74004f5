//! What readers see: every published object, the indexes over them, and the histories.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use imbl::OrdMap;
use tokio::sync::Notify;

use super::{Collection, Event, EventKind, Key, Limits, Object, history::History};

/// What the handles, the watches and the writer share.
#[derive(Debug)]
pub(super) struct Shared {
    state: RwLock<State>,
    pub(super) limits: Limits,
    /// Told after each publication. It wakes who waits in the order of their coming, so that a simulation can be repeated;
    /// tokio's `watch` does so in a random one.
    pub(super) published: Arc<Notify>,
    pub(super) counters: Counters,
}

/// Numbers that only ever grow.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) transactions: AtomicU64,
    pub(super) transactions_failed: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) batch_writes_max: AtomicU64,
    pub(super) watches_dropped: AtomicU64,
}

impl Counters {
    pub(super) fn add_watch_dropped(&self) {
        self.watches_dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_transaction(&self, writes: usize) {
        let writes = writes as u64;
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes, Ordering::Relaxed);
        self.batch_writes_max.fetch_max(writes, Ordering::Relaxed);
    }

    pub(super) fn add_failure(&self) {
        self.transactions_failed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where an object is, among all collections.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Address {
    pub(super) collection: Collection,
    pub(super) key: Key,
}

#[derive(Debug)]
pub(super) struct Shelf {
    objects: OrdMap<Key, Object>,
    history: History,
    /// Told after each publication that concerns this collection.
    changed: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct State {
    revision: u64,
    /// The revision that was loaded: no history reaches back further.
    floor: u64,
    limits: Limits,
    shelves: BTreeMap<Collection, Shelf>,
    uids: HashMap<String, Address>,
    owned: HashMap<String, BTreeSet<Address>>,
    whole: History,
    bytes: usize,
}

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self {
            limits: state.limits.clone(),
            published: Arc::default(),
            state: RwLock::new(state),
            counters: Counters::default(),
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        // Publishing only moves values between maps, so there is no half-done state for a panic to leave behind.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes durable events visible, in order, then wakes who waits for them.
    pub(super) fn publish(&self, events: Vec<Event>) {
        let Some(revision) = events.last().map(|event| event.revision) else {
            return;
        };
        let mut touched: BTreeMap<Collection, Arc<Notify>> = BTreeMap::new();
        {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            for event in events {
                let event = Arc::new(event);
                let changed = state.apply(&event);
                touched.entry(event.collection.clone()).or_insert(changed);
                state.whole.push(event);
            }
            state.revision = revision;
        }
        for changed in touched.values() {
            changed.notify_waiters();
        }
        self.published.notify_waiters();
    }

    /// A place to wait for changes of a collection, which need not hold anything yet. Collections come from the table of
    /// served resources, so their number is bounded by it.
    pub(super) fn subscribe(&self, collection: &Collection) -> Arc<Notify> {
        if let Some(shelf) = self.read().shelves.get(collection) {
            return Arc::clone(&shelf.changed);
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&state.shelf(collection).changed)
    }
}

impl State {
    /// The state right after loading, or an empty one at revision 0.
    pub(super) fn new(limits: Limits) -> Self {
        let whole = History::new(0, limits.follow_events, limits.follow_bytes);
        Self {
            revision: 0,
            floor: 0,
            limits,
            shelves: BTreeMap::new(),
            uids: HashMap::new(),
            owned: HashMap::new(),
            whole,
            bytes: 0,
        }
    }

    /// Takes in an object while loading.
    pub(super) fn load(&mut self, collection: &Collection, key: Key, object: Object) {
        let address = Address {
            collection: collection.clone(),
            key: key.clone(),
        };
        self.index(&address, None, Some(&object));
        self.bytes += object.json.len();
        self.shelf(collection).objects.insert(key, object);
    }

    /// Ends loading.
    pub(super) fn loaded(mut self, revision: u64) -> Self {
        self.revision = revision;
        self.floor = revision;
        let Limits {
            history_events_per_collection: events,
            history_bytes_per_collection: bytes,
            ..
        } = self.limits;
        for shelf in self.shelves.values_mut() {
            shelf.history = History::new(revision, events, bytes);
        }
        self.whole = History::new(revision, self.limits.follow_events, self.limits.follow_bytes);
        self
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, collection: &Collection, key: &Key) -> Option<&Object> {
        self.shelves.get(collection)?.objects.get(key)
    }

    pub(super) fn objects(&self, collection: &Collection) -> Option<&OrdMap<Key, Object>> {
        self.shelves.get(collection).map(|shelf| &shelf.objects)
    }

    pub(super) fn history(&self, collection: &Collection) -> Option<&History> {
        self.shelves.get(collection).map(|shelf| &shelf.history)
    }

    pub(super) fn whole_history(&self) -> &History {
        &self.whole
    }

    /// Every collection that holds an object or has been watched, with its objects and its history.
    pub(super) fn shelves(&self) -> impl Iterator<Item = (&Collection, usize, &History)> {
        self.shelves
            .iter()
            .map(|(name, shelf)| (name, shelf.objects.len(), &shelf.history))
    }

    pub(super) fn by_uid(&self, uid: &str) -> Option<(&Address, &Object)> {
        let address = self.uids.get(uid)?;
        Some((address, self.get(&address.collection, &address.key)?))
    }

    pub(super) fn owned_by(&self, uid: &str) -> impl Iterator<Item = (&Address, &Object)> {
        self.owned
            .get(uid)
            .into_iter()
            .flatten()
            .filter_map(|address| Some((address, self.get(&address.collection, &address.key)?)))
    }

    fn shelf(&mut self, collection: &Collection) -> &mut Shelf {
        let (floor, limits) = (self.floor, &self.limits);
        self.shelves.entry(collection.clone()).or_insert_with(|| Shelf {
            objects: OrdMap::new(),
            history: History::new(
                floor,
                limits.history_events_per_collection,
                limits.history_bytes_per_collection,
            ),
            changed: Arc::default(),
        })
    }

    /// Applies one event and says whom to wake for it.
    fn apply(&mut self, event: &Arc<Event>) -> Arc<Notify> {
        let address = Address {
            collection: event.collection.clone(),
            key: event.key.clone(),
        };
        let now = (event.kind != EventKind::Deleted).then_some(&event.object);
        self.index(&address, event.previous.as_ref(), now);
        self.bytes -= event.previous.as_ref().map_or(0, |object| object.json.len());
        self.bytes += now.map_or(0, |object| object.json.len());
        let shelf = self.shelf(&event.collection);
        match now {
            Some(object) => shelf.objects.insert(address.key, object.clone()),
            None => shelf.objects.remove(&address.key),
        };
        shelf.history.push(Arc::clone(event));
        Arc::clone(&shelf.changed)
    }

    fn index(&mut self, address: &Address, before: Option<&Object>, now: Option<&Object>) {
        let uid = |object: Option<&Object>| object.map(|object| object.meta.uid.clone()).unwrap_or_default();
        let same_uid = matches!((before, now), (Some(a), Some(b)) if a.meta.uid == b.meta.uid);
        if !same_uid {
            let (before, now) = (uid(before), uid(now));
            if self.uids.get(&before) == Some(address) {
                self.uids.remove(&before);
            }
            if !now.is_empty() {
                self.uids.insert(now, address.clone());
            }
        }
        let same_owners = matches!((before, now), (Some(a), Some(b)) if a.meta.owners == b.meta.owners);
        if same_owners {
            return;
        }
        for owner in before.iter().flat_map(|object| &object.meta.owners) {
            if let Some(owned) = self.owned.get_mut(&owner.uid) {
                owned.remove(address);
                if owned.is_empty() {
                    self.owned.remove(&owner.uid);
                }
            }
        }
        for owner in now.iter().flat_map(|object| &object.meta.owners) {
            self.owned
                .entry(owner.uid.clone())
                .or_default()
                .insert(address.clone());
        }
    }
}
