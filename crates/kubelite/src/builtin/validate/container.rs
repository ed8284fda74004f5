//! Containers of a pod or of a template of pods.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    super::{
        look::{at, entries, list, number, text},
        quantity::Quantity,
    },
    errors::{Errors, NEGATIVE},
    lifecycle, names,
    volume::{self, descending_path},
};
use crate::field::FieldPath;

const PORT_MAX: i64 = 65_535;
const RESTART_RULES_MAX: u64 = 20;
const EXIT_CODES_MAX: u64 = 255;
const RESTART_POLICIES: &[&str] = &["Always", "Never", "OnFailure"];

/// What containers may refer to, and what they share.
pub(super) struct Surroundings<'a> {
    /// Volumes by name, those that are valid.
    pub volumes: &'a [(&'a str, &'a Value)],
    /// Names of the pod's resource claims.
    pub claims: &'a [&'a str],
    pub grace_period: Option<i64>,
    pub restart_policy: &'a str,
}

pub(super) fn containers(errors: &mut Errors, spec: &Value, around: &Surroundings<'_>, path: &FieldPath) {
    let containers = list(spec, "containers");
    let main_path = path.child("containers");
    if containers.is_empty() {
        errors.required(main_path.clone(), "");
    }
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = main_path.index(index);
        common(errors, container, around, &path);
        if !taken.insert(text(container, "name")) {
            errors.duplicate(path.child("name"), text(container, "name"));
        }
        lifecycle::life(errors, container, around, &path);
        restart_policy(errors, container, &path);
    }
    host_ports(errors, containers, &main_path);
    let init_path = path.child("initContainers");
    for (index, container) in list(spec, "initContainers").iter().enumerate() {
        let path = init_path.index(index);
        common(errors, container, around, &path);
        init_restart_policy(errors, container, &path);
        let name = text(container, "name");
        if !name.is_empty() && !taken.insert(name) {
            errors.duplicate(path.child("name"), name);
        }
        host_ports(errors, std::slice::from_ref(container), &init_path);
        if text(container, "restartPolicy") == "Always" {
            lifecycle::life(errors, container, around, &path);
        } else {
            for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if at(container, name).is_some() {
                    errors.forbidden(
                        path.child(name),
                        "may not be set for init containers without restartPolicy=Always",
                    );
                }
            }
        }
    }
}

fn common(errors: &mut Errors, container: &Value, around: &Surroundings<'_>, path: &FieldPath) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.required(path.child("name"), "");
    } else {
        errors.messages(&path.child("name"), name, names::dns_label(name));
    }
    if text(container, "image").is_empty() {
        errors.required(path.child("image"), "");
    }
    errors.one_of(
        path.child("terminationMessagePolicy"),
        text(container, "terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    ports(errors, list(container, "ports"), &path.child("ports"));
    variables(errors, container, path);
    mounts(errors, container, around, &path.child("volumeMounts"));
    devices(errors, container, around, &path.child("volumeDevices"));
    errors.one_of(
        path.child("imagePullPolicy"),
        text(container, "imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
    );
    if let Some(resources) = at(container, "resources") {
        requirements(errors, resources, around.claims, &path.child("resources"));
    }
    resize_policy(errors, container, around, &path.child("resizePolicy"));
    if let Some(context) = at(container, "securityContext") {
        security_context(errors, context, &path.child("securityContext"));
    }
}

fn ports(errors: &mut Errors, ports: &[Value], path: &FieldPath) {
    let mut taken: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let wrong = names::port_name(name);
            if wrong.is_empty() && taken.contains(&name) {
                errors.duplicate(path.child("name"), name);
            }
            errors.messages(&path.child("name"), name, wrong);
            taken.push(name);
        }
        match number(port, "containerPort") {
            None | Some(0) => errors.required(path.child("containerPort"), ""),
            Some(number) => port_number(errors, number, path.child("containerPort")),
        }
        if let Some(number) = number(port, "hostPort").filter(|number| *number != 0) {
            port_number(errors, number, path.child("hostPort"));
        }
        errors.one_of(
            path.child("protocol"),
            text(port, "protocol"),
            &["SCTP", "TCP", "UDP"],
        );
    }
}

