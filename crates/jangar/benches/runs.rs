//! How fast runs start, and how busy they keep the slots of a node, on `jangar up` as a person runs it: the program itself,
//! over TLS, with real pods. Run by `make bench`.
//!
//! Two figures have a bound, and the program fails beyond it: the median from the request that creates an AgentRun to its
//! process, and the share of the slots' time in which agents work. The writes per run are counted by the controllers
//! themselves and must be at most five. The processor time per run has no bound of its own, but hardly depends on what else the
//! machine does, and so is the figure to compare two versions by.

#![expect(clippy::print_stdout, reason = "printing figures is what this program is for")]

mod up;

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use jangar_api::{
    agents::{agent::Agent, agent_provider::AgentProvider, agent_run::AgentRun},
    phase::RunPhase,
};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;

use crate::up::Up;

/// Runs that are started one after the other on an idle machine.
const LATENCY_RUNS: u32 = 50;
const LATENCY_BOUND: Duration = Duration::from_millis(100);
const RUNS: u32 = 1000;
const SLOTS: u32 = 50;
const RUN_SECONDS: f64 = 1.0;
const BUSY_BOUND: f64 = 0.95;
const WRITES_BOUND: f64 = 5.0;
/// How many runs are submitted at once.
const SUBMITTERS: usize = 16;
/// In how many parts of a second Linux counts the time of processes, on every platform that Rust knows.
#[cfg(target_os = "linux")]
const TICKS_PER_SECOND: f64 = 100.0;
/// Only a broken program takes that long.
const PATIENCE: Duration = Duration::from_mins(5);

#[tokio::main]
async fn main() -> Result<()> {
    // `cargo test --benches` builds and starts this as well, and must not measure.
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    // What the node has room for is the limit here.
    let unlimited = [
        ("JANGAR_AGENTS_CONTROLLER_CONCURRENCY_AGENT", "100000"),
        ("JANGAR_AGENTS_CONTROLLER_CONCURRENCY_NAMESPACE", "100000"),
        ("JANGAR_AGENTS_CONTROLLER_CONCURRENCY_CLUSTER", "100000"),
    ];
    let up = Up::start(directory.path(), &["--pods", &SLOTS.to_string()], &unlimited)?;
    let client = up.client().await?;
    println!(
        "jangar up: {} processors, {SLOTS} slots, redb on disk, TLS, pods sandboxed; {LATENCY_RUNS} runs one by one, then \
         {RUNS} runs of {RUN_SECONDS} s submitted by {SUBMITTERS}",
        std::thread::available_parallelism()?
    );
    let mut missed = Vec::new();
    let before = counted(&up)?;
    if let Err(error) = latency(&client).await {
        missed.push(error);
    }
    if let Err(error) = writes(&before, &counted(&up)?) {
        missed.push(error);
    }
    let before = processor_seconds(&up);
    if let Err(error) = throughput(&client).await {
        missed.push(error);
    }
    if let (Some(before), Some(after)) = (before, processor_seconds(&up)) {
        let per_run = |before: f64, after: f64| 1e3 * (after - before) / f64::from(RUNS);
        println!(
            "processor time per run: {:.1} ms in jangar up, {:.1} ms in its pods",
            per_run(before.0, after.0),
            per_run(before.1, after.1)
        );
    }
    for error in &missed {
        println!("MISSED: {error}");
    }
    ensure!(missed.is_empty(), "{} bounds were missed", missed.len());
    Ok(())
}

/// From the request that creates a run to its process, by the clock of this machine that both read.
async fn latency(client: &Client) -> Result<()> {
    let report = r#"printf '{"outputs": {"started": "%s"}}' "$(date +%s%N)" > "$AGENT_OUTCOME_PATH""#;
    provider(client, "clock", report).await?;
    let runs: Api<AgentRun> = Api::default_namespaced(client.clone());
    let mut took = Vec::new();
    for number in 0..LATENCY_RUNS {
        let name = format!("clock-{number}");
        let asked = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        runs.create(&PostParams::default(), &run(&name, "clock")?).await?;
        let ended = ended(&runs, 1, Some(&name)).await?;
        let outputs = ended[0]
            .status
            .clone()
            .and_then(|status| status.outcome)
            .and_then(|outcome| outcome.outputs);
        let started = outputs
            .and_then(|outputs| outputs.0.get("started")?.as_str()?.parse::<u64>().ok())
            .with_context(|| format!("{name} did not say when it started: {:#?}", ended[0].status))?;
        took.push(Duration::from_nanos(started).saturating_sub(asked));
    }
    took.sort_unstable();
    let (median, ninth) = (took[took.len() / 2], took[took.len() * 9 / 10]);
    println!(
        "apply to process: median {:.1} ms ({:.2} of the bound), 90th percentile {:.1} ms",
        1e3 * median.as_secs_f64(),
        median.as_secs_f64() / LATENCY_BOUND.as_secs_f64(),
        1e3 * ninth.as_secs_f64()
    );
    ensure!(
        median < LATENCY_BOUND,
        "a run starts within {LATENCY_BOUND:?} at the median"
    );
    Ok(())
}

