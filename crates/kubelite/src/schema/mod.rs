//! Structural schemas: the shape of every kind, built in or learnt from a CustomResourceDefinition.
//!
//! One parsed form serves them all. `parse` reads it from OpenAPI JSON, and the other modules walk it: pruning,
//! defaulting, validation, CEL rules here; server-side apply, strategic merge and OpenAPI elsewhere.
//!
//! A request goes through them in this order: `meta::coerce_object_meta`, `prune::prune`,
//! `default::default_in_place`, `meta::check_object_meta`, and last `check_custom_resource`.

pub mod default;
pub mod meta;
pub mod parse;
pub mod prune;
pub mod rules;
pub mod structural;
pub mod validate;

mod correlate;
mod format;
mod pattern;
mod trail;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    defects::{Defect, Defects},
    field::{FieldError, FieldPath, Problem},
    schema::rules::Rules,
};

/// How deep schemas, and walks over values, may nest. A JSON document can nest 128 levels before the parser refuses it,
/// and a schema spends two of them per level, so no document that arrives over HTTP holds a deeper schema.
pub const MAX_DEPTH: usize = 128;

/// The JSON type of a value, as far as a schema may demand one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// `x-kubernetes-list-type`: how two lists are merged and who may own what in them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum ListType {
    /// One value, replaced and owned as a whole.
    #[default]
    Atomic,
    /// Scalars, each its own member.
    Set,
    /// Objects told apart by these keys.
    Map(Vec<String>),
}

/// `x-kubernetes-map-type`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MapType {
    #[default]
    Granular,
    Atomic,
}

/// `additionalProperties`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Additional {
    /// Not given: what is not in `properties` is unknown.
    #[default]
    Absent,
    /// `true`: any value.
    Any,
    /// Every value has this shape.
    Schema(Arc<Schema>),
}

/// How the strategic merge patch treats a list of a built-in kind.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum PatchStrategy {
    #[default]
    Replace,
    /// Merge scalars as a set, or objects by this key.
    Merge { key: Option<String>, retain_keys: bool },
    /// An object of which only the keys in the patch's `$retainKeys` stay.
    RetainKeys,
}

/// What Go's codec makes of the zero value of a built-in kind's field.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Zero {
    /// Held by pointer: absent and zero differ, and a zero that was written stays.
    #[default]
    Kept,
    /// Held by value and dropped when it is zero.
    Omitted,
    /// Held by value and always written: this stands in for an absent one.
    Filled(Value),
}

/// One rule of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CelRule {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    pub reason: String,
    pub field_path: String,
    pub optional_old_self: bool,
}

/// A schema node. Value validations inside `allOf`, `anyOf`, `oneOf` and `not` are nodes too, without structure of their own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    pub type_: Option<Type>,
    pub format: String,
    pub description: String,
    pub nullable: bool,
    pub default: Option<Value>,
    pub properties: BTreeMap<String, Arc<Schema>>,
    pub additional: Additional,
    pub items: Option<Arc<Schema>>,
    pub required: Vec<String>,

    pub preserve_unknown_fields: bool,
    pub embedded_resource: bool,
    pub int_or_string: bool,
    pub list_type: Option<ListType>,
    pub map_type: MapType,
    pub patch_strategy: PatchStrategy,
    pub zero: Zero,
    pub rules: Vec<CelRule>,

    pub enum_: Vec<Value>,
    pub pattern: Option<Pattern>,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub all_of: Vec<Arc<Schema>>,
    pub any_of: Vec<Arc<Schema>>,
    pub one_of: Vec<Arc<Schema>>,
    pub not: Option<Arc<Schema>>,

    /// Set by `parse` when neither this node nor one below it is an embedded resource or a list of type set or map, so
    /// that validation can skip the walks that only those need. `false` is always safe.
    pub plain: bool,
}

/// A compiled `pattern`. Two patterns are equal when their texts are.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: regex::Regex,
}

impl Pattern {
    /// Keeps the text as the schema gave it beside the compiled form, which may be spelt differently.
    fn new(text: String, regex: regex::Regex) -> Self {
        Self { text, regex }
    }

    /// The pattern as the schema spells it.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Schema {
    /// The schema of a member of an object, by name: a property, else the shape of additional properties.
    pub fn member(&self, name: &str) -> Option<&Arc<Schema>> {
        self.properties.get(name).or(match &self.additional {
            Additional::Schema(schema) => Some(schema),
            Additional::Absent | Additional::Any => None,
        })
    }
}

/// Everything the API server checks in a custom resource against its schema, after its metadata: the schema itself,
/// embedded resources, lists that are sets or maps, and CEL rules. With `old`, parts that did not change are forgiven.
/// `errors` are those already found in the metadata; they come first, and they too may keep the rules from running.
pub fn check_custom_resource(
    new: &Value,
    old: Option<&Value>,
    schema: &Schema,
    rules: &Rules,
    mut errors: Vec<FieldError>,
    defects: Defects,
) -> Vec<FieldError> {
    if !defects.has(Defect::Schemas) {
        let forgiving = old.filter(|_| !defects.has(Defect::Ratcheting));
        errors.extend(validate::validate_update(
            new,
            forgiving,
            schema,
            &FieldPath::root(),
        ));
    }
    if rules.is_empty() {
        return errors;
    }
    if errors.iter().any(keeps_rules_from_running) {
        errors.push(FieldError::invalid(
            FieldPath::root(),
            Value::Null,
            "some validation rules were not checked because the object was invalid; \
             correct the existing errors to complete validation",
        ));
        return errors;
    }
    errors.extend(rules.validate(new, old.filter(|_| !defects.has(Defect::OldSelf))));
    errors
}

/// CEL rules are written for values that have the declared shape; on others they would only fail in confusing ways.
fn keeps_rules_from_running(error: &FieldError) -> bool {
    matches!(
        error.problem,
        Problem::NotSupported(..)
            | Problem::Required
            | Problem::TooLong { .. }
            | Problem::TooMany { .. }
            | Problem::TypeInvalid(_)
    )
}

#[cfg(test)]
mod robustness;
