//! What nobody waits for, asked about by the clock that only counts forward. What counts as busy is for the engine to say.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jangar_api::{
    agents::agent_run::AgentRun, orchestration::orchestration_run::OrchestrationRun, tools::ToolRun,
};
use jangar_engine::{
    decision::{ChildKind, Effect, Key, Uid},
    leisure,
    retention::Turn,
    settings::Settings,
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use tokio::time::Instant;

use super::Context;
use crate::{caches::Cached, effects::Outcome};

/// How much there is to do in one term.
#[derive(Debug)]
pub(crate) struct Leisure {
    kept: Mutex<leisure::Leisure>,
    begin: Instant,
}

impl Leisure {
    pub(super) fn of(settings: &Settings) -> Self {
        let kept = if settings.safeguards.leisure {
            leisure::Leisure::default()
        } else {
            leisure::Leisure::never_resting()
        };
        Self {
            kept: Mutex::new(kept),
            begin: Instant::now(),
        }
    }

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

    /// An effect was carried out.
    pub(crate) fn after(&self, effect: &Effect, outcome: Outcome) {
        let done = matches!(outcome, Outcome::Done | Outcome::Already | Outcome::Unheard);
        if let Some(object) = effect.lets_go().filter(|_| done) {
            self.kept().let_go(object);
        }
        if effect.is_awaited() && outcome == Outcome::Done {
            self.wrote();
        }
    }

    /// Asks for a turn to let something go: how long it has to wait, or not at all.
    pub(super) fn ask(&self, object: &Uid) -> Option<Duration> {
        let now = self.begin.elapsed();
        match self.kept().ask(object, now) {
            Turn::Now => None,
            Turn::In(wait) => Some(wait),
        }
    }

    /// Whether this object was to be let go before, and was put off.
    pub(super) fn is_put_off(&self, object: &Uid) -> bool {
        self.kept().is_put_off(object)
    }

    /// Asks for a turn to say how the work goes: how long it has to wait, or not at all.
    pub(super) fn tell(&self, run: &Uid) -> Option<Duration> {
        let now = self.begin.elapsed();
        match self.kept().tell(run, now) {
            Turn::Now => None,
            Turn::In(wait) => Some(wait),
        }
    }

    fn kept(&self) -> MutexGuard<'_, leisure::Leisure> {
        // Every change to it is complete before anything can fail.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long an effect gives way to others. Only letting something go does, and only where nobody deletes it: whoever does waits for that.
pub(super) fn gives_way(context: &Context, namespace: &str, effect: &Effect) -> Option<Duration> {
    let object = effect.lets_go()?;
    let stays = match effect {
        Effect::ReleaseChild { child, .. } => {
            let name = &child.id.name;
            match child.kind {
                ChildKind::AgentRun => stays::<AgentRun>(context, namespace, name),
                ChildKind::ToolRun => stays::<ToolRun>(context, namespace, name),
                ChildKind::OrchestrationRun => stays::<OrchestrationRun>(context, namespace, name),
            }
        }
        Effect::ReleaseJob { job, kept, .. } => {
            let mut pods = kept.iter().flat_map(|kept| &kept.pods);
            stays::<Job>(context, namespace, &job.name)
                && pods.all(|held| stays::<Pod>(context, namespace, &held.pod.name))
        }
        _ => false,
    };
    if stays { context.leisure.ask(object) } else { None }
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
