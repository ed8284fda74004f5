//! What the next step of an orchestration waits for, on `jangar up` as a person runs it. Run by `make bench`.
//!
//! First a long chain alone: the time from the end of one step's pod to the creation of the next one's, as a watch of pods shows
//! both. Its median and its 99th percentile have bounds, and the program fails beyond them.
//!
//! Then what readers of the control plane cost those who work: the time from one step's process to that of the next, alone, under
//! mixed reads, and while many follow every change. How much longer the median is under each has a bound too. All kinds of measurement
//! take turns, so that what else the machine does meets all of them.

#![expect(clippy::print_stdout, reason = "printing figures is what this program is for")]

mod up;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use jangar_api::{
    agents::{agent::Agent, agent_provider::AgentProvider},
    labels,
    orchestration::{Orchestration, orchestration_run::OrchestrationRun},
    phase::RunPhase,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::PostParams,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream},
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::up::Up;

/// Steps of the long orchestration, each after the other, and so many hops that a 99th percentile says something.
const CHAIN: usize = 200;
/// What that orchestration and its run are called.
const LONG: &str = "long";
/// The longest that the next pod may take to be created, in seconds: in the middle, and in 99 of a hundred hops.
const MEDIAN_MAX: f64 = 0.050;
const HIGH_MAX: f64 = 0.250;
/// Steps of one orchestration, each after the other.
const STEPS: usize = 21;
/// How often both kinds of measurement take their turn.
const TURNS: usize = 3;
const READS_PER_SECOND: u32 = 500;
const READERS: u32 = 16;
/// So many follow every change of every kind at once, each on a connection of its own: the limit of open files has to allow for it.
const STREAMS: usize = 1_000;
/// So many of them are opened together: the control plane refuses requests of which too many are under way.
const OPENED_AT_ONCE: usize = 50;
/// How many times longer the median hop may be under the reads, or the streams.
const BOUND: f64 = 1.1;
/// Of the reads that are asked for, this share has to be done, or the load was none.
const DONE_MIN: f64 = 0.95;
/// Only a broken program takes that long.
const PATIENCE: Duration = Duration::from_mins(5);

/// What is read, in turn: lists, single objects, explanations and counts.
const READS: [&str; 8] = [
    "/v1/agent-runs?namespace=agents&limit=50",
    "/api/agents/control-plane/resources?kind=OrchestrationRun&namespace=agents&limit=20",
    "/v1/agents/clock?namespace=agents",
    "/v1/runs/warm?namespace=agents&kind=OrchestrationRun",
    "/v1/runs/warm/explain?namespace=agents&kind=OrchestrationRun",
    "/v1/approvals?namespace=agents",
    "/api/agents/control-plane/summary?namespace=agents",
    "/v1/agent-runs?namespace=agents&search=clock&phase=Succeeded",
];

#[tokio::main]
async fn main() -> Result<()> {
    // `cargo test --benches` builds and starts this as well, and must not measure.
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let up = Up::start(directory.path(), &[], &[])?;
    let client = up.client().await?;
    println!(
        "jangar up: {} processors, redb on disk, TLS to the API server, pods sandboxed; {TURNS} times {STEPS} steps one after the \
         other alone, as many under {READS_PER_SECOND} mixed reads per second by {READERS} readers, and as many under {STREAMS} streams",
        std::thread::available_parallelism()?
    );
    prepare(&client).await?;
    // The first run also pays for what is only done once.
    hops(&client, "warm").await?;
    tell_pod_hops(&mut pod_hops(&client).await?)?;
    let (mut alone, mut under, mut followed) = (Vec::new(), Vec::new(), Vec::new());
    let mut told = 0;
    let mut reads = Reads::default();
    for turn in 0..TURNS {
        alone.extend(hops(&client, &format!("alone-{turn}")).await?);
        let load = Load::start(&up)?;
        under.extend(hops(&client, &format!("under-{turn}")).await?);
        reads.add(load.stop().await?);
        let followers = Followers::start(&up).await?;
        followed.extend(hops(&client, &format!("followed-{turn}")).await?);
        told += followers.stop()?;
    }
    reads.tell()?;
    println!("streams: {STREAMS} open at once, {} MiB told", told >> 20);
    let alone = median(&mut alone);
    let ratios = [("reads", median(&mut under)), ("streams", median(&mut followed))].map(|(what, under)| {
        let ratio = under / alone;
        println!(
            "hop: median {:.1} ms alone, {:.1} ms under {what}: {ratio:.3} times as long ({:.2} of the bound)",
            1e3 * alone,
            1e3 * under,
            ratio / BOUND
        );
        (what, ratio)
    });
    for (what, ratio) in ratios {
        ensure!(
            ratio <= BOUND,
            "a hop is at most {BOUND} times as long under {what}"
        );
    }
    Ok(())
}

