//! The schemas of the built-in kinds, made once from the Kubernetes types in `k8s-openapi` and the facts in `facts`.
//!
//! There are two forms: the OpenAPI components that clients such as `kubectl explain` read, and the parsed `Schema` that
//! the server walks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, LazyLock},
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
    facts::{
        ALWAYS_WRITTEN, ATOMIC_TYPES, Blank, FIELDS, Fact, KEPT_STRINGS, OMITTED_SCALARS,
        REQUIRED_BUT_OMITTED,
    },
};
use crate::schema::{Additional, ListType, MapType, PatchStrategy, Schema, Type, Zero};

/// The `format` of a `resource.Quantity` in a parsed schema; OpenAPI has no name for it.
pub(super) const QUANTITY: &str = "quantity";
/// The `format` of a time with microseconds, to tell it from `date-time`.
pub(super) const MICRO_TIME: &str = "micro-time";
/// The `format` of a time in whole seconds.
pub(super) const TIME: &str = "date-time";

const REFERENCE: &str = "#/components/schemas/";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const QUANTITY_TYPE: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING_TYPE: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW_EXTENSION_TYPE: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// A definition's schema contains schemas. They are unrolled this deep and preserved as they are below. A schema that
/// embeds a whole pod template is about a dozen levels deep, so this leaves as much again.
const SCHEMA_DEPTH_MAX: usize = 24;

/// The parsed schema of a built-in kind.
pub fn schema(builtin: Builtin) -> Arc<Schema> {
    SCHEMAS.get(&component_name(builtin)).cloned().unwrap_or_default()
}

/// The OpenAPI v3 components of a built-in kind, by name, with everything that it refers to.
pub fn openapi(builtin: Builtin) -> &'static Value {
    static BY_KIND: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
        Builtin::ALL
            .iter()
            .map(|kind| (component_name(*kind), closure(&component_name(*kind))))
            .collect()
    });
    BY_KIND.get(&component_name(builtin)).unwrap_or(&Value::Null)
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

static SCHEMAS: LazyLock<BTreeMap<String, Arc<Schema>>> = LazyLock::new(|| {
    let mut builder = Builder::default();
    Builtin::ALL
        .iter()
        .map(|builtin| {
            let name = component_name(*builtin);
            let schema = builder.named(&name, 0);
            (name, schema)
        })
        .collect()
});

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
            // The Rust types demand metadata; the Kubernetes schema does not.
            object.remove("required");
            if *builtin == Builtin::CustomResourceDefinition
                || matches!(info.kind, "TokenReview" | "SelfSubjectAccessReview")
            {
                object.insert("required".to_owned(), json!(["spec"]));
            }
            object.insert(
                "x-kubernetes-group-version-kind".to_owned(),
                json!([{"group": info.group, "version": info.version, "kind": info.kind}]),
            );
        }
    }
    add_facts(&mut components);
    components
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

/// Turns components into parsed schemas. Components that many kinds share become one shared schema.
#[derive(Default)]
struct Builder {
    made: HashMap<(String, usize), Arc<Schema>>,
}

impl Builder {
    fn named(&mut self, name: &str, depth: usize) -> Arc<Schema> {
        let key = (name.to_owned(), depth);
        if let Some(schema) = self.made.get(&key) {
            return Arc::clone(schema);
        }
        let schema = Arc::new(self.make_named(name, depth));
        self.made.insert(key, Arc::clone(&schema));
        schema
    }

