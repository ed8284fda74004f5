//! Keywords that are not supported, or not together with others.

use serde_json::{Map, Value};

use super::{alternatives, flag, is_set, list, properties, schema, text};
use crate::{
    field::{FieldError, FieldPath, Problem},
    schema::{parse, prune::is_meta_field, rules::normalize_field_path},
};

type Json = Map<String, Value>;

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Everything that is wrong with the keywords of a schema and of those below it.
pub(super) fn check(root: &Json, path: &FieldPath) -> Vec<FieldError> {
    let mut checker = Checker { errors: Vec::new() };
    checker.node(
        root,
        Place {
            is_root: true,
            ..Place::default()
        },
        path,
    );
    checker.errors
}

/// What holds for a schema because of where it stands.
#[derive(Clone, Copy, Default)]
struct Place {
    is_root: bool,
    inside_metadata: bool,
    /// Why a default may not be given here.
    no_default: Option<&'static str>,
}

struct Checker {
    errors: Vec<FieldError>,
}

impl Checker {
    fn forbidden(&mut self, path: FieldPath, detail: impl Into<String>) {
        self.errors.push(FieldError::forbidden(path, detail));
    }

    fn required(&mut self, path: FieldPath, detail: impl Into<String>) {
        self.errors.push(FieldError::required(path, detail));
    }

    fn invalid(&mut self, path: FieldPath, value: impl Into<Value>, detail: impl Into<String>) {
        self.errors.push(FieldError::invalid(path, value, detail));
    }

    fn unsupported(&mut self, path: FieldPath, value: &str, allowed: &[&str]) {
        let allowed = allowed.iter().map(|&text| text.to_owned()).collect();
        self.errors.push(FieldError::new(
            path,
            Problem::NotSupported(Value::from(value), allowed),
            "",
        ));
    }

