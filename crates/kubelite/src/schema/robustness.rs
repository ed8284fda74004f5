//! Any schema that parses and any value: no walk may panic, and pruning and defaulting settle at once.

use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use serde_json::{Map, Value, json};

use crate::{
    defects::Defects,
    field::FieldPath,
    schema::{
        check_custom_resource, default::default_in_place, meta, parse::parse, prune::prune, rules,
        structural, validate,
    },
};

const NAMES: [&str; 5] = ["a", "b", "metadata", "spec", "k"];

fn name() -> impl Strategy<Value = String> {
    proptest::sample::select(&NAMES[..]).prop_map(str::to_owned)
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c\u{e9}\u{0}.%/-]{0,6}".prop_map(Value::from),
        Just(json!("2024-01-01T00:00:00Z")),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(name(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn keyword() -> impl Strategy<Value = (String, Value)> {
    let flags = [
        "nullable",
        "uniqueItems",
        "exclusiveMinimum",
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
    ];
    let sizes = [
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
    ];
    let formats = [
        "date",
        "date-time",
        "duration",
        "byte",
        "uri",
        "email",
        "hostname",
        "ipv4",
        "cidr",
        "mac",
        "uuid",
        "isbn",
        "creditcard",
        "rgbcolor",
        "int32",
    ];
    let rules = [
        "self == oldSelf",
        "self.a > 1",
        "size(self) < 2",
        "self.b.all(x, x == self.a)",
        "has(self.k)",
        "self.a / self.b == 0",
    ];
    prop_oneof![
        proptest::sample::select(&["object", "array", "string", "integer", "number", "boolean"][..])
            .prop_map(|type_| ("type".to_owned(), json!(type_))),
        proptest::sample::select(flags.to_vec()).prop_map(|name| (name.to_owned(), json!(true))),
        (proptest::sample::select(sizes.to_vec()), -1..4_i64)
            .prop_map(|(name, size)| (name.to_owned(), json!(size))),
        proptest::sample::select(formats.to_vec()).prop_map(|format| ("format".to_owned(), json!(format))),
        any::<f64>().prop_map(|number| ("minimum".to_owned(), json!(number))),
        any::<i32>().prop_map(|number| ("multipleOf".to_owned(), json!(number))),
        proptest::sample::select(&["^a+$", "\\d", "[^]x]"][..])
            .prop_map(|regex| ("pattern".to_owned(), json!(regex))),
        proptest::collection::vec(scalar(), 1..3).prop_map(|values| ("enum".to_owned(), Value::from(values))),
        proptest::collection::vec(name(), 0..2).prop_map(|names| ("required".to_owned(), json!(names))),
        value().prop_map(|value| ("default".to_owned(), value)),
        proptest::sample::select(rules.to_vec())
            .prop_map(|rule| ("x-kubernetes-validations".to_owned(), json!([{"rule": rule}]))),
        proptest::sample::select(&["atomic", "set", "map"][..])
            .prop_map(|kind| ("x-kubernetes-list-type".to_owned(), json!(kind))),
        proptest::collection::vec(name(), 0..3)
            .prop_map(|names| ("x-kubernetes-list-map-keys".to_owned(), json!(names))),
    ]
}

fn object(keywords: Vec<(String, Value)>) -> Value {
    Value::Object(keywords.into_iter().collect::<Map<String, Value>>())
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = proptest::collection::vec(keyword(), 0..4).prop_map(object);
    leaf.prop_recursive(3, 16, 3, |inner| {
        let nested = prop_oneof![
            proptest::collection::btree_map(name(), inner.clone(), 0..4)
                .prop_map(|properties| ("properties".to_owned(), json!(properties))),
            inner.clone().prop_map(|shape| ("items".to_owned(), shape)),
            inner
                .clone()
                .prop_map(|shape| ("additionalProperties".to_owned(), shape)),
            any::<bool>().prop_map(|any| ("additionalProperties".to_owned(), json!(any))),
            inner.clone().prop_map(|shape| ("not".to_owned(), shape)),
            (
                proptest::sample::select(&["allOf", "anyOf", "oneOf"][..]),
                proptest::collection::vec(inner, 1..3)
            )
                .prop_map(|(name, shapes)| (name.to_owned(), Value::from(shapes))),
        ];
        (
            proptest::collection::vec(keyword(), 0..3),
            proptest::collection::vec(nested, 1..3),
        )
            .prop_map(|(keywords, nested)| object(keywords.into_iter().chain(nested).collect()))
    })
}

proptest! {
    #[test]
    fn walks_never_panic_and_settle(schema in schema(), new in value(), old in value()) {
        let path = FieldPath::new("schema");
        structural::check(&schema, true, &path);
        let Ok(schema) = parse(&schema) else { return Ok(()) };

        let mut pruned = new.clone();
        let mut report = Vec::new();
        prune(&mut pruned, &schema, true, Some(&mut report));
        let mut again = pruned.clone();
        let mut nothing = Vec::new();
        prune(&mut again, &schema, true, Some(&mut nothing));
        assert_eq!(again, pruned);
        assert_eq!(nothing, Vec::<String>::new());
        assert_eq!(report.is_empty(), pruned == new, "something is reported exactly if something went");

        let mut defaulted = new.clone();
        default_in_place(&mut defaulted, &schema);
        let mut again = defaulted.clone();
        default_in_place(&mut again, &schema);
        assert_eq!(again, defaulted);

        validate::validate(&new, &schema, &path);
        let unchanged = validate::validate_update(&new, Some(&new), &schema, &path);
        assert!(unchanged.len() <= validate::validate(&new, &schema, &path).len());
        let rules = rules::compile(&schema).unwrap_or_default();
        check_custom_resource(&new, Some(&old), &schema, &rules, Vec::new(), Defects::default());
        check_custom_resource(&new, None, &schema, &rules, Vec::new(), Defects::default());
        rules.validate(&new, Some(&old));
    }

    #[test]
    fn metadata_of_any_shape_is_survived(new in value(), old in value()) {
        let path = FieldPath::new("metadata");
        meta::check_object_meta(&new, crate::names::NameRule::Subdomain, true, &path);
        meta::check_object_meta_update(&new, &old, &path);
        let mut coerced = new;
        if meta::coerce_object_meta(&mut coerced, None).is_ok() {
            let mut again = coerced.clone();
            let mut unknown = Vec::new();
            assert_eq!(meta::coerce_object_meta(&mut again, Some(&mut unknown)), Ok(()));
            assert_eq!((again, unknown), (coerced, Vec::new()));
        }
    }
}
