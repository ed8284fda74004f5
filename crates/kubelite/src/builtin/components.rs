//! The OpenAPI v3 components of the built-in kinds, which clients such as `kubectl explain` read.
//!
//! They are made once from the Kubernetes types in `k8s-openapi` and the facts in `facts`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use k8s_openapi::{
    api::{
        authentication::v1::{SelfSubjectReview, TokenReview},
        authorization::v1::SelfSubjectAccessReview,
        batch::v1::Job,
        coordination::v1::Lease,
        core::v1::{
            ConfigMap, Event as CoreEvent, Namespace, Node, PersistentVolumeClaim, Pod, Secret,
            ServiceAccount,
        },
        events::v1::Event,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::DeleteOptions,
};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{
    Builtin,
    facts::{ATOMIC_TYPES, FIELDS, Fact},
};

const REFERENCE: &str = "#/components/schemas/";
pub(super) const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
pub(super) const QUANTITY_TYPE: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
pub(super) const INT_OR_STRING_TYPE: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
pub(super) const RAW_EXTENSION_TYPE: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// The OpenAPI v3 components of a built-in kind, by name, with everything that it refers to.
pub fn openapi(builtin: Builtin) -> &'static Value {
    static BY_KIND: LazyLock<Vec<Value>> = LazyLock::new(|| {
        Builtin::ALL
            .iter()
            .map(|kind| closure(&component_name(*kind)))
            .collect()
    });
    BY_KIND.get(builtin as usize).unwrap_or(&Value::Null)
}

/// The name of a built-in kind's own component, as in `io.k8s.api.core.v1.Pod`.
pub fn component_name(builtin: Builtin) -> String {
    component(&format!("{}.{}", family(builtin), builtin.info().kind))
}

fn family(builtin: Builtin) -> &'static str {
    match builtin {
        Builtin::Namespace
        | Builtin::Node
        | Builtin::Pod
        | Builtin::ConfigMap
        | Builtin::Secret
        | Builtin::ServiceAccount
        | Builtin::PersistentVolumeClaim
        | Builtin::CoreEvent => "core.v1",
        Builtin::Event => "events.v1",
        Builtin::Lease => "coordination.v1",
        Builtin::Job => "batch.v1",
        Builtin::CustomResourceDefinition => "apiextensions.v1",
        Builtin::SelfSubjectReview | Builtin::TokenReview => "authentication.v1",
        Builtin::SelfSubjectAccessReview => "authorization.v1",
    }
}

/// An OpenAPI component by its full name.
pub(super) fn component_value(name: &str) -> Option<&'static Value> {
    COMPONENTS.get(name)
}

/// The full component name of a type as `facts` abbreviates it.
pub(super) fn component(short: &str) -> String {
    if let Some(name) = short.strip_prefix("apiextensions.v1.") {
        format!("{EXTENSIONS}{name}")
    } else if let Some(name) = short.strip_prefix("meta.v1.") {
        format!("{META}{name}")
    } else {
        format!("io.k8s.api.{short}")
    }
}

static COMPONENTS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(components);

