//! Probes of a container and the hooks at its start and end.

use serde_json::Value;

use super::{
    super::look::{at, list, number, text},
    container::{Surroundings, port_number},
    errors::Errors,
    names,
};
use crate::field::FieldPath;

/// Probes and hooks.
pub(super) fn life(errors: &mut Errors, container: &Value, around: &Surroundings<'_>, path: &FieldPath) {
    if let Some(lifecycle) = at(container, "lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(handler) = at(lifecycle, name) {
                self::handler(errors, handler, around, &path.child("lifecycle").child(name));
            }
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = at(container, name) else {
            continue;
        };
        let path = path.child(name);
        handler(errors, probe, around, &path);
        for field in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            errors.not_negative(path.child(field), number(probe, field));
        }
        let grace = number(probe, "terminationGracePeriodSeconds");
        if let Some(grace) = grace.filter(|grace| *grace <= 0) {
            errors.invalid(
                path.child("terminationGracePeriodSeconds"),
                grace,
                "must be greater than 0",
            );
        }
        if name == "readinessProbe" {
            if let Some(grace) = grace {
                let detail = "must not be set for readinessProbes";
                errors.invalid(path.child("terminationGracePeriodSeconds"), grace, detail);
            }
        } else if let Some(threshold) = number(probe, "successThreshold").filter(|threshold| *threshold != 1)
        {
            errors.invalid(path.child("successThreshold"), threshold, "must be 1");
        }
    }
}

fn handler(errors: &mut Errors, handler: &Value, around: &Surroundings<'_>, path: &FieldPath) {
    let mut found = false;
    for name in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = at(handler, name) else { continue };
        let path = path.child(name);
        if found {
            errors.forbidden(path, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match name {
            "exec" => {
                if list(action, "command").is_empty() {
                    errors.required(path.child("command"), "");
                }
            }
            "httpGet" => {
                if text(action, "path").is_empty() {
                    errors.required(path.child("path"), "");
                }
                port_or_name(errors, action, &path.child("port"));
                let scheme = text(action, "scheme");
                if !matches!(scheme, "HTTP" | "HTTPS") {
                    errors.not_supported(path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
                }
            }
            "sleep" => {
                let seconds = number(action, "seconds").unwrap_or_default();
                if let Some(grace) = around
                    .grace_period
                    .filter(|grace| !(0..=*grace).contains(&seconds))
                {
                    let detail =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid(path, seconds, detail);
                }
            }
            _ => port_or_name(errors, action, &path.child("port")),
        }
    }
    if !found {
        errors.required(path.clone(), "must specify a handler type");
    }
}

fn port_or_name(errors: &mut Errors, action: &Value, path: &FieldPath) {
    match at(action, "port").and_then(Value::as_str) {
        Some(name) => errors.messages(path, name, names::port_name(name)),
        None => port_number(errors, number(action, "port").unwrap_or_default(), path.clone()),
    }
}
