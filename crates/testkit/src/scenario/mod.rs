//! What people do, and what the pods do, as data: a simulation plays it with and without bad luck.

mod runs;

use std::time::Duration;

use jangar_api::phase::RunPhase;
use serde_json::Value;

pub use self::runs::all;
use crate::node::Scripts;

/// A story with a known end.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub place: Place,
    pub scripts: Scripts,
    pub steps: Vec<Step>,
    /// What becomes of each run, if nothing goes wrong.
    pub ends: Vec<(&'static str, End)>,
}

/// Where it plays.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// How many pods the node runs at once.
    pub slots: u32,
    /// How far the Job controller is behind the pods.
    pub job_sync_delay: Duration,
}

/// One thing that somebody does, or waits for.
#[derive(Clone, Debug)]
pub enum Step {
    /// Creates an object of Jangar's kinds, given its plural.
    Create(&'static str, Value),
    Wait(Duration),
    /// Waits until the work of an attempt has started.
    AwaitWork(&'static str, u32),
    /// Waits until the controllers say that they have taken a run on.
    AwaitAccepted(&'static str),
    /// Waits until a run has ended.
    AwaitEnd(&'static str),
    /// Waits until there is no run of that name.
    AwaitGone(&'static str),
    Cancel(&'static str),
    Delete(&'static str),
}

/// What becomes of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Phase(RunPhase),
    /// It was deleted, and is gone.
    Gone,
}
