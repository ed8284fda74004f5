//! Many runs of one step at once: how fast they end, what the controller writes for each, and what it needs.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use jangar_bench::{
    audit::Writes,
    process::Memory,
    results::{Measure, Results},
};
use kube::ResourceExt;

use crate::{
    controller::Controller,
    engine::{Ended, Engine},
    place::{Place, Stage},
    watch::{Changes, changes},
};

/// How many runs are submitted at once.
pub(crate) const SUBMITTERS: usize = 16;
/// The slowest finish four in a second; this is for a busy machine.
const LIMIT_PER_RUN: Duration = Duration::from_secs(2);
const LIMIT_AT_LEAST: Duration = Duration::from_mins(2);

const MEBIBYTE_KIB: f64 = 1024.0;

/// What one measurement gave.
struct Outcome {
    seconds: f64,
    idle: Option<Memory>,
    writes: Option<Writes>,
    busy: Option<Duration>,
    after: Option<Memory>,
}

/// One-step runs, with all that is known of them.
pub(crate) async fn measure(
    place: &Place,
    engine: &dyn Engine,
    at_once: u32,
    results: &mut Results,
) -> Result<()> {
    let stage = place.open(engine).await?;
    let controller = stage.start(engine).await?;
    let outcome = play(&stage, engine, controller.as_ref(), at_once, Audit::Read).await?;
    let subject = engine.subject();
    let rate = f64::from(at_once) / outcome.seconds;
    println!(
        "{}: {at_once} runs in {:.1} s, {rate:.1} runs/s",
        subject.label(),
        outcome.seconds
    );
    results.add(Measure::RunsPerSecond { at_once }, subject, [rate]);
    if let Some(writes) = &outcome.writes {
        let kinds = writes.by_kind();
        let kinds: Vec<_> = kinds
            .map(|(kind, count)| format!("{:.2} {kind}", per_run(count, at_once)))
            .collect();
        println!("{}: writes per run: {}", subject.label(), kinds.join(", "));
        let (own, events) = (writes.without_events(), writes.events());
        results.add(
            Measure::WritesPerRun { at_once },
            subject,
            [per_run(own, at_once)],
        );
        results.add(
            Measure::EventsPerRun { at_once },
            subject,
            [per_run(events, at_once)],
        );
    }
    if let Some(busy) = outcome.busy {
        let milliseconds = 1e3 * busy.as_secs_f64() / f64::from(at_once);
        results.add(Measure::ProcessorTimePerRun { at_once }, subject, [milliseconds]);
    }
    tell_memory(engine, at_once, &outcome, results);
    stage.close(controller).await
}

/// Memory alone: the log of so many runs would be longer than what is kept of it. The namespace stays as it is, because so
/// many pods take longer to go than all other measurements take, and the controller of the next one does not see it.
pub(crate) async fn memory(
    place: &Place,
    engine: &dyn Engine,
    finished: u32,
    results: &mut Results,
) -> Result<()> {
    let stage = place.open(engine).await?;
    let controller = stage.start(engine).await?;
    let outcome = play(&stage, engine, controller.as_ref(), finished, Audit::LeftOut).await?;
    println!(
        "{}: {finished} runs in {:.1} s",
        engine.subject().label(),
        outcome.seconds
    );
    tell_memory(engine, finished, &outcome, results);
    stop(controller).await
}

async fn stop(controller: Option<Controller>) -> Result<()> {
    match controller {
        Some(controller) => controller.stop().await,
        None => Ok(()),
    }
}

/// Whether what is written is counted.
enum Audit {
    Read,
    LeftOut,
}

async fn play(
    stage: &Stage<'_>,
    engine: &dyn Engine,
    controller: Option<&Controller>,
    count: u32,
    audit: Audit,
) -> Result<Outcome> {
    // One run that does not count: it shows that the controller is up.
    submit(stage, engine, "warm-up", 1).await?;
    let Some(controller) = controller else {
        let seconds = submit(stage, engine, "run", count).await?.as_secs_f64();
        return Ok(Outcome {
            seconds,
            idle: None,
            writes: None,
            busy: None,
            after: None,
        });
    };
    controller.quiet().await?;
    let (idle, before) = (controller.memory()?, controller.processor_time()?);
    let mut written = stage.count_writes()?;
    let seconds = submit(stage, engine, "run", count).await?.as_secs_f64();
    stage.released().await?;
    controller.quiet().await?;
    let writes = match audit {
        Audit::Read => Some(written.settle().await?.clone()),
        Audit::LeftOut => None,
    };
    Ok(Outcome {
        seconds,
        idle: Some(idle),
        writes,
        busy: Some(controller.processor_time()?.saturating_sub(before)),
        after: Some(controller.memory()?),
    })
}

/// Creates this many runs, and says how long it took until all were seen to have ended well.
pub(crate) async fn submit(
    stage: &Stage<'_>,
    engine: &dyn Engine,
    name: &str,
    count: u32,
) -> Result<Duration> {
    let changes = changes(stage.api_of(&engine.kind()), None).await?;
    let begun = Instant::now();
    let submitted = stream::iter(0..count)
        .map(|number| async move { stage.create(&engine.run(&format!("{name}-{number}"))).await })
        .buffer_unordered(SUBMITTERS)
        .try_collect::<()>();
    let limit = LIMIT_AT_LEAST.max(LIMIT_PER_RUN * count);
    let all = async { tokio::try_join!(submitted, all_ended(changes, engine, name, count)) };
    let ended = tokio::time::timeout(limit, all).await;
    ended.with_context(|| format!("not all of {count} runs ended within {limit:?}"))??;
    Ok(begun.elapsed())
}

async fn all_ended(
    mut changes: Changes<kube::api::DynamicObject>,
    engine: &dyn Engine,
    name: &str,
    count: u32,
) -> Result<()> {
    let mut ended = BTreeSet::new();
    while let Some(change) = changes.next().await {
        let run = change.object.name_any();
        if !run.starts_with(name) {
            continue;
        }
        match engine.ended(&change.object) {
            None => continue,
            Some(Ended::Well) => ended.insert(run),
            Some(Ended::Badly(why)) => bail!("{run} of {} did not end well: {why}", engine.subject().label()),
        };
        if ended.len() == count as usize {
            return Ok(());
        }
    }
    bail!("the watch ended")
}

fn tell_memory(engine: &dyn Engine, finished: u32, outcome: &Outcome, results: &mut Results) {
    let subject = engine.subject();
    if let Some(idle) = outcome.idle {
        results.add(Measure::IdleMemory, subject, [mebibytes(idle.resident)]);
    }
    if let Some(after) = outcome.after {
        println!("{}: {finished} finished runs: {after:?} KiB", subject.label());
        results.add(
            Measure::ResidentMemory { finished },
            subject,
            [mebibytes(after.resident)],
        );
        results.add(
            Measure::ProportionalMemory { finished },
            subject,
            [mebibytes(after.proportional)],
        );
        results.add(Measure::PeakMemory { finished }, subject, [mebibytes(after.peak)]);
    }
}

/// Counts and sizes here are far below what a float holds exactly.
#[expect(clippy::cast_precision_loss, reason = "see above")]
pub(crate) fn per_run(count: usize, runs: u32) -> f64 {
    count as f64 / f64::from(runs)
}

#[expect(clippy::cast_precision_loss, reason = "see above")]
pub(crate) fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / MEBIBYTE_KIB
}
