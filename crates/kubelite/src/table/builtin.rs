//! The tables of the built-in kinds, as kube-apiserver 1.35 prints them.

mod pod;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    builtin::Builtin,
    selector::LabelSelector,
    table::{AGE_DESCRIPTION, CompiledColumns, Header, NAME_DESCRIPTION, age},
};

/// The columns of a built-in kind; `None` for the review kinds, which are never listed.
pub fn columns(kind: Builtin) -> Option<CompiledColumns> {
    Some(match kind {
        Builtin::Pod => CompiledColumns::builtin_with_condition(pod::HEADERS, pod::row, pod::condition),
        Builtin::Job => CompiledColumns::builtin(JOB, job),
        Builtin::Node => CompiledColumns::builtin(NODE, node),
        Builtin::Namespace => CompiledColumns::builtin(NAMESPACE, namespace),
        Builtin::ConfigMap => CompiledColumns::builtin(CONFIG_MAP, config_map),
        Builtin::Secret => CompiledColumns::builtin(SECRET, secret),
        Builtin::ServiceAccount => CompiledColumns::builtin(SERVICE_ACCOUNT, service_account),
        Builtin::PersistentVolumeClaim => CompiledColumns::builtin(CLAIM, claim),
        Builtin::CoreEvent | Builtin::Event => CompiledColumns::builtin(EVENT, event),
        Builtin::Lease => CompiledColumns::builtin(LEASE, lease),
        Builtin::CustomResourceDefinition => CompiledColumns::builtin(DEFINITION, definition),
        Builtin::SelfSubjectReview | Builtin::SelfSubjectAccessReview | Builtin::TokenReview => return None,
    })
}

const NAME: Header = Header {
    format: "name",
    ..shown("Name", NAME_DESCRIPTION)
};
const AGE: Header = shown("Age", AGE_DESCRIPTION);

/// A column that is always shown.
const fn shown(name: &'static str, description: &'static str) -> Header {
    Header {
        name,
        format: "",
        description,
        priority: 0,
        type_: "string",
    }
}

/// A column that only `-o wide` shows.
const fn wide(name: &'static str, description: &'static str) -> Header {
    Header {
        priority: 1,
        ..shown(name, description)
    }
}

const JOB: &[Header] = &[
    NAME,
    shown("Status", "Status of the job."),
    shown(
        "Completions",
        "How many pods have succeeded, of how many that must.",
    ),
    shown("Duration", "Time required to complete the job."),
    AGE,
    wide("Containers", "Names of each container in the template."),
    wide("Images", "Images referenced by each container in the template."),
    wide("Selector", "Which pods the job counts as its own."),
];

fn job(job: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = number(job, &["status", "succeeded"]);
    let completions = match (
        dig(job, &["spec", "completions"]),
        number(job, &["spec", "parallelism"]),
    ) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let ended = age::moment(dig(job, &["status", "completionTime"])).unwrap_or(now);
    let duration = age::moment(dig(job, &["status", "startTime"])).map(|start| age::since(start, ended));
    let containers = items(job, &["spec", "template", "spec", "containers"]);
    let joined = |member: &str| {
        containers
            .iter()
            .map(|container| text(container, &[member]))
            .collect::<Vec<_>>()
            .join(",")
    };
    let selector = dig(job, &["spec", "selector"]).map(LabelSelector::from_object);
    let selector = match selector {
        Some(Err(_)) => "<error>".to_owned(),
        Some(Ok(selector)) if !selector.is_empty() => selector.to_string(),
        Some(Ok(_)) | None => "<none>".to_owned(),
    };
    vec![
        name(job),
        Value::from(job_status(job)),
        Value::from(completions),
        Value::from(duration.unwrap_or_default()),
        created(job, now),
        Value::from(joined("name")),
        Value::from(joined("image")),
        Value::from(selector),
    ]
}

