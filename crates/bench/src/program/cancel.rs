//! A cancel of many running pods: when they are gone, and whether the runs say so before it is true.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use jangar_bench::{
    cancel::{Moment, Watched},
    results::{Measure, Results},
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    engine::{Cancellable, LASTING},
    place::{Place, Stage},
    watch::{Change, Changes, changes, has_ended, phase},
};

/// How many requests are made at once.
const REQUESTERS: usize = 16;
const LIMIT: Duration = Duration::from_mins(5);
const NODE: &str = "fake-lasting";

/// A node for pods that last.
pub(crate) async fn add_node(place: &Place) -> Result<()> {
    let capacity = json!({"cpu": "128", "memory": "1Ti", "pods": "2000"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": NODE,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"jangar.test/node": "fake", "kubernetes.io/os": "linux", LASTING.0: LASTING.1},
        },
        "spec": {"taints": [{"key": "jangar.test/fake", "effect": "NoSchedule"}]},
    });
    let nodes: Api<Node> = Api::all(place.admin());
    let parameters = PatchParams::apply("benchmark").force();
    nodes.patch(NODE, &parameters, &Patch::Apply(&node)).await?;
    let status = json!({
        "apiVersion": "v1", "kind": "Node", "status": {"allocatable": capacity, "capacity": capacity},
    });
    nodes
        .patch_status(NODE, &parameters, &Patch::Apply(&status))
        .await?;
    Ok(())
}

pub(crate) async fn remove_node(place: &Place) -> Result<()> {
    let nodes: Api<Node> = Api::all(place.admin());
    nodes.delete(NODE, &DeleteParams::default()).await?;
    Ok(())
}

/// What is seen.
enum Seen {
    Pod(Change<Pod>),
    Run(Change<DynamicObject>),
}

pub(crate) async fn measure(
    place: &Place,
    engine: &dyn Cancellable,
    pods: u32,
    results: &mut Results,
) -> Result<()> {
    let stage = place.open(engine).await?;
    let controller = stage.start(engine).await?;
    let played = tokio::time::timeout(LIMIT, play(&stage, engine, pods)).await;
    let (watched, asked) = played.with_context(|| format!("a cancel was not over within {LIMIT:?}"))??;
    let subject = engine.subject();
    let alive = u32::try_from(watched.alive_when_reported())?;
    let gone = watched.all_gone_after(asked).context("no pod was seen to go")?;
    let reported = watched
        .all_reported_after(asked)
        .context("no run was seen to end")?;
    println!(
        "{}: cancel of {pods} pods: gone after {gone:.3} s, reported after {reported:.3} s, {alive} alive at that time",
        subject.label()
    );
    results.add(Measure::CancelUntilGone { pods }, subject, [gone]);
    results.add(Measure::CancelUntilReported { pods }, subject, [reported]);
    results.add(Measure::AliveWhenReported { pods }, subject, [f64::from(alive)]);
    results.add(Measure::ReportAfterEnd { pods }, subject, watched.report_delays());
    stage.close(controller).await
}

/// Runs what lasts, asks all of it to stop, and watches until nothing is left. Returns when it was asked.
async fn play(stage: &Stage<'_>, engine: &dyn Cancellable, pods: u32) -> Result<(Watched, Instant)> {
    let mut watched = Watched::default();
    let mut pod_changes = changes(stage.api::<Pod>(), Some(engine.label())).await?;
    let run_changes = changes(stage.api_of(&engine.kind()), None).await?;
    let runs = engine.lasting_runs(pods);
    let names: Vec<String> = runs.iter().filter_map(name_of).collect();
    stream::iter(&runs)
        .map(|run| stage.create(run))
        .buffer_unordered(REQUESTERS)
        .try_collect::<()>()
        .await?;
    all_running(&mut pod_changes, engine, pods, &mut watched).await?;
    let asked = Instant::now();
    let api = stage.api_of(&engine.kind());
    let request = engine.request();
    let requests = stream::iter(&names)
        .map(|name| {
            let (api, request) = (&api, &request);
            async move {
                let patch = Patch::Merge(request);
                api.patch(name, &PatchParams::default(), &patch).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(REQUESTERS)
        .try_collect::<()>();
    let seen = stream::select(pod_changes.map(Seen::Pod), run_changes.map(Seen::Run));
    tokio::try_join!(requests, until_over(seen, engine, names.len(), &mut watched))?;
    Ok((watched, asked))
}

fn name_of(run: &Value) -> Option<String> {
    Some(run.get("metadata")?.get("name")?.as_str()?.to_owned())
}

async fn all_running(
    changes: &mut Changes<Pod>,
    engine: &dyn Cancellable,
    pods: u32,
    watched: &mut Watched,
) -> Result<()> {
    let mut running = std::collections::BTreeSet::new();
    while running.len() < pods as usize {
        let change = changes.next().await.context("the watch ended")?;
        if let Some(run) = change.object.labels().get(engine.label())
            && phase(&change.object) == "Running"
        {
            watched.pod_is_there(&change.object.name_any(), run);
            running.insert(change.object.name_any());
        }
    }
    Ok(())
}

async fn until_over(
    mut seen: impl futures::Stream<Item = Seen> + Unpin,
    engine: &dyn Cancellable,
    runs: usize,
    watched: &mut Watched,
) -> Result<()> {
    while !watched.is_over(runs) {
        match seen.next().await.context("the watch ended")? {
            Seen::Pod(change) => {
                if change.is_gone || has_ended(&change.object) {
                    watched.pod_is_gone(&change.object.name_any(), moment(&change)?);
                }
            }
            Seen::Run(change) => {
                if engine.ended(&change.object).is_some() {
                    watched.run_is_reported(&change.object.name_any(), moment(&change)?);
                }
            }
        }
    }
    Ok(())
}

fn moment<K: Resource>(change: &Change<K>) -> Result<Moment> {
    let version = change.object.resource_version().unwrap_or_default();
    Ok(Moment {
        at: change.at,
        version: version
            .parse()
            .with_context(|| format!("the version {version:?} is no number"))?,
    })
}
