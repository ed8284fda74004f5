//! The controllers of Orchestrations and their runs: what the engine decides about them, connected to the driver.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jangar_api::{
    orchestration::{
        Orchestration, OrchestrationSpec, OrchestrationStatus,
        orchestration_run::{OrchestrationRun, OrchestrationRunStatus, StepStatus},
    },
    phase::RunPhase,
    signals::SignalDelivery,
};
use jangar_engine::{
    decision::{Decision, Key, Sight},
    orchestration::{Graph, Mistakes, check, read, read_named},
    orchestration_run::{self, Observed, Waiter, waiters},
    parent,
    settings::Settings,
};
use jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    agents::itself,
    caches::{Cached, CachedKind, Caches, Change, Term, waited_for},
    driver::{Controller, Scene},
    metrics::Metrics,
    report::{self, Told},
};

/// Says whether an Orchestration can be run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Orchestrations;

impl Controller for Orchestrations {
    type Object = Orchestration;
    type Observed = check::Observed;
    const NAME: &'static str = "orchestration";

    fn concerned(&self, _: &Caches, change: &Change) -> BTreeSet<Key> {
        itself(CachedKind::Orchestration, change)
    }

    fn observe(&self, _: &Scene<'_>, orchestration: Option<Arc<Orchestration>>) -> Option<check::Observed> {
        Some(check::Observed {
            orchestration: orchestration?,
        })
    }

    fn plan(
        &self,
        observed: &check::Observed,
        settings: &Settings,
        now: Timestamp,
    ) -> Decision<OrchestrationStatus> {
        check::plan(observed, settings, now)
    }
}

/// Looks after OrchestrationRuns, and after the children of those that are gone.
#[derive(Debug, Default)]
pub struct OrchestrationRuns {
    /// The graphs of runs that are under way, by their UIDs. Reading one anew with each look would cost more than everything
    /// else that is decided about a large one.
    graphs: Mutex<BTreeMap<String, Arc<Graph>>>,
}

impl Controller for OrchestrationRuns {
    type Object = OrchestrationRun;
    type Observed = Observed;
    const NAME: &'static str = "orchestration-run";
    const COMES_IN_CROWDS: bool = true;

    /// A run concerns its parent, a definition those that have not kept one yet, and a policy or a delivery those that wait.
    fn concerned(&self, caches: &Caches, change: &Change) -> BTreeSet<Key> {
        let Key { namespace, name } = &change.key;
        let naming = |term: Term| caches.orchestration_runs.naming(namespace, term).cloned();
        let parents = || {
            change.terms.iter().filter_map(|term| match term {
                Term::OrchestrationRun(name) => Some(name.clone()),
                _ => None,
            })
        };
        let names: BTreeSet<String> = match change.kind {
            CachedKind::OrchestrationRun => {
                // Who waits for a signal that this one does not wait for any more may be next.
                let left = change.terms.iter().filter(|term| {
                    term.is_of_delivery() && !naming((*term).clone()).any(|waiting| waiting == *name)
                });
                let next = left.cloned().flat_map(naming);
                parents().chain([name.clone()]).chain(next).collect()
            }
            CachedKind::AgentRun | CachedKind::ToolRun => parents().collect(),
            CachedKind::Orchestration => naming(Term::Orchestration(name.clone())).collect(),
            CachedKind::ApprovalPolicy => naming(Term::ApprovalPolicy(name.clone())).collect(),
            CachedKind::SignalDelivery => change.terms.iter().cloned().flat_map(naming).collect(),
            CachedKind::Agent
            | CachedKind::AgentProvider
            | CachedKind::ImplementationSpec
            | CachedKind::Memory
            | CachedKind::VersionControlProvider
            | CachedKind::Tool
            | CachedKind::Signal
            | CachedKind::Job
            | CachedKind::Pod => BTreeSet::new(),
        };
        let key = |name| Key {
            namespace: namespace.clone(),
            name,
        };
        names.into_iter().map(key).collect()
    }

    fn has_remains(&self, scene: &Scene<'_>) -> bool {
        !scene.children().is_empty()
    }

    fn observe(&self, scene: &Scene<'_>, run: Option<Arc<OrchestrationRun>>) -> Option<Observed> {
        let definition = run
            .as_ref()
            .map_or(Sight::Unseen, |run| scene.sight(&run.spec.orchestration_ref.name));
        let waiting: Vec<&StepStatus> = run.as_deref().map(waiting_steps).unwrap_or_default();
        let policies = waiting
            .iter()
            .filter_map(|step| step.waits_for.as_ref()?.approval_policy.clone())
            .map(|name| (name.clone(), scene.sight(&name)))
            .collect();
        let signals: BTreeSet<Term> = waiting
            .iter()
            .filter_map(|step| waited_for(step.waits_for.as_ref()?))
            .filter(Term::is_of_delivery)
            .collect();
        Some(Observed {
            cancel_above: run.as_deref().and_then(|run| scene.cancel_above(&run.metadata)),
            busy: scene.busy,
            key: scene.key.clone(),
            graph: run.as_deref().and_then(|run| self.graph(run, &definition)),
            definition,
            children: scene.children(),
            live_children: scene.live_children(),
            policies,
            deliveries: deliveries(scene, &signals),
            waiters: all_waiters(scene, &signals, run.as_deref()),
            refusals: scene.learned.child_refusals.clone(),
            run,
        })
    }

