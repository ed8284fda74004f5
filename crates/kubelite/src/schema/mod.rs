//! Structural schemas: the shape of every kind, built in or learnt from a CustomResourceDefinition.
//!
//! One parsed form serves them all. `parse` reads it from OpenAPI JSON, and the other modules walk it: pruning,
//! defaulting, validation, CEL rules here; server-side apply, strategic merge and OpenAPI elsewhere.

pub mod rules;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

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
}

/// A compiled `pattern`. Two patterns are equal when their texts are.
#[derive(Clone, Debug)]
pub struct Pattern(pub regex::Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
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
