//! Where the keys of one controller are worked on: its queue, and the tasks that take from it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use jangar_engine::decision::Key;
use jiff::Timestamp;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    task::{Id, JoinSet},
    time::Instant,
};
use tracing::Instrument;

use super::{
    Context, Controller, ReconcileError, Work, Written, barrier,
    reconcile::reconcile,
    shadow::{Survey, survey},
};
use crate::{
    admissions::{Admissions, Asked, Roused},
    caches::{CachedKind, Caches, Change, Listener},
    clock::Clock,
    metrics::{ObjectKind, ReconcileResult},
    queue::{Queue, Urgency},
};

/// How many keys of one controller are reconciled at the same time, of those that have nothing under way. Each is mostly waiting
/// for the API server, which answers this many of one client without making others wait.
const BEGINNINGS_MAX: usize = 64;

/// How many keys of one controller are reconciled at the same time in all. What is under way needs few requests and is waited for:
/// the children of a run that is cancelled stop together. The API server lines up what is too much for it.
pub const CONCURRENCY_MAX: usize = 256;

/// The shortest pause between two looks at a key that nothing happened to. It keeps a plan that asks to be woken in the past
/// from being made over and over.
const WAKE_PAUSE_MIN: Duration = Duration::from_millis(100);

/// One controller with its queue.
pub trait Station: Listener + fmt::Debug {
    /// Something happened to a key that no watch tells of.
    fn wake(&self, key: &Key);

    /// What the controller is called.
    fn name(&self) -> &'static str;

    /// Plans every object once, without carrying anything out.
    fn survey(self: Arc<Self>, context: Arc<Context>) -> BoxFuture<'static, Survey>;

    /// Works until it is told to stop, and then until what was begun has ended.
    fn run(self: Arc<Self>, context: Arc<Context>) -> BoxFuture<'static, ()>;
}

/// A station for a controller.
pub fn station<C: Controller>(controller: C) -> Arc<dyn Station> {
    Arc::new(Bench {
        controller: Arc::new(controller),
        queue: Mutex::default(),
        woken: Notify::new(),
    })
}

/// The places of those who work on a key.
struct Slots {
    all: Arc<Semaphore>,
    beginnings: Arc<Semaphore>,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(CONCURRENCY_MAX)),
            beginnings: Arc::new(Semaphore::new(BEGINNINGS_MAX)),
        }
    }
}

impl Slots {
    async fn take(of: &Arc<Semaphore>) -> OwnedSemaphorePermit {
        match Arc::clone(of).acquire_owned().await {
            Ok(permit) => permit,
            // Nobody closes it.
            Err(_) => std::future::pending().await,
        }
    }
}

/// The place of one who works on a key.
struct Slot {
    _any: OwnedSemaphorePermit,
    _beginning: Option<OwnedSemaphorePermit>,
}

struct Bench<C> {
    controller: Arc<C>,
    queue: Mutex<Queue>,
    /// Told when a key was put into the queue.
    woken: Notify,
}

impl<C: Controller> fmt::Debug for Bench<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Station").field("controller", &C::NAME).finish()
    }
}

/// How the work on a key ended.
struct Ended {
    key: Key,
    result: Result<Option<Timestamp>, ReconcileError>,
    /// How long it took, without the wait for the caches.
    took: Duration,
}

fn kind<C: Controller>() -> ObjectKind {
    ObjectKind::of::<C::Object>()
}

impl<C: Controller> Listener for Bench<C> {
    fn changed(&self, caches: &Caches, change: &Change) {
        let keys = self.controller.concerned(caches, change);
        if keys.is_empty() {
            return;
        }
        let mut queue = self.queue();
        for key in &keys {
            queue.wake(key, urgency(change, key));
        }
        drop(queue);
        self.woken.notify_one();
    }
}

/// Whether a change tells that something went on that this object has started.
fn urgency(change: &Change, key: &Key) -> Urgency {
    let went_on = match change.kind {
        CachedKind::Job | CachedKind::Pod => true,
        CachedKind::AgentRun | CachedKind::ToolRun | CachedKind::OrchestrationRun => change.key != *key,
        CachedKind::Agent
        | CachedKind::AgentProvider
        | CachedKind::ImplementationSpec
        | CachedKind::Memory
        | CachedKind::VersionControlProvider
        | CachedKind::Tool
        | CachedKind::Orchestration
        | CachedKind::ApprovalPolicy
        | CachedKind::Signal
        | CachedKind::SignalDelivery => false,
    };
    if went_on {
        Urgency::UnderWay
    } else {
        Urgency::Ordinary
    }
}

impl<C: Controller> Station for Bench<C> {
    fn wake(&self, key: &Key) {
        self.queue().wake(key, Urgency::UnderWay);
        self.woken.notify_one();
    }

    fn name(&self) -> &'static str {
        C::NAME
    }

    fn survey(self: Arc<Self>, context: Arc<Context>) -> BoxFuture<'static, Survey> {
        async move { survey(self.controller.as_ref(), &context).await }.boxed()
    }

    fn run(self: Arc<Self>, context: Arc<Context>) -> BoxFuture<'static, ()> {
        async move { self.work(context).await }.boxed()
    }
}

