//! What makes a schema structural: every field has its type outside of alternatives, and alternatives only restrict.

use serde_json::{Map, Value, json};

use super::{alternatives, flag, is_set, properties, schema, text};
use crate::{
    field::{FieldError, FieldPath},
    schema::pattern,
};

type Json = Map<String, Value>;

/// Where a schema stands, which decides the wording about a missing type.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Everything that keeps a schema from being structural, in the order of the messages.
pub(super) fn check(root: &Json, path: &FieldPath) -> Vec<FieldError> {
    let mut checker = Checker { errors: Vec::new() };
    checker.node(root, Level::Root, path);
    checker.restrictions(root, Some(root), path, path);
    checker.errors.sort_by_cached_key(ToString::to_string);
    checker.errors
}

struct Checker {
    errors: Vec<FieldError>,
}

impl Checker {
    fn required(&mut self, path: FieldPath, detail: impl Into<String>) {
        self.errors.push(FieldError::required(path, detail));
    }

    fn forbidden(&mut self, path: FieldPath, detail: &str) {
        self.errors.push(FieldError::forbidden(path, detail));
    }

    fn invalid(&mut self, path: FieldPath, value: impl Into<Value>, detail: &str) {
        self.errors.push(FieldError::invalid(path, value, detail));
    }

    fn node(&mut self, node: &Json, level: Level, path: &FieldPath) {
        if text(node, "type") == "array" && schema(node, "items").is_none() {
            self.required(path.child("items"), "must be specified");
        }
        if let Some(items) = schema(node, "items") {
            self.node(items, Level::Item, &path.child("items"));
        }
        for (name, property) in properties(node) {
            self.node(property, Level::Field, &path.child("properties").key(name));
        }
        if node
            .get("additionalProperties")
            .is_some_and(|value| !value.is_null())
        {
            if level == Level::Root {
                self.forbidden(path.child("additionalProperties"), "must not be used at the root");
            }
            if let Some(shape) = schema(node, "additionalProperties") {
                self.node(shape, Level::Field, &path.child("additionalProperties"));
            }
        }
        self.extensions(node, path);
        let exempt_any_of = is_int_or_string(node);
        let exempt_first = alternatives(node, "allOf")
            .next()
            .is_some_and(|(_, first)| is_int_or_string(first));
        self.value_validation(node, exempt_any_of, exempt_first, path);
        self.type_(node, level, path);
        self.meta_fields(node, level, path);
    }

    fn extensions(&mut self, node: &Json, path: &FieldPath) {
        if !flag(node, "x-kubernetes-int-or-string") {
            return;
        }
        for name in [
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-embedded-resource",
        ] {
            if flag(node, name) {
                self.invalid(
                    path.child(name),
                    true,
                    "must be false if x-kubernetes-int-or-string is true",
                );
            }
        }
    }

