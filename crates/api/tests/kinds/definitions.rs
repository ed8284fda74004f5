//! Holds the generated definitions to what a Kubernetes API server accepts, and to what people expect of them.

use std::{collections::BTreeSet, fs, path::Path};

use jangar_api::{Kind, crd};
use serde_json::{Value, json};

use crate::support::{node, schema, walk};

#[test]
fn every_property_has_a_description() {
    let mut bare = Vec::new();
    for kind in Kind::ALL {
        walk(&schema(*kind), "", &mut |path, node| {
            let is_property = !path.ends_with("[]") && !path.ends_with("{}");
            if is_property
                && node["description"]
                    .as_str()
                    .is_none_or(|text| text.trim().len() < 10)
            {
                bare.push(format!("{kind:?} {path}"));
            }
        });
    }
    assert!(bare.is_empty(), "without a description: {bare:#?}");
}

#[test]
fn schemas_are_structural() {
    let allowed: BTreeSet<&str> = [
        "type",
        "format",
        "description",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "enum",
        "default",
        "minimum",
        "minLength",
        "maxLength",
        "maxItems",
        "maxProperties",
        "pattern",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    ]
    .into();
    for kind in Kind::ALL {
        let status = &schema(*kind)["properties"]["status"];
        assert_eq!(
            status["x-kubernetes-map-type"], "atomic",
            "{kind:?} has a status of many owners"
        );
        walk(&schema(*kind), "", &mut |path, node| {
            let keywords = node.as_object().expect("a schema is an object");
            for keyword in keywords.keys() {
                // A status, and nothing else, has one owner.
                let one_owner = keyword == "x-kubernetes-map-type" && path == "status";
                assert!(
                    allowed.contains(keyword.as_str()) || one_owner,
                    "{kind:?} {path} uses {keyword}"
                );
            }
            let untyped = keywords.contains_key("x-kubernetes-preserve-unknown-fields")
                || keywords.contains_key("x-kubernetes-int-or-string");
            assert!(
                keywords.contains_key("type") || untyped,
                "{kind:?} {path} has no type"
            );
            assert!(
                !(keywords.contains_key("properties") && keywords.contains_key("additionalProperties")),
                "{kind:?} {path} has both properties and additionalProperties"
            );
            let known_formats = ["int32", "int64", "date-time", "uri"];
            if let Some(format) = keywords.get("format").and_then(Value::as_str) {
                assert!(
                    known_formats.contains(&format),
                    "{kind:?} {path} has the format {format}"
                );
            }
            if let Some(Value::Array(values)) = keywords.get("enum") {
                assert!(
                    values.iter().all(Value::is_string),
                    "{kind:?} {path} lists {values:?}"
                );
            }
            for name in keywords
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let name = name.as_str().expect("a name");
                assert!(
                    keywords["properties"].get(name).is_some(),
                    "{kind:?} {path} requires an undeclared {name}"
                );
            }
        });
    }
}

#[test]
fn conditions_are_a_map_keyed_by_type() {
    for kind in Kind::ALL {
        let root = schema(*kind);
        let list = node(&root, "status.conditions").expect("every kind has conditions");
        assert_eq!(list["x-kubernetes-list-type"], json!("map"), "{kind:?}");
        assert_eq!(list["x-kubernetes-list-map-keys"], json!(["type"]), "{kind:?}");
        assert_eq!(
            node(&root, "status.observedGeneration").expect("observedGeneration")["format"],
            json!("int64")
        );
        assert_eq!(
            node(&root, "status.updatedAt").expect("updatedAt")["format"],
            json!("date-time")
        );

        let item = &list["items"];
        if kind.info().group == "agents.proompteng.ai" {
            assert_eq!(
                item["required"],
                json!(["lastTransitionTime", "message", "reason", "status", "type"])
            );
            assert_eq!(
                item["properties"]["status"]["enum"],
                json!(["True", "False", "Unknown"])
            );
            assert_eq!(
                item["properties"]["lastTransitionTime"]["format"],
                json!("date-time")
            );
        } else {
            assert_eq!(item["required"], json!(["type", "status"]), "{kind:?}");
            for name in ["type", "status", "reason", "message", "lastTransitionTime"] {
                let member = item["properties"][name].as_object().expect(name);
                assert_eq!(
                    member.keys().collect::<Vec<_>>(),
                    ["description", "type"],
                    "{kind:?} {name}"
                );
            }
        }
    }
}

