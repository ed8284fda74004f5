//! Bodies: valid documents, and what small damage makes of them.

use std::ops::ControlFlow;

use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::support::{config_map, definition, pod, widget};

/// Valid objects to begin with.
pub(super) fn objects() -> Vec<Value> {
    vec![
        config_map("a"),
        widget("a"),
        rich_widget(),
        pod("a"),
        definition(&rich_spec()),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" }, "stringData": { "k": "v" }, "type": "Opaque" }),
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other" }, "spec": { "finalizers": ["kubernetes"] } }),
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": "node", "labels": { "a": "b" } },
            "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] },
            "status": { "capacity": { "cpu": "2", "memory": "4Gi" } },
        }),
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": { "name": "a" },
            "spec": { "backoffLimit": 1, "template": { "spec": {
                "restartPolicy": "Never",
                "containers": [{ "name": "main", "image": "i", "resources": { "limits": { "cpu": "100m" } } }],
            } } },
        }),
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": "a" },
            "spec": { "holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T12:00:00.000000Z" },
        }),
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "name": "a", "namespace": "default" },
            "eventTime": "2026-03-01T12:00:00.000000Z",
            "action": "A",
            "reason": "R",
            "type": "Normal",
            "reportingController": "c",
            "reportingInstance": "i",
            "regarding": { "kind": "Widget", "name": "a", "namespace": "default" },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": { "name": "a" },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        }),
        json!({
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Foreground",
            "gracePeriodSeconds": 5,
            "preconditions": { "uid": "x", "resourceVersion": "5" },
            "dryRun": ["All"],
        }),
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } },
        }),
    ]
}

pub(super) fn rich_spec() -> Value {
    json!({
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": { "type": "integer", "format": "int32", "minimum": 0, "multipleOf": 1, "default": 1 },
            "name": { "type": "string", "pattern": "^[a-z]*$", "maxLength": 20, "enum": ["a", "b", "c"] },
            "when": { "type": "string", "format": "date-time" },
            "either": { "x-kubernetes-int-or-string": true },
            "open": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "map": { "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 5 },
            "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": { "name": { "type": "string" }, "count": { "type": "integer", "default": 1 } },
                },
            },
        },
        "x-kubernetes-validations": [{ "rule": "!has(self.name) || self.size < 100" }],
    })
}

pub(super) fn rich_widget() -> Value {
    json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {
            "name": "a",
            "labels": { "colour": "red" },
            "annotations": { "k": "v" },
            "finalizers": ["example.com/held"],
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "a", "uid": "x" }],
        },
        "spec": {
            "size": 1, "name": "a", "when": "2026-03-01T12:00:00Z", "either": "50%", "open": { "x": [1] },
            "map": { "k": "v" }, "set": ["a", "b"], "parts": [{ "name": "p", "count": 2 }],
        },
        "status": { "phase": "Busy" },
    })
}

/// Values that are right somewhere and wrong almost everywhere.
fn odd_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![Just(i64::MIN), Just(-1), Just(0), Just(1), Just(i64::MAX)].prop_map(Value::from),
        Just(json!(u64::MAX)),
        prop_oneof![Just(0.5), Just(-1e308), Just(1e-300)].prop_map(Value::from),
        prop_oneof![
            Just(String::new()),
            Just("a".to_owned()),
            Just("x".repeat(300)),
            Just("$patch".to_owned()),
            Just("2026-13-45T99:00:00Z".to_owned()),
            Just("1e999Gi".to_owned()),
            Just("\u{0}\u{feff}ß🦀".to_owned()),
            Just("has(self.x".to_owned()),
            Just("(((((a+)+)+)+)+)+$".to_owned()),
            "\\PC{0,12}",
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map(key(), inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

/// Names of fields that mean something somewhere.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "name",
            "metadata",
            "spec",
            "status",
            "labels",
            "finalizers",
            "ownerReferences",
            "managedFields",
            "kind",
            "apiVersion",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "f:spec",
            ".",
            "default",
            "type",
            "items",
            "properties",
            "x-kubernetes-validations",
            "pattern",
            "size",
            "resourceVersion",
            "uid",
            "generation",
            "deletionTimestamp",
            "creationTimestamp",
            "generateName",
            "namespace",
            "fieldsV1",
            "manager",
            "operation",
            "time",
            "$ref",
            "additionalProperties",
            "enum",
            "~1",
            "",
        ])
        .prop_map(ToOwned::to_owned),
        "\\PC{0,6}",
    ]
}

/// One small damage to a document.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    Replace(Value),
    /// Takes away one of the things in it.
    Remove(Index),
    Insert(String, Value),
    /// Puts the value into this many lists.
    Bury(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => odd_value().prop_map(Edit::Replace),
        2 => any::<Index>().prop_map(Edit::Remove),
        3 => (key(), odd_value()).prop_map(|(key, value)| Edit::Insert(key, value)),
        1 => (1_usize..300).prop_map(Edit::Bury),
    ]
}

