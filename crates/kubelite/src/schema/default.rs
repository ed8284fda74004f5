//! Defaults from the schema, and the removal of nulls that the schema does not allow.

use serde_json::{Map, Value};

use crate::schema::{Additional, MAX_DEPTH, Schema};

/// Fills in defaults in place. A null in a field that is not nullable counts as absent: it is replaced by the default or,
/// where there is none, removed. Nulls in lists without a default stay, to be refused by validation.
pub fn default_in_place(value: &mut Value, schema: &Schema) {
    node(value, schema, 0);
}

fn node(value: &mut Value, schema: &Schema, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(members) => object(members, schema, depth),
        Value::Array(items) => {
            let Some(item) = &schema.items else { return };
            for value in items {
                if value.is_null()
                    && !item.nullable
                    && let Some(default) = &item.default
                {
                    *value = default.clone();
                }
                node(value, item, depth + 1);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn object(members: &mut Map<String, Value>, schema: &Schema, depth: usize) {
    if members.values().any(Value::is_null) {
        members.retain(|name, value| !(value.is_null() && is_refused_null(schema, name)));
    }
    for (name, property) in &schema.properties {
        let Some(default) = &property.default else {
            continue;
        };
        match members.get_mut(name) {
            None => {
                members.insert(name.clone(), default.clone());
            }
            Some(value) if value.is_null() && !property.nullable => *value = default.clone(),
            Some(_) => {}
        }
    }
    for (name, value) in members.iter_mut() {
        if let Some(property) = schema.properties.get(name) {
            node(value, property, depth + 1);
        } else if let Additional::Schema(shape) = &schema.additional {
            if value.is_null()
                && !shape.nullable
                && let Some(default) = &shape.default
            {
                *value = default.clone();
            }
            node(value, shape, depth + 1);
        }
    }
}

fn is_refused_null(schema: &Schema, name: &str) -> bool {
    schema
        .member(name)
        .is_some_and(|member| !member.nullable && member.default.is_none())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::parse::parse;

    #[test]
    #[expect(clippy::too_many_lines, reason = "one row per case")]
    fn defaults_are_filled_in() {
        let text = json!({"type": "string", "default": "d"});
        let inner = json!({"type": "object", "properties": {"t": text}});
        let inner_default = json!({"type": "object", "default": {}, "properties": {"t": text}});
        let nullable = json!({"type": "string", "nullable": true, "default": "d"});
        let plain = json!({"type": "string"});
        let table = [
            ("absent", json!({"a": text}), json!({}), json!({"a": "d"})),
            (
                "present",
                json!({"a": text}),
                json!({"a": "x"}),
                json!({"a": "x"}),
            ),
            (
                "null with default",
                json!({"a": text}),
                json!({"a": null}),
                json!({"a": "d"}),
            ),
            (
                "null without default",
                json!({"a": plain}),
                json!({"a": null}),
                json!({}),
            ),
            (
                "allowed null",
                json!({"a": nullable}),
                json!({"a": null}),
                json!({"a": null}),
            ),
            (
                "allowed null, absent",
                json!({"a": nullable}),
                json!({}),
                json!({"a": "d"}),
            ),
            ("parent absent", json!({"a": inner}), json!({}), json!({})),
            (
                "parent present",
                json!({"a": inner}),
                json!({"a": {}}),
                json!({"a": {"t": "d"}}),
            ),
            (
                "parent defaulted",
                json!({"a": inner_default}),
                json!({}),
                json!({"a": {"t": "d"}}),
            ),
            (
                "in a list",
                json!({"a": {"type": "array", "items": inner}}),
                json!({"a": [{}, {"t": "x"}]}),
                json!({"a": [{"t": "d"}, {"t": "x"}]}),
            ),
            (
                "null in a list",
                json!({"a": {"type": "array", "items": text}, "b": {"type": "array", "items": plain}}),
                json!({"a": [null], "b": [null]}),
                json!({"a": ["d"], "b": [null]}),
            ),
            (
                "in a map",
                json!({"a": {"type": "object", "additionalProperties": inner}}),
                json!({"a": {"k": {}, "n": null}}),
                json!({"a": {"k": {"t": "d"}}}),
            ),
            (
                "unknown null stays",
                json!({"a": plain}),
                json!({"z": null}),
                json!({"z": null}),
            ),
        ];
        for (what, properties, mut value, expected) in table {
            let schema = parse(&json!({"type": "object", "properties": properties})).expect("schema");
            default_in_place(&mut value, &schema);
            assert_eq!(value, expected, "{what}");
            default_in_place(&mut value, &schema);
            assert_eq!(value, expected, "{what}, a second time");
        }
    }
}