/// An Agent that says when it started, and an Orchestration that has it do so often.
async fn prepare(client: &Client) -> Result<()> {
    let script = r#"printf '{"outputs": {"started": "%s"}}' "$(date +%s%N)" > "$AGENT_OUTCOME_PATH""#;
    let parameters = PostParams::default();
    let provider: AgentProvider = serde_json::from_value(json!({
        "metadata": {"name": "clock"}, "spec": {"binary": "/bin/sh", "argsTemplate": ["-c", script]},
    }))?;
    Api::default_namespaced(client.clone())
        .create(&parameters, &provider)
        .await?;
    let agent: Agent = serde_json::from_value(json!({
        "metadata": {"name": "clock"}, "spec": {"providerRef": {"name": "clock"}},
    }))?;
    Api::default_namespaced(client.clone())
        .create(&parameters, &agent)
        .await?;
    define(client, "chain", STEPS).await?;
    define(client, LONG, CHAIN).await
}

/// An Orchestration of so many steps, each after the other.
async fn define(client: &Client, name: &str, count: usize) -> Result<()> {
    let steps: Vec<Value> = (0..count)
        .map(|number| {
            let before: Vec<String> = number
                .checked_sub(1)
                .map(|before| format!("s{before}"))
                .into_iter()
                .collect();
            json!({
                "name": format!("s{number}"), "kind": "AgentRun", "dependsOn": before,
                "agentRef": {"name": "clock"}, "implementation": {"inline": {"text": "Be measured."}},
            })
        })
        .collect();
    let chain: Orchestration = serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"steps": steps},
    }))?;
    Api::default_namespaced(client.clone())
        .create(&PostParams::default(), &chain)
        .await?;
    Ok(())
}

/// When a pod was first seen, and when it was first seen to have ended.
struct Life {
    created: Instant,
    ended: Option<Instant>,
}

