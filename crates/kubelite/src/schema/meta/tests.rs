use serde_json::json;

use super::*;

fn messages(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn create(metadata: &Value) -> Vec<String> {
    messages(&check_object_meta(
        metadata,
        NameRule::Subdomain,
        true,
        &FieldPath::new("metadata"),
    ))
}

#[test]
fn good_metadata_passes() {
    let metadata = json!({
        "name": "a.b-c", "generateName": "a.b-", "namespace": "ns", "generation": 1,
        "labels": {"app": "x", "example.com/Name": "", "a_b": "1.2"},
        "annotations": {"Example.com/any": "…"},
        "finalizers": ["example.com/f"],
        "ownerReferences": [{"apiVersion": "g/v1", "kind": "K", "name": "n", "uid": "u", "controller": true}],
        "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsType": "FieldsV1"}],
    });
    assert_eq!(create(&metadata), Vec::<String>::new());
}

#[test]
fn bad_metadata_is_refused_in_the_words_of_kubernetes() {
    const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
        '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    const KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
        an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
        '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let owner = |value: Value| json!({"name": "n", "namespace": "ns", "ownerReferences": value});
    let table = [
        (json!({"namespace": "ns"}), "metadata.name: Required value: name or generateName is required".to_owned()),
        (
            json!({"name": "X", "namespace": "ns"}),
            format!("metadata.name: Invalid value: \"X\": {SUBDOMAIN}"),
        ),
        (
            json!({"name": "n", "generateName": "_-", "namespace": "ns"}),
            String::new(),
        ),
        (json!({"name": "n"}), "metadata.namespace: Required value".to_owned()),
        (
            json!({"name": "n", "namespace": "a.b"}),
            "metadata.namespace: Invalid value: \"a.b\": must not contain dots".to_owned(),
        ),
        (
            json!({"name": "n", "namespace": "ns", "generation": -1}),
            "metadata.generation: Invalid value: -1: must be greater than or equal to 0".to_owned(),
        ),
        (
            json!({"name": "n", "namespace": "ns", "labels": {"-a": ""}}),
            format!("metadata.labels: Invalid value: \"-a\": {KEY}"),
        ),
        (
            json!({"name": "n", "namespace": "ns", "labels": {"/a": ""}}),
            "metadata.labels: Invalid value: \"/a\": prefix part must be non-empty".to_owned(),
        ),
        (
            json!({"name": "n", "namespace": "ns", "labels": {"a": "b c"}}),
            "metadata.labels: Invalid value: \"b c\": a valid label must be an empty string or consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
             'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        ),
        (
            json!({"name": "n", "namespace": "ns", "annotations": {"a": "x".repeat(256 * 1024)}}),
            "metadata.annotations: Too long: may not be more than 262144 bytes".to_owned(),
        ),
        (
            json!({"name": "n", "namespace": "ns", "finalizers": ["-"]}),
            format!("metadata.finalizers: Invalid value: \"-\": {KEY}"),
        ),
        (
            json!({"name": "n", "namespace": "ns", "finalizers": ["orphan", "foregroundDeletion"]}),
            "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: \
             finalizer orphan and foregroundDeletion cannot be both set"
                .to_owned(),
        ),
        (
            owner(json!([{"kind": "K", "name": "n", "uid": "u"}])),
            "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty".to_owned(),
        ),
        (
            owner(json!([{"apiVersion": "v1", "kind": "K", "name": "n"}])),
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty".to_owned(),
        ),
        (
            json!({"name": "n", "namespace": "ns", "managedFields": [{"manager": "m", "operation": "X"}]}),
            "metadata.managedFields[0].operation: Invalid value: \"X\": must be `Apply` or `Update`".to_owned(),
        ),
    ];
    for (metadata, expected) in table {
        let expected: Vec<String> = Some(expected)
            .filter(|text| !text.is_empty())
            .into_iter()
            .collect();
        assert_eq!(create(&metadata), expected, "{metadata}");
    }
}

#[test]
fn only_one_owner_may_be_the_controller() {
    let reference =
        |name: &str| json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": "u", "controller": true});
    let metadata =
        json!({"name": "n", "namespace": "ns", "ownerReferences": [reference("a"), reference("b")]});
    let found = create(&metadata);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].ends_with(
            "Only one reference can have Controller set to true. Found \"true\" in references for K/a and K/b"
        ),
        "{}",
        found[0]
    );
}

