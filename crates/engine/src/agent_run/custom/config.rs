//! What a run says about its endpoint, in `spec.runtime.config`.

use std::time::Duration;

use jangar_api::{
    agents::{agent::Agent, agent_run::AgentRun},
    reason::Reason,
};
use serde_json::Value;

use crate::{custom::endpoint::Endpoint, decision::Rejection, settings::Settings};

/// The longest time that a run may have, in seconds: a year. More is taken for a slip.
const TIMEOUT_MAX_SECONDS: u64 = 31_536_000;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Config {
    pub endpoint: Endpoint,
    /// What is sent instead of the description of the run.
    pub payload: Option<Value>,
    timeout: Option<Duration>,
}

impl Config {
    /// Reads it, and says whether this installation may call the endpoint.
    pub(super) fn read(run: &AgentRun, settings: &Settings) -> Result<Self, Rejection> {
        if settings.custom.callback_url.is_none() {
            return Err(Rejection::new(
                Reason::UnsupportedRuntime,
                "spec.runtime.type is custom, and this installation has no address for callbacks: set \
                 JANGAR_CUSTOM_RUNTIME_CALLBACK_URL, or use job",
            ));
        }
        let config = run.spec.runtime.config.as_ref();
        let field = |name: &str| {
            config
                .and_then(|config| config.0.get(name))
                .filter(|value| !value.is_null())
        };
        let endpoint = endpoint(field("endpoint"))?;
        let allowed = &settings.custom.allowed_endpoints;
        if !allowed.iter().any(|pattern| pattern.allows(&endpoint)) {
            return Err(Rejection::new(
                Reason::EndpointNotAllowed,
                format!(
                    "spec.runtime.config.endpoint is {endpoint}, which this installation may not call: use one that \
                     JANGAR_CUSTOM_RUNTIME_ALLOWED_ENDPOINTS allows, or have it added there"
                ),
            ));
        }
        Ok(Self {
            endpoint,
            payload: field("payload").cloned(),
            timeout: field("timeoutSeconds").map(timeout).transpose()?,
        })
    }

    /// How long the endpoint has: what the run says, else its Agent, else the settings.
    pub(super) fn timeout(&self, agent: &Agent, settings: &Settings) -> Duration {
        let defaults = agent.spec.defaults.as_ref();
        let of_agent = defaults
            .and_then(|defaults| defaults.timeout_seconds)
            .and_then(|seconds| u64::try_from(seconds.get()).ok())
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs);
        self.timeout.or(of_agent).unwrap_or(settings.custom.timeout)
    }
}

fn endpoint(value: Option<&Value>) -> Result<Endpoint, Rejection> {
    let missing = || {
        Rejection::new(
            Reason::MissingEndpoint,
            "spec.runtime.config.endpoint is missing: give the URL that takes the work, such as https://agents.example.com/run",
        )
    };
    let text = match value {
        None => return Err(missing()),
        Some(Value::String(text)) if text.trim().is_empty() => return Err(missing()),
        Some(Value::String(text)) => text.trim(),
        Some(other) => {
            return Err(Rejection::new(
                Reason::InvalidRuntimeConfig,
                format!(
                    "spec.runtime.config.endpoint is {}: give a URL as a text",
                    kind_of(other)
                ),
            ));
        }
    };
    text.parse().map_err(|error| {
        Rejection::new(
            Reason::InvalidRuntimeConfig,
            format!("spec.runtime.config.endpoint cannot be used ({error}): give a URL such as https://agents.example.com/run"),
        )
    })
}

fn timeout(value: &Value) -> Result<Duration, Rejection> {
    let seconds = value
        .as_u64()
        .filter(|seconds| (1..=TIMEOUT_MAX_SECONDS).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        Rejection::new(
            Reason::InvalidRuntimeConfig,
            format!(
                "spec.runtime.config.timeoutSeconds is {}: give a whole number from 1 to {TIMEOUT_MAX_SECONDS}",
                match value {
                    Value::Number(number) => number.to_string(),
                    other => kind_of(other).to_owned(),
                }
            ),
        )
    })
}

const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
