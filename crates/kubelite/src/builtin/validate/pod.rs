//! Pods and templates of pods.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::look::{at, flag, list, number, text},
    container::{self, Surroundings},
    errors::Errors,
    names, selectors,
    volume::volumes,
};
use crate::field::FieldPath;

const SECONDS_MAX: i64 = i32::MAX as i64;
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;

/// What may change in a pod once it exists, in the words of the message that says so.
const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Whether a spec stands in a pod or in a template, where some rules wait for the pod.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    Pod,
    Template,
}

pub(super) fn create(errors: &mut Errors, pod: &Value) {
    let path = FieldPath::new("spec");
    whole(errors, pod);
    if !list(pod, "spec.ephemeralContainers").is_empty() {
        errors.forbidden(path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !text(pod, "spec.nodeName").is_empty() && !list(pod, "spec.schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(path.child("nodeName"), detail);
    }
}

/// What holds for every pod, new or changed.
fn whole(errors: &mut Errors, pod: &Value) {
    let path = FieldPath::new("spec");
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    self::spec(errors, spec, Place::Pod, &path);
    for list_name in ["containers", "initContainers"] {
        for (index, container) in list(spec, list_name).iter().enumerate() {
            let image = text(container, "image");
            if image.trim() != image {
                errors.invalid(
                    path.child(list_name).index(index).child("image"),
                    image,
                    "must not have leading or trailing whitespace",
                );
            }
        }
    }
}

pub(super) fn spec(errors: &mut Errors, spec: &Value, place: Place, path: &FieldPath) {
    let grace_period = number(spec, "terminationGracePeriodSeconds");
    if grace_period.is_none() {
        errors.required(path.child("terminationGracePeriodSeconds"), "");
    }
    let restart_policy = text(spec, "restartPolicy");
    let volumes = volumes(errors, list(spec, "volumes"), &path.child("volumes"));
    let claims: Vec<&str> = list(spec, "resourceClaims")
        .iter()
        .map(|claim| text(claim, "name"))
        .collect();
    let around = Surroundings {
        volumes: &volumes,
        claims: &claims,
        grace_period,
        restart_policy,
    };
    container::containers(errors, spec, &around, path);
    if let Some(resources) = at(spec, "resources") {
        container::requirements(errors, resources, &claims, &path.child("resources"));
    }
    if flag(spec, "hostNetwork") {
        host_network(errors, spec, place, path);
    }
    errors.one_of(
        path.child("restartPolicy"),
        restart_policy,
        &["Always", "OnFailure", "Never"],
    );
    let policies = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.one_of(path.child("dnsPolicy"), text(spec, "dnsPolicy"), policies);
    selectors::labels(errors, spec, "nodeSelector", &path.child("nodeSelector"));
    if let Some(context) = at(spec, "securityContext") {
        security_context(errors, context, &path.child("securityContext"));
    }
    if let Some(affinity) = at(spec, "affinity") {
        selectors::affinity(errors, affinity, &path.child("affinity"));
    }
    dns(errors, spec, &path.child("dnsConfig"));
    gates(errors, spec, path);
    let constraints = list(spec, "topologySpreadConstraints");
    selectors::spread_constraints(errors, constraints, &path.child("topologySpreadConstraints"));
    names_of(errors, spec, path);
    if let Some(value) =
        number(spec, "activeDeadlineSeconds").filter(|value| !(1..=SECONDS_MAX).contains(value))
    {
        let detail = format!("must be between 1 and {SECONDS_MAX}, inclusive");
        errors.invalid(path.child("activeDeadlineSeconds"), value, detail);
    }
    selectors::tolerations(errors, list(spec, "tolerations"), &path.child("tolerations"));
    for (index, alias) in list(spec, "hostAliases").iter().enumerate() {
        let path = path.child("hostAliases").index(index);
        ip(errors, text(alias, "ip"), path.child("ip"));
        for (position, name) in list(alias, "hostnames")
            .iter()
            .filter_map(Value::as_str)
            .enumerate()
        {
            errors.messages(
                &path.child("hostnames").index(position),
                name,
                names::dns_subdomain(name),
            );
        }
    }
    if let Some(policy) = at(spec, "preemptionPolicy").and_then(Value::as_str) {
        errors.one_of(
            path.child("preemptionPolicy"),
            policy,
            &["PreemptLowerPriority", "Never"],
        );
    }
    if let Some(os) = at(spec, "os") {
        errors.one_of(
            path.child("os").child("name"),
            text(os, "name"),
            &["linux", "windows"],
        );
    }
}

/// Names of other things that a pod refers to, and its own names on the network.
fn names_of(errors: &mut Errors, spec: &Value, path: &FieldPath) {
    for (field, rule) in [
        (
            "serviceAccountName",
            names::dns_subdomain as fn(&str) -> Vec<String>,
        ),
        ("nodeName", names::dns_subdomain),
        ("hostname", names::dns_label),
        ("subdomain", names::dns_label),
        ("priorityClassName", names::dns_subdomain),
        ("runtimeClassName", names::dns_subdomain),
    ] {
        let name = text(spec, field);
        if !name.is_empty() {
            errors.messages(&path.child(field), name, rule(name));
        }
    }
}

fn host_network(errors: &mut Errors, spec: &Value, place: Place, path: &FieldPath) {
    for (index, container) in list(spec, "containers").iter().enumerate() {
        for (position, port) in list(container, "ports").iter().enumerate() {
            let own = number(port, "containerPort").unwrap_or_default();
            let host = number(port, "hostPort").unwrap_or_default();
            if (place == Place::Pod || host != 0) && host != own {
                errors.invalid(
                    path.child("containers")
                        .index(index)
                        .child("ports")
                        .index(position)
                        .child("hostPort"),
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

fn security_context(errors: &mut Errors, context: &Value, path: &FieldPath) {
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        if let Some(id) = number(context, name) {
            container::user_id(errors, id, path.child(name));
        }
    }
    for (index, id) in list(context, "supplementalGroups").iter().enumerate() {
        container::user_id(
            errors,
            id.as_i64().unwrap_or(-1),
            path.child("supplementalGroups").index(index),
        );
    }
    if let Some(policy) = at(context, "fsGroupChangePolicy").and_then(Value::as_str)
        && !matches!(policy, "Always" | "OnRootMismatch")
    {
        errors.not_supported(
            path.child("fsGroupChangePolicy"),
            policy,
            &["Always", "OnRootMismatch"],
        );
    }
}

fn dns(errors: &mut Errors, spec: &Value, path: &FieldPath) {
    let config = at(spec, "dnsConfig");
    let servers = config.map_or(&[][..], |config| list(config, "nameservers"));
    if text(spec, "dnsPolicy") == "None" && servers.is_empty() {
        if config.is_none() {
            errors.required(path.clone(), "must provide `dnsConfig` when `dnsPolicy` is None");
        } else {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(path.child("nameservers"), detail);
        }
        return;
    }
    let Some(config) = config else { return };
    if servers.len() > NAMESERVERS_MAX {
        let detail = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        errors.invalid(path.child("nameservers"), servers.to_vec(), detail);
    }
    for (index, server) in servers.iter().enumerate() {
        ip(
            errors,
            server.as_str().unwrap_or_default(),
            path.child("nameservers").index(index),
        );
    }
    let searches = list(config, "searches");
    if searches.len() > SEARCHES_MAX {
        let detail = format!("must not have more than {SEARCHES_MAX} search paths");
        errors.invalid(path.child("searches"), searches.to_vec(), detail);
    }
    for (index, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.required(path.child("options").index(index), "must not be empty");
        }
    }
}

fn ip(errors: &mut Errors, address: &str, path: FieldPath) {
    if address.parse::<std::net::IpAddr>().is_err() {
        errors.invalid(
            path,
            address,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        );
    }
}

fn gates(errors: &mut Errors, spec: &Value, path: &FieldPath) {
    for (index, gate) in list(spec, "readinessGates").iter().enumerate() {
        let kind = text(gate, "conditionType");
        let path = path.child("readinessGates").index(index).child("conditionType");
        errors.messages(&path, kind, names::qualified_name(kind));
    }
    let mut taken = BTreeSet::new();
    for (index, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        let path = path.child("schedulingGates").index(index);
        errors.messages(&path, name, names::qualified_name(name));
        if !taken.insert(name) {
            errors.duplicate(path, name);
        }
    }
}

pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    let path = FieldPath::new("spec");
    whole(errors, new);
    for name in ["containers", "initContainers"] {
        let (new, old) = (
            list(new, &format!("spec.{name}")),
            list(old, &format!("spec.{name}")),
        );
        if new.len() != old.len() {
            errors.forbidden(path.child(name), "pod updates may not add or remove containers");
            return;
        }
        for (index, container) in new.iter().enumerate() {
            if text(container, "image").is_empty() {
                errors.required(path.child(name).index(index).child("image"), "");
            }
        }
    }
    if !deadline(errors, new, old, &path.child("activeDeadlineSeconds")) {
        return;
    }
    added_tolerations(errors, new, old, &path.child("tolerations"));
    removed_gates(errors, new, old, &path.child("schedulingGates"));
    let (Some(new), Some(old)) = (new.get("spec"), old.get("spec")) else {
        return;
    };
    if new != old && &without_changes(new, old) != old {
        errors.forbidden(
            path,
            format!("pod updates may not change fields other than {UPDATABLE}"),
        );
    }
}

/// A deadline may be set once and then only come closer. Says whether to go on.
fn deadline(errors: &mut Errors, new: &Value, old: &Value, path: &FieldPath) -> bool {
    let (new, old) = (
        number(new, "spec.activeDeadlineSeconds"),
        number(old, "spec.activeDeadlineSeconds"),
    );
    match (new, old) {
        (Some(new), _) if !(0..=SECONDS_MAX).contains(&new) => {
            let detail = format!("must be between 0 and {SECONDS_MAX}, inclusive");
            errors.invalid(path.clone(), new, detail);
            false
        }
        (Some(new), Some(old)) if new > old => {
            errors.invalid(path.clone(), new, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.invalid(path.clone(), Value::Null, detail);
            true
        }
        _ => true,
    }
}

fn added_tolerations(errors: &mut Errors, new: &Value, old: &Value, path: &FieldPath) {
    let bare = |toleration: &Value| {
        let mut bare = toleration.clone();
        if let Some(bare) = bare.as_object_mut() {
            bare.remove("tolerationSeconds");
        }
        bare
    };
    let kept: Vec<Value> = list(new, "spec.tolerations").iter().map(bare).collect();
    if list(old, "spec.tolerations")
        .iter()
        .any(|old| !kept.contains(&bare(old)))
    {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden(path.clone(), detail);
    }
}

fn removed_gates(errors: &mut Errors, new: &Value, old: &Value, path: &FieldPath) {
    let known: Vec<&str> = list(old, "spec.schedulingGates")
        .iter()
        .map(|gate| text(gate, "name"))
        .collect();
    for (index, gate) in list(new, "spec.schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !known.contains(&name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(path.index(index).child("name"), detail);
        }
    }
}

/// The new spec with the old values where a change is allowed; what still differs is not allowed.
fn without_changes(new: &Value, old: &Value) -> Value {
    let mut spec = new.clone();
    for name in ["containers", "initContainers"] {
        let images = list(old, name)
            .iter()
            .map(|container| container.get("image").cloned());
        let containers = spec
            .get_mut(name)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        for (container, image) in containers.zip(images) {
            if let (Some(container), Some(image)) = (container.as_object_mut(), image) {
                container.insert("image".to_owned(), image);
            }
        }
    }
    let gated = !list(old, "schedulingGates").is_empty();
    let mut free = vec!["activeDeadlineSeconds", "schedulingGates", "tolerations"];
    if gated {
        // A pod that waits behind a gate may still be told where to go.
        free.extend(["nodeSelector", "affinity"]);
    }
    let grace = "terminationGracePeriodSeconds";
    if number(old, grace).is_some_and(|seconds| seconds < 0) && number(new, grace) == Some(1) {
        free.push(grace);
    }
    if let Some(spec) = spec.as_object_mut() {
        for name in free {
            match old.get(name) {
                Some(value) => spec.insert(name.to_owned(), value.clone()),
                None => spec.remove(name),
            };
        }
    }
    spec
}

pub(super) fn update_status(errors: &mut Errors, new: &Value, old: &Value) {
    let path = FieldPath::new("status");
    for (index, condition) in list(new, "status.conditions").iter().enumerate() {
        let kind = text(condition, "type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            let path = path.child("conditions").index(index).child("Type");
            errors.messages(&path, kind, names::qualified_name(kind));
        }
    }
    errors.unchanged(
        path.child("qosClass"),
        at(new, "status.qosClass"),
        at(old, "status.qosClass"),
    );
    let spec = old.get("spec").unwrap_or(&Value::Null);
    for (name, containers) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
    ] {
        let (new, old) = (
            list(new, &format!("status.{name}")),
            list(old, &format!("status.{name}")),
        );
        for (index, was) in old.iter().enumerate() {
            let Some(code) = number(was, "state.terminated.exitCode") else {
                continue;
            };
            let now = new.iter().find(|now| text(now, "name") == text(was, "name"));
            let revived = now.is_some_and(|now| at(now, "state.terminated").is_none());
            let container = list(spec, containers)
                .iter()
                .find(|one| text(one, "name") == text(was, "name"));
            if revived && !may_restart(spec, container, code) {
                let detail = "may not be transitioned to non-terminated state";
                errors.forbidden(path.child(name).index(index).child("state"), detail);
            }
        }
    }
}

/// Whether a container that ended with this code is started again.
fn may_restart(spec: &Value, container: Option<&Value>, code: i64) -> bool {
    let Some(container) = container else { return false };
    let by_rule = list(container, "restartPolicyRules").iter().any(|rule| {
        let named = list(rule, "exitCodes.values").contains(&json!(code));
        match text(rule, "exitCodes.operator") {
            "In" => named,
            "NotIn" => !named,
            _ => false,
        }
    });
    let own = text(container, "restartPolicy");
    let policy = if own.is_empty() {
        text(spec, "restartPolicy")
    } else {
        own
    };
    by_rule || policy == "Always" || (policy == "OnFailure" && code != 0)
}
