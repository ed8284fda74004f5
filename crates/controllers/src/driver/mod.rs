//! The one driver of all controllers.
//!
//! A controller says which of its keys a change concerns, what to observe for a key, and what to do about it. Everything
//! else is here and the same for all: the queue, the rounds of planning and acting, the barrier, retries.

mod archiving;
mod barrier;
mod deletions;
pub mod learned;
mod leisure;
mod reconcile;
mod scene;
mod shadow;
mod station;
mod term;
mod work;

use std::{collections::BTreeSet, fmt, sync::Arc};

use jangar_engine::{
    decision::{Decision, Key},
    plain_status::PlainStatus,
    queue::Answer,
    settings::Settings,
};
use jiff::Timestamp;
use kube::{Client, Resource, core::object::HasStatus};
use serde::Serialize;

pub use self::{
    barrier::{BARRIER_PATIENCE, Mark, Written},
    reconcile::ReconcileError,
    scene::Scene,
    shadow::{Other, Survey},
    station::{CONCURRENCY_MAX, Station, station},
    term::{Term, TermSetup},
};
pub(crate) use self::{deletions::Deletions, leisure::Leisure, term::open, work::Work};
use crate::{
    admissions::Admissions,
    caches::{Cached, Caches, Change, World},
    clock::Clock,
    events::Reporter,
    forges::Forges,
    halt::Halt,
    lease::{Gate, WriteError},
    metrics::{Metrics, ObjectKind, RequestResult, Verb},
    outbox::Outbox,
    outside::Outside,
};

/// What a kind supplies to be looked after.
pub trait Controller: Send + Sync + 'static {
    /// The kind whose status it writes. A key is the namespace and name of such an object.
    type Object: Cached + HasStatus<Status: PlainStatus + Serialize + Send + Sync>;
    /// What a decision is made from.
    type Observed;
    /// What it is called in logs and metrics.
    const NAME: &'static str;
    /// Whether there may be crowds of these objects. Their first status is then written whole, which spares the API server what it does to
    /// merge a patch.
    const COMES_IN_CROWDS: bool = false;

    /// The keys that have to be looked at again because of a change.
    fn concerned(&self, caches: &Caches, change: &Change) -> BTreeSet<Key>;

    /// Whether something is left of an object that is not in the cache.
    fn has_remains(&self, scene: &Scene<'_>) -> bool {
        let _ = scene;
        false
    }

    /// What is known about a key, with the object itself unless it is proven to be gone. `None` if there is nothing to
    /// decide.
    fn observe(&self, scene: &Scene<'_>, object: Option<Arc<Self::Object>>) -> Option<Self::Observed>;

    /// The queue that decides which objects may start something; absent for kinds that need not ask.
    fn admissions(&self) -> Option<&Admissions> {
        None
    }

    /// Whether the object may start something now: what the queue says.
    fn ask(
        &self,
        key: &Key,
        object: &Self::Object,
        job: Option<&str>,
        repository: Option<&str>,
    ) -> Option<Answer> {
        let _ = (key, object, job, repository);
        None
    }

    /// Counts and logs what a status that was written tells.
    fn reported(
        &self,
        key: &Key,
        metrics: &Metrics,
        before: Option<&StatusOf<Self>>,
        after: &StatusOf<Self>,
    ) {
        let _ = (key, metrics, before, after);
    }

    /// There is nothing left to do about a key, with the object as it was observed last; `None` if it is proven to be gone.
    fn settled(&self, key: &Key, object: Option<&Self::Object>) {
        let _ = (key, object);
    }

    /// What to do about it. Pure.
    fn plan(
        &self,
        observed: &Self::Observed,
        settings: &Settings,
        now: Timestamp,
    ) -> Decision<StatusOf<Self>>;
}

/// The status of a controller's kind.
pub type StatusOf<C> = <<C as Controller>::Object as HasStatus>::Status;

/// What every reconcile works with, for as long as this process leads.
pub struct Context {
    pub(crate) client: Client,
    pub(crate) world: Arc<World>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) gate: Gate,
    pub(crate) reporter: Reporter,
    pub(crate) outbox: Outbox,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) deletions: Deletions,
    pub(crate) leisure: Leisure,
    pub(crate) halt: Halt,
    pub(crate) forges: Arc<dyn Forges>,
    pub(crate) outside: Arc<Outside>,
}

impl Context {
    /// Sends a write to objects of a kind, if this process may.
    pub(crate) async fn write<K, T>(
        &self,
        verb: Verb,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let answer = self.gate.write(request).await;
        let result = answer
            .as_ref()
            .map_or_else(RequestResult::from, |_| RequestResult::Done);
        self.metrics.request(verb, ObjectKind::of::<K>(), result);
        answer
    }

    /// Nothing new is begun once the controllers are being stopped; what was begun ends.
    pub(crate) fn check_halt(&self) -> Result<(), ReconcileError> {
        if self.halt.is_requested() {
            return Err(ReconcileError::Stopping);
        }
        Ok(())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}
