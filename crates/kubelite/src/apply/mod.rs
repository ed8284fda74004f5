//! Server-side apply, and the bookkeeping of who owns which field (`metadata.managedFields`).
//!
//! A write of any other kind is followed by [`track_update`], which gives its writer what it changed. [`apply`] merges a
//! partial object into the stored one: what differs and is owned by someone else is a conflict, what the same manager
//! applied before and left out now goes, unless someone else owns it too.
//!
//! Only one version of a schema is known here. Owners that wrote in another version are treated as if they had used this
//! one.

mod encode;
mod error;
mod manager;
mod merge;
mod path;
mod shape;
#[cfg(test)]
mod tests;
mod typed;
mod validate;

use std::{borrow::Cow, sync::LazyLock};

use serde_json::{Map, Value};

pub use self::error::{ApplyError, Conflict};
use self::{
    manager::{Entry, Operation, Slot, Time},
    path::{FieldSet, PathElement, same_value},
    shape::Shape,
};
use crate::schema::Schema;

/// How deep values are looked into. The JSON parser stops at 128, real objects stay below 30, and what is deeper is owned
/// as a whole.
const MAX_DEPTH: usize = 100;
/// How much text the list of conflicts may be: far more than anyone reads, and no burden for the server.
const MAX_CONFLICT_TEXT: usize = 1 << 20;
/// Who owns what was there before an object that nobody tracked was first applied to.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager of a request that names none.
const UNKNOWN_MANAGER: &str = "unknown";

/// What is never owned by anyone: it identifies the object or belongs to the server.
static UNOWNED: LazyLock<FieldSet<'static>> = LazyLock::new(|| {
    const METADATA: [&str; 9] = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let mut set = FieldSet::default();
    for name in ["apiVersion", "kind", "metadata"] {
        set.insert(&[PathElement::Field(name)]);
    }
    for name in METADATA {
        set.insert(&[PathElement::Field("metadata"), PathElement::Field(name)]);
    }
    set
});

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The `fieldManager` of the request, or what stands for it.
    pub manager: &'a str,
    pub api_version: &'a str,
    /// Empty for the object itself, else `status` for example.
    pub subresource: &'a str,
    /// RFC 3339.
    pub time: &'a str,
}

impl<'a> Writer<'a> {
    fn entry(self, operation: Operation, fields: FieldSet<'a>) -> Entry<'a> {
        Entry {
            manager: if self.manager.is_empty() {
                UNKNOWN_MANAGER
            } else {
                self.manager
            },
            operation,
            api_version: self.api_version,
            subresource: self.subresource,
            time: Time::parse(self.time),
            fields,
            stored_at: None,
        }
    }
}

/// What an applied object may not change at the endpoint it was sent to. It is left out of the merge and of what the
/// manager owns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reset {
    /// A kind without a status subresource.
    Nothing,
    /// The main endpoint of a kind with a status subresource.
    Status,
    /// The status endpoint.
    AllButStatus,
}

impl Reset {
    pub fn of(subresource: &str, has_status: bool) -> Self {
        match (subresource, has_status) {
            ("status", _) => Self::AllButStatus,
            (_, true) => Self::Status,
            (_, false) => Self::Nothing,
        }
    }

    fn apply_to_object(self, object: &Value) -> Cow<'_, Value> {
        let Some(members) = object.as_object() else {
            return Cow::Borrowed(object);
        };
        let keeps = |name: &str| match self {
            Self::Nothing => true,
            Self::Status => name != "status",
            Self::AllButStatus => name == "status",
        };
        if members.keys().all(|name| keeps(name)) {
            return Cow::Borrowed(object);
        }
        let kept = members.iter().filter(|(name, _)| keeps(name));
        Cow::Owned(Value::Object(
            kept.map(|(name, value)| (name.clone(), value.clone())).collect(),
        ))
    }

    /// The part of what a manager owned that it may let go of here.
    fn apply_to_set(self, set: &mut FieldSet<'_>) {
        match self {
            Self::Nothing => {}
            Self::Status => {
                set.subtract_recursively(&top_level("status"));
            }
            Self::AllButStatus => {
                let mut others = set.clone();
                others.subtract_recursively(&top_level("status"));
                set.subtract(&others);
            }
        }
    }

    /// What nobody is made the owner of when an object is first applied to here.
    fn left_unowned(self) -> FieldSet<'static> {
        match self {
            Self::Nothing => FieldSet::default(),
            Self::Status => top_level("status"),
            Self::AllButStatus => top_level("spec"),
        }
    }
}