/// Runs the long chain, and returns the seconds from the end of each pod to the next one.
async fn pod_hops(client: &Client) -> Result<Vec<f64>> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let selector = watcher::Config::default().labels(labels::AGENT_RUN);
    let mut changes = watcher(pods, selector).applied_objects().boxed();
    let run: OrchestrationRun = serde_json::from_value(json!({
        "metadata": {"name": LONG}, "spec": {"orchestrationRef": {"name": LONG}},
    }))?;
    let runs: Api<OrchestrationRun> = Api::default_namespaced(client.clone());
    runs.create(&PostParams::default(), &run).await?;
    let own = format!("{LONG}-");
    let mut lives: BTreeMap<String, Life> = BTreeMap::new();
    let watching = async {
        let mut ended = 0;
        while ended < CHAIN {
            let pod = changes.try_next().await?.context("the watch ended")?;
            let at = Instant::now();
            let child = pod.labels().get(labels::AGENT_RUN);
            if !child.is_some_and(|child| child.starts_with(&own)) {
                continue;
            }
            let life = lives.entry(pod.name_any()).or_insert(Life {
                created: at,
                ended: None,
            });
            let phase = pod.status.and_then(|status| status.phase);
            if life.ended.is_none() && matches!(phase.as_deref(), Some("Succeeded" | "Failed")) {
                life.ended = Some(at);
                ended += 1;
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, watching)
        .await
        .with_context(|| format!("{LONG} did not end within {PATIENCE:?}"))??;
    ensure!(lives.len() == CHAIN, "{LONG} had {} pods", lives.len());
    let mut lives: Vec<Life> = lives.into_values().collect();
    lives.sort_by_key(|life| life.created);
    let pairs = lives.iter().zip(lives.iter().skip(1));
    // A pod that is there before the last one was seen to have ended took no time.
    let hops = pairs.filter_map(|(one, next)| Some(next.created.saturating_duration_since(one.ended?)));
    Ok(hops.map(|hop| hop.as_secs_f64()).collect())
}

fn tell_pod_hops(hops: &mut [f64]) -> Result<()> {
    let median = median(hops);
    // By nearest rank, counted from 1.
    let high = hops[(hops.len() * 99).div_ceil(100) - 1];
    println!(
        "{} hops of {CHAIN} steps: from the end of a pod to the next one {:.1} ms at the median ({:.2} of the bound), {:.1} ms at the \
         99th percentile ({:.2} of the bound)",
        hops.len(),
        1e3 * median,
        median / MEDIAN_MAX,
        1e3 * high,
        high / HIGH_MAX
    );
    ensure!(
        median <= MEDIAN_MAX,
        "the next pod is created within {MEDIAN_MAX} s at the median"
    );
    ensure!(
        high <= HIGH_MAX,
        "the next pod is created within {HIGH_MAX} s in 99 of a hundred hops"
    );
    Ok(())
}

/// Runs the chain once, and returns the seconds from one step's process to the next.
async fn hops(client: &Client, name: &str) -> Result<Vec<f64>> {
    let runs: Api<OrchestrationRun> = Api::default_namespaced(client.clone());
    let run: OrchestrationRun = serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"orchestrationRef": {"name": "chain"}},
    }))?;
    runs.create(&PostParams::default(), &run).await?;
    let selector = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut changes = watcher(runs, selector).applied_objects().boxed();
    let ending = async {
        while let Some(run) = changes.try_next().await? {
            let status = run.status.unwrap_or_default();
            if status.phase.as_ref().is_some_and(RunPhase::is_terminal) {
                return Ok(status);
            }
        }
        bail!("the watch ended")
    };
    let status = tokio::time::timeout(PATIENCE, ending)
        .await
        .with_context(|| format!("{name} did not end within {PATIENCE:?}"))??;
    let mut started = Vec::new();
    for step in &status.step_statuses {
        let outputs = serde_json::to_value(&step.outputs)?;
        let at = outputs["started"]
            .as_str()
            .and_then(|text| text.parse::<u64>().ok());
        let at = at.with_context(|| format!("step {} of {name} did not say when it started", step.name))?;
        started.push(Duration::from_nanos(at));
    }
    ensure!(started.len() == STEPS, "{name} has {} steps", started.len());
    let hops = started
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]).as_secs_f64());
    Ok(hops.collect())
}

