//! Gathers what is known about a run.

use std::{collections::BTreeMap, sync::Arc};

use jangar_api::agents::{agent::Agent, agent_run::AgentRun, memory::Memory};
use jangar_engine::{
    agent_run::{Observed, References},
    decision::Sight,
};

use crate::{
    caches::{Term, implementation_names},
    driver::Scene,
    outside::Outside,
};

pub(super) fn observe(scene: &Scene<'_>, run: Option<Arc<AgentRun>>, outside: &Outside) -> Observed {
    let of_run = Term::AgentRun(scene.key.name.clone());
    Observed {
        outside: outside.observe(scene.key, run.as_deref()),
        key: scene.key.clone(),
        references: references(scene, run.as_deref()),
        run,
        jobs: scene.jobs(&of_run),
        live_jobs: scene.live_jobs(),
        departed: scene.departed_jobs(),
        pods: scene.pods(&of_run),
        keys: scene.learned.keys.clone(),
        refusal: scene.learned.refusal.clone(),
        occupant: scene.learned.occupant.clone(),
        admission: scene.learned.admission.clone(),
    }
}

/// Follows the references of a run. One behind an object that is not known yet is not known either.
fn references(scene: &Scene<'_>, run: Option<&AgentRun>) -> References {
    let Some(spec) = run.map(|run| &run.spec) else {
        return References {
            agent: Sight::Unseen,
            provider: None,
            implementations: BTreeMap::new(),
            memory: None,
        };
    };
    let agent: Sight<Agent> = scene.sight(&spec.agent_ref.name);
    let of_agent = agent.seen().map(|agent| &agent.spec);
    let provider = of_agent.map(|agent| scene.sight(&agent.provider_ref.name));
    let implementations = implementation_names(spec)
        .map(|name| (name.to_owned(), scene.sight(name)))
        .collect();
    let memory = spec.memory_ref.as_ref();
    let memory = memory.or_else(|| of_agent.and_then(|agent| agent.memory_ref.as_ref()));
    let memory = match memory {
        Some(reference) => Some(scene.sight(&reference.name)),
        // An Agent that is not known may name one.
        None => of_agent.and_then(|_| default_memory(scene)),
    };
    References {
        agent,
        provider,
        implementations,
        memory,
    }
}

/// The Memory of runs for which nobody names one: the first by name of those that offer themselves. One that a cache does not
/// show yet is passed over, because nothing refers to it: only who names a Memory waits for it.
fn default_memory(scene: &Scene<'_>) -> Option<Sight<Memory>> {
    let names = scene
        .caches
        .memories
        .naming(&scene.key.namespace, Term::DefaultMemory);
    names.min().map(|name| scene.sight(name))
}