fn top_level(name: &'static str) -> FieldSet<'static> {
    let mut set = FieldSet::default();
    set.insert(&[PathElement::Field(name)]);
    set
}

/// Sets `metadata.managedFields` of the object that a create, update or patch is about to store.
///
/// `live` is what was stored; without a `metadata.uid` (or without an object) the write is a create. `new` must already be
/// what the endpoint lets through: with the old status at the main endpoint, with nothing but a new status at the other.
///
/// A client may send `managedFields` to change them, or an empty list to have the owners forgotten. What makes no sense in
/// them is ignored, and the stored ones stay. An object whose owners were forgotten is tracked again from its next apply.
pub fn track_update(live: Option<&Value>, new: &mut Value, schema: &Schema, writer: Writer<'_>) {
    let sent = take_managed(new);
    let stored = live.and_then(managed_of);
    let is_as_stored = sent.as_ref() == stored;
    // The managers of an object can be changed through the object itself only.
    let changed = sent
        .as_ref()
        .filter(|_| !is_as_stored && writer.subresource.is_empty());
    let owners = owners_after_update(live, new, changed, schema, writer);
    // Most clients send what they have read, so that it need not be copied.
    let to_store = |sent: Option<Value>| if is_as_stored { sent } else { stored.cloned() };
    match owners {
        Owners::Forgotten => {}
        Owners::AsStored => put_managed(new, to_store(sent)),
        Owners::FromSent(slots) => put_managed(new, Some(assemble(slots, sent))),
        Owners::FromStored(slots) => put_managed(new, Some(assemble(slots, to_store(sent)))),
    }
}

/// The owners after a write, as far as possible in terms of a list that is there already.
enum Owners {
    Forgotten,
    AsStored,
    FromSent(Vec<Slot>),
    FromStored(Vec<Slot>),
}

fn owners_after_update(
    live: Option<&Value>,
    new: &Value,
    sent: Option<&Value>,
    schema: &Schema,
    writer: Writer<'_>,
) -> Owners {
    let nothing = Value::Object(Map::new());
    let stored = live.and_then(managed_of);
    let shape = Shape::of_object(schema);
    let mut diff = typed::compare(shape, live.unwrap_or(&nothing), new);
    diff.removed.subtract(&UNOWNED);
    let mut changed = diff.added.union(diff.modified);
    changed.subtract(&UNOWNED);
    let is_create = live.is_none_or(|live| live.pointer("/metadata/uid").is_none());
    if sent.is_none() && changed.is_empty() && diff.removed.is_empty() && stored.is_some() {
        return Owners::AsStored;
    }

    let from_sent = sent
        .and_then(manager::decode)
        .filter(|entries| !entries.is_empty());
    let is_from_sent = from_sent.is_some();
    let mut entries = if sent.is_some_and(manager::is_reset) {
        Vec::new()
    } else {
        from_sent
            .or_else(|| stored.and_then(manager::decode))
            .unwrap_or_default()
    };
    if entries.is_empty() && !is_create {
        return Owners::Forgotten;
    }
    manager::fit(&mut entries, shape);
    for entry in &mut entries {
        entry.lose(&changed);
        entry.lose(&diff.removed);
    }
    if !changed.is_empty() {
        manager::take(&mut entries, writer.entry(Operation::Update, changed));
    }
    manager::cap(&mut entries);
    let slots = manager::finish(entries);
    if is_from_sent {
        Owners::FromSent(slots)
    } else {
        Owners::FromStored(slots)
    }
}

/// Merges an applied object into the stored one and returns what to default, validate and store, with its new owners.
///
/// `live` is `None` if there is no such object yet. The caller has checked the kind and the name of `applied`, and puts
/// back what the server owns in `metadata`; it then calls [`keep_times_of_noop`].
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    schema: &Schema,
    writer: Writer<'_>,
    reset: Reset,
    force: bool,
) -> Result<Value, ApplyError> {
    let shape = Shape::of_object(schema);
    error::check_body(shape, applied, writer.api_version)?;
    let config = reset.apply_to_object(applied);
    let nothing = Value::Object(Map::new());
    let stored = live.unwrap_or(&nothing);

    let mut entries = owners_before_apply(live, shape, writer, reset);
    let mut own = writer.entry(Operation::Apply, typed::to_set(shape, &config));
    let own_at = entries
        .iter()
        .position(|entry| entry.identity() == own.identity());
    let previous = own_at.map(|at| entries.swap_remove(at));

    let merged = merge::merge(shape, stored, &config);
    let mut new = match &previous {
        Some(previous) => {
            let mut last = previous.fields.clone();
            reset.apply_to_set(&mut last);
            // Who applies again all that it applied before, as controllers do, takes nothing away.
            if last.is_subset_of(&own.fields) {
                merged
            } else {
                prune(shape, merged, last, &own, &entries)
            }
        }
        None => merged,
    };

    let diff = typed::compare(shape, stored, &new);
    let changed = diff.added.union(diff.modified);
    let conflicts = conflicts(&entries, &changed);
    if !force && !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(conflicts));
    }
    for entry in &mut entries {
        entry.lose(&changed);
        entry.lose(&diff.removed);
    }
    own.fields.subtract(&UNOWNED);
    let differs = !changed.is_empty() || !diff.removed.is_empty();
    if !differs && live.is_some_and(|live| same_value(live, &new)) {
        own.time = previous.as_ref().and_then(|previous| previous.time);
    }
    match previous {
        Some(previous)
            if previous.time == own.time
                && previous.fields == own.fields
                && previous.api_version == own.api_version =>
        {
            entries.push(previous);
        }
        _ => entries.push(own),
    }
    let slots = manager::finish(entries);
    // The merge has copied the list already, so there is nothing to copy again.
    let copied = take_managed(&mut new).filter(|copied| Some(copied) == managed_of(stored));
    let list = copied.or_else(|| managed_of(stored).cloned());
    put_managed(&mut new, Some(assemble(slots, list)));
    // Metadata has no nulls; what pruning has emptied is absent.
    if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| !value.is_null());
    }
    Ok(new)
}

