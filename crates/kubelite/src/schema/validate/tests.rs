use serde_json::json;

use super::*;
use crate::schema::parse::parse;

fn property(schema: &Value) -> Schema {
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"f": schema}}}});
    parse(&schema).expect("schema")
}

fn messages(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The messages about `spec.f`.
fn check_field(schema: &Value, value: &Value) -> Vec<String> {
    let errors = validate(
        &json!({"spec": {"f": value}}),
        &property(schema),
        &FieldPath::root(),
    );
    messages(&errors)
}

#[test]
fn types_are_checked() {
    let ok: &[(Value, Value)] = &[
        (json!({"type": "string"}), json!("x")),
        (json!({"type": "integer"}), json!(1)),
        (json!({"type": "integer"}), json!(1.0)),
        (json!({"type": "number"}), json!(1)),
        (json!({"type": "number"}), json!(1.5)),
        (json!({"type": "boolean"}), json!(true)),
        (json!({"type": "array", "items": {"type": "string"}}), json!([])),
        (json!({"type": "object"}), json!({})),
        (json!({"type": "string", "nullable": true}), json!(null)),
        (json!({"x-kubernetes-int-or-string": true}), json!(1)),
        (json!({"x-kubernetes-int-or-string": true}), json!("1")),
        (json!({"x-kubernetes-preserve-unknown-fields": true}), json!([1])),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(9_999_999_999_i64),
        ),
    ];
    for (schema, value) in ok {
        assert_eq!(
            check_field(schema, value),
            Vec::<String>::new(),
            "{schema} {value}"
        );
    }
    let wrong = |type_: &str, found: &str| {
        format!("spec.f: Invalid value: \"{found}\": spec.f in body must be of type {type_}: \"{found}\"")
    };
    let table = [
        (json!({"type": "integer"}), json!("3"), wrong("integer", "string")),
        (json!({"type": "integer"}), json!(1.5), wrong("integer", "number")),
        (json!({"type": "string"}), json!(1), wrong("string", "integer")),
        (json!({"type": "string"}), json!(1.5), wrong("string", "number")),
        (
            json!({"type": "boolean"}),
            json!("true"),
            wrong("boolean", "string"),
        ),
        (json!({"type": "object"}), json!([]), wrong("object", "array")),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!({}),
            wrong("array", "object"),
        ),
        (json!({"type": "string"}), json!(null), wrong("string", "null")),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            wrong("integer,string", "boolean"),
        ),
    ];
    for (schema, value, expected) in table {
        assert_eq!(check_field(&schema, &value), [expected], "{schema} {value}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one row per case")]
