use serde_json::json;

use super::*;
use crate::{
    defects::Defects,
    schema::{check_custom_resource, parse::parse},
};

pub(super) fn rules_of(schema: &Value) -> Rules {
    let schema = parse(schema).expect("schema");
    compile(&schema).unwrap_or_else(|errors| panic!("{}", errors[0]))
}

pub(super) fn spec(properties: &Value, rules: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": properties, "x-kubernetes-validations": rules}}})
}

pub(super) fn messages(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_and_their_verifier_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<Rules>();
    assert!(Rules::default().is_empty());
    assert!(rules_of(&json!({"type": "object"})).is_empty());
}

#[test]
fn failures_are_worded_as_in_kubernetes() {
    let properties = json!({"n": {"type": "integer"}, "m": {"type": "integer"}, "t": {"type": "object",
        "additionalProperties": {"type": "string"}}});
    let table = [
        (
            json!({"rule": "self.n <= self.m", "message": "n must not exceed m"}),
            "spec: Invalid value: n must not exceed m",
        ),
        (
            json!({"rule": "self.n <= self.m"}),
            "spec: Invalid value: failed rule: self.n <= self.m",
        ),
        (
            json!({"rule": "self.n <= self.m", "message": "no", "messageExpression": "'n is ' + string(self.n)"}),
            "spec: Invalid value: n is 5",
        ),
        (
            json!({"rule": "self.n <= self.m", "message": "no", "messageExpression": "'   '"}),
            "spec: Invalid value: no",
        ),
        (
            json!({"rule": "self.n <= self.m", "message": "no", "reason": "FieldValueForbidden", "fieldPath": ".n"}),
            "spec.n: Forbidden: no",
        ),
        (
            json!({"rule": "self.n <= self.m", "message": "no", "reason": "FieldValueRequired"}),
            "spec: Required value: no",
        ),
        (
            json!({"rule": "self.n <= self.m", "message": "no", "reason": "FieldValueDuplicate"}),
            "spec: Duplicate value",
        ),
        (
            json!({"rule": "self.t['x'] == 'y'", "message": "no"}),
            "spec: Invalid value: \"object\": no such key: x evaluating rule: no",
        ),
    ];
    for (rule, expected) in table {
        let rules = rules_of(&spec(&properties, &json!([rule])));
        let object = json!({"spec": {"n": 5, "m": 3, "t": {}}});
        assert_eq!(messages(&rules.validate(&object, None)), [expected], "{rule}");
    }
}

#[test]
fn scalars_are_printed_and_found_everywhere() {
    let rule = json!([{"rule": "self > 0", "message": "must be positive"}]);
    let number = json!({"type": "integer", "x-kubernetes-validations": rule});
    let rules = rules_of(&json!({"type": "object", "properties": {
        "plain": number,
        "list": {"type": "array", "items": number},
        "map": {"type": "object", "additionalProperties": number},
    }}));
    let object = json!({"plain": 0, "list": [1, -1], "map": {"a.b": -2, "ok": 1}});
    assert_eq!(
        messages(&rules.validate(&object, None)),
        [
            "list[1]: Invalid value: -1: must be positive",
            "map[a.b]: Invalid value: -2: must be positive",
            "plain: Invalid value: 0: must be positive",
        ]
    );
}

