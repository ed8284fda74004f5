//! Where the queue of the engine meets the caches: who contends, who may start, and who is told.
//!
//! The index follows every change of a run, a Job or a pod, so that a decision about one run looks at no other. It begins
//! empty with each term of leadership, and nothing is let in before all caches were listed: what an earlier leader let in is
//! on the Jobs that it made.
//!
//! A run asks when it has everything else ([`Admissions::ask`]). What it is given counts from that moment, whether the caches
//! show its Job (its status, where no Job executes it) or not, until they do, or until a live read has shown that there is
//! none.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jangar_api::agents::agent_run::AgentRun;
use jangar_engine::{
    decision::{Key, Uid},
    queue::{Answer, Demand, Facts, Index, Scope, Unseen},
    settings::Settings,
    waiting::Gate,
};
use jiff::{Timestamp, Unit};
use k8s_openapi::api::batch::v1::Job;

use crate::{
    caches::{Cached, Caches, Change, Delivered, Term},
    clock::Clock,
    driver::Context,
    live::{self, ReadError},
    metrics::Metrics,
};

/// How many runs are woken at once that were told of a limit which does not bite any more, and how long it is until the next
/// are. Each costs a write, and where thousands wait two limits may take turns all the time.
const RETOLD_MAX: usize = 16;
const RETELL_PAUSE: Duration = Duration::from_secs(1);

/// The queue of one term of leadership.
#[derive(Debug)]
pub struct Admissions {
    index: Mutex<Index>,
    /// When runs were last woken to be told of another limit.
    retold: Mutex<Option<Timestamp>>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// Whether a run that is asked to stop does.
    cancels: bool,
}

/// What to do about those who wait.
#[derive(Debug, Default)]
pub(crate) struct Roused {
    /// They may start, or have a place in the queue that they did not have, or wait for something else than they say.
    pub(crate) keys: BTreeSet<Key>,
    /// How long nothing happens by itself.
    pub(crate) nap: Option<Duration>,
}

/// What a reconcile was told, in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Granted,
    Waiting,
    Duplicate,
}

impl From<&Answer> for Asked {
    fn from(answer: &Answer) -> Self {
        match answer {
            Answer::Granted { .. } => Self::Granted,
            Answer::Waiting(_) => Self::Waiting,
            Answer::Duplicate { .. } => Self::Duplicate,
        }
    }
}

impl Admissions {
    pub fn new(settings: &Settings, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        Self {
            index: Mutex::new(Index::new(settings.limits.clone())),
            retold: Mutex::default(),
            clock,
            metrics,
            cancels: settings.runs.cancel_enabled,
        }
    }

    /// Takes in what the caches show of some runs after a change.
    pub(crate) fn observe(&self, caches: &Caches, change: &Change, runs: &BTreeSet<Key>) {
        if !matters(change) {
            return;
        }
        let now = self.now();
        for key in runs {
            let of_run = || Term::AgentRun(key.name.clone());
            let beside = |name: &String| Key {
                namespace: key.namespace.clone(),
                name: name.clone(),
            };
            let jobs = caches.jobs.naming(&key.namespace, of_run());
            let jobs = jobs.filter_map(|name| caches.jobs.get(&beside(name)));
            let pods = caches.pods.naming(&key.namespace, of_run());
            let pods = pods.filter_map(|name| caches.pods.get(&beside(name)));
            let facts = Facts::of(
                key,
                caches.agent_runs.get(key).map(AsRef::as_ref),
                jobs.map(AsRef::as_ref),
                pods.map(AsRef::as_ref),
                self.cancels,
            );
            self.index().put(key, facts, now);
        }
    }

