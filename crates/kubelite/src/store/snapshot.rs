//! One collection as it was at one revision.

use std::ops::Bound;

use imbl::OrdMap;

use super::{Event, Key, Object};

#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SnapshotError {
    #[error("the history reaches back to revision {oldest} only")]
    Expired { oldest: u64 },
    #[error("the newest revision is {current}")]
    Future { current: u64 },
}

/// An immutable view. Holding one costs only what changed since.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub revision: u64,
    objects: OrdMap<Key, Object>,
}

impl Snapshot {
    pub(super) fn new(revision: u64, objects: OrdMap<Key, Object>) -> Self {
        Self { revision, objects }
    }

    /// Takes back one event. Events must be taken back newest first.
    pub(super) fn undo(&mut self, event: &Event) {
        match &event.previous {
            Some(previous) => self.objects.insert(event.key.clone(), previous.clone()),
            None => self.objects.remove(&event.key),
        };
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// How many objects a namespace holds, or all of them.
    pub fn count(&self, namespace: Option<&str>) -> usize {
        let within = |end: Option<&(Key, Object)>| {
            namespace.is_none_or(|namespace| end.is_some_and(|(key, _)| *key.namespace == *namespace))
        };
        // Keys are sorted by namespace, so if both ends are in it, everything is, and nothing has to be counted.
        if within(self.objects.get_min()) && within(self.objects.get_max()) {
            self.len()
        } else {
            self.iter(namespace, None).count()
        }
    }

    pub fn get(&self, key: &Key) -> Option<&Object> {
        self.objects.get(key)
    }

    /// The objects in order: of one namespace or of all, starting behind `after` where a page begins.
    pub fn iter<'a>(
        &'a self,
        namespace: Option<&'a str>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Object)> + use<'a> {
        let first = namespace.map(|namespace| Key::new(namespace, ""));
        let start = match (&first, after) {
            (Some(first), Some(after)) if after < first => Bound::Included(first),
            (_, Some(after)) => Bound::Excluded(after),
            (Some(first), None) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        self.objects
            .range::<_, Key>((start, Bound::Unbounded))
            .take_while(move |(key, _)| namespace.is_none_or(|namespace| *key.namespace == *namespace))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::store::Meta;

    #[test]
    fn a_namespace_is_counted_whether_or_not_others_have_objects() {
        let snapshot = |keys: &[(&str, &str)]| {
            let object = Object {
                revision: 1,
                json: Bytes::new(),
                meta: Arc::new(Meta::default()),
            };
            let objects = keys
                .iter()
                .map(|(namespace, name)| (Key::new(namespace, name), object.clone()));
            Snapshot::new(1, objects.collect())
        };
        let alone = snapshot(&[("b", "1"), ("b", "2")]);
        let among = snapshot(&[("a", "1"), ("b", "1"), ("b", "2"), ("c", "1")]);
        for (objects, all) in [(&alone, 2), (&among, 4), (&snapshot(&[]), 0)] {
            assert_eq!(objects.count(None), all);
            assert_eq!(objects.count(Some("b")), all.min(2));
            assert_eq!(objects.count(Some("bb")), 0);
        }
    }
}
