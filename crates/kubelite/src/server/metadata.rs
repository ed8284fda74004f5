//! Reading and writing the metadata of an object that is still a JSON value.

use serde_json::{Map, Value};

/// A string member of `metadata`; absent, null and non-strings all read as "".
pub(crate) fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or("")
}

pub(crate) fn number(object: &Value, field: &str) -> Option<i64> {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_i64)
}

/// `metadata` as a map, made if it is missing or something else.
pub(crate) fn of(object: &mut Value) -> &mut Map<String, Value> {
    member_map(object, "metadata")
}

/// A member as a map, made if it is missing or something else.
pub(crate) fn member_map<'v>(object: &'v mut Value, field: &str) -> &'v mut Map<String, Value> {
    let slot = root(object)
        .entry(field)
        .or_insert_with(|| Value::Object(Map::new()));
    root(slot)
}

/// The value as a map; anything else is replaced by an empty one.
pub(crate) fn root(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    match object {
        Value::Object(map) => map,
        // The line above made it an object.
        _ => unreachable!("the value was just made an object"),
    }
}

pub(crate) fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    of(object).insert(field.to_owned(), value.into());
}

/// Copies a member of `metadata` from another object, removing it where the other has none.
pub(crate) fn carry(object: &mut Value, from: &Value, field: &str) {
    match from.get("metadata").and_then(|metadata| metadata.get(field)) {
        Some(value) => set(object, field, value.clone()),
        None => {
            of(object).remove(field);
        }
    }
}

/// Copies a top-level member (`status`, `spec`) from another object, removing it where the other has none.
pub(crate) fn carry_top(object: &mut Value, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => {
            root(object).insert(field.to_owned(), value.clone());
        }
        None => {
            root(object).remove(field);
        }
    }
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    if finalizers.is_empty() {
        of(object).remove("finalizers");
    } else {
        set(object, "finalizers", finalizers);
    }
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}
