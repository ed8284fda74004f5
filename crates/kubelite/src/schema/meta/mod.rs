//! Object metadata, which every kind has and no schema describes: its shape, the rules for its parts, and what an update
//! may not change. Worded as `k8s.io/apimachinery/pkg/api/validation` words it.

mod types;

pub use types::{MetaTypeError, check_types, coerce_object_meta};

use serde_json::Value;

use crate::{
    field::{FieldError, FieldPath, Problem, go_quoted},
    names::{NameRule, dns_label, label_value, qualified_name},
};

/// The annotations of one object together may not take more than this.
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

/// The longest name of a field manager.
const MAX_MANAGER_BYTES: usize = 128;

/// The longest name of a subresource in managed fields.
const MAX_SUBRESOURCE_BYTES: usize = 256;

const IMMUTABLE: &str = "field is immutable";

/// What is wrong with the metadata of an object that is about to be created, its name already generated.
///
/// It must have passed `check_types`; members of other types are taken for absent.
pub fn check_object_meta(
    metadata: &Value,
    rule: NameRule,
    namespaced: bool,
    path: &FieldPath,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let generate_name = text(metadata, "generateName");
    if !generate_name.is_empty() {
        for wrong in rule.check(generate_name, true) {
            errors.push(FieldError::invalid(
                path.child("generateName"),
                generate_name,
                wrong,
            ));
        }
    }
    let name = text(metadata, "name");
    if name.is_empty() {
        errors.push(FieldError::required(
            path.child("name"),
            "name or generateName is required",
        ));
    } else {
        for wrong in rule.check(name, false) {
            errors.push(FieldError::invalid(path.child("name"), name, wrong));
        }
    }
    namespace(metadata, namespaced, path, &mut errors);
    if let Some(generation) = metadata
        .get("generation")
        .and_then(Value::as_i64)
        .filter(|number| *number < 0)
    {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path.child("generation"), generation, detail));
    }
    labels(metadata, path, &mut errors);
    annotations(metadata, path, &mut errors);
    owner_references(metadata, path, &mut errors);
    finalizers(metadata, path, &mut errors);
    managed_fields(metadata, path, &mut errors);
    errors
}

/// As `check_object_meta` for the metadata of an embedded resource, which needs no name and may have a namespace.
pub(super) fn check_with_rule(metadata: &Value, rule: NameRule, path: &FieldPath) -> Vec<FieldError> {
    let namespaced = !text(metadata, "namespace").is_empty();
    let mut errors = check_object_meta(metadata, rule, namespaced, path);
    if text(metadata, "name").is_empty() {
        let name = path.child("name");
        errors.retain(|error| !(error.problem == Problem::Required && error.path == name));
    }
    errors
}

/// What is wrong with new metadata that is about to replace old metadata.
pub fn check_object_meta_update(new: &Value, old: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if present(old, "deletionTimestamp").is_some() {
        no_new_finalizers(new, old, path, &mut errors);
    }
    if text(new, "resourceVersion").is_empty() {
        let path = path.child("resourceVersion");
        errors.push(FieldError::invalid(path, "", "must be specified for an update"));
    }
    let generation = |metadata: &Value| {
        metadata
            .get("generation")
            .and_then(Value::as_i64)
            .unwrap_or_default()
    };
    if generation(new) < generation(old) {
        let path = path.child("generation");
        errors.push(FieldError::invalid(
            path,
            generation(new),
            "must not be decremented",
        ));
    }
    for name in ["name", "namespace", "uid"] {
        if text(new, name) != text(old, name) {
            errors.push(FieldError::invalid(path.child(name), text(new, name), IMMUTABLE));
        }
    }
    for name in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (new, old) = (present(new, name), present(old, name));
        if !same_moment(new, old) {
            let value = new.cloned().unwrap_or_default();
            errors.push(FieldError::invalid(path.child(name), value, IMMUTABLE));
        }
    }
    labels(new, path, &mut errors);
    annotations(new, path, &mut errors);
    owner_references(new, path, &mut errors);
    managed_fields(new, path, &mut errors);
    errors
}

/// Whether two members are equal; times are when they name the same second, however they spell it.
fn same_moment(new: Option<&Value>, old: Option<&Value>) -> bool {
    let moment = |value: &Value| {
        value
            .as_str()?
            .parse::<jiff::Timestamp>()
            .ok()
            .map(jiff::Timestamp::as_second)
    };
    new == old
        || new
            .and_then(moment)
            .zip(old.and_then(moment))
            .is_some_and(|(new, old)| new == old)
}

fn text<'m>(metadata: &'m Value, name: &str) -> &'m str {
    metadata.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn present<'m>(metadata: &'m Value, name: &str) -> Option<&'m Value> {
    metadata.get(name).filter(|value| !value.is_null())
}

