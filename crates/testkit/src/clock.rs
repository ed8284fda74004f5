//! The time of day as the controllers see it. Somebody may set it, which changes nothing for those who wait.

use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use kubelite::clock::{Clock as _, TokioClock};

/// A wall clock that moves with tokio's until it is set.
#[derive(Debug)]
pub struct WallClock {
    time: TokioClock,
    offset: Mutex<SignedDuration>,
}

impl WallClock {
    pub fn new(time: TokioClock) -> Self {
        Self {
            time,
            offset: Mutex::default(),
        }
    }

    /// Sets the clock forward, or back.
    pub fn jump(&self, by: SignedDuration) {
        let mut offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        *offset = offset.saturating_add(by);
    }
}

impl jangar_controllers::clock::Clock for WallClock {
    fn now(&self) -> Timestamp {
        let offset = *self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.time.now();
        now.saturating_add(offset).unwrap_or(now)
    }
}
