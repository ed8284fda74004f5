//! Which objects of a collection a list or a watch is about.

use std::borrow::Cow;

use serde_json::Value;

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
        // Most field selectors name an object, which needs no look inside.
        let is_address = |field: &str| field == "metadata.name" || field == "metadata.namespace";
        let only_address = self.fields.terms().iter().all(|term| is_address(&term.field));
        let value = if only_address {
            Value::Null
        } else {
            self.served.present(object)
        };
        self.fields.matches(|field| {
            Some(match field {
                "metadata.name" => Cow::Borrowed(&*key.name),
                "metadata.namespace" => Cow::Borrowed(&*key.namespace),
                other => Cow::Owned(self.field(&value, other)),
            })
        })
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
