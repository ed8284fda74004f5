//! Random schemas, random objects: nothing panics, and what must hold of every write does.

use proptest::{collection::vec, option, prelude::*};
use serde_json::{Map, Value, json};

use super::{
    super::{
        manager,
        path::same_value,
        shape::Shape,
        typed::{compare, to_set},
    },
    harness::{Server, Step, schema},
};

/// Few names and values, so that objects have something in common.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "k", "metadata", "labels", "finalizers", "status"])
        .prop_map(str::to_owned)
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3i64).prop_map(Value::from),
        Just(json!(1.5)),
        prop::sample::select(vec!["", "x", "y", "<&>"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((name(), inner), 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!({}),
        json!({"type": "string"}),
        json!({"type": "integer"}),
        json!({"type": "boolean"}),
        json!({"type": "object"}),
        json!({"type": "string", "format": "date-time"}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
    ]);
    leaf.prop_recursive(3, 16, 4, |inner| {
        let properties = vec((name(), inner.clone()), 0..4)
            .prop_map(|members| members.into_iter().collect::<Map<String, Value>>());
        let flags = prop::sample::select(vec![
            json!({}),
            json!({"x-kubernetes-map-type": "atomic"}),
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"x-kubernetes-embedded-resource": true}),
        ]);
        let list_type = prop::sample::select(vec![
            json!({}),
            json!({"x-kubernetes-list-type": "set"}),
            json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
            json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "a"]}),
            json!({"x-kubernetes-list-type": "map"}),
        ]);
        prop_oneof![
            (properties, option::of(inner.clone()), flags).prop_map(|(properties, others, flags)| {
                let mut schema = json!({"type": "object", "properties": properties});
                let members = schema.as_object_mut().expect("an object");
                members.extend(others.map(|others| ("additionalProperties".to_owned(), others)));
                members.extend(flags.as_object().cloned().unwrap_or_default());
                schema
            }),
            (inner, list_type).prop_map(|(items, list_type)| {
                let mut schema = list_type;
                schema["type"] = json!("array");
                schema["items"] = items;
                schema
            }),
        ]
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let body =
        vec((name(), any_json()), 0..5).prop_map(|members| Value::Object(members.into_iter().collect()));
    let by = prop::sample::select(vec!["a", "b", "c"]);
    (by, body, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(by, body, is_apply, force, status)| {
        Step {
            by: by.to_owned(),
            body,
            is_apply,
            force,
            subresource: if status { "status" } else { "" },
        }
    })
}

/// Whether an empty map or list that is applied has become null. Kubernetes 1.35 leaves null where one has lost its last item,
/// and the next apply of the same puts the empty one there, which is a change.
fn has_lost(applied: &Value, live: &Value) -> bool {
    match (applied, live) {
        (Value::Object(members), Value::Null) => members.is_empty(),
        (Value::Array(items), Value::Null) => items.is_empty(),
        (Value::Object(members), Value::Object(live)) => members
            .iter()
            .any(|(name, value)| live.get(name).is_some_and(|live| has_lost(value, live))),
        (Value::Array(items), Value::Array(live)) => items
            .iter()
            .any(|item| live.iter().any(|live| has_lost(item, live))),
        _ => false,
    }
}

fn history() -> impl Strategy<Value = (Value, bool, Vec<Step>)> {
    (any_schema(), any::<bool>(), vec(any_step(), 1..6))
}

proptest! {
    #[test]
    fn writes_never_panic_and_what_they_store_can_be_read(
        (openapi, has_status, steps) in history(),
        managed in option::of(any_json()),
    ) {
        let mut server = Server::new(schema(&openapi), has_status);
        for mut step in steps {
            if let (Some(managed), Some(metadata)) = (&managed, step.body["metadata"].as_object_mut()) {
                metadata.insert("managedFields".to_owned(), managed.clone());
            }
            if server.write(&step).is_ok() {
                let managed = Value::from(server.managed());
                prop_assert!(manager::decode(&managed).is_some(), "{managed}");
            }
        }
    }

    #[test]
    fn applying_the_same_twice_changes_nothing((openapi, has_status, steps) in history()) {
        let mut server = Server::new(schema(&openapi), has_status);
        for step in steps {
            if server.write(&step).is_ok() && step.is_apply {
                let once = server.live.clone();
                // Who applies nothing but empty lists owns nothing, and where nobody owns anything, Kubernetes too takes the
                // next apply for the first.
                if once.as_ref().is_some_and(|live| has_lost(&step.body, live)) || server.managed().is_empty() {
                    break;
                }
                prop_assert!(server.write(&step).is_ok());
                prop_assert_eq!(&server.live, &once);
            }
        }
    }

    #[test]
    fn an_object_differs_from_nothing_in_all_it_sets_and_from_itself_in_nothing(
        openapi in any_schema(),
        object in any_json(),
    ) {
        let schema = schema(&openapi);
        let (shape, nothing) = (Shape::of_object(&schema), json!({}));
        let same = compare(shape, &object, &object);
        prop_assert!(same.added.is_empty() && same.removed.is_empty() && same.modified.is_empty());
        let mut missing = to_set(shape, &object);
        missing.subtract(&compare(shape, &nothing, &object).added);
        prop_assert!(missing.is_empty(), "{:?}", missing.all_paths());
    }

    #[test]
    fn the_order_of_values_is_total(left in any_json(), right in any_json(), third in any_json()) {
        use super::super::path::compare_values;
        prop_assert_eq!(compare_values(&left, &right), compare_values(&right, &left).reverse());
        prop_assert_eq!(same_value(&left, &right), compare_values(&left, &right).is_eq());
        let mut sorted = [&left, &right, &third];
        sorted.sort_by(|left, right| compare_values(left, right));
        prop_assert!(compare_values(sorted[0], sorted[2]).is_le());
    }
}
