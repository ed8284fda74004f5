//! What the status of a run remembers of its endpoint, in `status.runtimeRef`.

use jangar_api::{
    agents::agent_run::{AgentRunStatus, RuntimeType},
    values::{AnyMap, Timestamp},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::elsewhere::{self, Postponed, Sender};
use crate::custom::{callback::Progress, endpoint::Endpoint};

/// What stands for the namespace of what is outside of the cluster.
const EXTERNAL: &str = "external";

/// How far the work has come on its way to the endpoint and back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    #[serde(rename = "type")]
    type_: RuntimeType,
    /// The endpoint.
    pub name: String,
    namespace: String,
    /// Counted from one.
    pub attempt: u32,
    /// The repository whose slot the run has, in lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// When the endpoint was first meant to be called.
    pub since: Timestamp,
    /// Until when the end has to be reported.
    pub deadline: Timestamp,
    pub submission: Submission,
    /// What the endpoint answered when it took the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressSeen>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Cancel>,
    /// Until when the controllers go on making the work end, although the run is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removing_until: Option<Timestamp>,
}

/// Where the call that hands the work over stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub(super) enum Submission {
    /// It is about to be made, or was: nobody but the sender knows.
    Intended(Sender),
    /// It surely did not arrive, and is made again.
    Postponed(Postponed),
    /// The endpoint has the work.
    Taken,
}

/// The last progress that was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProgressSeen {
    #[serde(flatten)]
    pub progress: Progress,
    pub at: Timestamp,
}

/// Where telling the endpoint to stop stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cancel {
    /// When it was first meant to be told.
    pub since: Timestamp,
    pub call: Sender,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<Heard>,
}

/// What the endpoint said to that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Heard {
    Taken,
    Refused(String),
}

impl Record {
    /// Of a run whose endpoint is about to be called for the first time.
    pub(super) fn new(
        endpoint: &Endpoint,
        repository: Option<String>,
        sender: Sender,
        deadline: jiff::Timestamp,
    ) -> Self {
        Self {
            type_: RuntimeType::Custom,
            name: endpoint.as_str().to_owned(),
            namespace: EXTERNAL.to_owned(),
            attempt: 1,
            repository,
            since: sender.at,
            deadline: Timestamp(deadline),
            submission: Submission::Intended(sender),
            response: None,
            progress: None,
            cancel: None,
            removing_until: None,
        }
    }

    /// What the status says; `None` if the endpoint was never meant to be called.
    pub(super) fn of(status: &AgentRunStatus) -> Result<Option<Self>, serde_json::Error> {
        let Some(stored) = &status.runtime_ref else {
            return Ok(None);
        };
        serde_json::from_value(Value::Object(stored.0.clone())).map(Some)
    }

    pub(super) fn stored(&self) -> AnyMap {
        elsewhere::stored(self)
    }

    pub(super) fn last_progress(&self) -> Option<&Progress> {
        self.progress.as_ref().map(|seen| &seen.progress)
    }
}
