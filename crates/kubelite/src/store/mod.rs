//! Where objects live, how writes commit, and how watches follow them.
//!
//! A [`Store`] keeps every object in memory, in maps that can be shared cheaply with readers, and writes each change to its
//! backend before anybody can see it. One writer decides at a time: it checks what a write expects against the newest
//! state, gives it the next revision, makes it durable (together with the other writes that wait, in one transaction), and
//! only then publishes it to readers and watches and answers the caller.
//!
//! Start reading at [`Store`], then `writer` (the order of those steps), `state` (what readers see) and `history` (how a
//! watch follows without a queue of its own).

use std::{fmt, path::Path, sync::Arc};

use bytes::Bytes;
use serde_json::Value;

mod backend;
mod encode;
mod handle;
mod history;
mod memory;
mod meta;
mod redb;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;
mod writer;

pub use self::{
    backend::OpenError,
    encode::InvalidObject,
    handle::{Stats, Store},
    history::{Batch, Follow, Lagged, Watch},
    meta::{Labels, Meta, Owner},
    snapshot::{Snapshot, SnapshotError},
};

/// Which collection an object lives in: `agents.example.com/widgets`, or `/pods` for the core group.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Collection(Arc<str>);

impl Collection {
    pub fn new(group: &str, plural: &str) -> Self {
        Self(format!("{group}/{plural}").into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where an object sits inside its collection. The order (namespace, then name) is the order of lists.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key {
    /// Empty for an object of cluster scope.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// One stored object at one revision. Cheap to clone.
#[derive(Clone)]
pub struct Object {
    pub revision: u64,
    /// The whole object as JSON, with `metadata.resourceVersion` set to `revision`.
    pub json: Bytes,
    pub meta: Arc<Meta>,
}

impl Object {
    /// The object as a tree. Parses each time it is called.
    pub fn value(&self) -> Value {
        // The bytes were serialised from a tree whose depth was bounded, or passed a checksum when they were loaded.
        serde_json::from_slice(&self.json).unwrap_or_default()
    }
}

impl Object {
    /// The same object as if it had been written at another revision, for a watch that sees it leave its selection.
    #[must_use]
    pub fn at_revision(&self, revision: u64) -> Self {
        let mut value = self.value();
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        Self {
            revision,
            json: value.to_string().into(),
            meta: self.meta.clone(),
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("revision", &self.revision)
            .field("json", &String::from_utf8_lossy(&self.json))
            .finish_non_exhaustive()
    }
}

/// What a write takes for granted about the object it replaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expect {
    Absent,
    Revision(u64),
}

#[derive(Clone, Debug)]
pub enum Change {
    Put(Value),
    /// The object's last state; watches see it with the revision of the deletion.
    Delete(Value),
}

#[derive(Clone, Debug)]
pub struct Write {
    pub collection: Collection,
    pub key: Key,
    pub expect: Expect,
    pub change: Change,
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CommitError {
    #[error("the object exists already")]
    Exists,
    #[error("the object does not exist")]
    NotFound,
    #[error("the object is at revision {current} by now")]
    Conflict { current: u64 },
    /// The disk refused the write, for the reason given. Nothing of it can be seen while this process runs, and reads go
    /// on. Should the process end before a later write succeeds, the write may turn out to have reached the disk.
    #[error("{0}")]
    Storage(String),
    #[error("the object takes {size} bytes, more than the {limit} that the store accepts")]
    TooLarge { size: usize, limit: usize },
    #[error("the object cannot be stored: {0}")]
    Invalid(#[from] InvalidObject),
    #[error("the store is closed")]
    Closed,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// One committed change.
#[derive(Clone, Debug)]
pub struct Event {
    pub revision: u64,
    pub collection: Collection,
    pub key: Key,
    pub kind: EventKind,
    /// The object after the change; for a deletion its last state, carrying the deletion's revision.
    pub object: Object,
    /// The object before the change.
    pub previous: Option<Object>,
}

/// The bounds of a store.
#[derive(Clone, Debug)]
pub struct Limits {
    pub history_events_per_collection: usize,
    pub history_bytes_per_collection: usize,
    pub object_bytes_max: usize,
    pub write_queue_bytes: usize,
    pub follow_events: usize,
    pub follow_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A client that reconnects within a minute finds its place at well over a hundred changes a second.
            history_events_per_collection: 8_192,
            // As many events of 4 KB (a 2 KB object and the state before it). Fifteen busy kinds stay under half a GiB.
            history_bytes_per_collection: 32 << 20,
            // What etcd accepts in one request, so an object that fits here fits in a real cluster.
            object_bytes_max: 3 << 19,
            // Keeps a full disk transaction queued behind the one in flight, and no more: further writers wait.
            write_queue_bytes: 32 << 20,
            // The garbage collector handles an event in microseconds; this covers a pause of about a second at full write
            // load, and a collector that lags further scans the state instead.
            follow_events: 16_384,
            // The events are mostly those that the collections' histories hold as well, so this rarely costs anything.
            follow_bytes: 64 << 20,
        }
    }
}

impl Store {
    /// A store that keeps nothing once it is dropped. Writes commit inside the call, without threads or timers, so a
    /// single-threaded runtime replays the same run from the same inputs.
    pub fn in_memory(limits: Limits) -> Self {
        Self::inline(limits, Box::new(memory::Memory))
    }

    /// Opens the database file at `path`, or makes a new one, and loads it. Blocks until all is loaded.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, OpenError> {
        let path = path.to_owned();
        Self::threaded(limits, path.clone(), move || {
            let backend: Box<dyn backend::Backend> = Box::new(redb::Redb::open(&path, redb::open_file)?);
            Ok(backend)
        })
    }
}