#[test]
fn values_have_the_types_of_their_schema() {
    let properties = json!({
        "number": {"type": "number"}, "time": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"}, "wait": {"type": "string", "format": "duration"},
        "bytes": {"type": "string", "format": "byte"}, "either": {"x-kubernetes-int-or-string": true},
        "namespace": {"type": "string"}, "a-b": {"type": "string"}, "snake_case": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    });
    let object = json!({"spec": {"number": 1, "time": "2024-01-01T00:00:00Z", "day": "2024-01-02", "wait": "90s",
        "bytes": "YWI=", "either": 3, "namespace": "n", "a-b": "x", "snake_case": "s", "labels": {"a-b": "v"}}});
    for rule in [
        "self.number / 2.0 == 0.5",
        "self.time < timestamp('2024-01-01T00:00:01Z')",
        "self.day > self.time",
        "self.wait == duration('1m30s')",
        "size(self.bytes) == 2",
        "self.either == 3",
        "self.__namespace__ == 'n'",
        "self.a__dash__b == 'x'",
        "self.snake_case == 's'",
        "self.labels['a-b'] == 'v'",
        "has(self.labels) && !has(self.labels.missing)",
        "self.labels.all(key, key.startsWith('a'))",
    ] {
        let rules = rules_of(&spec(&properties, &json!([{"rule": rule}])));
        assert_eq!(
            messages(&rules.validate(&object, None)),
            Vec::<String>::new(),
            "{rule}"
        );
    }
}

#[test]
fn the_root_shows_the_name_and_nothing_else_of_the_metadata() {
    let schema = json!({"type": "object", "x-kubernetes-validations": [
        {"rule": "self.metadata.name.startsWith('a')", "message": "bad name"},
        {"rule": "self.kind == 'K'", "message": "bad kind"},
    ]});
    let rules = rules_of(&schema);
    let object = json!({"kind": "K", "metadata": {"name": "b", "labels": {"x": "y"}}});
    assert_eq!(
        messages(&rules.validate(&object, None)),
        ["<nil>: Invalid value: bad name"]
    );
}

#[test]
fn metadata_beyond_the_name_is_unknown_to_rules() {
    let schema =
        json!({"type": "object", "x-kubernetes-validations": [{"rule": "has(self.metadata.labels)"}]});
    let errors = compile(&parse(&schema).unwrap()).expect_err("refused");
    assert!(
        errors[0]
            .detail
            .contains("<input>:1:18: undefined field 'labels'"),
        "{}",
        errors[0]
    );
}

#[test]
fn what_a_rule_cannot_name_still_counts_in_comparisons() {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}]});
    let rules = rules_of(&json!({"type": "object", "properties": {"free": free}}));
    let object = |value: i64| json!({"free": {"any": {"thing": value}}});
    assert_eq!(rules.validate(&object(1), Some(&object(1))), []);
    assert_eq!(
        messages(&rules.validate(&object(2), Some(&object(1)))),
        ["free: Invalid value: fixed"]
    );
}

#[test]
fn a_null_field_is_an_absent_one() {
    let nullable = json!({"type": "string", "nullable": true});
    let rules = rules_of(&spec(&json!({"n": nullable}), &json!([{"rule": "!has(self.n)"}])));
    assert_eq!(rules.validate(&json!({"spec": {"n": null}}), None), []);
    let rules = rules_of(&json!({"type": "object", "properties": {"map": {"type": "object",
        "additionalProperties": nullable, "x-kubernetes-validations": [{"rule": "'k' in self && self.k == null"}]}}}));
    assert_eq!(
        messages(&rules.validate(&json!({"map": {"k": null}}), None)),
        Vec::<String>::new()
    );
}

#[test]
fn transition_rules_run_only_with_an_old_value() {
    let properties = json!({
        "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "only up"}]},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer",
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}]}}}},
    });
    let rules = rules_of(&spec(&properties, &json!([])));
    let object = |n: i64, list: Value| json!({"spec": {"n": n, "list": list}});
    let new = object(1, json!([{"k": "b", "v": 9}, {"k": "a", "v": 2}]));
    assert_eq!(rules.validate(&new, None), []);
    let old = object(2, json!([{"k": "a", "v": 1}]));
    assert_eq!(
        messages(&rules.validate(&new, Some(&old))),
        [
            "spec.list[1].v: Invalid value: 2: fixed",
            "spec.n: Invalid value: 1: only up"
        ]
    );
    assert_eq!(rules.validate(&new, Some(&json!({"spec": {}}))), []);
}

