use std::{borrow::Borrow, collections::BTreeMap, sync::Arc};

use proptest::{
    prelude::{any, proptest},
    sample::select,
};
use serde_json::json;

use super::*;

fn object(members: Vec<(&str, Schema)>) -> Schema {
    let properties: BTreeMap<String, Arc<Schema>> = members
        .into_iter()
        .map(|(name, schema)| (name.to_owned(), Arc::new(schema)))
        .collect();
    Schema {
        properties,
        ..Schema::default()
    }
}

fn list(items: Schema, strategy: PatchStrategy) -> Schema {
    Schema {
        items: Some(Arc::new(items)),
        patch_strategy: strategy,
        ..Schema::default()
    }
}

fn merge_by(key: &str) -> PatchStrategy {
    PatchStrategy::Merge {
        key: Some(key.to_owned()),
        retain_keys: false,
    }
}

/// A kind with one list of each sort.
fn schema() -> Schema {
    let env = list(Schema::default(), merge_by("name"));
    let container = object(vec![("env", env)]);
    object(vec![
        ("containers", list(container, merge_by("name"))),
        ("ports", list(Schema::default(), merge_by("port"))),
        (
            "finalizers",
            list(
                Schema::default(),
                PatchStrategy::Merge {
                    key: None,
                    retain_keys: false,
                },
            ),
        ),
        ("args", list(Schema::default(), PatchStrategy::Replace)),
        (
            "strategy",
            Schema {
                patch_strategy: PatchStrategy::RetainKeys,
                ..Schema::default()
            },
        ),
    ])
}

fn patched(live: &Value, patch: &Value) -> Result<Value, PatchError> {
    apply(live.clone(), patch.to_string().as_bytes(), &schema())
}

#[track_caller]
fn check(live: impl Borrow<Value>, patch: impl Borrow<Value>, expected: Value) {
    let (live, patch) = (live.borrow(), patch.borrow());
    assert_eq!(patched(live, patch), Ok(expected), "{live} + {patch}");
}

#[test]
fn objects_merge_and_null_deletes() {
    check(
        json!({"m": {"a": 1}}),
        json!({"m": {"b": 2}}),
        json!({"m": {"a": 1, "b": 2}}),
    );
    check(
        json!({"m": {"a": 1, "b": 2}}),
        json!({"m": {"a": null}}),
        json!({"m": {"b": 2}}),
    );
    check(
        json!({}),
        json!({"m": {"a": null, "b": {"c": null}}}),
        json!({"m": {"b": {}}}),
    );
    check(
        json!({"m": 1}),
        json!({"m": {"a": [{"x": null}]}}),
        json!({"m": {"a": [{}]}}),
    );
    check(json!({"m": {"a": 1}}), json!({"m": "text"}), json!({"m": "text"}));
    check(json!({"a": 1}), json!(null), json!({"a": 1}));
}

#[test]
fn the_patch_directive_replaces_or_empties_an_object() {
    let live = json!({"m": {"a": 1, "b": 2}});
    check(
        live.clone(),
        json!({"m": {"$patch": "replace", "c": 3, "d": null}}),
        json!({"m": {"c": 3}}),
    );
    check(live.clone(), json!({"m": {"$patch": "delete"}}), json!({"m": {}}));
    check(
        live,
        json!({"n": {"$patch": "delete"}, "o": {"x": {"$patch": "replace"}}}),
        json!({"m": {"a": 1, "b": 2}, "o": {}}),
    );
}

#[test]
fn lists_merge_by_key_with_the_elements_of_the_patch_in_front() {
    let live = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]});
    check(
        live.clone(),
        json!({"containers": [{"name": "b", "image": "2"}, {"name": "c"}]}),
        json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c"}]}),
    );
    check(
        live.clone(),
        json!({"containers": [{"name": "c", "image": null}]}),
        json!({"containers": [{"name": "c"}, {"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}),
    );
    check(
        live.clone(),
        json!({"containers": [{"name": "b", "image": "2"}, {"name": "a", "image": "2"}]}),
        json!({"containers": [{"name": "b", "image": "2"}, {"name": "a", "image": "2"}]}),
    );
    check(
        live,
        json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}),
        json!({"containers": [
            {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]},
            {"name": "b", "image": "1"},
        ]}),
    );
    let nested = json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y"}]}]});
    check(
        nested,
        json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}]}]}),
        json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}, {"name": "Y"}]}]}),
    );
    check(
        json!({"ports": [{"port": 80, "p": 1}]}),
        json!({"ports": [{"port": 80, "p": 2}]}),
        json!({"ports": [{"port": 80, "p": 2}]}),
    );
}

