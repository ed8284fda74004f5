//! Resources inside resources (`x-kubernetes-embedded-resource`): they need an `apiVersion` and a `kind`, and their
//! metadata is checked as that of any object.

use serde_json::{Map, Value};

use crate::{
    field::{FieldError, FieldPath},
    names::{NameRule, dns_1035_label},
    schema::{MAX_DEPTH, Schema, meta, trail::Trail},
};

/// Adds what is wrong with the embedded resources in a value; with `is_root`, the value itself counts as one.
pub(in crate::schema) fn validate_embedded(
    value: &Value,
    schema: &Schema,
    is_root: bool,
    base: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    Walk { base, errors }.node(value, schema, is_root, &Trail::Root, 0);
}

struct Walk<'w> {
    base: &'w FieldPath,
    errors: &'w mut Vec<FieldError>,
}

impl Walk<'_> {
    fn node(&mut self, value: &Value, schema: &Schema, is_root: bool, trail: &Trail<'_>, depth: usize) {
        if (schema.plain && !is_root) || depth > MAX_DEPTH {
            return;
        }
        match value {
            Value::Object(members) => {
                if schema.embedded_resource || is_root {
                    self.resource(members, trail);
                }
                for (name, value) in members {
                    if let Some(property) = schema.properties.get(name) {
                        self.node(value, property, false, &trail.child(name), depth + 1);
                    } else if let Some(shape) = schema.member(name) {
                        self.node(value, shape, false, &trail.key(name), depth + 1);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(shape) = &schema.items {
                    for (index, item) in items.iter().enumerate() {
                        self.node(item, shape, false, &trail.index(index), depth + 1);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn resource(&mut self, members: &Map<String, Value>, trail: &Trail<'_>) {
        let path = trail.below(self.base);
        for name in ["apiVersion", "kind"] {
            if !members.contains_key(name) {
                self.errors.push(FieldError::required(path.child(name), ""));
            }
        }
        if let Some(version) = members.get("apiVersion") {
            self.text(version, &path.child("apiVersion"), |version| {
                (version.matches('/').count() > 1)
                    .then(|| format!("unexpected GroupVersion string: {version}"))
            });
        }
        if let Some(kind) = members.get("kind") {
            self.text(kind, &path.child("kind"), |kind| {
                let wrong = dns_1035_label(&kind.to_lowercase());
                (!wrong.is_empty()).then(|| {
                    format!(
                        "may have mixed case, but should otherwise match: {}",
                        wrong.join(",")
                    )
                })
            });
        }
        if let Some(metadata) = members.get("metadata") {
            self.metadata(metadata, &path.child("metadata"));
        }
    }

    fn text(&mut self, value: &Value, path: &FieldPath, wrong: impl Fn(&str) -> Option<String>) {
        let detail = match value.as_str() {
            None => Some("must be a string".to_owned()),
            Some("") => Some("must not be empty".to_owned()),
            Some(text) => wrong(text),
        };
        if let Some(detail) = detail {
            self.errors
                .push(FieldError::invalid(path.clone(), value.clone(), detail));
        }
    }

    fn metadata(&mut self, metadata: &Value, path: &FieldPath) {
        if let Err(error) = meta::check_types(metadata) {
            self.errors.push(FieldError::invalid(
                path.clone(),
                metadata.clone(),
                error.to_string(),
            ));
            return;
        }
        self.errors
            .extend(meta::check_with_rule(metadata, NameRule::PathSegment, path));
    }
}
