//! Which objects of a collection a list or a watch is about.

use serde_json::Value;

use crate::{
    builtin::Builtin,
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
        for field in fields.fields() {
            if !is_selectable(&target.served, field) {
                return Err(ApiError::bad_request(format!("field label not supported: {field}")));
            }
        }
        let namespace = (!target.namespace.is_empty()).then(|| target.namespace.clone());
        Ok(Self { served: target.served.clone(), namespace, labels, fields })
    }

    /// True when every object of the namespace matches.
    pub(crate) fn selects_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, key: &Key, object: &Object) -> bool {
        if self.namespace.as_deref().is_some_and(|namespace| namespace != &*key.namespace) {
            return false;
        }
        if !self.labels.matches(|label| object.meta.labels.get(label).map(String::as_str)) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        // Most field selectors name an object, which needs no look inside.
        let only_names = self.fields.fields().all(|field| field == "metadata.name" || field == "metadata.namespace");
        let value = if only_names { Value::Null } else { self.served.present(object) };
        self.fields.matches(|field| match field {
            "metadata.name" => key.name.to_string(),
            "metadata.namespace" => key.namespace.to_string(),
            other => self.field(&value, other),
        })
    }

    fn field(&self, object: &Value, path: &str) -> String {
        match (self.served.resource.builtin, path) {
            (Some(Builtin::Namespace), "name") => lookup(object, "metadata.name"),
            (Some(Builtin::Job), "status.successful") => or(lookup(object, "status.succeeded"), "0"),
            (Some(Builtin::Node), "spec.unschedulable") | (Some(Builtin::Pod), "spec.hostNetwork") => {
                or(lookup(object, path), "false")
            }
            (Some(Builtin::CoreEvent), "source") => {
                let component = lookup(object, "source.component");
                if component.is_empty() { lookup(object, "reportingComponent") } else { component }
            }
            _ => lookup(object, path),
        }
    }
}

fn is_selectable(served: &Served, field: &str) -> bool {
    field == "metadata.name"
        || (field == "metadata.namespace" && served.resource.scope == crate::resource::Scope::Namespaced)
        || served.version().selectable.iter().any(|selectable| selectable.path == field)
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

fn or(text: String, fallback: &str) -> String {
    if text.is_empty() { fallback.to_owned() } else { text }
}
