//! Resources for the tests of several modules.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    builtin::Builtin,
    resource::{ALL_VERBS, Resource, Scope, Version},
    store::Collection,
};

pub(crate) fn version(name: &str, openapi: Value) -> Version {
    Version {
        name: name.to_owned(),
        served: true,
        storage: true,
        schema: Arc::default(),
        rules: Arc::default(),
        openapi: Arc::new(openapi),
        has_status: false,
        has_scale: false,
        columns: vec![],
        selectable: vec![],
        deprecation_warning: None,
        since_revision: 0,
    }
}

fn resource(group: &str, kind: &str, builtin: Option<Builtin>, versions: Vec<Version>) -> Resource {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    Resource {
        group: group.to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        singular,
        short_names: vec![],
        categories: vec![],
        scope: Scope::Namespaced,
        versions,
        collection: Collection::new(group, &plural),
        plural,
        builtin,
        verbs: ALL_VERBS,
    }
}

/// A custom resource `widgets.example.com` at `v1`.
pub(crate) fn widget() -> Resource {
    custom(
        "example.com",
        "Widget",
        vec![version("v1", json!({ "type": "object" }))],
    )
}

pub(crate) fn custom(group: &str, kind: &str, versions: Vec<Version>) -> Resource {
    resource(group, kind, None, versions)
}

/// A built-in kind at `v1`.
pub(crate) fn builtin(group: &str, kind: &str, builtin: Builtin) -> Resource {
    resource(group, kind, Some(builtin), vec![version("v1", Value::Null)])
}
