//! The parsed schemas of the built-in kinds, which the server walks.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use serde_json::{Map, Value, json};

use super::{
    Builtin,
    components::{
        EXTENSIONS, INT_OR_STRING_TYPE, META, QUANTITY_TYPE, RAW_EXTENSION_TYPE, component_name,
        component_value, reference, short_name,
    },
    facts::{ALWAYS_WRITTEN, Blank, KEPT_STRINGS, OMITTED_SCALARS, REQUIRED_BUT_OMITTED},
};
use crate::schema::{Additional, ListType, MapType, PatchStrategy, Schema, Type, Zero};

/// The `format` of a `resource.Quantity` in a parsed schema; OpenAPI has no name for it.
pub(super) const QUANTITY: &str = "quantity";
/// The `format` of a time with microseconds, to tell it from `date-time`.
pub(super) const MICRO_TIME: &str = "micro-time";
/// The `format` of a time in whole seconds.
pub(super) const TIME: &str = "date-time";

/// A definition's schema contains schemas. They are unrolled this deep and preserved as they are below. A schema that
/// embeds a whole pod template is about a dozen levels deep, so this leaves as much again.
const SCHEMA_DEPTH_MAX: usize = 24;

/// The parsed schema of a built-in kind.
pub fn schema(builtin: Builtin) -> Arc<Schema> {
    static BY_KIND: LazyLock<Vec<Arc<Schema>>> = LazyLock::new(|| {
        let mut builder = Builder::default();
        Builtin::ALL
            .iter()
            .map(|builtin| builder.named(&component_name(*builtin), 0))
            .collect()
    });
    BY_KIND.get(builtin as usize).cloned().unwrap_or_default()
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
        let Some(Value::Object(object)) = component_value(name) else {
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
    use super::{
        super::{
            components::component,
            facts::{ATOMIC_TYPES, FIELDS},
        },
        *,
    };

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
    fn every_fact_names_a_field_that_exists() {
        let exists = |name: &str, field: &str| {
            let value = component_value(&component(name)).unwrap_or_else(|| panic!("no {name}"));
            assert!(value["properties"].get(field).is_some(), "{name}.{field}");
        };
        for (name, field, _) in FIELDS {
            exists(name, field);
        }
        for (name, field, _) in ALWAYS_WRITTEN {
            exists(name, field);
        }
        for (name, field) in REQUIRED_BUT_OMITTED {
            exists(name, field);
        }
        for (name, fields) in OMITTED_SCALARS.iter().chain(KEPT_STRINGS) {
            for field in *fields {
                exists(name, field);
            }
        }
        for name in ATOMIC_TYPES {
            assert!(component_value(&component(name)).is_some(), "{name}");
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
