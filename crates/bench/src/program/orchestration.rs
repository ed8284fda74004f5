//! Graphs: an OrchestrationRun of Jangar whose steps are AgentRuns, and the same graph as a DAG of Argo's.
//!
//! Every node waits for the whole layer before it, so a graph is as slow as its slowest hop in every layer; where layers are wider
//! than ten, for five of its neighbours there.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use jangar_api::{labels, orchestration::orchestration_run::OrchestrationRun};
use jangar_bench::results::{Measure, Results, Subject};
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    cancel,
    controller::Program,
    engine::{Chained, Ended, Engine, Graphed, ended_by_phase, lasting_node_selector},
    jangar::{Jangar, Profile},
    place::{Place, Stage},
    runs::per_run,
    watch::{changes, phase},
};

const VERSION: &str = "orchestration.proompteng.ai/v1alpha1";
/// The graph of one step that one-step runs refer to.
const ONE_STEP: &str = "one-step";
/// A thousand pods take two minutes on two cores; this is for a busy machine.
const LIMIT: Duration = Duration::from_mins(15);

/// Jangar again, with its runs inside OrchestrationRuns.
#[derive(Debug)]
pub(crate) struct Orchestrated {
    jangar: Jangar,
}

impl Orchestrated {
    pub(crate) fn new(jangar: Jangar) -> Self {
        Self { jangar }
    }

    /// A graph, and the run of it, both by this name.
    fn definition_and_run(name: &str, steps: &[Value]) -> Vec<Value> {
        vec![definition(name, steps), run_of(name, name)]
    }
}

fn definition(name: &str, steps: &[Value]) -> Value {
    json!({"apiVersion": VERSION, "kind": "Orchestration", "metadata": {"name": name}, "spec": {"steps": steps}})
}

fn run_of(name: &str, orchestration: &str) -> Value {
    json!({
        "apiVersion": VERSION, "kind": "OrchestrationRun", "metadata": {"name": name},
        "spec": {"orchestrationRef": {"name": orchestration}},
    })
}

fn step(name: &str, depends_on: &[String], runtime: &Value) -> Value {
    json!({
        "name": name, "kind": "AgentRun", "dependsOn": depends_on,
        "agentRef": {"name": "measured-0"}, "implementation": {"inline": {"text": "Be measured."}},
        "runtime": runtime,
    })
}

fn node(layer: u32, number: u32) -> String {
    format!("n{layer}-{number}")
}

/// The widest layer that every node of the next one needs whole. A thousand nodes that each need fifty do not fit into one object
/// with what becomes of them: their names alone have half a mebibyte.
const WHOLE_MAX: u32 = 10;
/// How many nodes of a wider layer each one of the next needs.
const NEIGHBOURS: u32 = 5;

/// Every node of a graph with those of the layer before it that it needs: the whole layer, or some
/// neighbours if it is wide.
pub(crate) fn nodes(layers: u32, width: u32) -> impl Iterator<Item = (String, Vec<String>)> {
    let needed = if width > WHOLE_MAX { NEIGHBOURS } else { width };
    (0..layers).flat_map(move |layer| {
        (0..width).map(move |number| {
            let before = layer
                .checked_sub(1)
                .into_iter()
                .flat_map(|before| (0..needed).map(move |place| node(before, (number + place) % width)));
            (node(layer, number), before.collect())
        })
    })
}

impl Engine for Orchestrated {
    fn subject(&self) -> Subject {
        match self.jangar.profile() {
            Profile::Shipped => Subject::Orchestrated,
            Profile::Tuned => Subject::OrchestratedTuned,
        }
    }

    fn furniture(&self) -> Vec<Value> {
        let one_step = definition(ONE_STEP, &[step("only", &[], &json!({"type": "job"}))]);
        let mut furniture = self.jangar.furniture();
        furniture.push(one_step);
        furniture
    }

    fn program(&self, namespace: &str) -> Option<Program> {
        self.jangar.program(namespace)
    }

    fn kind(&self) -> ApiResource {
        ApiResource::erase::<OrchestrationRun>(&())
    }

    fn run(&self, name: &str) -> Value {
        run_of(name, ONE_STEP)
    }

    fn ended(&self, run: &DynamicObject) -> Option<Ended> {
        ended_by_phase(run, "Succeeded", &["Failed", "Cancelled"])
    }
}

impl Chained for Orchestrated {
    fn chain(&self, name: &str, steps: u32) -> Vec<Value> {
        self.graph(name, steps, 1)
    }

    fn label(&self) -> &'static str {
        labels::AGENT_RUN
    }

    /// The pods are those of its children, whose names begin with its own.
    fn owns(&self, pod: &Pod, run: &str) -> bool {
        let child = pod.labels().get(self.label());
        child.is_some_and(|child| child.starts_with(&format!("{run}-")))
    }
}

impl Graphed for Orchestrated {
    fn graph(&self, name: &str, layers: u32, width: u32) -> Vec<Value> {
        let runtime = json!({"type": "job"});
        let steps: Vec<_> = nodes(layers, width)
            .map(|(node, before)| step(&node, &before, &runtime))
            .collect();
        Self::definition_and_run(name, &steps)
    }
}