    fn type_(&mut self, node: &Json, level: Level, path: &FieldPath) {
        let type_ = text(node, "type");
        let embedded = flag(node, "x-kubernetes-embedded-resource");
        let preserves = flag(node, "x-kubernetes-preserve-unknown-fields");
        let needs_none = preserves || flag(node, "x-kubernetes-int-or-string");
        let type_path = path.child("type");
        if embedded && type_ != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            if type_.is_empty() {
                self.required(type_path.clone(), detail);
            } else {
                self.invalid(type_path.clone(), type_, detail);
            }
        } else if type_.is_empty() && !needs_none {
            self.required(
                type_path.clone(),
                match level {
                    Level::Root => "must not be empty at the root",
                    Level::Item => "must not be empty for specified array items",
                    Level::Field => "must not be empty for specified object fields",
                },
            );
        }
        if embedded
            && node
                .get("additionalProperties")
                .is_some_and(|value| !value.is_null())
        {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            self.forbidden(path.child("additionalProperties"), detail);
        }
        if level == Level::Root && !matches!(type_, "" | "object") {
            self.invalid(type_path, type_, "must be object at the root");
        }
        if embedded && !preserves && properties(node).next().is_none() {
            self.required(
                path.child("properties"),
                "must not be empty if x-kubernetes-embedded-resource is true without \
                 x-kubernetes-preserve-unknown-fields",
            );
        }
    }

    fn meta_fields(&mut self, node: &Json, level: Level, path: &FieldPath) {
        let is_resource = level == Level::Root || flag(node, "x-kubernetes-embedded-resource");
        for (name, property) in properties(node) {
            let path = path.child("properties").key(name);
            let type_ = text(property, "type");
            match name {
                "kind" | "apiVersion" if is_resource && type_ != "string" => {
                    self.invalid(path.child("type"), type_, "must be string");
                }
                "metadata" => {
                    if is_resource && type_ != "object" {
                        self.invalid(path.child("type"), type_, "must be object");
                    }
                    if level == Level::Root && says_more_than_names(property) {
                        self.forbidden(
                            path,
                            "must not specify anything other than name and generateName, \
                             but metadata is implicitly specified",
                        );
                    }
                }
                _ => {}
            }
        }
    }

    fn value_validation(&mut self, node: &Json, exempt_any_of: bool, exempt_first: bool, path: &FieldPath) {
        if !exempt_any_of {
            for (index, part) in alternatives(node, "anyOf") {
                self.nested(part, false, &path.child("anyOf").index(index));
            }
        }
        for (index, part) in alternatives(node, "allOf") {
            self.nested(
                part,
                exempt_first && index == 0,
                &path.child("allOf").index(index),
            );
        }
        for (index, part) in alternatives(node, "oneOf") {
            self.nested(part, false, &path.child("oneOf").index(index));
        }
        if let Some(not) = schema(node, "not") {
            self.nested(not, false, &path.child("not"));
        }
        let regex = text(node, "pattern");
        if let Err(error) = pattern::compile(regex) {
            let detail = format!("must be a valid regular expression, but isn't: {error}");
            self.invalid(path.child("pattern"), regex, &detail);
        }
    }

    /// A schema inside an alternative, which may restrict values but not shape them.
    fn nested(&mut self, node: &Json, exempt_any_of: bool, path: &FieldPath) {
        const SHAPING: [(&str, &str); 12] = [
            ("type", "must be empty to be structural"),
            ("additionalProperties", "must be undefined to be structural"),
            ("default", "must be undefined to be structural"),
            ("title", "must be empty to be structural"),
            ("description", "must be empty to be structural"),
            ("nullable", "must be false to be structural"),
            (
                "x-kubernetes-preserve-unknown-fields",
                "must be false to be structural",
            ),
            ("x-kubernetes-embedded-resource", "must be false to be structural"),
            ("x-kubernetes-int-or-string", "must be false to be structural"),
            ("x-kubernetes-list-map-keys", "must be empty to be structural"),
            ("x-kubernetes-list-type", "must be undefined to be structural"),
            ("x-kubernetes-map-type", "must be undefined to be structural"),
        ];

        self.value_validation(node, exempt_any_of, false, path);
        if let Some(items) = schema(node, "items") {
            self.nested(items, false, &path.child("items"));
        }
        for (name, property) in properties(node) {
            self.nested(property, false, &path.child("properties").key(name));
        }
        for (name, detail) in SHAPING {
            if is_set(node, name)
                || (name == "default" && node.get(name).is_some_and(|value| !value.is_null()))
            {
                self.forbidden(path.child(name), detail);
            }
        }
        if is_set(node, "x-kubernetes-validations") {
            self.forbidden(
                path.child("x-kubernetes-validations"),
                "must be empty to be structural",
            );
        }
        if properties(node).any(|(name, _)| name == "metadata") {
            let path = path.child("properties").key("metadata");
            self.forbidden(path, "must not be specified in a nested context");
        }
    }

    /// Everything that alternatives restrict must be shaped outside of them: `shape` is what corresponds to `node` there,
    /// and stands at `at`.
    fn restrictions(&mut self, node: &Json, shape: Option<&Json>, at: &FieldPath, path: &FieldPath) {
        if let Some(not) = schema(node, "not") {
            self.covered(not, shape, at, &path.child("not"));
        }
        for name in ["allOf", "anyOf", "oneOf"] {
            for (index, part) in alternatives(node, name) {
                self.covered(part, shape, at, &path.child(name).index(index));
            }
        }
    }

    fn covered(&mut self, node: &Json, shape: Option<&Json>, at: &FieldPath, path: &FieldPath) {
        let Some(shape) = shape else {
            self.required(at.clone(), format!("because it is defined in {path}"));
            return;
        };
        self.restrictions(node, Some(shape), at, path);
        if let Some(items) = schema(node, "items") {
            self.covered(
                items,
                schema(shape, "items"),
                &at.child("items"),
                &path.child("items"),
            );
        }
        for (name, property) in properties(node) {
            let at = at.child("properties").key(name);
            let path = path.child("properties").key(name);
            let found = properties(shape)
                .find(|(known, _)| *known == name)
                .map(|(_, shape)| shape);
            self.covered(property, found, &at, &path);
        }
    }
}

fn is_int_or_string(node: &Json) -> bool {
    node.get("anyOf") == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}

/// Whether the schema of `metadata` at the root describes more than the names.
fn says_more_than_names(metadata: &Json) -> bool {
    const IGNORED: [&str; 8] = [
        "type",
        "default",
        "properties",
        "externalDocs",
        "example",
        "$schema",
        "id",
        "$ref",
    ];
    let other_fields = properties(metadata).any(|(name, _)| !matches!(name, "name" | "generateName"));
    other_fields
        || metadata
            .keys()
            .any(|name| !IGNORED.contains(&name.as_str()) && is_set(metadata, name))
}
