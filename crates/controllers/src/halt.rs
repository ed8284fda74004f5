//! The request to stop, as everybody sees it who has to end.

use std::sync::Arc;

use crate::signal::Signal;

/// Asks everybody who holds the other end to stop. Dropping it is no request: who drops it ends the tasks as well.
#[derive(Debug)]
pub struct Halter(Arc<Signal<bool>>);

/// Whether to stop.
#[derive(Clone, Debug)]
pub struct Halt(Arc<Signal<bool>>);

/// The two ends of a request to stop.
pub fn halt() -> (Halter, Halt) {
    let signal = Arc::new(Signal::new(false));
    (Halter(Arc::clone(&signal)), Halt(signal))
}

impl Halter {
    pub fn request(&self) {
        self.0.change(|requested| {
            *requested = true;
            true
        });
    }
}

impl Halt {
    pub fn is_requested(&self) -> bool {
        *self.0.read()
    }

    /// Returns when it is time to stop.
    pub async fn requested(&self) {
        self.0.until(|requested| *requested).await;
    }
}
