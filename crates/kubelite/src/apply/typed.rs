//! Walks of values with their schema: which fields a value sets, and in which two values differ.
//!
//! Stored values are not trusted to fit their schema, because a definition may change under them. What does not fit is
//! treated as one value.

use std::{iter::Peekable, mem::discriminant};

use serde_json::{Map, Value};

use super::{
    path::{FieldSet, Node, PathElement, same_value},
    shape::{Items, Kind, ListShape, MapShape, Shape},
};

/// The fields that an applied object lays claim to.
pub(super) fn to_set<'a>(shape: Shape<'a>, value: &'a Value) -> FieldSet<'a> {
    claim(shape, value).children
}

fn claim<'a>(shape: Shape<'a>, value: &'a Value) -> Node<'a> {
    let whole = || Node {
        member: true,
        ..Node::default()
    };
    match (shape.kind_of(value), value) {
        (Kind::Scalar(_), _) => whole(),
        (Kind::Map(map), _) if map.is_atomic() => whole(),
        (Kind::List(list), _) if list.items == Items::Atomic => whole(),
        (Kind::Map(map), Value::Object(members)) => {
            let entries = members.iter().map(|(name, value)| {
                let named = map.named(name);
                let mut node = claim(named.unwrap_or_else(|| map.member(name)), value);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                node.member |= named.is_none() || empty;
                (PathElement::Field(name), node)
            });
            Node {
                member: false,
                children: FieldSet::from_entries(entries.collect()),
            }
        }
        (Kind::List(list), Value::Array(items)) => match grouped(list, items) {
            Some(items) => {
                let entries = items.chunk_by(same_item).filter_map(|group| {
                    let ((name, value), rest) = group.split_first()?;
                    // Of items that cannot be told apart nobody owns the inside.
                    let inside = if rest.is_empty() {
                        claim(list.item, value)
                    } else {
                        Node::default()
                    };
                    Some((
                        name.clone(),
                        Node {
                            member: true,
                            ..inside
                        },
                    ))
                });
                Node {
                    member: false,
                    children: FieldSet::from_entries(entries.collect()),
                }
            }
            None => whole(),
        },
        (Kind::Map(_) | Kind::List(_), _) => Node::default(),
    }
}

type Named<'a> = (PathElement<'a>, &'a Value);

fn same_item(left: &Named<'_>, right: &Named<'_>) -> bool {
    left.0 == right.0
}

/// The items of a list with their names, sorted by name, or nothing if the list must be taken as one value.
fn grouped<'a>(shape: ListShape<'a>, list: &'a [Value]) -> Option<Vec<Named<'a>>> {
    let mut items: Vec<Named<'a>> = shape.name_items(list)?.into_iter().zip(list).collect();
    items.sort_by(|(left, _), (right, _)| left.cmp(right));
    Some(items)
}

/// In what a value differs from an older one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Diff<'a> {
    pub(super) added: FieldSet<'a>,
    pub(super) removed: FieldSet<'a>,
    pub(super) modified: FieldSet<'a>,
}

/// Compares an object with the older one.
pub(super) fn compare<'a>(shape: Shape<'a>, old: &'a Value, new: &'a Value) -> Diff<'a> {
    let diff = differ(shape, Some(old), Some(new));
    Diff {
        added: diff.added.children,
        removed: diff.removed.children,
        modified: diff.modified.children,
    }
}

/// The difference at one place.
#[derive(Default)]
struct NodeDiff<'a> {
    added: Node<'a>,
    removed: Node<'a>,
    modified: Node<'a>,
}

impl<'a> NodeDiff<'a> {
    fn union(self, other: Self) -> Self {
        let join = |left: Node<'a>, right: Node<'a>| Node {
            member: left.member || right.member,
            children: left.children.union(right.children),
        };
        Self {
            added: join(self.added, other.added),
            removed: join(self.removed, other.removed),
            modified: join(self.modified, other.modified),
        }
    }
}

/// The differences of the members of one map or list, gathered.
#[derive(Default)]
struct Gathered<'a> {
    added: Vec<(PathElement<'a>, Node<'a>)>,
    removed: Vec<(PathElement<'a>, Node<'a>)>,
    modified: Vec<(PathElement<'a>, Node<'a>)>,
}

impl<'a> Gathered<'a> {
    fn push(&mut self, name: &PathElement<'a>, diff: NodeDiff<'a>) {
        for (into, node) in [
            (&mut self.added, diff.added),
            (&mut self.removed, diff.removed),
            (&mut self.modified, diff.modified),
        ] {
            if !node.is_empty() {
                into.push((name.clone(), node));
            }
        }
    }

    fn finish(self) -> NodeDiff<'a> {
        let node = |entries| Node {
            member: false,
            children: FieldSet::from_entries(entries),
        };
        NodeDiff {
            added: node(self.added),
            removed: node(self.removed),
            modified: node(self.modified),
        }
    }
}

fn differ<'a>(shape: Shape<'a>, old: Option<&'a Value>, new: Option<&'a Value>) -> NodeDiff<'a> {
    let mut diff = match (old, new) {
        (Some(old), Some(new)) if old == new => return NodeDiff::default(),
        (Some(before), Some(after)) => {
            let (was, is) = (shape.kind_of(before), shape.kind_of(after));
            let diff = differ_as(is, old, new);
            if discriminant(&was) == discriminant(&is) {
                diff
            } else {
                // A map that became a scalar, say, took its members with it.
                diff.union(differ_as(was, old, new))
            }
        }
        (Some(value), None) | (None, Some(value)) => differ_as(shape.kind_of(value), old, new),
        (None, None) => return NodeDiff::default(),
    };
    diff.added.member |= old.is_none();
    diff.removed.member |= new.is_none();
    diff
}

