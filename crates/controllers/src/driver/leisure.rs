//! What nobody waits for, asked about by the clock that only counts forward. What counts as busy is for the engine to say.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jangar_api::{
    agents::agent_run::AgentRun, orchestration::orchestration_run::OrchestrationRun, tools::ToolRun,
};
use jangar_engine::{
    decision::{ChildKind, Effect, Key},
    leisure,
    retention::Turn,
};
use k8s_openapi::api::batch::v1::Job;
use tokio::time::Instant;

use super::Context;
use crate::caches::Cached;

/// How much there is to do in one term.
#[derive(Debug)]
pub(crate) struct Leisure {
    kept: Mutex<leisure::Leisure>,
    begin: Instant,
}

impl Default for Leisure {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            begin: Instant::now(),
        }
    }
}

impl Leisure {
    /// Something was written that somebody waited for.
    pub(crate) fn wrote(&self) {
        let now = self.begin.elapsed();
        self.kept().wrote(now);
    }

    /// Whether much is written that somebody waits for.
    pub(super) fn is_busy(&self) -> bool {
        let now = self.begin.elapsed();
        self.kept().is_busy(now)
    }

    /// Asks for a turn to write what nobody waits for: how long it has to wait, or not at all.
    pub(super) fn ask(&self, key: &Key) -> Option<Duration> {
        let now = self.begin.elapsed();
        match self.kept().ask(key, now) {
            Turn::Now => None,
            Turn::In(wait) => Some(wait),
        }
    }

    fn kept(&self) -> MutexGuard<'_, leisure::Leisure> {
        // Every change to it is complete before anything can fail.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an effect lets something go for which nobody waits: whoever deletes it does.
pub(super) fn is_for_leisure(context: &Context, namespace: &str, effect: &Effect) -> bool {
    match effect {
        Effect::ReleaseJob { job, .. } => stays::<Job>(context, namespace, &job.name),
        Effect::ReleaseChild { child, .. } => {
            let name = &child.id.name;
            match child.kind {
                ChildKind::AgentRun => stays::<AgentRun>(context, namespace, name),
                ChildKind::ToolRun => stays::<ToolRun>(context, namespace, name),
                ChildKind::OrchestrationRun => stays::<OrchestrationRun>(context, namespace, name),
            }
        }
        _ => false,
    }
}

/// Whether a cache shows an object that nobody deletes.
fn stays<K: Cached>(context: &Context, namespace: &str, name: &str) -> bool {
    let key = Key {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let caches = context.world.caches();
    K::cache(&caches)
        .get(&key)
        .is_some_and(|known| known.meta().deletion_timestamp.is_none())
}
