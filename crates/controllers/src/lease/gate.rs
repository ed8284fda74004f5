//! The gate through which every write goes: it opens while this process may write, and no write outlasts that.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use tokio::{
    sync::{RwLock, RwLockReadGuard},
    time::{Instant, sleep_until, timeout_at},
};

use crate::{
    metrics::{Metrics, RequestResult, WriteStop},
    signal::Signal,
};

pub use jangar_engine::decision::REQUEST_TIMEOUT;

/// Why a write is not known to be done.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the write was not sent: this process does not hold the lease, or not for long enough")]
    NotLeading,
    #[error("the write was cut off before its answer came: it may have been done or not")]
    TimedOut,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl WriteError {
    /// Whether it may have been done, or may even be done later.
    pub fn is_uncertain(&self) -> bool {
        match self {
            Self::NotLeading => false,
            Self::TimedOut => true,
            Self::Api(error) => !is_answer(error),
        }
    }
}

impl From<&WriteError> for RequestResult {
    fn from(error: &WriteError) -> Self {
        match error {
            WriteError::NotLeading => Self::NotLeading,
            WriteError::TimedOut => Self::TimedOut,
            WriteError::Api(error) => Self::from(error),
        }
    }
}

/// Whether an error is what the API server said, so that the request is over there too. Anything else happened on the way.
fn is_answer(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(_))
}

/// How this process stands with the lease.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) phase: Phase,
    pub(super) hold: Hold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Leading,
    /// No write starts any more; those under way may end.
    Closing,
    Over,
}

/// What the leadership rests on.
#[derive(Clone, Debug)]
pub(super) enum Hold {
    /// There is no election.
    Unchallenged,
    Lease(Box<Confirmed>),
}

/// The last write to the Lease that the API server has confirmed.
#[derive(Clone, Debug)]
pub(super) struct Confirmed {
    pub(super) lease: Lease,
    /// When it was sent. The lease counts from there for us, and from a later time for everybody else.
    pub(super) sent: Instant,
}

/// Lets writes through while this process leads. Clones are the same gate.
///
/// With the lease renewed at 0 and lasting for `d`, writes start before `2/3 d` and are cut off at `5/6 d`, and nobody else
/// takes the lease before `d`. The last sixth is for what a cut-off leaves on the way to the API server.
#[derive(Clone)]
pub struct Gate {
    standing: Arc<Signal<Standing>>,
    writes: Arc<Writes>,
    duration: Duration,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = self.standing.read().phase;
        f.debug_struct("Gate")
            .field("phase", &phase)
            .finish_non_exhaustive()
    }
}

impl Gate {
    pub(super) fn new(
        standing: Arc<Signal<Standing>>,
        writes: Arc<Writes>,
        duration: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            standing,
            writes,
            duration,
            metrics,
        }
    }

    /// A gate that lets nothing through, for a process that only looks.
    pub fn shut(metrics: Arc<Metrics>) -> Self {
        let standing = Standing {
            phase: Phase::Over,
            hold: Hold::Unchallenged,
        };
        Self::new(
            Arc::new(Signal::new(standing)),
            Arc::default(),
            Duration::ZERO,
            metrics,
        )
    }

    /// Whether a write may start now.
    pub fn is_open(&self) -> bool {
        self.cut_off(Instant::now()).is_some()
    }

    /// Sends a write, if it may start now, and waits for its answer as long as it may take.
    pub async fn write<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
        // It is under way before the gate is looked at, so that a release either shuts it out or waits for it.
        let under_way = self.writes.begin();
        let (Some(mut under_way), Some(cut_off)) = (under_way, self.cut_off(Instant::now())) else {
            self.metrics.write_stopped(WriteStop::NotLeading);
            return Err(WriteError::NotLeading);
        };
        under_way.sent();
        let answer = tokio::select! {
            biased;
            () = self.standing.until(|standing| standing.phase == Phase::Over) => None,
            answer = timeout_at(cut_off, request) => answer.ok(),
        };
        let Some(answer) = answer else {
            self.metrics.write_stopped(WriteStop::TimedOut);
            return Err(WriteError::TimedOut);
        };
        if answer.as_ref().err().is_none_or(is_answer) {
            under_way.answered();
        }
        Ok(answer?)
    }

    /// When a write that starts now is cut off; `None` if none may start.
    fn cut_off(&self, now: Instant) -> Option<Instant> {
        let standing = self.standing.read();
        match (standing.phase, &standing.hold) {
            (Phase::Closing | Phase::Over, _) => None,
            (Phase::Leading, Hold::Unchallenged) => Some(now + REQUEST_TIMEOUT),
            (Phase::Leading, Hold::Lease(confirmed)) => {
                let last_start = confirmed.sent + self.duration * 2 / 3;
                let last_end = confirmed.sent + self.duration * 5 / 6;
                (now < last_start).then(|| last_end.min(now + REQUEST_TIMEOUT))
            }
        }
    }
}

/// How long a write that was given up may take to be done after all or never: what the gate leaves of the lease.
fn settling_time(duration: Duration) -> Duration {
    duration / 6
}

/// The writes of one leadership.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// Shared by the writes under way; whoever has it alone knows that there are none.
    under_way: RwLock<()>,
    /// When the last write that got no answer was given up.
    given_up: Mutex<Option<Instant>>,
}

impl Writes {
    /// `None` if somebody waits for the last one to end.
    fn begin(&self) -> Option<UnderWay<'_>> {
        let guard = self.under_way.try_read().ok()?;
        Some(UnderWay {
            writes: self,
            unanswered: false,
            _guard: guard,
        })
    }

    /// Waits until every write has ended. It takes no longer than the lease does: each is cut off before.
    pub(super) async fn ended(&self) {
        let _alone = self.under_way.write().await;
    }

    /// Waits until also those that were given up are done or never will be.
    pub(super) async fn settled(&self, lease_duration: Duration) {
        self.ended().await;
        let given_up = *self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(given_up) = given_up {
            sleep_until(given_up + settling_time(lease_duration)).await;
        }
    }
}

/// A write under way. Dropped without an answer, by a cut-off or because the caller went away, it was given up.
struct UnderWay<'w> {
    writes: &'w Writes,
    unanswered: bool,
    _guard: RwLockReadGuard<'w, ()>,
}

impl UnderWay<'_> {
    fn sent(&mut self) {
        self.unanswered = true;
    }

    fn answered(&mut self) {
        self.unanswered = false;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.unanswered {
            let mut given_up = self
                .writes
                .given_up
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *given_up = Some(Instant::now());
        }
    }
}