pub(super) fn port_number(errors: &mut Errors, number: i64, path: FieldPath) {
    if !(1..=PORT_MAX).contains(&number) {
        errors.invalid(
            path,
            number,
            format!("must be between 1 and {PORT_MAX}, inclusive"),
        );
    }
}

fn host_ports(errors: &mut Errors, containers: &[Value], path: &FieldPath) {
    let mut taken = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (position, port) in list(container, "ports").iter().enumerate() {
            let Some(number) = number(port, "hostPort").filter(|number| *number != 0) else {
                continue;
            };
            let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
            if !taken.insert(key.clone()) {
                errors.duplicate(
                    path.index(index).child("ports").index(position).child("hostPort"),
                    key,
                );
            }
        }
    }
}

fn variables(errors: &mut Errors, container: &Value, path: &FieldPath) {
    for (index, variable) in list(container, "env").iter().enumerate() {
        let path = path.child("env").index(index);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.required(path.child("name"), "");
        } else {
            errors.messages(&path.child("name"), name, names::env_name(name));
        }
        if let Some(source) = at(variable, "valueFrom") {
            let has_value = !text(variable, "value").is_empty();
            variable_source(errors, source, has_value, &path.child("valueFrom"));
        }
    }
    let from = path.child("envFrom");
    for (index, source) in list(container, "envFrom").iter().enumerate() {
        let path = from.index(index);
        let prefix = text(source, "prefix");
        errors.messages(&path.child("prefix"), prefix, names::env_name(prefix));
        let mut sources = 0;
        for name in ["configMapRef", "secretRef"] {
            let Some(reference) = at(source, name) else {
                continue;
            };
            sources += 1;
            let target = text(reference, "name");
            if target.is_empty() {
                errors.required(path.child(name).child("name"), "");
            } else {
                errors.messages(
                    &path.child(name).child("name"),
                    target,
                    names::dns_subdomain(target),
                );
            }
        }
        if sources == 0 {
            errors.invalid(
                from.clone(),
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            );
        } else if sources > 1 {
            errors.invalid(
                from.clone(),
                "",
                "may not have more than one field specified at a time",
            );
        }
    }
}

fn variable_source(errors: &mut Errors, source: &Value, has_value: bool, path: &FieldPath) {
    let mut sources = 0;
    if let Some(reference) = at(source, "fieldRef") {
        sources += 1;
        volume::field_reference(errors, reference, volume::ENV_FIELDS, &path.child("fieldRef"));
    }
    if let Some(reference) = at(source, "resourceFieldRef") {
        sources += 1;
        volume::resource_reference(errors, reference, false, &path.child("resourceFieldRef"));
    }
    for name in ["configMapKeyRef", "secretKeyRef"] {
        let Some(reference) = at(source, name) else {
            continue;
        };
        sources += 1;
        let path = path.child(name);
        let target = text(reference, "name");
        errors.messages(&path.child("name"), target, names::dns_subdomain(target));
        let key = text(reference, "key");
        if key.is_empty() {
            errors.required(path.child("key"), "");
        } else {
            errors.messages(&path.child("key"), key, names::config_key(key));
        }
    }
    if at(source, "fileKeyRef").is_some() {
        sources += 1;
    }
    if sources == 0 {
        errors.invalid(
            path.clone(),
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if has_value {
        errors.invalid(path.clone(), "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(
            path.clone(),
            "",
            "may not have more than one field specified at a time",
        );
    }
}

fn mounts(errors: &mut Errors, container: &Value, around: &Surroundings<'_>, path: &FieldPath) {
    let devices = list(container, "volumeDevices");
    let mut taken: Vec<&str> = Vec::new();
    for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
        let at_index = path.index(index);
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.required(at_index.child("name"), "");
        }
        if !around.volumes.iter().any(|(volume, _)| *volume == name) {
            errors.not_found(at_index.child("name"), name);
        }
        if target.is_empty() {
            errors.required(at_index.child("mountPath"), "");
        }
        if taken.contains(&target) {
            errors.invalid(at_index.child("mountPath"), target, "must be unique");
        }
        taken.push(target);
        if devices.iter().any(|device| text(device, "name") == name) {
            errors.invalid(
                at_index.child("name"),
                name,
                "must not already exist in volumeDevices",
            );
        }
        if devices.iter().any(|device| text(device, "devicePath") == target) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid(at_index.child("mountPath"), target, detail);
        }
        let (sub_path, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        if !sub_path.is_empty() {
            descending_path(errors, sub_path, &path.child("subPath"));
        }
        if !expression.is_empty() {
            if !sub_path.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                errors.invalid(at_index.child("subPathExpr"), expression, detail);
            }
            descending_path(errors, expression, &path.child("subPathExpr"));
        }
        if let Some(mode) = at(mount, "mountPropagation").and_then(Value::as_str)
            && !matches!(mode, "Bidirectional" | "HostToContainer" | "None")
        {
            let allowed = &["Bidirectional", "HostToContainer", "None"];
            errors.not_supported(path.child("mountPropagation"), mode, allowed);
        }
    }
}

