//! One simulation, from its beginning to its end.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jangar_api::phase::RunPhase;
use jangar_controllers::outside::Outside;
use jangar_engine::settings::LimitSettings;
use kube::Client;
use kubelite::store::{Collection, Key, Object, Store};
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use crate::{
    check::{Checks, end::EndState, rest, runs::RunView},
    endpoint::SimEndpoint,
    faults::{Embassy, Line, Order, Outpost, Plan, Process, Wire},
    forges::SimForge,
    history::{Desk, SimHistory},
    node::{Kubelet, Record, Work},
    program::{Program, Running, Surroundings},
    scenario::{End, Scenario, Step},
    temporal::SimTemporal,
    world::{
        Definitions, NAMESPACE, Person, World, all_runs, jobs, objects, orchestration_runs, pods, tool_runs,
    },
};

/// The world is at rest when nothing works, nothing has changed and nothing was written for this long. Whatever still waits in a scenario
/// waits for less.
const CALM: Duration = Duration::from_secs(150);
/// And for this long if some run has not ended as it should: longer than anything waits, the controllers included.
const CALM_STUCK: Duration = Duration::from_mins(30);
/// A world that does not come to rest within this is not going to.
const PATIENCE: Duration = Duration::from_mins(90);
/// How long somebody waits for what a step wants to see. Longer than anything takes that ever happens.
const STEP_PATIENCE: Duration = Duration::from_mins(30);
/// No scenario needs as many writes, however much goes wrong: something writes for ever.
const WRITES_MAX: u32 = 500;
/// How often the leader of the simulation looks around; it reads the store only, which disturbs nobody.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often it looks whether the world has come to rest.
const REST_LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long a process that died is away.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// What is to be played.
#[derive(Clone, Debug)]
pub struct Simulation<'a> {
    pub scenario: &'a Scenario,
    pub seed: u64,
    pub plan: Plan,
    /// How long nothing at all may be written once the world is at rest, beyond what it takes to see that it is.
    pub quiet: Duration,
}

impl Simulation<'_> {
    /// The limits that must hold at every moment. Windows of time mean nothing where somebody sets the clock.
    fn observed_limits(&self) -> LimitSettings {
        let mut limits = self.scenario.limits.clone();
        if !self.plan.keeps_the_clock() {
            limits.rate.namespace = None;
            limits.rate.repository = None;
            limits.rate.cluster = None;
        }
        limits
    }

    /// Whether the end may differ from that of an undisturbed play.
    pub fn leaves_a_mark(&self) -> bool {
        !self.plan.leaves_no_mark() || (self.scenario.at_most_once && !self.plan.0.is_empty())
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was found wrong.
    pub violations: Vec<String>,
    /// How many writes the controllers sent, Leases apart.
    pub writes: u32,
    pub end: EndState,
    pub works: Vec<Work>,
    /// What AgentRuns said that they waited for.
    pub waits: BTreeSet<String>,
    /// With which reasons they ended, those that are gone too.
    pub reasons: BTreeSet<String>,
    pub trace: Vec<String>,
}

/// Plays a simulation in a runtime of its own. Not to be called inside of one.
pub fn play(program: &dyn Program, simulation: &Simulation<'_>) -> Report {
    let definitions = Definitions::get();
    // Watches spread their retries with this generator, which belongs to the thread.
    fastrand::seed(simulation.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let Simulation { scenario, seed, .. } = simulation;
        let world = World::start(definitions, *seed, &scenario.place.of_seed(*seed)).await;
        let record = Record::default();
        let history = scenario.history_away.map(SimHistory::away_for);
        let checks = Checks::start(&world, &record, simulation.observed_limits(), history.clone());
        let kubelet = Kubelet::start(&world, scenario.scripts.clone(), &record);
        let (sender, orders) = mpsc::unbounded_channel();
        let wire = Wire::new(Arc::clone(world.trace()), &simulation.plan, *seed, sender.clone())
            .forbidding_jobs_for(scenario.jobs_forbidden);
        let endpoint = SimEndpoint::new(scenario.deeds.clone(), &record, world.trace(), world.wall());
        let temporal = SimTemporal::new(scenario.deeds.clone(), &record, world.trace());
        let story = Story {
            person: world.person("user"),
            store: world.store().clone(),
            wire: Arc::new(wire),
            record,
            checks,
            seen: RefCell::default(),
            simulation,
        };
        let mut stage = Stage {
            program,
            scenario,
            world: &world,
            wire: Arc::clone(&story.wire),
            endpoint,
            temporal,
            forge: SimForge::new(scenario.forge.clone()),
            history,
            sender,
            processes: Vec::new(),
            started: 0,
        };
        stage.start_process();
        tokio::select! {
            biased;
            () = story.tell() => {}
            () = stage.obey(orders) => {}
        }
        drop(kubelet);
        story.report(&world)
    })
}

