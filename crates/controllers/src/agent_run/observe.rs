//! Gathers what is known about a run.

use std::sync::Arc;

use jangar_api::{
    agents::{
        agent::Agent,
        agent_run::AgentRun,
        implementation_spec::{ImplementationSpec, ImplementationSpecSpec},
        memory::Memory,
    },
    labels,
};
use jangar_engine::{
    agent_run::{Observed, References},
    decision::{Key, Sight},
    vcs,
};
use kube::ResourceExt;

use crate::{caches::Term, driver::Scene};

pub(super) fn observe(scene: &Scene<'_>, run: Option<Arc<AgentRun>>) -> Observed {
    let references = references(scene, run.as_deref());
    let branch_rival = run
        .as_deref()
        .and_then(|run| branch_rival(scene, run, &references));
    Observed {
        key: scene.key.clone(),
        references,
        run,
        branch_rival,
        jobs: scene.jobs(),
        live_jobs: scene.live_jobs(),
        pods: scene.pods(),
        keys: scene.learned.keys.clone(),
        refusal: scene.learned.refusal.clone(),
        occupant: scene.learned.occupant.clone(),
        token: scene.learned.token.clone(),
    }
}

/// Follows the references of a run. One behind an object that is not known yet is not known either.
fn references(scene: &Scene<'_>, run: Option<&AgentRun>) -> References {
    let Some(spec) = run.map(|run| &run.spec) else {
        return References {
            agent: Sight::Unseen,
            provider: None,
            implementation: None,
            memory: None,
            vcs: None,
        };
    };
    let agent: Sight<Agent> = scene.sight(&spec.agent_ref.name);
    let of_agent = agent.seen().map(|agent| &agent.spec);
    let provider = of_agent.map(|agent| scene.sight(&agent.provider_ref.name));
    let implementation: Option<Sight<ImplementationSpec>> =
        match (&spec.implementation, &spec.implementation_spec_ref) {
            (None, Some(reference)) => Some(scene.sight(&reference.name)),
            (Some(_), _) | (None, None) => None,
        };
    let work = work(run, implementation.as_ref());
    let vcs = run.and_then(|run| vcs::reference(run, work, agent.seen().map(AsRef::as_ref)));
    let vcs = vcs.map(|name| scene.sight(name));
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
        implementation,
        memory,
        vcs,
    }
}

/// What the run is about, as far as it is known.
fn work<'a>(
    run: Option<&'a AgentRun>,
    implementation: Option<&'a Sight<ImplementationSpec>>,
) -> Option<&'a ImplementationSpecSpec> {
    let inline = run.and_then(|run| run.spec.implementation.as_ref());
    let referred = || implementation.and_then(Sight::seen).map(|object| &object.spec);
    inline
        .map(|implementation| &implementation.inline)
        .or_else(referred)
}

/// Another run that has not ended and works on the branch that this one would take. Runs and Jobs are found by that branch.
fn branch_rival(scene: &Scene<'_>, run: &AgentRun, references: &References) -> Option<String> {
    let provider = references.vcs.as_ref()?.seen()?;
    let work = work(Some(run), references.implementation.as_ref())?;
    let term = Term::Branch(vcs::wanted_branch(run, work, provider)?);
    let namespace = &scene.key.namespace;
    let runs = scene.caches.agent_runs.naming(namespace, term.clone());
    let jobs = scene.caches.jobs.naming(namespace, term);
    let key = |name: &String| Key {
        namespace: namespace.clone(),
        name: name.clone(),
    };
    let of_jobs = jobs.filter_map(|job| scene.caches.jobs.get(&key(job))?.labels().get(labels::AGENT_RUN));
    let alive = |name: &&String| {
        let rival = scene.caches.agent_runs.get(&key(name));
        let phase = |run: &AgentRun| run.status.as_ref().and_then(|status| status.phase.clone());
        rival.is_some_and(|rival| !phase(rival).is_some_and(|phase| phase.is_terminal()))
    };
    let others = runs.chain(of_jobs).filter(|name| **name != scene.key.name);
    others.filter(alive).min().cloned()
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
