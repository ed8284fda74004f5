//! A document against the schema of its kind, as the API server checks it: fields, types, bounds, and rules in CEL.

use jangar_api::Kind;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::core::cel::Validator;
use serde_json::Value;

use crate::nearest::nearest;

/// How many mistakes of one document are told: more are most often one mistake, repeated.
const TOLD_MAX: usize = 20;
/// How deep a document may be nested. Nothing that is meant is.
const DEPTH_MAX: usize = 64;
/// The fields that every object has, and that no schema lists.
const COMMON: &[&str] = &["apiVersion", "kind", "metadata"];

/// Everything that is wrong with a document by itself; empty if the API server would take it.
pub(super) fn mistakes(kind: Kind, document: &Value) -> Vec<String> {
    let crd = kind.crd();
    let schema = crd
        .spec
        .versions
        .first()
        .and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let Some(schema) = schema else {
        return vec![format!("{} has no schema", kind.info().kind)];
    };
    let mut found = Vec::new();
    let spoken_for = without_common(document);
    walk(schema, &spoken_for, "", 0, &mut found);
    if found.is_empty() {
        // A rule looks at values, which have to be of the right type.
        found.extend(rules(schema, document));
    }
    found.truncate(TOLD_MAX);
    found
}

/// The API server knows these fields of every object without any schema, and drops a status that somebody sends along.
fn without_common(document: &Value) -> Value {
    let mut value = document.clone();
    if let Some(map) = value.as_object_mut() {
        for field in COMMON {
            map.remove(*field);
        }
        map.remove("status");
    }
    value
}

/// Rules about how an object may change have nothing to say about a new one.
fn rules(schema: &JSONSchemaProps, document: &Value) -> Vec<String> {
    let Ok(schema) = serde_json::to_value(schema) else {
        return Vec::new();
    };
    let mut new = document.clone();
    if let Some(map) = new.as_object_mut() {
        map.remove("status");
    }
    match Validator::new().validate(&schema, &new, None) {
        Ok(()) => Vec::new(),
        Err(errors) => errors
            .into_vec()
            .into_iter()
            .map(|error| match error.field_path.as_str() {
                "" => error.message,
                path => format!("{path}: {}", error.message),
            })
            .collect(),
    }
}

fn walk(schema: &JSONSchemaProps, value: &Value, path: &str, depth: usize, found: &mut Vec<String>) {
    let here = if path.is_empty() { "the document" } else { path };
    if depth > DEPTH_MAX {
        found.push(format!("{here} is nested too deeply"));
        return;
    }
    if found.len() >= TOLD_MAX {
        return;
    }
    if let Some(wrong) = wrong_type(schema, value) {
        found.push(format!("{here} {wrong}"));
        return;
    }
    if let Some(words) = &schema.enum_
        && !words.iter().any(|word| word.0 == *value)
    {
        let known: Vec<String> = words
            .iter()
            .filter_map(|word| word.0.as_str().map(str::to_owned))
            .collect();
        found.push(format!("{here} is {value}: write one of {}", known.join(", ")));
    }
    match value {
        Value::Object(map) => object(schema, map, path, depth, found),
        Value::Array(items) => {
            bounds(
                here,
                "entries",
                items.len(),
                schema.min_items,
                schema.max_items,
                found,
            );
            if let Some(JSONSchemaPropsOrArray::Schema(of)) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    walk(of, item, &format!("{path}[{at}]"), depth + 1, found);
                }
            }
        }
        Value::String(text) => {
            let length = text.chars().count();
            bounds(
                here,
                "characters",
                length,
                schema.min_length,
                schema.max_length,
                found,
            );
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            if schema.minimum.is_some_and(|least| number < least) {
                found.push(format!(
                    "{here} is {value}: it must be {} or more",
                    schema.minimum.unwrap_or_default()
                ));
            }
            if schema.maximum.is_some_and(|most| number > most) {
                found.push(format!(
                    "{here} is {value}: it must be {} or less",
                    schema.maximum.unwrap_or_default()
                ));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn object(
    schema: &JSONSchemaProps,
    map: &serde_json::Map<String, Value>,
    path: &str,
    depth: usize,
    found: &mut Vec<String>,
) {
    let at = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    let here = if path.is_empty() { "the document" } else { path };
    bounds(
        here,
        "entries",
        map.len(),
        schema.min_properties,
        schema.max_properties,
        found,
    );
    for name in schema.required.iter().flatten() {
        if !map.contains_key(name) && !COMMON.contains(&name.as_str()) {
            found.push(format!("{} is missing", at(name)));
        }
    }
    let known = schema.properties.as_ref();
    let keeps = schema.x_kubernetes_preserve_unknown_fields == Some(true);
    for (name, value) in map {
        if let Some(field) = known.and_then(|known| known.get(name)) {
            if !value.is_null() {
                walk(field, value, &at(name), depth + 1, found);
            }
            continue;
        }
        match &schema.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(of)) => walk(of, value, &at(name), depth + 1, found),
            Some(JSONSchemaPropsOrBool::Bool(true)) => {}
            Some(JSONSchemaPropsOrBool::Bool(false)) | None if keeps => {}
            Some(JSONSchemaPropsOrBool::Bool(false)) | None => {
                let names = known
                    .into_iter()
                    .flat_map(|known| known.keys())
                    .map(String::as_str);
                let hint = match nearest(name, names) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => "take it out".to_owned(),
                };
                found.push(format!("{} is no field of this kind: {hint}", at(name)));
            }
        }
    }
}

