//! What a run says about its workflow, in `spec.runtime.config`.

use std::time::Duration;

use jangar_api::{
    agents::{agent::Agent, agent_run::AgentRun},
    reason::Reason,
};
use serde_json::{Map, Value};

use crate::{
    decision::{Rejection, Uid},
    settings::Settings,
    temporal::call::Timeouts,
};

/// The most bytes of a name that a Temporal server takes, unless somebody has set it up otherwise.
const NAME_MAX_BYTES: usize = 1000;
/// The longest time that a workflow may be given, in milliseconds: ten years. More is taken for a slip.
const TIMEOUT_MAX_MS: u64 = 315_360_000_000;
/// What a Temporal server keeps for itself.
const RESERVED: &str = "/_sys/";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub workflow_type: String,
    pub task_queue: String,
    pub workflow_id: String,
    /// The namespace of Temporal.
    pub namespace: String,
    timeouts: Timeouts,
}

impl Config {
    pub(super) fn read(run: &AgentRun, uid: &Uid, settings: &Settings) -> Result<Self, Rejection> {
        if settings.temporal.address.is_none() {
            return Err(Rejection::new(
                Reason::UnsupportedRuntime,
                "spec.runtime.type is temporal, and this installation knows no Temporal server: set TEMPORAL_ADDRESS to its \
                 host and port, or use job",
            ));
        }
        let nothing = Map::new();
        let fields = run
            .spec
            .runtime
            .config
            .as_ref()
            .map_or(&nothing, |config| &config.0);
        let own_id = || format!("agentrun-{uid}");
        Ok(Self {
            workflow_type: required(
                fields,
                "workflowType",
                "the name of the workflow, as its worker registered it",
            )?,
            task_queue: queue(required(
                fields,
                "taskQueue",
                "the task queue that its worker polls",
            )?)?,
            workflow_id: text(fields, "workflowId")?.unwrap_or_else(own_id),
            namespace: text(fields, "namespace")?.unwrap_or_else(|| settings.temporal.namespace.clone()),
            timeouts: timeouts(fields)?,
        })
    }

    /// How long the server gives the workflow: what the run says, else its Agent.
    pub(super) fn timeouts(&self, agent: &Agent) -> Timeouts {
        let defaults = agent.spec.defaults.as_ref();
        let of_agent = defaults
            .and_then(|defaults| defaults.timeout_seconds)
            .and_then(|seconds| u64::try_from(seconds.get()).ok())
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs);
        Timeouts {
            execution: self.timeouts.execution.or(of_agent),
            ..self.timeouts
        }
    }
}

fn required(fields: &Map<String, Value>, name: &str, what: &str) -> Result<String, Rejection> {
    text(fields, name)?.ok_or_else(|| {
        Rejection::new(
            Reason::MissingTemporalConfig,
            format!("spec.runtime.config.{name} is missing: give {what}"),
        )
    })
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, Rejection> {
    let bad = |is: String, remedy: &str| {
        let message = format!("spec.runtime.config.{name} is {is}: {remedy}");
        Rejection::new(Reason::InvalidRuntimeConfig, message)
    };
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
        Some(Value::String(text)) if text.len() > NAME_MAX_BYTES => Err(bad(
            format!("{} bytes long", text.len()),
            &format!("{NAME_MAX_BYTES} are allowed"),
        )),
        Some(Value::String(text)) => Ok(Some(text.trim().to_owned())),
        Some(other) => Err(bad(other.to_string(), "give a text")),
    }
}

fn queue(name: String) -> Result<String, Rejection> {
    if name.starts_with(RESERVED) {
        return Err(Rejection::new(
            Reason::InvalidRuntimeConfig,
            format!(
                "spec.runtime.config.taskQueue is {name:?}, and what begins with {RESERVED} belongs to the Temporal server: \
                 give the task queue that the worker polls"
            ),
        ));
    }
    Ok(name)
}

fn timeouts(fields: &Map<String, Value>) -> Result<Timeouts, Rejection> {
    let nothing = Map::new();
    let given = match fields.get("timeouts") {
        None | Some(Value::Null) => &nothing,
        Some(Value::Object(given)) => given,
        Some(other) => {
            return Err(Rejection::new(
                Reason::InvalidRuntimeConfig,
                format!(
                    "spec.runtime.config.timeouts is {other}: give an object with workflowExecutionTimeoutMs, \
                     workflowRunTimeoutMs or workflowTaskTimeoutMs"
                ),
            ));
        }
    };
    Ok(Timeouts {
        execution: milliseconds(given, "workflowExecutionTimeoutMs")?,
        run: milliseconds(given, "workflowRunTimeoutMs")?,
        task: milliseconds(given, "workflowTaskTimeoutMs")?,
    })
}

fn milliseconds(given: &Map<String, Value>, name: &str) -> Result<Option<Duration>, Rejection> {
    let value = match given.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let number = value
        .as_u64()
        .filter(|number| (1..=TIMEOUT_MAX_MS).contains(number));
    let number = number.ok_or_else(|| {
        Rejection::new(
            Reason::InvalidRuntimeConfig,
            format!(
                "spec.runtime.config.timeouts.{name} is {value}: give a whole number of milliseconds from 1 to {TIMEOUT_MAX_MS}"
            ),
        )
    })?;
    Ok(Some(Duration::from_millis(number)))
}
