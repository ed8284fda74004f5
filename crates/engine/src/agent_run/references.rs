//! The objects a run refers to: found, missing for now, or missing for good.

use jangar_api::{
    agents::{
        agent::Agent, agent_provider::AgentProvider, implementation_spec::ImplementationSpecSpec,
        memory::Memory,
    },
    reason::Reason,
};

use super::Situation;
use crate::{
    decision::{Question, Rejection, Sight},
    implementation_spec,
};

/// What a run refers to, all of it there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolved<'a> {
    pub agent: &'a Agent,
    pub provider: &'a AgentProvider,
    pub implementation: &'a ImplementationSpecSpec,
    /// The name of the ImplementationSpec, if the run refers to one.
    pub implementation_ref: Option<&'a str>,
    pub memory: Option<&'a Memory>,
}

/// Why the references of a run are not all there.
pub(super) enum Unresolved {
    /// A cache does not show it, which proves nothing.
    Unsure(Question),
    /// It does not exist. It may have been applied together with the run and come a moment later.
    Missing(Rejection),
    /// It exists and cannot be used.
    Wrong(Rejection),
}

/// Finds what the run refers to.
pub(super) fn resolve<'a>(situation: &Situation<'a>) -> Result<Resolved<'a>, Unresolved> {
    let spec = &situation.run.spec;
    let references = &situation.observed.references;
    let agent_name = named(
        "Agent",
        "spec.agentRef.name",
        &spec.agent_ref.name,
        Reason::MissingAgent,
    )?;
    let agent = found(
        Some(&references.agent),
        Reason::MissingAgent,
        "Agent",
        agent_name,
        "spec.agentRef.name",
        Question::Agent,
    )?;
    let provider_field = format!("spec.providerRef.name of Agent {agent_name}");
    let provider_name = named(
        "AgentProvider",
        &provider_field,
        &agent.spec.provider_ref.name,
        Reason::MissingProviderRef,
    )?;
    let provider = found(
        references.provider.as_ref(),
        Reason::MissingProvider,
        "AgentProvider",
        provider_name,
        &provider_field,
        Question::AgentProvider,
    )?;
    let (implementation, implementation_ref) = implementation(situation)?;
    let memory_name = spec.memory_ref.as_ref().or(agent.spec.memory_ref.as_ref());
    let memory = match memory_name {
        Some(memory) => Some(found(
            references.memory.as_ref(),
            Reason::MissingMemory,
            "Memory",
            &memory.name,
            "memoryRef.name of the run or its Agent",
            Question::Memory,
        )?),
        None => None,
    };
    Ok(Resolved {
        agent,
        provider,
        implementation,
        implementation_ref,
        memory,
    })
}

/// What is to be done: described in the run itself, or in an object of its own.
fn implementation<'a>(
    situation: &Situation<'a>,
) -> Result<(&'a ImplementationSpecSpec, Option<&'a str>), Unresolved> {
    let spec = &situation.run.spec;
    let (implementation, reference, at) = match (&spec.implementation, &spec.implementation_spec_ref) {
        (Some(implementation), _) => (
            &implementation.inline,
            None,
            "spec.implementation.inline".to_owned(),
        ),
        (None, Some(reference)) => {
            let object = found(
                situation.observed.references.implementation.as_ref(),
                Reason::MissingImplementation,
                "ImplementationSpec",
                &reference.name,
                "spec.implementationSpecRef.name",
                Question::ImplementationSpec,
            )?;
            let at = format!("spec of ImplementationSpec {}", reference.name);
            (&object.spec, Some(reference.name.as_str()), at)
        }
        (None, None) => {
            return Err(Unresolved::Wrong(Rejection::new(
                Reason::MissingImplementation,
                "the run does not say what is to be done: set spec.implementationSpecRef or spec.implementation.inline",
            )));
        }
    };
    implementation_spec::check(implementation, &at).map_err(Unresolved::Wrong)?;
    Ok((implementation, reference))
}

fn named<'a>(kind: &str, field: &str, name: &'a str, reason: Reason) -> Result<&'a str, Unresolved> {
    if name.trim().is_empty() {
        return Err(Unresolved::Wrong(Rejection::new(
            reason,
            format!("{field} is blank: name an {kind} of this namespace"),
        )));
    }
    Ok(name)
}

fn found<'a, K>(
    sight: Option<&'a Sight<K>>,
    reason: Reason,
    kind: &str,
    name: &str,
    field: &str,
    question: impl FnOnce(String) -> Question,
) -> Result<&'a K, Unresolved> {
    match sight {
        Some(Sight::Seen(object)) => Ok(object),
        Some(Sight::Unseen) | None => Err(Unresolved::Unsure(question(name.to_owned()))),
        Some(Sight::Absent) => Err(Unresolved::Missing(Rejection::new(
            reason,
            format!("{field} is {name}, and there is no {kind} of that name in this namespace"),
        ))),
    }
}
