//! Events, in the `v1` dress that they are stored in. Those made through `events.k8s.io` follow stricter rules.

use serde_json::Value;

use super::{
    super::look::{at, number, text},
    errors::Errors,
    names,
};
use crate::field::FieldPath;

const TEXT_MAX: usize = 128;
const NOTE_MAX: usize = 1024;

/// Which API the event came through.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Via {
    Core,
    EventsV1,
}

pub(super) fn create(errors: &mut Errors, event: &Value, via: Via) {
    every(errors, event, via);
    if via == Via::Core {
        return;
    }
    let path = |name: &str| FieldPath::new(name);
    series(errors, event);
    if at(event, "eventTime").is_none() {
        errors.required(path("eventTime"), "");
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(path("type"), "", format!("has invalid value: {kind}"));
    }
    for field in ["firstTimestamp", "lastTimestamp"] {
        if at(event, field).is_some() {
            errors.invalid(path(field), "", "needs to be unset");
        }
    }
    if number(event, "count").unwrap_or_default() != 0 {
        errors.invalid(path("count"), "", "needs to be unset");
    }
    if !text(event, "source.component").is_empty() || !text(event, "source.host").is_empty() {
        errors.invalid(path("source"), "", "needs to be unset");
    }
}

pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value, via: Via) {
    every(errors, new, via);
    if via == Via::Core {
        return;
    }
    if new.get("series") != old.get("series") {
        series(errors, new);
    }
    for (field, name) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        errors.unchanged(FieldPath::new(name), at(new, field), at(old, field));
    }
}

fn series(errors: &mut Errors, event: &Value) {
    let Some(series) = at(event, "series") else { return };
    if number(series, "count").unwrap_or_default() < 2 {
        errors.invalid(FieldPath::new("series.count"), "", "should be at least 2");
    }
    if at(series, "lastObservedTime").is_none() {
        errors.required(FieldPath::new("series.lastObservedTime"), "");
    }
}

fn every(errors: &mut Errors, event: &Value, via: Via) {
    let namespace = text(event, "metadata.namespace");
    let object = text(event, "involvedObject.namespace");
    let is_new = at(event, "eventTime").is_some();
    let matching = match (is_new, object.is_empty()) {
        (false, true) => matches!(namespace, "" | "default"),
        (false, false) => namespace == object,
        (true, true) => matches!(namespace, "default" | "kube-system"),
        (true, false) => true,
    };
    if !matching {
        let path = FieldPath::new("involvedObject.namespace");
        errors.invalid(path, object, "does not match event.namespace");
    }
    if is_new {
        let controller = if via == Via::Core {
            "reportingComponent"
        } else {
            "reportingController"
        };
        let path = FieldPath::new(controller);
        let value = text(event, "reportingComponent");
        if value.is_empty() {
            errors.required(path.clone(), "");
        }
        errors.messages(&path, value, names::qualified_name(value));
        for field in ["reportingInstance", "action", "reason"] {
            bounded(errors, field, text(event, field), true, TEXT_MAX);
        }
        bounded(errors, "message", text(event, "message"), false, NOTE_MAX);
    }
    errors.messages(
        &FieldPath::new("namespace"),
        namespace,
        names::dns_subdomain(namespace),
    );
}

fn bounded(errors: &mut Errors, field: &str, value: &str, required: bool, max: usize) {
    if required && value.is_empty() {
        errors.required(FieldPath::new(field), "");
    }
    if value.len() > max {
        errors.invalid(
            FieldPath::new(field),
            "",
            format!("can have at most {max} characters"),
        );
    }
}
