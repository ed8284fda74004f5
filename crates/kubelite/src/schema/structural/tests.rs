use serde_json::json;

use super::*;

const PATH: &str = "spec.validation";

fn messages(openapi: &Value) -> Vec<String> {
    check(openapi, false, &FieldPath::new(PATH))
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// The messages about a schema below `properties[f]` of a good root, without the path up to there.
fn about_field(schema: &Value) -> Vec<String> {
    let prefix = format!("{PATH}.properties[f]");
    messages(&json!({"type": "object", "properties": {"f": schema}}))
        .into_iter()
        .map(|text| text.strip_prefix(&prefix).map_or(text.clone(), str::to_owned))
        .collect()
}

#[test]
fn ordinary_schemas_are_accepted() {
    let schema = json!({"type": "object", "description": "d", "required": ["spec"], "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
        "spec": {"type": "object", "x-kubernetes-validations": [{"rule": "self.n > 0"}], "properties": {
            "n": {"type": "integer", "default": 1, "minimum": 1},
            "either": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        }},
        "status": {"type": "object"},
    }});
    let path = FieldPath::new(PATH);
    let (parsed, rules) = accept(&schema, true, &path).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert!(parsed.properties.contains_key("spec"));
    assert!(!rules.is_empty());
}

#[test]
fn the_root_is_an_object_of_fields() {
    let table: &[(Value, &[&str])] = &[
        (
            json!({}),
            &[".type: Required value: must not be empty at the root"],
        ),
        (
            json!({"type": "string"}),
            &[".type: Invalid value: \"string\": must be object at the root"],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            &[".additionalProperties: Forbidden: must not be used at the root"],
        ),
        (
            json!({"type": "object", "nullable": true}),
            &[".nullable: Forbidden: nullable cannot be true at the root"],
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {
                "labels": {"type": "object"}}}}}),
            &[
                ".properties[metadata]: Forbidden: must not specify anything other than name and generateName, \
               but metadata is implicitly specified",
            ],
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {
                "name": {"type": "string", "maxLength": 5}}}}}),
            &[],
        ),
        (
            json!({"type": "object", "oneOf": [{"properties": {"a": {"minLength": 1}}}]}),
            &[
                ".properties[a]: Required value: because it is defined in spec.validation.oneOf[0].properties[a]",
            ],
        ),
        (
            json!({"type": "object", "properties": {"kind": {"type": "integer"}}}),
            &[".properties[kind].type: Invalid value: \"integer\": must be string"],
        ),
        (
            json!({"type": "object", "properties": {"kind": {"type": "string", "default": "K"}}}),
            &[".properties[kind].default: Forbidden: must not be set in top-level kind"],
        ),
    ];
    for (schema, expected) in table {
        let expected: Vec<String> = expected.iter().map(|text| format!("{PATH}{text}")).collect();
        assert_eq!(messages(schema), expected, "{schema}");
    }
}

#[test]
fn fields_are_shaped_outside_of_alternatives() {
    let table: &[(Value, &[&str])] = &[
        (
            json!({}),
            &[".type: Required value: must not be empty for specified object fields"],
        ),
        (
            json!({"type": "array"}),
            &[".items: Required value: must be specified"],
        ),
        (
            json!({"type": "array", "items": {}}),
            &[".items.type: Required value: must not be empty for specified array items"],
        ),
        (
            json!({"type": "array", "items": [{"type": "string"}]}),
            &[
                ".items: Required value: must be specified",
                ".items: Forbidden: items must be a schema object and not an array",
            ],
        ),
        (
            json!({"type": "string", "anyOf": [{"type": "string", "description": "d", "default": "x",
                "nullable": true}]}),
            &[
                ".anyOf[0].default: Forbidden: must be undefined to be structural",
                ".anyOf[0].description: Forbidden: must be empty to be structural",
                ".anyOf[0].nullable: Forbidden: must be false to be structural",
                ".anyOf[0].type: Forbidden: must be empty to be structural",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "not": {"properties": {"a": {
                "x-kubernetes-validations": [{"rule": "true"}]}}}}),
            &[".not.properties[a].x-kubernetes-validations: Forbidden: must be empty to be structural"],
        ),
        (
            json!({"type": "string", "x-kubernetes-embedded-resource": true}),
            &[
                ".properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without \
                 x-kubernetes-preserve-unknown-fields",
                ".type: Invalid value: \"string\": must be object if x-kubernetes-embedded-resource is true",
            ],
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
            &[".x-kubernetes-preserve-unknown-fields: Invalid value: true: \
               must be false if x-kubernetes-int-or-string is true"],
        ),
    ];
    for (schema, expected) in table {
        assert_eq!(about_field(schema), *expected, "{schema}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one row per case")]
