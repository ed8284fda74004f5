//! Labels, label selectors and the rules by which pods are placed.

use serde_json::Value;

use super::{
    super::look::{at, entries, list, number, text},
    errors::{Errors, NOT_POSITIVE},
    names,
};
use crate::field::FieldPath;

pub(super) fn labels(errors: &mut Errors, owner: &Value, member: &str, path: &FieldPath) {
    for (key, value) in entries(owner, member) {
        let value = value.as_str().unwrap_or_default();
        errors.messages(path, key, names::qualified_name(key));
        errors.messages(path, value, names::label_value(value));
    }
}

pub(super) fn label_selector(errors: &mut Errors, selector: Option<&Value>, path: &FieldPath) {
    let Some(selector) = selector else { return };
    labels(errors, selector, "matchLabels", &path.child("matchLabels"));
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(index);
        let values = list(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(
                    path.child("values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                );
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(
                path.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
        }
        let key = text(expression, "key");
        errors.messages(&path.child("key"), key, names::qualified_name(key));
        for (position, value) in values.iter().filter_map(Value::as_str).enumerate() {
            errors.messages(
                &path.child("values").index(position),
                value,
                names::label_value(value),
            );
        }
    }
}

/// Whether a selector accepts these labels. An absent selector accepts nothing.
pub(super) fn selects(selector: Option<&Value>, labels: &Value) -> bool {
    let Some(selector) = selector else { return false };
    let matches = |key: &str, values: &[Value]| labels.get(key).is_some_and(|value| values.contains(value));
    entries(selector, "matchLabels").all(|(key, value)| labels.get(key) == Some(value))
        && list(selector, "matchExpressions").iter().all(|expression| {
            let key = text(expression, "key");
            let values = list(expression, "values");
            match text(expression, "operator") {
                "In" => matches(key, values),
                "NotIn" => !matches(key, values),
                "Exists" => labels.get(key).is_some(),
                "DoesNotExist" => labels.get(key).is_none(),
                _ => false,
            }
        })
}

pub(super) fn tolerations(errors: &mut Errors, tolerations: &[Value], path: &FieldPath) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() {
            errors.messages(&path.child("key"), key, names::qualified_name(key));
        } else if operator != "Exists" {
            errors.invalid(
                path.child("operator"),
                operator,
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if at(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            errors.invalid(
                path.child("effect"),
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        match operator {
            "Equal" | "" => {
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    errors.invalid(path.child("operator"), value, wrong.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid(
                    path.child("operator"),
                    value,
                    "value must be empty when `operator` is 'Exists'",
                );
            }
            "Exists" => {}
            "Lt" | "Gt" => {
                errors.not_supported(path.child("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]);
            }
            other => errors.not_supported(path.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            taint_effect(errors, effect, path.child("effect"));
        }
    }
}

pub(super) fn taint_effect(errors: &mut Errors, effect: &str, path: FieldPath) {
    errors.one_of(path, effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
}

pub(super) fn spread_constraints(errors: &mut Errors, constraints: &[Value], path: &FieldPath) {
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let skew = number(constraint, "maxSkew").unwrap_or_default();
        if skew <= 0 {
            errors.invalid(path.child("maxSkew"), skew, NOT_POSITIVE);
        }
        let (key, action) = (
            text(constraint, "topologyKey"),
            text(constraint, "whenUnsatisfiable"),
        );
        if key.is_empty() {
            errors.required(path.child("topologyKey"), "can not be empty");
        }
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            errors.not_supported(
                path.child("whenUnsatisfiable"),
                action,
                &["DoNotSchedule", "ScheduleAnyway"],
            );
        }
        let again = constraints
            .iter()
            .skip(index + 1)
            .any(|other| text(other, "topologyKey") == key && text(other, "whenUnsatisfiable") == action);
        if again {
            errors.duplicate(
                path.child("{topologyKey, whenUnsatisfiable}"),
                format!("{{{key}, {action}}}"),
            );
        }
        if let Some(domains) = number(constraint, "minDomains") {
            let path = path.child("minDomains");
            if domains <= 0 {
                errors.invalid(path.clone(), domains, NOT_POSITIVE);
            }
            if action != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(path, domains, detail);
            }
        }
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(policy) = at(constraint, name).and_then(Value::as_str)
                && !matches!(policy, "Honor" | "Ignore")
            {
                errors.not_supported(path.child(name), policy, &["Honor", "Ignore"]);
            }
        }
        match_label_keys(errors, constraint, &path);
        label_selector(
            errors,
            at(constraint, "labelSelector"),
            &path.child("labelSelector"),
        );
    }
}

/// Keys in `matchLabelKeys` and `mismatchLabelKeys` need a selector to be added to, and must not be in it already.
fn match_label_keys(errors: &mut Errors, owner: &Value, path: &FieldPath) {
    let selector = at(owner, "labelSelector");
    for name in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = list(owner, name);
        if keys.is_empty() {
            continue;
        }
        if selector.is_none() {
            errors.forbidden(
                path.child(name),
                "must not be specified when labelSelector is not set",
            );
            continue;
        }
        for (index, key) in keys.iter().filter_map(Value::as_str).enumerate() {
            errors.messages(&path.child(name).index(index), key, names::qualified_name(key));
        }
    }
    let Some(selector) = selector else { return };
    let mut seen: Vec<&str> = entries(selector, "matchLabels")
        .map(|(key, _)| key.as_str())
        .collect();
    let matched = list(owner, "matchLabelKeys");
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        if let Some(index) = matched.iter().position(|one| one == key)
            && seen.contains(&key)
        {
            errors.invalid(
                path.index(index),
                key,
                "exists in both matchLabelKeys and labelSelector",
            );
        }
        seen.push(key);
    }
    for (index, key) in matched.iter().enumerate() {
        if list(owner, "mismatchLabelKeys").contains(key) {
            let path = path.child("matchLabelKeys").index(index);
            errors.invalid(
                path,
                key.clone(),
                "exists in both matchLabelKeys and mismatchLabelKeys",
            );
        }
    }
}

pub(super) fn affinity(errors: &mut Errors, affinity: &Value, path: &FieldPath) {
    if let Some(node) = at(affinity, "nodeAffinity") {
        let path = path.child("nodeAffinity");
        if let Some(required) = at(node, "requiredDuringSchedulingIgnoredDuringExecution") {
            let path = path
                .child("requiredDuringSchedulingIgnoredDuringExecution")
                .child("nodeSelectorTerms");
            let terms = list(required, "nodeSelectorTerms");
            if terms.is_empty() {
                errors.required(path.clone(), "must have at least one node selector term");
            }
            for (index, term) in terms.iter().enumerate() {
                node_term(errors, term, &path.index(index));
            }
        }
        let path = path.child("preferredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in list(node, "preferredDuringSchedulingIgnoredDuringExecution")
            .iter()
            .enumerate()
        {
            let path = path.index(index);
            weight(errors, term, &path);
            node_term(
                errors,
                term.get("preference").unwrap_or(&Value::Null),
                &path.child("preference"),
            );
        }
    }
    for name in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = at(affinity, name) else { continue };
        let path = path.child(name);
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in list(pods, required).iter().enumerate() {
            pod_term(errors, term, &path.child(required).index(index));
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in list(pods, preferred).iter().enumerate() {
            let path = path.child(preferred).index(index);
            weight(errors, term, &path);
            let term = term.get("podAffinityTerm").unwrap_or(&Value::Null);
            pod_term(errors, term, &path.child("podAffinityTerm"));
        }
    }
}

fn weight(errors: &mut Errors, term: &Value, path: &FieldPath) {
    let weight = number(term, "weight").unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.invalid(path.child("weight"), weight, "must be in the range 1-100");
    }
}

fn node_term(errors: &mut Errors, term: &Value, path: &FieldPath) {
    for (index, expression) in list(term, "matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(index);
        let values = list(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(
                    path.child("values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                );
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(
                path.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "Gt" | "Lt" if values.len() != 1 => errors.required(
                path.child("values"),
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
        }
        let key = text(expression, "key");
        errors.messages(&path.child("key"), key, names::qualified_name(key));
    }
}

fn pod_term(errors: &mut Errors, term: &Value, path: &FieldPath) {
    label_selector(errors, at(term, "labelSelector"), &path.child("labelSelector"));
    label_selector(
        errors,
        at(term, "namespaceSelector"),
        &path.child("namespaceSelector"),
    );
    for namespace in list(term, "namespaces").iter().filter_map(Value::as_str) {
        errors.messages(&path.child("namespace"), namespace, names::dns_label(namespace));
    }
    match_label_keys(errors, term, path);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.required(path.child("topologyKey"), "can not be empty");
    }
    errors.messages(&path.child("topologyKey"), key, names::qualified_name(key));
}
