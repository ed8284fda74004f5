//! The controllers of Tools and ToolRuns: what the engine decides about them, connected to the driver.

use std::{collections::BTreeSet, sync::Arc};

use jangar_api::tools::{Tool, ToolRun, ToolRunStatus, ToolStatus};
use jangar_engine::{
    decision::{Decision, Key, Sight},
    settings::Settings,
    tool, tool_run,
};
use jiff::Timestamp;

use crate::{
    agents::itself,
    caches::{CachedKind, Caches, Change, Term},
    driver::{Controller, Scene},
    metrics::Metrics,
    orchestration::untold_children,
    report::{self, Told},
};

/// Says whether a Tool can be run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tools;

impl Controller for Tools {
    type Object = Tool;
    type Observed = tool::Observed;
    const NAME: &'static str = "tool";

    fn concerned(&self, _: &Caches, change: &Change) -> BTreeSet<Key> {
        itself(CachedKind::Tool, change)
    }

    fn observe(&self, _: &Scene<'_>, tool: Option<Arc<Tool>>) -> Option<tool::Observed> {
        Some(tool::Observed { tool: tool? })
    }

    fn plan(&self, observed: &tool::Observed, settings: &Settings, now: Timestamp) -> Decision<ToolStatus> {
        tool::plan(observed, settings, now)
    }
}

/// Looks after ToolRuns, and after what is left of those that are gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolRuns;

impl Controller for ToolRuns {
    type Object = ToolRun;
    type Observed = tool_run::Observed;
    const NAME: &'static str = "tool-run";
    const COMES_IN_CROWDS: bool = true;

    /// A Job or a pod concerns the run in its label, also if there is no such run any more. A Tool concerns the runs that refer
    /// to it and have not ended.
    fn concerned(&self, caches: &Caches, change: &Change) -> BTreeSet<Key> {
        let Key { namespace, name } = &change.key;
        let names: BTreeSet<String> = match change.kind {
            CachedKind::ToolRun => BTreeSet::from([name.clone()]),
            CachedKind::Tool => {
                let term = Term::Tool(name.clone());
                caches.tool_runs.naming(namespace, term).cloned().collect()
            }
            CachedKind::Job | CachedKind::Pod => labelled(change),
            CachedKind::AgentRun
            | CachedKind::Agent
            | CachedKind::AgentProvider
            | CachedKind::ImplementationSpec
            | CachedKind::Memory
            | CachedKind::VersionControlProvider
            | CachedKind::Orchestration
            | CachedKind::ApprovalPolicy
            | CachedKind::Signal
            | CachedKind::SignalDelivery => BTreeSet::new(),
            CachedKind::OrchestrationRun => untold_children::<ToolRun>(caches, &change.key),
        };
        let key = |name| Key {
            namespace: namespace.clone(),
            name,
        };
        names.into_iter().map(key).collect()
    }

    fn has_remains(&self, scene: &Scene<'_>) -> bool {
        let run = of_run(scene);
        !scene.jobs(&run).is_empty() || scene.holds_pods(&run)
    }

    fn observe(&self, scene: &Scene<'_>, run: Option<Arc<ToolRun>>) -> Option<tool_run::Observed> {
        let of_run = of_run(scene);
        let cancel_above = run.as_deref().and_then(|run| scene.cancel_above(&run.metadata));
        Some(tool_run::Observed {
            key: scene.key.clone(),
            tool: run
                .as_ref()
                .map_or(Sight::Unseen, |run| scene.sight(&run.spec.tool_ref.name)),
            departed: scene.departed_jobs(run.as_deref().map(|run| &run.metadata)),
            run,
            jobs: scene.jobs(&of_run),
            live_jobs: scene.live_jobs(),
            lost_pods: scene.lost_pods(&of_run),
            pods: scene.pods(&of_run),
            refusal: scene.learned.refusal.clone(),
            occupant: scene.learned.occupant.clone(),
            cancel_above,
            busy: scene.busy,
        })
    }

    fn reported(&self, key: &Key, metrics: &Metrics, before: Option<&ToolRunStatus>, after: &ToolRunStatus) {
        let told = |status: &ToolRunStatus| Told {
            phase: status.phase.clone(),
            common: status.common.clone(),
        };
        report::changed::<ToolRun>(key, metrics, before.map(told).as_ref(), &told(after));
    }

    fn plan(
        &self,
        observed: &tool_run::Observed,
        settings: &Settings,
        now: Timestamp,
    ) -> Decision<ToolRunStatus> {
        tool_run::plan(observed, settings, now)
    }
}

/// What the Jobs and pods of a run are found by.
fn of_run(scene: &Scene<'_>) -> Term {
    Term::ToolRun(scene.key.name.clone())
}

/// The runs that a Job or a pod belongs to: one, or two if somebody changed the label.
fn labelled(change: &Change) -> BTreeSet<String> {
    let named = |term: &Term| {
        if let Term::ToolRun(name) = term {
            Some(name.clone())
        } else {
            None
        }
    };
    change.terms.iter().filter_map(named).collect()
}