fn components() -> BTreeMap<String, Value> {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    generator.subschema_for::<Namespace>();
    generator.subschema_for::<Node>();
    generator.subschema_for::<Pod>();
    generator.subschema_for::<ConfigMap>();
    generator.subschema_for::<Secret>();
    generator.subschema_for::<ServiceAccount>();
    generator.subschema_for::<PersistentVolumeClaim>();
    generator.subschema_for::<CoreEvent>();
    generator.subschema_for::<Event>();
    generator.subschema_for::<Lease>();
    generator.subschema_for::<Job>();
    generator.subschema_for::<CustomResourceDefinition>();
    generator.subschema_for::<SelfSubjectReview>();
    generator.subschema_for::<SelfSubjectAccessReview>();
    generator.subschema_for::<TokenReview>();
    // Not a kind of its own, but a body that arrives encoded like one.
    generator.subschema_for::<DeleteOptions>();
    let mut components: BTreeMap<String, Value> = generator.take_definitions(false).into_iter().collect();
    for value in components.values_mut() {
        wrap_references(value);
    }
    correct_scalars(&mut components);
    for builtin in Builtin::ALL {
        let info = builtin.info();
        if let Some(Value::Object(object)) = components.get_mut(&component_name(*builtin)) {
            set_required(object, required(*builtin));
            object.insert(
                "x-kubernetes-group-version-kind".to_owned(),
                json!([{"group": info.group, "version": info.version, "kind": info.kind}]),
            );
        }
    }
    for name in OPTIONALLY_NAMED {
        if let Some(Value::Object(object)) = components.get_mut(&component(name)) {
            let others: Vec<String> = object
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .filter(|field| *field != "name")
                .map(str::to_owned)
                .collect();
            set_required(object, &others);
        }
    }
    add_facts(&mut components);
    components
}

/// Types whose name the Rust types demand and the Kubernetes schema does not.
const OPTIONALLY_NAMED: [&str; 8] = [
    "core.v1.ConfigMapEnvSource",
    "core.v1.ConfigMapKeySelector",
    "core.v1.ConfigMapProjection",
    "core.v1.ConfigMapVolumeSource",
    "core.v1.LocalObjectReference",
    "core.v1.SecretEnvSource",
    "core.v1.SecretKeySelector",
    "core.v1.SecretProjection",
];

/// What the Kubernetes schema of a kind demands. The Rust types demand metadata of every kind instead.
const fn required(builtin: Builtin) -> &'static [&'static str] {
    match builtin {
        Builtin::CoreEvent => &["involvedObject", "metadata"],
        Builtin::Event => &["eventTime"],
        Builtin::CustomResourceDefinition | Builtin::SelfSubjectAccessReview | Builtin::TokenReview => {
            &["spec"]
        }
        Builtin::Namespace
        | Builtin::Node
        | Builtin::Pod
        | Builtin::ConfigMap
        | Builtin::Secret
        | Builtin::ServiceAccount
        | Builtin::PersistentVolumeClaim
        | Builtin::Lease
        | Builtin::Job
        | Builtin::SelfSubjectReview => &[],
    }
}

fn set_required<Name: AsRef<str>>(object: &mut Map<String, Value>, names: &[Name]) {
    if names.is_empty() {
        object.remove("required");
    } else {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        object.insert("required".to_owned(), json!(names));
    }
}