fn owners_before_apply<'a>(
    live: Option<&'a Value>,
    shape: Shape<'a>,
    writer: Writer<'a>,
    reset: Reset,
) -> Vec<Entry<'a>> {
    static NOTHING: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
    let Some(live) = live else { return Vec::new() };
    let mut entries = managed_of(live).and_then(manager::decode).unwrap_or_default();
    if entries.is_empty() {
        let mut there = typed::compare(shape, &NOTHING, live).added;
        there.subtract(&UNOWNED);
        there.subtract_recursively(&reset.left_unowned());
        entries.push(
            Writer {
                manager: BEFORE_FIRST_APPLY,
                ..writer
            }
            .entry(Operation::Update, there),
        );
    }
    manager::fit(&mut entries, shape);
    entries
}

fn conflicts(entries: &[Entry<'_>], changed: &FieldSet<'_>) -> Vec<Conflict> {
    let mut budget = MAX_CONFLICT_TEXT;
    let mut owners: Vec<&Entry<'_>> = entries.iter().collect();
    owners.sort_by_key(|entry| entry.identity());
    let mut conflicts = Vec::new();
    for entry in owners {
        let manager = entry.identity().to_string();
        let fields = entry.fields.intersection(changed).paths(&mut budget);
        conflicts.extend(fields.into_iter().map(|field| Conflict {
            manager: manager.clone(),
            field,
        }));
    }
    conflicts
}

/// Removes what a manager applied last time and did not apply now, unless someone else owns it.
///
/// What nobody owns stays where it is, but goes with a parent that goes.
fn prune(
    shape: Shape<'_>,
    merged: Value,
    last: FieldSet<'_>,
    own: &Entry<'_>,
    others: &[Entry<'_>],
) -> Value {
    fn whole_set<'a>(shape: Shape<'a>, value: &'a Value) -> FieldSet<'a> {
        let mut set = typed::to_set(shape, value);
        typed::name_parents(shape, &mut set);
        set
    }
    // Most applies change values and leave nothing out.
    if own.fields.contains(&last) {
        return merged;
    }
    let mut last = last;
    typed::name_parents(shape, &mut last);
    let mut owned = others
        .iter()
        .fold(own.fields.clone(), |set, other| set.union(other.fields.clone()));
    typed::name_parents(shape, &mut owned);
    // An object without metadata would be no object.
    owned.insert(&[PathElement::Field("metadata")]);

    let all = whole_set(shape, &merged);
    let without_last = merge::remove(shape, &merged, &last);
    let mut unowned = all.clone();
    unowned.subtract(&whole_set(shape, &without_last));
    unowned.subtract(&owned);
    let without_unowned = merge::remove(shape, &merged, &unowned);
    let mut gone = all;
    gone.subtract(&whole_set(shape, &without_unowned));
    match merge::remove(shape, &merged, &gone.intersection(&last)) {
        Value::Null => Value::Object(Map::new()),
        pruned => pruned,
    }
}

/// Reverts the times in `managedFields` if they are all that a write would change, so that the write is none.
///
/// To be called on what is about to be stored: a change that defaults or the server's own fields have undone again is
/// found only then.
pub fn keep_times_of_noop(live: &Value, new: &mut Value) {
    let (Some(old), Some(now)) = (managed_of(live), managed_of(new)) else {
        return;
    };
    if old != now && same_but_times(old, now) && same_but_bookkeeping(live, new) {
        put_managed(new, Some(old.clone()));
    }
}

fn same_but_times(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_array(), new.as_array()) else {
        return false;
    };
    old.len() == new.len()
        && old
            .iter()
            .zip(new)
            .all(|(old, new)| same_but(old, new, &["time"]))
}

fn same_but_bookkeeping(old: &Value, new: &Value) -> bool {
    let metadata = match (old.get("metadata"), new.get("metadata")) {
        (Some(old), Some(new)) => same_but(old, new, &["managedFields", "resourceVersion"]),
        (old, new) => old == new,
    };
    metadata && same_but(old, new, &["metadata"])
}

fn same_but(old: &Value, new: &Value, ignored: &[&str]) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return false;
    };
    let old = old.iter().filter(|(name, _)| !ignored.contains(&name.as_str()));
    old.eq(new.iter().filter(|(name, _)| !ignored.contains(&name.as_str())))
}

fn managed_of(object: &Value) -> Option<&Value> {
    object
        .get("metadata")?
        .get("managedFields")
        .filter(|managed| managed.is_array())
}

fn take_managed(object: &mut Value) -> Option<Value> {
    object
        .get_mut("metadata")?
        .as_object_mut()?
        .remove("managedFields")
        .filter(Value::is_array)
}

fn put_managed(object: &mut Value, managed: Option<Value>) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    let metadata = object
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else {
        return;
    };
    match managed {
        Some(Value::Array(entries)) if !entries.is_empty() => {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
        _ => {
            metadata.remove("managedFields");
        }
    }
}

/// The list that the slots describe, with entries taken from the list that they were read from.
fn assemble(slots: Vec<Slot>, stored: Option<Value>) -> Value {
    let mut stored = match stored {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    };
    let entries = slots.into_iter().map(|slot| match slot {
        Slot::Written(entry) => entry,
        Slot::Stored(at) => stored.get_mut(at).map(Value::take).unwrap_or_default(),
    });
    Value::Array(entries.collect())
}