#[test]
fn element_directives_delete_one_or_replace_all() {
    let live = json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "a"}]});
    check(
        live.clone(),
        json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "z", "$patch": "delete"}]}),
        json!({"containers": [{"name": "b"}]}),
    );
    check(
        live,
        json!({"containers": [{"name": "c", "x": null}, {"$patch": "replace"}]}),
        json!({"containers": [{"name": "c"}]}),
    );
    check(
        json!({}),
        json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "b"}]}),
        json!({"containers": [{"name": "b"}]}),
    );
}

#[test]
fn scalar_lists_merge_as_sets_unless_the_schema_says_otherwise() {
    check(
        json!({"finalizers": ["a", "b"]}),
        json!({"finalizers": ["b", "c"]}),
        json!({"finalizers": ["a", "b", "c"]}),
    );
    check(
        json!({"args": ["a", "b"]}),
        json!({"args": ["c"]}),
        json!({"args": ["c"]}),
    );
    check(
        json!({"unknown": [1, 2]}),
        json!({"unknown": [3]}),
        json!({"unknown": [3]}),
    );
    check(
        json!({"finalizers": ["a", "b", "c"]}),
        json!({"$deleteFromPrimitiveList/finalizers": ["b", "z"], "finalizers": ["d"]}),
        json!({"finalizers": ["d", "a", "c"]}),
    );
    check(
        json!({}),
        json!({"$deleteFromPrimitiveList/finalizers": ["b"]}),
        json!({}),
    );
}

#[test]
fn the_order_directive_sorts_what_the_patch_names() {
    let live = json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]});
    let order = |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
    check(
        live.clone(),
        json!({"$setElementOrder/containers": order(&["c", "a"])}),
        json!({"containers": order(&["b", "c", "a"])}),
    );
    check(
        live.clone(),
        json!({"$setElementOrder/containers": order(&["d", "a"]), "containers": [{"name": "d", "x": 1}]}),
        json!({"containers": [{"name": "d", "x": 1}, {"name": "a"}, {"name": "b"}, {"name": "c"}]}),
    );
    check(
        live.clone(),
        json!({
            "$setElementOrder/containers": order(&["a", "c"]),
            "containers": [{"name": "b", "$patch": "delete"}],
        }),
        json!({"containers": order(&["a", "c"])}),
    );
    check(
        json!({}),
        json!({"$setElementOrder/containers": order(&["b", "a"]), "containers": order(&["b", "a"])}),
        json!({"containers": order(&["b", "a"])}),
    );
    check(
        json!({}),
        json!({"$setElementOrder/containers": order(&["b"])}),
        json!({}),
    );
    check(
        json!({"containers": order(&["e", "c"])}),
        json!({
            "$setElementOrder/containers": order(&["a", "b"]),
            "containers": [{"name": "a"}, {"name": "b"}, {"name": "c", "$patch": "delete"}],
        }),
        json!({"containers": order(&["e", "a", "b"])}),
    );
    check(
        json!({"finalizers": ["a", "b", "c"]}),
        json!({"$setElementOrder/finalizers": ["c", "x", "a"], "finalizers": ["x"]}),
        json!({"finalizers": ["b", "c", "x", "a"]}),
    );
    check(
        json!({"finalizers": []}),
        json!({"$setElementOrder/finalizers": ["a"]}),
        json!({"finalizers": []}),
    );
}