fn keywords_are_worded_as_in_kubernetes() {
    let text = |rest: Value| {
        let mut schema = json!({"type": "string"});
        schema
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        schema
    };
    let table = [
        (
            text(json!({"enum": ["red", "blue"]})),
            json!("x"),
            "spec.f: Unsupported value: \"x\": supported values: \"red\", \"blue\"",
        ),
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!(3),
            "spec.f: Unsupported value: 3: supported values: \"1\", \"2\"",
        ),
        (
            text(json!({"maxLength": 5})),
            json!("ééééééé"),
            "spec.f: Too long: may not be more than 5 bytes",
        ),
        (
            text(json!({"maxLength": 1})),
            json!("xx"),
            "spec.f: Too long: may not be more than 1 byte",
        ),
        (
            text(json!({"minLength": 3})),
            json!("éé"),
            "spec.f: Invalid value: \"éé\": spec.f in body should be at least 3 chars long",
        ),
        (
            text(json!({"pattern": "^a+$"})),
            json!("b"),
            "spec.f: Invalid value: \"b\": spec.f in body should match '^a+$'",
        ),
        (
            json!({"type": "integer", "maximum": 10}),
            json!(12),
            "spec.f: Invalid value: 12: spec.f in body should be less than or equal to 10",
        ),
        (
            json!({"type": "integer", "maximum": 10, "exclusiveMaximum": true}),
            json!(10),
            "spec.f: Invalid value: 10: spec.f in body should be less than 10",
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "spec.f: Invalid value: 0: spec.f in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "number", "minimum": 0.5, "exclusiveMinimum": true}),
            json!(0.5),
            "spec.f: Invalid value: 0.5: spec.f in body should be greater than 0.5",
        ),
        (
            json!({"type": "integer", "multipleOf": 3}),
            json!(4),
            "spec.f: Invalid value: 4: spec.f in body should be a multiple of 3",
        ),
        (
            json!({"type": "number", "multipleOf": 0.1}),
            json!(0.25),
            "spec.f: Invalid value: 0.25: spec.f in body should be a multiple of 0.1",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            "spec.f: Invalid value: 0: spec.f in body should have at least 1 items",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            json!(["a", "b"]),
            "spec.f: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            json!(["a", "a"]),
            "spec.f: Invalid value: \"\": spec.f in body shouldn't contain duplicates",
        ),
        (
            json!({"type": "object", "minProperties": 1}),
            json!({}),
            "spec.f: Invalid value: 0: spec.f in body should have at least 1 properties",
        ),
        (
            json!({"type": "object", "maxProperties": 2}),
            json!({"a": 1, "b": 1, "c": 1}),
            "spec.f: Too many: 3: must have at most 2 items",
        ),
        (
            json!({"type": "object", "required": ["name"]}),
            json!({}),
            "spec.f.name: Required value",
        ),
        (
            text(json!({"format": "date"})),
            json!("x"),
            "spec.f: Invalid value: \"x\": spec.f in body must be of type date: \"x\"",
        ),
        (
            text(json!({"format": "date-time"})),
            json!(1),
            "spec.f: Invalid value: \"int64\": spec.f in body must be of type date-time: \"int64\"",
        ),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}),
            json!([{}, {"n": "x"}]),
            "spec.f[1].n: Invalid value: \"string\": spec.f[1].n in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"k": "x"}),
            "spec.f.k: Invalid value: \"string\": spec.f.k in body must be of type integer: \"string\"",
        ),
        (
            text(json!({"enum": ["a"], "nullable": true})),
            json!(null),
            "spec.f: Unsupported value: null: supported values: \"a\"",
        ),
    ];
    for (schema, value, expected) in table {
        assert_eq!(check_field(&schema, &value), [expected], "{schema} {value}");
    }
}

#[test]
fn values_that_fit_pass() {
    let table = [
        (json!({"type": "string", "enum": ["a"]}), json!("a")),
        (json!({"type": "number", "enum": [1]}), json!(1.0)),
        (
            json!({"type": "string", "maxLength": 2, "minLength": 2}),
            json!("éé"),
        ),
        (json!({"type": "number", "multipleOf": 0.1}), json!(0.3)),
        (json!({"type": "integer", "minimum": 1, "maximum": 1}), json!(1)),
        (json!({"type": "string", "format": "date"}), json!("2024-01-01")),
        (json!({"type": "string", "format": "unheard-of"}), json!("x")),
        (json!({"type": "string", "format": "date"}), json!([])),
    ];
    for (schema, value) in table {
        assert_eq!(
            check_field(&schema, &value),
            Vec::<String>::new(),
            "{schema} {value}"
        );
    }
}

