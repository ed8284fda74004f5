//! Which part of an old object a part of the new one came from, and whether it changed.
//!
//! Kubernetes forgives errors in parts of an object that an update leaves alone, and gives CEL rules the old value of the
//! part they look at. Members of objects correspond by name, items of a list only if it is of type map, by its keys.

use std::{cell::OnceCell, collections::HashMap};

use serde_json::Value;

use crate::{
    field::{go_float, go_quoted},
    schema::{ListType, MAX_DEPTH, Schema},
};

/// A new value, the old one it came from, and their schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    pub(super) new: &'a Value,
    pub(super) old: &'a Value,
    pub(super) schema: &'a Schema,
}

impl Pair<'_> {
    /// The pair of a member, if both objects have it and the schema describes it.
    pub(super) fn member(self, name: &str) -> Option<Self> {
        Some(Self {
            new: self.new.as_object()?.get(name)?,
            old: self.old.as_object()?.get(name)?,
            schema: self.schema.member(name)?,
        })
    }

    /// Whether the two are equal. What the schema does not describe counts as changed, as it does in Kubernetes.
    pub(super) fn is_unchanged(self) -> bool {
        self.equal(0)
    }

    fn equal(self, depth: usize) -> bool {
        if depth > MAX_DEPTH {
            return false;
        }
        match (self.new, self.old) {
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new
                        .keys()
                        .all(|name| self.member(name).is_some_and(|pair| pair.equal(depth + 1)))
            }
            (Value::Array(new), Value::Array(old)) => {
                if !matches!(self.schema.list_type, Some(ListType::Map(_))) {
                    return new == old;
                }
                // The order of such a list means nothing.
                let items = OldItems::new(self.schema, Some(self.old));
                new.len() == old.len()
                    && new.iter().all(|item| {
                        items
                            .pair(item, self.schema)
                            .is_some_and(|pair| pair.equal(depth + 1))
                    })
            }
            (new, old) => new == old,
        }
    }
}

/// The old items of a list, found by the keys of new ones. The index is built at the first look-up.
#[derive(Debug)]
pub(super) struct OldItems<'a> {
    keys: &'a [String],
    items: &'a [Value],
    index: OnceCell<HashMap<String, &'a Value>>,
}

impl<'a> OldItems<'a> {
    pub(super) fn new(schema: &'a Schema, old: Option<&'a Value>) -> Self {
        let keys = match &schema.list_type {
            Some(ListType::Map(keys)) => keys.as_slice(),
            Some(ListType::Set | ListType::Atomic) | None => &[],
        };
        let items = old
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        Self {
            keys,
            items,
            index: OnceCell::new(),
        }
    }

    /// Whether items can be told apart at all.
    fn correlates(&self) -> bool {
        !self.keys.is_empty() && !self.items.is_empty()
    }

    pub(super) fn find(&self, item: &Value) -> Option<&'a Value> {
        if !self.correlates() {
            return None;
        }
        let key = composite_key(item, self.keys)?;
        let index = self.index.get_or_init(|| {
            let mut index = HashMap::with_capacity(self.items.len());
            for item in self.items {
                if let Some(key) = composite_key(item, self.keys) {
                    index.entry(key).or_insert(item);
                }
            }
            index
        });
        index.get(&key).copied()
    }

    pub(super) fn pair(&self, item: &'a Value, list: &'a Schema) -> Option<Pair<'a>> {
        Some(Pair {
            new: item,
            old: self.find(item)?,
            schema: list.items.as_deref()?,
        })
    }
}

/// The values of an item's keys in one string, if it has them all and they are scalars.
fn composite_key(item: &Value, keys: &[String]) -> Option<String> {
    let object = item.as_object()?;
    let mut text = String::new();
    for key in keys {
        text.push('\0');
        match object.get(key)? {
            Value::Bool(flag) => text.push_str(if *flag { "true" } else { "false" }),
            Value::Number(number) => match number.as_i64() {
                Some(integer) => text.push_str(&integer.to_string()),
                None => text.push_str(&go_float(number.as_f64()?)),
            },
            Value::String(string) => text.push_str(&go_quoted(string)),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        }
    }
    Some(text)
}
