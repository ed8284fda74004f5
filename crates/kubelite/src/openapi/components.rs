//! The schemas of a document.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ListMeta, ObjectMeta, Status};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{KIND_EXTENSION, kind_extension, reference};
use crate::resource::{Resource, Version};

pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

const API_VERSION_TEXT: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND_TEXT: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA_TEXT: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA_TEXT: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// The names under which a kind and its list are found among the components.
pub(super) struct Names {
    pub(super) kind: String,
    pub(super) list: String,
}

/// `example.com/v1` `Widget` is the component `com.example.v1.Widget`.
pub fn component_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').filter(|part| !part.is_empty()).collect();
    parts.reverse();
    parts.push(version);
    parts.push(kind);
    parts.join(".")
}

/// What every document needs, whatever kinds are in it.
pub(super) fn common() -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    generator.subschema_for::<ObjectMeta>();
    generator.subschema_for::<ListMeta>();
    generator.subschema_for::<DeleteOptions>();
    generator.subschema_for::<Status>();
    let mut schemas = generator.take_definitions(true);
    schemas.insert(
        PATCH.to_owned(),
        json!({
            "description": "Patch is provided to give a concrete name and type to the Kubernetes PATCH request body.",
            "type": "object",
        }),
    );
    schemas
}

/// Adds the schemas of a kind and its list, unless built-in ones are there already.
pub(super) fn of_kind(resource: &Resource, version: &Version, schemas: &mut Map<String, Value>) -> Names {
    let find = |kind: &str, schemas: &Map<String, Value>| {
        let wanted = kind_extension(resource, version, kind);
        let carries = |schema: &Value| {
            schema
                .get(KIND_EXTENSION)
                .and_then(Value::as_array)
                .is_some_and(|kinds| kinds.contains(&wanted))
        };
        schemas
            .iter()
            .find(|(_, schema)| carries(schema))
            .map(|(name, _)| name.clone())
    };
    let kind = find(&resource.kind, schemas).unwrap_or_else(|| {
        let name = component_name(&resource.group, &version.name, &resource.kind);
        schemas.insert(name.clone(), kind_schema(resource, version));
        name
    });
    let list = find(&resource.list_kind, schemas).unwrap_or_else(|| {
        let name = match kind.strip_suffix(&resource.kind) {
            Some(prefix) => format!("{prefix}{}", resource.list_kind),
            None => component_name(&resource.group, &version.name, &resource.list_kind),
        };
        schemas.insert(name.clone(), list_schema(resource, version, &kind));
        name
    });
    Names { kind, list }
}

fn kind_schema(resource: &Resource, version: &Version) -> Value {
    let mut schema = match version.openapi.as_ref() {
        // A schema that says nothing must stay without properties: clients take a list of properties for complete.
        Value::Object(schema) if !schema.is_empty() => {
            let mut schema = schema.clone();
            add_embedded(&mut schema);
            add_object_fields(&mut schema);
            schema
        }
        _ => Map::from_iter([("type".to_owned(), json!("object"))]),
    };
    schema.insert(
        KIND_EXTENSION.to_owned(),
        json!([kind_extension(resource, version, &resource.kind)]),
    );
    if !version.selectable.is_empty() {
        let fields: Vec<Value> = version
            .selectable
            .iter()
            .map(|field| json!({ "fieldPath": field.path }))
            .collect();
        schema.insert("x-kubernetes-selectable-fields".to_owned(), fields.into());
    }
    Value::Object(schema)
}

/// Objects inside an object have type and metadata too. The recursion is as deep as the definition, whose depth the JSON
/// decoder has bounded.
fn add_embedded(schema: &mut Map<String, Value>) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut() {
            if let Value::Object(property) = property {
                add_embedded(property);
            }
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = schema.get_mut(name) {
            add_embedded(inner);
        }
    }
    if schema.get("x-kubernetes-embedded-resource") != Some(&Value::Bool(true)) {
        return;
    }
    add_object_fields(schema);
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required {
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|given| given == name) {
                required.push(name.into());
            }
        }
    }
}

/// Adds the fields that every object has.
fn add_object_fields(schema: &mut Map<String, Value>) {
    let mut properties = match schema.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    properties.insert("apiVersion".to_owned(), text(API_VERSION_TEXT));
    properties.insert("kind".to_owned(), text(KIND_TEXT));
    properties.insert(
        "metadata".to_owned(),
        described_reference(OBJECT_META, METADATA_TEXT),
    );
    schema.insert("properties".to_owned(), Value::Object(properties));
}

fn list_schema(resource: &Resource, version: &Version, kind_component: &str) -> Value {
    let items_text = format!(
        "List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
        resource.plural
    );
    json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": text(API_VERSION_TEXT),
            "kind": text(KIND_TEXT),
            "metadata": described_reference(LIST_META, LIST_METADATA_TEXT),
            "items": { "description": items_text, "type": "array", "items": reference(kind_component) },
        },
        KIND_EXTENSION: [kind_extension(resource, version, &resource.list_kind)],
    })
}

fn text(description: &str) -> Value {
    json!({ "description": description, "type": "string" })
}

/// A reference with a description of its own; in OpenAPI 3.0 a plain reference may have no siblings.
fn described_reference(component: &str, description: &str) -> Value {
    json!({ "description": description, "allOf": [reference(component)] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn component_names_turn_the_group_around() {
        assert_eq!(
            component_name("agents.example.com", "v1alpha1", "Widget"),
            "com.example.agents.v1alpha1.Widget"
        );
        assert_eq!(component_name("", "v1", "Pod"), "v1.Pod");
    }

    #[test]
    fn the_common_schemas_describe_metadata() {
        let schemas = common();
        let labels = &schemas[OBJECT_META]["properties"]["labels"];
        assert_eq!(labels["additionalProperties"]["type"], "string");
        let created = &schemas[OBJECT_META]["properties"]["creationTimestamp"];
        assert_eq!(
            created["allOf"][0]["$ref"],
            "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Time"
        );
        for name in [LIST_META, STATUS, DELETE_OPTIONS, PATCH] {
            assert_eq!(schemas[name]["type"], "object", "{name}");
        }
    }
}