fn keywords_that_do_not_go_together_are_refused() {
    let text = json!({"type": "string"});
    let keyed = |items: Value, keys: Value| json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": items});
    let table: Vec<(Value, Vec<&str>)> = vec![
        (
            json!({"type": "array", "items": text, "uniqueItems": true}),
            vec![
                ".uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes \
                  quadratic",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": text}, "additionalProperties": text}),
            vec![
                ".additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        ),
        (
            json!({"type": "string", "$ref": "#/x"}),
            vec![".$ref: Forbidden: $ref is not supported"],
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            vec![".x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"],
        ),
        (
            json!({"type": "string", "x-kubernetes-map-type": "atomic"}),
            vec![".type: Invalid value: \"string\": must be object if x-kubernetes-map-type is specified"],
        ),
        (
            json!({"type": "string", "x-kubernetes-list-type": "set"}),
            vec![".type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified"],
        ),
        (
            json!({"type": "array", "items": text, "x-kubernetes-list-type": "bag"}),
            vec![
                ".x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\"",
            ],
        ),
        (
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}),
            vec![
                ".items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with \
                  x-kubernetes-list-type=set",
            ],
        ),
        (
            json!({"type": "array", "items": text, "x-kubernetes-list-map-keys": ["k"]}),
            vec![
                ".x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
            ],
        ),
        (
            keyed(json!({"type": "object", "properties": {"k": text}}), json!([])),
            vec![
                ".x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ],
        ),
        (
            keyed(text.clone(), json!(["k"])),
            vec![
                ".items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is \
                  map",
            ],
        ),
        (
            keyed(json!({"type": "object", "properties": {"k": text}}), json!(["k"])),
            vec![
                ".items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it \
                  must have a default or be a required property",
            ],
        ),
        (
            keyed(
                json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "object"}}}),
                json!(["k"]),
            ),
            vec![
                ".items.properties[k].type: Invalid value: \"object\": must be a scalar type if parent array's \
                  x-kubernetes-list-type is map",
            ],
        ),
        (
            keyed(
                json!({"type": "object", "required": ["k"], "properties": {"k": text}}),
                json!(["k", "k"]),
            ),
            vec![
                ".x-kubernetes-list-map-keys: Invalid value: [\"k\",\"k\"]: must not contain duplicate entries",
            ],
        ),
        (
            keyed(json!({"type": "object", "properties": {"a": text}}), json!(["k"])),
            vec![
                ".x-kubernetes-list-map-keys: Invalid value: [\"k\"]: entries must all be names of item properties",
            ],
        ),
    ];
    for (schema, expected) in table {
        assert_eq!(about_field(&schema), expected, "{schema}");
    }
}

#[test]
fn defaults_must_be_good_values() {
    let table: Vec<(Value, Vec<&str>)> = vec![
        (
            json!({"type": "integer", "default": "x"}),
            vec![".default: Invalid value: \"string\":  in body must be of type integer: \"string\""],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}}),
            vec![".default: Invalid value: {\"b\":1}: must not have unknown fields"],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 1}}, "default": {"a": "xx"}}),
            vec![".default.a: Too long: may not be more than 1 byte"],
        ),
        (
            json!({"type": "integer", "default": 0, "x-kubernetes-validations": [{"rule": "self > 0",
                "message": "positive"}]}),
            vec![".default: Invalid value: 0: positive"],
        ),
    ];
    for (schema, expected) in table {
        assert_eq!(about_field(&schema), expected, "{schema}");
    }
}

#[test]
fn rules_are_described_well() {
    let rule = |rule: Value| {
        json!({"type": "object", "properties": {"a": {"type": "string"}},
        "x-kubernetes-validations": [rule]})
    };
    let at = ".x-kubernetes-validations[0]";
    let table: Vec<(Value, String)> = vec![
        (
            json!({"rule": " "}),
            format!("{at}.rule: Required value: rule is not specified"),
        ),
        (
            json!({"rule": "true", "message": " "}),
            format!("{at}.message: Invalid value: \" \": must be non-empty if specified"),
        ),
        (
            json!({"rule": "true &&\ntrue"}),
            format!("{at}.message: Required value: message must be specified if rule contains line breaks"),
        ),
        (
            json!({"rule": "true", "reason": "Because"}),
            format!(
                "{at}.reason: Unsupported value: \"Because\": supported values: \"FieldValueDuplicate\", \
                 \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\""
            ),
        ),
        (
            json!({"rule": "true", "fieldPath": ".z"}),
            format!("{at}.fieldPath: Invalid value: \".z\": must be a valid path"),
        ),
    ];
    for (value, expected) in table {
        assert_eq!(about_field(&rule(value.clone())), [expected], "{value}");
    }
    let broken = about_field(&rule(json!({"rule": "self.z"})));
    assert!(
        broken[0].contains("compilation failed: ERROR: <input>:1:5: undefined field 'z'"),
        "{}",
        broken[0]
    );
}

#[test]
fn little_may_stand_beside_a_status() {
    let schema = json!({"type": "object", "maxProperties": 3});
    let found = check(&schema, true, &FieldPath::new(PATH));
    assert_eq!(found.len(), 1);
    assert!(
        found[0]
            .detail
            .starts_with("only [Description Type Format Title Maximum")
            && found[0].detail.ends_with("if the status subresource is enabled"),
        "{}",
        found[0]
    );
    assert_eq!(check(&schema, false, &FieldPath::new(PATH)), []);
}

#[test]
fn what_cannot_be_parsed_is_refused() {
    assert_eq!(
        about_field(&json!({"type": "text"})),
        [
            ".type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \
          \"object\", \"string\""
        ]
    );
    let pattern = about_field(&json!({"type": "string", "pattern": "("}));
    assert_eq!(pattern.len(), 1);
    assert!(
        pattern[0].starts_with(".pattern: Invalid value: \"(\": must be a valid regular expression"),
        "{pattern:?}"
    );
}
