//! Starts and stops the controllers: waits until it may lead, leads, and begins anew when it no longer does.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use jangar_engine::{retention::Ladder, settings::Settings};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::{sync::watch, task::JoinSet, time::sleep};

use crate::{
    admissions::Admissions,
    agent_run::AgentRuns,
    agents::{AgentProviders, Agents, ImplementationSpecs, VersionControlProviders},
    backoff::Backoff,
    canary::{Canary, SURVEY_PAUSE},
    clock::Clock,
    deliveries::Deliveries,
    driver::{Station, Term, TermSetup, station},
    events::Reporter,
    forges::{Forges, Network},
    gates::{ApprovalPolicies, SignalDeliveries, Signals},
    halt::{Halt, Halter, halt},
    lease::{Elector, Gate, Identity, Leadership, REQUEST_TIMEOUT, says_canary},
    metrics::Metrics,
    orchestration::{OrchestrationRuns, Orchestrations},
    outside::Outside,
    served::{Unserved, unserved},
    tools::{ToolRuns, Tools},
};

/// How long a stop waits for what was begun: a little longer than the longest request may take.
const STOP_PATIENCE: Duration = REQUEST_TIMEOUT.saturating_add(Duration::from_secs(1));

/// How often to look whether the kinds are served. Somebody waits who has just applied their definitions, so not for long.
const SERVED_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(100),
    most: Duration::from_secs(5),
};

/// What the controllers are started with.
pub struct Setup<'a> {
    pub client: Client,
    /// For the Lease alone. It should share no connections with the other: after a network was silent all of them may be dead, and
    /// each that a renewal is tried on costs time that the lease does not have.
    pub lease_client: Client,
    pub settings: Arc<Settings>,
    pub clock: Arc<dyn Clock>,
    /// Tells this process from others that may lead. Unique for each start.
    pub identity: Identity,
    /// Where the metrics are registered.
    pub registry: &'a mut Registry,
    /// The way to endpoints that do the work of runs.
    pub outside: Arc<Outside>,
}

impl fmt::Debug for Setup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("settings", &self.settings)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// What the controllers are doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Some kinds cannot be listed yet.
    Waiting {
        unserved: Vec<Unserved>,
    },
    /// Another process leads, or nobody does yet, or the caches are being filled.
    Standby,
    /// A canary that has not looked at everything yet, so that it has no verdict.
    Surveying,
    /// Another process leads, and this one is a canary that tells what it would do. It names the objects that the leader has
    /// accepted and this version cannot plan.
    Canary {
        unplannable: Vec<String>,
    },
    /// This process looks after the objects.
    Leading,
    Stopped,
}

/// The controllers at work. Dropping this ends them at once, as a crash would.
#[derive(Debug)]
pub struct Controllers {
    state: watch::Receiver<State>,
    halter: Halter,
    task: JoinSet<()>,
}

/// Starts the controllers.
pub fn start(setup: Setup<'_>) -> Controllers {
    start_with(setup, Arc::new(Network::default()))
}

/// Starts the controllers with something else that answers for forges.
pub fn start_with(setup: Setup<'_>, forges: Arc<dyn Forges>) -> Controllers {
    let metrics = Arc::new(Metrics::register(setup.registry));
    let kept = Ladder::of_settings(&setup.settings);
    metrics.kept(&kept);
    tracing::info!(
        deletions_per_minute = setup.settings.runs.deletions_per_minute,
        "kept after their end, unless a run says otherwise: {kept}"
    );
    setup.outside.count_in(Arc::clone(&metrics));
    let (state_sender, state) = watch::channel(State::Waiting { unserved: Vec::new() });
    let (halter, halt) = halt();
    let office = Office {
        client: setup.client,
        lease_client: setup.lease_client,
        settings: setup.settings,
        clock: setup.clock,
        identity: setup.identity,
        metrics,
        state: state_sender,
        halt,
        outside: setup.outside,
        forges,
    };
    let mut task = JoinSet::new();
    task.spawn(office.run());
    Controllers { state, halter, task }
}

impl Controllers {
    /// What they are doing, now and whenever it changes.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Stops them: nothing new is begun, writes in flight end, the lease is released.
    pub async fn stop(mut self) {
        self.halter.request();
        while self.task.join_next().await.is_some() {}
    }
}

/// All controllers, where `runs` looks after AgentRuns.
fn stations(settings: &Settings, runs: Arc<dyn Station>) -> Vec<Arc<dyn Station>> {
    if !settings.agents_enabled {
        return Vec::new();
    }
    let mut stations = vec![
        station(AgentProviders),
        station(ImplementationSpecs),
        station(Agents),
        runs,
        station(Tools),
        station(ToolRuns),
        // Where orchestrations are not looked after, it lets children go that somebody deletes.
        station(OrchestrationRuns::default()),
    ];
    if settings.orchestrations_enabled {
        stations.push(station(Orchestrations));
        stations.push(station(ApprovalPolicies));
        stations.push(station(Signals));
        stations.push(station(SignalDeliveries));
    }
    if settings.vcs.enabled {
        stations.push(station(VersionControlProviders));
        stations.push(station(Deliveries));
    }
    stations
}

/// Where it is decided whether to lead.
struct Office {
    client: Client,
    lease_client: Client,
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    identity: Identity,
    metrics: Arc<Metrics>,
    state: watch::Sender<State>,
    halt: Halt,
    outside: Arc<Outside>,
    forges: Arc<dyn Forges>,
}

/// Why a term ended.
enum End {
    Lost,
    Stopped,
}

