//! Walks that make new values: an applied object merged into the stored one, and a value without a set of fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    path::{FieldSet, PathElement, same_value},
    shape::{Kind, ListShape, MapShape, Shape},
    typed::zip,
};

/// The stored value with the applied one merged in. Nothing is removed, and where both have a value the applied one counts.
pub(super) fn merge(shape: Shape<'_>, live: &Value, applied: &Value) -> Value {
    let merged = match shape.kind_of(applied) {
        Kind::Scalar(_) => None,
        Kind::Map(map) => merge_maps(map, live, applied),
        Kind::List(list) => merge_lists(list, live, applied),
    };
    // What means the same stays as it was written.
    merged.unwrap_or_else(|| {
        if same_value(live, applied) {
            live.clone()
        } else {
            applied.clone()
        }
    })
}

/// Nothing if the applied value counts as a whole.
fn merge_maps(map: MapShape<'_>, live: &Value, applied: &Value) -> Option<Value> {
    let (live, applied) = (live.as_object(), applied.as_object());
    if map.is_atomic() || (live.is_none_or(Map::is_empty) && applied.is_none_or(Map::is_empty)) {
        return None;
    }
    let live = live.into_iter().flatten().peekable();
    let applied = applied.into_iter().flatten().peekable();
    let members = zip(live, applied).filter_map(|(name, live, applied)| {
        let value = match (live, applied) {
            (Some(live), Some(applied)) => merge(map.member(name), live, applied),
            (one, other) => one.or(other)?.clone(),
        };
        Some((name.clone(), value))
    });
    Some(Value::Object(members.collect()))
}

/// Nothing if the applied value counts as a whole.
fn merge_lists(list: ListShape<'_>, live: &Value, applied: &Value) -> Option<Value> {
    fn items(value: &Value) -> &[Value] {
        value.as_array().map_or(&[], Vec::as_slice)
    }
    let (live, applied) = (items(live), items(applied));
    if live.is_empty() && applied.is_empty() {
        return None;
    }
    let live: Vec<_> = list.name_items(live)?.into_iter().zip(live).collect();
    let applied: Vec<_> = list.name_items(applied)?.into_iter().zip(applied).collect();
    Some(Value::Array(merge_items(list.item, &live, &applied)))
}

