//! What rules may cost, when they are defined and when they run.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{
    compile_at, meter,
    tests::{messages, rules_of, spec},
};
use crate::{field::FieldPath, schema::parse::parse};

const CUBIC: &str = "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))";

const ADVICE: &str = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, \
                      and strings are declared)";

fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn bounded(items: &Value, most: u64) -> Value {
    json!({"type": "array", "maxItems": most, "items": items})
}

fn verdict(properties: &Value, rule: &str) -> Vec<String> {
    let schema = parse(&spec(properties, &json!([{"rule": rule}]))).unwrap();
    compile_at(&schema, &FieldPath::root())
        .err()
        .map_or_else(Vec::new, |errors| messages(&errors))
}

#[test]
fn a_rule_that_may_cost_too_much_is_refused_with_the_definition() {
    let integer = json!({"type": "integer"});
    let text = json!({"type": "string"});
    let table = [
        (list(&integer), CUBIC, "more than 100x"),
        (
            list(&integer),
            "self.l.all(a, self.l.exists(b, a < b))",
            "more than 100x",
        ),
        (bounded(&integer, 300), CUBIC, "24.4x"),
        (
            list(&text),
            "self.l.all(a, a.matches('^[a-z]+$'))",
            "more than 100x",
        ),
        (list(&text), "sets.equivalent(self.l, self.l)", "more than 100x"),
        (list(&integer), "self.l.distinct() == self.l", "more than 100x"),
        (bounded(&integer, 5000), "self.l.distinct() == self.l", "5.0x"),
        (list(&integer), "self.l.map(x, x + 1).size() > 0", "2.2x"),
        (list(&integer), "self.l.filter(x, x > 1).size() > 0", "2.4x"),
        (list(&text), "self.l.all(a, a.contains('x'))", "more than 100x"),
        (
            bounded(&text, 1000),
            "self.l.all(x, x.matches('[a-z]+'))",
            "62.9x",
        ),
        (
            bounded(&text, 1000),
            "self.l.all(x, x.lowerAscii() == x)",
            "62.9x",
        ),
    ];
    for (list, rule, factor) in table {
        let errors = verdict(&json!({"l": list}), rule);
        assert_eq!(
            errors.first().map(String::as_str),
            Some(
                format!(
                    "properties[spec].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by \
                     factor of {factor} {ADVICE}"
                )
                .as_str()
            ),
            "{rule}"
        );
    }
}

#[test]
fn ordinary_rules_are_accepted() {
    let integer = json!({"type": "integer"});
    let text = json!({"type": "string", "maxLength": 64});
    let object = json!({"type": "object", "properties": {"name": text, "ports": bounded(&integer, 50)}});
    let map = json!({"type": "object", "maxProperties": 100, "additionalProperties": text});
    let properties = json!({"open": list(&integer), "n": integer, "ns": bounded(&integer, 1000), "s": {"type": "string"},
        "texts": bounded(&text, 500), "objects": bounded(&object, 100), "map": map});
    for rule in [
        "self.open.all(x, x > 0)",
        "self.open.exists(x, x == 1)",
        "self.ns.all(x, x >= self.n)",
        "self.ns.map(x, x + 1).filter(x, x > 3).size() > 2",
        "self.texts.all(t, t.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))",
        "self.texts.exists(t, t.startsWith('a') && t.contains('b'))",
        "self.objects.all(o, o.ports.all(p, p > 0 && p < 65536))",
        "self.objects.all(a, self.objects.exists_one(b, a.name == b.name))",
        "self.map.all(k, self.map[k] != '')",
        "self.s.matches('^[a-z]+$') && self.s.size() < 20",
        "self.ns.isSorted() && self.ns.sum() < 10",
        "self.ns.all(a, self.ns.exists(b, b == a + 1))",
    ] {
        assert_eq!(verdict(&properties, rule), Vec::<String>::new(), "{rule}");
    }
}

