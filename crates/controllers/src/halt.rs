//! The request to stop, as everybody sees it who has to end.

use tokio::sync::watch;

/// Asks everybody who holds the other end to stop.
#[derive(Debug)]
pub struct Halter(watch::Sender<bool>);

/// Whether to stop.
#[derive(Clone, Debug)]
pub struct Halt(watch::Receiver<bool>);

/// The two ends of a request to stop. Dropping the one that asks is no request: who drops it ends the tasks as well.
pub fn halt() -> (Halter, Halt) {
    let (sender, receiver) = watch::channel(false);
    (Halter(sender), Halt(receiver))
}

impl Halter {
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}

impl Halt {
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when it is time to stop.
    pub async fn requested(&mut self) {
        if self.0.wait_for(|requested| *requested).await.is_err() {
            // Nobody is left who could ask.
            std::future::pending::<()>().await;
        }
    }
}
