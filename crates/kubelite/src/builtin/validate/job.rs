//! Jobs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::look::{at, flag, list, number, text},
    errors::Errors,
    names,
    pod::{self, Place},
    selectors,
};
use crate::field::FieldPath;

const PARALLELISM_MAX: i64 = 100_000;
const FAILED_INDEXES_MAX: i64 = 100_000;
const RULES_MAX: u64 = 20;
const EXIT_CODES_MAX: u64 = 255;
const MANAGER_MAX: u64 = 63;

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: &[&str] = &["In", "NotIn"];
const STATES: &[&str] = &["False", "True", "Unknown"];

pub(super) fn job(errors: &mut Errors, job: &Value) {
    generated_selector(errors, job);
    let path = FieldPath::new("spec");
    let spec = job.get("spec").unwrap_or(&Value::Null);
    self::spec(errors, spec, &path);
    let selector = at(spec, "selector");
    if selector.is_none() {
        errors.required(path.child("selector"), "");
    }
    selectors::label_selector(errors, selector, &path.child("selector"));
    let labels = at(spec, "template.metadata.labels").cloned().unwrap_or_default();
    if !selectors::selects(selector, &labels) {
        let path = path.child("template").child("metadata").child("labels");
        errors.invalid(path, labels, "`selector` does not match template `labels`");
    }
    if is_indexed(spec)
        && let Some(completions) = number(spec, "completions").filter(|completions| *completions > 0)
    {
        let name = text(job, "metadata.name");
        let host = format!("{name}-{}", completions - 1);
        if !names::dns_label(&host).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {host}");
            errors.invalid(FieldPath::new("metadata.name"), name, detail);
        }
    }
}

fn is_indexed(spec: &Value) -> bool {
    text(spec, "completionMode") == "Indexed"
}

/// Without a selector of its own, the labels that the server made must still be there.
fn generated_selector(errors: &mut Errors, job: &Value) {
    if flag(job, "spec.manualSelector") || at(job, "spec.selector").is_none() {
        return;
    }
    let (uid, name) = (text(job, "metadata.uid"), text(job, "metadata.name"));
    if uid.is_empty() {
        errors.required(FieldPath::new("metadata.uid"), "");
    }
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    let path = FieldPath::new("spec.template.metadata.labels");
    let labels = at(job, "spec.template.metadata.labels")
        .cloned()
        .unwrap_or_default();
    for (label, value) in expected {
        let detail = format!("must be '{value}'");
        match labels.get(label) {
            None => errors.required(path.key(label), detail),
            Some(found) if found != value => errors.invalid(path.key(label), labels.clone(), detail),
            Some(_) => {}
        }
    }
    let expected: Value = expected
        .into_iter()
        .map(|(label, value)| (label.to_owned(), json!(value)))
        .collect();
    let selector = at(job, "spec.selector");
    if !selectors::selects(selector, &expected) {
        let detail = "`selector` not auto-generated";
        errors.invalid(
            FieldPath::new("spec.selector"),
            selector.cloned().unwrap_or_default(),
            detail,
        );
    }
}

fn spec(errors: &mut Errors, spec: &Value, path: &FieldPath) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.not_negative(path.child(field), number(spec, field));
    }
    let per_index = at(spec, "backoffLimitPerIndex").is_some();
    if at(spec, "maxFailedIndexes").is_some() && !per_index {
        errors.required(
            path.child("backoffLimitPerIndex"),
            "when maxFailedIndexes is specified",
        );
    }
    if let Some(manager) = at(spec, "managedBy").and_then(Value::as_str) {
        managed_by(errors, manager, &path.child("managedBy"));
    }
    completion_mode(errors, spec, path);
    if let Some(policy) = at(spec, "podFailurePolicy") {
        failure_policy(errors, spec, policy, &path.child("podFailurePolicy"));
    }
    if let Some(policy) = at(spec, "successPolicy") {
        success_policy(errors, spec, policy, &path.child("successPolicy"));
    }
    replacement_policy(errors, spec, path.child("podReplacementPolicy"));
    let template = path.child("template");
    selectors::labels(
        errors,
        spec,
        "template.metadata.labels",
        &template.child("labels"),
    );
    let pod_spec = at(spec, "template.spec").unwrap_or(&Value::Null);
    pod::spec(errors, pod_spec, Place::Template, &template.child("spec"));
    if !list(pod_spec, "ephemeralContainers").is_empty() {
        let path = template.child("spec").child("ephemeralContainers");
        errors.forbidden(path, "ephemeral containers not allowed in pod template");
    }
    restart_policy(
        errors,
        spec,
        pod_spec,
        template.child("spec").child("restartPolicy"),
    );
}