fn differ_as<'a>(kind: Kind<'a>, old: Option<&'a Value>, new: Option<&'a Value>) -> NodeDiff<'a> {
    let inside = match kind {
        Kind::Scalar(_) => None,
        Kind::Map(map) => differ_maps(map, old, new),
        Kind::List(list) => differ_lists(list, old, new),
    };
    inside.unwrap_or_else(|| {
        let mut whole = NodeDiff::default();
        whole.modified.member = matches!((old, new), (Some(old), Some(new)) if !same_value(old, new));
        whole
    })
}

/// Nothing if the maps are to be compared as one value.
fn differ_maps<'a>(
    map: MapShape<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
) -> Option<NodeDiff<'a>> {
    let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
    // That two empty ones are one value tells an empty map from null.
    if map.is_atomic() || (old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty)) {
        return None;
    }
    let mut gathered = Gathered::default();
    let old = old.into_iter().flatten().peekable();
    let new = new.into_iter().flatten().peekable();
    for (name, old, new) in zip(old, new) {
        if old != new {
            gathered.push(&PathElement::Field(name), differ(map.member(name), old, new));
        }
    }
    Some(gathered.finish())
}

/// Pairs what two sorted runs have under the same name.
pub(super) fn zip<K: Ord, V>(
    mut left: Peekable<impl Iterator<Item = (K, V)>>,
    mut right: Peekable<impl Iterator<Item = (K, V)>>,
) -> impl Iterator<Item = (K, Option<V>, Option<V>)> {
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (Some((left, _)), Some((right, _))) => left.cmp(right),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, _) => std::cmp::Ordering::Greater,
        };
        if order.is_lt() {
            return left.next().map(|(name, value)| (name, Some(value), None));
        }
        let (name, value) = right.next()?;
        let partner = if order.is_eq() { left.next() } else { None };
        Some((name, partner.map(|(_, value)| value), Some(value)))
    })
}

/// Nothing if the lists are to be compared as one value.
fn differ_lists<'a>(
    list: ListShape<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
) -> Option<NodeDiff<'a>> {
    let items = |value: Option<&'a Value>| value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let (old, new) = (items(old), items(new));
    if old.is_empty() && new.is_empty() {
        return None;
    }
    let (old, new) = (grouped(list, old)?, grouped(list, new)?);
    let named = |group: &[Named<'a>]| {
        let values: Vec<&'a Value> = group.iter().map(|(_, value)| *value).collect();
        group.first().map(|(name, _)| (name.clone(), values))
    };
    let old = old.chunk_by(same_item).filter_map(named).peekable();
    let new = new.chunk_by(same_item).filter_map(named).peekable();
    let mut gathered = Gathered::default();
    for (name, old, new) in zip(old, new) {
        let diff = differ_items(list.item, &old.unwrap_or_default(), &new.unwrap_or_default());
        gathered.push(&name, diff);
    }
    Some(gathered.finish())
}

/// The difference of the items of one name. More than one of a name are one value together.
fn differ_items<'a>(shape: Shape<'a>, old: &[&'a Value], new: &[&'a Value]) -> NodeDiff<'a> {
    let (first_old, first_new) = (old.first().copied(), new.first().copied());
    match (old.len(), new.len()) {
        (0 | 1, 0 | 1) => differ(shape, first_old, first_new),
        (0 | 1, _) => {
            let mut diff = differ(shape, first_old, None);
            diff.added.member = true;
            diff
        }
        (_, 0 | 1) => {
            let mut diff = differ(shape, None, first_new);
            diff.removed.member = true;
            diff
        }
        _ => {
            let same = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same_value(old, new));
            let mut diff = NodeDiff::default();
            diff.modified.member = !same;
            diff
        }
    }
}

/// Makes members of the named fields above the members of a set.
///
/// An applied object does not claim `spec` when it claims `spec.a`, but pruning must see that `spec` came with it.
pub(super) fn name_parents(shape: Shape<'_>, set: &mut FieldSet<'_>) {
    let map = shape.map();
    for (element, node) in set.iter_mut() {
        if node.children.is_empty() {
            continue;
        }
        name_parents(shape.step(element), &mut node.children);
        if let (Some(map), PathElement::Field(name)) = (map, element) {
            node.member |= map.named(name).is_some();
        }
    }
}

/// Fits a stored set to the schema of today: what became one value since is owned as one. Says whether that changed it.
pub(super) fn fit_to_schema(shape: Shape<'_>, set: &mut FieldSet<'_>) -> bool {
    let mut changed = false;
    for (element, node) in set.iter_mut() {
        if node.children.is_empty() {
            continue;
        }
        let below = shape.step(element);
        let atomic = match below.expected() {
            Kind::Map(map) => map.is_atomic(),
            Kind::List(list) => list.items == Items::Atomic,
            Kind::Scalar(_) => false,
        };
        if atomic {
            *node = Node {
                member: true,
                ..Node::default()
            };
            changed = true;
        } else {
            changed |= fit_to_schema(below, &mut node.children);
        }
    }
    changed
}
