//! What the steps of a workflow and those of an orchestration have in common: they are attempted, and may be again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    phase::StepPhase,
    values::{Int32, Timestamp, if_legible},
};

/// Where one step stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepProgress {
    /// Where the step stands: Pending, Running, Retrying, Succeeded, Failed, Skipped or Cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<StepPhase>,
    /// Number of the current attempt, counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Int32>,
    /// When the current attempt started.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the step ended.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When the phase last changed.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    /// When the next attempt is due, while the step is Retrying.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Timestamp>,
}
