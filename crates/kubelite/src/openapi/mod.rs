//! OpenAPI v3: an index, and one document per group version.
//!
//! kubectl reads from it which fields there are (`explain`), whether a kind takes `fieldValidation` (`apply`, `create`)
//! and how lists merge. All of it is computed from the resource table; the server keeps the result until that changes.
//! `/openapi/v2` exists, but describes nothing.

mod components;
mod operations;

use std::sync::Arc;

use serde_json::{Map, Value, json};

pub use self::components::component_name;
use crate::resource::{Resource, Version};

/// Where a group version's document is, below `/openapi/v3/`.
pub fn path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

/// `/openapi/v2`, the older form. kubectl reads it to check a `List` on its own side, and refuses the list when there is no
/// such document. What it does not find there it leaves to the server, which checks every object anyway.
pub fn v2() -> Value {
    json!({ "swagger": "2.0", "info": { "title": V2_TITLE, "version": V2_VERSION }, "paths": {} })
}

const V2_TITLE: &str = "Kubernetes";
const V2_VERSION: &str = "1.35";
/// The only form of the older document that Go clients ask for.
pub const V2_PROTOBUF_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The same in protobuf: field 1 is `swagger`, field 2 is `info`, whose fields 1 and 2 are `title` and `version`.
pub fn v2_protobuf() -> Vec<u8> {
    let info = [
        protobuf_string(1, V2_TITLE.as_bytes()),
        protobuf_string(2, V2_VERSION.as_bytes()),
    ]
    .concat();
    [protobuf_string(1, b"2.0"), protobuf_string(2, &info)].concat()
}

/// A length-delimited field. Everything here is shorter than 128 bytes, so that its length takes one byte.
fn protobuf_string(field: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap_or(u8::MAX);
    [&[field << 3 | 2, length], content].concat()
}

/// `/openapi/v3`: the path of every document with the hash of its content, so that clients can cache it for good.
pub fn index<'a>(documents: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    let paths: Map<String, Value> = documents
        .into_iter()
        .map(|(path, hash)| {
            let url = format!("/openapi/v3/{path}?hash={hash}");
            (path.to_owned(), json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

/// The document of one group version. `builtin` holds the schemas of the built-in kinds in it, and whatever those refer
/// to, by component name.
pub fn document(
    resources: &[Arc<Resource>],
    group: &str,
    version: &str,
    builtin: &Map<String, Value>,
) -> Value {
    let mut schemas = components::common();
    schemas.extend(
        builtin
            .iter()
            .map(|(name, schema)| (name.clone(), schema.clone())),
    );
    let mut paths = Map::new();
    for resource in resources.iter().filter(|resource| resource.group == group) {
        let Some(served) = resource.version(version) else {
            continue;
        };
        let names = components::of_kind(resource, served, &mut schemas);
        operations::add(&mut paths, resource, served, &names);
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": "unversioned" },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "BearerToken": {
                    "type": "apiKey",
                    "description": "Bearer Token authentication",
                    "name": "authorization",
                    "in": "header",
                },
            },
        },
    })
}

/// Group, version and kind, as schemas and operations carry them.
fn kind_extension(resource: &Resource, version: &Version, kind: &str) -> Value {
    json!({ "group": resource.group, "version": version.name, "kind": kind })
}

fn reference(component: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{component}") })
}