fn bounds(here: &str, of: &str, size: usize, least: Option<i64>, most: Option<i64>, found: &mut Vec<String>) {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    if let Some(most) = most.filter(|most| size > *most) {
        found.push(format!("{here} has {size} {of}: it may have {most} at most"));
    }
    if let Some(least) = least.filter(|least| size < *least) {
        found.push(format!("{here} has {size} {of}: it must have {least} at least"));
    }
}

fn wrong_type(schema: &JSONSchemaProps, value: &Value) -> Option<String> {
    if schema.x_kubernetes_int_or_string == Some(true) {
        let fits = value.is_string() || value.is_i64() || value.is_u64();
        return (!fits).then(|| format!("is {}: it must be a number or a text", named(value)));
    }
    let wanted = schema.type_.as_deref()?;
    let fits = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        _ => true,
    };
    let wanted = match wanted {
        "object" => "an object",
        "array" => "a list",
        // What looks like another value becomes a text in quotes; a list or an object does not.
        "string" if value.is_number() || value.is_boolean() => "a text; put it in quotes",
        "string" => "a text",
        "boolean" => "true or false",
        "integer" => "a whole number",
        other => other,
    };
    (!fits).then(|| format!("is {}: it must be {wanted}", named(value)))
}

fn named(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Null => "nothing".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(
        clippy::needless_pass_by_value,
        reason = "every caller makes the value on the spot"
    )]
    fn run(spec: Value) -> Vec<String> {
        let document = json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun",
            "metadata": {"name": "a", "namespace": "agents"}, "spec": spec,
        });
        mistakes(Kind::AgentRun, &document)
    }

    #[test]
    fn a_good_run_has_no_mistakes() {
        let spec = json!({
            "agentRef": {"name": "coder"}, "implementationSpecRef": {"name": "fix"},
            "runtime": {"type": "job", "config": {"anything": ["goes"]}}, "parameters": {"a": "b"}, "priority": 3,
        });
        assert_eq!(run(spec), Vec::<String>::new());
    }

    #[test]
    fn every_mistake_is_told_with_its_field() {
        let found = run(json!({
            "agentRef": {}, "runtime": {"type": "jbo"}, "parameterz": {}, "parameters": {"a": 1}, "priority": "high",
        }));
        let all = found.join("\n");
        for words in [
            "spec.agentRef.name is missing",
            "spec.runtime.type is \"jbo\": write one of workflow, job, temporal, custom",
            "spec.parameterz is no field of this kind: did you mean parameters?",
            "spec.parameters.a is 1: it must be a text",
            "spec.priority is \"high\": it must be a whole number",
        ] {
            assert!(all.contains(words), "{words} is not in:\n{all}");
        }
    }

    #[test]
    fn quotes_are_advised_only_where_they_help() {
        let told = |value: Value| {
            run(json!({
                "agentRef": {"name": value}, "runtime": {"type": "job"}, "implementationSpecRef": {"name": "fix"},
            }))
            .join("\n")
        };
        for value in [json!(1), json!(true)] {
            let text = told(value.clone());
            let expected = format!("spec.agentRef.name is {value}: it must be a text; put it in quotes");
            assert_eq!(text, expected);
        }
        assert_eq!(
            told(json!({"name": "coder"})),
            "spec.agentRef.name is an object: it must be a text"
        );
        assert_eq!(
            told(json!(["coder"])),
            "spec.agentRef.name is a list: it must be a text"
        );
    }

    #[test]
    fn rules_of_the_api_server_hold_here_too() {
        let found = run(json!({"agentRef": {"name": "coder"}, "runtime": {"type": "job"}}));
        assert!(found.join("\n").contains("say what is to be done"), "{found:?}");
        let name = "n".repeat(64);
        let document = json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun", "metadata": {"name": name},
            "spec": {"agentRef": {"name": "coder"}, "runtime": {"type": "job"}, "implementationSpecRef": {"name": "fix"}},
        });
        let found = mistakes(Kind::AgentRun, &document);
        assert!(found.join("\n").contains("at most 63"), "{found:?}");
    }
}
