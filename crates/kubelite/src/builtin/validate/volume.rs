//! Volumes of a pod, and the references into a pod that volumes and variables make.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    super::{
        look::{at, list, number, text},
        quantity::Quantity,
    },
    errors::Errors,
    names,
};
use crate::field::FieldPath;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const MODE_MAX: i64 = 0o777;

/// Fields of a pod that a variable may take its value from, beside single labels and annotations.
pub(super) const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// The same for a file in a volume.
const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const HOST_PATH_TYPES: &[&str] = &[
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];

/// Checks the volumes of a pod and returns those that are valid, by name.
pub(super) fn volumes<'a>(
    errors: &mut Errors,
    volumes: &'a [Value],
    path: &FieldPath,
) -> Vec<(&'a str, &'a Value)> {
    let mut good = Vec::new();
    let mut taken = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let before = errors.0.len();
        let path = path.index(index);
        let name = text(volume, "name");
        source(errors, volume, &path);
        if name.is_empty() {
            errors.required(path.child("name"), "");
        } else {
            errors.messages(&path.child("name"), name, names::dns_label(name));
        }
        if taken.contains(name) {
            errors.duplicate(path.child("name"), name);
        }
        if errors.0.len() == before {
            taken.insert(name);
            good.push((name, volume));
        }
    }
    good
}