/// Kubernetes 1.35.8 accepts these too.
#[test]
fn cheap_rules_need_no_bounds() {
    let text = json!({"type": "string"});
    let short = json!({"type": "string", "maxLength": 64});
    let integer = json!({"type": "integer"});
    let table = [
        (list(&text), "self.l.all(a, a != 'x')"),
        (list(&text), "self.l.all(a, a.size() < 4)"),
        (list(&text), "self.l.exists(a, a.startsWith('x'))"),
        (list(&text), "'a' in self.l"),
        (list(&text), "self.l == oldSelf.l"),
        (list(&integer), "self.l[0] > 0"),
        (list(&integer), "self.l.reverse() == self.l"),
        (list(&integer), "self.l.slice(0, 1) == self.l"),
        (bounded(&short, 100), "self.l.all(a, self.l.exists(b, a == b))"),
        (
            bounded(&short, 100),
            "self.l.map(x, x.split('-')).all(p, p.size() < 3)",
        ),
        (
            bounded(&short, 100),
            "self.l.all(x, x.split('-').all(p, p.size() < 3))",
        ),
        (bounded(&short, 1000), "sets.equivalent(self.l, self.l)"),
        (bounded(&text, 10), "self.l.all(x, x.replace('a', 'b') == x)"),
        (bounded(&text, 10), "self.l.all(x, x.find('[a-z]') == x)"),
        (bounded(&text, 10), "self.l.all(x, x.indexOf('a') == 1)"),
        (bounded(&text, 10), "self.l.all(x, string(x) == 'a')"),
        (
            bounded(&text, 10),
            "self.l.all(x, isURL(x) && url(x).getHost() == 'a')",
        ),
    ];
    for (list, rule) in table {
        assert_eq!(verdict(&json!({"l": list}), rule), Vec::<String>::new(), "{rule}");
    }
}

#[test]
fn a_rule_below_a_list_costs_as_often_as_it_can_run() {
    let item = json!({"type": "string", "maxLength": 1000,
        "x-kubernetes-validations": [{"rule": "self.matches('^[a-z]{10}[0-9]{5}$')"}]});
    let refused = |most: Value| {
        let mut list = json!({"type": "array", "items": item});
        list["maxItems"] = most;
        let schema = parse(&json!({"type": "object", "properties": {"l": list}})).unwrap();
        compile_at(&schema, &FieldPath::root()).is_err()
    };
    assert!(!refused(json!(1000)));
    assert!(refused(json!(10_000)));
    assert!(refused(Value::Null));
}

#[test]
fn rules_that_are_too_costly_together_are_refused() {
    let costly = json!({"rule": "self.ns.all(a, self.ns.exists(b, b == a + 1))"});
    let properties = json!({"ns": bounded(&json!({"type": "integer"}), 1000)});
    let schema = parse(&spec(&properties, &json!(vec![costly; 20]))).unwrap();
    let errors = messages(&compile_at(&schema, &FieldPath::new("schema")).expect_err("refused"));
    assert_eq!(errors.len(), 5, "{errors:?}");
    assert_eq!(
        errors[0],
        "schema.properties[spec].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total \
         exceeding cost limit for entire OpenAPIv3 schema"
    );
    assert!(
        errors[4].starts_with(
            "schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds \
             budget by factor of 1."
        ),
        "{}",
        errors[4]
    );
}

#[test]
fn the_rules_of_the_chart_are_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/agents/crds");
    let mut with_rules = 0;
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let definition: Value = serde_saphyr::from_str(&text).unwrap();
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let schema = parse(&version["schema"]["openAPIV3Schema"]).unwrap();
            let rules = compile_at(&schema, &FieldPath::root()).unwrap_or_else(|errors| {
                panic!("{}: {:?}", definition["metadata"]["name"], messages(&errors))
            });
            // They run on every write, so they must not need a thread of their own.
            assert!(!rules.is_deep, "{}", definition["metadata"]["name"]);
            with_rules += usize::from(!rules.is_empty());
        }
    }
    assert!(with_rules >= 3, "{with_rules}");
}

/// The schema claims a bound that lets the rule pass, and the object does not keep it: rules run in some places before
/// bounds are enforced, and estimates may be too low.
fn run(rule: &str, object: &Value) -> Vec<String> {
    let integer = json!({"type": "integer"});
    let text = json!({"type": "string", "maxLength": 10});
    let properties =
        json!({"l": bounded(&integer, 10), "texts": bounded(&text, 10), "s": text, "n": integer});
    let rules = rules_of(&spec(&properties, &json!([{"rule": rule, "message": "no"}])));
    messages(&rules.validate(&json!({"spec": object}), None))
}

const STOPPED: &str = "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further \
                       validation rules will be run due to call cost exceeds limit for rule: no";

