//! Servers that overlook something, one for each area of the corpus. If the corpus does not notice, it says nothing about that
//! area.
//!
//! To overlook a part of a request is the same as never to have got it, so a defect takes that part away before the request is
//! sent.

use serde_json::Value;

use super::run::Outgoing;

/// One way to be wrong.
#[derive(Clone, Copy, Debug)]
pub struct Defect {
    pub area: &'static str,
    /// What such a server overlooks.
    pub overlooks: &'static str,
    overlook: fn(&mut Outgoing),
}

impl Defect {
    pub fn apply(&self, request: &mut Outgoing) {
        (self.overlook)(request);
    }
}

#[rustfmt::skip] // It is read as a table.
pub const DEFECTS: &[Defect] = &[
    Defect { area: "apply", overlooks: "that nobody asked for force", overlook: |r| if r.is_apply() { r.set("force", "true") } },
    Defect { area: "builtins", overlooks: "that a map must not change", overlook: |r| r.without("immutable") },
    Defect { area: "create", overlooks: "the version that a new object has already", overlook: |r| r.without("resourceVersion") },
    Defect { area: "defaulting", overlooks: "defaults", overlook: |r| r.without("default") },
    Defect { area: "definitions", overlooks: "rules in definitions", overlook: |r| r.without("x-kubernetes-validations") },
    Defect { area: "deletion", overlooks: "preconditions", overlook: |r| r.without("preconditions") },
    Defect { area: "discovery", overlooks: "short names", overlook: |r| r.without("shortNames") },
    Defect { area: "dry-run", overlooks: "that nothing must change", overlook: |r| r.unset("dryRun") },
    Defect { area: "forms", overlooks: "how much of an object is wanted", overlook: |r| r.unset("includeObject") },
    Defect { area: "jobs", overlooks: "which failures end a Job", overlook: |r| r.without("podFailurePolicy") },
    Defect { area: "list", overlooks: "how long a page may be", overlook: |r| r.unset("limit") },
    Defect { area: "metadata", overlooks: "annotations", overlook: |r| r.without("annotations") },
    Defect { area: "namespaces", overlooks: "who holds what is in a namespace", overlook: |r| r.without("finalizers") },
    Defect { area: "owners", overlooks: "whom an owner waits for", overlook: |r| r.without("blockOwnerDeletion") },
    Defect { area: "patch", overlooks: "that null takes away", overlook: |r| r.without_nulls() },
    Defect { area: "rules", overlooks: "rules about the past", overlook: |r| r.without_text("oldSelf") },
    Defect { area: "schema", overlooks: "patterns", overlook: |r| r.without("pattern") },
    Defect { area: "selectors", overlooks: "which labels are wanted", overlook: |r| r.unset("labelSelector") },
    Defect { area: "strict", overlooks: "how fields are to be checked", overlook: |r| r.unset("fieldValidation") },
    Defect { area: "update", overlooks: "which version is written over", overlook: |r| r.without("resourceVersion") },
    Defect { area: "watch", overlooks: "where a watch begins", overlook: |r| r.unset("resourceVersion") },
];

impl Outgoing {
    fn is_apply(&self) -> bool {
        let content = self
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        content.is_some_and(|(_, value)| value.contains("apply"))
    }

    fn unset(&mut self, parameter: &str) {
        if let Some((path, query)) = self.path.split_once('?') {
            let named = |pair: &&str| pair.split('=').next() != Some(parameter);
            let rest: Vec<_> = query.split('&').filter(named).collect();
            self.path = format!("{path}?{}", rest.join("&"));
        }
    }

    fn set(&mut self, parameter: &str, value: &str) {
        self.unset(parameter);
        let separator = if self.path.contains('?') { '&' } else { '?' };
        self.path = format!("{}{separator}{parameter}={value}", self.path);
    }

    /// Takes a field away, wherever it is. A body that is no JSON stays as it is.
    fn without(&mut self, field: &str) {
        self.edit(&|object| {
            object.remove(field);
        });
    }

    fn without_nulls(&mut self) {
        self.edit(&|object| object.retain(|_, value| !value.is_null()));
    }

    /// Takes away every rule that has this text in it.
    fn without_text(&mut self, text: &str) {
        self.edit(&|object| {
            if let Some(Value::Array(rules)) = object.get_mut("x-kubernetes-validations") {
                rules.retain(|rule| !rule.to_string().contains(text));
            }
        });
    }

    fn edit(&mut self, change: &dyn Fn(&mut serde_json::Map<String, Value>)) {
        if let Ok(mut body) = serde_json::from_str(&self.body) {
            everywhere(&mut body, change);
            self.body = body.to_string();
        }
    }
}

fn everywhere(value: &mut Value, change: &dyn Fn(&mut serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            change(object);
            object.values_mut().for_each(|value| everywhere(value, change));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| everywhere(value, change)),
        _ => {}
    }
}