    fn reported(
        &self,
        key: &Key,
        metrics: &Metrics,
        before: Option<&OrchestrationRunStatus>,
        after: &OrchestrationRunStatus,
    ) {
        let told = |status: &OrchestrationRunStatus| Told {
            phase: status.phase.clone(),
            common: status.common.clone(),
        };
        report::changed::<OrchestrationRun>(key, metrics, before.map(told).as_ref(), &told(after));
    }

    fn settled(&self, _: &Key, run: Option<&OrchestrationRun>) {
        let over = |run: &OrchestrationRun| phase(run).is_some_and(RunPhase::is_terminal);
        if let Some(run) = run.filter(|run| over(run)) {
            self.graphs().remove(&run.uid().unwrap_or_default());
        }
    }

    fn plan(
        &self,
        observed: &Observed,
        settings: &Settings,
        now: Timestamp,
    ) -> Decision<OrchestrationRunStatus> {
        orchestration_run::plan(observed, settings, now)
    }
}

impl OrchestrationRuns {
    /// The steps of a run: those that it has kept, or those that its definition has now.
    fn graph(
        &self,
        run: &OrchestrationRun,
        definition: &Sight<Orchestration>,
    ) -> Option<Result<Arc<Graph>, Mistakes>> {
        if phase(run).is_some_and(RunPhase::is_terminal) {
            return None;
        }
        let Some(kept) = run.status.as_ref().and_then(|status| status.definition.as_ref()) else {
            let definition = definition.seen()?;
            return Some(read_named(&definition.name_any(), &definition.spec).map(Arc::new));
        };
        let uid = run.uid().unwrap_or_default();
        if let Some(known) = self.graphs().get(&uid) {
            return Some(Ok(Arc::clone(known)));
        }
        let spec = OrchestrationSpec {
            steps: kept.steps.clone(),
            ..OrchestrationSpec::default()
        };
        let graph = read(&spec).map(Arc::new);
        if let Ok(graph) = &graph {
            let mut graphs = self.graphs();
            if graphs.len() >= GRAPHS_MAX {
                graphs.clear();
            }
            graphs.insert(uid, Arc::clone(graph));
        }
        Some(graph)
    }

    fn graphs(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Graph>>> {
        // Every change of it is complete before anything can fail.
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The runs of a kind that an OrchestrationRun has not asked to stop yet, if it is being cancelled: they look at it themselves.
pub(crate) fn untold_children<K: Cached>(caches: &Caches, parent: &Key) -> BTreeSet<String> {
    let known = caches.orchestration_runs.get(parent);
    if known.and_then(|run| phase(run)) != Some(&RunPhase::Cancelling) {
        return BTreeSet::new();
    }
    let (cache, term) = (K::cache(caches), Term::OrchestrationRun(parent.name.clone()));
    let untold = |name: &&String| {
        let key = Key {
            namespace: parent.namespace.clone(),
            name: (*name).clone(),
        };
        let child = cache.get(&key);
        child.is_some_and(|child| {
            let over = child.run_facts().is_some_and(|facts| facts.ended);
            !over && !parent::is_stopped_from_above(child.meta())
        })
    };
    cache
        .naming(&parent.namespace, term)
        .filter(untold)
        .cloned()
        .collect()
}

/// How many graphs are remembered. More are read again, which costs time and nothing else.
const GRAPHS_MAX: usize = 1000;

fn phase(run: &OrchestrationRun) -> Option<&RunPhase> {
    run.status.as_ref()?.phase.as_ref()
}

/// The steps that wait for somebody or something outside.
fn waiting_steps(run: &OrchestrationRun) -> Vec<&StepStatus> {
    let steps = run.status.iter().flat_map(|status| &status.step_statuses);
    steps.filter(|step| step.waits_for.is_some()).collect()
}

/// The deliveries of these signals.
fn deliveries(scene: &Scene<'_>, signals: &BTreeSet<Term>) -> Vec<Arc<SignalDelivery>> {
    let cache = &scene.caches.signal_deliveries;
    let names: BTreeSet<&String> = signals
        .iter()
        .flat_map(|signal| cache.naming(&scene.key.namespace, signal.clone()))
        .collect();
    let known = names
        .into_iter()
        .filter_map(|name| scene.sight::<SignalDelivery>(name).seen().cloned());
    known.collect()
}

/// The steps of all runs that wait for these signals.
fn all_waiters(scene: &Scene<'_>, signals: &BTreeSet<Term>, own: Option<&OrchestrationRun>) -> Vec<Waiter> {
    if signals.is_empty() {
        return Vec::new();
    }
    let cache = &scene.caches.orchestration_runs;
    let names: BTreeSet<&String> = signals
        .iter()
        .flat_map(|signal| cache.naming(&scene.key.namespace, signal.clone()))
        .filter(|name| **name != scene.key.name)
        .collect();
    let others = names
        .into_iter()
        .filter_map(|name| scene.sight::<OrchestrationRun>(name).seen().cloned());
    let mut all: Vec<Waiter> = others.flat_map(|run| waiters(&run)).collect();
    // Of the run itself, as it was written last.
    all.extend(own.map(waiters).unwrap_or_default());
    all
}
