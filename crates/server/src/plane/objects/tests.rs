//! What is checked of objects before anybody is asked.

use super::*;

#[test]
fn a_page_ends_before_it_is_too_long_for_one_answer() {
    let object = |name: &str, bytes: usize| {
        let object = json!({"metadata": {"name": name}, "spec": {"text": "x".repeat(bytes)}});
        let object = serde_json::from_value(object).expect("an object");
        Arc::new(Object::read(Kind::ImplementationSpec, object, true))
    };
    let half = PAGE_MAX_BYTES / 2;
    for (sizes, limit, fits, more) in [
        (vec![1, 1, 1], 3, 3, false),
        (vec![1, 1, 1], 2, 2, true),
        (vec![half - 1_000, half - 1_000, 10_000], 9, 2, true),
        (vec![PAGE_MAX_BYTES + 1, 1], 9, 1, true),
        (vec![], 9, 0, false),
    ] {
        let mut objects: Vec<_> = sizes.iter().map(|bytes| object("o", *bytes)).collect();
        assert_eq!(shorten(&mut objects, limit), more, "{sizes:?}");
        assert_eq!(objects.len(), fits, "{sizes:?}");
    }
}

#[test]
fn a_manifest_has_to_be_of_the_kind_and_the_namespace_that_are_asked_for() {
    let agent = |api: &str, kind: &str, namespace: &str| json!({"apiVersion": api, "kind": kind, "metadata": {"name": "x", "namespace": namespace}});
    let ask = |manifest| addressed(Kind::Agent, "a", manifest).map_err(|refusal| refusal.to_string());
    let (namespace, name, manifest) =
        ask(agent("agents.proompteng.ai/v1alpha1", "Agent", "a")).expect("it fits");
    assert_eq!((namespace.as_str(), name.as_deref()), ("a", Some("x")));
    assert_eq!(manifest["metadata"]["namespace"], "a");
    for (manifest, names) in [
        (agent("agents.proompteng.ai/v1alpha1", "AgentRun", "a"), "kind="),
        (agent("v1", "Agent", "a"), "apiVersion="),
        (
            agent("agents.proompteng.ai/v1alpha1", "Agent", "b"),
            "metadata.namespace=",
        ),
        (json!([]), "the manifest is no object"),
        (json!({"kind": "Agent"}), "apiVersion="),
    ] {
        let error = ask(manifest).expect_err(names);
        assert!(error.starts_with(names), "{error}");
    }
}

#[test]
fn names_are_checked_before_they_become_part_of_an_address() {
    for name in ["a", "a-b.c", "0"] {
        assert!(checked_name("name", name).is_ok(), "{name}");
    }
    for name in ["", "../secrets", "A", "a b", "a/b", "a?x=y", "-a"] {
        assert!(checked_name("name", name).is_err(), "{name}");
    }
    assert!(checked_namespace("agents").is_ok());
    for namespace in ["", "a.b", "a/b", "*"] {
        assert!(checked_namespace(namespace).is_err(), "{namespace}");
    }
}