fn devices(errors: &mut Errors, container: &Value, around: &Surroundings<'_>, path: &FieldPath) {
    let mounts = list(container, "volumeMounts");
    let (mut names, mut paths): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (index, device) in list(container, "volumeDevices").iter().enumerate() {
        let path = path.index(index);
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.required(path.child("name"), "");
        }
        if names.contains(&name) {
            errors.invalid(path.child("name"), name, "must be unique");
        }
        match around.volumes.iter().find(|(volume, _)| *volume == name) {
            None => errors.not_found(path.child("name"), name),
            Some((_, volume)) => {
                if volume.get("persistentVolumeClaim").is_none() && volume.get("ephemeral").is_none() {
                    let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                    errors.invalid(path.child("name"), name, detail);
                }
            }
        }
        if target.is_empty() {
            errors.required(path.child("devicePath"), "");
        }
        if paths.contains(&target) {
            errors.invalid(path.child("devicePath"), target, "must be unique");
        }
        if target.split('/').any(|part| part == "..") {
            errors.invalid(
                path.child("devicePath"),
                target,
                "can not contain backsteps ('..')",
            );
        }
        if mounts.iter().any(|mount| text(mount, "name") == name) {
            errors.invalid(path.child("name"), name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|mount| text(mount, "mountPath") == target) {
            let detail = "must not already exist as a path in volumeMounts";
            errors.invalid(path.child("devicePath"), target, detail);
        }
        names.push(name);
        paths.push(target);
    }
}

/// Requests and limits, of a container or of a whole pod.
pub(super) fn requirements(errors: &mut Errors, resources: &Value, claims: &[&str], path: &FieldPath) {
    let amount = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    for (name, value) in entries(resources, "limits") {
        resource(errors, name, amount(value), &limits_path.key(name));
    }
    for (name, value) in entries(resources, "requests") {
        resource(errors, name, amount(value), &requests_path.key(name));
        let limit = resources
            .get("limits")
            .and_then(|limits| limits.get(name))
            .and_then(amount);
        let Some(request) = amount(value) else { continue };
        let overcommit = is_native(name) && !name.starts_with("hugepages-");
        match limit {
            Some(limit) if request != limit && !overcommit => {
                let detail = format!("must be equal to {name} limit of {limit}");
                errors.invalid(requests_path.clone(), request.to_string(), detail);
            }
            Some(limit) if request > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.invalid(requests_path.clone(), request.to_string(), detail);
            }
            None if !overcommit => {
                errors.required(
                    limits_path.clone(),
                    "Limit must be set for non overcommitable resources",
                );
            }
            _ => {}
        }
    }
    for (index, claim) in list(resources, "claims").iter().enumerate() {
        let name = text(claim, "name");
        if name.is_empty() {
            errors.required(path.child("claims").index(index), "");
        } else if !claims.contains(&name) {
            errors.not_found(path.child("claims").index(index), name);
        }
    }
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn resource(errors: &mut Errors, name: &str, amount: Option<Quantity>, path: &FieldPath) {
    let wrong = names::qualified_name(name);
    if !wrong.is_empty() {
        errors.messages(path, name, wrong);
    } else if !name.contains('/')
        && !matches!(name, "cpu" | "memory" | "ephemeral-storage")
        && !name.starts_with("hugepages-")
    {
        if name != "storage" && name != "pods" {
            errors.invalid(
                path.clone(),
                name,
                "must be a standard resource type or fully qualified",
            );
        }
        errors.invalid(path.clone(), name, "must be a standard resource for containers");
    }
    let Some(amount) = amount else { return };
    if amount.is_negative() {
        errors.invalid(path.clone(), amount.to_string(), NEGATIVE);
    }
    if !is_native(name) && !amount.is_integer() {
        errors.invalid(path.clone(), amount.to_string(), "must be an integer");
    }
}