    fn make_named(&mut self, name: &str, depth: usize) -> Schema {
        let any = || Schema {
            preserve_unknown_fields: true,
            ..Schema::default()
        };
        match name {
            QUANTITY_TYPE => {
                return Schema {
                    int_or_string: true,
                    format: QUANTITY.to_owned(),
                    ..Schema::default()
                };
            }
            INT_OR_STRING_TYPE => {
                return Schema {
                    int_or_string: true,
                    ..Schema::default()
                };
            }
            RAW_EXTENSION_TYPE => {
                return Schema {
                    type_: Some(Type::Object),
                    ..any()
                };
            }
            _ => {}
        }
        match name.strip_prefix(META) {
            Some("FieldsV1") => {
                return Schema {
                    type_: Some(Type::Object),
                    ..any()
                };
            }
            Some("MicroTime") => {
                return Schema {
                    type_: Some(Type::String),
                    format: MICRO_TIME.to_owned(),
                    nullable: true,
                    ..Schema::default()
                };
            }
            _ => {}
        }
        match name.strip_prefix(EXTENSIONS) {
            Some("JSON") => return any(),
            // Either a schema or something that is no object at all, so there is no one type.
            Some("JSONSchemaPropsOrBool" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray") => {
                let inner = self.named(&format!("{EXTENSIONS}JSONSchemaProps"), depth);
                return Schema {
                    type_: None,
                    ..(*inner).clone()
                };
            }
            Some("JSONSchemaProps") if depth >= SCHEMA_DEPTH_MAX => {
                return Schema {
                    type_: Some(Type::Object),
                    ..any()
                };
            }
            Some("JSONSchemaProps") => {
                let mut schema = self.structure(name, depth + 1);
                if depth > 0 {
                    // The texts are the same on every level: once is enough to keep in memory.
                    strip_descriptions(&mut schema);
                }
                return schema;
            }
            _ => {}
        }
        self.structure(name, depth)
    }

    fn structure(&mut self, name: &str, depth: usize) -> Schema {
        let Some(Value::Object(object)) = COMPONENTS.get(name) else {
            return Schema {
                preserve_unknown_fields: true,
                ..Schema::default()
            };
        };
        let mut schema = self.node(object, depth);
        let short = short_name(name);
        let names: Vec<String> = schema.properties.keys().cloned().collect();
        for field in names {
            let required = schema.required.contains(&field);
            if let Some(property) = schema.properties.get_mut(&field) {
                let zero = zero_of(short, &field, property, required);
                if zero != Zero::Kept {
                    Arc::make_mut(property).zero = zero;
                }
            }
        }
        schema
    }

    fn node(&mut self, object: &Map<String, Value>, depth: usize) -> Schema {
        let mut schema = match reference(object) {
            Some(name) => (*self.named(name, depth)).clone(),
            None => Schema::default(),
        };
        if let Some(text) = object.get("description").and_then(Value::as_str) {
            text.clone_into(&mut schema.description);
        }
        if let Some(type_) = object.get("type").and_then(Value::as_str) {
            schema.type_ = type_.parse().ok();
        }
        if let Some(format) = object.get("format").and_then(Value::as_str) {
            format.clone_into(&mut schema.format);
            // Go writes a time that was never set as null, and reads it back.
            schema.nullable = format == TIME;
        }
        if let Some(value) = object.get("default") {
            schema.default = Some(value.clone());
        }
        if let Some(Value::Object(properties)) = object.get("properties") {
            for (name, value) in properties {
                if let Value::Object(value) = value {
                    schema
                        .properties
                        .insert(name.clone(), Arc::new(self.node(value, depth)));
                }
            }
        }
        if let Some(Value::Object(value)) = object.get("additionalProperties") {
            schema.additional = Additional::Schema(Arc::new(self.node(value, depth)));
        }
        if let Some(Value::Object(value)) = object.get("items") {
            schema.items = Some(Arc::new(self.node(value, depth)));
        }
        if let Some(Value::Array(names)) = object.get("required") {
            schema.required = names
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect();
        }
        read_extensions(object, &mut schema);
        schema
    }
}