/// Without a bound none of these ends in a day, or the memory ends first.
#[test]
fn evaluation_stops_when_it_costs_too_much() {
    let numbers: Vec<usize> = (0..3000).collect();
    let texts: Vec<String> = numbers.iter().map(|number| format!("text {number}")).collect();
    let long = "x".repeat(300_000);
    let object = json!({"l": numbers, "texts": texts, "s": long, "n": 2_000_000_000});
    let doubled = |part: &str| format!("[self.l]{}.size() == 1", part.repeat(40));
    for rule in [
        CUBIC.to_owned(),
        "!self.l.exists(a, self.l.exists(b, self.l.exists(c, a + b + c < 0)))".to_owned(),
        "self.l.all(a, self.l.all(b, a + b >= 0) || true)".to_owned(),
        "self.l.map(a, self.l.map(b, self.l)).size() > 0".to_owned(),
        "self.l.all(a, self.l.filter(b, b > a).size() >= 0)".to_owned(),
        "self.l.all(a, a in self.l && self.l == self.l)".to_owned(),
        "self.l.distinct().size() > 0".to_owned(),
        "sets.equivalent(self.texts, self.texts)".to_owned(),
        "self.texts.all(p, self.s.contains(p) || true)".to_owned(),
        "self.texts.all(p, self.s.matches(p) || true)".to_owned(),
        "self.s.replace('', self.s).size() > 0".to_owned(),
        "self.texts.join(self.s).size() > 0".to_owned(),
        "lists.range(self.n).size() > 0".to_owned(),
        doubled(".map(x, x + x)"),
        doubled(".map(x, [x, x])"),
        doubled(".map(x, {'a': x, 'b': x})"),
    ] {
        assert_eq!(run(&rule, &object), [STOPPED], "{rule}");
    }
}

#[test]
fn precision_has_a_bound() {
    let object = json!({"s": "%.2000000000f"});
    let errors = run("self.s.format([1.0]) == ''", &object);
    assert!(
        errors[0].contains("precision in format string is too large"),
        "{errors:?}"
    );
}

#[test]
fn linear_rules_over_long_lists_run_to_their_end() {
    let numbers: Vec<usize> = (0..20_000).collect();
    let object = json!({"l": numbers, "texts": [], "n": 20_000});
    for rule in [
        "self.l.all(x, x < self.n)",
        "self.l.map(x, x + 1).size() == 20000",
        "self.l.filter(x, x > 10).size() == 19989",
        "self.l == self.l",
        "self.l.sum() > 5",
    ] {
        assert_eq!(run(rule, &object), Vec::<String>::new(), "{rule}");
    }
}

#[test]
fn all_rules_of_an_object_share_a_budget() {
    let numbers: Vec<usize> = (0..250).collect();
    let costly = json!({"type": "array", "maxItems": 10, "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, a + b >= 0))"}]});
    let schema = json!({"type": "object", "properties": {"lists": bounded(&costly, 10)}});
    let rules = rules_of(&schema);
    let few = json!({"lists": vec![numbers.clone(); 2]});
    assert_eq!(messages(&rules.validate(&few, None)), Vec::<String>::new());
    let many = json!({"lists": vec![numbers; 60]});
    let errors = messages(&rules.validate(&many, None));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].ends_with(
            "Invalid value: \"array\": validation failed due to running out of cost budget, no further validation rules \
             will be run"
        ),
        "{errors:?}"
    );
}

#[test]
fn plain_comparisons_of_large_values_are_counted_too() {
    let numbers: Vec<usize> = (0..100_000).collect();
    let rule = vec!["self.l == self.l"; 100].join(" && ");
    assert_eq!(run(&rule, &json!({"l": numbers})), [STOPPED]);
}

#[test]
fn messages_are_within_the_budget() {
    let numbers: Vec<usize> = (0..3000).collect();
    let properties = json!({"l": bounded(&json!({"type": "integer"}), 10)});
    let expression = "string(self.l.map(a, self.l.map(b, a + b).size()).size())";
    let rules = rules_of(&spec(
        &properties,
        &json!([{"rule": "self.l.size() == 0", "messageExpression": expression}]),
    ));
    let errors = messages(&rules.validate(&json!({"spec": {"l": numbers}}), None));
    assert_eq!(
        errors,
        [format!(
            "spec: Invalid value: \"object\": no further validation rules will be run due to call cost exceeds limit for \
             messageExpression: \"{expression}\""
        )]
    );
    let few = json!({"spec": {"l": [1]}});
    assert_eq!(messages(&rules.validate(&few, None)), ["spec: Invalid value: 1"]);
}

#[test]
fn nested_loops_of_literals_are_estimated() {
    let digits: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let mut rule = "true".to_owned();
    for depth in 0..5 {
        rule = format!("[{}].all(x{depth}, {rule})", digits.join(", "));
    }
    let errors = verdict(&json!({}), &rule);
    assert!(errors[0].contains("more than 100x"), "{errors:?}");
    const { assert!(meter::PER_EXPRESSION < meter::PER_OBJECT) };
}