impl<C: Controller> Bench<C> {
    async fn work(&self, context: Arc<Context>) {
        let slots = Slots::default();
        let mut tasks = JoinSet::new();
        // Which key a task works on, for the case that it panics.
        let mut keys: BTreeMap<Id, Key> = BTreeMap::new();
        loop {
            tokio::select! {
                biased;
                () = context.halt.requested() => break,
                Some(ended) = tasks.join_next_with_id() => {
                    match ended {
                        Ok((id, ended)) => {
                            keys.remove(&id);
                            self.finish(&context, ended);
                        }
                        Err(error) => {
                            if let Some(key) = keys.remove(&error.id()) {
                                let result = Err(ReconcileError::Panicked);
                                self.finish(&context, Ended { key, result, took: Duration::ZERO });
                            }
                        }
                    }
                }
                (slot, key) = self.next(&slots, context.clock.as_ref()) => {
                    let (backlog, failures) = {
                        let queue = self.queue();
                        (queue.backlog(), queue.failures(&key))
                    };
                    context.metrics.queue_depth(kind::<C>(), backlog);
                    let span = tracing::info_span!("reconcile", controller = C::NAME, object = %key);
                    let work = work_on(Arc::clone(&self.controller), Arc::clone(&context), key.clone(), failures, slot);
                    let task = tasks.spawn(work.instrument(span));
                    keys.insert(task.id(), key);
                }
            }
        }
        // Whoever is at work sees the same request and ends at its next step.
        while tasks.join_next().await.is_some() {}
    }

    /// Waits for a free slot, and then for a key. A key is taken last, so that none is lost if nobody waits any more.
    async fn next(&self, slots: &Slots, clock: &dyn Clock) -> (Slot, Key) {
        let any = Slots::take(&slots.all).await;
        loop {
            let woken = self.woken.notified();
            let Ok(beginning) = Arc::clone(&slots.beginnings).try_acquire_owned() else {
                if let Some(key) = self.queue().take_under_way() {
                    return (
                        Slot {
                            _any: any,
                            _beginning: None,
                        },
                        key,
                    );
                }
                tokio::select! {
                    biased;
                    () = woken => {}
                    _ = Slots::take(&slots.beginnings) => {}
                }
                continue;
            };
            let nap = {
                let (today, now) = (clock.now(), Instant::now());
                let roused = self.controller.admissions().map(Admissions::rouse);
                let Roused { keys, nap } = roused.unwrap_or_default();
                let mut queue = self.queue();
                for key in &keys {
                    queue.wake(key, Urgency::Ordinary);
                }
                if let Some((key, urgency)) = queue.take(today, now) {
                    let beginning = (urgency == Urgency::Ordinary).then_some(beginning);
                    return (
                        Slot {
                            _any: any,
                            _beginning: beginning,
                        },
                        key,
                    );
                }
                let until_due = queue.nap(today, now);
                nap.map_or(until_due, |nap| until_due.min(nap.max(WAKE_PAUSE_MIN)))
            };
            tokio::select! {
                biased;
                () = woken => {}
                () = tokio::time::sleep(nap) => {}
            }
        }
    }

    fn finish(&self, context: &Context, ended: Ended) {
        let Ended { key, result, took } = ended;
        let mut queue = self.queue();
        let counted = match result {
            Ok(wake_at) => {
                let earliest = context.clock.now() + WAKE_PAUSE_MIN;
                queue.done(key, wake_at.map(|at| at.max(earliest)));
                ReconcileResult::Settled
            }
            // More happens to it than one turn takes in: that is work, and no failure.
            Err(ReconcileError::Busy) => {
                queue.busy(key, Instant::now());
                ReconcileResult::Busy
            }
            Err(error) => {
                let pause = error.retry_after();
                let counted = match error {
                    // Nothing went wrong: the work belongs to another process now, or to a later one.
                    ReconcileError::NotLeading | ReconcileError::Stopping => ReconcileResult::Cancelled,
                    error => {
                        context.metrics.retry(kind::<C>());
                        tracing::warn!(
                            controller = C::NAME,
                            object = %key,
                            reason = error.label(),
                            %error,
                            "a reconcile failed and is tried again"
                        );
                        ReconcileResult::Retried
                    }
                };
                queue.failed(key, Instant::now(), pause);
                counted
            }
        };
        context.metrics.reconciled(kind::<C>(), counted, took);
        context.metrics.queue_depth(kind::<C>(), queue.backlog());
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Every method of the queue leaves it whole, so a panic elsewhere does not make it bad.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reconciles a key and waits until the caches show what was written. The key counts as taken until then; the slot does not,
/// because waiting costs nothing.
async fn work_on<C: Controller>(
    controller: Arc<C>,
    context: Arc<Context>,
    key: Key,
    failures: u32,
    slot: Slot,
) -> Ended {
    let start = Instant::now();
    let mut work = Work {
        failures,
        ..Work::default()
    };
    let result = reconcile(controller.as_ref(), &context, &key, &mut work).await;
    let took = start.elapsed();
    drop(slot);
    for (about, notice) in work.notices {
        context
            .outbox
            .put(&context.metrics, about, notice, context.clock.now());
    }
    settle(&context, &kind::<C>(), &work.written).await;
    let result = settle_slot(controller.as_ref(), &context, &key, work.asked, result).await;
    Ended { key, result, took }
}

/// Waits until the caches show what was written.
async fn settle(context: &Context, kind: &ObjectKind, written: &[Written]) {
    if !context.settings.safeguards.barrier {
        return;
    }
    tokio::select! {
        biased;
        () = barrier::settle(context, kind, written) => {}
        () = context.halt.requested() => {}
    }
}

/// Tells the queue what became of the slot that the reconcile had, if it had one.
async fn settle_slot<C: Controller>(
    controller: &C,
    context: &Context,
    key: &Key,
    asked: Option<Asked>,
    result: Result<Option<Timestamp>, ReconcileError>,
) -> Result<Option<Timestamp>, ReconcileError> {
    let Some(admissions) = controller.admissions() else {
        return result;
    };
    let settled = admissions.settle(context, key, asked, result.is_ok()).await;
    result.and_then(|wake_at| settled.map(|()| wake_at).map_err(ReconcileError::from))
}
