//! What server-side apply needs to know of a schema: at every place, which of map, scalar and list is allowed there, and
//! whether a map or a list is one value or a collection of separately owned ones.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use serde_json::Value;

use super::{
    MAX_DEPTH,
    path::{Literal, PathElement},
};
use crate::schema::{Additional, ListType, MapType, PatchStrategy, Schema, Type};

/// The shape of `metadata`, which definitions do not spell out.
static OBJECT_META: LazyLock<Schema> = LazyLock::new(|| {
    let typed = |type_| Schema {
        type_: Some(type_),
        ..Schema::default()
    };
    let string = || Arc::new(typed(Type::String));
    let time = || {
        Arc::new(Schema {
            format: "date-time".to_owned(),
            ..typed(Type::String)
        })
    };
    let strings = || {
        Arc::new(Schema {
            additional: Additional::Schema(string()),
            ..typed(Type::Object)
        })
    };
    let list = |items, list_type| {
        Arc::new(Schema {
            items: Some(items),
            list_type: Some(list_type),
            ..typed(Type::Array)
        })
    };
    let owner = Schema {
        properties: [
            ("apiVersion", string()),
            ("blockOwnerDeletion", Arc::new(typed(Type::Boolean))),
            ("controller", Arc::new(typed(Type::Boolean))),
            ("kind", string()),
            ("name", string()),
            ("uid", string()),
        ]
        .map(|(name, schema)| (name.to_owned(), schema))
        .into(),
        map_type: MapType::Atomic,
        ..typed(Type::Object)
    };
    Schema {
        properties: [
            ("annotations", strings()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", Arc::new(typed(Type::Integer))),
            ("deletionTimestamp", time()),
            ("finalizers", list(string(), ListType::Set)),
            ("generateName", string()),
            ("generation", Arc::new(typed(Type::Integer))),
            ("labels", strings()),
            (
                "managedFields",
                list(Arc::new(typed(Type::Object)), ListType::Atomic),
            ),
            ("name", string()),
            ("namespace", string()),
            (
                "ownerReferences",
                list(Arc::new(owner), ListType::Map(vec!["uid".to_owned()])),
            ),
            ("resourceVersion", string()),
            ("selfLink", string()),
            ("uid", string()),
        ]
        .map(|(name, schema)| (name.to_owned(), schema))
        .into(),
        ..typed(Type::Object)
    }
});

static STRING: LazyLock<Schema> = LazyLock::new(|| Schema {
    type_: Some(Type::String),
    ..Schema::default()
});

/// The shape of the values at one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'s> {
    form: Form<'s>,
    /// How many levels may still be looked into. A value below the last is owned as a whole, which bounds every walk.
    depth: usize,
}

#[derive(Clone, Copy, Debug)]
enum Form<'s> {
    Schema {
        schema: &'s Schema,
        /// Unknown fields are kept here and below.
        preserve: bool,
        /// An object with `apiVersion`, `kind` and `metadata`.
        resource: bool,
    },
    /// Nothing is known: maps are granular, lists are one value.
    Deduced,
    /// Whatever it is, it is one value.
    Untyped,
}

/// Which scalars are allowed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scalar {
    Numeric,
    String,
    Boolean,
    Any,
}