#[test]
fn retain_keys_clears_the_members_it_does_not_name() {
    check(
        json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}),
        json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}),
        json!({"strategy": {"type": "Recreate"}}),
    );
    check(
        json!({"strategy": {"a": 1, "b": 2}}),
        json!({"strategy": {"$retainKeys": ["a"], "b": null}}),
        json!({"strategy": {"a": 1}}),
    );
}

#[test]
fn wrong_patches_are_named_as_kubernetes_names_them() {
    let live = json!({
        "containers": [{"name": "a"}], "finalizers": ["a"], "strategy": {"a": 1}, "m": {"x": 1}, "lists": [[1]],
    });
    for (patch, message) in [
        (
            json!({"m": {"$patch": "merge", "a": 1}}),
            "unknown patch type: merge in map: map[$patch:merge a:1]",
        ),
        (
            json!({"$patch": "x"}),
            "unknown patch type: x in map: map[$patch:x]",
        ),
        (
            json!({"containers": [{"name": "a", "$patch": "x"}]}),
            "unknown patch type: x in map: map[$patch:x name:a]",
        ),
        (
            json!({"containers": [{"name": "a", "$patch": "merge"}]}),
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"containers": [{"image": "nginx", "tty": true}]}),
            "map: map[image:nginx tty:true] does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"$patch": "delete"}]}),
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            json!({"$deleteFromPrimitiveList": ["a"]}),
            "invalid patch format of primitive list",
        ),
        (
            json!({"$setElementOrder": ["a"]}),
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"strategy": {"$retainKeys": "a"}}),
            "invalid patch format of retainKeys",
        ),
        (
            json!({"strategy": {"$retainKeys": ["a"], "b": 1}}),
            "invalid patch format of retainKeys",
        ),
        (
            json!({"$setElementOrder/finalizers": "a"}),
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"finalizers": [1]}),
            "list element types are not identical: [[a] [1]]",
        ),
        (
            json!({"$setElementOrder/finalizers": ["b"], "finalizers": ["c"]}),
            "The order in patch list:\n[c]\n doesn't match $setElementOrder list:\n[b]\n",
        ),
    ] {
        let expected = PatchError::Malformed(message.to_owned());
        assert_eq!(patched(&live, &patch), Err(expected), "{patch}");
    }
    let lists = patched(&json!({"finalizers": [["a"]]}), &json!({"finalizers": [["b"]]}));
    assert_eq!(
        lists,
        Err(PatchError::DoesNotApply(
            "lists of lists are not supported".to_owned()
        ))
    );
    let body = apply(live, b"[]", &schema());
    let message = "json: cannot unmarshal array into Go value of type map[string]interface {}";
    assert_eq!(body, Err(PatchError::Malformed(message.to_owned())));
}

const LEFT: &[&str] = &[
    "[]",
    r#"["a","b"]"#,
    r#"[{"name":"a"},{"name":1}]"#,
    r#"{"$patch":"delete"}"#,
    "null",
    "1",
    "[null]",
];
const RIGHT: &[&str] = &[
    "[]",
    r#"["b"]"#,
    r#"[{"name":"b","$patch":"delete"}]"#,
    "[{}]",
    "[[]]",
    r#"{"$patch":1}"#,
    "null",
];

proptest! {
    #[test]
    fn no_body_makes_it_panic(body in any::<Vec<u8>>()) {
        let _ = apply(json!({"containers": []}), &body, &schema());
    }

    #[test]
    fn no_mix_of_directives_makes_it_panic(
        name in "containers|finalizers|args|strategy",
        directive in "|\\$setElementOrder/|\\$deleteFromPrimitiveList/|\\$setElementOrder|\\$retainKeys",
        left in select(LEFT),
        right in select(RIGHT),
    ) {
        let live = json!({
            "containers": [{"name": "a"}, {"name": "b"}], "finalizers": ["b"], "args": [], "strategy": {"a": 1},
        });
        let body = format!(r#"{{"{name}":{left},"{directive}{name}":{right}}}"#);
        let _ = apply(live.clone(), body.as_bytes(), &schema());
        let body = format!(r#"{{"{directive}{name}":{left}}}"#);
        let _ = apply(live, body.as_bytes(), &schema());
    }
}
