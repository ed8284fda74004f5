//! `plan`: what a manifest would do. The engine is asked as the controllers ask it, about a run that does not exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use jangar_api::{
    Kind,
    agents::{
        agent::Agent,
        agent_run::{AgentRun, AgentRunStatus},
    },
    condition::{CommonStatus, ConditionType},
    orchestration::{Orchestration, orchestration_run::OrchestrationRun},
    phase::RunPhase,
    tools::{ToolRun, ToolRunStatus},
};
use jangar_engine::{
    agent_run::{self, References},
    custom::call::Outside,
    decision::{Decision, Effect, Key, Keys, Question, Sight, TokenSight},
    orchestration,
    queue::Answer,
    settings::Settings,
    tool_run,
};
use jiff::{Timestamp, ToSpan as _};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{render, world::World};
use crate::{
    cli::PlanArgs,
    error::{self, Error},
    manifest::{Document, Manifests},
    session::Session,
};

/// Stands for the image that the controllers of a cluster are configured with.
pub(super) const PLACEHOLDER_IMAGE: &str = "image-of-the-controllers";
/// More questions than any run has.
const ROUNDS_MAX: usize = 32;
/// What a run that does not exist is known by.
const UID: &str = "00000000-0000-0000-0000-000000000000";

/// What one document would do.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Planned {
    pub subject: String,
    /// In a few words: would start, would wait, would fail.
    pub verdict: String,
    pub is_refused: bool,
    /// Names of Secrets that its pod needs.
    pub secrets: BTreeSet<String>,
    pub gates: Vec<String>,
    pub limits: Vec<String>,
    /// The steps in the order in which they may start, each with what it waits for.
    pub steps: Vec<String>,
    pub notes: Vec<String>,
    /// What would be made first.
    pub makes: Vec<Value>,
}

pub async fn plan(session: &mut Session, arguments: &PlanArgs) -> Result<(), Error> {
    let documents = Manifests::read(&arguments.files.all()).whole()?;
    let transport = if arguments.offline {
        None
    } else {
        Some(session.connect().await?)
    };
    let variables = session
        .environment
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut settings = Settings::from_vars(variables)
        .map_err(|mistakes| Error::Validation(mistakes.to_string()))?
        .settings;
    let has_image = settings.runner.image.is_some();
    settings
        .runner
        .image
        .get_or_insert_with(|| PLACEHOLDER_IMAGE.to_owned());
    let world = World {
        documents: &documents,
        transport: transport.as_ref(),
        namespace: session.namespace(),
    };
    let planner = Planner {
        world,
        settings,
        has_image,
        now: session.clock.now(),
    };
    let mut all = Vec::new();
    for document in &documents {
        if let Some(planned) = planner.document(document).await? {
            all.push(planned);
        }
    }
    if all.is_empty() {
        return Err(Error::Validation(
            "none of the documents does anything by itself: give an AgentRun, a ToolRun, an Orchestration or an OrchestrationRun"
                .to_owned(),
        ));
    }
    render::show(session, &all)?;
    if all.iter().any(|planned| planned.is_refused) {
        return Err(Error::Silent(error::VALIDATION));
    }
    Ok(())
}

struct Planner<'a> {
    world: World<'a>,
    settings: Settings,
    has_image: bool,
    now: Timestamp,
}

