//! The controller of AgentRuns: what the engine decides about runs, connected to the driver.

mod observe;

use std::{collections::BTreeSet, sync::Arc};

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus},
    condition::ConditionType,
    phase::RunPhase,
    reason::Reason,
};
use jangar_engine::{
    agent_run::{self, Observed},
    decision::{Decision, Key},
    settings::Settings,
};
use jiff::Timestamp;

use crate::{
    caches::{CachedKind, Caches, Change, Term},
    driver::{Controller, Scene},
    metrics::{Metrics, ObjectKind},
};

/// Looks after AgentRuns, and after what is left of those that are gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgentRuns;

impl Controller for AgentRuns {
    type Object = AgentRun;
    type Observed = Observed;
    const NAME: &'static str = "agent-run";

    /// A Job or a pod concerns the run in its label, also if there is no such run any more. Everything else concerns the
    /// runs that refer to it and have not ended.
    fn concerned(&self, caches: &Caches, change: &Change) -> BTreeSet<Key> {
        let namespace = &change.key.namespace;
        let name = change.key.name.clone();
        let runs = |term: Term| caches.agent_runs.naming(namespace, term);
        let runs_of_agents = |term: Term| {
            let agents = caches.agents.naming(namespace, term);
            agents.flat_map(|agent| runs(Term::Agent(agent.clone())))
        };
        let names: BTreeSet<String> = match change.kind {
            CachedKind::AgentRun => BTreeSet::from([name]),
            CachedKind::Job | CachedKind::Pod => labelled(change),
            CachedKind::Agent => runs(Term::Agent(name)).cloned().collect(),
            CachedKind::AgentProvider => runs_of_agents(Term::AgentProvider(name)).cloned().collect(),
            CachedKind::ImplementationSpec => runs(Term::ImplementationSpec(name)).cloned().collect(),
            CachedKind::Memory => {
                let direct = runs(Term::Memory(name.clone()));
                direct
                    .chain(runs_of_agents(Term::Memory(name)))
                    .cloned()
                    .collect()
            }
        };
        let key = |name| Key {
            namespace: namespace.clone(),
            name,
        };
        names.into_iter().map(key).collect()
    }

    fn has_remains(&self, scene: &Scene<'_>) -> bool {
        !scene.jobs().is_empty()
    }

    fn observe(&self, scene: &Scene<'_>, run: Option<Arc<AgentRun>>) -> Option<Observed> {
        Some(observe::observe(scene, run))
    }

    fn count(&self, metrics: &Metrics, before: Option<&AgentRunStatus>, after: &AgentRunStatus) {
        let Some((phase, reason)) = end(after) else {
            return;
        };
        if before.and_then(end).is_some() {
            return;
        }
        metrics.run_finished(ObjectKind::of::<AgentRun>(), phase, reason);
        if matches!(
            reason,
            Reason::JobMissing | Reason::WorkflowJobMissing | Reason::WorkflowJobDeleted
        ) {
            metrics.job_missing(phase, reason);
        }
    }

    fn plan(&self, observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<AgentRunStatus> {
        agent_run::plan(observed, settings, now)
    }
}

/// The phase of a run that has ended, with the reason.
fn end(status: &AgentRunStatus) -> Option<(&RunPhase, &Reason)> {
    let phase = status.phase.as_ref().filter(|phase| phase.is_terminal())?;
    let condition = status.common.condition(&ConditionType::Succeeded);
    Some((
        phase,
        condition.map_or(&Reason::Reconciled, |condition| &condition.reason),
    ))
}

/// The runs that a Job or a pod belongs to: one, or two if somebody changed the label.
fn labelled(change: &Change) -> BTreeSet<String> {
    let names = change.terms.iter().filter_map(|term| match term {
        Term::AgentRun(name) => Some(name.clone()),
        Term::Agent(_)
        | Term::AgentProvider(_)
        | Term::ImplementationSpec(_)
        | Term::Memory(_)
        | Term::DefaultMemory => None,
    });
    names.collect()
}