#[test]
fn alternatives_tell_the_one_that_fits_best() {
    let table: &[(Value, Value, &[&str])] = &[
        (
            json!({"type": "string", "anyOf": [{"pattern": "^a"}, {"pattern": "^b"}]}),
            json!("c"),
            &[
                "<nil>: Invalid value: \"\": \"spec.f\" must validate at least one schema (anyOf)",
                "spec.f: Invalid value: \"c\": spec.f in body should match '^a'",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                   "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({}),
            &[
                "<nil>: Invalid value: \"\": \"spec.f\" must validate one and only one schema (oneOf). Found none valid",
                "spec.f.a: Required value",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                   "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"a": "1", "b": "2"}),
            &[
                "<nil>: Invalid value: \"\": \"spec.f\" must validate one and only one schema (oneOf). \
               Found 2 valid alternatives",
            ],
        ),
        (
            json!({"type": "integer", "allOf": [{"minimum": 5}, {"minimum": 1}]}),
            json!(2),
            &[
                "spec.f: Invalid value: 2: spec.f in body should be greater than or equal to 5",
                "<nil>: Invalid value: \"\": \"spec.f\" must validate all the schemas (allOf)",
            ],
        ),
        (
            json!({"type": "integer", "allOf": [{"minimum": 5}]}),
            json!(2),
            &[
                "spec.f: Invalid value: 2: spec.f in body should be greater than or equal to 5",
                "<nil>: Invalid value: \"\": \"spec.f\" must validate all the schemas (allOf). None validated",
            ],
        ),
        (
            json!({"type": "string", "not": {"enum": ["x"]}}),
            json!("x"),
            &["<nil>: Invalid value: \"\": \"spec.f\" must not validate the schema (not)"],
        ),
        (json!({"type": "string", "not": {"enum": ["x"]}}), json!("y"), &[]),
        (
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            json!("50%"),
            &[],
        ),
    ];
    for (schema, value, expected) in table {
        assert_eq!(check_field(schema, value), *expected, "{schema} {value}");
    }
}

#[test]
fn the_alternative_with_most_matches_is_the_one_meant() {
    let schema = json!({"type": "object", "properties": {"k": {"type": "string"}, "a": {"type": "integer"},
    "b": {"type": "integer"}}, "oneOf": [
        {"properties": {"k": {"enum": ["x"]}, "a": {"minimum": 1}}},
        {"properties": {"k": {"enum": ["y"]}, "a": {"minimum": 5}, "b": {"minimum": 5}}},
    ]});
    let found = check_field(&schema, &json!({"k": "y", "a": 9, "b": 1}));
    assert_eq!(
        found,
        [
            "<nil>: Invalid value: \"\": \"spec.f\" must validate one and only one schema (oneOf). Found none valid",
            "spec.f.b: Invalid value: 1: spec.f.b in body should be greater than or equal to 5",
        ]
    );
}

#[test]
fn errors_stand_below_the_given_path() {
    let schema = parse(&json!({"type": "object", "properties": {"a": {"type": "string"}}})).unwrap();
    let path = FieldPath::new("status");
    assert_eq!(
        messages(&validate(&json!({"a": 1}), &schema, &path)),
        ["status.a: Invalid value: \"integer\": a in body must be of type string: \"integer\""]
    );
    assert_eq!(
        messages(&validate(&json!(1), &schema, &path)),
        ["status: Invalid value: \"integer\":  in body must be of type object: \"integer\""]
    );
}

#[test]
fn items_of_sets_and_maps_differ() {
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
        "items": {"type": "object", "properties": {"n": {"type": "string"}, "v": {"type": "string"}}}});
    let two_keys = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["p", "q"],
        "items": {"type": "object", "properties": {"p": {"type": "integer"}, "q": {"type": "string"}}}});
    let many: Vec<String> = (0..20).map(|number| (number % 15).to_string()).collect();
    let table: Vec<(Value, Value, Vec<&str>)> = vec![
        (set.clone(), json!(["a", "b"]), vec![]),
        (
            set.clone(),
            json!(["a", "b", "a", "a"]),
            vec!["spec.f[2]: Duplicate value: \"a\""],
        ),
        (
            set.clone(),
            json!(many),
            vec![
                "spec.f[15]: Duplicate value: \"0\"",
                "spec.f[16]: Duplicate value: \"1\"",
                "spec.f[17]: Duplicate value: \"2\"",
                "spec.f[18]: Duplicate value: \"3\"",
                "spec.f[19]: Duplicate value: \"4\"",
            ],
        ),
        (map.clone(), json!([{"n": "a"}, {"n": "b"}]), vec![]),
        (
            map.clone(),
            json!([{"n": "a", "v": "1"}, {"n": "a"}]),
            vec!["spec.f[1]: Duplicate value: {\"n\":\"a\"}"],
        ),
        (map, json!([{}, {}]), vec!["spec.f[1]: Duplicate value: {}"]),
        (
            two_keys.clone(),
            json!([{"p": 1, "q": "a"}, {"p": 1, "q": "b"}]),
            vec![],
        ),
        (
            two_keys,
            json!([{"p": 1, "q": "a"}, {"p": 1, "q": "a"}]),
            vec!["spec.f[1]: Duplicate value: {\"p\":1,\"q\":\"a\"}"],
        ),
    ];
    for (schema, value, expected) in table {
        assert_eq!(check_field(&schema, &value), expected, "{value}");
    }
}

