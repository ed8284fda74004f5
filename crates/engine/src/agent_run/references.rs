//! The objects a run refers to: found, missing for now, or missing for good.

use std::collections::BTreeSet;

use jangar_api::{
    agents::{
        agent::Agent, agent_provider::AgentProvider, agent_run::AgentRun,
        implementation_spec::ImplementationSpecSpec, memory::Memory,
    },
    reason::Reason,
};

use super::{
    Situation,
    task::{Description, Task},
};
pub(super) use crate::life::start::Lacking;
use crate::{
    decision::{KeyHolder, Keys, Question, Rejection, Sight},
    implementation_spec,
    job::{self, Needs, PromptSource},
    life::start::{NotFound, found},
    settings::NatsAuth,
    waiting::Remedy,
};

/// What a run refers to, all of it there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolved<'a> {
    pub agent: &'a Agent,
    pub provider: &'a AgentProvider,
    pub implementation: &'a ImplementationSpecSpec,
    /// The name of the ImplementationSpec, if the run or the step refers to one.
    pub implementation_ref: Option<&'a str>,
    pub memory: Option<&'a Memory>,
}

/// Why the references of a run are not all there.
pub(super) enum Unresolved {
    /// A cache does not show it, which proves nothing.
    Unsure(BTreeSet<Question>),
    /// It does not exist, or cannot be read. It may have been applied together with the run and come a moment later, and
    /// somebody may be about to mend it.
    Lacking(Lacking),
    /// It exists and cannot be used.
    Wrong(Rejection),
    /// It was to come from an earlier step, which has not reported it.
    NotReported(Rejection),
}

impl Unresolved {
    /// The same, said of one task of the run.
    pub(super) fn of(self, task: Task<'_>) -> Self {
        match self {
            Self::Unsure(questions) => Self::Unsure(questions),
            Self::Lacking(lacking) => Self::Lacking(Lacking {
                why: task.says_why(lacking.why),
                ..lacking
            }),
            Self::Wrong(why) => Self::Wrong(task.says_why(why)),
            Self::NotReported(why) => Self::NotReported(task.says_why(why)),
        }
    }
}

impl From<NotFound> for Unresolved {
    fn from(not_found: NotFound) -> Self {
        match not_found {
            NotFound::Unsure(question) => Self::Unsure(BTreeSet::from([question])),
            NotFound::Lacking(lacking) => Self::Lacking(lacking),
        }
    }
}

/// Finds what a task of the run refers to; `run` is the run as the task sees it.
pub(super) fn resolve<'a>(
    situation: &Situation<'a>,
    task: Task<'a>,
    run: &AgentRun,
) -> Result<Resolved<'a>, Unresolved> {
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
    // What the Agent does not allow comes before what is missing, as the public order of reasons has it.
    job::check_agent(run, agent, situation.settings).map_err(Unresolved::Wrong)?;
    let (implementation, implementation_ref) = implementation(situation, task)?;
    // No memory would help a run whose work lacks something that it must have.
    job::check_contract(run, implementation, implementation_ref).map_err(Unresolved::Wrong)?;
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
        // Nobody named it, so that nobody waits for it.
        None => references
            .memory
            .as_ref()
            .and_then(Sight::seen)
            .map(AsRef::as_ref),
    };
    Ok(Resolved {
        agent,
        provider,
        implementation,
        implementation_ref,
        memory,
    })
}

