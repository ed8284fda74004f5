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
    match object {
        Value::Object(map) => map,
        other => {
            *other = Value::Object(Map::new());
            // It is one now, so this is as deep as it goes.
            root(other)
        }
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

/// Makes an object equal to a stored one but for its `status` and its `managedFields`, which stay the stored ones where it
/// has none. Nearly all of it is equal already, and comparing is cheaper than copying.
pub(crate) fn reset_but_status(object: &mut Value, stored: &Value) {
    let (Some(members), Some(metadata)) = (
        stored.as_object(),
        stored.get("metadata").and_then(Value::as_object),
    ) else {
        return;
    };
    reset_members(root(object), members, &["metadata", "status"]);
    reset_members(of(object), metadata, &["managedFields"]);
    if let Some(managed) = metadata.get("managedFields") {
        of(object)
            .entry("managedFields")
            .or_insert_with(|| managed.clone());
    }
}

/// Makes members equal to those of another map, but for some.
fn reset_members(members: &mut Map<String, Value>, from: &Map<String, Value>, but: &[&str]) {
    let stays = |name: &str| but.contains(&name);
    members.retain(|name, _| stays(name) || from.contains_key(name));
    for (name, value) in from.iter().filter(|(name, _)| !stays(name)) {
        if members.get(name) != Some(value) {
            members.insert(name.clone(), value.clone());
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_status_and_managed_fields_survive_a_reset() {
        let stored = json!({
            "kind": "Widget",
            "metadata": {"name": "a", "labels": {"app": "x"}, "managedFields": [{"manager": "old"}]},
            "spec": {"size": 1},
            "status": {"phase": "Old"},
        });
        let mut new = json!({
            "kind": "Gadget",
            "metadata": {"name": "b", "annotations": {}, "managedFields": [{"manager": "new"}]},
            "spec": {"size": 2},
            "extra": true,
            "status": {"phase": "New"},
        });
        reset_but_status(&mut new, &stored);
        let mut expected = stored.clone();
        expected["metadata"]["managedFields"] = json!([{"manager": "new"}]);
        expected["status"] = json!({"phase": "New"});
        assert_eq!(new, expected);

        let mut bare = json!({});
        reset_but_status(&mut bare, &stored);
        expected = stored;
        root(&mut expected).remove("status");
        assert_eq!(bare, expected);
    }
}
