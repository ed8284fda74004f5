//! What is put to the test: a program that speaks to the API through the one client it is given.

use std::{any::Any, fmt, sync::Arc, time::Duration};

use jangar_controllers::{Setup, forges::Forges, lease::Identity, outside::Outside};
use jangar_engine::settings::{JobController, LimitSettings, Safeguards, Settings};
use kube::Client;
use prometheus_client::registry::Registry;

use crate::{clock::WallClock, endpoint, temporal};

/// How many runs are deleted in a minute: few, so that a scenario with three of them shows it.
pub const DELETIONS_PER_MINUTE: u32 = 2;

/// What a process finds when it starts.
#[derive(Clone)]
pub struct Surroundings {
    pub client: Client,
    pub wall: Arc<WallClock>,
    /// What tells it from every other process, those before it included.
    pub identity: String,
    pub limits: LimitSettings,
    /// What else its settings say where it plays.
    pub settings: fn(&mut Settings),
    /// Its way to the endpoint, and to the Temporal server.
    pub outside: Arc<Outside>,
    pub forges: Arc<dyn Forges>,
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

    /// The variables that say how it differs from what is shipped, each followed by a blank, for the command that plays it again.
    fn variables(&self) -> String {
        String::new()
    }
}

/// The controllers as they are shipped.
#[derive(Clone, Debug)]
pub struct Shipped {
    settings: Arc<Settings>,
}

impl Shipped {
    /// With safeguards as they are, or with one taken away.
    pub fn with(safeguards: Safeguards) -> Self {
        let mut settings = Settings {
            safeguards,
            ..Settings::default()
        };
        // The same proportions as by default. Each renewal costs as much as any other request, and most of a simulation
        // is waiting.
        settings.lease.duration = Duration::from_mins(1);
        settings.lease.renew_deadline = Duration::from_secs(40);
        settings.lease.retry_period = Duration::from_secs(15);
        // Whoever takes over waits for the lease first. What a restart delays must not run out of time because of it.
        settings.runs.reference_grace = Duration::from_mins(10);
        settings.runs.cancel_timeout = Duration::from_mins(10);
        settings.runs.deletions_per_minute = DELETIONS_PER_MINUTE;
        settings.custom.callback_url = Some(endpoint::CALLBACKS.to_owned());
        settings.temporal.address = Some(temporal::ADDRESS.to_owned());
        Self {
            settings: Arc::new(settings),
        }
    }

    /// The same, looking after its Jobs itself.
    #[must_use]
    pub fn with_own_jobs(self) -> Self {
        self.changed(|settings| settings.runner.job_controller = JobController::Jangar)
    }

    /// The same with other settings.
    #[must_use]
    pub fn changed(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl Program for Shipped {
    fn start(&self, surroundings: Surroundings) -> Running {
        let mut settings = Settings {
            limits: surroundings.limits,
            ..self.settings.as_ref().clone()
        };
        (surroundings.settings)(&mut settings);
        let setup = Setup {
            lease_client: surroundings.client.clone(),
            client: surroundings.client,
            settings: Arc::new(settings),
            clock: surroundings.wall,
            identity: Identity::new(surroundings.identity).expect("a short name"),
            registry: &mut Registry::default(),
            outside: surroundings.outside,
        };
        Box::new(jangar_controllers::start_with(setup, surroundings.forges))
    }

    fn variables(&self) -> String {
        let safeguards = self.settings.safeguards;
        let lacks = |word: &&&str| without(word).is_some_and(|without| without == safeguards);
        let taken_away = SAFEGUARDS.iter().find(lacks);
        let taken_away = taken_away.map(|word| format!("JANGAR_SIM_WITHOUT={word} "));
        let own_jobs = match self.settings.runner.job_controller {
            JobController::Jangar => "JANGAR_SIM_JOBS=jangar ",
            JobController::Kubernetes => "",
        };
        taken_away.unwrap_or_default() + own_jobs
    }
}

/// What can be taken away from the controllers by name.
pub const SAFEGUARDS: [&str; 5] = [
    "barrier",
    "adoption-check",
    "job-finalizer",
    "one-caller",
    "leisure",
];

/// All safeguards but the one of this name, if there is one.
pub fn without(word: &str) -> Option<Safeguards> {
    let mut safeguards = Safeguards::default();
    match word {
        "barrier" => safeguards.barrier = false,
        "adoption-check" => safeguards.adoption_check = false,
        "job-finalizer" => safeguards.job_finalizer = false,
        "one-caller" => safeguards.one_caller = false,
        "leisure" => safeguards.leisure = false,
        _ => return None,
    }
    Some(safeguards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_the_safeguard_that_it_does_without_and_who_looks_after_its_jobs() {
        let whole = Shipped::with(Safeguards::default());
        assert_eq!(whole.variables(), "");
        assert_eq!(whole.with_own_jobs().variables(), "JANGAR_SIM_JOBS=jangar ");
        for word in SAFEGUARDS {
            let program = Shipped::with(without(word).expect("a safeguard"));
            assert_eq!(program.variables(), format!("JANGAR_SIM_WITHOUT={word} "));
        }
    }
}