fn read_extensions(object: &Map<String, Value>, schema: &mut Schema) {
    let text = |key: &str| object.get(&format!("x-kubernetes-{key}")).and_then(Value::as_str);
    let keys = || {
        let names = object.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
        names
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    match text("list-type") {
        Some("map") => schema.list_type = Some(ListType::Map(keys())),
        Some("set") => schema.list_type = Some(ListType::Set),
        Some("atomic") => schema.list_type = Some(ListType::Atomic),
        _ => {}
    }
    if text("map-type") == Some("atomic") {
        schema.map_type = MapType::Atomic;
    }
    if let Some(strategy) = text("patch-strategy") {
        schema.patch_strategy = PatchStrategy::Merge {
            key: text("patch-merge-key").map(str::to_owned),
            retain_keys: strategy.contains("retainKeys"),
        };
    }
}

fn strip_descriptions(schema: &mut Schema) {
    schema.description.clear();
    for property in schema.properties.values_mut() {
        if !property.description.is_empty() {
            Arc::make_mut(property).description.clear();
        }
    }
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

fn zero_of(short: &str, field: &str, property: &Schema, required: bool) -> Zero {
    let listed = |table: &[(&str, &[&str])]| {
        table
            .iter()
            .any(|(name, fields)| *name == short && fields.contains(&field))
    };
    if let Some((_, _, blank)) = ALWAYS_WRITTEN
        .iter()
        .find(|(name, of, _)| *name == short && *of == field)
    {
        return Zero::Filled(match blank {
            Blank::Object => json!({}),
            Blank::Null => Value::Null,
            Blank::ZeroQuantity => json!("0"),
            Blank::EmptyString => json!(""),
        });
    }
    if field == "metadata" && property.properties.contains_key("creationTimestamp") {
        return Zero::Filled(json!({}));
    }
    let plain_string =
        property.type_ == Some(Type::String) && property.format != TIME && property.format != MICRO_TIME;
    if required && !REQUIRED_BUT_OMITTED.contains(&(short, field)) {
        return match property.type_ {
            Some(Type::String) if plain_string => Zero::Filled(json!("")),
            Some(Type::Integer | Type::Number) => Zero::Filled(json!(0)),
            Some(Type::Boolean) => Zero::Filled(json!(false)),
            _ => Zero::Kept,
        };
    }
    match property.type_ {
        Some(Type::Array) => Zero::Omitted,
        Some(Type::Object) if property.properties.is_empty() && !property.preserve_unknown_fields => {
            // A map, unless it is a struct without fields: that one is a pointer, and empty means present.
            if matches!(property.additional, Additional::Schema(_)) {
                Zero::Omitted
            } else {
                Zero::Kept
            }
        }
        Some(Type::String) if plain_string && !listed(KEPT_STRINGS) => Zero::Omitted,
        Some(Type::Integer | Type::Number | Type::Boolean) if listed(OMITTED_SCALARS) => Zero::Omitted,
        _ => Zero::Kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(builtin: Builtin, path: &str) -> Arc<Schema> {
        let mut schema = schema(builtin);
        for name in path.split('.') {
            let inner = match schema.items.clone() {
                Some(items) => items,
                None => schema,
            };
            schema = inner
                .member(name)
                .unwrap_or_else(|| panic!("{path}: no {name}"))
                .clone();
        }
        schema
    }

    #[test]
    fn every_kind_has_a_schema_and_a_component_of_its_own() {
        for builtin in Builtin::ALL {
            assert!(
                schema(*builtin).properties.contains_key("metadata"),
                "{builtin:?}"
            );
            let own = &openapi(*builtin)[component_name(*builtin)];
            assert_eq!(
                own["x-kubernetes-group-version-kind"][0]["kind"],
                builtin.info().kind
            );
        }
    }

    #[test]
    fn every_fact_names_a_field_that_exists() {
        for (name, field, _) in FIELDS {
            let value = COMPONENTS
                .get(&component(name))
                .unwrap_or_else(|| panic!("no {name}"));
            assert!(value["properties"].get(*field).is_some(), "{name}.{field}");
        }
        for name in ATOMIC_TYPES {
            assert!(COMPONENTS.contains_key(&component(name)), "{name}");
        }
        for (name, fields) in OMITTED_SCALARS.iter().chain(KEPT_STRINGS) {
            let value = COMPONENTS
                .get(&component(name))
                .unwrap_or_else(|| panic!("no {name}"));
            for field in *fields {
                assert!(value["properties"].get(*field).is_some(), "{name}.{field}");
            }
        }
        for (name, field, _) in ALWAYS_WRITTEN {
            let value = COMPONENTS
                .get(&component(name))
                .unwrap_or_else(|| panic!("no {name}"));
            assert!(value["properties"].get(*field).is_some(), "{name}.{field}");
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
    fn lists_know_their_keys_and_patch_strategies() {
        let ports = at(Builtin::Pod, "spec.containers.ports");
        assert_eq!(
            ports.list_type,
            Some(ListType::Map(vec!["containerPort".into(), "protocol".into()]))
        );
        assert_eq!(
            ports.patch_strategy,
            PatchStrategy::Merge {
                key: Some("containerPort".into()),
                retain_keys: false
            }
        );
        let volumes = at(Builtin::Job, "spec.template.spec.volumes");
        assert_eq!(
            volumes.patch_strategy,
            PatchStrategy::Merge {
                key: Some("name".into()),
                retain_keys: true
            }
        );
        assert_eq!(at(Builtin::Pod, "spec.tolerations").list_type, None);
        assert_eq!(at(Builtin::Job, "spec.selector").map_type, MapType::Atomic);
        assert_eq!(
            at(Builtin::ConfigMap, "metadata.finalizers").list_type,
            Some(ListType::Set)
        );
        assert_eq!(
            at(Builtin::Pod, "spec.containers.ports.protocol").default,
            Some(json!("TCP"))
        );
    }

    #[test]
    fn special_scalars_keep_their_meaning() {
        let cpu = at(Builtin::Pod, "spec.containers.resources.limits.cpu");
        assert!(cpu.int_or_string);
        assert_eq!(cpu.format, QUANTITY);
        assert_eq!(at(Builtin::Lease, "spec.renewTime").format, MICRO_TIME);
        assert_eq!(at(Builtin::Pod, "status.startTime").format, TIME);
        assert_eq!(at(Builtin::Secret, "data.key").format, "byte");
        assert!(at(Builtin::Pod, "metadata.managedFields.fieldsV1").preserve_unknown_fields);
        assert_eq!(at(Builtin::Pod, "spec.nodeName").type_, Some(Type::String));
    }

    #[test]
    fn schemas_inside_a_definition_are_known_to_a_depth_and_open_below() {
        let mut path = "spec.versions.schema.openAPIV3Schema".to_owned();
        for _ in 0..10 {
            path.push_str(".properties.anything");
        }
        let deep = at(Builtin::CustomResourceDefinition, &path);
        assert!(deep.properties.contains_key("x-kubernetes-validations"));
        assert!(!deep.preserve_unknown_fields);
        for _ in 10..SCHEMA_DEPTH_MAX {
            path.push_str(".properties.anything");
        }
        assert!(at(Builtin::CustomResourceDefinition, &path).preserve_unknown_fields);
    }

    #[test]
    fn zero_values_follow_the_go_types() {
        assert_eq!(at(Builtin::Pod, "spec.hostNetwork").zero, Zero::Omitted);
        assert_eq!(at(Builtin::Pod, "spec.enableServiceLinks").zero, Zero::Kept);
        assert_eq!(
            at(Builtin::Pod, "spec.containers.resources").zero,
            Zero::Filled(json!({}))
        );
        assert_eq!(
            at(Builtin::Pod, "status.conditions.lastProbeTime").zero,
            Zero::Filled(Value::Null)
        );
        assert_eq!(
            at(Builtin::PersistentVolumeClaim, "spec.storageClassName").zero,
            Zero::Kept
        );
        assert_eq!(at(Builtin::Pod, "spec.volumes.emptyDir").zero, Zero::Kept);
        assert_eq!(at(Builtin::Pod, "metadata.labels").zero, Zero::Omitted);
    }
}