fn job_status(job: &Value) -> &'static str {
    let has = |type_: &str| condition(job, type_).is_some_and(|condition| condition == "True");
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if is_deleting(job) {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

const NODE: &[Header] = &[
    NAME,
    shown("Status", "The status of the node"),
    shown("Roles", "The roles of the node"),
    AGE,
    shown("Version", "The version of the kubelet."),
    wide(
        "Internal-IP",
        "Where the node is reached from within the cluster.",
    ),
    wide("External-IP", "Where the node is reached from outside."),
    wide("OS-Image", "The operating system of the node."),
    wide("Kernel-Version", "The kernel of the node."),
    wide("Container-Runtime", "What runs the containers, and its version."),
];

fn node(node: &Value, now: Timestamp) -> Vec<Value> {
    let mut status = match condition(node, "Ready") {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if flag(node, &["spec", "unschedulable"]) {
        status.push_str(",SchedulingDisabled");
    }
    let info = |member: &str| text(node, &["status", "nodeInfo", member]);
    let or_unknown = |text: &str| Value::from(if text.is_empty() { "<unknown>" } else { text });
    vec![
        name(node),
        Value::from(status),
        Value::from(node_roles(node)),
        created(node, now),
        Value::from(info("kubeletVersion")),
        Value::from(node_address(node, "InternalIP")),
        Value::from(node_address(node, "ExternalIP")),
        or_unknown(info("osImage")),
        or_unknown(info("kernelVersion")),
        or_unknown(info("containerRuntimeVersion")),
    ]
}

fn node_roles(node: &Value) -> String {
    let labels = dig(node, &["metadata", "labels"]).and_then(Value::as_object);
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role),
                None => value.as_str().filter(|_| key == "kubernetes.io/role"),
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() {
        "<none>".to_owned()
    } else {
        Vec::from_iter(roles).join(",")
    }
}

fn node_address<'v>(node: &'v Value, type_: &str) -> &'v str {
    items(node, &["status", "addresses"])
        .iter()
        .find(|address| text(address, &["type"]) == type_)
        .map_or("<none>", |address| text(address, &["address"]))
}

const NAMESPACE: &[Header] = &[NAME, shown("Status", "The status of the namespace"), AGE];

fn namespace(namespace: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(namespace),
        Value::from(text(namespace, &["status", "phase"])),
        created(namespace, now),
    ]
}

const CONFIG_MAP: &[Header] = &[NAME, shown("Data", "How many entries there are."), AGE];

fn config_map(map: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(map),
        Value::from(entries(map, "data") + entries(map, "binaryData")),
        created(map, now),
    ]
}

const SECRET: &[Header] = &[
    NAME,
    shown("Type", "What the secret is for."),
    shown("Data", "How many entries there are."),
    AGE,
];

fn secret(secret: &Value, now: Timestamp) -> Vec<Value> {
    let type_ = Value::from(text(secret, &["type"]));
    vec![
        name(secret),
        type_,
        Value::from(entries(secret, "data")),
        created(secret, now),
    ]
}

const SERVICE_ACCOUNT: &[Header] = &[NAME, AGE];

fn service_account(account: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(account), created(account, now)]
}

const CLAIM: &[Header] = &[
    NAME,
    shown("Status", "Whether the claim is bound to a volume."),
    shown("Volume", "The volume that backs the claim."),
    shown("Capacity", "The size of that volume."),
    shown("Access Modes", "How that volume may be mounted."),
    shown("StorageClass", "StorageClass of the pvc"),
    shown("VolumeAttributesClass", "VolumeAttributesClass of the pvc"),
    AGE,
    wide(
        "VolumeMode",
        "Whether the volume is a file system or a block device.",
    ),
];

fn claim(claim: &Value, now: Timestamp) -> Vec<Value> {
    let phase = if is_deleting(claim) {
        "Terminating"
    } else {
        text(claim, &["status", "phase"])
    };
    let volume = text(claim, &["spec", "volumeName"]);
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        let capacity = match dig(claim, &["status", "capacity", "storage"]) {
            Some(Value::String(quantity)) => quantity.clone(),
            Some(quantity) => quantity.to_string(),
            None => "0".to_owned(),
        };
        (capacity, access_modes(claim))
    };
    let beta_class = dig(
        claim,
        &[
            "metadata",
            "annotations",
            "volume.beta.kubernetes.io/storage-class",
        ],
    );
    let class = beta_class
        .or_else(|| dig(claim, &["spec", "storageClassName"]))
        .and_then(Value::as_str);
    let or_unset = |member: &str| {
        dig(claim, &["spec", member])
            .and_then(Value::as_str)
            .unwrap_or("<unset>")
    };
    vec![
        name(claim),
        Value::from(phase),
        Value::from(volume),
        Value::from(capacity),
        Value::from(modes),
        Value::from(class.unwrap_or_default()),
        Value::from(or_unset("volumeAttributesClassName")),
        created(claim, now),
        Value::from(or_unset("volumeMode")),
    ]
}

