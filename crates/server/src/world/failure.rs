//! Watches that fail: why, and for how long.

use std::time::Duration;

use kube::runtime::watcher;
use tokio::time::Instant;

/// How long a watch may fail before what it has shown counts as old.
const STALE_AFTER: Duration = Duration::from_mins(1);
/// A watch that fails is tried again sooner than this: after its longest pause, and the time that a connection may take to fail. One
/// that has not failed for so long goes on, which is all that there is to see of it where nothing changes.
const QUIET_AFTER: Duration = Duration::from_secs(90);

/// Why there is no watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// For everybody.
    pub(super) sort: &'static str,
    /// For those who may see the namespace.
    pub(super) words: String,
}

impl Failure {
    /// Nothing has failed yet.
    pub(super) fn none() -> Self {
        Self {
            sort: "not listed yet",
            words: "it is not listed yet".to_owned(),
        }
    }

    pub(super) fn of(error: &watcher::Error) -> Self {
        let code = match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => code_of(error),
            watcher::Error::WatchError(status) => Some(status.code),
            watcher::Error::NoResourceVersion => None,
        };
        let sort = match code {
            Some(401) => "the account of the control plane is not known",
            Some(403) => "forbidden",
            Some(404) => "there is no such kind",
            Some(_) => "the API server refuses it",
            None => "the API server does not answer",
        };
        Self {
            sort,
            words: error.to_string(),
        }
    }
}

fn code_of(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// A watch that fails again and again.
#[derive(Debug)]
pub(super) struct Failing {
    since: Instant,
    last: Instant,
    pub(super) why: String,
}

impl Failing {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            since: now,
            last: now,
            why: String::new(),
        }
    }

    pub(super) fn again(&mut self, why: String) {
        if self.last.elapsed() >= QUIET_AFTER {
            self.since = Instant::now();
        }
        self.last = Instant::now();
        self.why = why;
    }

    pub(super) fn is_stale(&self) -> bool {
        self.since.elapsed() >= STALE_AFTER && self.last.elapsed() < QUIET_AFTER
    }
}
