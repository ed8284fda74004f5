use proptest::prelude::{any, proptest};
use serde_json::json;

use super::*;

fn object() -> Value {
    json!({
        "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "x", "a-b": "y"}},
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "n": 1, "f": 1.5, "b": true},
                {"type": "Other)", "status": "False", "n": 2, "f": 2.5, "b": false},
            ],
            "list": [1, 2, 3, 4],
            "empty": [],
            "null": null,
        },
    })
}

#[test]
fn paths_select_what_they_name() {
    for (path, expected) in [
        (".metadata.name", json!(["web"])),
        ("$.metadata.name", json!(["web"])),
        (".metadata['name']", json!(["web"])),
        (".metadata.none.deeper", json!([])),
        (".metadata.name.deeper", json!([])),
        (".metadata.labels.a-b", json!(["y"])),
        (".metadata.labels['a-b']", json!(["y"])),
        (".metadata.labels.app\\.kubernetes\\.io/name", json!(["x"])),
        (".metadata.labels['app\\.kubernetes\\.io/name']", json!(["x"])),
        (".metadata.labels['app.kubernetes.io/name']", json!([])),
        ("['metadata.name']", json!(["web"])),
        (".metadata.labels.*", json!(["y", "x"])),
        (".status.null", json!([null])),
        (".status.null.x", json!([])),
        (".status.null[0]", json!([])),
        (".status.list[0]", json!([1])),
        (".status.list[-1]", json!([4])),
        (".status.list[4]", json!([])),
        (".status.list[-5]", json!([])),
        (".status.list[*]", json!([1, 2, 3, 4])),
        (".status.list[1:3]", json!([2, 3])),
        (".status.list[:2]", json!([1, 2])),
        (".status.list[2:]", json!([3, 4])),
        (".status.list[::2]", json!([1, 3])),
        (".status.list[1:1]", json!([])),
        (".status.list[0,-1]", json!([1, 4])),
        (".status['list', 'null']", json!([[1, 2, 3, 4], null])),
        (".status.empty[*]", json!([])),
        (".status.empty[-1]", json!([])),
        (".metadata[0]", json!([])),
        (".metadata[*]", json!([])),
        (".status.conditions[*].type", json!(["Ready", "Other)"])),
        ("..type", json!(["Ready", "Other)"])),
        (".status..n", json!([1, 2])),
        ("", json!([object()])),
    ] {
        let compiled = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let object = object();
        let found: Vec<&Value> = compiled.eval(&object);
        assert_eq!(json!(found), expected, "{path}");
        assert_eq!(compiled.first(&object), found.first().copied(), "{path}");
    }
}

#[test]
fn filters_compare_one_element_at_a_time() {
    for (filter, expected) in [
        ("@.type==\"Ready\"", json!(["Ready"])),
        ("@.type=='Ready'", json!(["Ready"])),
        ("@.type == 'Ready'", json!(["Ready"])),
        ("@.type=='Other)'", json!(["Other)"])),
        ("@.type!=\"Ready\"", json!(["Other)"])),
        ("@.type<'P'", json!(["Other)"])),
        ("@.n==2", json!(["Other)"])),
        ("@.n<2", json!(["Ready"])),
        ("@.n<=2", json!(["Ready", "Other)"])),
        ("@.n>1", json!(["Other)"])),
        ("@.n>=1", json!(["Ready", "Other)"])),
        ("@.n==-1", json!([])),
        ("@.f==2.5", json!(["Other)"])),
        ("@.b==true", json!(["Ready"])),
        ("@.b!=true", json!(["Other)"])),
        ("@.n==@.n", json!(["Ready", "Other)"])),
        ("@.none==1", json!([])),
        ("@.n", json!(["Ready", "Other)"])),
        ("@.none", json!([])),
        // What cannot be compared gives nothing at all.
        ("@.n=='1'", json!([])),
        ("@.n==1.5", json!([])),
        ("@.b<true", json!([])),
        ("@..n==1", json!(["Ready"])),
    ] {
        let path = format!(".status.conditions[?({filter})].type");
        let compiled = JsonPath::parse(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(json!(compiled.eval(&object())), expected, "{path}");
    }
    let not_a_list = JsonPath::parse(".metadata[?(@.a==1)]").expect("a path");
    assert!(not_a_list.eval(&object()).is_empty());
}

#[test]
fn malformed_paths_are_refused() {
    for path in [
        ".a[",
        ".a[0",
        ".a[x]",
        ".a[+1]",
        ".a[1:2:3:4]",
        ".a[::0]",
        ".a[::-1]",
        ".a[99999999999999999999]",
        ".a['b]",
        "....a",
        ".a[?(@.b==1]",
        ".a[?(@.b==1)",
        ".a[?(@.b===1)]",
        ".a[?(@.b=1)]",
        ".a[?(==1)]",
        ".a[?(@.b==)]",
        ".a[?(@.b==x)]",
        ".a[?(@.b=='x)]",
        ".a[?()]",
        ".a[?(@.b'[?(@.c)]')]",
        ".a}",
        "{.a}",
        "a",
        ".a]",
    ] {
        assert!(JsonPath::parse(path).is_err(), "{path}");
    }
    assert_eq!(
        JsonPath::parse(&".a".repeat(MAX_BYTES)),
        Err(JsonPathError::TooLong)
    );
}

#[test]
fn a_simple_path_begins_with_a_dot() {
    assert!(is_simple(".spec.replicas"));
    assert!(is_simple("."));
    assert_eq!(check_simple(""), Err(JsonPathError::Empty));
    let error = check_simple("spec.replicas").expect_err("no dot");
    assert_eq!(error.to_string(), "must be a simple json path starting with .");
}

#[test]
fn many_descents_do_not_multiply_without_bound() {
    let mut deep = json!({"x": 1});
    for _ in 0..100 {
        deep = json!({"a": deep.clone(), "b": [1]});
    }
    let path = JsonPath::parse(&"...*".repeat(20)).expect("a path");
    assert!(path.eval(&deep).is_empty());
    let wide = json!({"l": vec![vec![1; 1_000]; 10]});
    let path = JsonPath::parse(&format!(".l[{}0][?(@==1)]", "0,".repeat(1_500))).expect("a path");
    assert!(path.eval(&wide).is_empty());
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), symbols in "[.\\[\\]?()@$*'\"\\\\,:0-9a=<>! é-]{0,24}") {
        for path in [text, symbols] {
            if let Ok(path) = JsonPath::parse(&path) {
                let _ = path.eval(&object());
                let _ = path.first(&object());
            }
        }
    }
}
