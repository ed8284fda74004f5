//! The request to stop a run, the same on every kind that runs.

use std::ops::Not;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::strings::string_enum;

string_enum! {
    /// What the user wants a run to be doing.
    closed enum DesiredState {
        /// The run may go on. The same as leaving the field out.
        Running,
        /// The run is to stop, like `cancel: true`.
        Cancelled,
    }
}

/// How a user asks a run to stop. These fields stay writable after the run was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelRequest {
    /// Set to `true` to cancel the run: nothing new starts, children are cancelled, Jobs and their pods are deleted, and
    /// the phase becomes `Cancelled` once every pod is gone. It cannot be taken back once it has begun. A run that has
    /// already ended keeps its phase.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub cancel: bool,
    /// What the run should be doing. `Cancelled` is the same request as `cancel: true`; `Running`, like leaving the field
    /// out, lets the run go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_state: Option<DesiredState>,
    /// Why the run is cancelled, in words for the people who read its status later. It has no effect by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_reason: Option<String>,
}

/// The fields of a run that stay writable once it was accepted: the request to cancel, and how long it is kept.
pub(crate) const WRITABLE_FIELDS: &[&str] = &[
    "cancel",
    "desiredState",
    "cancelReason",
    "ttlSecondsAfterFinished",
];

impl CancelRequest {
    /// Whether the run is asked to stop.
    pub fn is_requested(&self) -> bool {
        self.cancel || self.desired_state == Some(DesiredState::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_field_asks_for_the_cancel() {
        let request = |text: &str| {
            serde_json::from_str::<CancelRequest>(text)
                .expect("a request")
                .is_requested()
        };
        assert!(request(r#"{"cancel": true}"#));
        assert!(request(r#"{"desiredState": "Cancelled"}"#));
        assert!(request(r#"{"cancel": true, "desiredState": "Running"}"#));
        assert!(!request(r#"{"cancel": false, "cancelReason": "not now"}"#));
        assert!(!request(r#"{"desiredState": "Running"}"#));
    }
}