#[test]
fn an_optional_old_value_lets_a_rule_run_on_creation() {
    let rule = json!([{"rule": "oldSelf.hasValue() || self.n == 0", "message": "starts at zero", "optionalOldSelf": true},
        {"rule": "!oldSelf.hasValue() || oldSelf.value().n <= self.n", "message": "only up", "optionalOldSelf": true}]);
    let rules = rules_of(&spec(&json!({"n": {"type": "integer"}}), &rule));
    let object = |n: i64| json!({"spec": {"n": n}});
    assert_eq!(
        messages(&rules.validate(&object(1), None)),
        ["spec: Invalid value: starts at zero"]
    );
    assert_eq!(rules.validate(&object(0), None), []);
    assert_eq!(rules.validate(&object(2), Some(&object(1))), []);
    assert_eq!(
        messages(&rules.validate(&object(0), Some(&object(1)))),
        ["spec: Invalid value: only up"]
    );
}

#[test]
fn failures_of_unchanged_parts_are_forgiven() {
    let positive =
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "positive"}]});
    let schema = spec(&json!({"a": positive, "b": positive}), &json!([]));
    let rules = rules_of(&schema);
    let old = json!({"spec": {"a": 0, "b": 1}});
    let new = json!({"spec": {"a": 0, "b": -1}});
    assert_eq!(
        messages(&rules.validate(&new, Some(&old))),
        ["spec.b: Invalid value: -1: positive"]
    );
    assert_eq!(rules.validate(&old, Some(&old)), []);
}

#[test]
fn rules_do_not_run_on_values_of_the_wrong_shape() {
    let schema = spec(
        &json!({"n": {"type": "integer"}}),
        &json!([{"rule": "self.n > 0"}]),
    );
    let parsed = parse(&schema).unwrap();
    let rules = compile(&parsed).unwrap();
    assert_eq!(
        messages(&check_custom_resource(
            &json!({"spec": {"n": "x"}}),
            None,
            &parsed,
            &rules,
            Vec::new(),
            Defects::default(),
        )),
        [
            "spec.n: Invalid value: \"string\": spec.n in body must be of type integer: \"string\"",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
             correct the existing errors to complete validation",
        ]
    );
    assert_eq!(
        messages(&check_custom_resource(
            &json!({"spec": {"n": 0}}),
            None,
            &parsed,
            &rules,
            Vec::new(),
            Defects::default(),
        )),
        ["spec: Invalid value: failed rule: self.n > 0"]
    );
}

#[test]
fn rules_that_cannot_work_are_refused() {
    let properties = json!({"n": {"type": "integer"}, "plain": {"type": "array", "items": {"type": "object",
        "properties": {"v": {"type": "integer"}}}}});
    let table = [
        ("self.n >", "compilation failed: ERROR: <input>:1:"),
        (
            "self.missing == 1",
            "compilation failed: ERROR: <input>:1:5: undefined field 'missing'\n | self.missing == 1\n | ....^",
        ),
        (
            "has(self.n) && self.n == limit",
            "compilation failed: ERROR: <input>:1:26: undeclared reference to 'limit' (in container '')",
        ),
        (
            "self.plain.siez() > 0",
            "compilation failed: ERROR: <input>:1:12: undeclared reference to 'siez' (in container '')",
        ),
        ("self.n + 1", "cel expression must evaluate to a bool"),
        (
            "self.plain.all(x, x.v > y)",
            "compilation failed: ERROR: <input>:1:25: undeclared reference to 'y' (in container '')",
        ),
    ];
    for (rule, expected) in table {
        let schema = parse(&spec(&properties, &json!([{"rule": rule}]))).unwrap();
        let errors = compile_at(&schema, &FieldPath::new("schema")).expect_err(rule);
        assert_eq!(
            errors[0].path.as_str(),
            "schema.properties[spec].x-kubernetes-validations[0].rule"
        );
        assert!(errors[0].detail.starts_with(expected), "{rule}: {}", errors[0]);
        assert!(errors[0].to_string().contains("\"Rule\":"), "{}", errors[0]);
    }
}