#[test]
fn cluster_scoped_objects_have_no_namespace() {
    let errors = check_object_meta(
        &json!({"name": "n", "namespace": "ns"}),
        NameRule::Subdomain,
        false,
        &FieldPath::new("metadata"),
    );
    assert_eq!(
        messages(&errors),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
}

#[test]
fn name_rules_differ() {
    let table = [
        (NameRule::Subdomain, "a.b", true),
        (NameRule::Label, "a.b", false),
        (NameRule::Label, "1a", true),
        (NameRule::Label1035, "1a", false),
        (NameRule::PathSegment, "A_b:c", true),
        (NameRule::PathSegment, "a/b", false),
        (NameRule::PathSegment, "..", false),
    ];
    for (rule, name, good) in table {
        assert_eq!(rule.check(name, false).is_empty(), good, "{rule:?} {name}");
    }
    assert_eq!(NameRule::Subdomain.check("a-", true), Vec::<String>::new());
    assert_eq!(NameRule::Subdomain.check("a-", false).len(), 1);
    assert_eq!(
        NameRule::Label.check(&"a".repeat(64), false),
        ["must be no more than 63 characters"]
    );
}

#[test]
fn updates_keep_what_is_immutable() {
    let old = json!({"name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 2,
        "creationTimestamp": "2024-01-01T00:00:00Z"});
    let changed = |name: &str, value: Value| {
        let mut new = old.clone();
        new[name] = value;
        messages(&check_object_meta_update(&new, &old, &FieldPath::new("metadata")))
    };
    assert_eq!(changed("uid", json!("u")), Vec::<String>::new());
    assert_eq!(
        changed("creationTimestamp", json!("2024-01-01T01:00:00+01:00")),
        Vec::<String>::new()
    );
    assert_eq!(
        changed("uid", json!("v")),
        ["metadata.uid: Invalid value: \"v\": field is immutable"]
    );
    assert_eq!(
        changed("name", json!("m")),
        ["metadata.name: Invalid value: \"m\": field is immutable"]
    );
    assert_eq!(
        changed("creationTimestamp", json!(null)),
        ["metadata.creationTimestamp: Invalid value: null: field is immutable"]
    );
    assert_eq!(
        changed("deletionTimestamp", json!("2024-01-01T00:00:00Z")),
        ["metadata.deletionTimestamp: Invalid value: \"2024-01-01T00:00:00Z\": field is immutable"]
    );
    assert_eq!(
        changed("generation", json!(1)),
        ["metadata.generation: Invalid value: 1: must not be decremented"]
    );
    assert_eq!(
        changed("resourceVersion", json!("")),
        ["metadata.resourceVersion: Invalid value: \"\": must be specified for an update"]
    );
}

#[test]
fn a_dying_object_gets_no_new_finalizers() {
    let old = json!({"name": "n", "resourceVersion": "1", "deletionTimestamp": "2024-01-01T00:00:00Z",
        "finalizers": ["a/b", "a/c"]});
    let mut new = old.clone();
    new["finalizers"] = json!(["a/b"]);
    assert_eq!(
        check_object_meta_update(&new, &old, &FieldPath::new("metadata")),
        []
    );
    new["finalizers"] = json!(["y/y", "a/b", "x/x"]);
    assert_eq!(
        messages(&check_object_meta_update(&new, &old, &FieldPath::new("metadata"))),
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
          found new finalizers []string{\"x/x\", \"y/y\"}"
        ]
    );
}

#[test]
fn metadata_of_wrong_types_cannot_be_decoded() {
    let table = [
        (
            json!(1),
            "json: cannot unmarshal number into Go value of type v1.ObjectMeta",
        ),
        (
            json!({"labels": {"a": 1}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
        (
            json!({"labels": []}),
            "json: cannot unmarshal array into Go struct field ObjectMeta.labels of type map[string]string",
        ),
        (
            json!({"name": {}}),
            "json: cannot unmarshal object into Go struct field ObjectMeta.name of type string",
        ),
        (
            json!({"ownerReferences": [{"controller": "x"}]}),
            "json: cannot unmarshal string into Go struct field OwnerReference.ownerReferences.controller of type bool",
        ),
        (
            json!({"creationTimestamp": "x"}),
            "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
        ),
    ];
    for (metadata, expected) in table {
        assert_eq!(check_types(&metadata).expect_err("refused").to_string(), expected);
    }
}

#[test]
fn decoding_drops_what_is_unknown_or_empty() {
    let mut metadata = json!({"name": "n", "foo": 1, "labels": {}, "creationTimestamp": null, "generation": 0,
        "deletionGracePeriodSeconds": 0, "ownerReferences": [{"name": "o", "bar": 1}]});
    let mut report = Vec::new();
    coerce_object_meta(&mut metadata, Some(&mut report)).expect("decodes");
    assert_eq!(
        metadata,
        json!({"name": "n", "deletionGracePeriodSeconds": 0, "ownerReferences": [{"name": "o"}]})
    );
    assert_eq!(report, ["metadata.foo", "metadata.ownerReferences[0].bar"]);
}
