//! The driver on an API server, with a plan that the test writes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use jangar_api::{
    Kind,
    agents::{
        agent::Agent,
        agent_provider::AgentProvider,
        agent_run::{AgentRun, AgentRunStatus},
    },
    phase::RunPhase,
};
use jangar_controllers::{
    agent_run::AgentRuns,
    caches::{Caches, Change},
    driver::{Controller, Scene, Term, TermSetup, station},
    events::Reporter,
    forges::Network,
    halt::{Halter, halt},
    lease::{Elector, Leadership},
    metrics::Metrics,
    outside::Outside,
};
use jangar_engine::{
    agent_run::Observed,
    decision::{Decision, Effect, Key, Plan},
    settings::{LeaseSettings, Namespaces, RunnerSettings, Settings},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::Job, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::tap::Tap;
use crate::support::{Cluster, NAMESPACE, OddClock, identity, settle};

type Decide = Box<dyn FnMut(&Observed) -> Decision<AgentRunStatus> + Send>;

/// A plan that was made.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) run: String,
    pub(super) at: Instant,
}

/// A controller of AgentRuns that observes as the real one does, and decides as the test does.
struct Scripted {
    decide: Arc<Mutex<Decide>>,
    planned: Arc<Mutex<Vec<Planned>>>,
}

impl Controller for Scripted {
    type Object = AgentRun;
    type Observed = Observed;
    const NAME: &'static str = "scripted";

    fn concerned(&self, caches: &Caches, change: &Change) -> BTreeSet<Key> {
        AgentRuns::default().concerned(caches, change)
    }

    fn has_remains(&self, scene: &Scene<'_>) -> bool {
        AgentRuns::default().has_remains(scene)
    }

    fn observe(&self, scene: &Scene<'_>, run: Option<Arc<AgentRun>>) -> Option<Observed> {
        AgentRuns::default().observe(scene, run)
    }

    fn plan(&self, observed: &Observed, _: &Settings, _: Timestamp) -> Decision<AgentRunStatus> {
        self.planned.lock().unwrap().push(Planned {
            run: observed.key.name.clone(),
            at: Instant::now(),
        });
        (self.decide.lock().unwrap_or_else(PoisonError::into_inner))(observed)
    }
}

/// An API server with Jangar's kinds, and the driver as leader on a line that is tapped.
pub(super) struct Stage {
    pub(super) cluster: Cluster,
    pub(super) tap: Tap,
    pub(super) halter: Halter,
    pub(super) term: Option<Term>,
    planned: Arc<Mutex<Vec<Planned>>>,
    registry: Registry,
    _leadership: Leadership,
}

impl Stage {
    /// The driver at rest, with what `before` has made, and this way to decide.
    pub(super) async fn start(
        before: impl AsyncFnOnce(&Props<'_>),
        decide: impl FnMut(&Observed) -> Decision<AgentRunStatus> + Send + 'static,
    ) -> Self {
        Self::on_tap(Tap::new(), before, decide).await
    }

    pub(super) async fn on_tap(
        tap: Tap,
        before: impl AsyncFnOnce(&Props<'_>),
        decide: impl FnMut(&Observed) -> Decision<AgentRunStatus> + Send + 'static,
    ) -> Self {
        Self::beside(Arc::default(), tap, before, decide).await
    }

    /// The same with a world outside of the cluster.
    pub(super) async fn beside(
        outside: Arc<Outside>,
        tap: Tap,
        before: impl AsyncFnOnce(&Props<'_>),
        decide: impl FnMut(&Observed) -> Decision<AgentRunStatus> + Send + 'static,
    ) -> Self {
        let cluster = cluster_with_kinds().await;
        before(&Props { cluster: &cluster }).await;
        let client = tap.client(&cluster.server);
        let planned = Arc::default();
        let script = Scripted {
            decide: Arc::new(Mutex::new(Box::new(decide))),
            planned: Arc::clone(&planned),
        };
        let clock = OddClock::right();
        let lease = LeaseSettings {
            enabled: false,
            ..LeaseSettings::default()
        };
        let mut elector = Elector::new(
            client.clone(),
            lease,
            identity("tester"),
            Arc::clone(&clock),
            Arc::default(),
        );
        let leadership = elector.lead().await;
        let (halter, halt) = halt();
        let mut registry = Registry::default();
        let setup = TermSetup {
            reporter: Reporter::new(client.clone(), identity("tester"), Arc::default()),
            client,
            settings: Arc::new(settings()),
            clock,
            gate: leadership.gate(),
            metrics: Arc::new(Metrics::register(&mut registry)),
            halt,
            forges: Arc::new(Network::default()),
            outside,
        };
        let term = Term::begin(setup, vec![station(script)]);
        settle().await;
        Self {
            cluster,
            tap,
            halter,
            term: Some(term),
            planned,
            registry,
            _leadership: leadership,
        }
    }

    /// How often something was counted, by the name and labels of the time series.
    pub(super) fn counted(&self, series: &str) -> Option<u64> {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map(|number| number.trim().parse().unwrap())
    }

    pub(super) fn props(&self) -> Props<'_> {
        Props {
            cluster: &self.cluster,
        }
    }

    pub(super) fn planned(&self) -> Vec<Planned> {
        self.planned.lock().unwrap().clone()
    }

    /// For which runs a plan was made, in order.
    pub(super) fn planned_runs(&self) -> Vec<String> {
        self.planned().into_iter().map(|planned| planned.run).collect()
    }

    pub(super) fn forget(&self) {
        self.planned.lock().unwrap().clear();
        self.tap.forget();
    }
}

/// What a test can put on the stage, past the tap.
pub(super) struct Props<'a> {
    pub(super) cluster: &'a Cluster,
}

impl Props<'_> {
    pub(super) async fn run(&self, name: &str, agent: &str) -> AgentRun {
        let run = self.new_run(name, agent);
        self.runs().create(&PostParams::default(), &run).await.unwrap()
    }