impl Office {
    async fn run(self) {
        let mut elector = Elector::new(
            self.lease_client.clone(),
            self.settings.lease.clone(),
            self.identity.clone(),
            Arc::clone(&self.clock),
            Arc::clone(&self.metrics),
        );
        loop {
            let leadership = tokio::select! {
                biased;
                () = self.halt.requested() => break,
                leadership = self.await_leadership(&mut elector) => leadership,
            };
            match self.lead(leadership).await {
                End::Lost => {
                    tracing::warn!(identity = %self.identity, "no longer leading: all work is dropped");
                    // Told before anything is asked: an API server that answers nothing would keep it for minutes.
                    self.state.send_replace(self.standing().await);
                }
                End::Stopped => break,
            }
        }
        self.state.send_replace(State::Stopped);
    }

    async fn await_leadership(&self, elector: &mut Elector) -> Leadership {
        self.await_kinds().await;
        self.state.send_replace(self.standing().await);
        tokio::select! {
            biased;
            leadership = elector.lead() => leadership,
            never = self.stand_by() => match never {},
        }
    }

    /// What this process is before it has looked at anything. A canary that were ready at once would be let through before it has planned
    /// a single object.
    async fn standing(&self) -> State {
        match &self.settings.lease.role_file {
            Some(file) if says_canary(file).await => State::Surveying,
            Some(_) | None => State::Standby,
        }
    }

    /// Looks, while this process is a canary, what it would do if it led.
    async fn stand_by(&self) -> Infallible {
        let Some(file) = &self.settings.lease.role_file else {
            return std::future::pending().await;
        };
        loop {
            if says_canary(file).await {
                self.state.send_replace(State::Surveying);
                self.be_canary(file).await;
                self.state.send_replace(State::Standby);
            }
            sleep(SURVEY_PAUSE).await;
        }
    }

    async fn be_canary(&self, file: &str) {
        // Calls and reports of others belong to the leader, so nothing is shared with what a term would use.
        let outside = Arc::<Outside>::default();
        let runs = station(AgentRuns::unqueued(Arc::clone(&outside)));
        let setup = TermSetup {
            outside,
            ..self.term_setup(Gate::shut(Arc::clone(&self.metrics)))
        };
        let mut canary = Canary::begin(setup, stations(&self.settings, runs)).await;
        tracing::info!(identity = %self.identity, "a canary: everything is planned, and nothing is done");
        while says_canary(file).await {
            let unplannable = canary.survey().await;
            self.state.send_replace(State::Canary { unplannable });
            sleep(SURVEY_PAUSE).await;
        }
    }

    /// Waits until every kind can be listed, and says which cannot.
    async fn await_kinds(&self) {
        let mut tries = 0;
        loop {
            let unserved = unserved(&self.client, &self.settings).await;
            if unserved.is_empty() {
                return;
            }
            tries += 1;
            let state = State::Waiting { unserved };
            let changed = *self.state.borrow() != state;
            if let State::Waiting { unserved } = &state
                && changed
            {
                let kinds: Vec<String> = unserved.iter().map(ToString::to_string).collect();
                tracing::warn!(
                    kinds = kinds.join("; "),
                    "waiting for kinds that cannot be listed"
                );
            }
            self.state.send_replace(state);
            tokio::time::sleep(SERVED_BACKOFF.delay(tries)).await;
        }
    }

    /// Leads until it no longer may, or is stopped. The caches are listed anew: what an earlier leader did last is seen before
    /// anything is decided.
    async fn lead(&self, leadership: Leadership) -> End {
        let setup = self.term_setup(leadership.gate());
        let admissions = Admissions::new(&self.settings, Arc::clone(&self.clock), Arc::clone(&self.metrics));
        let runs = station(AgentRuns::new(Arc::new(admissions), Arc::clone(&self.outside)));
        let term = Term::begin(setup, stations(&self.settings, Arc::clone(&runs)));
        let _desk = self.outside.open(runs);
        let end = tokio::select! {
            biased;
            () = leadership.lost() => End::Lost,
            () = self.halt.requested() => End::Stopped,
            () = self.announce(&term) => End::Stopped,
        };
        match end {
            End::Lost => drop(term),
            End::Stopped => {
                if tokio::time::timeout(STOP_PATIENCE, term.ended()).await.is_err() {
                    tracing::error!(
                        patience = ?STOP_PATIENCE,
                        "writes in flight did not end in time; the lease is released all the same"
                    );
                }
                if let Err(error) = leadership.release().await {
                    tracing::warn!(%error, "the lease was not given back, so others wait until it has run out");
                }
            }
        }
        end
    }

    /// What controllers work with that write through this gate.
    fn term_setup(&self, gate: Gate) -> TermSetup {
        TermSetup {
            client: self.client.clone(),
            settings: Arc::clone(&self.settings),
            clock: Arc::clone(&self.clock),
            gate,
            reporter: Reporter::new(
                self.client.clone(),
                self.identity.clone(),
                Arc::clone(&self.metrics),
            ),
            metrics: Arc::clone(&self.metrics),
            halt: self.halt.clone(),
            outside: Arc::clone(&self.outside),
            forges: Arc::clone(&self.forges),
        }
    }

    /// Says when everything is known that has to be, and never returns.
    async fn announce(&self, term: &Term) {
        term.ready().await;
        self.state.send_replace(State::Leading);
        tracing::info!(identity = %self.identity, "all caches are filled, and work begins");
        std::future::pending::<()>().await;
    }
}
