//! The JSON shape of object metadata. A wrong type here is a request that cannot be decoded, not an invalid object.

use serde_json::{Map, Value};

use crate::field::json_type_name;

/// A member of the metadata that cannot be decoded, in the words of Go's decoder.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MetaTypeError {
    #[error("json: cannot unmarshal {found} into Go struct field {holder}.{path} of type {wanted}")]
    Type {
        found: &'static str,
        holder: &'static str,
        path: String,
        wanted: &'static str,
    },
    #[error("json: cannot unmarshal {found} into Go value of type v1.ObjectMeta")]
    NotAnObject { found: &'static str },
    #[error("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\"")]
    Time { text: String },
}

/// What a member holds.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Integer,
    Bool,
    Time,
    Texts,
    TextMap,
    /// A list of objects with these members.
    List(&'static str, &'static [(&'static str, Shape)]),
    Any,
}

const OWNER: &[(&str, Shape)] = &[
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    ("name", Shape::Text),
    ("uid", Shape::Text),
    ("controller", Shape::Bool),
    ("blockOwnerDeletion", Shape::Bool),
];

const MANAGED: &[(&str, Shape)] = &[
    ("manager", Shape::Text),
    ("operation", Shape::Text),
    ("apiVersion", Shape::Text),
    ("time", Shape::Time),
    ("fieldsType", Shape::Text),
    ("fieldsV1", Shape::Any),
    ("subresource", Shape::Text),
];

const OBJECT: &[(&str, Shape)] = &[
    ("name", Shape::Text),
    ("generateName", Shape::Text),
    ("namespace", Shape::Text),
    ("selfLink", Shape::Text),
    ("uid", Shape::Text),
    ("resourceVersion", Shape::Text),
    ("generation", Shape::Integer),
    ("creationTimestamp", Shape::Time),
    ("deletionTimestamp", Shape::Time),
    ("deletionGracePeriodSeconds", Shape::Integer),
    ("labels", Shape::TextMap),
    ("annotations", Shape::TextMap),
    ("ownerReferences", Shape::List("OwnerReference", OWNER)),
    ("finalizers", Shape::Texts),
    ("managedFields", Shape::List("ManagedFieldsEntry", MANAGED)),
];

/// Whether metadata can be decoded. Unknown members and nulls can.
pub fn check_types(metadata: &Value) -> Result<(), MetaTypeError> {
    match metadata {
        Value::Null => Ok(()),
        Value::Object(members) => object(members, "ObjectMeta", "", OBJECT),
        other => Err(MetaTypeError::NotAnObject {
            found: json_type_name(other),
        }),
    }
}

/// Brings metadata into the form it has after decoding: unknown members are removed, and so are those that hold nothing.
/// With `report`, adds the path of each unknown one (`metadata.foo`).
pub fn coerce_object_meta(
    metadata: &mut Value,
    report: Option<&mut Vec<String>>,
) -> Result<(), MetaTypeError> {
    check_types(metadata)?;
    let mut unknown = Vec::new();
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    if let Value::Object(members) = metadata {
        drop_unknown(members, "metadata", OBJECT, &mut unknown);
        members.retain(|name, value| !is_nothing(name, value));
    }
    if let Some(report) = report {
        report.append(&mut unknown);
    }
    Ok(())
}

fn is_nothing(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        // A grace period of zero says something, a generation of zero does not.
        Value::Number(number) => name == "generation" && number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

fn drop_unknown(
    members: &mut Map<String, Value>,
    path: &str,
    shapes: &[(&str, Shape)],
    unknown: &mut Vec<String>,
) {
    members.retain(|name, value| {
        let Some((_, shape)) = shapes.iter().find(|(known, _)| known == name) else {
            unknown.push(format!("{path}.{name}"));
            return false;
        };
        if let (Shape::List(_, shapes), Value::Array(items)) = (shape, value) {
            for (index, item) in items.iter_mut().enumerate() {
                if let Value::Object(members) = item {
                    drop_unknown(members, &format!("{path}.{name}[{index}]"), shapes, unknown);
                    members.retain(|_, value| !value.is_null());
                }
            }
        }
        true
    });
}

fn object(
    members: &Map<String, Value>,
    holder: &'static str,
    path: &str,
    shapes: &[(&'static str, Shape)],
) -> Result<(), MetaTypeError> {
    for (name, shape) in shapes {
        let Some(value) = members.get(*name).filter(|value| !value.is_null()) else {
            continue;
        };
        let path = if path.is_empty() {
            (*name).to_owned()
        } else {
            format!("{path}.{name}")
        };
        member(value, holder, &path, *shape)?;
    }
    Ok(())
}

fn member(value: &Value, holder: &'static str, path: &str, shape: Shape) -> Result<(), MetaTypeError> {
    let wrong = |found: &Value, wanted| {
        let found = json_type_name(found);
        Err(MetaTypeError::Type {
            found,
            holder,
            path: path.to_owned(),
            wanted,
        })
    };
    match (shape, value) {
        (Shape::Any, _) | (Shape::Text, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => Ok(()),
        (Shape::Text | Shape::Time, other) if !other.is_string() => wrong(other, "string"),
        (Shape::Bool, other) => wrong(other, "bool"),
        (Shape::Integer, Value::Number(number)) if number.is_i64() => Ok(()),
        (Shape::Integer, other) => wrong(other, "int64"),
        (Shape::Text | Shape::Time, other) => {
            let text = other.as_str().unwrap_or_default();
            match text.parse::<jiff::Timestamp>() {
                Ok(_) => Ok(()),
                Err(_) => Err(MetaTypeError::Time {
                    text: text.to_owned(),
                }),
            }
        }
        (Shape::Texts, Value::Array(items)) => items
            .iter()
            .find(|item| !item.is_string() && !item.is_null())
            .map_or(Ok(()), |item| wrong(item, "string")),
        (Shape::Texts, other) => wrong(other, "[]string"),
        (Shape::TextMap, Value::Object(members)) => members
            .values()
            .find(|item| !item.is_string() && !item.is_null())
            .map_or(Ok(()), |item| wrong(item, "string")),
        (Shape::TextMap, other) => wrong(other, "map[string]string"),
        (Shape::List(inner, shapes), Value::Array(items)) => items.iter().try_for_each(|item| match item {
            Value::Null => Ok(()),
            Value::Object(members) => object(members, inner, path, shapes),
            other => wrong(
                other,
                if inner == "OwnerReference" {
                    "v1.OwnerReference"
                } else {
                    "v1.ManagedFieldsEntry"
                },
            ),
        }),
        (Shape::List(inner, _), other) => wrong(
            other,
            if inner == "OwnerReference" {
                "[]v1.OwnerReference"
            } else {
                "[]v1.ManagedFieldsEntry"
            },
        ),
    }
}
