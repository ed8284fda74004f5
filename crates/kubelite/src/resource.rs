//! What the server serves: one `Resource` per kind, whether it is built in or came from a CustomResourceDefinition.
//!
//! Every other module works from this table. Nothing in the request path asks for a particular kind by name, except the
//! hooks that a built-in kind brings along.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    builtin::Builtin, request::Verb, schema::Schema, schema::rules::Rules, store::Collection, table::Column,
};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// A field that `fieldSelector` may name beside `metadata.name` and `metadata.namespace`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SelectableField {
    /// As written in a selector, without a leading dot: `spec.color`.
    pub path: String,
}

/// One served version of a resource.
#[derive(Clone, Debug)]
pub struct Version {
    pub name: String,
    pub served: bool,
    pub storage: bool,
    /// `None` for a custom resource whose definition preserves everything.
    pub schema: Arc<Schema>,
    /// The compiled CEL rules of the schema.
    pub rules: Arc<Rules>,
    /// The schema as the definition gave it, for OpenAPI. Built-in kinds produce theirs in `builtin`.
    pub openapi: Arc<Value>,
    pub has_status: bool,
    pub has_scale: bool,
    pub columns: Vec<Column>,
    pub selectable: Vec<SelectableField>,
    pub deprecation_warning: Option<String>,
    /// Objects stored before this revision may lack the defaults of this schema; 0 for built-in kinds, which have none.
    pub since_revision: u64,
}

/// One kind of object.
#[derive(Clone, Debug)]
pub struct Resource {
    pub group: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub scope: Scope,
    pub versions: Vec<Version>,
    /// Where its objects are stored. Two groups may share a collection (`Event` does).
    pub collection: Collection,
    /// Present for built-in kinds: defaults, validation and special behaviour.
    pub builtin: Option<Builtin>,
    /// Review kinds (`SelfSubjectAccessReview` …) answer a create and store nothing.
    pub verbs: &'static [Verb],
}

/// The verbs of a kind that is stored.
pub const ALL_VERBS: &[Verb] = &[
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];
/// The verbs of a review kind.
pub const CREATE_ONLY: &[Verb] = &[Verb::Create];

impl Resource {
    /// `apiVersion` of an object of this kind at a version.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", self.group)
        }
    }

    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions
            .iter()
            .find(|version| version.name == name && version.served)
    }

    pub fn is_custom(&self) -> bool {
        self.builtin.is_none()
    }
}
