//! Chains: how long it takes from the end of one pod to the creation of the next.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, FuturesUnordered},
};
use jangar_bench::{
    hops::Lives,
    results::{Measure, Results, Subject},
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    engine::{Chained, Engine},
    jobs::{Jobs, pod_spec},
    place::{Place, Stage},
    watch::{Change, changes, has_ended},
};

/// A chain of steps without work takes ten seconds a step at the very most; this is for a busy machine.
const LIMIT: Duration = Duration::from_mins(10);

/// What the bare loop creates, and waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    Pod,
    Job,
}

impl Link {
    fn subject(self) -> Subject {
        match self {
            Self::Pod => Subject::Pods,
            Self::Job => Subject::Jobs,
        }
    }
}

/// What the loop sees.
enum Seen {
    Pod(Change<Pod>),
    Job(Change<Job>),
}

/// The floor: creates the next object as soon as a watch shows the end of the last one.
pub(crate) async fn floor(place: &Place, link: Link, steps: u32, results: &mut Results) -> Result<()> {
    let stage = place.open_empty("floor").await?;
    let lives = tokio::time::timeout(LIMIT, chain_of(&stage, link, steps)).await;
    let lives = lives.with_context(|| format!("a chain of {steps} took more than {LIMIT:?}"))??;
    tell(link.subject(), &lives.hops(), results);
    stage.close(None).await
}

async fn chain_of(stage: &Stage<'_>, link: Link, steps: u32) -> Result<Lives> {
    let pods = changes(stage.api::<Pod>(), None).await?.map(Seen::Pod);
    let jobs = changes(stage.api::<Job>(), None).await?.map(Seen::Job);
    let mut seen = stream::select(pods, jobs);
    let mut lives = Lives::default();
    let mut made = 1;
    // The watch goes on meanwhile: a pod may be seen before the answer to the one who created it.
    let mut creating = FuturesUnordered::from_iter([create(stage, link, made)]);
    while lives.ended() < steps as usize {
        let seen = tokio::select! {
            Some(created) = creating.next() => { created?; continue }
            seen = seen.next() => seen.context("the watch ended")?,
        };
        let next = match (seen, link) {
            (Seen::Pod(pod), Link::Pod) => see(&mut lives, &pod),
            (Seen::Pod(pod), Link::Job) => {
                see(&mut lives, &pod);
                false
            }
            // A Job says more than once that it has ended.
            (Seen::Job(job), Link::Job) => is_complete(&job.object) && job.object.name_any() == name(made),
            (Seen::Job(_), Link::Pod) => false,
        };
        if next && made < steps {
            made += 1;
            creating.push(create(stage, link, made));
        }
    }
    Ok(lives)
}

fn see(lives: &mut Lives, pod: &Change<Pod>) -> bool {
    lives.see(&pod.object.name_any(), has_ended(&pod.object), pod.at)
}

fn name(number: u32) -> String {
    format!("link-{number}")
}

async fn create(stage: &Stage<'_>, link: Link, number: u32) -> Result<()> {
    let name = name(number);
    let object = match link {
        Link::Pod => {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec()})
        }
        Link::Job => Jobs.run(&name),
    };
    stage.create(&object).await
}

fn is_complete(job: &Job) -> bool {
    let conditions = job
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|each| each.type_ == "Complete" && each.status == "True")
}

/// Runs of steps, one after the other.
pub(crate) async fn measure(
    place: &Place,
    engine: &dyn Chained,
    steps: u32,
    chains: u32,
    results: &mut Results,
) -> Result<()> {
    let stage = place.open(engine).await?;
    let controller = stage.start(engine).await?;
    let stage_of_all = &stage;
    // The first one shows that the controller is up, and does not count.
    chain_on(&stage, engine, "warm-up", 1).await?;
    let lives: Vec<Lives> = stream::iter(0..chains)
        .map(|number| async move { chain_on(stage_of_all, engine, &format!("chain-{number}"), steps).await })
        .buffer_unordered(engine.chains_at_once())
        .try_collect()
        .await?;
    for each in lives {
        let hops = each.hops();
        ensure!(
            hops.len() + 1 == steps as usize,
            "{} hops of {steps} steps",
            hops.len()
        );
        tell(engine.subject(), &hops, results);
    }
    stage.close(controller).await
}

async fn chain_on(stage: &Stage<'_>, engine: &dyn Chained, name: &str, steps: u32) -> Result<Lives> {
    let mut pods = changes(stage.api::<Pod>(), Some(engine.label())).await?;
    for object in engine.chain(name, steps) {
        stage.create(&object).await?;
    }
    let mut lives = Lives::default();
    let begun = Instant::now();
    while lives.ended() < steps as usize {
        let left = LIMIT.saturating_sub(begun.elapsed());
        let change = tokio::time::timeout(left, pods.next()).await;
        let change = change.with_context(|| format!("{name} took more than {LIMIT:?}"))?;
        let change = change.context("the watch ended")?;
        if engine.owns(&change.object, name) {
            see(&mut lives, &change);
        }
    }
    Ok(lives)
}

fn tell(subject: Subject, hops: &[f64], results: &mut Results) {
    let shown: Vec<_> = hops.iter().map(|hop| format!("{hop:.3}")).collect();
    println!("hop, {}: {}", subject.label(), shown.join(" "));
    results.add(Measure::Hop, subject, hops.iter().copied());
}
