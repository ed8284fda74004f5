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
    if old == new {
        return Diff::default();
    }
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
        if !diff.added.is_empty() {
            self.added.push((name.clone(), diff.added));
        }
        if !diff.removed.is_empty() {
            self.removed.push((name.clone(), diff.removed));
        }
        if !diff.modified.is_empty() {
            self.modified.push((name.clone(), diff.modified));
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
        // Looking up the shape is dearer than finding out that nothing changed, which is the rule.
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
    let old = old.chunk_by(same_item).filter_map(with_name).peekable();
    let new = new.chunk_by(same_item).filter_map(with_name).peekable();
    let mut gathered = Gathered::default();
    for (name, old, new) in zip(old, new) {
        let diff = differ_items(list.item, old.unwrap_or_default(), new.unwrap_or_default());
        gathered.push(name, diff);
    }
    Some(gathered.finish())
}

fn with_name<'g, 'a>(group: &'g [Named<'a>]) -> Option<(&'g PathElement<'a>, &'g [Named<'a>])> {
    group.first().map(|(name, _)| (name, group))
}

/// The difference of the items of one name. More than one of a name are one value together.
fn differ_items<'a>(shape: Shape<'a>, old: &[Named<'a>], new: &[Named<'a>]) -> NodeDiff<'a> {
    let first = |items: &[Named<'a>]| items.first().map(|(_, value)| *value);
    let (first_old, first_new) = (first(old), first(new));
    match (old.len(), new.len()) {
        (1, 1) if first_old == first_new => NodeDiff::default(),
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
            let same = old.len() == new.len()
                && old
                    .iter()
                    .zip(new)
                    .all(|((_, old), (_, new))| same_value(old, new));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{ListType, Schema, Type};

    /// An object with a keyed list `list` of objects and a free-form map `free`.
    fn schema() -> Schema {
        let named = |type_| Schema {
            type_: Some(type_),
            ..Schema::default()
        };
        let item = Schema {
            properties: ["k", "v"]
                .map(|name| (name.to_owned(), named(Type::String).into()))
                .into(),
            ..named(Type::Object)
        };
        let list = Schema {
            items: Some(item.into()),
            list_type: Some(ListType::Map(vec!["k".to_owned()])),
            ..named(Type::Array)
        };
        let properties = [
            ("list", list),
            ("free", named(Type::Object)),
            ("text", named(Type::String)),
        ];
        Schema {
            properties: properties
                .map(|(name, schema)| (name.to_owned(), schema.into()))
                .into(),
            ..named(Type::Object)
        }
    }

    fn diff(old: &Value, new: &Value) -> [Vec<String>; 3] {
        let schema = schema();
        let diff = compare(Shape::of_object(&schema), old, new);
        [
            diff.added.all_paths(),
            diff.removed.all_paths(),
            diff.modified.all_paths(),
        ]
    }

    fn paths<const N: usize>(paths: [&str; N]) -> Vec<String> {
        paths.map(str::to_owned).into()
    }

    #[test]
    fn differences_are_found_at_the_smallest_owned_place() {
        let old = json!({"text": "a", "list": [{"k": "x", "v": "1"}]});
        let new = json!({"text": "b", "list": [{"k": "x", "v": "2"}, {"k": "y"}]});
        let added = paths([".list[k=\"y\"]", ".list[k=\"y\"].k"]);
        let modified = paths([".text", ".list[k=\"x\"].v"]);
        assert_eq!(diff(&old, &new), [added.clone(), vec![], modified.clone()]);
        assert_eq!(diff(&new, &old), [vec![], added, modified]);
    }

    #[test]
    fn a_value_that_changes_its_type_takes_its_members_with_it() {
        let (map, scalar) = (json!({"free": {"x": {"a": 1}}}), json!({"free": {"x": 1}}));
        assert_eq!(
            diff(&map, &scalar),
            [vec![], paths([".free.x.a"]), paths([".free.x"])]
        );
        assert_eq!(
            diff(&scalar, &map),
            [paths([".free.x.a"]), vec![], paths([".free.x"])]
        );
    }

    #[test]
    fn items_of_one_name_are_one_value_together() {
        let one = json!({"list": [{"k": "x", "v": "1"}]});
        let two = json!({"list": [{"k": "x", "v": "1"}, {"k": "x", "v": "2"}]});
        let other = json!({"list": [{"k": "x", "v": "1"}, {"k": "x", "v": "3"}]});
        let item = ".list[k=\"x\"]";
        let whole = paths([item, ".list[k=\"x\"].k", ".list[k=\"x\"].v"]);
        assert_eq!(diff(&one, &two), [paths([item]), whole.clone(), vec![]]);
        assert_eq!(diff(&two, &one), [whole, paths([item]), vec![]]);
        assert_eq!(diff(&two, &other), [vec![], vec![], paths([item])]);
    }

    #[test]
    fn a_list_with_an_item_that_cannot_be_named_is_one_value() {
        let (good, bad) = (json!({"list": [{"k": "x"}]}), json!({"list": [{"v": "x"}]}));
        assert_eq!(diff(&good, &bad), [vec![], vec![], paths([".list"])]);
    }

    #[test]
    fn claims_name_items_and_free_members_but_not_named_parents() {
        let schema = schema();
        let value = json!({"list": [{"k": "x"}], "free": {"a": {"b": 1}, "c": {}}, "text": null});
        let set = to_set(Shape::of_object(&schema), &value);
        let claimed = [
            ".text",
            ".free.a",
            ".free.c",
            ".free.a.b",
            ".list[k=\"x\"]",
            ".list[k=\"x\"].k",
        ];
        assert_eq!(set.all_paths(), claimed);
    }

    #[test]
    fn named_parents_of_members_become_members_when_asked() {
        let schema = schema();
        let value = json!({"list": [{"k": "x"}], "free": {"a": {"b": 1}}});
        let mut set = to_set(Shape::of_object(&schema), &value);
        name_parents(Shape::of_object(&schema), &mut set);
        let all = [
            ".free",
            ".list",
            ".free.a",
            ".free.a.b",
            ".list[k=\"x\"]",
            ".list[k=\"x\"].k",
        ];
        assert_eq!(set.all_paths(), all);
    }
}