/// Merges two lists of named items.
///
/// Shared items come in the order of the applied list. The others keep their place among their neighbours, stored items
/// first, so that applying a part of a list does not shuffle the rest.
fn merge_items(
    shape: Shape<'_>,
    live: &[(PathElement<'_>, &Value)],
    applied: &[(PathElement<'_>, &Value)],
) -> Vec<Value> {
    // Of stored items with the same name none is merged with the applied one.
    let mut by_name: BTreeMap<&PathElement<'_>, Option<&Value>> = BTreeMap::new();
    for (name, item) in live {
        by_name
            .entry(name)
            .and_modify(|item| *item = None)
            .or_insert(Some(item));
    }
    let wanted: BTreeSet<&PathElement<'_>> = applied.iter().map(|(name, _)| name).collect();
    let merged = |name: &PathElement<'_>, item: &Value| match by_name.get(name) {
        Some(Some(live)) => merge(shape, live, item),
        Some(None) | None => item.clone(),
    };

    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let mut done: BTreeSet<&PathElement<'_>> = BTreeSet::new();
    let mut shared = applied
        .iter()
        .map(|(name, _)| name)
        .filter(|name| by_name.contains_key(name));
    let mut next_shared = shared.next();
    let (mut live, mut applied) = (live.iter().peekable(), applied.iter().peekable());
    loop {
        if let (Some((stored, _)), Some((name, item))) = (live.peek(), applied.peek()) {
            if stored == name {
                out.push(merged(name, item));
                done.insert(name);
                live.next();
                applied.next();
                next_shared = shared.next();
                continue;
            }
            if wanted.contains(stored) && next_shared.is_some_and(|next| next != stored) {
                // It comes later, when the applied list gets to it.
                live.next();
                continue;
            }
        }
        if let Some((_, item)) = live.next_if(|(name, _)| !wanted.contains(name)) {
            out.push((*item).clone());
            continue;
        }
        live.next_if(|(name, _)| done.contains(name));
        if let Some((name, item)) = applied.next() {
            out.push(merged(name, item));
            done.insert(name);
            if next_shared == Some(name) {
                next_shared = shared.next();
            }
        } else if live.peek().is_none() {
            return out;
        }
    }
}

/// The value without the members of a set. A map or list of which nothing is left becomes null.
pub(super) fn remove(shape: Shape<'_>, value: &Value, set: &FieldSet<'_>) -> Value {
    match (shape.kind_of(value), value) {
        (Kind::Map(map), Value::Object(members)) if !map.is_atomic() && !members.is_empty() => {
            let left = members.iter().filter_map(|(name, value)| {
                let left = without(map.member(name), value, &PathElement::Field(name), set)?;
                Some((name.clone(), left))
            });
            let left: Map<String, Value> = left.collect();
            if left.is_empty() {
                Value::Null
            } else {
                Value::Object(left)
            }
        }
        (Kind::List(list), Value::Array(items)) if !items.is_empty() => {
            let Some(names) = list.name_items(items) else {
                return value.clone();
            };
            let pairs = names.iter().zip(items);
            let left = pairs.filter_map(|(name, item)| without(list.item, item, name, set));
            let left: Vec<Value> = left.collect();
            if left.is_empty() {
                Value::Null
            } else {
                Value::Array(left)
            }
        }
        // What is one value was removed by its owner as a whole or not at all.
        (Kind::Map(_) | Kind::List(_) | Kind::Scalar(_), _) => value.clone(),
    }
}

/// What is left of one member, if anything.
fn without(shape: Shape<'_>, value: &Value, name: &PathElement<'_>, set: &FieldSet<'_>) -> Option<Value> {
    match set.get(name) {
        Some(node) if node.member => None,
        Some(node) => Some(remove(shape, value, &node.children)),
        None => Some(value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{ListType, Schema, Type};

    fn set() -> Schema {
        let string = Schema {
            type_: Some(Type::String),
            ..Schema::default()
        };
        let list = Schema {
            type_: Some(Type::Array),
            items: Some(string.into()),
            list_type: Some(ListType::Set),
            ..Schema::default()
        };
        Schema {
            type_: Some(Type::Object),
            properties: [("set".to_owned(), list.into())].into(),
            ..Schema::default()
        }
    }

    #[test]
    fn merged_lists_keep_the_applied_order_and_leave_the_rest_in_place() {
        for (live, applied, merged) in [
            ("abc", "", "abc"),
            ("", "abc", "abc"),
            ("abc", "ac", "abc"),
            ("abc", "ca", "bca"),
            ("abc", "xc", "abxc"),
            ("abcd", "da", "bcda"),
            ("abab", "c", "ababc"),
            ("aab", "a", "ab"),
            ("bca", "xaby", "cxaby"),
        ] {
            let list = |items: &str| json!({"set": items.chars().map(String::from).collect::<Vec<_>>()});
            let schema = set();
            let got = merge(Shape::of_object(&schema), &list(live), &list(applied));
            assert_eq!(got, list(merged), "{live} {applied}");
        }
    }

    #[test]
    fn what_is_emptied_becomes_null() {
        let schema = set();
        let value = json!({"set": ["a", "b"]});
        let without = |fields: &Value| {
            let set = super::super::encode::decode(fields).expect("a valid set");
            remove(Shape::of_object(&schema), &value, &set)
        };
        assert_eq!(without(&json!({"f:set": {"v:\"a\"": {}}})), json!({"set": ["b"]}));
        assert_eq!(
            without(&json!({"f:set": {"v:\"a\"": {}, "v:\"b\"": {}}})),
            json!({"set": null})
        );
        assert_eq!(without(&json!({"f:set": {}})), Value::Null);
        assert_eq!(without(&json!({"f:other": {}})), value);
    }
}