#[test]
fn step_statuses_are_replaced_as_a_whole() {
    let root = schema(Kind::OrchestrationRun);
    let list = node(&root, "status.stepStatuses").expect("the list");
    assert_eq!(list["x-kubernetes-list-type"], json!("atomic"));
}

#[test]
fn a_cancel_can_be_asked_for_in_two_ways_and_priority_has_a_default() {
    for kind in Kind::ALL.iter().filter(|kind| kind.is_run()) {
        let root = schema(*kind);
        let field = |path| node(&root, path).expect(path);
        assert_eq!(field("spec.cancel")["type"], json!("boolean"), "{kind:?}");
        assert_eq!(
            field("spec.desiredState")["enum"],
            json!(["Running", "Cancelled"]),
            "{kind:?}"
        );
        assert_eq!(field("spec.cancelReason")["type"], json!("string"), "{kind:?}");
    }
    let root = schema(Kind::AgentRun);
    let priority = node(&root, "spec.priority").expect("priority");
    assert_eq!(
        (&priority["format"], &priority["default"]),
        (&json!("int32"), &json!(0))
    );
}

#[test]
fn everything_is_in_one_category_and_says_why_and_how_old_it_is() {
    for kind in Kind::ALL {
        let crd = kind.crd();
        assert_eq!(
            crd.spec.names.categories.as_deref(),
            Some(&["jangar".to_owned()][..]),
            "{kind:?}"
        );
        assert!(
            crd.spec.versions[0]
                .subresources
                .as_ref()
                .is_some_and(|sub| sub.status.is_some()),
            "{kind:?}"
        );
        let columns = crd.spec.versions[0]
            .additional_printer_columns
            .as_deref()
            .unwrap_or_default();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names.last(), Some(&"Age"), "{kind:?}");
        assert!(
            names.contains(&"Reason") && names.contains(&"Message"),
            "{kind:?} has {names:?}"
        );
        assert!(
            names.contains(&"Phase") || names.contains(&"Ready"),
            "{kind:?} has {names:?}"
        );
        assert_eq!(
            names.iter().collect::<BTreeSet<_>>().len(),
            names.len(),
            "{kind:?} has a column twice: {names:?}"
        );
    }
}

/// The files in the chart are what the types say. When this fails, run `make generate` and look at the difference.
#[test]
fn the_chart_holds_what_is_generated() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/agents/crds");
    let mut expected = BTreeSet::new();
    for kind in Kind::ALL {
        let name = crd::file_name(*kind);
        let committed = fs::read_to_string(dir.join(&name)).unwrap_or_default();
        let generated = crd::manifest(*kind).expect("a definition is JSON");
        assert!(
            committed == generated,
            "charts/agents/crds/{name} is out of date: run `make generate`"
        );
        expected.insert(name);
    }
    let found: BTreeSet<String> = fs::read_dir(&dir)
        .expect("the chart has definitions")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(
        found, expected,
        "charts/agents/crds holds files that no kind stands for: remove them"
    );
}

#[test]
fn generated_files_read_back_as_what_was_written() {
    for kind in Kind::ALL {
        let text = crd::manifest(*kind).expect("a definition is JSON");
        let back: Value = serde_saphyr::from_str(&text).expect("YAML");
        let mut expected = serde_json::to_value(kind.crd()).expect("JSON");
        numbers_as_floats(&mut expected);
        let mut back_as_floats = back;
        numbers_as_floats(&mut back_as_floats);
        assert_eq!(back_as_floats, expected, "{kind:?}");
    }
}

/// `0` and `0.0` are the same bound.
fn numbers_as_floats(value: &mut Value) {
    match value {
        Value::Number(number) => *value = json!(number.as_f64().expect("a number")),
        Value::Array(items) => items.iter_mut().for_each(numbers_as_floats),
        Value::Object(map) => map.values_mut().for_each(numbers_as_floats),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