/// Runs the processes, and does what the faults ask for.
struct Stage<'a> {
    program: &'a dyn Program,
    scenario: &'a Scenario,
    world: &'a World,
    wire: Arc<Wire>,
    endpoint: Arc<SimEndpoint>,
    temporal: Arc<SimTemporal>,
    forge: SimForge,
    history: Option<Arc<SimHistory>>,
    sender: mpsc::UnboundedSender<Order>,
    processes: Vec<(Arc<Process>, Running)>,
    started: u32,
}

impl Stage<'_> {
    async fn obey(&mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            match order {
                Order::Restart => {
                    self.processes.retain(|(process, _)| !process.is_dead());
                    let sender = self.sender.clone();
                    tokio::spawn(async move {
                        sleep(RESTART_AFTER).await;
                        // An error means that the simulation is over.
                        let _over = sender.send(Order::Rival);
                    });
                }
                Order::Rival => self.start_process(),
                Order::DeleteJob(after) => self.delete_later(after, "/apis/batch/v1", "jobs"),
                Order::DeletePod(after) => self.delete_later(after, "/api/v1", "pods"),
                Order::SetClock(by) => self.world.wall().jump(by),
            }
        }
    }

    fn start_process(&mut self) {
        self.started += 1;
        let process = Process::new(self.started);
        let api = self.world.api(&process.name);
        let line = Line::new(Arc::clone(&self.wire), Arc::clone(&process), api);
        let outpost = Outpost::new(
            Arc::clone(&self.wire),
            Arc::clone(&process),
            Arc::clone(&self.endpoint),
        );
        let reception = Some(SimEndpoint::reception());
        let embassy = Embassy::new(
            Arc::clone(&self.wire),
            Arc::clone(&process),
            Arc::clone(&self.temporal),
        );
        let outside = Outside::new(&process.name, Arc::new(outpost), reception);
        let mut outside = outside.with_temporal(Arc::new(embassy));
        if let Some(history) = &self.history {
            outside = outside.with_archive(Arc::new(Desk {
                history: Arc::clone(history),
                process: Arc::clone(&process),
            }));
        }
        let outside = Arc::new(outside);
        self.endpoint.meet(&process, &outside);
        self.world.trace().note(&process.name, format_args!("starts"));
        let running = self.program.start(Surroundings {
            client: Client::new(line, NAMESPACE),
            wall: Arc::clone(self.world.wall()),
            identity: process.name.clone(),
            limits: self.scenario.limits.clone(),
            settings: self.scenario.settings,
            outside,
            forges: Arc::new(self.forge.clone()),
        });
        self.processes.push((process, running));
    }

    /// Somebody deletes the object of a kind that changed last, as kubectl does.
    fn delete_later(&self, after: Duration, group: &'static str, plural: &'static str) {
        let person = self.world.person("somebody");
        let store = self.world.store().clone();
        tokio::spawn(async move {
            sleep(after).await;
            let collection = if plural == "jobs" { jobs() } else { pods() };
            let all = objects(&store, &collection);
            let newest = all
                .iter()
                .filter(|object| !object.meta.deleting)
                .max_by_key(|object| object.revision);
            if let Some(object) = newest {
                let path = format!("{group}/namespaces/{NAMESPACE}/{plural}/{}", name(object));
                person
                    .delete(&path, &json!({"propagationPolicy": "Background"}))
                    .await;
            }
        });
    }
}

/// What people do, and the wait for the end.
struct Story<'a> {
    person: Person,
    store: Store,
    wire: Arc<Wire>,
    record: Record,
    checks: Checks,
    /// The runs as they were when somebody last looked, with their revisions: most looks find nothing new.
    seen: RefCell<BTreeMap<String, (u64, RunView)>>,
    simulation: &'a Simulation<'a>,
}