    fn node(&mut self, node: &Json, place: Place, path: &FieldPath) {
        self.unsupported_keywords(node, place, path);
        if flag(node, "uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbidden(path.child("uniqueItems"), detail);
        }
        self.members(node, place, path);
        let inner = Place {
            is_root: false,
            ..place
        };
        if let Some(not) = schema(node, "not") {
            self.node(not, inner, &path.child("not"));
        }
        for name in ["allOf", "oneOf", "anyOf"] {
            for (index, part) in alternatives(node, name) {
                self.node(part, inner, &path.child(name).index(index));
            }
        }
        if let Some(items) = schema(node, "items") {
            self.node(items, inner, &path.child("items"));
        }
        if node.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            self.invalid(
                path.child("x-kubernetes-preserve-unknown-fields"),
                false,
                "must be true or undefined",
            );
        }
        self.map_type(node, path);
        self.list_type(node, path);
        self.list_map_keys(node, path);
        self.keyed_items(node, path);
        self.rules(node, path);
    }

    fn unsupported_keywords(&mut self, node: &Json, place: Place, path: &FieldPath) {
        if node.get("default").is_some_and(|value| !value.is_null())
            && let Some(reason) = place.no_default
        {
            self.forbidden(path.child("default"), format!("must not be set {reason}"));
        }
        for name in [
            "id",
            "additionalItems",
            "patternProperties",
            "definitions",
            "dependencies",
            "$ref",
        ] {
            if is_set(node, name) {
                self.forbidden(path.child(name), format!("{name} is not supported"));
            }
        }
        if text(node, "type") == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            self.unsupported(path.child("type"), "null", &parse::TYPES);
            self.forbidden(path.child("type"), detail);
        }
        if node.get("items").is_some_and(Value::is_array) {
            self.forbidden(
                path.child("items"),
                "items must be a schema object and not an array",
            );
        }
        if place.inside_metadata && flag(node, "x-kubernetes-embedded-resource") {
            self.forbidden(
                path.child("x-kubernetes-embedded-resource"),
                "must not be used inside of resource meta",
            );
        }
    }

    fn members(&mut self, node: &Json, place: Place, path: &FieldPath) {
        let has_properties = schema(node, "properties").is_some_and(|properties| !properties.is_empty());
        if has_properties
            && matches!(
                node.get("additionalProperties"),
                Some(Value::Bool(false) | Value::Object(_))
            )
        {
            let detail = "additionalProperties and properties are mutual exclusive";
            self.forbidden(path.child("additionalProperties"), detail);
        }
        if let Some(shape) = schema(node, "additionalProperties") {
            let mut inner = Place {
                is_root: false,
                ..place
            };
            if place.inside_metadata {
                inner.no_default = Some("inside additionalProperties applying to object metadata");
            }
            self.node(shape, inner, &path.child("additionalProperties"));
        }
        let is_resource = place.is_root || flag(node, "x-kubernetes-embedded-resource");
        for (name, property) in properties(node) {
            let mut inner = Place {
                is_root: false,
                ..place
            };
            if is_resource && is_meta_field(name) {
                inner.inside_metadata = true;
                if place.is_root {
                    inner.no_default = Some(match name {
                        "metadata" => "in top-level metadata",
                        "kind" => "in top-level kind",
                        _ => "in top-level apiVersion",
                    });
                }
            }
            self.node(property, inner, &path.child("properties").key(name));
        }
    }

    /// Complains if a keyword needs another type than the schema has.
    fn needs_type(&mut self, node: &Json, wanted: &str, keyword: &str, path: &FieldPath) -> bool {
        let type_ = text(node, "type");
        let detail = format!("must be {wanted} if {keyword} is specified");
        if type_.is_empty() {
            self.required(path.child("type"), detail);
        } else if type_ != wanted {
            self.invalid(path.child("type"), type_, detail);
        }
        type_ == wanted
    }

    fn map_type(&mut self, node: &Json, path: &FieldPath) {
        let keyword = "x-kubernetes-map-type";
        let Some(kind) = node.get(keyword).and_then(Value::as_str) else {
            return;
        };
        self.needs_type(node, "object", keyword, path);
        if !matches!(kind, "atomic" | "granular") {
            self.unsupported(path.child(keyword), kind, &["atomic", "granular"]);
        }
    }

    fn list_type(&mut self, node: &Json, path: &FieldPath) {
        let keyword = "x-kubernetes-list-type";
        let Some(kind) = node.get(keyword).and_then(Value::as_str) else {
            return;
        };
        if self.needs_type(node, "array", keyword, path)
            && kind == "set"
            && let Some(items) = schema(node, "items")
        {
            let path = path.child("items");
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let list_type = items.get(keyword).cloned().unwrap_or_default();
            match text(items, "type") {
                "array" if !matches!(text(items, keyword), "" | "atomic") => {
                    self.invalid(path.child(keyword), list_type, detail);
                }
                "object" if text(items, "x-kubernetes-map-type") != "atomic" => {
                    self.invalid(path.child("x-kubernetes-map-type"), list_type, detail);
                }
                _ => {}
            }
        }
        if !matches!(kind, "atomic" | "set" | "map") {
            self.unsupported(path.child(keyword), kind, &["atomic", "set", "map"]);
        }
    }

    fn list_map_keys(&mut self, node: &Json, path: &FieldPath) {
        let keyword = "x-kubernetes-list-map-keys";
        let keys = list(node, keyword);
        let kind = node.get("x-kubernetes-list-type").and_then(Value::as_str);
        if !keys.is_empty() && kind != Some("map") {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            let path = path.child("x-kubernetes-list-type");
            match kind {
                None => self.required(path, detail),
                Some(kind) => self.invalid(path, kind, detail),
            }
        }
        if kind != Some("map") {
            return;
        }
        if keys.is_empty() {
            self.required(
                path.child(keyword),
                "must not be empty if x-kubernetes-list-type is map",
            );
        }
        let Some(items) = schema(node, "items") else {
            self.required(
                path.child("items"),
                "must have a schema if x-kubernetes-list-type is map",
            );
            return;
        };
        if text(items, "type") != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            self.invalid(path.child("items").child("type"), text(items, "type"), detail);
            return;
        }
        for (position, key) in keys.iter().enumerate() {
            let name = key.as_str().unwrap_or_default();
            match properties(items).find(|(known, _)| *known == name) {
                Some((_, property)) if matches!(text(property, "type"), "array" | "object") => {
                    let path = path.child("items").child("properties").key(name).child("type");
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    self.invalid(path, text(items, "type"), detail);
                }
                Some(_) => {}
                None => {
                    let detail = "entries must all be names of item properties";
                    self.invalid(path.child(keyword), Value::Array(keys.to_vec()), detail);
                }
            }
            if keys.iter().take(position).any(|earlier| earlier == key) {
                let detail = "must not contain duplicate entries";
                self.invalid(path.child(keyword), Value::Array(keys.to_vec()), detail);
            }
        }
    }

    /// Items that are told apart by their value or keys must have one.
    fn keyed_items(&mut self, node: &Json, path: &FieldPath) {
        let kind = text(node, "x-kubernetes-list-type");
        let Some(items) = schema(node, "items").filter(|_| matches!(kind, "set" | "map")) else {
            return;
        };
        let path = path.child("items");
        if flag(items, "nullable") {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
            self.forbidden(path.child("nullable"), detail);
        }
        if kind != "map" {
            return;
        }
        for key in list(node, "x-kubernetes-list-map-keys")
            .iter()
            .filter_map(Value::as_str)
        {
            let Some((_, property)) = properties(items).find(|(known, _)| *known == key) else {
                continue;
            };
            let path = path.child("properties").key(key);
            let is_required = list(items, "required").iter().any(|name| name == key);
            if !is_required && property.get("default").is_none_or(Value::is_null) {
                self.required(
                    path.child("default"),
                    "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                     property",
                );
            }
            if flag(property, "nullable") {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.forbidden(path.child("nullable"), detail);
            }
        }
    }

    fn rules(&mut self, node: &Json, path: &FieldPath) {
        for (index, rule) in alternatives(node, "x-kubernetes-validations") {
            self.rule(node, rule, &path.child("x-kubernetes-validations").index(index));
        }
    }

    fn rule(&mut self, node: &Json, rule: &Json, path: &FieldPath) {
        let has_breaks = |text: &str| text.contains(['\n', '\r']);
        let expression = text(rule, "rule").trim();
        let message = text(rule, "message");
        if expression.is_empty() {
            self.required(path.child("rule"), "rule is not specified");
        } else if !message.is_empty() && message.trim().is_empty() {
            self.invalid(path.child("message"), message, "must be non-empty if specified");
        } else if has_breaks(message.trim()) {
            self.invalid(path.child("message"), message, "must not contain line breaks");
        } else if has_breaks(expression) && message.trim().is_empty() {
            self.required(
                path.child("message"),
                "message must be specified if rule contains line breaks",
            );
        }
        let message_expression = text(rule, "messageExpression");
        if !message_expression.is_empty() && message_expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            self.required(path.child("messageExpression"), detail);
        }
        if let Some(reason) = rule.get("reason").and_then(Value::as_str)
            && !REASONS.contains(&reason)
        {
            self.unsupported(path.child("reason"), reason, &REASONS);
        }
        let field_path = text(rule, "fieldPath");
        if field_path.is_empty() {
            return;
        }
        let path = path.child("fieldPath");
        if field_path.trim().is_empty() {
            self.invalid(path.clone(), field_path, "must be non-empty if specified");
        }
        if has_breaks(field_path) {
            self.invalid(path.clone(), field_path, "must not contain line breaks");
        }
        let leads_nowhere = parse::parse(&Value::Object(node.clone()))
            .is_ok_and(|schema| normalize_field_path(field_path, &schema).is_none());
        if leads_nowhere {
            self.invalid(path, field_path, "must be a valid path");
        }
    }
}