#[test]
fn embedded_resources_have_a_type_and_good_metadata() {
    let schema = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    let table: Vec<(Value, Vec<&str>)> = vec![
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}),
            vec![],
        ),
        (json!({"apiVersion": "v1", "kind": "Pod"}), vec![]),
        (
            json!({}),
            vec!["spec.f.apiVersion: Required value", "spec.f.kind: Required value"],
        ),
        (
            json!({"apiVersion": "", "kind": 1}),
            vec![
                "spec.f.apiVersion: Invalid value: \"\": must not be empty",
                "spec.f.kind: Invalid value: 1: must be a string",
            ],
        ),
        (
            json!({"apiVersion": "a/b/c", "kind": "K"}),
            vec!["spec.f.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"],
        ),
        (
            json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "a/b"}}),
            vec!["spec.f.metadata.name: Invalid value: \"a/b\": may not contain '/'"],
        ),
        (
            json!({"apiVersion": "v1", "kind": "K", "metadata": {"labels": {"a": 1}}}),
            vec![
                "spec.f.metadata: Invalid value: {\"labels\":{\"a\":1}}: json: cannot unmarshal number into Go struct \
                  field ObjectMeta.labels of type string",
            ],
        ),
    ];
    for (value, expected) in table {
        assert_eq!(check_field(&schema, &value), expected, "{value}");
    }
}

#[test]
fn updates_forgive_what_did_not_change() {
    let schema = property(&json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1},
        "b": {"type": "string", "maxLength": 1},
        "list": {"type": "array", "items": {"type": "string", "maxLength": 1}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {
                "n": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}}},
    }, "required": ["r"]}));
    let update = |old: Value, new: Value| {
        let (old, new) = (json!({"spec": {"f": old}}), json!({"spec": {"f": new}}));
        messages(&validate_update(&new, Some(&old), &schema, &FieldPath::root()))
    };
    let long = |path: &str| format!("{path}: Too long: may not be more than 1 byte");
    let required = "spec.f.r: Required value".to_owned();
    assert_eq!(
        update(json!({"a": "xx"}), json!({"a": "xx"})),
        Vec::<String>::new(),
        "nothing changed"
    );
    assert_eq!(
        update(json!({"a": "xx"}), json!({"a": "xx", "b": "y"})),
        std::slice::from_ref(&required),
        "the object changed, the bad field did not"
    );
    assert_eq!(
        update(json!({"a": "xx"}), json!({"a": "yy"})),
        [long("spec.f.a"), required.clone()]
    );
    assert_eq!(
        update(json!({"list": ["xx"]}), json!({"list": ["xx", "y"]})),
        [long("spec.f.list[0]"), required.clone()],
        "items of a plain list cannot be followed"
    );
    assert_eq!(
        update(
            json!({"map": [{"n": "1", "v": "xx"}]}),
            json!({"map": [{"n": "0", "v": "yy"}, {"n": "1", "v": "xx"}]})
        ),
        [long("spec.f.map[0].v"), required],
        "items of a list of type map are followed by their key"
    );
}

#[test]
fn updates_forgive_repetitions_that_were_there() {
    let schema =
        property(&json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}));
    let object = |items: Value| json!({"spec": {"f": items}});
    let update = |old, new| validate_update(&object(new), Some(&object(old)), &schema, &FieldPath::root());
    assert_eq!(update(json!(["a", "a"]), json!(["a", "a", "b"])), []);
    assert_eq!(update(json!(["a"]), json!(["a", "a"])).len(), 1);
}
