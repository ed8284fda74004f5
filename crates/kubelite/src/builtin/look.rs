//! Short ways to look into an object whose members may be absent or of another type than expected.

use serde_json::{Map, Value};

/// The string at a dotted path, or the empty string.
pub(super) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The value at a dotted path. Null counts as absent.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(value, |value, name| value.get(name))
        .filter(|value| !value.is_null())
}

/// The whole number at a dotted path.
pub(super) fn number(value: &Value, path: &str) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// Whether the boolean at a dotted path is true.
pub(super) fn flag(value: &Value, path: &str) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or_default()
}

/// The list at a dotted path, or an empty one.
pub(super) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The entries of the map at a dotted path.
pub(super) fn entries<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    at(value, path).and_then(Value::as_object).into_iter().flatten()
}

/// The object behind a member, made if it is absent. `None` when the parent or the member is something else.
pub(super) fn object<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
    let member = value.as_object_mut()?.entry(name).or_insert(Value::Null);
    if member.is_null() {
        *member = Value::Object(Map::new());
    }
    member.as_object_mut()
}

/// The member of a list or object as something to change, if it is there.
pub(super) fn each_mut<'a>(value: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    value
        .get_mut(name)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}