fn resize_policy(errors: &mut Errors, container: &Value, around: &Surroundings<'_>, path: &FieldPath) {
    let mut taken: Vec<&str> = Vec::new();
    for (index, policy) in list(container, "resizePolicy").iter().enumerate() {
        let (name, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if taken.contains(&name) {
            errors.duplicate(path.index(index), name);
        }
        taken.push(name);
        errors.one_of(path.clone(), name, &["cpu", "memory"]);
        errors.one_of(path.clone(), restart, &["NotRequired", "RestartContainer"]);
        if around.restart_policy == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.invalid(path.clone(), restart, detail);
        }
    }
}

fn security_context(errors: &mut Errors, context: &Value, path: &FieldPath) {
    for name in ["runAsUser", "runAsGroup"] {
        if let Some(id) = number(context, name) {
            user_id(errors, id, path.child(name));
        }
    }
    let privileged = at(context, "privileged") == Some(&Value::Bool(true));
    let escalation = at(context, "allowPrivilegeEscalation");
    if escalation == Some(&Value::Bool(false)) && privileged {
        errors.invalid(
            path.clone(),
            context.clone(),
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        );
    }
}

pub(super) fn user_id(errors: &mut Errors, id: i64, path: FieldPath) {
    if !(0..=i64::from(i32::MAX)).contains(&id) {
        errors.invalid(path, id, format!("must be between 0 and {}, inclusive", i32::MAX));
    }
}

fn restart_policy(errors: &mut Errors, container: &Value, path: &FieldPath) {
    let rules = list(container, "restartPolicyRules");
    match at(container, "restartPolicy").and_then(Value::as_str) {
        None if rules.is_empty() => return,
        None => errors.required(
            path.child("restartPolicy"),
            "must specify restartPolicy when restart rules are used",
        ),
        Some(policy) if !RESTART_POLICIES.contains(&policy) => {
            errors.not_supported(path.child("restartPolicy"), policy, RESTART_POLICIES);
        }
        Some(_) => {}
    }
    let path = path.child("restartPolicyRules");
    if rules.len() as u64 > RESTART_RULES_MAX {
        errors.too_long(path.clone(), RESTART_RULES_MAX);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let action = text(rule, "action");
        if action != "Restart" {
            errors.not_supported(path.child("action"), action, &["Restart"]);
        }
        let Some(codes) = at(rule, "exitCodes") else {
            errors.required(path.child("exitCodes"), "must be specified");
            continue;
        };
        let operator = text(codes, "operator");
        if !matches!(operator, "In" | "NotIn") {
            errors.not_supported(
                path.child("exitCodes").child("operator"),
                operator,
                &["In", "NotIn"],
            );
        }
        if list(codes, "values").len() as u64 > EXIT_CODES_MAX {
            errors.too_long(path.child("exitCodes").child("values"), EXIT_CODES_MAX);
        }
    }
}

fn init_restart_policy(errors: &mut Errors, container: &Value, path: &FieldPath) {
    if text(container, "restartPolicy") != "Always" {
        restart_policy(errors, container, path);
    } else if !list(container, "restartPolicyRules").is_empty() {
        errors.forbidden(
            path.child("restartPolicyRules"),
            "restartPolicyRules are not allowed for init containers with restart policy Always",
        );
    }
}
