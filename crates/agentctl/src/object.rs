//! An object of the cluster, as the API server gave it.

use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;

/// Any object. It is kept as it came, so that fields of other versions are shown as well.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    value: Value,
    remembered: Option<Remembered>,
}

/// What is to be known of an object that is gone from the cluster, and that only the history has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Something was too long to be kept whole.
    pub cut: bool,
    /// JSON pointers of the values of its spec that are not as they were: they were withheld, or are cut.
    pub altered: Vec<String>,
}

impl Object {
    /// What the API server gave, with the kind that was asked for: items of a list may lack it.
    pub fn of(found: &DynamicObject, api_version: &str, kind: &str) -> Result<Self, Error> {
        let mut value = serde_json::to_value(found)?;
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".to_owned(), Value::String(api_version.to_owned()));
            map.insert("kind".to_owned(), Value::String(kind.to_owned()));
        }
        Ok(Self::from_value(value))
    }

    pub const fn from_value(value: Value) -> Self {
        Self {
            value,
            remembered: None,
        }
    }

    /// One that is gone from the cluster.
    pub const fn from_history(value: Value, remembered: Remembered) -> Self {
        Self {
            value,
            remembered: Some(remembered),
        }
    }

    pub const fn value(&self) -> &Value {
        &self.value
    }

    /// Set if it is gone from the cluster.
    pub const fn remembered(&self) -> Option<&Remembered> {
        self.remembered.as_ref()
    }

    /// As it is printed: without the record of who set which field, which is longer than the object.
    pub fn shown(&self) -> Value {
        let mut value = self.value.clone();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        value
    }

    /// Reads it as one of our types.
    pub fn typed<K: DeserializeOwned>(&self) -> Result<K, Error> {
        serde_json::from_value(self.value.clone()).map_err(|error| {
            Error::Cluster(format!(
                "{} {} cannot be read by this version of agentctl: {error}",
                self.kind(),
                self.name()
            ))
        })
    }

    /// A text at a place, as JSON pointers name it.
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.value.pointer(pointer).and_then(Value::as_str)
    }

    pub fn kind(&self) -> &str {
        self.text("/kind").unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.text("/metadata/name").unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace").unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.text("/metadata/uid").unwrap_or_default()
    }

    pub fn created(&self) -> Option<&str> {
        self.text("/metadata/creationTimestamp")
    }

    pub fn is_being_deleted(&self) -> bool {
        self.text("/metadata/deletionTimestamp").is_some()
    }

    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        let found = self
            .value
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array);
        found.into_iter().flatten().filter_map(Value::as_str)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.value.get("metadata")?.get("labels")?.get(key)?.as_str()
    }

    /// The phase; a run without one is pending.
    pub fn phase(&self) -> &str {
        self.text("/status/phase").unwrap_or("Pending")
    }

    /// Whether a run has ended for good.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed" | "Cancelled")
    }

    pub fn conditions(&self) -> impl Iterator<Item = Condition<'_>> {
        let found = self.value.pointer("/status/conditions").and_then(Value::as_array);
        found.into_iter().flatten().filter_map(Condition::of)
    }

    pub fn condition(&self, type_: &str) -> Option<Condition<'_>> {
        self.conditions().find(|condition| condition.type_ == type_)
    }

    /// In one word where it stands: the first of phase, status, state and result that is there, else whether it is ready.
    pub fn standing(&self) -> String {
        let word = ["phase", "status", "state", "result"]
            .into_iter()
            .find_map(|key| self.value.get("status")?.get(key)?.as_str());
        if let Some(word) = word {
            return word.to_owned();
        }
        match self.condition("Ready") {
            Some(ready) if ready.status == "True" => "Ready".to_owned(),
            Some(ready) if ready.status == "False" => "NotReady".to_owned(),
            Some(_) | None => String::new(),
        }
    }
}

/// One condition of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    pub type_: &'a str,
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
    pub since: Option<&'a str>,
}

impl<'a> Condition<'a> {
    fn of(value: &'a Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        Some(Self {
            type_: text("type")?,
            status: text("status").unwrap_or("Unknown"),
            reason: text("reason").unwrap_or_default(),
            message: text("message").unwrap_or_default(),
            since: text("lastTransitionTime"),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_standing_is_the_phase_or_whether_it_is_ready() {
        let of = |status: Value| Object::from_value(json!({"status": status})).standing();
        assert_eq!(of(json!({"phase": "Running", "state": "x"})), "Running");
        assert_eq!(of(json!({"result": "good"})), "good");
        assert_eq!(
            of(json!({"conditions": [{"type": "Ready", "status": "True"}]})),
            "Ready"
        );
        assert_eq!(
            of(json!({"conditions": [{"type": "Ready", "status": "False"}]})),
            "NotReady"
        );
        assert_eq!(of(json!({})), "");
    }

    #[test]
    fn who_set_which_field_is_not_shown() {
        let object = Object::from_value(json!({"metadata": {"name": "a", "managedFields": []}}));
        assert_eq!(object.shown(), json!({"metadata": {"name": "a"}}));
    }
}
