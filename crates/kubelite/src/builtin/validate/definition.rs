//! CustomResourceDefinitions, apart from the schemas in them.
//!
//! Kubernetes keeps a part that all versions have in common once, above the versions, and names it there in its messages.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    super::look::{at, flag, list, text},
    errors::Errors,
    names,
};
use crate::field::FieldPath;

const SELECTABLE_MAX: u64 = 8;
const WARNING_MAX: usize = 256;
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &[
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
const APPROVAL: &str = "api-approved.kubernetes.io";

pub(super) fn create(errors: &mut Errors, definition: &Value) {
    let name = text(definition, "metadata.name");
    let required = format!(
        "{}.{}",
        text(definition, "spec.names.plural"),
        text(definition, "spec.group")
    );
    if name != required {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.invalid(FieldPath::new("metadata.name"), name, detail);
    }
    whole(errors, definition);
    approval(errors, definition);
}

pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    whole(errors, new);
    let mut fixed = vec!["group", "names.plural"];
    let established = list(old, "status.conditions")
        .iter()
        .any(|one| text(one, "type") == "Established" && text(one, "status") == "True");
    if established {
        fixed.extend(["scope", "names.kind"]);
    }
    for field in fixed {
        let path = format!("spec.{field}");
        errors.unchanged(FieldPath::new(&path), at(new, &path), at(old, &path));
    }
    if annotation(new) != annotation(old) {
        approval(errors, new);
    }
}

pub(super) fn update_status(errors: &mut Errors, new: &Value) {
    if let Some(names) = at(new, "status.acceptedNames") {
        self::names(errors, names, &FieldPath::new("status.acceptedNames"));
    }
}

fn whole(errors: &mut Errors, definition: &Value) {
    let path = FieldPath::new("spec");
    let spec = definition.get("spec").unwrap_or(&Value::Null);
    self::spec(errors, spec, &path);
    update_status(errors, definition);
    stored_versions(errors, definition, &FieldPath::new("status.storedVersions"));
    if flag(spec, "preserveUnknownFields") {
        errors.invalid(
            path.child("preserveUnknownFields"),
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
}

fn spec(errors: &mut Errors, spec: &Value, path: &FieldPath) {
    let group = text(spec, "group");
    if group.is_empty() {
        errors.required(path.child("group"), "");
    } else {
        let wrong = names::dns_subdomain(group);
        if !wrong.is_empty() {
            errors.invalid(path.child("group"), group, wrong.join(","));
        } else if !group.contains('.') {
            errors.invalid(
                path.child("group"),
                group,
                "should be a domain with at least one dot",
            );
        }
    }
    errors.one_of(
        path.child("scope"),
        text(spec, "scope"),
        &["Cluster", "Namespaced"],
    );
    versions(errors, spec, path);
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(spec, &format!("names.{name}")).is_empty() {
            errors.required(path.child("names").child(name), "");
        }
    }
    if let Some(names) = at(spec, "names") {
        self::names(errors, names, &path.child("names"));
    }
    conversion(errors, spec, &path.child("conversion"));
}

fn versions(errors: &mut Errors, spec: &Value, path: &FieldPath) {
    let versions = list(spec, "versions");
    let versions_path = path.child("versions");
    for (index, version) in versions.iter().enumerate() {
        if at(version, "schema.openAPIV3Schema").is_none() {
            errors.required(
                versions_path
                    .index(index)
                    .child("schema")
                    .child("openAPIV3Schema"),
                "",
            );
        }
    }
    let mut taken = BTreeSet::new();
    let mut unique = true;
    for (index, version) in versions.iter().enumerate() {
        let path = versions_path.index(index);
        let name = text(version, "name");
        unique &= taken.insert(name);
        let wrong = names::dns_1035_label(name);
        if !wrong.is_empty() {
            errors.invalid(path.child("name"), name, wrong.join(","));
        }
        deprecation(errors, version, &path.child("deprecationWarning"));
    }
    if !unique {
        errors.invalid(
            versions_path.clone(),
            versions.to_vec(),
            "must contain unique version names",
        );
    }
    if versions.iter().filter(|version| flag(version, "storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.invalid(versions_path.clone(), versions.to_vec(), detail);
    }
    let common = |part: &str| {
        versions
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if at(a, part) == at(b, part)))
    };
    let places = |part: &str| -> Vec<(FieldPath, &Value)> {
        match versions.first() {
            Some(first) if common(part) => vec![(path.clone(), first)],
            _ => versions
                .iter()
                .enumerate()
                .map(|(index, one)| (versions_path.index(index), one))
                .collect(),
        }
    };
    for (path, version) in places("subresources") {
        scale(errors, version, &path.child("subresources"));
    }
    for (path, version) in places("additionalPrinterColumns") {
        for (index, column) in list(version, "additionalPrinterColumns").iter().enumerate() {
            self::column(
                errors,
                column,
                &path.child("additionalPrinterColumns").index(index),
            );
        }
    }
    for (path, version) in places("selectableFields") {
        selectable(errors, version, &path.child("selectableFields"));
    }
}