fn list<'m>(metadata: &'m Value, name: &str) -> &'m [Value] {
    metadata
        .get(name)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn entries<'m>(metadata: &'m Value, name: &str) -> impl Iterator<Item = (&'m str, &'m str)> {
    metadata
        .get(name)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

fn namespace(metadata: &Value, namespaced: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let namespace = text(metadata, "namespace");
    let path = path.child("namespace");
    match (namespaced, namespace) {
        (true, "") => errors.push(FieldError::required(path, "")),
        (true, _) => {
            for wrong in dns_label(namespace) {
                errors.push(FieldError::invalid(path.clone(), namespace, wrong));
            }
        }
        (false, "") => {}
        (false, _) => errors.push(FieldError::forbidden(path, "not allowed on this type")),
    }
}

fn labels(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (key, value) in entries(metadata, "labels") {
        for wrong in qualified_name(key) {
            errors.push(FieldError::invalid(path.child("labels"), key, wrong));
        }
        for wrong in label_value(value) {
            errors.push(FieldError::invalid(path.child("labels"), value, wrong));
        }
    }
}

fn annotations(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in entries(metadata, "annotations") {
        // Capitals are allowed everywhere in these keys, the prefix included.
        for wrong in qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path.child("annotations"), key, wrong));
        }
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS_BYTES {
        let problem = Problem::TooLong {
            max_bytes: MAX_ANNOTATIONS_BYTES as u64,
        };
        errors.push(FieldError::new(path.child("annotations"), problem, ""));
    }
}

fn owner_references(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let path = path.child("ownerReferences");
    let mut controller: Option<String> = None;
    for reference in list(metadata, "ownerReferences") {
        let version = text(reference, "apiVersion");
        let kind = text(reference, "kind");
        // Only a version with more than one slash has none of its own.
        if version.is_empty() || version.ends_with('/') || version.matches('/').count() > 1 {
            errors.push(FieldError::invalid(
                path.child("apiVersion"),
                version,
                "version must not be empty",
            ));
        }
        for name in ["kind", "name", "uid"] {
            if text(reference, name).is_empty() {
                errors.push(FieldError::invalid(path.child(name), "", "must not be empty"));
            }
        }
        if version == "v1" && kind == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path.clone(), reference.clone(), detail));
        }
        if reference.get("controller") == Some(&Value::Bool(true)) {
            let this = format!("{kind}/{}", text(reference, "name"));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let all = metadata.get("ownerReferences").cloned().unwrap_or_default();
                    let detail = format!(
                        "Only one reference can have Controller set to true. \
                         Found \"true\" in references for {first} and {this}"
                    );
                    errors.push(FieldError::invalid(path.clone(), all, detail));
                }
            }
        }
    }
}

fn finalizers(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let path = path.child("finalizers");
    let names = list(metadata, "finalizers");
    for name in names.iter().filter_map(Value::as_str) {
        for wrong in qualified_name(name) {
            errors.push(FieldError::invalid(path.clone(), name, wrong));
        }
    }
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, Value::Array(names.to_vec()), detail));
    }
}

fn no_new_finalizers(new: &Value, old: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let old = list(old, "finalizers");
    let mut added: Vec<&str> = list(new, "finalizers")
        .iter()
        .filter(|name| !old.contains(name))
        .filter_map(Value::as_str)
        .collect();
    if added.is_empty() {
        return;
    }
    added.sort_unstable();
    added.dedup();
    let quoted: Vec<String> = added.into_iter().map(go_quoted).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        quoted.join(", ")
    );
    errors.push(FieldError::forbidden(path.child("finalizers"), detail));
}

fn managed_fields(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (index, entry) in list(metadata, "managedFields").iter().enumerate() {
        let path = path.child("managedFields").index(index);
        let operation = text(entry, "operation");
        if !matches!(operation, "Apply" | "Update") {
            errors.push(FieldError::invalid(
                path.child("operation"),
                operation,
                "must be `Apply` or `Update`",
            ));
        }
        let fields_type = text(entry, "fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            errors.push(FieldError::invalid(
                path.child("fieldsType"),
                fields_type,
                "must be `FieldsV1`",
            ));
        }
        field_manager(text(entry, "manager"), &path.child("manager"), errors);
        if text(entry, "subresource").len() > MAX_SUBRESOURCE_BYTES {
            let problem = Problem::TooLong {
                max_bytes: MAX_SUBRESOURCE_BYTES as u64,
            };
            errors.push(FieldError::new(path.child("subresource"), problem, ""));
        }
    }
}

/// What is wrong with the name of a field manager, here and in the `fieldManager` parameter of a request.
pub fn check_field_manager(name: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    field_manager(name, path, &mut errors);
    errors
}

fn field_manager(name: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if name.len() > MAX_MANAGER_BYTES {
        let problem = Problem::TooLong {
            max_bytes: MAX_MANAGER_BYTES as u64,
        };
        errors.push(FieldError::new(path.clone(), problem, ""));
    }
    for (position, char) in name.char_indices() {
        if char.is_control() || (char.is_whitespace() && char != ' ') {
            let detail = format!(
                "invalid character U+{:04X} (at position {position})",
                u32::from(char)
            );
            errors.push(FieldError::invalid(path.clone(), name, detail));
        }
    }
}

#[cfg(test)]
mod tests;