/// What is to be done: described in the run or the step itself, or in an object of its own.
fn implementation<'a>(
    situation: &Situation<'a>,
    task: Task<'a>,
) -> Result<(&'a ImplementationSpecSpec, Option<&'a str>), Unresolved> {
    let (implementation, reference, at) = match task.description(situation.run) {
        Description::Inline(implementation, field) => (&implementation.inline, None, field),
        Description::Reference(reference, field) => {
            let name = reference.name.trim();
            let object = found(
                situation.observed.references.implementations.get(name),
                Reason::MissingImplementation,
                "ImplementationSpec",
                &reference.name,
                &field,
                Question::ImplementationSpec,
            )?;
            let at = format!("spec of ImplementationSpec {}", reference.name);
            (&object.spec, Some(reference.name.as_str()), at)
        }
        Description::Nowhere => {
            return Err(Unresolved::Wrong(Rejection::new(
                Reason::MissingImplementation,
                "nothing says what is to be done: set spec.implementationSpecRef or spec.implementation.inline, or one of \
                 them in each step of a workflow",
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

/// The user and password for NATS, if the run may have them and both are there.
pub(super) fn nats_auth<'a>(
    situation: &Situation<'a>,
    agent: &Agent,
) -> Result<Option<&'a NatsAuth>, Unresolved> {
    let Some(nats) = job::nats_auth(agent, situation.settings) else {
        return Ok(None);
    };
    let keys = keys_of(situation, &KeyHolder::Secret(nats.secret.clone()))?;
    let complete = match keys {
        Keys::Of(keys) => [&nats.username_key, &nats.password_key]
            .iter()
            .all(|key| keys.contains_key(*key)),
        Keys::Absent | Keys::Forbidden => false,
    };
    Ok(complete.then_some(nats))
}

/// The hash of a system prompt that is kept in a Secret or a ConfigMap, as far as we may know it.
pub(super) fn prompt_hash(
    situation: &Situation<'_>,
    source: &PromptSource,
) -> Result<Option<String>, Unresolved> {
    let PromptSource { holder, key } = source;
    let problem = match keys_of(situation, holder)? {
        Keys::Of(keys) => match keys.get(key) {
            Some(hash) => return Ok(Some(hash.clone())),
            None => format!("the system prompt is {key} of {holder}, which has no such key"),
        },
        Keys::Absent => format!("the system prompt is {key} of {holder}, which does not exist"),
        Keys::Forbidden => return Ok(None),
    };
    Err(Unresolved::Lacking(Lacking {
        why: Rejection::new(Reason::MissingSystemPromptRef, problem),
        remedy: Remedy::Create,
        watched: false,
    }))
}

fn keys_of<'a>(situation: &Situation<'a>, holder: &KeyHolder) -> Result<&'a Keys, Unresolved> {
    let unsure = || Unresolved::Unsure(BTreeSet::from([Question::Keys(holder.clone())]));
    situation.observed.keys.get(holder).ok_or_else(unsure)
}

/// Whether the Secrets and ConfigMaps are there without which the pod would not start, as far as we may know. A node waits for
/// them without an end, and with it the slot of the run.
pub(super) fn there(situation: &Situation<'_>, needs: &Needs) -> Result<(), Unresolved> {
    let known = &situation.observed.keys;
    // All at once: there may be many, and each question is a read.
    let unknown: BTreeSet<Question> = needs
        .keys()
        .filter(|holder| !known.contains_key(holder))
        .map(|holder| Question::Keys(holder.clone()))
        .collect();
    if !unknown.is_empty() {
        return Err(Unresolved::Unsure(unknown));
    }
    let lacking = needs.iter().find_map(|(holder, keys)| {
        let (not_found, key_missing) = match holder {
            KeyHolder::Secret(_) => (Reason::SecretNotFound, Reason::SecretKeyMissing),
            KeyHolder::ConfigMap(_) => (Reason::ConfigMapNotFound, Reason::ConfigMapKeyMissing),
        };
        match known.get(holder)? {
            Keys::Forbidden => None,
            Keys::Absent => {
                let problem =
                    format!("the pod of the run needs {holder}, and there is none in this namespace");
                Some((Rejection::new(not_found, problem), Remedy::Create))
            }
            Keys::Of(there) => {
                let key = keys.iter().find(|key| !there.contains_key(*key))?;
                let problem = format!("the pod of the run needs {key} of {holder}, which has no such key");
                Some((Rejection::new(key_missing, problem), Remedy::Mend))
            }
        }
    });
    match lacking {
        None => Ok(()),
        Some((why, remedy)) => Err(Unresolved::Lacking(Lacking {
            why,
            remedy,
            watched: false,
        })),
    }
}
