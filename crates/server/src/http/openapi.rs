//! The OpenAPI 3.1 document, made from the table of routes and the types that the routes read.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    extract::KEY_HEADER,
    routes::{Answered, ROUTES, Route},
};

/// The document.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in ROUTES {
        let operation = operation(route, &mut generator);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(route.method.word().to_owned(), operation);
        }
    }
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Refusal".to_owned(), refusal());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Jangar control plane",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Every request carries a bearer token that Kubernetes knows. What its owner may do in Kubernetes is what \
                            they may do here.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut parameters = path_parameters(route.path);
    if let Some(query) = route.query {
        parameters.extend(query_parameters(&query(generator).to_value()));
    }
    if route.key {
        parameters.push(json!({
            "name": KEY_HEADER, "in": "header", "required": true, "schema": {"type": "string", "maxLength": 256},
            "description": "A text of the client's own. Repeating a request with the same one does nothing twice.",
        }));
    }
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "responses": {
            "200": answer(route),
            "default": {
                "description": "What is wrong, and what would be right.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
            },
        },
    });
    if route.key {
        let mut made = answer(route);
        made["description"] = json!("It was made. 200 says that it was made before, with the same key.");
        operation["responses"]["201"] = made;
    }
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if let Some(body) = route.body {
        let schema = body(generator).to_value();
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    if route.anonymous {
        operation["security"] = json!([]);
    }
    operation
}

fn answer(route: &Route) -> Value {
    let (media, schema) = match route.answer {
        Answered::Json => (
            "application/json",
            json!({"type": "object", "required": ["ok"], "properties": {"ok": {"const": true}}}),
        ),
        Answered::Plain => ("application/json", json!({"type": "object"})),
        Answered::Text => ("text/plain", json!({"type": "string"})),
        Answered::Events => ("text/event-stream", json!({"type": "string"})),
    };
    json!({"description": route.summary, "content": {media: {"schema": schema}}})
}

fn path_parameters(path: &str) -> Vec<Value> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect()
}

/// The fields of the type that reads the query.
fn query_parameters(schema: &Value) -> Vec<Value> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let fields = schema.get("properties").and_then(Value::as_object);
    fields
        .into_iter()
        .flatten()
        .map(|(name, schema)| {
            let mut schema = schema.clone();
            let description = schema
                .as_object_mut()
                .and_then(|schema| schema.remove("description"));
            let mut parameter = json!({
                "name": name, "in": "query", "required": required.contains(&name.as_str()), "schema": schema,
            });
            if let Some(description) = description {
                parameter["description"] = description;
            }
            parameter
        })
        .collect()
}

fn refusal() -> Value {
    json!({
        "type": "object",
        "required": ["ok", "error"],
        "properties": {
            "ok": {"const": false},
            "error": {"type": "string", "description": "What is wrong and what would be right, for people."},
            "details": {
                "type": "object",
                "description": "The same in parts, for programs.",
                "properties": {
                    "field": {"type": "string"},
                    "value": {"type": "string"},
                    "remedy": {"type": "string"},
                    "scope": {"type": "string", "description": "Of a queue that is full: namespace, repository or cluster."},
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use super::*;

    #[test]
    fn the_document_in_docs_is_what_the_code_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let text = format!("{:#}\n", document());
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &text).expect("the document is written");
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == text,
            "docs/openapi.json is not what the code says; write it with \
             `UPDATE_GOLDEN=1 cargo test -p jangar-server openapi` and commit it"
        );
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let text = document.to_string();
        let references = text
            .split("\"$ref\":\"#")
            .skip(1)
            .filter_map(|rest| rest.split('"').next());
        let mut seen = 0;
        for pointer in references {
            seen += 1;
            assert!(document.pointer(pointer).is_some(), "{pointer} leads nowhere");
        }
        assert!(seen > ROUTES.len());
    }

    #[test]
    fn a_route_that_needs_a_key_says_so() {
        let document = document();
        let parameters = &document["paths"]["/v1/agent-runs"]["post"]["parameters"];
        assert_eq!(parameters[0]["name"], KEY_HEADER);
        assert_eq!(document["paths"]["/health"]["get"]["security"], json!([]));
    }
}
