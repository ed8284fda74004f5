//! What all processes of one simulation share on their way to the API, and what is known of each process.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use super::{Fault, Plan, Trouble, Watched};
use crate::trace::Trace;

/// How long a request or an answer is on its way at most. It reorders what happens at the same time; no more is needed.
const LATENCY_MS_MAX: u64 = 12;

/// What a fault asks of the one who leads the simulation.
#[derive(Clone, Debug)]
pub enum Order {
    /// A process died, and another one is to be started.
    Restart,
    /// Another process is to be started beside those that live.
    Rival,
    /// Somebody deletes the newest Job, or pod, after this long.
    DeleteJob(Duration),
    DeletePod(Duration),
    /// Somebody sets the clock.
    SetClock(jiff::SignedDuration),
}

/// The way from the processes to the API.
#[derive(Debug)]
pub struct Wire {
    pub(super) trace: Arc<Trace>,
    latency: Mutex<StdRng>,
    plan: Mutex<Vec<Fault>>,
    writes: AtomicU32,
    last_write: Mutex<Instant>,
    /// Until when the API server takes no Job.
    jobs_from: Instant,
    orders: mpsc::UnboundedSender<Order>,
}

impl Wire {
    /// Orders go out on the channel.
    pub fn new(trace: Arc<Trace>, plan: &Plan, seed: u64, orders: mpsc::UnboundedSender<Order>) -> Self {
        Self {
            trace,
            latency: Mutex::new(StdRng::seed_from_u64(seed)),
            plan: Mutex::new(plan.0.clone()),
            writes: AtomicU32::new(0),
            last_write: Mutex::new(Instant::now()),
            jobs_from: Instant::now(),
            orders,
        }
    }

    /// The same, where the API server takes no Job for this long.
    #[must_use]
    pub fn forbidding_jobs_for(self, time: Duration) -> Self {
        Self {
            jobs_from: Instant::now() + time,
            ..self
        }
    }

    /// Whether the API server takes no Job at the moment.
    pub(super) fn forbids_jobs(&self) -> bool {
        Instant::now() < self.jobs_from
    }

    /// How many writes were sent so far, Leases apart.
    pub fn writes(&self) -> u32 {
        self.writes.load(Ordering::Relaxed)
    }

    /// When the last of them was sent.
    pub fn last_write(&self) -> Instant {
        *lock(&self.last_write)
    }

    /// Gives a write its number, and takes what is to go wrong with it.
    pub(super) fn count(&self) -> (u32, Vec<Trouble>) {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        *lock(&self.last_write) = Instant::now();
        let mut plan = lock(&self.plan);
        let (due, later) = plan.iter().partition(|fault| fault.at == number);
        *plan = later;
        let due: Vec<Fault> = due;
        (number, due.into_iter().map(|fault| fault.trouble).collect())
    }

    pub(super) fn order(&self, order: Order) {
        // Nobody leads any more only when the simulation is over.
        let _over = self.orders.send(order);
    }

    /// The time that a message takes on its way.
    pub(super) async fn travel(&self) {
        let time = lock(&self.latency).random_range(0..=LATENCY_MS_MAX);
        if time > 0 {
            tokio::time::sleep(Duration::from_millis(time)).await;
        }
    }
}

/// Whether messages of a process get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// They wait.
    Frozen,
    /// They are lost, in both directions and for good.
    Dead,
}

/// How the watches of a process do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    which: Watched,
    until: Instant,
    skips: bool,
}

/// One process of the controllers, from outside. Who waits for it is woken in the order of their coming, as with everything
/// here: tokio's `watch` wakes in a random order.
#[derive(Debug)]
pub struct Process {
    pub name: String,
    gate: Mutex<Gate>,
    turned: Notify,
    holds: Mutex<Vec<Hold>>,
    lags: Mutex<Vec<(Watched, Duration)>>,
    /// How often watches were told that their place in the history is gone.
    expiries: AtomicU32,
    expired: Notify,
}

impl Process {
    pub fn new(number: u32) -> Arc<Self> {
        Arc::new(Self {
            name: format!("process-{number}"),
            gate: Mutex::new(Gate::Open),
            turned: Notify::new(),
            holds: Mutex::default(),
            lags: Mutex::default(),
            expiries: AtomicU32::new(0),
            expired: Notify::new(),
        })
    }

    /// Nothing that it sends arrives any more, and nothing reaches it.
    pub fn kill(&self) {
        *lock(&self.gate) = Gate::Dead;
    }

    pub fn is_dead(&self) -> bool {
        *lock(&self.gate) == Gate::Dead
    }

    /// Whether messages reach it, and come back from it.
    pub fn gets_through(&self) -> bool {
        *lock(&self.gate) == Gate::Open
    }

    pub(super) fn freeze_for(self: &Arc<Self>, time: Duration) {
        self.turn(Gate::Open, Gate::Frozen);
        let this = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            this.turn(Gate::Frozen, Gate::Open);
        });
    }

    fn turn(&self, from: Gate, to: Gate) {
        let mut gate = lock(&self.gate);
        if *gate == from {
            *gate = to;
        }
        drop(gate);
        self.turned.notify_waiters();
    }

    /// Returns when messages get through, and whether they did not at first; never once it is dead.
    pub(super) async fn passes(&self) -> bool {
        let mut waited = false;
        loop {
            let turned = self.turned.notified();
            if *lock(&self.gate) == Gate::Open {
                return waited;
            }
            waited = true;
            turned.await;
        }
    }

    pub(super) fn hold(&self, which: Watched, time: Duration, skips: bool) {
        lock(&self.holds).push(Hold {
            which,
            until: Instant::now() + time,
            skips,
        });
    }

    pub(super) fn lag(&self, which: Watched, by: Duration) {
        lock(&self.lags).push((which, by));
    }

    /// Tells all watches that their place in the history is gone.
    pub(super) fn expire(&self) {
        self.expiries.fetch_add(1, Ordering::Relaxed);
        self.expired.notify_waiters();
    }

    /// How often they were told so.
    pub(super) fn expiries(&self) -> u32 {
        self.expiries.load(Ordering::Relaxed)
    }

    /// Returns when they are told so once more.
    pub(super) async fn expires_after(&self, times: u32) {
        loop {
            let expired = self.expired.notified();
            if self.expiries() > times {
                return;
            }
            expired.await;
        }
    }

    /// Until when watches of a resource are silent, and whether what happens meanwhile is left out.
    pub(super) fn silent_until(&self, plural: &str) -> Option<(Instant, bool)> {
        let now = Instant::now();
        let mut holds = lock(&self.holds);
        holds.retain(|hold| hold.until > now);
        let mine = holds.iter().filter(|hold| hold.which.means(plural));
        mine.map(|hold| (hold.until, hold.skips))
            .max_by_key(|(until, _)| *until)
    }

    pub(super) fn lag_of(&self, plural: &str) -> Duration {
        let lags = lock(&self.lags);
        let mine = lags.iter().filter(|(which, _)| which.means(plural));
        mine.map(|(_, by)| *by).max().unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