fn median(seconds: &mut [f64]) -> f64 {
    seconds.sort_unstable_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// What readers got.
#[derive(Debug, Default)]
struct Reads {
    took: Vec<f64>,
    elapsed: Duration,
}

impl Reads {
    fn add(&mut self, other: Self) {
        self.took.extend(other.took);
        self.elapsed += other.elapsed;
    }

    fn tell(&mut self) -> Result<()> {
        ensure!(!self.took.is_empty(), "nothing was read");
        self.took.sort_unstable_by(f64::total_cmp);
        let at = |share: usize| 1e3 * self.took[(self.took.len() - 1) * share / 100];
        let count = u32::try_from(self.took.len())?;
        let rate = f64::from(count) / self.elapsed.as_secs_f64();
        println!(
            "reads: {count}, {rate:.0} per second, median {:.1} ms, 99th percentile {:.1} ms",
            at(50),
            at(99)
        );
        ensure!(
            rate >= DONE_MIN * f64::from(READS_PER_SECOND),
            "only {rate:.0} reads per second were done"
        );
        Ok(())
    }
}

/// Readers at work.
struct Load {
    readers: JoinSet<Result<Vec<f64>>>,
    stop: Arc<AtomicBool>,
    started: Instant,
}

impl Load {
    fn start(up: &Up) -> Result<Self> {
        let (address, token) = (up.address("control plane")?, token(up)?);
        let stop = Arc::new(AtomicBool::new(false));
        let mut readers = JoinSet::new();
        for number in 0..READERS {
            let reader = read(address.clone(), token.clone(), number as usize, Arc::clone(&stop));
            readers.spawn(reader);
        }
        Ok(Self {
            readers,
            stop,
            started: Instant::now(),
        })
    }

    async fn stop(mut self) -> Result<Reads> {
        let elapsed = self.started.elapsed();
        self.stop.store(true, Ordering::Relaxed);
        let mut took = Vec::new();
        while let Some(reader) = self.readers.join_next().await {
            took.extend(reader??);
        }
        Ok(Reads { took, elapsed })
    }
}

/// Reads one thing after the other on one connection, at its share of the rate, and returns how long each took.
async fn read(address: String, token: String, first: usize, stop: Arc<AtomicBool>) -> Result<Vec<f64>> {
    let mut stream = BufStream::new(TcpStream::connect(&address).await?);
    let mut turns = interval(Duration::from_secs(1) * READERS / READS_PER_SECOND);
    turns.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut took = Vec::new();
    for path in READS.iter().cycle().skip(first) {
        turns.tick().await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        let mut length = 0;
        let mut line = String::new();
        loop {
            let began = line.is_empty();
            line.clear();
            ensure!(stream.read_line(&mut line).await? > 0, "the connection ended");
            let line = line.trim();
            ensure!(!began || line.contains(" 200 "), "{path}: {line}");
            if line.is_empty() {
                break;
            }
            let header = line.split_once(':');
            if let Some((_, value)) = header.filter(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        took.push(begun.elapsed().as_secs_f64());
    }
    Ok(took)
}

/// Those who follow every change.
struct Followers {
    streams: JoinSet<Result<()>>,
    bytes: Arc<AtomicU64>,
}

impl Followers {
    /// Opens all streams, and returns when each is told something.
    async fn start(up: &Up) -> Result<Self> {
        let (address, token) = (up.address("control plane")?, token(up)?);
        let bytes = Arc::new(AtomicU64::new(0));
        let open = Arc::new(Semaphore::new(0));
        let mut streams = JoinSet::new();
        for _ in 0..STREAMS / OPENED_AT_ONCE {
            for _ in 0..OPENED_AT_ONCE {
                let (address, token) = (address.clone(), token.clone());
                streams.spawn(follow(address, token, Arc::clone(&bytes), Arc::clone(&open)));
            }
            let group = open.acquire_many(u32::try_from(OPENED_AT_ONCE)?);
            tokio::select! {
                group = tokio::time::timeout(PATIENCE, group) => group.context("the streams did not open")??.forget(),
                Some(ended) = streams.join_next() => ended??,
            }
        }
        Ok(Self { streams, bytes })
    }

    /// How many bytes all of them were told. None may have ended before.
    fn stop(mut self) -> Result<u64> {
        if let Some(ended) = self.streams.try_join_next() {
            ended??;
            bail!("a stream ended");
        }
        Ok(self.bytes.load(Ordering::Relaxed))
    }
}

/// Reads a stream of all changes, and counts what comes.
async fn follow(address: String, token: String, bytes: Arc<AtomicU64>, open: Arc<Semaphore>) -> Result<()> {
    let path = "/api/agents/control-plane/stream?namespace=agents";
    let mut stream = TcpStream::connect(&address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut piece = vec![0; 16 * 1024];
    let mut first = true;
    loop {
        let count = stream.read(&mut piece).await?;
        ensure!(count > 0, "a stream ended");
        if std::mem::take(&mut first) {
            let head = String::from_utf8_lossy(&piece[..count]);
            ensure!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
            open.add_permits(1);
        }
        bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// The token of whoever may do everything there.
fn token(up: &Up) -> Result<String> {
    let document: Value = serde_saphyr::from_str(&std::fs::read_to_string(&up.kubeconfig)?)?;
    let token = document["users"][0]["user"]["token"].as_str();
    Ok(token.context("the kubeconfig has no token")?.to_owned())
}