/// Many short runs at once.
async fn throughput(client: &Client) -> Result<()> {
    provider(client, "sleeper", &format!("sleep {RUN_SECONDS}")).await?;
    let runs: Api<AgentRun> = Api::default_namespaced(client.clone());
    let start = Instant::now();
    let submitted = stream::iter(0..RUNS)
        .map(|number| {
            let runs = runs.clone();
            async move {
                let run = run(&format!("sleeper-{number}"), "sleeper")?;
                runs.create(&PostParams::default(), &run).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(SUBMITTERS)
        .try_collect::<()>();
    let all = RUNS + LATENCY_RUNS;
    let (submitted, ended) = tokio::join!(submitted, ended(&runs, all, None));
    submitted?;
    let ended = ended?;
    let elapsed = start.elapsed();
    let failed = ended
        .iter()
        .filter(|run| phase(run) != Some(&RunPhase::Succeeded))
        .count();
    ensure!(failed == 0, "{failed} runs failed");
    let work = Duration::from_secs_f64(f64::from(RUNS) * RUN_SECONDS);
    let busy = work.as_secs_f64() / (f64::from(SLOTS) * elapsed.as_secs_f64());
    println!(
        "{RUNS} runs: {:.1} s, {:.1} runs/s, slots {:.1} % busy ({:.2} of the bound)",
        elapsed.as_secs_f64(),
        f64::from(RUNS) / elapsed.as_secs_f64(),
        100.0 * busy,
        busy / BUSY_BOUND
    );
    ensure!(busy >= BUSY_BOUND, "slots are at least {BUSY_BOUND} busy");
    Ok(())
}

/// What the controllers wrote for each run that could start at once, by verb and kind. The lease is renewed whether there are
/// runs or not.
fn writes(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> Result<()> {
    let mut total = 0.0;
    for (what, count) in after {
        let per_run = (count - before.get(what).copied().unwrap_or_default()) / f64::from(LATENCY_RUNS);
        if per_run >= 0.01 {
            println!("writes per run: {per_run:.2} {what}");
            if !["Event", "Lease"]
                .iter()
                .any(|kind| what.contains(&format!("kind=\"{kind}\"")))
            {
                total += per_run;
            }
        }
    }
    println!(
        "writes per run, Events apart: {total:.2} ({:.2} of the bound)",
        total / WRITES_BOUND
    );
    ensure!(
        total > 0.0,
        "no writes were counted: the names of the metrics have changed"
    );
    ensure!(total <= WRITES_BOUND, "a run takes at most {WRITES_BOUND} writes");
    Ok(())
}

/// An Agent whose provider runs this shell script.
async fn provider(client: &Client, name: &str, script: &str) -> Result<()> {
    let parameters = PostParams::default();
    let provider: AgentProvider = serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"binary": "/bin/sh", "argsTemplate": ["-c", script]},
    }))?;
    Api::default_namespaced(client.clone())
        .create(&parameters, &provider)
        .await?;
    let agent: Agent = serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"providerRef": {"name": name}},
    }))?;
    Api::default_namespaced(client.clone())
        .create(&parameters, &agent)
        .await?;
    Ok(())
}

fn run(name: &str, agent: &str) -> Result<AgentRun> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "agentRef": {"name": agent},
            "implementation": {"inline": {"text": "Be measured."}},
            "runtime": {"type": "job"},
        },
    }))?)
}

fn phase(run: &AgentRun) -> Option<&RunPhase> {
    run.status.as_ref()?.phase.as_ref()
}

/// Waits until this many runs have ended, of all or of one name.
async fn ended(runs: &Api<AgentRun>, count: u32, name: Option<&str>) -> Result<Vec<AgentRun>> {
    let selector = match name {
        Some(name) => watcher::Config::default().fields(&format!("metadata.name={name}")),
        None => watcher::Config::default(),
    };
    let mut changes = watcher(runs.clone(), selector).applied_objects().boxed();
    let mut ended = BTreeMap::new();
    let waiting = async {
        while let Some(run) = changes.try_next().await? {
            if phase(&run).is_some_and(RunPhase::is_terminal) {
                ended.insert(run.metadata.name.clone(), run);
            }
            if ended.len() == count as usize {
                return Ok(());
            }
        }
        bail!("the watch ended")
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .with_context(|| format!("not {count} runs ended within {PATIENCE:?}"))??;
    Ok(ended.into_values().collect())
}

/// The processor time that the program and its ended pods have taken so far, where that can be known.
#[cfg(target_os = "linux")]
fn processor_seconds(up: &Up) -> Option<(f64, f64)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", up.child.id())).ok()?;
    // The name of the program may hold anything, so the fields are counted from its end.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11).map(str::parse);
    let mut next = || times.next()?.ok();
    let (user, system, pods_user, pods_system): (f64, f64, f64, f64) = (next()?, next()?, next()?, next()?);
    Some((
        (user + system) / TICKS_PER_SECOND,
        (pods_user + pods_system) / TICKS_PER_SECOND,
    ))
}

#[cfg(not(target_os = "linux"))]
fn processor_seconds(_: &Up) -> Option<(f64, f64)> {
    None
}

/// How many requests the controllers made that were not reads, by what they were.
fn counted(up: &Up) -> Result<BTreeMap<String, f64>> {
    let mut stream = TcpStream::connect(up.address("metrics")?)?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let counts = text
        .lines()
        .filter_map(|line| line.strip_prefix("jangar_api_requests_total"))
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(labels, _)| !["get", "list", "watch"].iter().any(|verb| labels.contains(verb)))
        .filter_map(|(labels, count)| Some((labels.to_owned(), count.parse().ok()?)))
        .collect();
    Ok(counts)
}
