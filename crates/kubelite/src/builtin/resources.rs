//! The rows of the resource table for the built-in kinds.

use std::sync::Arc;

use serde_json::Value;

use super::{Builtin, schema};
use crate::{
    request::Verb,
    resource::{ALL_VERBS, CREATE_ONLY, Resource, SelectableField, Version},
    store::Collection,
};

/// Every built-in kind, as the server's table holds it.
///
/// The columns of a built-in table do not come from JSONPath and are made in `table`; the OpenAPI document comes from
/// `openapi`.
pub fn resources() -> Vec<Resource> {
    Builtin::ALL.iter().map(|builtin| resource(*builtin)).collect()
}

fn resource(builtin: Builtin) -> Resource {
    let info = builtin.info();
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    let version = Version {
        name: info.version.to_owned(),
        served: true,
        storage: true,
        schema: schema(builtin),
        rules: Arc::default(),
        openapi: Arc::new(Value::Null),
        has_status: builtin.has_status(),
        has_scale: false,
        columns: Vec::new(),
        selectable: selectable(builtin)
            .iter()
            .map(|path| SelectableField {
                path: (*path).to_owned(),
            })
            .collect(),
        deprecation_warning: None,
        since_revision: 0,
    };
    // Both groups show the same events.
    let collection_group = if builtin == Builtin::Event { "" } else { info.group };
    Resource {
        group: info.group.to_owned(),
        kind: info.kind.to_owned(),
        list_kind: format!("{}List", info.kind),
        plural: info.plural.to_owned(),
        singular: info.singular.to_owned(),
        short_names: names(short_names(builtin)),
        categories: names(categories(builtin)),
        scope: info.scope,
        versions: vec![version],
        collection: Collection::new(collection_group, info.plural),
        builtin: Some(builtin),
        verbs: verbs(builtin),
    }
}

/// Namespaces are deleted one by one: each must be emptied first.
const NAMESPACE_VERBS: &[Verb] = &[
    Verb::Create,
    Verb::Delete,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];

const fn verbs(builtin: Builtin) -> &'static [Verb] {
    match builtin {
        Builtin::Namespace => NAMESPACE_VERBS,
        Builtin::SelfSubjectReview | Builtin::SelfSubjectAccessReview | Builtin::TokenReview => CREATE_ONLY,
        Builtin::Node
        | Builtin::Pod
        | Builtin::ConfigMap
        | Builtin::Secret
        | Builtin::ServiceAccount
        | Builtin::PersistentVolumeClaim
        | Builtin::CoreEvent
        | Builtin::Event
        | Builtin::Lease
        | Builtin::Job
        | Builtin::CustomResourceDefinition => ALL_VERBS,
    }
}

const fn short_names(builtin: Builtin) -> &'static [&'static str] {
    match builtin {
        Builtin::Namespace => &["ns"],
        Builtin::Node => &["no"],
        Builtin::Pod => &["po"],
        Builtin::ConfigMap => &["cm"],
        Builtin::ServiceAccount => &["sa"],
        Builtin::PersistentVolumeClaim => &["pvc"],
        Builtin::CoreEvent | Builtin::Event => &["ev"],
        Builtin::CustomResourceDefinition => &["crd", "crds"],
        Builtin::Secret
        | Builtin::Lease
        | Builtin::Job
        | Builtin::SelfSubjectReview
        | Builtin::SelfSubjectAccessReview
        | Builtin::TokenReview => &[],
    }
}

const fn categories(builtin: Builtin) -> &'static [&'static str] {
    match builtin {
        Builtin::Pod | Builtin::Job => &["all"],
        Builtin::CustomResourceDefinition => &["api-extensions"],
        Builtin::Namespace
        | Builtin::Node
        | Builtin::ConfigMap
        | Builtin::Secret
        | Builtin::ServiceAccount
        | Builtin::PersistentVolumeClaim
        | Builtin::CoreEvent
        | Builtin::Event
        | Builtin::Lease
        | Builtin::SelfSubjectReview
        | Builtin::SelfSubjectAccessReview
        | Builtin::TokenReview => &[],
    }
}

/// The fields that a field selector may name beside the object's name and namespace.
const fn selectable(builtin: Builtin) -> &'static [&'static str] {
    match builtin {
        Builtin::Namespace => &["status.phase"],
        Builtin::Node => &["spec.unschedulable"],
        Builtin::Pod => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        Builtin::Secret => &["type"],
        Builtin::Job => &["status.successful"],
        Builtin::CoreEvent => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        Builtin::Event => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        Builtin::ConfigMap
        | Builtin::ServiceAccount
        | Builtin::PersistentVolumeClaim
        | Builtin::Lease
        | Builtin::CustomResourceDefinition
        | Builtin::SelfSubjectReview
        | Builtin::SelfSubjectAccessReview
        | Builtin::TokenReview => &[],
    }
}

/// The value of a selectable field, for the fields that are not simply found at their path. `None` means: look there.
///
/// Events are asked in the shape of the kind that was requested.
pub fn selectable_value(builtin: Builtin, field: &str, object: &Value) -> Option<String> {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let flag = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_bool)
            .unwrap_or_default()
            .to_string()
    };
    match (builtin, field) {
        (Builtin::Pod, "spec.hostNetwork") => Some(flag("/spec/hostNetwork")),
        (Builtin::Pod, "status.podIP") => Some(text("/status/podIPs/0/ip")),
        // Accepted by Kubernetes, and matched against nothing.
        (Builtin::Pod, "status.podIPs") => Some(String::new()),
        (Builtin::Node, "spec.unschedulable") => Some(flag("/spec/unschedulable")),
        (Builtin::Job, "status.successful") => Some(
            object
                .pointer("/status/succeeded")
                .and_then(Value::as_i64)
                .unwrap_or_default()
                .to_string(),
        ),
        (Builtin::CoreEvent, "source") => {
            let component = text("/source/component");
            Some(if component.is_empty() {
                text("/reportingComponent")
            } else {
                component
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_event_kinds_share_one_collection() {
        let events: Vec<_> = resources()
            .into_iter()
            .filter(|row| row.plural == "events")
            .collect();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].collection, events[1].collection);
        assert_ne!(events[0].group, events[1].group);
    }

    #[test]
    fn no_two_rows_serve_the_same_path() {
        let mut paths: Vec<_> = resources()
            .iter()
            .map(|row| (row.group.clone(), row.plural.clone()))
            .collect();
        let all = paths.len();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), all);
    }

    #[test]
    fn computed_selectable_fields_have_go_defaults() {
        assert_eq!(
            selectable_value(Builtin::Pod, "spec.hostNetwork", &json!({})).as_deref(),
            Some("false")
        );
        assert_eq!(
            selectable_value(Builtin::Job, "status.successful", &json!({})).as_deref(),
            Some("0")
        );
        let event = json!({"source": {}, "reportingComponent": "kubelet"});
        assert_eq!(
            selectable_value(Builtin::CoreEvent, "source", &event).as_deref(),
            Some("kubelet")
        );
        assert_eq!(selectable_value(Builtin::Pod, "status.phase", &json!({})), None);
    }
}