/// OpenAPI 3.0 ignores what stands beside a `$ref`, so a described reference is written with `allOf`.
fn wrap_references(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if object.len() > 1
                && let Some(Value::String(target)) = object.get("$ref")
            {
                let reference = json!([{ "$ref": target }]);
                object.remove("$ref");
                object.insert("allOf".to_owned(), reference);
            }
            object.values_mut().for_each(wrap_references);
        }
        Value::Array(items) => items.iter_mut().for_each(wrap_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Writes the types that are neither plain objects nor plain strings as the Kubernetes document does.
fn correct_scalars(components: &mut BTreeMap<String, Value>) {
    let mut set = |name: &str, entries: Value| {
        if let (Some(Value::Object(object)), Value::Object(entries)) = (components.get_mut(name), entries) {
            object.remove("x-kubernetes-int-or-string");
            object.remove("type");
            object.remove("oneOf");
            object.extend(entries);
        }
    };
    set(
        QUANTITY_TYPE,
        json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
    );
    set(
        INT_OR_STRING_TYPE,
        json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"}),
    );
    for any in [
        "JSON",
        "JSONSchemaPropsOrBool",
        "JSONSchemaPropsOrArray",
        "JSONSchemaPropsOrStringArray",
    ] {
        set(&format!("{EXTENSIONS}{any}"), json!({}));
    }
}

fn add_facts(components: &mut BTreeMap<String, Value>) {
    for name in ATOMIC_TYPES {
        if let Some(Value::Object(object)) = components.get_mut(&component(name)) {
            object.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        }
    }
    for (name, field, fact) in FIELDS {
        let property = components
            .get_mut(&component(name))
            .and_then(|value| value["properties"].get_mut(*field));
        if let Some(Value::Object(object)) = property {
            annotate(object, *fact);
        }
    }
    if let Some(protocol) = components
        .get_mut(&component("core.v1.ContainerPort"))
        .and_then(|value| value["properties"].get_mut("protocol"))
    {
        // Server-side apply tells ports apart by protocol as well, so an absent one must have a value.
        protocol["default"] = json!("TCP");
    }
}

fn annotate(object: &mut Map<String, Value>, fact: Fact) {
    let mut put = |key: &str, value: Value| object.insert(format!("x-kubernetes-{key}"), value);
    match fact {
        Fact::Set { patched } => {
            put("list-type", json!("set"));
            if patched {
                put("patch-strategy", json!("merge"));
            }
        }
        Fact::Map {
            keys,
            patch_key,
            retain_keys,
        } => {
            put("list-type", json!("map"));
            put("list-map-keys", json!(keys));
            if let Some(key) = patch_key {
                put(
                    "patch-strategy",
                    json!(if retain_keys { "merge,retainKeys" } else { "merge" }),
                );
                put("patch-merge-key", json!(key));
            }
        }
        Fact::PatchOnly(key) => {
            put("list-type", json!("atomic"));
            put("patch-strategy", json!("merge"));
            put("patch-merge-key", json!(key));
        }
        Fact::AtomicMap => {
            put("map-type", json!("atomic"));
        }
    }
}

/// A component and all that it refers to, as one object.
fn closure(root: &str) -> Value {
    let mut seen = BTreeSet::new();
    let mut pending = vec![root.to_owned()];
    let mut found = Map::new();
    while let Some(name) = pending.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        if let Some(value) = COMPONENTS.get(&name) {
            references(value, &mut pending);
            found.insert(name, value.clone());
        }
    }
    Value::Object(found)
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            if let Some(name) = reference(object) {
                found.push(name.to_owned());
            }
            object.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The component that an object refers to, directly or through the `allOf` of `wrap_references`.
pub(super) fn reference(object: &Map<String, Value>) -> Option<&str> {
    let target = object
        .get("$ref")
        .or_else(|| object.get("allOf")?.get(0)?.get("$ref"))?;
    target.as_str()?.strip_prefix(REFERENCE)
}

/// The name of a component as `facts` abbreviates it; the whole name for families that `facts` does not speak of.
pub(super) fn short_name(name: &str) -> &str {
    for prefix in [
        "io.k8s.apiextensions-apiserver.pkg.apis.",
        "io.k8s.apimachinery.pkg.apis.",
        "io.k8s.api.",
    ] {
        if let Some(short) = name.strip_prefix(prefix) {
            return short;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_component_of_its_own() {
        for (index, builtin) in Builtin::ALL.iter().enumerate() {
            assert_eq!(
                *builtin as usize, index,
                "the list of all kinds is in their order"
            );
            let own = &openapi(*builtin)[component_name(*builtin)];
            assert_eq!(
                own["x-kubernetes-group-version-kind"][0]["kind"],
                builtin.info().kind
            );
        }
    }

    #[test]
    fn references_all_resolve() {
        for builtin in Builtin::ALL {
            let document = openapi(*builtin);
            let mut names = Vec::new();
            references(document, &mut names);
            for name in names {
                assert!(document.get(&name).is_some(), "{builtin:?} refers to {name}");
            }
        }
    }

    #[test]
    fn described_references_are_wrapped() {
        let spec = &openapi(Builtin::Pod)["io.k8s.api.core.v1.Pod"]["properties"]["spec"];
        assert_eq!(
            spec["allOf"],
            json!([{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodSpec"}])
        );
        assert!(spec["description"].is_string() && spec.get("$ref").is_none());
    }
}
