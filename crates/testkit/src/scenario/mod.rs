//! What people do, and what the pods do, as data: a simulation plays it with and without bad luck.

mod custom;
mod hindered;
mod misfortunes;
mod missing;
pub mod orchestrations;
mod queue;
mod refused;
mod retention;
mod runs;
mod temporal;
mod tools;
mod version_control;
mod workflows;

use std::time::Duration;

use jangar_api::phase::RunPhase;
use jangar_engine::settings::{LimitSettings, Settings};
use serde_json::Value;

use crate::{endpoint::Deeds, forges::ForgeScript, node::Scripts};

/// Those of an AgentRun that one Job after another executes, and of nothing else.
pub fn of_plain_runs() -> Vec<Scenario> {
    runs::all()
}

/// All scenarios, in a fixed order.
pub fn all() -> Vec<Scenario> {
    [
        runs::all(),
        workflows::all(),
        misfortunes::all(),
        hindered::all(),
        missing::all(),
        refused::all(),
        retention::all(),
        queue::all(),
        custom::all(),
        temporal::all(),
        version_control::all(),
        tools::all(),
        orchestrations::all(),
    ]
    .concat()
}

/// A Job that is taken away by force before its run has told of it. It is not one of all: who crashes meanwhile begins anew.
pub fn job_taken_untold() -> Scenario {
    misfortunes::job_taken_untold()
}

/// A story with a known end.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub place: Place,
    /// What the controllers are told to keep to.
    pub limits: LimitSettings,
    /// What else they are told, beside what they are in every simulation.
    pub settings: fn(&mut Settings),
    /// For how long the API server takes no Job, as with a quota that is used up.
    pub jobs_forbidden: Duration,
    pub scripts: Scripts,
    /// What the endpoint does, and the worker of the Temporal server.
    pub deeds: Deeds,
    pub forge: ForgeScript,
    /// For how long history is away; absent, there is none.
    pub history_away: Option<Duration>,
    /// What may have been done is not done again, so that trouble leaves its mark on the end.
    pub at_most_once: bool,
    pub steps: Vec<Step>,
    /// What becomes of each run, if nothing goes wrong.
    pub ends: Vec<(&'static str, End)>,
}

/// Where it plays.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// How many pods the node runs at once.
    pub slots: u32,
    /// How far the Job controller is behind the pods, at least.
    pub job_sync_delay: Duration,
}

/// The Job controller of a simulation is behind by one to this many times what its place says.
const SLOWNESS_MAX: u64 = 4;
/// After how many seeds the speeds move on by one. Fewer than there are scenarios, so that each turn moves them.
const SEEDS_UNSHIFTED: u64 = 64;

impl Place {
    /// The same place with a Job controller as slow as the seed has it; that of seed 0 is the fastest.
    #[must_use]
    pub fn of_seed(self, seed: u64) -> Self {
        // Scenarios are taken in turn by the seed. Without the shift, a number of them that shares a factor with this one would
        // show each scenario only some of the speeds.
        let shifted = seed + seed / SEEDS_UNSHIFTED;
        let times = u32::try_from(1 + shifted % SLOWNESS_MAX).unwrap_or(1);
        Self {
            job_sync_delay: self.job_sync_delay * times,
            ..self
        }
    }
}

/// One thing that somebody does, or waits for.
#[derive(Clone, Debug)]
pub enum Step {
    /// Creates an object, given the plural of its kind. Runs have names of their own, whatever their kind.
    Create(&'static str, Value),
    Wait(Duration),
    /// Waits until the work of an attempt has started.
    AwaitWork(&'static str, u32),
    /// Waits until the work of the first attempt of a workflow's step has started.
    AwaitStepWork(&'static str, u32),
    /// Waits until the controllers say that they have taken a run on.
    AwaitAccepted(&'static str),
    /// Waits until the controllers say that a run is executed, and by which Job.
    AwaitRunning(&'static str),
    /// Waits until the controllers say that a run is being stopped, or has ended.
    AwaitStopping(&'static str),
    /// Waits until a run has ended.
    AwaitEnd(&'static str),
    /// Waits until there is no run of that name.
    AwaitGone(&'static str),
    Cancel(&'static str),
    /// Changes a run, as a merge patch says.
    Change(&'static str, Value),
    /// Waits until a run has a Job, and no moment longer.
    AwaitJob(&'static str),
    /// Takes the Job of a run away, and our hold on it first.
    TakeJob(&'static str),
    /// Deletes the Job of a run, as kubectl does.
    DeleteJob(&'static str),
    /// Changes a Secret or a ConfigMap, given the plural of its kind, as a merge patch says.
    Mend(&'static str, &'static str, Value),
    /// Deletes a Secret or a ConfigMap, given the plural of its kind.
    Remove(&'static str, &'static str),
    /// Waits until a gate of an OrchestrationRun is open for decisions, and approves what it shows.
    Approve(&'static str, &'static str),
    Delete(&'static str),
}

/// What becomes of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Phase(RunPhase),
    /// It was deleted, and is gone.
    Gone,
}
