//! The controller that asks forges whether the work of runs arrived. It has a queue and slots of its own: a forge that is
//! slow holds up nothing but what is said about it.

use std::{collections::BTreeSet, sync::Arc};

use jangar_api::agents::agent_run::{AgentRun, AgentRunStatus};
use jangar_engine::{
    decision::{Decision, Key},
    settings::Settings,
    vcs::delivery,
};
use jiff::Timestamp;

use crate::{
    caches::{CachedKind, Caches, Change},
    driver::{Controller, Scene},
};

/// Says what became of the work of runs that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deliveries;

impl Controller for Deliveries {
    type Object = AgentRun;
    type Observed = delivery::Observed;
    const NAME: &'static str = "delivery";

    /// Only a run whose work is promised and not found yet: most runs never come here.
    fn concerned(&self, caches: &Caches, change: &Change) -> BTreeSet<Key> {
        let due = change.kind == CachedKind::AgentRun
            && caches
                .agent_runs
                .get(&change.key)
                .is_some_and(|run| delivery::is_due(run).is_some());
        due.then(|| change.key.clone()).into_iter().collect()
    }

    fn observe(&self, scene: &Scene<'_>, run: Option<Arc<AgentRun>>) -> Option<delivery::Observed> {
        let run = run?;
        let provider = scene.sight(delivery::is_due(&run)?);
        Some(delivery::Observed {
            provider,
            answers: scene.learned.deliveries.clone(),
            run,
        })
    }

    fn plan(
        &self,
        observed: &delivery::Observed,
        settings: &Settings,
        now: Timestamp,
    ) -> Decision<AgentRunStatus> {
        delivery::plan(observed, settings, now)
    }
}