fn source(errors: &mut Errors, volume: &Value, path: &FieldPath) {
    let Some(members) = volume.as_object() else { return };
    let mut found = false;
    for (kind, source) in members
        .iter()
        .filter(|(kind, source)| *kind != "name" && !source.is_null())
    {
        let path = path.child(kind);
        if found {
            errors.forbidden(path, "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        match kind.as_str() {
            "emptyDir" => {
                let limit = at(source, "sizeLimit")
                    .and_then(Value::as_str)
                    .and_then(|t| Quantity::parse(t).ok());
                if limit.is_some_and(|limit| limit.is_negative()) {
                    let detail = "SizeLimit field must be a valid resource quantity";
                    errors.forbidden(path.child("sizeLimit"), detail);
                }
            }
            "hostPath" => host_path(errors, source, &path),
            "secret" => files(errors, source, "secretName", &path),
            "configMap" => files(errors, source, "name", &path),
            "downwardAPI" => downward(errors, source, &path),
            "projected" => projected(errors, source, &path),
            "persistentVolumeClaim" => required(errors, source, &["claimName"], &path),
            "nfs" => required(errors, source, &["server", "path"], &path),
            "csi" => required(errors, source, &["driver"], &path),
            "image" => required(errors, source, &["reference"], &path),
            // The drivers that came with Kubernetes once: their addresses mean something to a real node only.
            _ => {}
        }
    }
    if !found {
        errors.required(path.clone(), "must specify a volume type");
    }
}

fn required(errors: &mut Errors, source: &Value, names: &[&str], path: &FieldPath) {
    for name in names {
        if text(source, name).is_empty() {
            errors.required(path.child(name), "");
        }
    }
}

fn host_path(errors: &mut Errors, source: &Value, path: &FieldPath) {
    let target = text(source, "path");
    if target.is_empty() {
        errors.required(path.child("path"), "");
        return;
    }
    no_backsteps(errors, target, &path.child("path"));
    let kind = text(source, "type");
    if !HOST_PATH_TYPES.contains(&kind) {
        errors.not_supported(path.child("type"), kind, HOST_PATH_TYPES);
    }
}

fn mode(errors: &mut Errors, owner: &Value, name: &str, path: &FieldPath) {
    if let Some(mode) = number(owner, name).filter(|mode| !(0..=MODE_MAX).contains(mode)) {
        errors.invalid(path.child(name), mode, FILE_MODE);
    }
}

fn files(errors: &mut Errors, source: &Value, name: &str, path: &FieldPath) {
    if text(source, name).is_empty() {
        errors.required(path.child(name), "");
    }
    mode(errors, source, "defaultMode", path);
    for (index, item) in list(source, "items").iter().enumerate() {
        let path = path.child("items").index(index);
        if text(item, "key").is_empty() {
            errors.required(path.child("key"), "");
        }
        if text(item, "path").is_empty() {
            errors.required(path.child("path"), "");
        }
        free_path(errors, text(item, "path"), &path.child("path"));
        mode(errors, item, "mode", &path);
    }
}

fn downward(errors: &mut Errors, source: &Value, path: &FieldPath) {
    mode(errors, source, "defaultMode", path);
    for (index, file) in list(source, "items").iter().enumerate() {
        let path = path.child("items").index(index);
        if text(file, "path").is_empty() {
            errors.required(path.child("path"), "");
        }
        free_path(errors, text(file, "path"), &path.child("path"));
        match (at(file, "fieldRef"), at(file, "resourceFieldRef")) {
            (Some(reference), other) => {
                field_reference(errors, reference, VOLUME_FIELDS, &path.child("fieldRef"));
                if other.is_some() {
                    let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                    errors.invalid(path.clone(), "resource", detail);
                }
            }
            (None, Some(reference)) => {
                resource_reference(errors, reference, true, &path.child("resourceFieldRef"));
            }
            (None, None) => {
                errors.required(path.clone(), "one of fieldRef and resourceFieldRef is required");
            }
        }
        mode(errors, file, "mode", &path);
    }
}

fn projected(errors: &mut Errors, source: &Value, path: &FieldPath) {
    mode(errors, source, "defaultMode", path);
    for (index, part) in list(source, "sources").iter().enumerate() {
        let path = path.child("sources").index(index);
        if let Some(part) = at(part, "secret") {
            files(errors, part, "name", &path.child("secret"));
        }
        if let Some(part) = at(part, "configMap") {
            files(errors, part, "name", &path.child("configMap"));
        }
        if let Some(part) = at(part, "downwardAPI") {
            downward(errors, part, &path.child("downwardAPI"));
        }
        if let Some(part) = at(part, "serviceAccountToken") {
            let path = path.child("serviceAccountToken");
            if text(part, "path").is_empty() {
                errors.required(path.child("path"), "");
            }
            if let Some(seconds) = number(part, "expirationSeconds").filter(|seconds| *seconds < 600) {
                let detail = "may not specify a duration less than 10 minutes";
                errors.invalid(path.child("expirationSeconds"), seconds, detail);
            }
        }
    }
}

/// A reference to a field of the pod.
pub(super) fn field_reference(errors: &mut Errors, reference: &Value, allowed: &[&str], path: &FieldPath) {
    if text(reference, "apiVersion").is_empty() {
        errors.required(path.child("apiVersion"), "");
        return;
    }
    let field = text(reference, "fieldPath");
    if field.is_empty() {
        errors.required(path.child("fieldPath"), "");
        return;
    }
    let subscript = field.strip_suffix("']").and_then(|field| field.split_once("['"));
    match subscript {
        Some(("metadata.annotations", key)) => {
            let lower = key.to_lowercase();
            errors.messages(path, &lower, names::qualified_name(&lower));
        }
        Some(("metadata.labels", key)) => errors.messages(path, key, names::qualified_name(key)),
        Some((field, _)) => errors.invalid(path.clone(), field, "does not support subscript"),
        None if !ENV_FIELDS.contains(&field) && !VOLUME_FIELDS.contains(&field) => {
            let detail = format!("error converting fieldPath: field label not supported: {field}");
            errors.invalid(path.child("fieldPath"), field, detail);
        }
        None if !allowed.contains(&field) => {
            errors.not_supported(path.child("fieldPath"), field, allowed);
        }
        None => {}
    }
}

/// A reference to a container's requests or limits.
pub(super) fn resource_reference(errors: &mut Errors, reference: &Value, in_volume: bool, path: &FieldPath) {
    let resource = text(reference, "resource");
    let huge = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if in_volume && text(reference, "containerName").is_empty() {
        errors.required(path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(path.child("resource"), "");
    } else if !RESOURCE_FIELDS.contains(&resource) && !huge {
        errors.not_supported(path.child("resource"), resource, RESOURCE_FIELDS);
    }
}

fn no_backsteps(errors: &mut Errors, target: &str, path: &FieldPath) {
    if target.split('/').any(|part| part == "..") {
        errors.invalid(path.clone(), target, "must not contain '..'");
    }
}

/// A path that leads down from where it starts.
pub(super) fn descending_path(errors: &mut Errors, target: &str, path: &FieldPath) {
    if target.starts_with('/') {
        errors.invalid(path.clone(), target, "must be a relative path");
    }
    no_backsteps(errors, target, path);
}

/// A descending path that does not use the names that volumes use for themselves.
fn free_path(errors: &mut Errors, target: &str, path: &FieldPath) {
    descending_path(errors, target, path);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.invalid(path.clone(), target, "must not start with '..'");
    }
}