impl Planner<'_> {
    async fn document(&self, document: &Document) -> Result<Option<Planned>, Error> {
        let subject = format!("{} {}", document.text("/kind"), document.name());
        let planned = match document.kind() {
            Some(Kind::AgentRun) => match self.accepted::<AgentRun>(document) {
                Ok(run) => self.agent_run(Arc::new(run)).await?,
                Err(refused) => *refused,
            },
            Some(Kind::ToolRun) => match self.accepted::<ToolRun>(document) {
                Ok(run) => self.tool_run(Arc::new(run)).await?,
                Err(refused) => *refused,
            },
            Some(Kind::Orchestration) => match self.accepted::<Orchestration>(document) {
                Ok(orchestration) => graph(&orchestration),
                Err(refused) => *refused,
            },
            Some(Kind::OrchestrationRun) => match self.accepted::<OrchestrationRun>(document) {
                Ok(run) => self.orchestration_run(&run).await?,
                Err(refused) => *refused,
            },
            _ => return Ok(None),
        };
        Ok(Some(Planned { subject, ..planned }))
    }

    /// The document as an API server would give it back, or what is wrong with it.
    fn accepted<K: DeserializeOwned>(&self, document: &Document) -> Result<K, Box<Planned>> {
        let mut value = document.value.clone();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("uid".to_owned(), json!(UID));
            metadata.insert("generation".to_owned(), json!(1));
            metadata.insert("creationTimestamp".to_owned(), json!(self.now.to_string()));
            metadata
                .entry("namespace")
                .or_insert_with(|| json!(self.world.namespace));
        }
        if let Some(map) = value.as_object_mut() {
            map.remove("status");
        }
        let wrong = document
            .kind()
            .map_or_else(Vec::new, |kind| super::schema::mistakes(kind, &document.value));
        if !wrong.is_empty() {
            return Err(Box::new(refused(format!(
                "the API server would refuse it: {}",
                wrong.join("; ")
            ))));
        }
        serde_json::from_value(value)
            .map_err(|error| Box::new(refused(format!("it cannot be read: {error}"))))
    }

    async fn references(&self, run: &AgentRun) -> Result<References, Error> {
        let agent: Sight<Agent> = self.world.sight(Kind::Agent, &run.spec.agent_ref.name).await?;
        let provider = match agent.seen() {
            Some(agent) => Some(
                self.world
                    .sight(Kind::AgentProvider, &agent.spec.provider_ref.name)
                    .await?,
            ),
            None => None,
        };
        let steps = run.spec.workflow.iter().flat_map(|workflow| &workflow.steps);
        let named = run
            .spec
            .implementation_spec_ref
            .iter()
            .chain(steps.filter_map(|step| step.implementation_spec_ref.as_ref()));
        let mut implementations = BTreeMap::new();
        for reference in named {
            let sight = self
                .world
                .sight(Kind::ImplementationSpec, &reference.name)
                .await?;
            implementations.insert(reference.name.clone(), sight);
        }
        let memory = run
            .spec
            .memory_ref
            .as_ref()
            .or_else(|| agent.seen().and_then(|agent| agent.spec.memory_ref.as_ref()));
        let memory = match memory {
            Some(memory) => Some(self.world.sight(Kind::Memory, &memory.name).await?),
            None => None,
        };
        let mut references = References {
            agent,
            provider,
            implementations,
            memory,
            vcs: BTreeMap::new(),
        };
        for name in agent_run::providers_needed(run, &references) {
            let sight = self.world.sight(Kind::VersionControlProvider, &name).await?;
            references.vcs.insert(name, sight);
        }
        Ok(references)
    }

    async fn agent_run(&self, run: Arc<AgentRun>) -> Result<Planned, Error> {
        let mut observed = agent_run::Observed {
            key: key(run.metadata.namespace.as_deref(), run.metadata.name.as_deref()),
            references: self.references(&run).await?,
            run: Some(Arc::clone(&run)),
            jobs: BTreeMap::new(),
            live_jobs: BTreeSet::new(),
            departed: BTreeMap::new(),
            lost_pods: BTreeSet::new(),
            pods: BTreeMap::new(),
            keys: BTreeMap::new(),
            refusal: None,
            occupant: None,
            cancel_above: None,
            busy: false,
            admission: None,
            outside: Outside {
                process: "agentctl".to_owned(),
                ..Outside::default()
            },
            branch_rivals: BTreeMap::new(),
            tokens: BTreeMap::new(),
        };
        for _ in 0..ROUNDS_MAX {
            match agent_run::plan(&observed, &self.settings, self.now) {
                Decision::Look(questions) => {
                    for question in questions {
                        self.answer(&mut observed, question);
                    }
                }
                Decision::Act(plan) => {
                    if self.prepared(&mut observed, &plan.effects, plan.status.as_ref()) {
                        continue;
                    }
                    let mut planned = told(
                        &plan.effects,
                        plan.status
                            .as_ref()
                            .map(|status| (&status.common, status.phase.as_ref())),
                    );
                    planned.limits = self.limits(&run);
                    if !self.has_image
                        && run
                            .spec
                            .workload
                            .as_ref()
                            .is_none_or(|workload| workload.image.is_none())
                    {
                        planned.notes.push(format!(
                            "the run names no image: {PLACEHOLDER_IMAGE} stands for the one that the controllers are configured with"
                        ));
                    }
                    return Ok(planned);
                }
            }
        }
        Err(Error::Unknown("the plan does not come to an end".to_owned()))
    }

    /// What a plan does before anything starts is taken as done: a finalizer is set, a token is made, the run is accepted.
    fn prepared(
        &self,
        observed: &mut agent_run::Observed,
        effects: &[Effect],
        status: Option<&AgentRunStatus>,
    ) -> bool {
        let Some(run) = observed.run.clone() else {
            return false;
        };
        let mut next = (*run).clone();
        let mut prepared = false;
        for effect in effects {
            match effect {
                Effect::SetFinalizers { finalizers, .. } => {
                    next.metadata.finalizers = Some(finalizers.clone());
                    prepared = true;
                }
                Effect::MintToken(token) => {
                    let name = token.secret.metadata.name.clone().unwrap_or_default();
                    let expires_at = self.now.saturating_add(1.hour()).unwrap_or(self.now);
                    observed.tokens.insert(name, TokenSight::Ready { expires_at });
                    prepared = true;
                }
                _ => return false,
            }
        }
        if prepared && let Some(status) = status {
            next.status = Some(status.clone());
        }
        observed.run = Some(Arc::new(next));
        prepared
    }

    /// Nothing of the run exists, the queue lets it in, and Secrets are not looked into.
    fn answer(&self, observed: &mut agent_run::Observed, question: Question) {
        match question {
            Question::Job(name) => {
                observed.live_jobs.insert(name);
            }
            Question::Keys(holder) => {
                observed.keys.insert(holder, Keys::Forbidden);
            }
            Question::Slot { .. } => observed.admission = Some(Answer::Granted { at: self.now }),
            Question::Agent(_) => observed.references.agent = Sight::Absent,
            Question::AgentProvider(_) => observed.references.provider = Some(Sight::Absent),
            Question::ImplementationSpec(name) => {
                observed.references.implementations.insert(name, Sight::Absent);
            }
            Question::Memory(_) => observed.references.memory = Some(Sight::Absent),
            Question::VersionControlProvider(name) => {
                observed.references.vcs.insert(name, Sight::Absent);
            }
            // A run that has no Job asks for none of these.
            Question::PodsOf(_)
            | Question::Delivery(_)
            | Question::Orchestration(_)
            | Question::ApprovalPolicy(_)
            | Question::Child(..)
            | Question::Signal(_)
            | Question::Tool(_) => {}
        }
    }

    async fn tool_run(&self, run: Arc<ToolRun>) -> Result<Planned, Error> {
        let mut observed = tool_run::Observed {
            key: key(run.metadata.namespace.as_deref(), run.metadata.name.as_deref()),
            tool: self.world.sight(Kind::Tool, &run.spec.tool_ref.name).await?,
            run: Some(run),
            jobs: BTreeMap::new(),
            live_jobs: BTreeSet::new(),
            departed: BTreeMap::new(),
            lost_pods: BTreeSet::new(),
            pods: BTreeMap::new(),
            refusal: None,
            occupant: None,
            cancel_above: None,
            busy: false,
        };
        for _ in 0..ROUNDS_MAX {
            match tool_run::plan(&observed, &self.settings, self.now) {
                Decision::Look(questions) => {
                    for question in questions {
                        match question {
                            Question::Job(name) => {
                                observed.live_jobs.insert(name);
                            }
                            Question::Tool(_) => observed.tool = Sight::Absent,
                            _ => {}
                        }
                    }
                }
                Decision::Act(plan) => {
                    let status: Option<&ToolRunStatus> = plan.status.as_ref();
                    let mut planned = told(
                        &plan.effects,
                        status.map(|status| (&status.common, status.phase.as_ref())),
                    );
                    planned
                        .limits
                        .push("ToolRuns take no slot of the queue".to_owned());
                    return Ok(planned);
                }
            }
        }
        Err(Error::Unknown("the plan does not come to an end".to_owned()))
    }

    async fn orchestration_run(&self, run: &OrchestrationRun) -> Result<Planned, Error> {
        let name = &run.spec.orchestration_ref.name;
        Ok(
            match self
                .world
                .sight::<Orchestration>(Kind::Orchestration, name)
                .await?
            {
                Sight::Seen(orchestration) => graph(&orchestration),
                Sight::Illegible(words) => refused(format!("Orchestration {name} cannot be read: {words}")),
                Sight::Absent | Sight::Unseen => Planned {
                    verdict: format!(
                        "would wait: there is no Orchestration {name}, and without it the run fails after a while"
                    ),
                    gates: vec![format!("MissingOrchestration: create Orchestration {name}")],
                    ..Planned::default()
                },
            },
        )
    }

    fn limits(&self, run: &AgentRun) -> Vec<String> {
        let limits = &self.settings.limits;
        let mut told = vec![format!(
            "at once: {} runs of Agent {}, {} of the namespace, {} of the cluster",
            limits.concurrency.agent,
            run.spec.agent_ref.name,
            limits.concurrency.namespace,
            limits.concurrency.cluster
        )];
        told.push(format!("priority {} in the queue", run.spec.priority.get()));
        if let Some(retention) = self.settings.runs.retention {
            told.push(format!(
                "kept for {} after its end",
                crate::clock::short(i64::try_from(retention.as_secs()).unwrap_or(i64::MAX))
            ));
        }
        told
    }
}

