//! Which objects of a collection a list or a watch is about.

use std::borrow::Cow;

use serde::{
    Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value};

use crate::{
    builtin,
    error::ApiError,
    selector::{FieldSelector, LabelSelector},
    server::{registry::Served, target::Target},
    store::{Key, Object},
};

/// A namespace, labels and fields, as a request asked for them.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    served: Served,
    /// `None` selects all namespaces.
    pub(crate) namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    pub(crate) fn new(target: &Target, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let labels =
            LabelSelector::parse(labels).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let fields =
            FieldSelector::parse(fields).map_err(|error| ApiError::bad_request(error.to_string()))?;
        fields
            .check_fields(|field| is_selectable(&target.served, field))
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let namespace = (!target.namespace.is_empty()).then(|| target.namespace.clone());
        Ok(Self {
            served: target.served.clone(),
            namespace,
            labels,
            fields,
        })
    }

    /// True when every object of the namespace matches.
    pub(crate) fn selects_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, key: &Key, object: &Object) -> bool {
        if self
            .namespace
            .as_deref()
            .is_some_and(|namespace| namespace != &*key.namespace)
        {
            return false;
        }
        if !self.labels.matches(|label| object.meta.labels.get(label)) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let value = self.look_inside(object);
        self.fields.matches(|field| {
            Some(match field {
                "metadata.name" => Cow::Borrowed(&*key.name),
                "metadata.namespace" => Cow::Borrowed(&*key.namespace),
                other => Cow::Owned(self.field(&value, other)),
            })
        })
    }

    /// As much of an object as the fields ask for. Every change of every object is looked at for every watch, so what nobody
    /// asks for is not even built.
    fn look_inside(&self, object: &Object) -> Value {
        let terms = self.fields.terms().iter();
        let fields = terms
            .map(|term| term.field.as_str())
            .filter(|field| !is_address(field));
        let members: Option<Vec<&str>> = fields.map(own_member).collect();
        match (members, self.served.raw(object)) {
            (Some(members), _) if members.is_empty() => Value::Null,
            (Some(members), Some(raw)) => serde_json::Deserializer::from_slice(raw)
                .deserialize_map(Members(&members))
                .unwrap_or_else(|_| self.served.present(object)),
            _ => self.served.present(object),
        }
    }

    fn field(&self, object: &Value, path: &str) -> String {
        let special = self
            .served
            .resource
            .builtin
            .and_then(|kind| builtin::selectable_value(kind, path, object));
        special.unwrap_or_else(|| lookup(object, path))
    }
}

/// Most field selectors name an object, which needs no look inside.
fn is_address(field: &str) -> bool {
    field == "metadata.name" || field == "metadata.namespace"
}

/// The member of an object that alone decides on a field. There are fields of events that are put together from several.
fn own_member(field: &str) -> Option<&str> {
    let (member, _) = field.split_once('.')?;
    matches!(member, "spec" | "status").then_some(member)
}

/// Reads some members of an object and skips the others.
struct Members<'a>(&'a [&'a str]);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            if self.0.contains(&&*name) {
                members.insert(name.into_owned(), map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Object(members))
    }
}

fn is_selectable(served: &Served, field: &str) -> bool {
    field == "metadata.name"
        || (field == "metadata.namespace" && served.resource.scope == crate::resource::Scope::Namespaced)
        || served
            .version()
            .selectable
            .iter()
            .any(|selectable| selectable.path == field)
}

/// A scalar at a dotted path, as text; "" where there is none.
fn lookup(object: &Value, path: &str) -> String {
    let mut value = object;
    for segment in path.split('.') {
        match value.get(segment) {
            Some(inner) => value = inner,
            None => return String::new(),
        }
    }
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_members_that_are_asked_for_are_read() {
        let json =
            br#"{"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}"#;
        for (members, expected) in [
            (&["spec"][..], json!({"spec": {"nodeName": "n"}})),
            (
                &["status", "spec"],
                json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}),
            ),
            (&["absent"], json!({})),
        ] {
            let value = serde_json::Deserializer::from_slice(json)
                .deserialize_map(Members(members))
                .unwrap();
            assert_eq!(value, expected, "{members:?}");
        }
    }

    #[test]
    fn fields_of_events_are_looked_for_in_the_whole() {
        assert_eq!(own_member("spec.nodeName"), Some("spec"));
        for field in ["source", "involvedObject.name", "reason"] {
            assert_eq!(own_member(field), None, "{field}");
        }
    }
}