/// Calls `visit` with each value of a document until it breaks.
fn walk(value: &mut Value, visit: &mut impl FnMut(&mut Value) -> ControlFlow<()>) -> ControlFlow<()> {
    visit(value)?;
    match value {
        Value::Array(items) => items.iter_mut().try_for_each(|item| walk(item, visit)),
        Value::Object(fields) => fields.values_mut().try_for_each(|field| walk(field, visit)),
        _ => ControlFlow::Continue(()),
    }
}

fn damage(document: &mut Value, place: &Index, edit: &Edit) {
    let mut count = 0;
    let _ = walk(document, &mut |_| {
        count += 1;
        ControlFlow::Continue(())
    });
    let mut left = place.index(count);
    let _ = walk(document, &mut |value| {
        if left > 0 {
            left -= 1;
            return ControlFlow::Continue(());
        }
        match edit {
            Edit::Replace(new) => *value = new.clone(),
            Edit::Remove(which) => match value {
                Value::Array(items) if !items.is_empty() => drop(items.remove(which.index(items.len()))),
                Value::Object(fields) if !fields.is_empty() => {
                    let key = fields.keys().nth(which.index(fields.len())).cloned();
                    fields.remove(&key.unwrap_or_default());
                }
                other => *other = Value::Null,
            },
            Edit::Insert(key, new) => match value {
                Value::Array(items) => items.push(new.clone()),
                Value::Object(fields) => drop(fields.insert(key.clone(), new.clone())),
                other => *other = json!({ key: new }),
            },
            Edit::Bury(depth) => {
                for _ in 0..*depth {
                    *value = Value::Array(vec![value.take()]);
                }
            }
        }
        ControlFlow::Break(())
    });
}

pub(super) fn damaged(document: &Value, edits: &[(Index, Edit)]) -> Value {
    let mut document = document.clone();
    for (place, edit) in edits {
        damage(&mut document, place, edit);
    }
    document
}

pub(super) fn edits() -> impl Strategy<Value = Vec<(Index, Edit)>> {
    prop::collection::vec((any::<Index>(), edit()), 0..4)
}

fn document() -> impl Strategy<Value = Value> {
    (prop::sample::select(objects()), edits()).prop_map(|(document, edits)| damaged(&document, &edits))
}

pub(super) fn json_patch() -> impl Strategy<Value = Value> {
    let path = prop_oneof![
        prop::sample::select(vec![
            "",
            "/",
            "/metadata",
            "/metadata/labels",
            "/metadata/labels/a~1b",
            "/metadata/finalizers/-",
            "/metadata/finalizers/0",
            "/metadata/finalizers/99999999999999999999",
            "/metadata/finalizers/-1",
            "/spec",
            "/spec/size",
            "/spec/parts/0",
            "/spec/parts/1/name",
            "/status",
            "/kind",
            "/metadata/name",
            "/data/x",
            "/metadata/resourceVersion",
            "nonsense",
            "/~",
            "/~2",
        ])
        .prop_map(ToOwned::to_owned),
        "(/\\PC{0,4}){0,4}",
    ];
    let operation = prop::sample::select(vec![
        "add", "remove", "replace", "move", "copy", "test", "", "nope",
    ]);
    let step = (operation, path.clone(), path, odd_value()).prop_map(|(operation, path, from, value)| {
        json!({ "op": operation, "path": path, "from": from, "value": value })
    });
    prop::collection::vec(step, 0..5).prop_map(Value::from)
}

/// The bytes of a body.
pub(super) fn body() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![
        6 => document().prop_map(|document| document.to_string()),
        2 => json_patch().prop_map(|patch| patch.to_string()),
        2 => document().prop_map(|document| serde_saphyr::to_string(&document).unwrap_or_default()),
        1 => (0_usize..20_000).prop_map(|depth| "[".repeat(depth)),
        1 => (0_usize..20_000).prop_map(|depth| "{\"a\":".repeat(depth)),
        1 => (0_usize..5_000).prop_map(|depth| "- ".repeat(depth)),
        1 => Just("a: &a [*a, *a]\nb: &b [*a, *a, *b]".to_owned()),
        1 => Just("k8s\0\n\u{7f}\u{1}".to_owned()),
        1 => Just(String::new()),
    ];
    let cuts = prop::collection::vec((any::<Index>(), any::<u8>()), 0..3);
    (text, prop::bool::weighted(0.2), cuts, any::<Index>()).prop_map(|(text, broken, cuts, end)| {
        let mut bytes = text.into_bytes();
        if broken && !bytes.is_empty() {
            for (place, byte) in cuts {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            bytes.truncate(end.index(bytes.len()) + 1);
        }
        bytes
    })
}
