//! How a person or Kubernetes asks this program to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and Ctrl-C, which mean the same.
#[derive(Debug)]
pub(crate) struct StopRequests {
    terminate: Signal,
    interrupt: Signal,
}

impl StopRequests {
    /// From now on these signals do not end the program by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
