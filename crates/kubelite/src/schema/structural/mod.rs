//! Which schemas a CustomResourceDefinition may have: structural ones, with defaults that are valid themselves and CEL
//! rules that compile. Worded as `k8s.io/apiextensions-apiserver` words it.
//!
//! The checks read the JSON, not the parsed schema, because much of what they refuse has no place in the latter.

mod defaults;
mod invariants;
mod keywords;

use serde_json::{Map, Value};

use crate::{
    field::{FieldError, FieldPath},
    schema::{
        MAX_DEPTH, Schema, parse,
        rules::{self, Rules},
    },
};

/// Keywords that may stand at the root beside a status subresource, whose schema is cut out of the root's properties.
const ALLOWED_BESIDE_STATUS: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// Keywords with a meaning that may not stand there.
const REFUSED_BESIDE_STATUS: [&str; 22] = [
    "id",
    "$schema",
    "$ref",
    "default",
    "nullable",
    "enum",
    "maxProperties",
    "minProperties",
    "allOf",
    "oneOf",
    "anyOf",
    "not",
    "additionalProperties",
    "patternProperties",
    "dependencies",
    "additionalItems",
    "definitions",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];

/// Reads the schema of a definition's version, with its rules, or says why it is not acceptable. `path` is where the
/// schema stands (`spec.versions[0].schema.openAPIV3Schema`).
pub fn accept(
    openapi: &Value,
    has_status: bool,
    path: &FieldPath,
) -> Result<(Schema, Rules), Vec<FieldError>> {
    let parsed = parse::parse_at(openapi, path);
    let mut errors = check_json(openapi, has_status, path);
    let schema = match parsed {
        Ok(schema) => schema,
        Err(wrong) => {
            // Where the rules above already spoke about a place, what the parser says about it adds nothing.
            for error in wrong {
                if !errors.iter().any(|told| told.path == error.path) {
                    errors.push(error);
                }
            }
            return Err(errors);
        }
    };
    if !errors.is_empty() {
        return Err(errors);
    }
    let errors = defaults::check(&schema, path);
    if !errors.is_empty() {
        return Err(errors);
    }
    let rules = rules::compile_at(&schema, path)?;
    Ok((schema, rules))
}

/// As `accept`, when only the verdict matters.
pub fn check(openapi: &Value, has_status: bool, path: &FieldPath) -> Vec<FieldError> {
    accept(openapi, has_status, path).err().unwrap_or_default()
}

fn check_json(openapi: &Value, has_status: bool, path: &FieldPath) -> Vec<FieldError> {
    // The parser has reported both of these.
    let Some(root) = openapi
        .as_object()
        .filter(|_| !nests_beyond(openapi, 2 * MAX_DEPTH))
    else {
        return Vec::new();
    };
    let mut errors = Vec::new();
    if has_status {
        beside_status(root, openapi, path, &mut errors);
    }
    if flag(root, "nullable") {
        errors.push(FieldError::forbidden(
            path.child("nullable"),
            "nullable cannot be true at the root",
        ));
    }
    errors.extend(invariants::check(root, path));
    errors.extend(keywords::check(root, path));
    errors
}

fn beside_status(root: &Map<String, Value>, openapi: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let type_ = text(root, "type");
    if !matches!(type_, "" | "object") {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(path.child("type"), type_, detail));
    }
    if REFUSED_BESIDE_STATUS.iter().any(|name| is_set(root, name)) {
        let allowed: Vec<&str> = ALLOWED_BESIDE_STATUS.iter().map(|(_, name)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            allowed.join(" ")
        );
        errors.push(FieldError::invalid(path.clone(), openapi.clone(), detail));
    }
}

fn nests_beyond(value: &Value, levels: usize) -> bool {
    let Some(levels) = levels.checked_sub(1) else {
        return true;
    };
    match value {
        Value::Array(items) => items.iter().any(|item| nests_beyond(item, levels)),
        Value::Object(members) => members.values().any(|member| nests_beyond(member, levels)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// A keyword's text, empty if there is none.
fn text<'j>(node: &'j Map<String, Value>, name: &str) -> &'j str {
    node.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(node: &Map<String, Value>, name: &str) -> bool {
    node.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn list<'j>(node: &'j Map<String, Value>, name: &str) -> &'j [Value] {
    node.get(name)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// A schema below a keyword.
fn schema<'j>(node: &'j Map<String, Value>, name: &str) -> Option<&'j Map<String, Value>> {
    node.get(name).and_then(Value::as_object)
}

/// The schemas below `properties`.
fn properties(node: &Map<String, Value>) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
    schema(node, "properties")
        .into_iter()
        .flatten()
        .filter_map(|(name, property)| Some((name.as_str(), property.as_object()?)))
}

/// The schemas of a list such as `anyOf`.
fn alternatives<'j>(
    node: &'j Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = (usize, &'j Map<String, Value>)> {
    list(node, name)
        .iter()
        .enumerate()
        .filter_map(|(index, item)| Some((index, item.as_object()?)))
}

/// Whether a keyword says anything.
fn is_set(node: &Map<String, Value>, name: &str) -> bool {
    match node.get(name) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(members)) => {
            !members.is_empty() || matches!(name, "additionalProperties" | "not" | "items")
        }
        Some(Value::Bool(true) | Value::Number(_)) => true,
    }
}

#[cfg(test)]
mod tests;
