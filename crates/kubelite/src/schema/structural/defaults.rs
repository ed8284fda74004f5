//! Defaults must themselves be what the schema asks for, or every object that omits the field would be refused.

use serde_json::Value;

use crate::{
    field::{FieldError, FieldPath},
    schema::{Schema, prune, rules, validate},
};

/// Everything that is wrong with the defaults in a schema.
pub(super) fn check(root: &Schema, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node(root, true, path, &mut errors);
    errors
}

/// Defaults inside `additionalProperties` are never reached: there is no telling which keys they belong to.
fn node(schema: &Schema, is_root: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(default) = &schema.default {
        value(default, schema, is_root, &path.child("default"), errors);
    }
    if let Some(items) = &schema.items {
        node(items, false, &path.child("items"), errors);
    }
    for (name, property) in &schema.properties {
        node(property, false, &path.child("properties").key(name), errors);
    }
}

fn value(default: &Value, schema: &Schema, is_root: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut pruned = default.clone();
    prune::prune(&mut pruned, schema, is_root, None);
    if pruned != *default {
        errors.push(FieldError::invalid(
            path.clone(),
            default.clone(),
            "must not have unknown fields",
        ));
    }
    let mut wrong = Vec::new();
    validate::validate_embedded(default, schema, is_root, path, &mut wrong);
    if wrong.is_empty() {
        wrong = validate::check(default, None, schema, path);
    }
    if wrong.is_empty() {
        wrong = refused_by_rules(default, schema, path);
    }
    errors.append(&mut wrong);
}

/// The default must pass as an unchanged value and as a new one, for rules may treat the two differently.
fn refused_by_rules(default: &Value, schema: &Schema, path: &FieldPath) -> Vec<FieldError> {
    // Rules that do not compile are reported by themselves.
    let Ok(rules) = rules::compile_part(schema, path) else {
        return Vec::new();
    };
    let errors = rules.validate_at(path, default, Some(default));
    if errors.is_empty() {
        rules.validate_at(path, default, None)
    } else {
        errors
    }
}