fn key(namespace: Option<&str>, name: Option<&str>) -> Key {
    Key {
        namespace: namespace.unwrap_or_default().to_owned(),
        name: name.unwrap_or_default().to_owned(),
    }
}

fn refused(verdict: String) -> Planned {
    Planned {
        verdict,
        is_refused: true,
        ..Planned::default()
    }
}

/// What a plan for a new run comes to.
fn told(effects: &[Effect], status: Option<(&CommonStatus, Option<&RunPhase>)>) -> Planned {
    let mut planned = Planned::default();
    for effect in effects {
        planned.makes.extend(made(effect));
    }
    for object in &planned.makes {
        render::secrets(object, &mut planned.secrets);
    }
    let condition = |type_: &ConditionType| {
        status
            .and_then(|(common, _)| common.condition(type_))
            .filter(|condition| condition.status.as_str() == "True")
    };
    if let Some(blocked) = condition(&ConditionType::Blocked) {
        planned
            .gates
            .push(format!("{}: {}", blocked.reason.as_str(), blocked.message));
    }
    let phase = status.and_then(|(_, phase)| phase);
    planned.verdict = match (phase, condition(&ConditionType::Failed), planned.gates.first()) {
        (Some(RunPhase::Failed), Some(failed), _) => {
            planned.is_refused = true;
            format!(
                "would fail at once, {}: {}",
                failed.reason.as_str(),
                failed.message
            )
        }
        (_, _, Some(_)) => "would wait".to_owned(),
        _ if planned.makes.is_empty() => "would be accepted".to_owned(),
        _ => "would start".to_owned(),
    };
    planned
}