/// One graph of so many layers.
pub(crate) async fn graph(
    place: &Place,
    engine: &dyn Graphed,
    (layers, width): (u32, u32),
    results: &mut Results,
) -> Result<()> {
    let stage = place.open(engine).await?;
    let controller = stage.start(engine).await?.context("a graph needs a controller")?;
    // The first one shows that the controller is up, and does not count.
    until_ended(&stage, engine, "warm-up", (1, 1)).await?;
    controller.quiet().await?;
    let before = controller.processor_time()?;
    let mut written = stage.count_writes()?;
    let (took, bytes) = until_ended(&stage, engine, "graph", (layers, width)).await?;
    stage.released().await?;
    controller.quiet().await?;
    let nodes = layers * width;
    let busy = controller.processor_time()?.saturating_sub(before);
    let per_node = 1e3 * busy.as_secs_f64() / f64::from(nodes);
    let written = written.settle().await?;
    let writes = per_run(written.without_events(), nodes);
    let events = per_run(written.events(), nodes);
    let subject = engine.subject();
    println!(
        "{}: {nodes} nodes in {layers} layers: {:.1} s, {per_node:.1} ms of processor time, {writes:.2} writes and {events:.2} \
         Events per node, {bytes} bytes at the end",
        subject.label(),
        took.as_secs_f64()
    );
    results.add(Measure::GraphWritesPerNode { layers, width }, subject, [writes]);
    results.add(Measure::GraphEventsPerNode { layers, width }, subject, [events]);
    results.add(Measure::Graph { layers, width }, subject, [took.as_secs_f64()]);
    results.add(
        Measure::GraphProcessorTimePerNode { layers, width },
        subject,
        [per_node],
    );
    results.add(
        Measure::GraphSize { layers, width },
        subject,
        [f64::from(u32::try_from(bytes)?) / 1024.0],
    );
    stage.close(Some(controller)).await
}

/// How long a graph took, and how large its run was at the end.
async fn until_ended(
    stage: &Stage<'_>,
    engine: &dyn Graphed,
    name: &str,
    (layers, width): (u32, u32),
) -> Result<(Duration, usize)> {
    let mut runs = changes(stage.api_of(&engine.kind()), None).await?;
    let begun = Instant::now();
    for object in engine.graph(name, layers, width) {
        stage.create(&object).await?;
    }
    let ended = async {
        loop {
            let change = runs.next().await.context("the watch ended")?;
            if change.object.name_any() != name {
                continue;
            }
            match engine.ended(&change.object) {
                None => {}
                Some(Ended::Well) => {
                    let bytes = serde_json::to_vec(&change.object)?.len();
                    return anyhow::Ok((change.at - begun, bytes));
                }
                Some(Ended::Badly(why)) => bail!("{name} did not end well: {why}"),
            }
        }
    };
    let ended = tokio::time::timeout(LIMIT, ended).await;
    ended.with_context(|| format!("{name} took more than {LIMIT:?}"))?
}

/// A run with so many children at work is cancelled: how long until the API server has got the last deletion of their Jobs, and
/// until a watch shows it.
pub(crate) async fn cancel_children(
    place: &Place,
    engine: &Orchestrated,
    children: u32,
    results: &mut Results,
) -> Result<()> {
    cancel::add_node(place).await?;
    let stage = place.open(engine).await?;
    let controller = stage.start(engine).await?.context("Jangar has a controller")?;
    let mut written = stage.count_writes()?;
    let played = tokio::time::timeout(LIMIT, deletions(&stage, engine, children)).await;
    let (asked, seen) = played.with_context(|| format!("a cancel was not over within {LIMIT:?}"))??;
    let issued = written.settle().await?.last("delete", "jobs");
    let issued = issued
        .context("the controller deletes Jobs")?
        .duration_since(asked);
    let (subject, issued) = (engine.subject(), issued.as_secs_f64());
    println!(
        "{}: cancel of a run with {children} children: the last deletion was issued {issued:.3} s after the request, \
         and seen after {seen:.3} s",
        subject.label()
    );
    results.add(Measure::CancelUntilAsked { children }, subject, [issued]);
    results.add(Measure::CancelUntilDeleted { children }, subject, [seen]);
    stage.close(Some(controller)).await?;
    cancel::remove_node(place).await
}

/// When the cancel was asked for, and how many seconds later the last Job was seen to be deleted.
async fn deletions(stage: &Stage<'_>, engine: &Orchestrated, children: u32) -> Result<(Timestamp, f64)> {
    let runtime = json!({"type": "job", "config": {"nodeSelector": lasting_node_selector()}});
    let steps: Vec<_> = nodes(1, children)
        .map(|(node, before)| step(&node, &before, &runtime))
        .collect();
    let mut pods = changes(stage.api::<Pod>(), Some(labels::AGENT_RUN)).await?;
    for object in Orchestrated::definition_and_run("lasting", &steps) {
        stage.create(&object).await?;
    }
    let mut running = BTreeSet::new();
    while running.len() < children as usize {
        let change = pods.next().await.context("the watch ended")?;
        if phase(&change.object) == "Running" {
            running.insert(change.object.name_any());
        }
    }
    let mut jobs = changes(stage.api::<Job>(), Some(labels::AGENT_RUN)).await?;
    let (asked_at, asked) = (Timestamp::now(), Instant::now());
    let request = Patch::Merge(json!({"spec": {"cancel": true}}));
    stage
        .api_of(&engine.kind())
        .patch("lasting", &PatchParams::default(), &request)
        .await?;
    let mut deleted = BTreeSet::new();
    loop {
        let change = jobs.next().await.context("the watch ended")?;
        if change.is_gone || change.object.metadata.deletion_timestamp.is_some() {
            deleted.insert(change.object.name_any());
        }
        if deleted.len() == children as usize {
            return Ok((asked_at, (change.at - asked).as_secs_f64()));
        }
    }
}
