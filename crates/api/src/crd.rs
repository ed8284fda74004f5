//! From Rust types to the CustomResourceDefinitions in the chart.
//!
//! What all kinds have in common is added here once, and what the schema generator says differently from what the API
//! promises is put right: an absent value is absent, not `null`. `AgentRun::crd()` and its like, which the derive makes,
//! lack all this: use [`Kind::crd`].

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use serde_json::{Number, Value};

use crate::{kinds::Kind, yaml};

/// The category that lists everything: `kubectl get jangar`.
const CATEGORY: &str = "jangar";
/// The group whose conditions and `spec` are strict. The kinds of the other groups began with looser schemas, which
/// stored objects rely on.
const STRICT_GROUP: &str = "agents.proompteng.ai";
/// First line of every generated file.
const HEADER: &str = "# Generated from crates/api by `make generate`. Do not edit.\n";

/// The file in the chart that holds the definition of a kind.
pub fn file_name(kind: Kind) -> String {
    let info = kind.info();
    format!("{}_{}.yaml", info.group, info.plural)
}

/// The definition of a kind as the text of its file in the chart.
pub fn manifest(kind: Kind) -> Result<String, serde_json::Error> {
    let mut value = serde_json::to_value(kind.crd())?;
    whole_numbers(&mut value);
    Ok(format!("{HEADER}{}", yaml::to_string(&value)))
}

/// Writes `0` for a bound that the Kubernetes types keep as `0.0`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) => {
            if let Some(float) = number.as_f64()
                && number.is_f64()
                && float.fract() == 0.0
                && let Ok(whole) = format!("{float}").parse::<i64>()
            {
                *number = Number::from(whole);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Adds to a derived definition what it shares with the other kinds.
pub(crate) fn finish(kind: Kind, mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.names.categories = Some(vec![CATEGORY.to_owned()]);
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    let strict = crd.spec.group == STRICT_GROUP;
    for version in &mut crd.spec.versions {
        version
            .additional_printer_columns
            .get_or_insert_default()
            .extend(common_columns(kind));
        let Some(root) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        else {
            continue;
        };
        tidy(root);
        if !strict {
            loosen(root);
        }
        belongs_to_one(root);
    }
    crd
}

/// The columns that say what an object is doing and why, after those of the kind itself.
fn common_columns(kind: Kind) -> Vec<CustomResourceColumnDefinition> {
    let condition = if kind.is_run() { "Succeeded" } else { "Ready" };
    let column = |name: &str, json_path: String, type_: &str, priority: i32, description: &str| {
        CustomResourceColumnDefinition {
            description: Some(description.to_owned()),
            format: None,
            json_path,
            name: name.to_owned(),
            priority: (priority > 0).then_some(priority),
            type_: type_.to_owned(),
        }
    };
    let of_condition = |member: &str| format!(".status.conditions[?(@.type==\"{condition}\")].{member}");
    let mut columns = Vec::new();
    // The AgentRun has had this column from the beginning, at another place.
    if kind != Kind::AgentRun {
        columns.push(column(
            "Reason",
            of_condition("reason"),
            "string",
            0,
            "Why it is in that state, in one word.",
        ));
    }
    if kind.is_run() {
        let blocked = ".status.conditions[?(@.type==\"Blocked\")].reason".to_owned();
        columns.push(column("Blocked", blocked, "string", 1, "What the run waits for."));
    }
    columns.push(column(
        "Message",
        of_condition("message"),
        "string",
        1,
        "Why it is in that state, in words.",
    ));
    columns.push(column(
        "Age",
        ".metadata.creationTimestamp".to_owned(),
        "date",
        0,
        "Time since it was created.",
    ));
    columns
}

/// Says that a status has one owner. Jangar alone writes it, part by part in merge patches, so who owns which field of it is no
/// question; without this the API server would keep a list of all of them, which is longer than most statuses, and go through it with
/// every write.
fn belongs_to_one(root: &mut JSONSchemaProps) {
    let status = root
        .properties
        .as_mut()
        .and_then(|properties| properties.get_mut("status"));
    if let Some(status) = status {
        status.x_kubernetes_map_type = Some("atomic".to_owned());
    }
}

/// Takes back what the schema generator adds for Rust's sake.
fn tidy(schema: &mut JSONSchemaProps) {
    // `Option` is generated as nullable, but a field is either absent or has a value of its type.
    schema.nullable = None;
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    schema.title = None;
    if let Some(text) = &mut schema.description {
        *text = unwrapped(text);
    }
    schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
        .for_each(tidy);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => tidy(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(tidy),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}

/// Joins the lines of each paragraph: source code is wrapped for editors, `kubectl explain` wraps for the terminal.
fn unwrapped(text: &str) -> String {
    text.split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// Restores the looser schema of the groups that began with one: `spec` may be absent, and a condition needs no more
/// than a type and a status.
fn loosen(root: &mut JSONSchemaProps) {
    root.required = None;
    let Some(properties) = &mut root.properties else {
        return;
    };
    let items = properties
        .get_mut("status")
        .and_then(|status| status.properties.as_mut()?.get_mut("conditions")?.items.as_mut());
    let Some(JSONSchemaPropsOrArray::Schema(condition)) = items else {
        return;
    };
    condition.required = Some(vec!["type".to_owned(), "status".to_owned()]);
    for member in condition
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
    {
        *member = JSONSchemaProps {
            description: member.description.take(),
            type_: member.type_.take(),
            format: member.format.take().filter(|format| format != "date-time"),
            ..JSONSchemaProps::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paragraphs_are_joined_and_kept_apart() {
        assert_eq!(unwrapped("one\n two\n\nthree"), "one two\n\nthree");
    }

    #[test]
    fn whole_numbers_are_written_without_a_fraction() {
        let mut value = json!({"minimum": 0.0, "list": [1.5, 2]});
        whole_numbers(&mut value);
        assert_eq!(value.to_string(), r#"{"list":[1.5,2],"minimum":0}"#);
    }
}
