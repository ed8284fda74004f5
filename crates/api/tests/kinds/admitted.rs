//! Reads objects that the API server admits, though nobody means them: whatever is stored must not stop a watch.
//!
//! The objects are made from the schema of each kind. The first has every field; each of the others differs from it in one
//! place, so that a refusal names the place.

use jangar_api::{
    Kind,
    agents::{
        agent::Agent, agent_provider::AgentProvider, agent_run::AgentRun,
        implementation_source::ImplementationSource, implementation_spec::ImplementationSpec, memory::Memory,
        version_control_provider::VersionControlProvider,
    },
    approvals::ApprovalPolicy,
    artifacts::Artifact,
    budgets::Budget,
    orchestration::{Orchestration, orchestration_run::OrchestrationRun},
    schedules::Schedule,
    security::SecretBinding,
    signals::{Signal, SignalDelivery},
    tools::{Tool, ToolRun},
    workspaces::Workspace,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::support::schema;

/// A value that a schema admits, and what is particular about it.
#[derive(Clone)]
struct Variant {
    value: Value,
    place: String,
}

impl Variant {
    fn new(value: Value) -> Self {
        let place = format!(" = {value}");
        Self { value, place }
    }
}

/// Values that a schema admits. There is at least one, and the first is an ordinary one.
fn variants(schema: &Value) -> Vec<Variant> {
    if let Some(Value::Array(words)) = schema.get("enum") {
        return words.iter().cloned().map(Variant::new).collect();
    }
    if schema.get("x-kubernetes-int-or-string") == Some(&json!(true)) {
        return numbers(schema).into_iter().chain(strings(schema)).collect();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") if schema.get("additionalProperties").is_some() => {
            map_variants(&schema["additionalProperties"])
        }
        Some("object") => object_variants(schema),
        Some("array") => list_variants(&schema["items"]),
        Some("string") => strings(schema),
        Some("integer") => numbers(schema),
        Some("boolean") => [true, false].map(|truth| Variant::new(json!(truth))).into(),
        None => odd_values().into_iter().map(Variant::new).collect(),
        Some(other) => panic!("no values of the type {other}"),
    }
}

/// Anything, for the parts that are free.
fn odd_values() -> Vec<Value> {
    vec![
        json!({"name": "x"}),
        json!(null),
        json!([]),
        json!([null, [{}], {"": null}]),
        json!(u64::MAX),
        json!(-1e300),
        json!(""),
        json!(false),
    ]
}

/// Numbers out of range pass because no server looks at `int32`, and floats pass that are all but whole.
fn numbers(schema: &Value) -> Vec<Variant> {
    let least = schema.get("minimum").and_then(Value::as_f64);
    [
        json!(1),
        json!(0),
        json!(-1),
        json!(5.0),
        json!(-0.0),
        json!(2.000_000_000_1),
        json!(9_007_199_254_740_991_f64),
        json!(-9_007_199_254_740_991_f64),
        json!(2_147_483_648_i64),
        json!(-2_147_483_649_i64),
        json!(i64::MAX),
        json!(i64::MIN),
    ]
    .into_iter()
    .filter(|number| least.is_none_or(|least| number.as_f64() >= Some(least)))
    .map(Variant::new)
    .collect()
}

/// A list passes for a string with a format, and a time passes by its shape.
fn strings(schema: &Value) -> Vec<Variant> {
    let values = match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => vec![
            json!("2026-02-07T12:00:00Z"),
            json!("2026-02-07t12:00:00.123456789z"),
            json!("2026-02-07T12:00:00,5+05:45"),
            json!("2026-02-07T12:00:00.1234567890123Z"),
            json!("2026-02-07T12:00:00x5-00:00"),
            json!("2026-02-07T12:00:00+99:99"),
            json!("2026-02-07T12:00:00ZtheEnd"),
            json!("0000-01-01T00:00:00+23:59"),
            json!("9999-12-31T23:59:59Z"),
            json!([]),
            json!([1, null, "2026-02-07T12:00:00Z"]),
        ],
        Some("uri") => vec![json!("https://example.com"), json!("/"), json!([]), json!([{}])],
        Some(other) => panic!("no values of the format {other}"),
        None if schema.get("pattern").is_some() => vec![json!("A")],
        None => vec![
            json!("x"),
            json!(""),
            json!("null"),
            json!("\u{0}\u{7f}é\u{1f600}"),
        ],
    };
    values.into_iter().map(Variant::new).collect()
}

