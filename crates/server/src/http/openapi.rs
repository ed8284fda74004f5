//! The OpenAPI 3.1 document, made from the table of routes and the types that the routes read.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    extract::KEY_HEADER,
    routes::{Answered, Described, ROUTES, Route},
};

/// The names of the envelopes in the document.
const GOOD: &str = "Answer";
const REFUSAL: &str = "Refusal";
const EVENT_STREAM: &str = "text/event-stream";

/// Describes what comes in and what goes out: a field that may be left out of the one is always there in the other.
struct Describing {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Describing {
    fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Self {
            read: settings().into_generator(),
            written: settings().for_serialize().into_generator(),
        }
    }

    /// All types by their names. Those that have one name have one meaning: a test looks.
    fn definitions(mut self) -> Map<String, Value> {
        let mut all = self.read.take_definitions(true);
        all.extend(self.written.take_definitions(true));
        all
    }
}

/// The document.
pub fn document() -> Value {
    let mut describing = Describing::new();
    let mut paths = Map::new();
    for route in ROUTES {
        let operation = operation(route, &mut describing);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(route.method.word().to_owned(), operation);
        }
    }
    let mut schemas = describing.definitions();
    schemas.insert(GOOD.to_owned(), good());
    schemas.insert(REFUSAL.to_owned(), refusal());
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

fn operation(route: &Route, describing: &mut Describing) -> Value {
    let mut parameters = path_parameters(route.path);
    if let Some(query) = route.query {
        parameters.extend(query_parameters(&query(&mut describing.read).to_value()));
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
        "responses": responses(route, &mut describing.written),
    });
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if let Some(body) = route.body {
        let schema = body(&mut describing.read).to_value();
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    if route.anonymous {
        operation["security"] = json!([]);
    }
    operation
}

fn named(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The envelope with what is in it.
fn enveloped(described: Described, generator: &mut SchemaGenerator) -> Value {
    json!({"application/json": {"schema": {"allOf": [named(GOOD), described(generator).to_value()]}}})
}

fn responses(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let refused = json!({"application/json": {"schema": named(REFUSAL)}});
    let told = |content: Value| json!({"description": route.summary, "content": content});
    let events = || json!({"schema": {"type": "string"}});
    let mut responses = match route.answer {
        Answered::Told(described) => json!({"200": told(enveloped(described, generator))}),
        Answered::Made(described) => json!({"201": told(enveloped(described, generator))}),
        Answered::Once(described) => {
            let content = enveloped(described, generator);
            json!({
                "200": {"description": "It was made before, with the same key.", "content": content},
                "201": {"description": "It was made.", "content": content},
            })
        }
        Answered::ToldOrEvents(described, held) => {
            let mut content = enveloped(described, generator);
            content[EVENT_STREAM] = events();
            json!({"200": {"description": format!("{} As server-sent events: {held}", route.summary), "content": content}})
        }
        Answered::Events(held) => json!({
            "200": {"description": format!("{} {held}", route.summary), "content": {EVENT_STREAM: events()}},
        }),
        Answered::Document(what) => json!({
            "200": {"description": what, "content": {"application/json": {"schema": {"type": "object"}}}},
        }),
        Answered::Never(status) => json!({
            status.to_string(): {"description": route.summary, "content": refused.clone()},
        }),
    };
    responses["default"] =
        json!({"description": "What is wrong, and what would be right.", "content": refused});
    responses
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

fn good() -> Value {
    json!({
        "type": "object",
        "description": "What every good answer has, beside what it is asked for.",
        "required": ["ok"],
        "properties": {"ok": {"const": true}},
    })
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
                    "missing": {"type": "array", "items": {"type": "string"}, "description": "Of /ready: what is not there yet."},
                    "scope": {"type": "string", "description": "Of a queue that is full: namespace, repository or cluster."},
                    "waiting": {"type": "integer", "description": "Of a queue that is full: how many runs are in it."},
                    "limit": {"type": "integer", "description": "Of a queue that is full: how many may be in it."},
                    "policy": {"const": "denied", "description": "Of what a policy does not allow."},
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
    fn every_route_describes_its_answer() {
        let document = document();
        for route in ROUTES {
            let responses = &document["paths"][route.path][route.method.word()]["responses"];
            let responses = responses.as_object().expect("the responses of an operation");
            let mut good = 0;
            for (status, response) in responses.iter().filter(|(status, _)| *status != "default") {
                good += 1;
                let content = response["content"]
                    .as_object()
                    .expect("the content of a response");
                assert!(!content.is_empty(), "{} {status} has no content", route.id);
                assert!(
                    response["description"]
                        .as_str()
                        .is_some_and(|text| !text.is_empty())
                );
                let Some(schema) = content.get("application/json").map(|json| &json["schema"]) else {
                    assert!(content.contains_key(EVENT_STREAM), "{} {status}", route.id);
                    continue;
                };
                if matches!(route.answer, Answered::Document(_) | Answered::Never(_)) {
                    continue;
                }
                let body = schema["allOf"][1]["$ref"].as_str();
                let body = body.unwrap_or_else(|| panic!("{} {status} has no type: {schema}", route.id));
                let described = document.pointer(body.trim_start_matches('#')).expect("the type");
                let says = ["properties", "anyOf", "allOf"];
                assert!(
                    says.iter().any(|word| described.get(word).is_some()),
                    "{body} says nothing: {described}"
                );
            }
            assert!(good > 0, "{} describes no answer", route.id);
        }
    }

    #[test]
    fn no_name_of_a_type_has_two_meanings() {
        let mut describing = Describing::new();
        for route in ROUTES {
            operation(route, &mut describing);
        }
        let read = describing.read.take_definitions(true);
        let written = describing.written.take_definitions(true);
        for (name, schema) in &read {
            assert!(written.get(name).is_none_or(|other| other == schema), "{name}");
            assert!(name != GOOD && name != REFUSAL);
        }
        assert!(!written.contains_key(GOOD) && !written.contains_key(REFUSAL));
        // What is numbered shares its name with another type.
        let numbered = written
            .keys()
            .find(|name| name.ends_with(|last: char| last.is_ascii_digit()));
        assert_eq!(numbered, None);
    }

    #[test]
    fn a_route_that_needs_a_key_says_so() {
        let document = document();
        let parameters = &document["paths"]["/v1/agent-runs"]["post"]["parameters"];
        assert_eq!(parameters[0]["name"], KEY_HEADER);
        assert_eq!(document["paths"]["/health"]["get"]["security"], json!([]));
    }
}
