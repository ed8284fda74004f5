//! The objects of one kind, ordered as lists show them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound,
    sync::Arc,
};

use super::object::{Object, Place};

type Key = (String, String);

/// What a shelf did with an object.
#[derive(Debug)]
pub(super) enum Put {
    Added,
    /// It was like this.
    Changed(Arc<Object>),
    /// It has this version already.
    Same,
}

/// The objects of one kind.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    objects: BTreeMap<Place, Arc<Object>>,
    places: HashMap<Key, Place>,
    names: HashMap<String, Key>,
    /// What a list that is under way has named, by the namespace it is of; an empty one is all.
    fresh: HashMap<String, HashSet<Key>>,
}

impl Shelf {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        let place = self.places.get(&(namespace.to_owned(), name.to_owned()))?;
        self.objects.get(place)
    }

    pub(super) fn by_uid(&self, uid: &str) -> Option<&Arc<Object>> {
        let (namespace, name) = self.names.get(uid)?;
        self.get(namespace, name)
    }

    /// All after this place, in order.
    pub(super) fn after(&self, place: Option<&Place>) -> impl Iterator<Item = &Arc<Object>> {
        let from = place.map_or(Bound::Unbounded, Bound::Excluded);
        self.objects
            .range::<Place, _>((from, Bound::Unbounded))
            .map(|(_, object)| object)
    }

    pub(super) fn put(&mut self, object: Arc<Object>) -> Put {
        let key = (object.namespace.clone(), object.name.clone());
        let known = self.get(&object.namespace, &object.name);
        if known.is_some_and(|known| known.uid == object.uid && known.version == object.version) {
            // The copy that others share stays: a stream that lists it holds no other.
            return Put::Same;
        }
        let put = self.take(&key).map_or(Put::Added, Put::Changed);
        let place = object.place();
        self.names.insert(object.uid.clone(), key.clone());
        self.places.insert(key, place.clone());
        self.objects.insert(place, object);
        put
    }

    pub(super) fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.take(&(namespace.to_owned(), name.to_owned()))
    }

    fn take(&mut self, key: &Key) -> Option<Arc<Object>> {
        let place = self.places.remove(key)?;
        let object = self.objects.remove(&place)?;
        self.names.remove(&object.uid);
        Some(object)
    }

    /// A list of this namespace begins; an empty one is all.
    pub(super) fn list_begins(&mut self, scope: &str) {
        self.fresh.insert(scope.to_owned(), HashSet::new());
    }

    pub(super) fn listed(&mut self, scope: &str, object: &Object) {
        if let Some(fresh) = self.fresh.get_mut(scope) {
            fresh.insert((object.namespace.clone(), object.name.clone()));
        }
    }

    /// The list is complete: what it did not name is gone.
    pub(super) fn list_ends(&mut self, scope: &str) -> Vec<Arc<Object>> {
        let Some(fresh) = self.fresh.remove(scope) else {
            return Vec::new();
        };
        let gone: Vec<Key> = self
            .places
            .keys()
            .filter(|key| (scope.is_empty() || key.0 == scope) && !fresh.contains(*key))
            .cloned()
            .collect();
        gone.iter().filter_map(|key| self.take(key)).collect()
    }
}
