//! What one reconcile has done and learned so far.

use std::sync::Arc;

use jangar_engine::decision::{Key, Notice, ObjectId};
use k8s_openapi::api::core::v1::ObjectReference;

use super::{
    barrier::{Mark, Written},
    learned::Learned,
};
use crate::{
    admissions::Asked,
    caches::{Cached, ResourceVersion, key_of, label_of, uid_of},
};

/// What one reconcile has done and learned. Writes stay in here also if the reconcile fails later: the caches have to show
/// them all the same.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// How often in a row the key failed before.
    pub(crate) failures: u32,
    pub(crate) learned: Learned,
    pub(crate) written: Vec<Written>,
    /// What the queue said last, if it was asked.
    pub(crate) asked: Option<Asked>,
    /// What is to be told of which object, once the reconcile is over: nothing waits for an Event.
    pub(crate) notices: Vec<(ObjectReference, Notice)>,
}

impl Work {
    /// What was done and learned about children at the same time.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.written.extend(other.written);
        self.notices.extend(other.notices);
        self.learned.absorb_children(other.learned);
    }

    /// A write was answered with the object as it is now.
    pub(crate) fn wrote<K: Cached>(&mut self, mut object: K) {
        let metadata = object.meta_mut();
        metadata.managed_fields = None;
        self.written.push(Written {
            kind: K::KIND,
            key: key_of(metadata),
            uid: uid_of(metadata),
            label: label_of::<K>(metadata),
            mark: Mark::Version(ResourceVersion::of(metadata)),
        });
        self.learned.seen(Arc::new(object));
    }

    /// A write made the object go, or found it gone.
    pub(crate) fn went<K: Cached>(&mut self, namespace: &str, object: &ObjectId) {
        self.written.push(Written {
            kind: K::KIND,
            key: Key {
                namespace: namespace.to_owned(),
                name: object.name.clone(),
            },
            uid: object.uid.clone(),
            label: None,
            mark: Mark::Gone,
        });
        self.learned.absent::<K>(&object.name);
    }
}
