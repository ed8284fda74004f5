//! Agent: whether it can be given work.

use std::sync::Arc;

use jangar_api::{
    agents::{
        agent::{Agent, AgentStatus},
        agent_provider::AgentProvider,
        memory::Memory,
    },
    reason::Reason,
};
use jiff::Timestamp;

use crate::{
    conditions::touched,
    decision::{Decision, Plan, Question, Rejection, Sight},
    validity,
};

/// What is known about an Agent.
#[derive(Clone, Debug)]
pub struct Observed {
    pub agent: Arc<Agent>,
    pub provider: Sight<AgentProvider>,
    /// `None` if it names no Memory.
    pub memory: Option<Sight<Memory>>,
}

/// Says whether the Agent can be given work. What it refers to may come later: its appearance leads here again.
pub fn plan(observed: &Observed, now: Timestamp) -> Decision<AgentStatus> {
    let agent = &observed.agent;
    let checked = match check(observed) {
        Checked::Unsure(question) => return Decision::look(question),
        Checked::Sure(checked) => checked,
    };
    let before = agent.status.clone().unwrap_or_default();
    let mut next = before.clone();
    next.common = validity::report(&before.common, agent.metadata.generation, checked, now);
    Decision::Act(Plan {
        status: touched(&before, next, |status| &mut status.common, now),
        ..Plan::nothing()
    })
}

enum Checked {
    Unsure(Question),
    Sure(Result<(), Rejection>),
}

fn check(observed: &Observed) -> Checked {
    let spec = &observed.agent.spec;
    let provider = spec.provider_ref.name.trim();
    if provider.is_empty() {
        return Checked::Sure(Err(Rejection::new(
            Reason::MissingProviderRef,
            "spec.providerRef.name is blank: set it to the name of an AgentProvider in this namespace",
        )));
    }
    match &observed.provider {
        Sight::Seen(_) => {}
        Sight::Unseen => return Checked::Unsure(Question::AgentProvider(provider.to_owned())),
        Sight::Absent => {
            return Checked::Sure(Err(Rejection::new(
                Reason::MissingProvider,
                format!(
                    "spec.providerRef.name is {provider}, and there is no AgentProvider of that name in this namespace: \
                     create it, or name another one"
                ),
            )));
        }
        Sight::Illegible(words) => {
            return Checked::Sure(Err(unreadable(
                "spec.providerRef.name",
                "AgentProvider",
                provider,
                words,
            )));
        }
    }
    let memory = spec.memory_ref.as_ref().map(|memory| memory.name.as_str());
    match (&observed.memory, memory) {
        (Some(Sight::Unseen), Some(memory)) => Checked::Unsure(Question::Memory(memory.to_owned())),
        (Some(Sight::Absent), Some(memory)) => Checked::Sure(Err(Rejection::new(
            Reason::MissingMemory,
            format!(
                "spec.memoryRef.name is {memory}, and there is no Memory of that name in this namespace: create it, or name \
                 another one"
            ),
        ))),
        (Some(Sight::Illegible(words)), Some(memory)) => {
            Checked::Sure(Err(unreadable("spec.memoryRef.name", "Memory", memory, words)))
        }
        (Some(Sight::Seen(_)) | None, _) | (_, None) => Checked::Sure(Ok(())),
    }
}

fn unreadable(field: &str, kind: &str, name: &str, words: &str) -> Rejection {
    Rejection::new(
        Reason::UnreadableReference,
        format!(
            "{field} is {name}, and {kind} {name} cannot be read ({words}): mend it, or name another one"
        ),
    )
}
