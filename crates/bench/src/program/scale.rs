//! Jangar alone, with much of everything: how soon a new process decides where ten thousand runs are, and whether a long queue
//! drains with every limit respected at every instant.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use jangar_api::labels;
use jangar_bench::{
    limits::Crowd,
    results::{Measure, Results, Subject},
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::ResourceExt;

use crate::{
    cancel,
    engine::{Cancellable, Engine},
    jangar::{Jangar, Limits},
    place::{Place, Stage},
    runs::{self, SUBMITTERS},
    watch::{Change, Changes, changes, has_ended, phase},
};

/// How many runs live when the process is started anew; the node for them has room for twice as many.
const LIVE: u32 = 1000;
/// Only a broken program takes that long to start.
const START_LIMIT: Duration = Duration::from_mins(5);
/// The limits under which the queue drains.
const LIMITS: Limits = Limits {
    agents: 5,
    of_one_agent: 30,
    of_the_namespace: 100,
};

/// From the start of a process to its first decision, with `finished` runs that have ended and [`LIVE`] that work.
pub(crate) async fn start_up(
    place: &Place,
    jangar: &Jangar,
    finished: u32,
    results: &mut Results,
) -> Result<()> {
    cancel::add_node(place).await?;
    let stage = place.open(jangar).await?;
    let controller = stage.start(jangar).await?.context("Jangar has a controller")?;
    runs::submit(&stage, jangar, "run", finished).await?;
    all_live(&stage, jangar).await?;
    controller.leave().await?;

    let mut jobs = changes(stage.api::<Job>(), Some(labels::AGENT_RUN)).await?;
    stage.create(&jangar.run("newcomer")).await?;
    let begun = Instant::now();
    let controller = stage.start(jangar).await?.context("Jangar has a controller")?;
    let first = tokio::time::timeout(START_LIMIT, job_of(&mut jobs, "newcomer")).await;
    let at = first.with_context(|| format!("no Job within {START_LIMIT:?} of the start"))??;
    let seconds = (at - begun).as_secs_f64();
    println!(
        "Jangar: {finished} finished and {LIVE} live runs: first decision {seconds:.2} s after the start"
    );
    let measure = Measure::StartToFirstDecision { finished, live: LIVE };
    results.add(measure, Subject::Jangar, [seconds]);
    controller.quiet().await?;
    let memory = controller.memory()?;
    println!("Jangar: {finished} finished and {LIVE} live runs: {memory:?} KiB");
    let measure = Measure::MemoryAfterStart { finished, live: LIVE };
    results.add(measure, Subject::Jangar, [runs::mebibytes(memory.resident)]);
    controller.stop().await?;
    cancel::remove_node(place).await
}

/// Starts [`LIVE`] runs that last, and waits until all their pods run.
async fn all_live(stage: &Stage<'_>, jangar: &Jangar) -> Result<()> {
    let mut pods = changes(stage.api::<Pod>(), Some(labels::AGENT_RUN)).await?;
    let lasting = jangar.lasting_runs(LIVE);
    let submitted = stream::iter(&lasting)
        .map(|run| stage.create(run))
        .buffer_unordered(SUBMITTERS)
        .try_collect::<()>();
    let running = async {
        let mut running = BTreeSet::new();
        while running.len() < LIVE as usize {
            let change = pods.next().await.context("the watch ended")?;
            if phase(&change.object) == "Running" && !change.is_gone {
                running.insert(change.object.name_any());
            }
        }
        Ok(())
    };
    tokio::try_join!(submitted, running)?;
    Ok(())
}

async fn job_of(jobs: &mut Changes<Job>, run: &str) -> Result<Instant> {
    loop {
        let change = jobs.next().await.context("the watch ended")?;
        if change.object.labels().get(labels::AGENT_RUN).map(String::as_str) == Some(run) {
            return Ok(change.at);
        }
    }
}

/// So many runs at once under limits that let a few of them work.
pub(crate) async fn queue(place: &Place, jangar: &Jangar, queued: u32, results: &mut Results) -> Result<()> {
    let jangar = jangar.limited(LIMITS);
    let stage = place.open(&jangar).await?;
    let controller = stage.start(&jangar).await?.context("Jangar has a controller")?;
    let mut pods = changes(stage.api::<Pod>(), Some(labels::AGENT_RUN)).await?;
    let mut crowd = Crowd::default();
    let submitted = runs::submit(&stage, &jangar, "run", queued);
    tokio::pin!(submitted);
    let took = loop {
        tokio::select! {
            took = &mut submitted => break took?,
            change = pods.next() => see(&mut crowd, &change.context("the watch ended")?),
        }
    };
    let rate = f64::from(queued) / took.as_secs_f64();
    println!(
        "Jangar: {queued} queued runs under {LIMITS:?}: {rate:.1} runs/s, at most {} pods at once, at most {} of one Agent",
        crowd.most(),
        crowd.most_of_one()
    );
    ensure!(
        crowd.most() <= LIMITS.of_the_namespace as usize
            && crowd.most_of_one() <= LIMITS.of_one_agent as usize,
        "a limit was exceeded: {crowd:?}"
    );
    results.add(Measure::QueuedRunsPerSecond { queued }, Subject::Jangar, [rate]);
    controller.stop().await
}

fn see(crowd: &mut Crowd, change: &Change<Pod>) {
    let pod = &change.object;
    let agent = pod.labels().get(labels::AGENT).cloned().unwrap_or_default();
    if change.is_gone || has_ended(pod) {
        crowd.ends(&pod.name_any(), &agent);
    } else {
        crowd.lives(&pod.name_any(), &agent);
    }
}