fn access_modes(claim: &Value) -> String {
    let modes = items(claim, &["status", "accessModes"]);
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let present = short
        .iter()
        .filter(|(mode, _)| modes.iter().any(|found| found == mode));
    present.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

const EVENT: &[Header] = &[
    shown("Last Seen", "When the event was last seen."),
    shown("Type", "Normal or Warning."),
    shown("Reason", "A short word for why it happened."),
    shown("Object", "What the event is about."),
    wide("Subobject", "The part of that object it is about."),
    wide("Source", "Who reports it."),
    shown("Message", "What happened."),
    wide("First Seen", "When the event was first seen."),
    wide("Count", "How often it was seen."),
    Header { priority: 1, ..NAME },
];

/// An event of either group: the same object in two dresses.
fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let either = |core: &str, new: &str| event.get(core).or_else(|| event.get(new));
    let first_time = either("firstTimestamp", "deprecatedFirstTimestamp").filter(|time| !time.is_null());
    let first = age::since_value(first_time.or_else(|| event.get("eventTime")), now);
    let last_time = either("lastTimestamp", "deprecatedLastTimestamp").filter(|time| !time.is_null());
    let mut last = last_time.map_or_else(|| first.clone(), |time| age::since_value(Some(time), now));
    let mut count = either("count", "deprecatedCount")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if let Some(series) = event.get("series").filter(|series| !series.is_null()) {
        last = age::since_value(series.get("lastObservedTime"), now);
        count = number(series, &["count"]);
    } else if count == 0 {
        count = 1;
    }
    let about = either("involvedObject", "regarding").unwrap_or(&Value::Null);
    let mut target = text(about, &["kind"]).to_lowercase();
    let target_name = text(about, &["name"]);
    if !target_name.is_empty() {
        target = format!("{target}/{target_name}");
    }
    let message = either("message", "note")
        .and_then(Value::as_str)
        .unwrap_or_default();
    vec![
        Value::from(last),
        Value::from(text(event, &["type"])),
        Value::from(text(event, &["reason"])),
        Value::from(target),
        Value::from(text(about, &["fieldPath"])),
        Value::from(event_source(event)),
        Value::from(message.trim()),
        Value::from(first),
        Value::from(count),
        name(event),
    ]
}

fn event_source(event: &Value) -> String {
    let first = |paths: &[&[&str]]| {
        paths
            .iter()
            .map(|path| text(event, path))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
            .to_owned()
    };
    let component = first(&[
        &["source", "component"],
        &["deprecatedSource", "component"],
        &["reportingComponent"],
        &["reportingController"],
    ]);
    let instance = first(&[
        &["source", "host"],
        &["deprecatedSource", "host"],
        &["reportingInstance"],
    ]);
    if instance.is_empty() {
        component
    } else {
        format!("{component}, {instance}")
    }
}

const LEASE: &[Header] = &[NAME, shown("Holder", "Who holds the lease."), AGE];

fn lease(lease: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(lease),
        Value::from(text(lease, &["spec", "holderIdentity"])),
        created(lease, now),
    ]
}

const DEFINITION: &[Header] = &[
    NAME,
    Header {
        type_: "date",
        ..shown("Created At", "When the object was created.")
    },
];

fn definition(definition: &Value, _now: Timestamp) -> Vec<Value> {
    let created = dig(definition, &["metadata", "creationTimestamp"]).and_then(Value::as_str);
    vec![
        name(definition),
        Value::from(created.unwrap_or("0001-01-01T00:00:00Z")),
    ]
}

/// The value at a path of names; a null counts as absent.
fn dig<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter()
        .try_fold(value, |value, name| value.get(name))
        .filter(|value| !value.is_null())
}

fn text<'v>(value: &'v Value, path: &[&str]) -> &'v str {
    dig(value, path).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, path: &[&str]) -> i64 {
    dig(value, path).and_then(Value::as_i64).unwrap_or(0)
}

fn flag(value: &Value, path: &[&str]) -> bool {
    dig(value, path).and_then(Value::as_bool).unwrap_or(false)
}

fn items<'v>(value: &'v Value, path: &[&str]) -> &'v [Value] {
    dig(value, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn entries(value: &Value, member: &str) -> usize {
    value
        .get(member)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

fn name(object: &Value) -> Value {
    Value::from(text(object, &["metadata", "name"]))
}

fn created(object: &Value, now: Timestamp) -> Value {
    Value::from(age::since_value(
        dig(object, &["metadata", "creationTimestamp"]),
        now,
    ))
}

fn is_deleting(object: &Value) -> bool {
    dig(object, &["metadata", "deletionTimestamp"]).is_some()
}

/// The status of the condition of a type.
fn condition<'v>(object: &'v Value, type_: &str) -> Option<&'v str> {
    let conditions = items(object, &["status", "conditions"]);
    let found = conditions
        .iter()
        .find(|condition| text(condition, &["type"]) == type_)?;
    Some(text(found, &["status"]))
}

#[cfg(test)]
mod tests;
