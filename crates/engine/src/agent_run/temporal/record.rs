//! What the status of a run remembers of its workflow, in `status.runtimeRef`.

use std::time::Duration;

use jangar_api::{
    agents::agent_run::{AgentRunStatus, RuntimeType},
    values::{AnyMap, Timestamp},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    super::{
        elsewhere::{self, Postponed, Sender},
        leftovers::after,
    },
    config::Config,
};
use crate::temporal::call::{Means, Workflow};

/// How far the work has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    #[serde(rename = "type")]
    type_: RuntimeType,
    /// The same as the id of the workflow.
    name: String,
    /// Of Temporal.
    pub namespace: String,
    pub workflow_id: String,
    /// The first execution of the workflow, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    pub task_queue: String,
    /// The repository whose slot the run has, in lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// When the workflow was first meant to be started.
    pub since: Timestamp,
    /// When the workflow should have been closed by the server; absent if nobody set a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    pub start: Beginning,
    /// Whether a start may have arrived although nobody said so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unclear: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stopped>,
    /// Until when the controllers go on making the work end, although the run is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removing_until: Option<Timestamp>,
}

/// Where the start of the workflow stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub(super) enum Beginning {
    /// It is about to be made, or was.
    Intended(Sender),
    /// It did not arrive, as far as one knows, and is made again.
    Postponed(Postponed),
    /// The workflow is there.
    Started,
}

/// Where making the workflow end stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stopped {
    /// When it was first meant to end.
    pub since: Timestamp,
    pub means: Means,
    /// The call that says so, counted from one.
    pub number: u32,
    pub at: Timestamp,
    /// Whether the server has taken it.
    pub told: bool,
    /// Why it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Record {
    /// Of a run whose workflow is about to be started for the first time.
    pub(super) fn new(
        config: &Config,
        repository: Option<String>,
        sender: Sender,
        limit: Option<Duration>,
    ) -> Self {
        Self {
            type_: RuntimeType::Temporal,
            name: config.workflow_id.clone(),
            namespace: config.namespace.clone(),
            workflow_id: config.workflow_id.clone(),
            run_id: None,
            task_queue: config.task_queue.clone(),
            repository,
            since: sender.at,
            deadline: limit.map(|limit| Timestamp(after(sender.at.0, limit))),
            start: Beginning::Intended(sender),
            unclear: false,
            stop: None,
            removing_until: None,
        }
    }

    /// What the status says; `None` if no workflow was ever meant to be started.
    pub(super) fn of(status: &AgentRunStatus) -> Result<Option<Self>, serde_json::Error> {
        let Some(stored) = &status.runtime_ref else {
            return Ok(None);
        };
        serde_json::from_value(Value::Object(stored.0.clone())).map(Some)
    }

    pub(super) fn stored(&self) -> AnyMap {
        elsewhere::stored(self)
    }

    pub(super) fn workflow(&self) -> Workflow {
        Workflow {
            namespace: self.namespace.clone(),
            id: self.workflow_id.clone(),
            run_id: self.run_id.clone(),
        }
    }

    /// For people.
    pub(super) fn words(&self) -> String {
        format!(
            "workflow {} in Temporal namespace {}",
            self.workflow_id, self.namespace
        )
    }
}
