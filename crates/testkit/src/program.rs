//! What is put to the test: a program that speaks to the API through the one client it is given.

use std::{any::Any, fmt, sync::Arc};

use kube::Client;

use crate::clock::WallClock;

/// What a process finds when it starts.
#[derive(Clone)]
pub struct Surroundings {
    pub client: Client,
    pub wall: Arc<WallClock>,
    /// What tells it from every other process, those before it included.
    pub identity: String,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// A running process. Dropping it ends all its tasks at once, as a crash does.
pub type Running = Box<dyn Any + Send>;

/// Something that can be started, as often as it crashes.
pub trait Program: Sync {
    /// Starts one process, inside of the simulation's runtime.
    fn start(&self, surroundings: Surroundings) -> Running;
}