fn deprecation(errors: &mut Errors, version: &Value, path: &FieldPath) {
    let Some(warning) = at(version, "deprecationWarning").and_then(Value::as_str) else {
        return;
    };
    if !flag(version, "deprecated") {
        errors.invalid(path.clone(), warning, "can only be set for deprecated versions");
        return;
    }
    if warning.len() > WARNING_MAX {
        errors.invalid(
            path.clone(),
            warning,
            format!("must be <= {WARNING_MAX} characters long"),
        );
    }
    if warning.is_empty() {
        errors.invalid(path.clone(), warning, "must not be an empty string");
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, letter)| letter.is_control()) {
        let detail = format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        );
        errors.invalid(path.clone(), warning, detail);
    }
}

fn names(errors: &mut Errors, names: &Value, path: &FieldPath) {
    let mut label = |path: FieldPath, name: &str, lower: bool| {
        let wrong = names::dns_1035_label(&if lower {
            name.to_lowercase()
        } else {
            name.to_owned()
        });
        if !name.is_empty() && !wrong.is_empty() {
            let start = if lower {
                "may have mixed case, but should otherwise match: "
            } else {
                ""
            };
            errors.invalid(path, name, format!("{start}{}", wrong.join(",")));
        }
    };
    label(path.child("plural"), text(names, "plural"), false);
    label(path.child("singular"), text(names, "singular"), false);
    label(path.child("kind"), text(names, "kind"), true);
    label(path.child("listKind"), text(names, "listKind"), true);
    for (index, name) in list(names, "shortNames")
        .iter()
        .filter_map(Value::as_str)
        .enumerate()
    {
        label(path.child("shortNames").index(index), name, false);
    }
    for (index, name) in list(names, "categories")
        .iter()
        .filter_map(Value::as_str)
        .enumerate()
    {
        label(path.child("categories").index(index), name, false);
    }
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        errors.invalid(
            path.child("listKind"),
            list_kind,
            "kind and listKind may not be the same",
        );
    }
}

fn simple_json_path(errors: &mut Errors, text: &str, path: &FieldPath) -> bool {
    let good = text.starts_with('.');
    if !good {
        errors.invalid(path.clone(), text, "must be a simple json path starting with .");
    }
    good
}

fn scale(errors: &mut Errors, version: &Value, path: &FieldPath) {
    let Some(scale) = at(version, "subresources.scale") else {
        return;
    };
    for (field, start) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let value = text(scale, field);
        let path = path.child("scale").child(field);
        if value.is_empty() {
            errors.required(path, "");
        } else if simple_json_path(errors, value, &path) && !value.starts_with(start) {
            let root = start.trim_end_matches('.');
            errors.invalid(path, value, format!("should be a json path under {root}"));
        }
    }
    let selector = text(scale, "labelSelectorPath");
    let path = path.child("scale").child("labelSelectorPath");
    if !selector.is_empty()
        && simple_json_path(errors, selector, &path)
        && !selector.starts_with(".spec.")
        && !selector.starts_with(".status.")
    {
        errors.invalid(
            path,
            selector,
            "should be a json path under either .spec or .status",
        );
    }
}

fn column(errors: &mut Errors, column: &Value, path: &FieldPath) {
    if text(column, "name").is_empty() {
        errors.required(path.child("name"), "");
    }
    let kind = text(column, "type");
    let one_of = format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.is_empty() {
        errors.required(path.child("type"), one_of);
    } else if !COLUMN_TYPES.contains(&kind) {
        errors.invalid(path.child("type"), kind, one_of);
    }
    let format = text(column, "format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.invalid(path.child("format"), format, detail);
    }
    let json_path = text(column, "jsonPath");
    if json_path.is_empty() {
        errors.required(path.child("JSONPath"), "");
    } else {
        simple_json_path(errors, json_path, &path.child("JSONPath"));
    }
}

