//! What expressions mean, and which are refused.

use serde_json::json;

use super::{
    compile_at,
    tests::{messages, rules_of, spec},
};
use crate::{field::FieldPath, schema::parse::parse};

fn properties() -> serde_json::Value {
    let text = json!({"type": "string", "maxLength": 100});
    json!({
        "n": {"type": "integer"},
        "s": text,
        "free": {"x-kubernetes-int-or-string": true},
        "l": {"type": "array", "maxItems": 100, "items": {"type": "integer"}},
        "texts": {"type": "array", "maxItems": 100, "items": text},
        "map": {"type": "object", "maxProperties": 10, "additionalProperties": {"type": "integer"}},
    })
}

#[test]
fn expressions_mean_what_they_mean_in_kubernetes() {
    let object = json!({"spec": {"n": 3, "s": "päth", "free": "x", "l": [1, 2, 3], "texts": ["b", "a", "b"],
        "map": {"a": 1, "b": 2}}});
    for rule in [
        "!!true",
        "!!!!true",
        "!!!false",
        "! !true",
        "!(!(true))",
        "--1 == 1",
        "- -1 == 1",
        "---1 == -1",
        "-(-1) == 1",
        "self.n - -1 == 4",
        "self.n--1 == 4",
        "--self.n == 3",
        "self.l.all(x, !!(x > 0))",
        "'--' != '- -' && '!!'.size() == 2",
        "self.s != 'existsOne(x, y)'",
        "dyn(self.n) == 3",
        "dyn(self.l).all(x, dyn(x) > 0)",
        "self.s.size() == 4",
        "size(self.s) == 4",
        r"self.s.matches('^p.th$') && !self.s.matches('^\\w+$')",
        "self.texts.all(t, t.matches(t))",
        "self.s.find('[a-o]') == 'h'",
        "self.texts.join('-').findAll('b') == ['b', 'b']",
        "self.texts.join('-').findAll('b', 1) == ['b']",
        "self.texts.join() == 'bab'",
        "self.s.replace('t', 'T') == 'päTh'",
        "'aaa'.replace('a', 'b', 2) == 'bba'",
        "self.l.reverse() == [3, 2, 1]",
        "lists.range(3) == [0, 1, 2]",
        "'%.2f|%s|%d'.format([1.5, self.s, self.n]) == '1.50|päth|3'",
        "self.l.map(x, x * 2) == [2, 4, 6]",
        "self.l.map(x, x > 1, x * 2) == [4, 6]",
        "self.l.filter(x, x != 2) == [1, 3]",
        "self.map.filter(k, self.map[k] > 1) == ['b']",
        "self.map.map(k, k).sort() == ['a', 'b']",
        "self.l.exists(x, x == self.n) && self.l.exists_one(x, x == 1)",
        "self.texts.distinct() == ['b', 'a'] && sets.equivalent(self.l, [3, 2, 1])",
        "sets.contains(self.l, [1]) && sets.intersects(self.l, [1, 9])",
        "[quantity('1k'), quantity('2k')].all(q, q.isLessThan(quantity('3k')))",
        "[semver('1.2.3')].map(v, v.major()) == [1]",
        "[optional.of(1), optional.none()].map(o, o.orValue(7)) == [1, 7]",
        "self.l.all(ip, ip < 4) && ip.isCanonical('127.0.0.1') && isIP('::1')",
        "self.l.map(x, [[x]]).map(p, p[0][0]) == self.l",
        "self.l.map(x, {'k': x}).all(e, e.k in self.l)",
        "has(self.s) && [1].exists(x, has(self.s)) && ![1].exists(x, has(self.map.zzz))",
        "self.l.all(x, x > 0 || self.map.zzz == 1)",
        "self.l.all(x, x in [1, 2, 3] ? true : false)",
        "format.dns1123Label().validate('UPPER').hasValue()",
    ] {
        let rules = rules_of(&spec(&properties(), &json!([{"rule": rule}])));
        let errors = messages(&rules.validate(&object, None));
        assert_eq!(errors, Vec::<String>::new(), "{rule}");
        let opposite = format!("!({rule})");
        let rules = rules_of(&spec(&properties(), &json!([{"rule": opposite}])));
        assert_eq!(rules.validate(&object, None).len(), 1, "{opposite}");
    }
}

#[test]
fn what_cannot_be_evaluated_is_refused_by_name() {
    let table = [
        ("type(self.free) == int", "'type' is not supported by this server"),
        (
            "self.l.sortBy(x, x) == self.l",
            "'sortBy' is not supported by this server",
        ),
        ("self.l.all(i, x, x > i)", "'all' is not supported by this server"),
        (
            "self.l.exists(i, x, x > i)",
            "'exists' is not supported by this server",
        ),
        (
            "self.l.transformList(i, x, x) == self.l",
            "'transformList' is not supported by this server",
        ),
        ("bool('true')", "'bool' is not supported by this server"),
        (
            "optional.of(self.n).optMap(x, x).hasValue()",
            "'optMap' is not supported by this server",
        ),
        (
            "cel.bind(x, self.n, x > 0)",
            "undeclared reference to 'bind' (in container '')",
        ),
        (
            "math.greatest(self.n, 1) == 1",
            "undeclared reference to 'greatest' (in container '')",
        ),
        (
            "math.abs(self.n) == 1",
            "undeclared reference to 'abs' (in container '')",
        ),
        (
            "base64.decode(self.s) == b'x'",
            "undeclared reference to 'decode' (in container '')",
        ),
        (
            "some_function(self.n)",
            "undeclared reference to 'some_function' (in container '')",
        ),
        ("self.n == int", "undeclared reference to 'int' (in container '')"),
        (
            "self.n == math",
            "undeclared reference to 'math' (in container '')",
        ),
        (
            "'abc'.reverse() == 'cba'",
            "found no matching overload for 'reverse' applied to 'string.()'",
        ),
        (
            "self.s.reverse() == self.s",
            "found no matching overload for 'reverse' applied to 'string.()'",
        ),
        (
            "self.texts.map(t, t.reverse()) == self.texts",
            "found no matching overload for 'reverse' applied to 'string.()'",
        ),
        (
            "self.l.existsOne(x, x == 1)",
            "undeclared reference to 'existsOne' (in container '')",
        ),
        ("self.s.matches('(')", "invalid matches argument"),
        ("matches(self.s, '(')", "invalid matches argument"),
        ("self.s.find('[') == ''", "invalid find argument"),
    ];
    for (rule, expected) in table {
        let schema = parse(&spec(&properties(), &json!([{"rule": rule}]))).unwrap();
        let errors = compile_at(&schema, &FieldPath::root()).expect_err(rule);
        assert_eq!(
            errors[0].path.as_str(),
            "properties[spec].x-kubernetes-validations[0].rule"
        );
        assert!(errors[0].detail.contains(expected), "{rule}: {}", errors[0]);
    }
}

#[test]
fn errors_point_into_the_text_as_it_was_written() {
    let schema = parse(&spec(&properties(), &json!([{"rule": "!!self.missing"}]))).unwrap();
    let errors = compile_at(&schema, &FieldPath::root()).expect_err("refused");
    assert_eq!(
        errors[0].detail,
        "compilation failed: ERROR: <input>:1:7: undefined field 'missing'\n | !!self.missing\n | ......^"
    );
}