fn restart_policy(errors: &mut Errors, spec: &Value, pod_spec: &Value, path: FieldPath) {
    let policy = text(pod_spec, "restartPolicy");
    match policy {
        "" | "Always" => errors.required(path, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if at(spec, "podFailurePolicy").is_some() => {
            errors.invalid(
                path,
                policy,
                "only \"Never\" is supported when podFailurePolicy is specified",
            );
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(path, other, &["OnFailure", "Never"]),
    }
}

fn managed_by(errors: &mut Errors, manager: &str, path: &FieldPath) {
    match manager.split_once('/') {
        _ if manager.is_empty() => errors.required(path.clone(), ""),
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            errors.messages(path, host, names::dns_subdomain(host));
        }
        _ => errors.invalid(
            path.clone(),
            manager,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
    }
    if manager.len() as u64 > MANAGER_MAX {
        errors.too_long(path.clone(), MANAGER_MAX);
    }
}

fn completion_mode(errors: &mut Errors, spec: &Value, path: &FieldPath) {
    let mode = text(spec, "completionMode");
    if !matches!(mode, "" | "NonIndexed" | "Indexed") {
        errors.not_supported(path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    if mode != "Indexed" {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = number(spec, field) {
                errors.invalid(path.child(field), value, "requires indexed completion mode");
            }
        }
        return;
    }
    let completions = number(spec, "completions");
    if completions.is_none() {
        errors.required(path.child("completions"), "when completion mode is Indexed");
    }
    if let Some(value) = number(spec, "parallelism").filter(|value| *value > PARALLELISM_MAX) {
        let detail =
            format!("must be less than or equal to {PARALLELISM_MAX} when completion mode is Indexed");
        errors.invalid(path.child("parallelism"), value, detail);
    }
    if let Some(failed) = number(spec, "maxFailedIndexes") {
        if completions.is_some_and(|completions| failed > completions) {
            errors.invalid(
                path.child("maxFailedIndexes"),
                failed,
                "must be less than or equal to completions",
            );
        }
        if failed > FAILED_INDEXES_MAX {
            let detail = format!("must be less than or equal to {FAILED_INDEXES_MAX}");
            errors.invalid(path.child("maxFailedIndexes"), failed, detail);
        }
    }
}

fn replacement_policy(errors: &mut Errors, spec: &Value, path: FieldPath) {
    let Some(policy) = at(spec, "podReplacementPolicy").and_then(Value::as_str) else {
        return;
    };
    let allowed: &[&str] = if at(spec, "podFailurePolicy").is_some() {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    if !allowed.contains(&policy) {
        errors.not_supported(path, policy, allowed);
    }
}

/// A list of values as Go prints it in brackets.
fn valid_values(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn failure_policy(errors: &mut Errors, spec: &Value, policy: &Value, path: &FieldPath) {
    let rules = list(policy, "rules");
    let path = path.child("rules");
    if rules.len() as u64 > RULES_MAX {
        errors.too_many(path.clone(), rules.len(), RULES_MAX);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        match text(rule, "action") {
            "" => errors.required(path.child("action"), valid_values(ACTIONS)),
            "FailIndex" if at(spec, "backoffLimitPerIndex").is_none() => {
                let detail = "requires the backoffLimitPerIndex to be set";
                errors.invalid(path.child("action"), "FailIndex", detail);
            }
            action if !ACTIONS.contains(&action) => {
                errors.not_supported(path.child("action"), action, ACTIONS);
            }
            _ => {}
        }
        let codes = at(rule, "onExitCodes");
        let conditions = list(rule, "onPodConditions");
        if let Some(codes) = codes {
            exit_codes(errors, spec, codes, &path.child("onExitCodes"));
        }
        pod_conditions(errors, conditions, &path.child("onPodConditions"));
        match (codes.is_some(), conditions.is_empty()) {
            (true, false) => {
                errors.inconsistent(
                    path,
                    "specifying both OnExitCodes and OnPodConditions is not supported",
                );
            }
            (false, true) => {
                errors.inconsistent(
                    path,
                    "specifying one of OnExitCodes and OnPodConditions is required",
                );
            }
            _ => {}
        }
    }
}

fn pod_conditions(errors: &mut Errors, conditions: &[Value], path: &FieldPath) {
    if conditions.len() as u64 > RULES_MAX {
        errors.too_many(path.clone(), conditions.len(), RULES_MAX);
    }
    for (index, pattern) in conditions.iter().enumerate() {
        let path = path.index(index);
        let (kind, status) = (text(pattern, "type"), text(pattern, "status"));
        errors.messages(&path.child("type"), kind, names::qualified_name(kind));
        if status.is_empty() {
            errors.required(path.child("status"), valid_values(STATES));
        } else if !STATES.contains(&status) {
            errors.not_supported(path.child("status"), status, STATES);
        }
    }
}

fn exit_codes(errors: &mut Errors, spec: &Value, codes: &Value, path: &FieldPath) {
    let operator = text(codes, "operator");
    if operator.is_empty() {
        errors.required(path.child("operator"), valid_values(OPERATORS));
    } else if !OPERATORS.contains(&operator) {
        errors.not_supported(path.child("operator"), operator, OPERATORS);
    }
    if let Some(name) = at(codes, "containerName").and_then(Value::as_str) {
        let known = ["template.spec.containers", "template.spec.initContainers"]
            .iter()
            .flat_map(|path| list(spec, path))
            .any(|container| text(container, "name") == name);
        if !known {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.invalid(path.child("containerName"), name, detail);
        }
    }
    let values = list(codes, "values");
    let path = path.child("values");
    if values.is_empty() {
        errors.invalid(path.clone(), Value::Null, "at least one value is required");
    } else if values.len() as u64 > EXIT_CODES_MAX {
        errors.too_many(path.clone(), values.len(), EXIT_CODES_MAX);
    }
    let numbers: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    let mut seen = BTreeSet::new();
    for (index, code) in numbers.iter().enumerate() {
        if operator == "In" && *code == 0 {
            errors.invalid(path.index(index), *code, "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            errors.duplicate(path.index(index), *code);
        }
    }
    if !numbers.is_sorted() {
        errors.invalid(path, values.to_vec(), "must be ordered");
    }
}

fn success_policy(errors: &mut Errors, spec: &Value, policy: &Value, path: &FieldPath) {
    if !is_indexed(spec) {
        errors.invalid(path.clone(), policy.clone(), "requires indexed completion mode");
        return;
    }
    let rules = list(policy, "rules");
    let path = path.child("rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(path.clone(), detail);
    }
    if rules.len() as u64 > RULES_MAX {
        errors.too_many(path.clone(), rules.len(), RULES_MAX);
    }
    let completions = number(spec, "completions").unwrap_or_default();
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let count = number(rule, "succeededCount");
        let indexes = at(rule, "succeededIndexes").and_then(Value::as_str);
        if count.is_none() && indexes.is_none() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.required(path.clone(), detail);
        }
        let total = indexes.map(|indexes| (indexes, count_indexes(indexes, completions)));
        if let Some((indexes, Err(problem))) = &total {
            let detail = format!("error parsing succeededIndexes: {problem}");
            errors.invalid(path.child("succeededIndexes"), *indexes, detail);
        }
        let Some(count) = count else { continue };
        let path = path.child("succeededCount");
        errors.not_negative(path.clone(), Some(count));
        if count > completions {
            let detail =
                format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.invalid(path.clone(), count, detail);
        }
        if let Some((_, Ok(total))) = total
            && count > total
        {
            let detail = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.invalid(path, count, detail);
        }
    }
}

/// How many indexes a text such as `1,3-5` names, all of them below `completions`.
pub(super) fn count_indexes(indexes: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    let parse = |part: &str| {
        let index: i64 = part
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: \"{part}\""))?;
        if index >= completions {
            Err(format!("too large index: \"{part}\""))
        } else {
            Ok(index)
        }
    };
    let order = |previous: i64, current: i64| {
        format!("non-increasing order, previous: {previous}, current: {current}")
    };
    for interval in indexes.split(',').filter(|_| !indexes.is_empty()) {
        let parts: Vec<&str> = interval.split('-').collect();
        let (first, end) = match parts.as_slice() {
            [one] => (parse(one)?, None),
            [first, end] => (parse(first)?, Some(parse(end)?)),
            _ => {
                return Err(format!(
                    "the fragment \"{interval}\" violates the requirement that an index interval can have at most two parts separated by '-'"
                ));
            }
        };
        if let Some(end) = end.filter(|end| first >= *end) {
            return Err(order(first, end));
        }
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(order(last, first));
        }
        let end = end.unwrap_or(first);
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    job(errors, new);
    let path = FieldPath::new("spec");
    let (new_spec, old_spec) = (
        new.get("spec").unwrap_or(&Value::Null),
        old.get("spec").unwrap_or(&Value::Null),
    );
    let completions = (at(new_spec, "completions"), at(old_spec, "completions"));
    if !is_indexed(new_spec) {
        errors.unchanged(path.child("completions"), completions.0, completions.1);
    } else if completions.0 != completions.1
        && let Some(value) = completions.0
        && at(new_spec, "parallelism") != Some(value)
    {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.invalid(path.child("completions"), value.clone(), detail);
    }
    errors.unchanged(
        path.child("selector"),
        at(new_spec, "selector"),
        at(old_spec, "selector"),
    );
    let mut template = at(old_spec, "template").cloned().unwrap_or_default();
    let suspended = flag(old_spec, "suspend") && at(old, "status.startTime").is_none();
    if suspended {
        allow_scheduling_changes(&mut template, at(new_spec, "template").unwrap_or(&Value::Null));
    }
    errors.unchanged(path.child("template"), at(new_spec, "template"), Some(&template));
    for field in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        errors.unchanged(path.child(field), at(new_spec, field), at(old_spec, field));
    }
}

/// A job that was never started may still be told where its pods go.
fn allow_scheduling_changes(old: &mut Value, new: &Value) {
    let take = |old: &mut Value, new: Option<&Value>, field: &str| {
        let Some(old) = old.as_object_mut() else { return };
        match new.and_then(|new| new.get(field)) {
            Some(value) => old.insert(field.to_owned(), value.clone()),
            None => old.remove(field),
        };
    };
    if let Some(spec) = old.get_mut("spec") {
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            take(spec, new.get("spec"), field);
        }
        let other_rules = |spec: &Value| {
            let mut affinity = at(spec, "affinity").cloned().unwrap_or_default();
            if let Some(affinity) = affinity.as_object_mut() {
                affinity.remove("nodeAffinity");
            }
            affinity
                .as_object()
                .is_some_and(|affinity| !affinity.is_empty())
                .then_some(affinity)
        };
        if new
            .get("spec")
            .is_some_and(|new| other_rules(new) == other_rules(spec))
        {
            take(spec, new.get("spec"), "affinity");
        }
    }
    if let Some(metadata) = old.get_mut("metadata") {
        for field in ["annotations", "labels"] {
            take(metadata, new.get("metadata"), field);
        }
    }
}