/// How to look at a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind<'s> {
    Map(MapShape<'s>),
    Scalar(Scalar),
    List(ListShape<'s>),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MapShape<'s>(Shape<'s>);

/// How the items of a list are told apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Items<'s> {
    /// They are not: the list is one value.
    Atomic,
    Set,
    Keyed(&'s [String]),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ListShape<'s> {
    pub(super) items: Items<'s>,
    pub(super) item: Shape<'s>,
}

/// Why an item of a list cannot be told from the others, worded as Kubernetes words it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum ItemError {
    #[error("associative list with keys may not have a null element")]
    KeyedNull,
    #[error("associative list with keys may not have non-map elements")]
    KeyedScalar,
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't have default values for any key fields)"
    )]
    NoKeys(String),
    #[error("associative list without keys has an element that's a map type")]
    SetOfMaps,
    #[error("not supported: associative list with lists as elements")]
    SetOfLists,
    #[error("associative list without keys has an element that's an explicit null")]
    SetOfNulls,
}

impl<'s> Shape<'s> {
    /// The shape of a whole object of a kind with this schema.
    pub(super) fn of_object(schema: &'s Schema) -> Self {
        let preserve = schema.preserve_unknown_fields;
        Self {
            form: Form::Schema {
                schema,
                preserve,
                resource: true,
            },
            depth: MAX_DEPTH,
        }
    }

    fn below(self, form: Form<'s>) -> Self {
        let depth = self.depth.saturating_sub(1);
        Self {
            form: if depth == 0 { Form::Untyped } else { form },
            depth,
        }
    }

    fn below_schema(self, schema: &'s Schema) -> Self {
        let inherited = matches!(self.form, Form::Schema { preserve: true, .. });
        let preserve = inherited || schema.preserve_unknown_fields;
        self.below(Form::Schema {
            schema,
            preserve,
            resource: schema.embedded_resource,
        })
    }

    /// How to look at this value: as what it is if that is allowed here, else as what should be here.
    pub(super) fn kind_of(self, value: &Value) -> Kind<'s> {
        let own = match value {
            Value::Object(_) => self.map().map(Kind::Map),
            Value::Array(_) => self.list().map(Kind::List),
            Value::Null => None,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => self.scalar().map(Kind::Scalar),
        };
        own.unwrap_or_else(|| self.expected())
    }

    /// What should be here, if the value itself does not decide it.
    pub(super) fn expected(self) -> Kind<'s> {
        let map = self.map().map(Kind::Map);
        let other = || {
            self.scalar()
                .map(Kind::Scalar)
                .or_else(|| self.list().map(Kind::List))
        };
        map.or_else(other).unwrap_or(Kind::Scalar(Scalar::Any))
    }

    pub(super) fn map(self) -> Option<MapShape<'s>> {
        match self.form {
            Form::Schema { schema, .. } if !matches!(schema.type_, None | Some(Type::Object)) => None,
            Form::Schema { .. } | Form::Deduced | Form::Untyped => Some(MapShape(self)),
        }
    }

    fn scalar(self) -> Option<Scalar> {
        let Form::Schema { schema, .. } = self.form else {
            return Some(Scalar::Any);
        };
        match schema.type_ {
            Some(Type::Object | Type::Array) => None,
            Some(Type::Integer | Type::Number) => Some(Scalar::Numeric),
            Some(Type::Boolean) => Some(Scalar::Boolean),
            // Other formats have their own types in Go, which print as strings but may be read from something else.
            Some(Type::String) if matches!(schema.format.as_str(), "" | "byte") => Some(Scalar::String),
            None | Some(Type::String) => Some(Scalar::Any),
        }
    }

    pub(super) fn list(self) -> Option<ListShape<'s>> {
        let atomic = ListShape {
            items: Items::Atomic,
            item: self.below(Form::Untyped),
        };
        let Form::Schema { schema, .. } = self.form else {
            return Some(atomic);
        };
        if !matches!(schema.type_, None | Some(Type::Array)) {
            return None;
        }
        let items = match (&schema.list_type, &schema.patch_strategy) {
            (Some(ListType::Map(keys)), _) if !keys.is_empty() => Items::Keyed(keys),
            (None, PatchStrategy::Merge { key: Some(key), .. }) => Items::Keyed(std::slice::from_ref(key)),
            (Some(ListType::Set | ListType::Map(_)), _) | (None, PatchStrategy::Merge { key: None, .. }) => {
                Items::Set
            }
            (Some(ListType::Atomic), _) | (None, PatchStrategy::Replace | PatchStrategy::RetainKeys) => {
                Items::Atomic
            }
        };
        let item = schema
            .items
            .as_ref()
            .map_or(atomic.item, |items| self.below_schema(items));
        Some(ListShape { items, item })
    }

    /// The shape one step further along a path.
    pub(super) fn step(self, element: &PathElement<'_>) -> Self {
        let below = match element {
            PathElement::Field(name) => self.map().map(|map| map.member(name)),
            PathElement::Key(_) | PathElement::Value(_) | PathElement::Index(_) => {
                self.list().map(|list| list.item)
            }
        };
        below.unwrap_or_else(|| self.below(Form::Deduced))
    }

    /// Whether any value at all fits here and is never looked into any further than itself.
    pub(super) fn accepts_anything(self) -> bool {
        matches!(self.form, Form::Deduced | Form::Untyped)
    }
}

impl<'s> MapShape<'s> {
    /// Whether the map is one value.
    pub(super) fn is_atomic(self) -> bool {
        match self.0.form {
            Form::Schema { schema, .. } => schema.map_type == MapType::Atomic,
            Form::Deduced => false,
            Form::Untyped => true,
        }
    }

    /// The shape of a member that the schema names.
    pub(super) fn named(self, name: &str) -> Option<Shape<'s>> {
        let Form::Schema { schema, resource, .. } = self.0.form else {
            return None;
        };
        let own = if resource {
            match name {
                "metadata" => Some(&*OBJECT_META),
                "apiVersion" | "kind" => Some(&*STRING),
                _ => None,
            }
        } else {
            None
        };
        let schema = own.or_else(|| schema.properties.get(name).map(Arc::as_ref))?;
        Some(if own.is_some() {
            // Metadata is strict even where everything around it may hold unknown fields.
            self.0.below(Form::Schema {
                schema,
                preserve: false,
                resource: false,
            })
        } else {
            self.0.below_schema(schema)
        })
    }

    /// The shape of the members that the schema does not name, if it allows any.
    pub(super) fn others(self) -> Option<Shape<'s>> {
        let Form::Schema { schema, preserve, .. } = self.0.form else {
            return Some(self.0.below(self.0.form));
        };
        match &schema.additional {
            Additional::Schema(other) => Some(self.0.below_schema(other)),
            Additional::Any => Some(self.0.below(Form::Deduced)),
            Additional::Absent => {
                (preserve || schema.properties.is_empty()).then(|| self.0.below(Form::Deduced))
            }
        }
    }

    /// The shape of any member. A member that should not be there may still be found in a stored object.
    pub(super) fn member(self, name: &str) -> Shape<'s> {
        self.named(name)
            .or_else(|| self.others())
            .unwrap_or_else(|| self.0.below(Form::Deduced))
    }
}

