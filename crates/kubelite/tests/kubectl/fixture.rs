//! The server under test. What could differ from run to run (the time, identifiers, the output of pods) is fixed here.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use jiff::{SignedDuration, Timestamp};
use kubelite::{
    clock::{Clock, Ids},
    error::ApiError,
    server::{Config, LogRequest, PodLogs, Server, Token, User},
    store::{Limits, Store},
};

/// The bearer token that the server knows.
pub(crate) const TOKEN: &str = "kubectl-suite";
const START: &str = "2026-03-01T10:00:00Z";
const SEED: u64 = 1;
/// What the server does on its own after a write takes a handful of turns of the scheduler; this is plenty and still costs
/// microseconds.
const SETTLING_TURNS: usize = 500;

/// A clock that moves only when told to, so that ages are the same in every run.
#[derive(Debug)]
pub(crate) struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(START.parse().expect("the start is a time")))
    }

    pub(crate) fn advance(&self, seconds: i64) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now += SignedDuration::from_secs(seconds);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every container has said the same.
#[derive(Debug)]
struct FixedLogs;

const LOG_LINES: [&str; 3] = ["ready", "steady", "go"];

impl PodLogs for FixedLogs {
    fn read(&self, request: LogRequest) -> BoxFuture<'_, Result<Body, ApiError>> {
        if request.previous {
            let why = format!(
                "previous terminated container {:?} in pod {:?} not found",
                request.container, request.pod
            );
            return ready(Err(ApiError::bad_request(why))).boxed();
        }
        let tail = request.tail_lines.and_then(|lines| usize::try_from(lines).ok());
        let skipped = LOG_LINES.len() - tail.unwrap_or(usize::MAX).min(LOG_LINES.len());
        let time = if request.timestamps {
            "2026-03-01T10:00:00.000000000Z "
        } else {
            ""
        };
        let lines: Vec<_> = LOG_LINES[skipped..]
            .iter()
            .map(|line| Ok::<_, ApiError>(format!("{time}{}: {line}\n", request.container)))
            .collect();
        // One chunk for each line, as they would come from a container that is still running.
        ready(Ok(Body::from_stream(futures::stream::iter(lines)))).boxed()
    }
}

/// A server without objects of its own.
pub(crate) async fn server(clock: Arc<ManualClock>) -> Server {
    let mut config = Config::new(Store::in_memory(Limits::default()));
    config.clock = clock;
    config.ids = Ids::seeded(SEED);
    config.tokens = vec![Token::new(TOKEN, User::system("admin"))];
    config.logs = Some(Arc::new(FixedLogs));
    let server = Server::start(config).await.expect("the server starts");
    settle().await;
    server
}

/// Lets the server finish what follows from a write before the next request. Needs a runtime with one thread and a store
/// in memory: then nothing waits for anything but its turn.
pub(crate) async fn settle() {
    for _ in 0..SETTLING_TURNS {
        tokio::task::yield_now().await;
    }
}
