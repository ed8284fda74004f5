//! The kinds whose rules fit on a page: ConfigMap, Secret, Lease, PersistentVolumeClaim, Namespace and Node.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    super::{
        look::{at, entries, flag, list, number, text},
        quantity::Quantity,
    },
    errors::{Errors, NEGATIVE, NOT_POSITIVE},
    names, selectors,
};
use crate::field::FieldPath;

/// What all values of a ConfigMap or Secret may take together.
const DATA_MAX: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";
const ACCESS_MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

/// The length of what a base64 text stands for.
fn decoded_len(value: &Value) -> usize {
    STANDARD
        .decode(value.as_str().unwrap_or_default())
        .map_or(0, |bytes| bytes.len())
}

pub(super) fn config_map(errors: &mut Errors, map: &Value) {
    let mut size = 0;
    for (key, value) in entries(map, "data") {
        let path = FieldPath::new("data").key(key);
        errors.messages(&path, key, names::config_key(key));
        if map
            .get("binaryData")
            .is_some_and(|binary| binary.get(key).is_some())
        {
            errors.invalid(path, key.as_str(), "duplicate of key present in binaryData");
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(map, "binaryData") {
        errors.messages(
            &FieldPath::new("binaryData").key(key),
            key,
            names::config_key(key),
        );
        size += decoded_len(value);
    }
    if size > DATA_MAX {
        errors.too_long(FieldPath::root(), DATA_MAX as u64);
    }
}

/// An object that declared itself immutable may change neither that nor its data.
pub(super) fn frozen(errors: &mut Errors, new: &Value, old: &Value, data: &[&str]) {
    if !flag(old, "immutable") {
        return;
    }
    if !flag(new, "immutable") {
        errors.forbidden(FieldPath::new("immutable"), FROZEN);
    }
    for field in data {
        if at(new, field) != at(old, field) {
            errors.forbidden(FieldPath::new(*field), FROZEN);
        }
    }
}

pub(super) fn secret(errors: &mut Errors, secret: &Value) {
    let path = FieldPath::new("data");
    let mut size = 0;
    for (key, value) in entries(secret, "data") {
        errors.messages(&path.key(key), key, names::config_key(key));
        size += decoded_len(value);
    }
    if size > DATA_MAX {
        errors.too_long(path.clone(), DATA_MAX as u64);
    }
    let value = |key: &str| secret.get("data").and_then(|data| data.get(key));
    match text(secret, "type") {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            let account = at(secret, "metadata.annotations").and_then(|all| all.get(key)?.as_str());
            if account.unwrap_or_default().is_empty() {
                errors.required(FieldPath::new("metadata.annotations").key(key), "");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(errors, value(".dockercfg"), &path.key(".dockercfg")),
        "kubernetes.io/dockerconfigjson" => {
            docker_config(errors, value(".dockerconfigjson"), &path.key(".dockerconfigjson"));
        }
        "kubernetes.io/basic-auth" if value("username").is_none() && value("password").is_none() => {
            errors.required(path.key("username"), "");
            errors.required(path.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if value("ssh-privatekey").is_none_or(|value| decoded_len(value) == 0) => {
            errors.required(path.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if value(key).is_none() {
                    errors.required(path.key(key), "");
                }
            }
        }
        _ => {}
    }
}

fn docker_config(errors: &mut Errors, value: Option<&Value>, path: &FieldPath) {
    let Some(value) = value else {
        errors.required(path.clone(), "");
        return;
    };
    let bytes = STANDARD
        .decode(value.as_str().unwrap_or_default())
        .unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes) {
        errors.invalid(path.clone(), "<secret contents redacted>", error.to_string());
    }
}

pub(super) fn lease(errors: &mut Errors, lease: &Value) {
    let path = FieldPath::new("spec");
    if let Some(seconds) = number(lease, "spec.leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid(
            path.child("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        );
    }
    if let Some(count) = number(lease, "spec.leaseTransitions").filter(|count| *count < 0) {
        errors.invalid(path.child("leaseTransitions"), count, NEGATIVE);
    }
}

fn amount(value: Option<&Value>) -> Option<Quantity> {
    value
        .and_then(Value::as_str)
        .and_then(|text| Quantity::parse(text).ok())
}

pub(super) fn claim(errors: &mut Errors, claim: &Value) {
    let path = FieldPath::new("spec");
    let modes = list(claim, "spec.accessModes");
    if modes.is_empty() {
        errors.required(path.child("accessModes"), "at least 1 access mode is required");
    }
    selectors::label_selector(errors, at(claim, "spec.selector"), &path.child("selector"));
    let mut known = BTreeSet::new();
    for mode in modes.iter().filter_map(Value::as_str) {
        if ACCESS_MODES.contains(&mode) {
            known.insert(mode);
        } else {
            errors.not_supported(path.child("accessModes"), mode, ACCESS_MODES);
        }
    }
    if known.contains("ReadWriteOncePod") && known.len() > 1 {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.forbidden(path.child("accessModes"), detail);
    }
    let storage = path.child("resources").key("storage");
    match amount(at(claim, "spec.resources.requests.storage")) {
        None => errors.required(storage, ""),
        Some(size) if size.is_negative() || size.is_zero() => {
            errors.invalid(storage, size.to_string(), NOT_POSITIVE);
        }
        Some(_) => {}
    }
    let class = text(claim, "spec.storageClassName");
    if !class.is_empty() {
        errors.messages(
            &path.child("storageClassName"),
            class,
            names::dns_subdomain(class),
        );
    }
    let mode = text(claim, "spec.volumeMode");
    if !matches!(mode, "Block" | "Filesystem") {
        errors.not_supported(path.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
}

pub(super) fn claim_update(errors: &mut Errors, new: &Value, old: &Value) {
    claim(errors, new);
    let (mut expected, found) = (old["spec"].clone(), &new["spec"]);
    let bound = text(new, "status.phase") == "Bound";
    let mut free = Vec::new();
    if text(old, "spec.volumeName").is_empty() {
        free.push("volumeName");
    }
    if at(old, "spec.storageClassName").is_none() {
        free.push("storageClassName");
    }
    if bound {
        free.push("volumeAttributesClassName");
    }
    if let Some(expected) = expected.as_object_mut() {
        for field in free {
            match found.get(field) {
                Some(value) => expected.insert(field.to_owned(), value.clone()),
                None => expected.remove(field),
            };
        }
        if bound
            && let Some(size) = at(found, "resources.requests.storage")
            && let Some(requests) = expected
                .get_mut("resources")
                .and_then(|all| all.get_mut("requests"))
            && let Some(requests) = requests.as_object_mut()
        {
            requests.insert("storage".to_owned(), size.clone());
        }
    }
    let path = FieldPath::new("spec");
    if &expected != found {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.forbidden(path.clone(), detail);
    }
    let size = |claim: &Value| amount(at(claim, "spec.resources.requests.storage"));
    let capacity = amount(at(old, "status.capacity.storage")).or_else(|| Quantity::parse("0").ok());
    if let (Some(new), Some(old)) = (size(new), size(old))
        && new < old
        && capacity.is_some_and(|capacity| new <= capacity)
    {
        let path = path.child("resources").child("requests").child("storage");
        errors.forbidden(path, "field can not be less than status.capacity");
    }
    let mode = (at(new, "spec.volumeMode"), at(old, "spec.volumeMode"));
    errors.unchanged(FieldPath::new("volumeMode"), mode.0, mode.1);
}

pub(super) fn namespace(errors: &mut Errors, namespace: &Value, indexed: bool) {
    let path = FieldPath::new("spec.finalizers");
    for (index, name) in list(namespace, "spec.finalizers")
        .iter()
        .filter_map(Value::as_str)
        .enumerate()
    {
        let path = if indexed { path.index(index) } else { path.clone() };
        errors.messages(&path, name, names::qualified_name(name));
        if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(path, name, detail);
        }
    }
}

pub(super) fn namespace_status(errors: &mut Errors, namespace: &Value) {
    let phase = text(namespace, "status.phase");
    let path = FieldPath::new("status.Phase");
    if at(namespace, "metadata.deletionTimestamp").is_some() {
        if phase != "Terminating" {
            let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
            errors.invalid(path, phase, detail);
        }
    } else if phase != "Active" {
        errors.invalid(
            path,
            phase,
            "may only be 'Active' if `deletionTimestamp` is empty",
        );
    }
}

pub(super) fn node(errors: &mut Errors, node: &Value) {
    let path = FieldPath::new("metadata.taints");
    let mut taken = BTreeSet::new();
    for (index, taint) in list(node, "spec.taints").iter().enumerate() {
        let path = path.index(index);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        errors.messages(&path.child("key"), key, names::qualified_name(key));
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            errors.invalid(path.child("value"), value, wrong.join(";"));
        }
        selectors::taint_effect(errors, effect, path.child("effect"));
        if !taken.insert((effect, key)) {
            errors.duplicate(path, taint.clone());
        }
    }
    for list in ["capacity", "allocatable"] {
        for (name, value) in entries(node, &format!("status.{list}")) {
            if let Some(amount) = amount(Some(value)).filter(Quantity::is_negative) {
                let path = FieldPath::new("status").child(list).child(name);
                errors.invalid(path, amount.to_string(), NEGATIVE);
            }
        }
    }
}

pub(super) fn node_update(errors: &mut Errors, new: &Value, old: &Value) {
    let mut seen = Vec::new();
    for (index, address) in list(new, "status.addresses").iter().enumerate() {
        if seen.contains(&address) {
            errors.duplicate(FieldPath::new("status.addresses").index(index), address.clone());
        }
        seen.push(address);
    }
    let known = list(old, "spec.podCIDRs");
    if !known.is_empty() && known != list(new, "spec.podCIDRs") {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden(FieldPath::new("spec.podCIDRs"), detail);
    }
    let provider = text(old, "spec.providerID");
    if !provider.is_empty() && provider != text(new, "spec.providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(FieldPath::new("spec.providerID"), detail);
    }
}

/// A review of access asks about a resource or about a path, and about one of them.
pub(super) fn access_review(errors: &mut Errors, review: &Value) {
    let path = FieldPath::new("spec");
    let resource = at(review, "spec.resourceAttributes");
    let other = at(review, "spec.nonResourceAttributes");
    match (resource, other) {
        (Some(_), Some(_)) => errors.invalid(
            path.child("nonResourceAttributes"),
            other.cloned().unwrap_or_else(|| json!({})),
            "cannot be specified in combination with resourceAttributes",
        ),
        (None, None) => errors.invalid(
            path.child("resourceAttributes"),
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => {}
    }
}