impl Story<'_> {
    async fn tell(&self) {
        for step in &self.simulation.scenario.steps {
            self.take(step).await;
            if self.is_over() {
                return;
            }
        }
        if self.come_to_rest().await && !self.is_over() {
            self.stay_quiet().await;
        }
    }

    async fn take(&self, step: &Step) {
        match step {
            Step::Create(plural, object) => {
                let version = object["apiVersion"].as_str().unwrap_or_default();
                let root = if version == "v1" { "api" } else { "apis" };
                let path = format!("/{root}/{version}/namespaces/{NAMESPACE}/{plural}");
                self.person.create(&path, object).await;
            }
            Step::Wait(time) => sleep(*time).await,
            Step::AwaitWork(run, attempt) => self.until(|| self.record.has_started(run, 0, *attempt)).await,
            Step::AwaitStepWork(run, step) => self.until(|| self.record.has_started(run, *step, 1)).await,
            Step::AwaitAccepted(run) => {
                self.until(|| self.run(run).is_some_and(|run| run.accepted)).await;
            }
            Step::AwaitRunning(run) => {
                let running = |run: RunView| run.phase.is_terminal() || run.phase == RunPhase::Running;
                self.until(|| self.run(run).is_some_and(running)).await;
            }
            Step::AwaitStopping(run) => {
                let stops = |run: RunView| run.phase.is_terminal() || run.phase == RunPhase::Cancelling;
                self.until(|| self.run(run).is_none_or(stops)).await;
            }
            Step::AwaitEnd(run) => {
                self.until(|| self.run(run).is_none_or(|run| run.phase.is_terminal()))
                    .await;
            }
            Step::AwaitGone(run) => self.until(|| self.run(run).is_none()).await,
            Step::Cancel(run) => {
                let patch = json!({"spec": {"cancel": true}});
                self.person.merge(&self.run_path(run), &patch).await;
            }
            Step::Change(run, patch) => self.person.merge(&self.run_path(run), patch).await,
            Step::AwaitJob(run) => self.await_job(run).await,
            Step::TakeJob(run) => {
                let no_hold = json!({"metadata": {"finalizers": null}});
                if let Some(path) = self.job_path(run) {
                    self.person.merge(&path, &no_hold).await;
                }
                self.delete_job(run).await;
            }
            Step::DeleteJob(run) => self.delete_job(run).await,
            Step::Mend(plural, name, patch) => {
                let path = format!("/api/v1/namespaces/{NAMESPACE}/{plural}/{name}");
                self.person.merge(&path, patch).await;
            }
            Step::Remove(plural, name) => {
                let path = format!("/api/v1/namespaces/{NAMESPACE}/{plural}/{name}");
                self.person.delete(&path, &json!({})).await;
            }
            Step::Approve(run, gate) => {
                self.until(|| self.digest(run, gate).is_some()).await;
                let digest = self.digest(run, gate).unwrap_or_default();
                let approval = json!({
                    "step": gate, "policy": "people", "decision": "Approved", "by": "bob", "digest": digest,
                    "at": "2026-03-01T12:00:00Z",
                });
                let path = format!("{}/status", self.run_path(run));
                let patch = json!({"status": {"approvals": [approval]}});
                self.person.merge(&path, &patch).await;
            }
            Step::Delete(run) => {
                let background = json!({"propagationPolicy": "Background"});
                self.person.delete(&self.run_path(run), &background).await;
            }
        }
    }

    /// Waits until a run has a Job. Nobody who looks from time to time would see it before the controllers have said so.
    async fn await_job(&self, run: &str) {
        let mut changes = self.store.follow();
        let comes = async {
            while self.job_path(run).is_none() {
                changes.next().await.expect("whoever waits keeps up");
            }
        };
        // What never comes is missed at the end.
        let _in_vain = timeout(STEP_PATIENCE, comes).await;
    }

    /// Deletes the Job that a run has made last.
    async fn delete_job(&self, run: &str) {
        if let Some(path) = self.job_path(run) {
            self.person
                .delete(&path, &json!({"propagationPolicy": "Background"}))
                .await;
        }
    }

    /// Where the Job is that a run has made last.
    fn job_path(&self, run: &str) -> Option<String> {
        let (_, run) = self.find(run)?;
        let all = objects(&self.store, &jobs());
        let own = |job: &&Object| job.meta.owners.iter().any(|owner| owner.uid == run.meta.uid);
        let job = all.iter().filter(own).max_by_key(|job| job.revision)?;
        Some(format!(
            "/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{}",
            name(job)
        ))
    }

    /// Waits until something is so. What never comes is missed at the end.
    async fn until(&self, holds: impl Fn() -> bool) {
        let begin = Instant::now();
        while !holds() && begin.elapsed() < STEP_PATIENCE && !self.is_over() {
            sleep(LOOK_EVERY).await;
        }
    }

    /// The run of this name. No scenario has two of them, of whatever kind.
    fn find(&self, name: &str) -> Option<(Collection, Object)> {
        let key = Key::new(NAMESPACE, name);
        let found = |kind: Collection| {
            let object = self.store.get(&kind, &key)?;
            Some((kind, object))
        };
        let kinds = all_runs().into_iter().chain([orchestration_runs()]);
        kinds.into_iter().find_map(found)
    }

    /// The digest of what a gate shows, if it waits for a decision.
    fn digest(&self, run: &str, gate: &str) -> Option<String> {
        let (_, object) = self.find(run)?;
        let run = object.value();
        let mut steps = run["status"]["stepStatuses"].as_array()?.iter();
        let step = steps.find(|step| step["name"] == gate)?;
        Some(step["waitsFor"]["digest"].as_str()?.to_owned())
    }

    fn run_path(&self, name: &str) -> String {
        let kind = match self.find(name) {
            Some((kind, _)) if kind == tool_runs() => {
                "tools.proompteng.ai/v1alpha1/namespaces/agents/toolruns"
            }
            Some((kind, _)) if kind == orchestration_runs() => {
                "orchestration.proompteng.ai/v1alpha1/namespaces/agents/orchestrationruns"
            }
            _ => "agents.proompteng.ai/v1alpha1/namespaces/agents/agentruns",
        };
        format!("/apis/{kind}/{name}")
    }

    fn run(&self, name: &str) -> Option<RunView> {
        let (_, object) = self.find(name)?;
        let mut seen = self.seen.borrow_mut();
        if let Some((revision, view)) = seen.get(name)
            && *revision == object.revision
        {
            return Some(view.clone());
        }
        let view = RunView::of(&object);
        seen.insert(name.to_owned(), (object.revision, view.clone()));
        Some(view)
    }

    /// Waits until nothing happens any more; says whether that came to be.
    async fn come_to_rest(&self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE && !self.is_over() {
            let busy = self.checks.last_change().max(self.wire.last_write()).max(begin);
            let calm = if self.wrong_ends().is_empty() {
                CALM
            } else {
                CALM_STUCK
            };
            let left = calm.saturating_sub(busy.elapsed());
            if left.is_zero() && !self.record.all().iter().any(Work::is_running) {
                return true;
            }
            sleep(left.clamp(LOOK_EVERY, REST_LOOK_EVERY)).await;
        }
        self.violation("the world does not come to rest".to_owned());
        false
    }

    async fn stay_quiet(&self) {
        let writes = self.wire.writes();
        sleep(self.simulation.quiet).await;
        let more = self.wire.writes() - writes;
        if more > 0 {
            self.violation(format!("{more} writes although nothing changes any more"));
        }
    }

    /// Whether there is no point in going on.
    fn is_over(&self) -> bool {
        let writes = self.wire.writes();
        if writes > WRITES_MAX {
            self.violation(format!("{writes} writes, and no end of them"));
        }
        self.checks.violations.any()
    }

    fn violation(&self, what: String) {
        // Whatever was found before tells more than that it took too long.
        if !self.checks.violations.any() {
            self.checks.violations.add(self.person.trace(), [what]);
        }
    }

    fn report(&self, world: &World) -> Report {
        let works = self.record.all();
        let violations = &self.checks.violations;
        if !violations.any() {
            violations.add(
                world.trace(),
                rest::broken(&self.store, &works, !self.simulation.plan.keeps_the_clock()),
            );
            violations.add(world.trace(), self.wrong_ends());
        }
        if world.trace().is_full() {
            violations.add(world.trace(), ["more happens than a trace can hold".to_owned()]);
        }
        Report {
            violations: violations.all(),
            writes: self.wire.writes(),
            end: self.checks.end_state(&self.store),
            works,
            waits: self.checks.waits(),
            reasons: self.checks.reasons(),
            trace: world.trace().take(),
        }
    }

    /// The runs that did not end as the scenario says; if something left its mark on them, those that did not end.
    fn wrong_ends(&self) -> Vec<String> {
        let marked = self.simulation.leaves_a_mark();
        let mut found = Vec::new();
        for (name, end) in &self.simulation.scenario.ends {
            let is = self.run(name).map_or(End::Gone, |run| End::Phase(run.phase));
            let fine = match (&is, end) {
                (is, end) if is == end => true,
                (End::Phase(is), End::Phase(end)) => marked && is.is_terminal() == end.is_terminal(),
                (End::Gone, End::Phase(_)) | (_, End::Gone) => false,
            };
            if !fine {
                let word = |end: &End| match end {
                    End::Gone => "gone".to_owned(),
                    End::Phase(phase) => RunPhase::as_str(phase).to_owned(),
                };
                found.push(format!(
                    "run {name} should be {}, and is {}",
                    word(end),
                    word(&is)
                ));
            }
        }
        found
    }
}

fn name(object: &Object) -> String {
    let value = object.value();
    value["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
