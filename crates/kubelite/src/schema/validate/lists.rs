//! Lists of type set and map, whose items must differ.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::{
    field::{FieldError, FieldPath, Problem},
    schema::{ListType, MAX_DEPTH, Schema, trail::Trail},
};

/// Adds an error for every item that repeats another one, throughout a value.
pub(super) fn validate_lists(value: &Value, schema: &Schema, base: &FieldPath, errors: &mut Vec<FieldError>) {
    Walk { base, errors }.node(value, schema, &Trail::Root, 0);
}

/// Whether two items of a list are equal.
pub(super) fn has_repetition(items: &[Value]) -> bool {
    !repetitions(items.iter().map(Some)).is_empty()
}

struct Walk<'w> {
    base: &'w FieldPath,
    errors: &'w mut Vec<FieldError>,
}

impl Walk<'_> {
    fn node(&mut self, value: &Value, schema: &Schema, trail: &Trail<'_>, depth: usize) {
        if schema.plain || depth > MAX_DEPTH {
            return;
        }
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    if let Some(property) = schema.properties.get(name) {
                        self.node(value, property, &trail.child(name), depth + 1);
                    } else if let Some(shape) = schema.member(name) {
                        self.node(value, shape, &trail.key(name), depth + 1);
                    }
                }
            }
            Value::Array(items) => {
                match &schema.list_type {
                    Some(ListType::Set) => self.set(items, trail),
                    Some(ListType::Map(keys)) => self.map(items, keys, trail),
                    Some(ListType::Atomic) | None => {}
                }
                if let Some(shape) = &schema.items {
                    for (index, item) in items.iter().enumerate() {
                        self.node(item, shape, &trail.index(index), depth + 1);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn duplicate(&mut self, trail: &Trail<'_>, index: usize, value: Value) {
        let path = trail.index(index).below(self.base);
        self.errors
            .push(FieldError::new(path, Problem::Duplicate(value), ""));
    }

    fn set(&mut self, items: &[Value], trail: &Trail<'_>) {
        for index in repetitions(items.iter().map(Some)) {
            let value = items.get(index).cloned().unwrap_or_default();
            self.duplicate(trail, index, value);
        }
    }

    fn map(&mut self, items: &[Value], keys: &[String], trail: &Trail<'_>) {
        let stranger = items
            .iter()
            .enumerate()
            .find(|(_, item)| !item.is_null() && !item.is_object());
        if let Some((index, item)) = stranger {
            let path = trail.index(index).below(self.base);
            let detail = "must be an object for an array of list-type map";
            self.errors.push(FieldError::invalid(path, item.clone(), detail));
            return;
        }
        let repeated = if let [key] = keys {
            repetitions(items.iter().map(|item| item.get(key)))
        } else {
            let composed: Vec<Value> = items.iter().map(|item| keys_of(item, keys)).collect();
            repetitions(composed.iter().map(Some))
        };
        for index in repeated {
            let value = items
                .get(index)
                .map(|item| keys_of(item, keys))
                .unwrap_or_default();
            self.duplicate(trail, index, value);
        }
    }
}

fn keys_of(item: &Value, keys: &[String]) -> Value {
    let found: Map<String, Value> = keys
        .iter()
        .filter_map(|key| Some((key.clone(), item.get(key)?.clone())))
        .collect();
    Value::Object(found)
}

/// The second occurrence of each value that occurs more than once; further ones are not told. `None` is a value of its
/// own.
fn repetitions<'v>(values: impl ExactSizeIterator<Item = Option<&'v Value>>) -> Vec<usize> {
    /// Below this size comparing all pairs is quicker than hashing their texts.
    const SMALL: usize = 8;

    if values.len() <= SMALL {
        let few: Vec<Option<&Value>> = values.collect();
        return repetitions_of_few(&few);
    }
    let mut seen: HashMap<Option<String>, usize> = HashMap::with_capacity(values.len());
    let mut repeated = Vec::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.map(Value::to_string)).or_insert(0);
        *times += 1;
        if *times == 2 {
            repeated.push(index);
        }
    }
    repeated
}

fn repetitions_of_few(values: &[Option<&Value>]) -> Vec<usize> {
    let mut repeated = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let earlier = values.iter().take(index).filter(|other| *other == value).count();
        if earlier == 1 {
            repeated.push(index);
        }
    }
    repeated
}