    /// A run that is not there yet.
    #[expect(clippy::unused_self, reason = "it is found beside its neighbour")]
    pub(super) fn new_run(&self, name: &str, agent: &str) -> AgentRun {
        let run = json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun",
            "metadata": { "name": name },
            "spec": {
                "agentRef": { "name": agent },
                "implementation": { "inline": { "text": "mend the roof" } },
                "runtime": { "type": "job" },
            },
        });
        serde_json::from_value(run).unwrap()
    }

    pub(super) async fn agent(&self, name: &str, provider: &str) {
        let agent = json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "Agent",
            "metadata": { "name": name },
            "spec": { "providerRef": { "name": provider } },
        });
        let agent: Agent = serde_json::from_value(agent).unwrap();
        let agents = Api::default_namespaced(self.cluster.client());
        agents.create(&PostParams::default(), &agent).await.unwrap();
    }

    pub(super) async fn provider(&self, name: &str) {
        let provider = json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentProvider",
            "metadata": { "name": name },
            "spec": { "binary": "/bin/true" },
        });
        let provider: AgentProvider = serde_json::from_value(provider).unwrap();
        let providers = Api::default_namespaced(self.cluster.client());
        providers.create(&PostParams::default(), &provider).await.unwrap();
    }

    pub(super) async fn job(&self, job: &Job) -> Job {
        self.jobs().create(&PostParams::default(), job).await.unwrap()
    }

    pub(super) async fn end_run(&self, name: &str) {
        let status = json!({ "status": { "phase": "Succeeded" } });
        let params = PatchParams::default();
        self.runs()
            .patch_status(name, &params, &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// Changes something about a run that nobody reads.
    pub(super) async fn touch_run(&self, name: &str) -> AgentRun {
        let patch = annotation();
        let params = PatchParams::default();
        self.runs()
            .patch(name, &params, &Patch::Merge(patch))
            .await
            .unwrap()
    }

    pub(super) async fn touch_agent(&self, name: &str) {
        let agents: Api<Agent> = Api::default_namespaced(self.cluster.client());
        let patch = annotation();
        let params = PatchParams::default();
        agents.patch(name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) fn runs(&self) -> Api<AgentRun> {
        Api::default_namespaced(self.cluster.client())
    }

    pub(super) async fn job_names(&self) -> Vec<String> {
        let jobs = self.jobs().list(&ListParams::default()).await.unwrap();
        jobs.iter().map(ResourceExt::name_any).collect()
    }

    pub(super) fn jobs(&self) -> Api<Job> {
        Api::default_namespaced(self.cluster.client())
    }
}

/// One that is new each time.
fn annotation() -> Value {
    let nonce = format!("{:?}", Instant::now());
    json!({ "metadata": { "annotations": { "test/touched": nonce } } })
}

/// An API server that knows Jangar's kinds.
pub(crate) async fn cluster_with_kinds() -> Cluster {
    let cluster = Cluster::start().await;
    install_kinds(&cluster).await;
    cluster
}

pub(super) async fn install_kinds(cluster: &Cluster) {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    // Those that are watched: each costs a test some milliseconds.
    for kind in [
        Kind::AgentRun,
        Kind::Agent,
        Kind::AgentProvider,
        Kind::ImplementationSpec,
        Kind::Memory,
        Kind::VersionControlProvider,
        Kind::Tool,
        Kind::ToolRun,
        Kind::Orchestration,
        Kind::OrchestrationRun,
        Kind::ApprovalPolicy,
        Kind::Signal,
        Kind::SignalDelivery,
    ] {
        definitions
            .create(&PostParams::default(), &kind.crd())
            .await
            .unwrap();
    }
    settle().await;
}

pub(super) fn settings() -> Settings {
    Settings {
        namespaces: Namespaces::These(BTreeSet::from([NAMESPACE.to_owned()])),
        runner: RunnerSettings {
            image: Some("example.com/agent:1".to_owned()),
            ..RunnerSettings::default()
        },
        ..Settings::default()
    }
}

/// A Job of this name that carries the label of a run.
pub(super) fn job(name: &str, run: &str) -> Job {
    let pod = json!({
        "restartPolicy": "Never",
        "containers": [{ "name": "agent", "image": "example.com/agent:1" }],
    });
    let job = json!({
        "metadata": { "name": name, "labels": { "agents.proompteng.ai/agent-run": run } },
        "spec": { "template": { "spec": pod } },
    });
    serde_json::from_value(job).unwrap()
}

pub(super) fn create_job(name: &str, run: &str) -> Effect {
    Effect::CreateJob(Box::new(job(name, run).into()))
}

pub(super) fn phase(phase: RunPhase) -> AgentRunStatus {
    AgentRunStatus {
        phase: Some(phase),
        ..AgentRunStatus::default()
    }
}

/// The phase that a run shows.
pub(super) fn phase_of(observed: &Observed) -> Option<RunPhase> {
    observed.run.as_ref()?.status.as_ref()?.phase.clone()
}

pub(super) fn idle() -> Decision<AgentRunStatus> {
    Decision::Act(Plan::nothing())
}

pub(super) fn act(effects: Vec<Effect>, status: Option<AgentRunStatus>) -> Decision<AgentRunStatus> {
    Decision::Act(Plan {
        effects,
        status,
        ..Plan::nothing()
    })
}