fn list_variants(items: &Value) -> Vec<Variant> {
    let items = variants(items);
    let first = items[0].value.clone();
    let two = json!([first.clone(), first]);
    items
        .into_iter()
        .map(|item| Variant {
            value: json!([item.value]),
            place: format!("[]{}", item.place),
        })
        .chain([json!([]), two].map(Variant::new))
        .collect()
}

fn map_variants(values: &Value) -> Vec<Variant> {
    variants(values)
        .into_iter()
        .map(|item| Variant {
            value: json!({"a key/of any.kind": item.value, "": item.value}),
            place: format!("{{}}{}", item.place),
        })
        .chain([Variant::new(json!({}))])
        .collect()
}

fn object_variants(schema: &Value) -> Vec<Variant> {
    let properties: Vec<(&String, Vec<Variant>)> = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, property)| (name, variants(property)))
        .collect();
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let full: Map<String, Value> = properties
        .iter()
        .map(|(name, variants)| ((*name).clone(), variants[0].value.clone()))
        .collect();
    let mut out = vec![Variant {
        value: Value::Object(full.clone()),
        place: " = everything".to_owned(),
    }];
    for (name, variants) in &properties {
        out.extend(variants.iter().skip(1).map(|variant| Variant {
            value: with(&full, name, &variant.value),
            place: format!(".{name}{}", variant.place),
        }));
        if !required.contains(&name.as_str()) {
            let mut without = full.clone();
            without.remove(*name);
            out.push(Variant {
                value: Value::Object(without),
                place: format!(".{name} is absent"),
            });
        }
    }
    let mut least = full.clone();
    least.retain(|name, _| required.contains(&name.as_str()));
    out.push(Variant {
        value: Value::Object(least),
        place: " = as little as possible".to_owned(),
    });
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true)) {
        out.extend(odd_values().into_iter().map(|value| Variant {
            place: format!(" has an unknown key = {value}"),
            value: with(&full, "a key/of any.kind", &value),
        }));
    }
    out
}

fn with(object: &Map<String, Value>, name: &str, value: &Value) -> Value {
    let mut object = object.clone();
    object.insert(name.to_owned(), value.clone());
    Value::Object(object)
}

/// Reads an object through the Rust type of its kind and writes it again.
fn pass(kind: Kind, stored: &str) -> Result<String, serde_json::Error> {
    fn through<K: Serialize + DeserializeOwned>(stored: &str) -> Result<String, serde_json::Error> {
        serde_json::to_string(&serde_json::from_str::<K>(stored)?)
    }
    match kind {
        Kind::Agent => through::<Agent>(stored),
        Kind::AgentRun => through::<AgentRun>(stored),
        Kind::AgentProvider => through::<AgentProvider>(stored),
        Kind::ImplementationSpec => through::<ImplementationSpec>(stored),
        Kind::ImplementationSource => through::<ImplementationSource>(stored),
        Kind::VersionControlProvider => through::<VersionControlProvider>(stored),
        Kind::Memory => through::<Memory>(stored),
        Kind::Orchestration => through::<Orchestration>(stored),
        Kind::OrchestrationRun => through::<OrchestrationRun>(stored),
        Kind::ApprovalPolicy => through::<ApprovalPolicy>(stored),
        Kind::Budget => through::<Budget>(stored),
        Kind::SecretBinding => through::<SecretBinding>(stored),
        Kind::Signal => through::<Signal>(stored),
        Kind::SignalDelivery => through::<SignalDelivery>(stored),
        Kind::Schedule => through::<Schedule>(stored),
        Kind::Tool => through::<Tool>(stored),
        Kind::ToolRun => through::<ToolRun>(stored),
        Kind::Workspace => through::<Workspace>(stored),
        Kind::Artifact => through::<Artifact>(stored),
    }
}

#[test]
fn whatever_the_api_server_admits_is_readable_and_stays_so_when_it_is_written_again() {
    let mut refused = Vec::new();
    for kind in Kind::ALL {
        for Variant { mut value, place } in variants(&schema(*kind)) {
            value["metadata"] = json!({"name": "one", "namespace": "agents"});
            let stored = value.to_string();
            match pass(*kind, &stored) {
                Ok(written) => assert_eq!(
                    pass(*kind, &written).ok().as_ref(),
                    Some(&written),
                    "{kind:?}{place}: reading twice makes a difference"
                ),
                Err(error) => refused.push(format!("{kind:?}{place}: {error}")),
            }
        }
    }
    assert!(refused.is_empty(), "unreadable: {refused:#?}");
}
