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
        self.next_code().await;
    }

    /// Waits for the next one, and returns the exit code of a program that it ended: 128 and its number, as shells have it.
    pub(crate) async fn next_code(&mut self) -> u8 {
        tokio::select! {
            _ = self.terminate.recv() => 143,
            _ = self.interrupt.recv() => 130,
        }
    }
}
