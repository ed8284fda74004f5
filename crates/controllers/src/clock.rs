//! Where the controllers get the time of day from, so that a simulation can supply it. Waiting is by tokio's clock.

use std::fmt::Debug;

use jiff::Timestamp;

/// The time of day.
pub trait Clock: Debug + Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
