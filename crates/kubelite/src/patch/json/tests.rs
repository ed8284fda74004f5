use proptest::prelude::{any, proptest};
use serde_json::json;

use super::*;

fn live() -> Value {
    json!({"a": {"b": 1, "n": null, "x/y": {"~": 2}}, "l": [1, 2, 3], "s": "text"})
}

fn patched(patch: &Value) -> Result<Value, PatchError> {
    apply(live(), patch.to_string().as_bytes())
}

#[test]
fn operations_change_the_document_as_upstream_does() {
    for (operation, pointer, expected) in [
        (r#"{"op": "add", "path": "/a/c", "value": 5}"#, "/a/c", "5"),
        (r#"{"op": "add", "path": "/a/b", "value": 5}"#, "/a/b", "5"),
        (r#"{"op": "add", "path": "/a/c"}"#, "/a/c", "null"),
        (r#"{"op": "add", "path": "/l/-", "value": 4}"#, "/l", "[1,2,3,4]"),
        (r#"{"op": "add", "path": "/l/3", "value": 4}"#, "/l", "[1,2,3,4]"),
        (r#"{"op": "add", "path": "/l/0", "value": 4}"#, "/l", "[4,1,2,3]"),
        (r#"{"op": "add", "path": "/l/-1", "value": 4}"#, "/l", "[1,2,3,4]"),
        (r#"{"op": "add", "path": "/l/-4", "value": 4}"#, "/l", "[4,1,2,3]"),
        (r#"{"op": "remove", "path": "/l/-1"}"#, "/l", "[1,2]"),
        (r#"{"op": "remove", "path": "/l/0"}"#, "/l", "[2,3]"),
        (
            r#"{"op": "remove", "path": "/a/x~1y"}"#,
            "/a",
            r#"{"b":1,"n":null}"#,
        ),
        (
            r#"{"op": "replace", "path": "/l/-2", "value": 9}"#,
            "/l",
            "[1,9,3]",
        ),
        (
            r#"{"op": "replace", "path": "/a/new", "value": 9}"#,
            "/a/new",
            "9",
        ),
        (
            r#"{"op": "replace", "path": "/a/x~1y/~0", "value": 9}"#,
            "/a/x~1y/~0",
            "9",
        ),
        (
            r#"{"op": "replace", "path": "", "value": {"z": 1}}"#,
            "",
            r#"{"z":1}"#,
        ),
        (r#"{"op": "move", "from": "/a/b", "path": "/m"}"#, "/m", "1"),
        (r#"{"op": "copy", "from": "/a/b", "path": "/m"}"#, "/m", "1"),
        (r#"{"op": "copy", "from": "/a/none", "path": "/m"}"#, "/m", "null"),
        (r#"{"op": "add", "path": "ignored/m", "value": 1}"#, "/m", "1"),
        ("", "/s", r#""text""#),
    ] {
        let result = apply(live(), format!("[{operation}]").as_bytes());
        let result = result.unwrap_or_else(|error| panic!("{operation}: {error}"));
        assert_eq!(
            result.pointer(pointer).map(Value::to_string).as_deref(),
            Some(expected),
            "{operation}"
        );
    }
    assert_eq!(apply(live(), b"null"), Ok(live()));
}

#[test]
fn operations_that_do_not_apply_are_refused() {
    for patch in [
        json!([{"op": "remove", "path": "/none"}]),
        json!([{"op": "remove", "path": "/l/3"}]),
        json!([{"op": "remove", "path": "/l/-4"}]),
        json!([{"op": "remove", "path": "/l/-"}]),
        json!([{"op": "remove", "path": ""}]),
        json!([{"op": "add", "path": "", "value": {}}]),
        json!([{"op": "add", "path": "/none/x", "value": 1}]),
        json!([{"op": "add", "path": "/s/x", "value": 1}]),
        json!([{"op": "add", "path": "/a/n/x", "value": 1}]),
        json!([{"op": "add", "path": "/l/4", "value": 1}]),
        json!([{"op": "add", "path": "/l/x", "value": 1}]),
        json!([{"op": "add", "value": 1}]),
        json!([{"op": "replace", "path": "/none/x", "value": 1}]),
        json!([{"op": "replace", "path": "/l/3", "value": 1}]),
        json!([{"op": "replace", "path": "", "value": 1}]),
        json!([{"op": "replace", "path": "", "value": []}]),
        json!([{"op": "move", "from": "/none", "path": "/m"}]),
        json!([{"op": "move", "from": "/a", "path": "/a/b"}]),
        json!([{"op": "move", "path": "/a/b"}]),
        json!([{"op": "copy", "from": "/none/x", "path": "/m"}]),
        json!([{"op": "frobnicate", "path": "/a"}]),
        json!([{"path": "/a"}]),
    ] {
        let result = patched(&patch);
        assert!(
            matches!(result, Err(PatchError::DoesNotApply(_))),
            "{patch}: {result:?}"
        );
    }
}

#[test]
fn a_test_takes_an_absent_member_for_null() {
    for (path, value, passes) in [
        ("/metadata", json!(null), true),
        ("/a/none", json!(null), true),
        ("/a/n", json!(null), true),
        ("/a/b", json!(null), false),
        ("/a", json!(null), false),
        ("/a/b", json!(1), true),
        ("/a/b", json!(1.0), false),
        ("/a/n", json!(1), false),
        ("/a/none", json!(1), false),
        ("/l", json!([1, 2, 3]), true),
        ("/l/-1", json!(3), true),
        ("/l/3", json!(null), false),
        ("/none/x", json!(null), false),
        ("", json!({}), false),
        ("", live(), true),
    ] {
        let patch = json!([{"op": "test", "path": path, "value": value}]);
        assert_eq!(patched(&patch).is_ok(), passes, "{patch}");
    }
}

#[test]
fn a_body_that_is_no_patch_is_refused_before_anything_else() {
    for (body, message) in [
        (
            "{}",
            "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            "[1]",
            "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (
            r#"[{"op": "add", "path": 5}]"#,
            "json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string",
        ),
    ] {
        let expected = PatchError::Malformed(format!("error decoding patch: {message}"));
        assert_eq!(apply(live(), body.as_bytes()), Err(expected), "{body}");
    }
    assert!(matches!(apply(live(), b"["), Err(PatchError::Malformed(_))));
}

#[test]
fn one_operation_too_many_is_refused() {
    let operation = json!({"op": "test", "path": "/s", "value": "text"});
    let most = Value::Array(vec![operation.clone(); MAX_OPERATIONS]);
    assert!(patched(&most).is_ok());
    let more = Value::Array(vec![operation; MAX_OPERATIONS + 1]);
    assert_eq!(
        patched(&more),
        Err(PatchError::TooManyOperations {
            actual: MAX_OPERATIONS + 1
        })
    );
}

#[test]
fn copies_and_moves_cannot_grow_an_object_without_bound() {
    let doubling = json!({"op": "copy", "from": "/a", "path": "/a/again"});
    assert!(patched(&Value::Array(vec![doubling; MAX_DEPTH])).is_err());
    let big = json!([
        {"op": "add", "path": "/big", "value": "x".repeat(MAX_COPIED_BYTES / 2)},
        {"op": "copy", "from": "/big", "path": "/big2"},
        {"op": "copy", "from": "/big", "path": "/big3"},
    ]);
    assert!(patched(&big).is_err());
    let mut nest = Vec::new();
    for _ in 0..MAX_DEPTH {
        nest.push(json!({"op": "add", "path": "/t", "value": {}}));
        nest.push(json!({"op": "move", "from": "/a", "path": "/t/x"}));
        nest.push(json!({"op": "move", "from": "/t", "path": "/a"}));
    }
    let error = patched(&Value::Array(nest)).expect_err("nested too deep");
    assert!(error.to_string().contains("levels deep"), "{error}");
}

#[test]
fn members_that_mean_nothing_are_reported_for_strict_validation() {
    let body = br#"[{"op": "add", "path": "/x", "value": 1, "foo": 2}]"#;
    let patch = Patch::parse(body).expect("a patch");
    assert_eq!(patch.unknown_fields(), ["json patch unknown field \"[0].foo\""]);
    assert!(patch.apply(live()).is_ok());
}

proptest! {
    #[test]
    fn no_body_makes_it_panic(body in any::<Vec<u8>>()) {
        let _ = apply(live(), &body);
    }

    #[test]
    fn no_operation_makes_it_panic(
        op in "add|remove|replace|move|copy|test|x",
        path in "(/(a|b|l|s|n|-|-?[0-9]{1,20}|x~1y|~)){0,4}",
        from in "(/(a|b|l|s|n|-|-?[0-9]{1,2}|x~1y)){0,3}",
        value in "null|1|\\{\\}|\\[\\]|\"x\"",
    ) {
        let body = format!(r#"[{{"op":"{op}","path":"{path}","from":"{from}","value":{value}}}]"#);
        let _ = apply(live(), body.as_bytes());
    }
}
