//! AgentProvider: whether it can be used.

use std::sync::Arc;

use jangar_api::{
    agents::agent_provider::{AgentProvider, AgentProviderStatus},
    reason::Reason,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    conditions::touched,
    decision::{Decision, Plan, Rejection},
    template, validity,
};

/// What is known about a provider.
#[derive(Clone, Debug)]
pub struct Observed {
    pub provider: Arc<AgentProvider>,
}

/// Says whether the provider can be used.
pub fn plan(observed: &Observed, now: Timestamp) -> Decision<AgentProviderStatus> {
    let provider = &observed.provider;
    let before = provider.status.clone().unwrap_or_default();
    let mut next = before.clone();
    next.common = validity::report(&before.common, provider.metadata.generation, check(provider), now);
    Decision::Act(Plan {
        status: touched(&before, next, |status| &mut status.common, now),
        ..Plan::nothing()
    })
}

fn check(provider: &AgentProvider) -> Result<(), Rejection> {
    let spec = &provider.spec;
    if spec.binary.trim().is_empty() {
        return Err(Rejection::new(
            Reason::MissingBinary,
            "spec.binary is blank: set it to the path of the agent's program, or to agent-runner for the built-in one",
        ));
    }
    let args = spec
        .args_template
        .iter()
        .enumerate()
        .map(|(at, text)| (format!("spec.argsTemplate[{at}]"), text));
    let env = spec
        .env_template
        .iter()
        .map(|(name, text)| (format!("spec.envTemplate.{name}"), text));
    for (field, text) in args.chain(env) {
        // Whether it can be rendered does not depend on the values.
        template::render(text, &Value::Null)
            .map_err(|error| Rejection::new(Reason::InvalidTemplate, format!("{field}: {error}")))?;
    }
    Ok(())
}