    /// Whether a run may start this Job, or whatever executes it.
    pub(crate) fn ask(
        &self,
        key: &Key,
        run: &AgentRun,
        job: Option<&str>,
        repository: Option<&str>,
    ) -> Answer {
        let demand = Demand::of(&key.namespace, run).working_on(repository);
        let now = self.now();
        let mut index = self.index();
        let known = index.unseen(key).is_some();
        let answer = index.ask(key, &demand, job, now);
        match &answer {
            Answer::Granted { .. } if !known => {
                let waited = Duration::try_from(now.duration_since(demand.created));
                self.metrics.run_admitted(waited.unwrap_or_default());
            }
            Answer::Waiting(waiting) => {
                if let Gate::Rate { full, .. } = &waiting.gate {
                    self.metrics.rate_limited(full.scope.word());
                }
            }
            Answer::Granted { .. } | Answer::Duplicate { .. } => {}
        }
        answer
    }

    /// A reconcile of a run is over, and the caches show what it wrote. A slot that it did not use is given back; whether it
    /// did is read from the API server where the caches do not tell.
    pub(crate) async fn settle(
        &self,
        context: &Context,
        key: &Key,
        asked: Option<Asked>,
        succeeded: bool,
    ) -> Result<(), ReadError> {
        match (succeeded, asked) {
            // It waits for its turn.
            (_, Some(Asked::Waiting)) => return Ok(()),
            (true, _) => match self.unseen(key) {
                Some(Unseen::Job(name)) => {
                    let namespace = key.namespace.clone();
                    look_for::<Job>(context, &Key { namespace, name }).await?;
                }
                Some(Unseen::Run) => look_for::<AgentRun>(context, key).await?,
                None => {}
            },
            // It may have made its Job, or written that it has begun: the next reconcile will know.
            (false, _) if self.unseen(key).is_some() => return Ok(()),
            (false, _) => {}
        }
        let now = self.now();
        self.index().decline(key, now);
        Ok(())
    }

    fn unseen(&self, key: &Key) -> Option<Unseen> {
        self.index().unseen(key)
    }

    /// Lets in whoever may start now.
    pub(crate) fn rouse(&self) -> Roused {
        let now = self.now();
        let mut index = self.index();
        let mut keys = index.promoted();
        keys.extend(index.admit(now).into_iter().map(|grant| grant.key));
        self.metrics.queue(index.told(), index.in_use(&Scope::Cluster));
        let nap = index
            .next_look()
            // Negative if it is due: no nap at all.
            .map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let retold = self.retell(&index, now);
        keys.extend(retold.keys);
        Roused {
            keys,
            nap: nap.into_iter().chain(retold.nap).min(),
        }
    }

    /// Finds those who wait for another limit than they were told of.
    fn retell(&self, index: &Index, now: Timestamp) -> Roused {
        let mut last = self.retold.lock().unwrap_or_else(PoisonError::into_inner);
        let since = last.map_or(Duration::MAX, |at| now.duration_since(at).unsigned_abs());
        if let Some(left) = RETELL_PAUSE.checked_sub(since).filter(|left| !left.is_zero()) {
            return Roused {
                keys: BTreeSet::new(),
                nap: Some(left),
            };
        }
        let keys = index.outdated(RETOLD_MAX);
        *last = (!keys.is_empty()).then_some(now);
        Roused {
            nap: last.map(|_| RETELL_PAUSE),
            keys,
        }
    }

    /// As fine as the time that is stamped on Jobs.
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        now.round(Unit::Millisecond).unwrap_or(now)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        // Every method of the index leaves it whole, so a panic elsewhere does not make it bad.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts an object into the cache that may be there, or may have changed, and of which no watch has told.
async fn look_for<K: Cached>(context: &Context, key: &Key) -> Result<(), ReadError> {
    let found: Option<Delivered<K>> = live::get(context, key).await?;
    if found.is_some() {
        context.world.learn(key, &Uid(String::new()), found);
    }
    Ok(())
}

/// Whether the queue looks at objects of this kind.
fn matters(change: &Change) -> bool {
    use crate::caches::CachedKind::{AgentRun, Job, Pod};
    matches!(change.kind, AgentRun | Job | Pod)
}