impl<'s> ListShape<'s> {
    /// What tells one item from the others. Asked only of lists that are not atomic.
    pub(super) fn name_item(self, item: &'s Value) -> Result<PathElement<'s>, ItemError> {
        let Items::Keyed(keys) = self.items else {
            return match item {
                Value::Object(_) => Err(ItemError::SetOfMaps),
                Value::Array(_) => Err(ItemError::SetOfLists),
                Value::Null => Err(ItemError::SetOfNulls),
                Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                    Ok(PathElement::Value(Literal(Cow::Borrowed(item))))
                }
            };
        };
        let item = match item {
            Value::Object(item) => item,
            Value::Null => return Err(ItemError::KeyedNull),
            _ => return Err(ItemError::KeyedScalar),
        };
        let mut fields = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(value) = item.get(key).or_else(|| self.default_of(key)) {
                fields.push((Cow::Borrowed(key.as_str()), Literal(Cow::Borrowed(value))));
            }
        }
        if fields.is_empty() {
            let quoted: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
            return Err(ItemError::NoKeys(quoted.join(" ")));
        }
        fields.sort_by(|(left, _), (right, _)| left.cmp(right));
        Ok(PathElement::Key(fields))
    }

    fn default_of(self, key: &str) -> Option<&'s Value> {
        match self.item.form {
            Form::Schema { schema, .. } => schema.properties.get(key)?.default.as_ref(),
            Form::Deduced | Form::Untyped => None,
        }
    }

    /// Names of all the items in order, or nothing if the list cannot be looked at item by item.
    pub(super) fn name_items(self, list: &'s [Value]) -> Option<Vec<PathElement<'s>>> {
        match self.items {
            Items::Atomic => None,
            Items::Set | Items::Keyed(_) => list.iter().map(|item| self.name_item(item).ok()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_that_cannot_be_named_say_why() {
        let keys = ["k".to_owned(), "l".to_owned()];
        let schema = Schema::default();
        let item = Shape::of_object(&schema);
        let (set, keyed) = (
            ListShape {
                items: Items::Set,
                item,
            },
            ListShape {
                items: Items::Keyed(&keys),
                item,
            },
        );
        for (list, value, message) in [
            (
                keyed,
                json!(null),
                "associative list with keys may not have a null element",
            ),
            (
                keyed,
                json!(1),
                "associative list with keys may not have non-map elements",
            ),
            (
                keyed,
                json!({"m": 1}),
                "associative list with keys has an element that omits all key fields [\"k\" \"l\"] (and doesn't have default values for any key fields)",
            ),
            (
                set,
                json!({}),
                "associative list without keys has an element that's a map type",
            ),
            (
                set,
                json!([]),
                "not supported: associative list with lists as elements",
            ),
            (
                set,
                json!(null),
                "associative list without keys has an element that's an explicit null",
            ),
        ] {
            let value: &'static Value = Box::leak(Box::new(value));
            assert_eq!(
                list.name_item(value).map_err(|error| error.to_string()),
                Err(message.to_owned())
            );
        }
    }

    #[test]
    fn unknown_members_are_allowed_below_what_preserves_them() {
        let inner = Schema {
            type_: Some(Type::Object),
            properties: [("a".to_owned(), Arc::new(Schema::default()))].into(),
            ..Schema::default()
        };
        let outer = |preserve_unknown_fields| Schema {
            properties: [("inner".to_owned(), Arc::new(inner.clone()))].into(),
            preserve_unknown_fields,
            ..Schema::default()
        };
        for preserve in [true, false] {
            let schema = outer(preserve);
            let map = Shape::of_object(&schema)
                .map()
                .expect("a map")
                .member("inner")
                .map();
            assert_eq!(map.expect("a map").others().is_some(), preserve);
        }
    }

    #[test]
    fn metadata_is_known_even_where_anything_is_allowed() {
        let schema = Schema {
            preserve_unknown_fields: true,
            ..Schema::default()
        };
        let metadata = Shape::of_object(&schema)
            .map()
            .expect("a map")
            .member("metadata")
            .map()
            .expect("a map");
        assert!(metadata.others().is_none());
        let finalizers = metadata
            .named("finalizers")
            .and_then(Shape::list)
            .expect("a list");
        assert_eq!(finalizers.items, Items::Set);
    }
}
