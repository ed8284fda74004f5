//! Conditions: what is true of an object at the moment, why, and since when.
//!
//! All kinds share one type and one list. The list is a map keyed by `type` to the API server, so that two writers can
//! own two conditions. Reading is lenient: objects that another program or an earlier version wrote may lack a reason or
//! carry a time nobody can parse, and must not stop a watch.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    reason::Reason,
    strings::string_enum,
    values::{Int64, Timestamp, if_legible},
};

string_enum! {
    /// What a condition speaks about.
    open enum ConditionType {
        /// The object is checked and can be used.
        Ready,
        /// Work on the object is under way.
        Progressing,
        /// Something is wrong with the object.
        Degraded,
        /// The run was accepted. From here on its spec cannot be edited.
        Accepted,
        /// The run has begun.
        InProgress,
        /// The orchestration run has begun.
        Running,
        /// The run ended with success. While it is under way the status is `Unknown` and the reason says what it does.
        Succeeded,
        /// The run ended without success.
        Failed,
        /// The run was cancelled; `False` with a reason where a cancel was asked for and not carried out.
        Cancelled,
        /// The run ended, in whatever way. Waiting for it always returns.
        Complete,
        /// The run cannot start for the reason given.
        Blocked,
        /// Something deserves attention and does not stop the object.
        Warning,
        /// The spec is wrong.
        InvalidSpec,
        /// Something the object needs cannot be reached.
        Unreachable,
        /// The run goes on without version control.
        VcsSkipped,
        /// Entries of the list of artifacts were dropped or shortened.
        ArtifactsLimited,
        /// The limits on artifacts were exceeded and the settings make that a failure.
        ArtifactsLimitExceeded,
        /// The run succeeded, but its pod was gone before its result could be read.
        ResultUnavailable,
        /// What the run promised to deliver was found where it belongs.
        Delivered,
        /// The last webhook delivery could not be processed.
        Error,
    }
}

string_enum! {
    /// Whether a condition holds.
    closed enum ConditionStatus { True, False, Unknown }
}

/// What is true of the object in one respect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub type_: ConditionType,
    pub status: ConditionStatus,
    #[serde(default, deserialize_with = "reason_or_default")]
    pub reason: Reason,
    #[serde(default)]
    pub message: String,
    /// Absent only in conditions that another program wrote: twelve of the kinds keep it as a plain string, which may
    /// hold anything.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<Int64>,
}

/// A blank reason counts as none.
fn reason_or_default<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Reason, D::Error> {
    let text = <Option<Cow<'de, str>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(match text.trim() {
        "" => Reason::default(),
        text => Reason::from(text),
    })
}

/// The bounds are those of the Condition that Kubernetes itself publishes.
impl JsonSchema for Condition {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Condition".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "What is true of the object in one respect, why, and since when.",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {
                    "type": "string",
                    "description": "What the condition speaks about, for example Ready, Blocked or Succeeded.",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "type": "string",
                    "description": "Whether the condition holds: True, False, or Unknown.",
                    "enum": ConditionStatus::KNOWN,
                },
                "reason": {
                    "type": "string",
                    "description": "One word that says why, for programs. Words are not renamed.",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "type": "string",
                    "description": "The reason in words for people. May be empty, and may change between versions.",
                    "maxLength": 32768,
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status, the reason or the message last changed.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The metadata.generation that the condition speaks about.",
                },
            },
        })
    }
}

/// The part of the status that all kinds have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonStatus {
    /// What is true of the object, one entry per type.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The `metadata.generation` that this status is about. A smaller number than that of the object means that the last
    /// edit of the spec has not been seen yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<Int64>,
    /// When this status was last changed.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
}

impl CommonStatus {
    /// The condition of one type, if there is one.
    pub fn condition(&self, type_: &ConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == *type_)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Condition {
        serde_json::from_str(text).expect("a stored condition is always readable")
    }

    #[test]
    fn a_condition_of_another_writer_is_read() {
        let bare = read(r#"{"type": "Ready", "status": "True"}"#);
        assert_eq!(
            (bare.reason, bare.message.as_str(), bare.last_transition_time),
            (Reason::Reconciled, "", None)
        );

        let odd =
            read(r#"{"type": "x.y/Z", "status": "Maybe", "reason": " ", "lastTransitionTime": "noon"}"#);
        assert_eq!(odd.type_.as_str(), "x.y/Z");
        assert_eq!(odd.status.as_str(), "Maybe");
        assert_eq!((odd.reason, odd.last_transition_time), (Reason::Reconciled, None));
    }

    #[test]
    fn an_unknown_reason_survives_a_round_trip() {
        let text = r#"{"type":"Blocked","status":"True","reason":"SolarFlare","message":"wait"}"#;
        assert_eq!(serde_json::to_string(&read(text)).expect("serializes"), text);
    }

    #[test]
    fn conditions_are_found_by_type() {
        let status: CommonStatus =
            serde_json::from_str(r#"{"conditions": [{"type": "Failed", "status": "False"}]}"#)
                .expect("a status");
        assert!(status.condition(&ConditionType::Failed).is_some());
        assert!(status.condition(&ConditionType::Ready).is_none());
    }
}
