//! Gathers what is known about a run.

use std::{collections::BTreeMap, sync::Arc};

use jangar_api::{
    agents::{agent::Agent, agent_run::AgentRun, memory::Memory},
    labels,
};
use jangar_engine::{
    agent_run::{self, Observed, References},
    decision::{Key, Sight},
    vcs::WantedBranch,
};
use kube::ResourceExt;

use super::{claims::Claims, has_ended};
use crate::{
    caches::{Term, implementation_names},
    driver::Scene,
    outside::Outside,
};

pub(super) fn observe(
    scene: &Scene<'_>,
    run: Option<Arc<AgentRun>>,
    outside: &Outside,
    claims: &Claims,
) -> Observed {
    let of_run = Term::AgentRun(scene.key.name.clone());
    let references = references(scene, run.as_deref());
    let branch_rivals = run
        .as_deref()
        .map(|run| branch_rivals(scene, run, &references, claims))
        .unwrap_or_default();
    let cancel_above = run.as_deref().and_then(|run| scene.cancel_above(&run.metadata));
    Observed {
        outside: outside.observe(scene.key, run.as_deref()),
        key: scene.key.clone(),
        references,
        departed: scene.departed_jobs(run.as_deref().map(|run| &run.metadata)),
        run,
        branch_rivals,
        jobs: scene.jobs(&of_run),
        live_jobs: scene.live_jobs(),
        lost_pods: scene.lost_pods(&of_run),
        pods: scene.pods(&of_run),
        keys: scene.learned.keys.clone(),
        refusal: scene.learned.refusal.clone(),
        occupant: scene.learned.occupant.clone(),
        cancel_above,
        busy: scene.busy,
        admission: scene.learned.admission.clone(),
        tokens: scene.learned.tokens.clone(),
    }
}

/// Follows the references of a run. One behind an object that is not known yet is not known either.
fn references(scene: &Scene<'_>, run: Option<&AgentRun>) -> References {
    let Some(run) = run else {
        return References {
            agent: Sight::Unseen,
            provider: None,
            implementations: BTreeMap::new(),
            memory: None,
            vcs: BTreeMap::new(),
        };
    };
    let spec = &run.spec;
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
    let mut references = References {
        agent,
        provider,
        implementations,
        memory,
        vcs: BTreeMap::new(),
    };
    references.vcs = agent_run::providers_needed(run, &references)
        .into_iter()
        .map(|name| {
            let sight = scene.sight(&name);
            (name, sight)
        })
        .collect();
    references
}

/// Other runs that have not ended, by the branch that they work on and that this one would take.
fn branch_rivals(
    scene: &Scene<'_>,
    run: &AgentRun,
    references: &References,
    claims: &Claims,
) -> BTreeMap<WantedBranch, String> {
    let wanted = agent_run::wanted_branches(run, references);
    // One that works has its branch already.
    let vcs = run.status.as_ref().and_then(|status| status.vcs.as_ref());
    let works = vcs.is_some() || !scene.jobs(&Term::AgentRun(scene.key.name.clone())).is_empty();
    let takes = !works && !has_ended(run) && run.metadata.deletion_timestamp.is_none();
    wanted
        .into_iter()
        .filter_map(|branch| {
            let quicker = || takes.then(|| claims.take(scene.key, &branch).err()).flatten();
            let rival = branch_rival(scene, &branch).or_else(quicker)?;
            Some((branch, rival))
        })
        .collect()
}

/// Another run that has not ended and works on a branch. Runs and Jobs are found by it.
fn branch_rival(scene: &Scene<'_>, branch: &WantedBranch) -> Option<String> {
    let term = Term::Branch(branch.clone());
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
        rival.is_some_and(|rival| !has_ended(rival))
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