const KIND_EXTENSION: &str = "x-kubernetes-group-version-kind";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        builtin::Builtin,
        discovery::content_hash,
        resource::{CREATE_ONLY, Scope, SelectableField},
        testing,
    };

    fn widget() -> Resource {
        let schema = json!({
            "type": "object",
            "description": "A widget.",
            "required": ["spec"],
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "color": { "type": "string", "description": "Its colour.", "enum": ["red", "blue"] },
                        "template": { "type": "object", "x-kubernetes-embedded-resource": true },
                    },
                },
            },
        });
        let mut resource = testing::custom(
            "agents.example.com",
            "Widget",
            vec![testing::version("v1alpha1", schema)],
        );
        resource.versions[0].has_status = true;
        resource.versions[0].selectable = vec![SelectableField {
            path: "spec.color".to_owned(),
        }];
        resource
    }

    #[test]
    fn the_older_document_says_the_same_in_both_forms() {
        assert_eq!(v2()["info"], json!({ "title": "Kubernetes", "version": "1.35" }));
        assert_eq!(
            v2_protobuf(),
            b"\x0a\x032.0\x12\x12\x0a\x0aKubernetes\x12\x041.35"
        );
    }

    fn widget_document() -> Value {
        document(
            &[Arc::new(widget())],
            "agents.example.com",
            "v1alpha1",
            &Map::new(),
        )
    }

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                if let Some(Value::String(reference)) = object.get("$ref") {
                    found.push(reference.clone());
                }
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = widget_document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn patch_takes_field_validation_and_names_its_kind() {
        let document = widget_document();
        let path = "/apis/agents.example.com/v1alpha1/namespaces/{namespace}/widgets/{name}";
        let item = &document["paths"][path];
        for method in ["put", "patch"] {
            let parameters = item[method]["parameters"].as_array().unwrap();
            assert!(
                parameters
                    .iter()
                    .any(|p| p["name"] == "fieldValidation" && p["in"] == "query"),
                "{method}"
            );
            assert_eq!(
                item[method][KIND_EXTENSION],
                json!({ "group": "agents.example.com", "version": "v1alpha1", "kind": "Widget" })
            );
        }
        assert_eq!(item["patch"]["x-kubernetes-action"], "patch");
        let media_types: Vec<&String> = item["patch"]["requestBody"]["content"]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        assert_eq!(
            media_types,
            [
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json"
            ]
        );
    }

    #[test]
    fn a_custom_kind_gets_the_fields_that_every_object_has() {
        let document = widget_document();
        let schema = &document["components"]["schemas"]["com.example.agents.v1alpha1.Widget"];
        assert_eq!(schema["description"], "A widget.");
        assert_eq!(
            schema[KIND_EXTENSION],
            json!([{ "group": "agents.example.com", "version": "v1alpha1", "kind": "Widget" }])
        );
        let properties = &schema["properties"];
        for name in ["apiVersion", "kind"] {
            assert_eq!(properties[name]["type"], "string", "{name}");
            assert_ne!(properties[name]["description"], Value::Null, "{name}");
        }
        assert_eq!(
            properties["metadata"]["allOf"][0]["$ref"],
            "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        );
        let template = &properties["spec"]["properties"]["template"];
        assert_eq!(template["required"], json!(["kind", "apiVersion"]));
        assert!(template["properties"]["metadata"].is_object());
        assert_eq!(
            schema["x-kubernetes-selectable-fields"],
            json!([{ "fieldPath": "spec.color" }])
        );

        let list = &document["components"]["schemas"]["com.example.agents.v1alpha1.WidgetList"];
        assert_eq!(list[KIND_EXTENSION][0]["kind"], "WidgetList");
        assert_eq!(
            list["properties"]["items"]["items"]["$ref"],
            "#/components/schemas/com.example.agents.v1alpha1.Widget"
        );
    }

    #[test]
    fn a_kind_without_a_schema_stays_open() {
        let resource = testing::custom("example.com", "Open", vec![testing::version("v1", Value::Null)]);
        let document = document(&[Arc::new(resource)], "example.com", "v1", &Map::new());
        let schema = &document["components"]["schemas"]["com.example.v1.Open"];
        assert_eq!(schema["type"], "object");
        assert_eq!(schema.get("properties"), None);
    }

    #[test]
    fn built_in_kinds_use_the_components_they_bring() {
        let mut node = testing::builtin("", "Node", Builtin::Node);
        node.scope = Scope::Cluster;
        let mut review = testing::builtin("", "SelfSubjectReview", Builtin::SelfSubjectReview);
        review.verbs = CREATE_ONLY;
        review.scope = Scope::Cluster;
        let mut builtin = Map::new();
        builtin.insert(
            "io.k8s.api.core.v1.Node".to_owned(),
            json!({ "type": "object", KIND_EXTENSION: [{ "group": "", "version": "v1", "kind": "Node" }] }),
        );
        let document = document(&[Arc::new(node), Arc::new(review)], "", "v1", &builtin);
        let item = &document["paths"]["/api/v1/nodes/{name}"];
        let schema = &item["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        assert_eq!(schema["$ref"], "#/components/schemas/io.k8s.api.core.v1.Node");
        assert!(
            item["patch"]["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object()
        );
        assert!(document["paths"]["/api/v1/namespaces/{namespace}/nodes"].is_null());
        let reviews = document["paths"]["/api/v1/selfsubjectreviews"]
            .as_object()
            .unwrap();
        assert_eq!(reviews.keys().collect::<Vec<_>>(), ["parameters", "post"]);
        assert!(document["paths"]["/api/v1/selfsubjectreviews/{name}"].is_null());
        // A list that no component describes gets one next to its kind.
        assert!(document["components"]["schemas"]["io.k8s.api.core.v1.NodeList"].is_object());
    }

    #[test]
    fn the_index_points_at_documents_by_their_hash() {
        let document = widget_document();
        let hash = content_hash(document.to_string().as_bytes());
        assert_eq!(
            hash,
            content_hash(widget_document().to_string().as_bytes()),
            "the same every time"
        );
        let path = path("agents.example.com", "v1alpha1");
        assert_eq!(
            index([
                (path.as_str(), hash.as_str()),
                (super::path("", "v1").as_str(), "X")
            ]),
            json!({ "paths": {
                "api/v1": { "serverRelativeURL": "/openapi/v3/api/v1?hash=X" },
                "apis/agents.example.com/v1alpha1": {
                    "serverRelativeURL": format!("/openapi/v3/apis/agents.example.com/v1alpha1?hash={hash}"),
                },
            } })
        );
    }
}