/// What an effect makes, as an object that people know.
fn made(effect: &Effect) -> Option<Value> {
    match effect {
        Effect::CreateJob(new) => {
            let mut job = serde_json::to_value(&new.job).ok()?;
            if let Some(spec) = job
                .pointer_mut("/spec/template/spec")
                .and_then(Value::as_object_mut)
            {
                for (field, value) in &new.pod_fields {
                    spec.insert((*field).to_owned(), value.clone());
                }
            }
            Some(job)
        }
        Effect::CreateConfigMap(map) => serde_json::to_value(map.as_ref()).ok(),
        Effect::PostCustom(_) | Effect::CallTemporal(_) => serde_json::to_value(effect).ok(),
        _ => None,
    }
}

/// The steps of an orchestration in the order in which they may start.
fn graph(orchestration: &Orchestration) -> Planned {
    let name = orchestration.metadata.name.as_deref().unwrap_or_default();
    let graph = match orchestration::read_named(name, &orchestration.spec) {
        Ok(graph) => graph,
        Err(mistakes) => return refused(format!("no run of it would start: {mistakes}")),
    };
    let mut planned = Planned {
        verdict: format!("a run of it has {} steps", graph.len()),
        ..Planned::default()
    };
    for (number, (_, node)) in graph.in_order().enumerate() {
        let after: Vec<&str> = node.dependencies.iter().map(|step| graph.name(*step)).collect();
        let after = match after.as_slice() {
            [] => "at once".to_owned(),
            names => format!("after {}", names.join(", ")),
        };
        let mut words = format!(
            "{}. {} ({}), {after}",
            number + 1,
            node.name,
            node.work.kind().as_str()
        );
        if node.attempts > 1 {
            // Writing to a String cannot fail, here and below.
            let _ = write!(words, ", up to {} attempts", node.attempts);
        }
        if let Some(timeout) = node.timeout {
            let _ = write!(words, ", {} s each", timeout.as_secs());
        }
        if let Some(when) = &node.step.when {
            let _ = write!(words, ", only when {when}");
        }
        if node.continue_on_failure {
            words.push_str(", its failure is only recorded");
        }
        planned.steps.push(words);
        match &node.work {
            orchestration::work::Work::ApprovalGate { policy } => {
                planned.gates.push(format!(
                    "{} waits for an approval under ApprovalPolicy {policy}",
                    node.name
                ));
            }
            orchestration::work::Work::SignalWait { signal, .. } => planned.gates.push(format!(
                "{} waits for signal {}",
                node.name,
                signal.as_deref().unwrap_or("with its delivery id")
            )),
            _ => {}
        }
    }
    planned
}
