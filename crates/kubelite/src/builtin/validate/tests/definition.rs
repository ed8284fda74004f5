//! Rules for CustomResourceDefinitions.

use serde_json::{Value, json};

use super::{Builtin, Change, created, prepared, updated};

pub(super) fn definition(change: impl FnOnce(&mut Value)) -> Value {
    let mut definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"color": {"type": "string"}, "parts": {"type": "array"}}},
                }}},
            }],
        },
    });
    change(&mut definition["spec"]);
    definition
}

#[test]
fn definition_rules() {
    let cases: [(Change, &str); 14] = [
        (
            |spec| spec["names"]["plural"] = json!("gears"),
            "metadata.name: Invalid value: \"widgets.example.com\": must be spec.names.plural+\".\"+spec.group",
        ),
        (
            |spec| spec["scope"] = json!("World"),
            "spec.scope: Unsupported value: \"World\": supported values: \"Cluster\", \"Namespaced\"",
        ),
        (
            |spec| spec["names"]["listKind"] = json!("Widget"),
            "spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same",
        ),
        (
            |spec| spec["names"]["shortNames"] = json!(["W"]),
            "spec.names.shortNames[0]: Invalid value: \"W\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ),
        (
            |spec| spec["versions"][0]["schema"] = json!({}),
            "spec.versions[0].schema.openAPIV3Schema: Required value",
        ),
        (
            |spec| {
                spec["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "A", "type": "text", "jsonPath": ".a"}]);
            },
            "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date,integer,number,string",
        ),
        (
            |spec| {
                spec["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "A", "type": "string", "jsonPath": "a"}]);
            },
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"a\": must be a simple json path starting with .",
        ),
        (
            |spec| spec["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.size"}]),
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.size\": is an invalid path: does not refer to a valid field",
        ),
        (
            |spec| spec["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.parts"}]),
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.parts\": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
        ),
        (
            |spec| {
                spec["versions"][0]["subresources"] =
                    json!({"scale": {"specReplicasPath": ".status.n", "statusReplicasPath": ".status.n"}});
            },
            "spec.subresources.scale.specReplicasPath: Invalid value: \".status.n\": should be a json path under .spec",
        ),
        (
            |spec| spec["versions"][0]["deprecationWarning"] = json!("old"),
            "spec.versions[0].deprecationWarning: Invalid value: \"old\": can only be set for deprecated versions",
        ),
        (
            |spec| spec["conversion"] = json!({"strategy": "Webhook"}),
            "spec.conversion.strategy: Invalid value: \"Webhook\": this server calls no webhooks: the only strategy is None",
        ),
        (
            |spec| spec["preserveUnknownFields"] = json!(true),
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ),
        (|spec| spec["names"]["kind"] = json!("Wid_get"), ""),
    ];
    for (change, expected) in cases {
        let found = created(Builtin::CustomResourceDefinition, definition(change));
        if expected.is_empty() {
            assert!(
                found.iter().all(|error| error.contains("Invalid value")) && found.len() == 3,
                "{found:?}"
            );
        } else {
            assert_eq!(found, [expected]);
        }
    }
}

#[test]
fn definition_has_one_storage_version_and_unique_names() {
    let errors = created(
        Builtin::CustomResourceDefinition,
        definition(|spec| {
            let version = spec["versions"][0].clone();
            spec["versions"] = json!([version.clone(), version]);
        }),
    );
    assert_eq!(errors.len(), 2);
    assert!(errors[0].ends_with("must contain unique version names"));
    assert!(errors[1].ends_with("must have exactly one version marked as storage version"));
}

#[test]
fn established_definition_keeps_its_kind_and_scope() {
    let mut old = prepared(Builtin::CustomResourceDefinition, definition(|_| {}));
    assert_eq!(
        updated(
            Builtin::CustomResourceDefinition,
            &old,
            |new| new["spec"]["scope"] = json!("Cluster")
        ),
        Vec::<String>::new()
    );
    old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    assert_eq!(
        updated(
            Builtin::CustomResourceDefinition,
            &old,
            |new| new["spec"]["scope"] = json!("Cluster")
        ),
        ["spec.scope: Invalid value: \"Cluster\": field is immutable"]
    );
    assert_eq!(
        updated(
            Builtin::CustomResourceDefinition,
            &old,
            |new| new["status"]["storedVersions"] = json!(["v0", "v1"])
        ),
        [
            "status.storedVersions[0]: Invalid value: \"v0\": missing from spec.versions; v0 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v0 and removes v0 from status.storedVersions"
        ]
    );
}

#[test]
fn community_groups_need_approval() {
    let mut guarded = definition(|spec| spec["group"] = json!("widgets.k8s.io"));
    guarded["metadata"]["name"] = json!("widgets.widgets.k8s.io");
    assert_eq!(
        created(Builtin::CustomResourceDefinition, guarded.clone()),
        [
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"
        ]
    );
    guarded["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, just a test"});
    assert_eq!(
        created(Builtin::CustomResourceDefinition, guarded),
        Vec::<String>::new()
    );
}