#[test]
fn old_values_need_parts_that_can_be_followed() {
    let rule = json!([{"rule": "self == oldSelf"}]);
    let schema = json!({"type": "object", "properties": {"list": {"type": "array", "maxItems": 9,
        "items": {"type": "string", "maxLength": 9, "x-kubernetes-validations": rule}}}});
    let errors = compile(&parse(&schema).unwrap()).expect_err("refused");
    assert_eq!(
        messages(&errors),
        [
            "properties[list].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": \
          oldSelf cannot be used on the uncorrelatable portion of the schema within properties[list]"
        ]
    );
}

#[test]
fn optional_old_values_must_be_used() {
    let schema = spec(
        &json!({"n": {"type": "integer"}}),
        &json!([{"rule": "self.n > 0", "optionalOldSelf": true}]),
    );
    let errors = compile(&parse(&schema).unwrap()).expect_err("refused");
    assert_eq!(
        messages(&errors),
        [
            "properties[spec].x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: \
          may not be set if oldSelf is not used in rule"
        ]
    );
}

/// `[1].all(x0, [1].all(x1, … true))`.
fn nested_loops(count: usize) -> String {
    let mut text = String::from("true");
    for number in 0..count {
        text = format!("[1].all(x{number}, {text})");
    }
    text
}

#[test]
fn expressions_of_any_shape_do_no_harm() {
    let long = |part: &str, times: usize| format!("self.n == 0{}", part.repeat(times));
    for rule in [
        format!("{}true{}", "(".repeat(40), ")".repeat(40)),
        format!("{}true{}", "(".repeat(5000), ")".repeat(5000)),
        format!("{}true{}", "[".repeat(5000), "]".repeat(5000)),
        long(" + 1", 13),
        long(" + 1", 60),
        long(" + 1", 240),
        nested_loops(2),
        nested_loops(3),
        nested_loops(4),
        nested_loops(9),
        nested_loops(15),
        nested_loops(20),
        long(" + 1", 5000),
        long(" || true", 1000),
        long(".a", 5000),
        format!("{}true", "!".repeat(5000)),
        format!("{}1 == 1", "-".repeat(5000)),
        format!("{}true", "true ? true : ".repeat(40)),
        format!("{}true", "true ? true : ".repeat(2000)),
        "\u{0}".to_owned(),
        "'\\".to_owned(),
        "1 / 0 == 1".to_owned(),
        "[1][5] == 1".to_owned(),
        "self.n.matches('(')".to_owned(),
        "9223372036854775807 + 1 == 0".to_owned(),
        "-9223372036854775808 / -1 == 0".to_owned(),
        "int(1e300) == 0".to_owned(),
        "'a'.substring(5) == ''".to_owned(),
        "duration('999999999999h') == duration('1s')".to_owned(),
        "timestamp('2024-01-01T00:00:00Z') + duration('9000000h') == timestamp('2024-01-01T00:00:00Z')"
            .to_owned(),
        "self.s.format([1]) == ''".to_owned(),
    ] {
        let schema = spec(
            &json!({"n": {"type": "integer"}, "s": {"type": "string"}}),
            &json!([{"rule": rule}]),
        );
        let parsed = parse(&schema).unwrap();
        // Half of what a request handler has, for the rest is taken by the request itself.
        let small = thread::Builder::new().stack_size(1024 * 1024);
        let work = move || {
            if let Ok(rules) = compile(&parsed) {
                rules.validate(&json!({"spec": {"n": 0, "s": "%d %s"}}), None);
            }
        };
        small
            .spawn(work)
            .unwrap()
            .join()
            .unwrap_or_else(|_| panic!("{rule}"));
    }
}