fn selectable(errors: &mut Errors, version: &Value, path: &FieldPath) {
    let fields = list(version, "selectableFields");
    if fields.is_empty() {
        return;
    }
    let Some(schema) = at(version, "schema.openAPIV3Schema") else {
        let detail = "may only be set when validations.schema is included";
        errors.invalid(path.clone(), "", detail);
        return;
    };
    let mut taken = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let json_path = text(field, "jsonPath");
        let path = path.index(index).child("jsonPath");
        if json_path.is_empty() {
            errors.required(path, "");
            continue;
        }
        let found = json_path.strip_prefix('.').and_then(|dotted| {
            dotted
                .split('.')
                .try_fold(schema, |schema, name| schema.get("properties")?.get(name))
        });
        let in_metadata = json_path.starts_with(".metadata.");
        let Some(found) = found.or(in_metadata.then_some(&Value::Null)) else {
            errors.invalid(
                path,
                json_path,
                "is an invalid path: does not refer to a valid field",
            );
            continue;
        };
        if in_metadata {
            errors.invalid(path.clone(), json_path, "must not point to fields in metadata");
        }
        if !matches!(text(found, "type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.invalid(path.clone(), json_path, detail);
        }
        if !taken.insert(json_path) {
            errors.duplicate(path, json_path);
        }
    }
    if taken.len() as u64 > SELECTABLE_MAX {
        errors.too_many(path.clone(), taken.len(), SELECTABLE_MAX);
    }
}

fn conversion(errors: &mut Errors, spec: &Value, path: &FieldPath) {
    let Some(conversion) = at(spec, "conversion") else {
        return;
    };
    match text(conversion, "strategy") {
        "Webhook" => errors.invalid(
            path.child("strategy"),
            "Webhook",
            "this server calls no webhooks: the only strategy is None",
        ),
        strategy => errors.one_of(path.child("strategy"), strategy, &["None", "Webhook"]),
    }
    if text(conversion, "strategy") != "Webhook" && at(conversion, "webhook").is_some() {
        let detail = "should not be set when strategy is not set to Webhook";
        errors.forbidden(path.child("webhookClientConfig"), detail);
    }
}

fn stored_versions(errors: &mut Errors, definition: &Value, path: &FieldPath) {
    let stored = list(definition, "status.storedVersions");
    if stored.is_empty() {
        errors.invalid(path.clone(), Value::Null, "must have at least one stored version");
        return;
    }
    let versions = list(definition, "spec.versions");
    for version in versions.iter().filter(|version| flag(version, "storage")) {
        let name = text(version, "name");
        if !stored.iter().any(|known| known == name) {
            let detail = format!("must have the storage version {name}");
            errors.invalid(path.clone(), stored.to_vec(), detail);
        }
    }
    for (index, name) in stored.iter().filter_map(Value::as_str).enumerate() {
        if !versions.iter().any(|version| text(version, "name") == name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.invalid(path.index(index), name, detail);
        }
    }
}

fn annotation(definition: &Value) -> &str {
    at(definition, "metadata.annotations")
        .and_then(|all| all.get(APPROVAL)?.as_str())
        .unwrap_or_default()
}

/// Groups of the Kubernetes community are not for everybody.
fn approval(errors: &mut Errors, definition: &Value) {
    let group = text(definition, "spec.group");
    let guarded = ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    let value = annotation(definition);
    let is_url = value
        .split_once("://")
        .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty());
    if !guarded || value.starts_with("unapproved") || is_url {
        return;
    }
    let path = FieldPath::new("metadata.annotations").key(APPROVAL);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    if value.is_empty() {
        errors.required(
            path,
            format!("protected groups must have approval annotation \"{APPROVAL}\", {see}"),
        );
    } else {
        let detail = format!(
            "protected groups must have approval annotation \"{APPROVAL}\" with either a URL or a reason starting with \"unapproved\", {see}"
        );
        errors.invalid(path, value, detail);
    }
}
