//! How fast kubelite is, with every setting printed beside the figures. Run by `make bench`.
//!
//! Two figures have a floor: durable creates per second, in process and over TLS. The program fails when one is below it.
//! The rest is reported so that a change for the worse is seen. Processor time stands beside the rates because it stays
//! the same when something else runs on the machine.
//!
//! `cargo bench --package kubelite --bench api -- patches lists` runs these parts alone; their names are in `Part`.

#![expect(clippy::print_stdout, reason = "printing figures is what this program is for")]

mod api {
    pub(crate) mod machine;
    pub(crate) mod widgets;
}

use std::{
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use axum::{Router, body::Body};
use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::{
    Client, Config as ClientConfig,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use kubelite::{
    kubeconfig,
    server::{Config, Server, Token, User},
    store::{Limits, Store},
    tls,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::oneshot};
use tower::ServiceExt;

use crate::api::{
    machine::{self, Span},
    widgets::{self, BODY_BYTES},
};

const WRITERS: usize = 64;
const CREATES: usize = 20_000;
const CREATES_TLS: usize = 10_000;
const FLOOR_IN_PROCESS: f64 = 5_000.0;
const FLOOR_TLS: f64 = 2_000.0;
const STATUS_PATCHES: usize = 5_000;
const WATCHERS: usize = 100;
const WATCHED_CREATES: usize = 5_000;
const STORED_OBJECTS: usize = 100_000;
const LISTS: usize = 200;
const LIST_LENGTH: usize = 500;
/// On the disk that holds the build, since a temporary directory may be memory, where a sync costs nothing.
const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");
/// With this and a directory the program only starts a server there. A new process shows what a start takes.
const START: &str = "start-in";

/// What can be measured alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    Creates,
    Tls,
    Patches,
    Watchers,
    Start,
}

impl Part {
    const ALL: [Self; 5] = [
        Self::Creates,
        Self::Tls,
        Self::Patches,
        Self::Watchers,
        Self::Start,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Creates => "creates",
            Self::Tls => "tls",
            Self::Patches => "patches",
            Self::Watchers => "watchers",
            Self::Start => "start",
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [START, directory] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return started_with_many_objects(Path::new(directory)).await;
    }
    // Cargo says `--bench` when it means it. Without, as in `cargo test --all-targets`, it only wants to see it start.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let named = |part: &Part| arguments.iter().any(|argument| argument == part.name());
    let some: Vec<Part> = Part::ALL.into_iter().filter(named).collect();
    settings()?;
    let mut below_floor = Vec::new();
    for part in if some.is_empty() { Part::ALL.to_vec() } else { some } {
        match part {
            Part::Creates => below_floor.extend(creates_in_process().await?),
            Part::Tls => below_floor.extend(creates_over_tls().await?),
            Part::Patches => status_patches().await?,
            Part::Watchers => watchers().await?,
            Part::Start => start_with_many_objects().await?,
        }
    }
    ensure!(
        below_floor.is_empty(),
        "below the floor: {}",
        below_floor.join(", ")
    );
    Ok(())
}

fn settings() -> Result<()> {
    let cores = std::thread::available_parallelism()?;
    println!("settings");
    println!("  {cores} cores, load average {}", machine::load_average()?);
    println!(
        "  {WRITERS} writers, bodies of {BODY_BYTES} bytes, a schema with list maps, defaults and two CEL rules"
    );
    println!(
        "  redb in {SCRATCH}, where fdatasync of 16 KiB takes {}",
        machine::sync_cost(Path::new(SCRATCH))?
    );
    println!("figures (CPU is of the whole process, clients included)");
    Ok(())
}

/// Prints a figure beside its floor, and says what it is when it is below.
fn floor(what: &'static str, span: &Span, floor: f64) -> Option<&'static str> {
    println!(
        "{what}: {span}; {:.2} times the floor of {floor:.0}/s",
        span.rate() / floor
    );
    (span.rate() < floor).then_some(what)
}

async fn creates_in_process() -> Result<Option<&'static str>> {
    let directory = TempDir::new_in(SCRATCH)?;
    let (server, store) = on_disk(directory.path()).await?;
    let client = local(&server);
    widgets::define(&client).await?;
    let span = create_many(&client, "c", CREATES).await?;
    let below = floor("durable creates in process", &span, FLOOR_IN_PROCESS);
    batches(&store);
    server.stop().await;
    Ok(below)
}

async fn creates_over_tls() -> Result<Option<&'static str>> {
    let directory = TempDir::new_in(SCRATCH)?;
    let (server, store) = on_disk(directory.path()).await?;
    widgets::define(&local(&server)).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let names = [address.ip().to_string()];
    let identity = tls::Identity::load_or_create(directory.path(), &names, jiff::Timestamp::now())?;
    let (stop, stopped) = oneshot::channel::<()>();
    let config = Arc::new(identity.server_config()?);
    let serving = tokio::spawn(tls::serve(
        listener,
        config,
        server.router(),
        tls::Limits::default(),
        async {
            // The sender goes away when the measurement failed, which is the end as well.
            let _ = stopped.await;
        },
    ));
    let path = directory.path().join("kubeconfig");
    let token = token();
    let file = kubeconfig::Kubeconfig {
        name: "bench",
        server: &format!("https://{address}"),
        ca_pem: identity.ca_pem(),
        token,
        namespace: "default",
    };
    file.write(&path)?;
    let options = KubeConfigOptions::default();
    let config = ClientConfig::from_custom_kubeconfig(Kubeconfig::read_from(&path)?, &options).await?;
    let span = create_many(&Client::try_from(config)?, "t", CREATES_TLS).await?;
    let below = floor("durable creates over TLS", &span, FLOOR_TLS);
    batches(&store);
    let _ = stop.send(());
    serving.await?;
    server.stop().await;
    Ok(below)
}

/// How the writes shared transactions.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52, for a reader")]
fn batches(store: &Store) {
    let stats = store.stats();
    println!(
        "  {} transactions, {:.1} writes in each, {} in the largest; a stored object takes {} bytes",
        stats.transactions,
        stats.writes as f64 / stats.transactions.max(1) as f64,
        stats.batch_writes_max,
        stats.bytes / stats.objects.max(1),
    );
}

/// Creates objects from `WRITERS` tasks, each with one request at a time.
async fn create_many(client: &Client, prefix: &'static str, count: usize) -> Result<Span> {
    let api = widgets::api(client);
    let measured = machine::Start::now()?;
    let tasks: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let api = api.clone();
            tokio::spawn(async move {
                for number in (writer..count).step_by(WRITERS) {
                    let widget = widgets::widget(&format!("{prefix}-{number}"));
                    api.create(&PostParams::default(), &widget).await?;
                }
                Ok::<_, kube::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    measured.end(count)
}

/// Server time of a status patch by server-side apply: requests one at a time, without a client and without a disk.
async fn status_patches() -> Result<()> {
    let (server, _) = in_memory().await?;
    let client = local(&server);
    widgets::define(&client).await?;
    widgets::api(&client)
        .create(&PostParams::default(), &widgets::widget("patched"))
        .await?;
    let router = server.local(user());
    let path = format!("{}/patched/status?fieldManager=bench&force=true", widgets::PATH);
    let mut times = Vec::with_capacity(STATUS_PATCHES);
    let measured = machine::Start::now()?;
    for number in 0..STATUS_PATCHES {
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(&path)
            .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(Body::from(widgets::status_patch("patched", number).to_string()))?;
        let started = Instant::now();
        answer(&router, request).await?;
        times.push(started.elapsed());
    }
    println!(
        "status patch by server-side apply, in memory: {}",
        spread(&mut times)
    );
    println!("  {}", measured.end(STATUS_PATCHES)?);
    server.stop().await;
    Ok(())
}

/// What 100 watchers cost: the same creates with and without them.
async fn watchers() -> Result<()> {
    let (server, _) = in_memory().await?;
    let client = local(&server);
    widgets::define(&client).await?;
    let alone = create_many(&client, "alone", WATCHED_CREATES).await?;
    let router = server.local(user());
    let list: Value = serde_json::from_slice(&get(&router, &format!("{}?limit=1", widgets::PATH)).await?)?;
    let version = list
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .context("no version")?;
    let path = format!("{}?watch=true&resourceVersion={version}", widgets::PATH);
    let mut seen = Vec::with_capacity(WATCHERS);
    for _ in 0..WATCHERS {
        let response = router
            .clone()
            .oneshot(Request::get(&path).body(Body::empty())?)
            .await?;
        ensure!(response.status() == StatusCode::OK, "a watch was refused");
        seen.push(tokio::spawn(count_events(response.into_body(), WATCHED_CREATES)));
    }
    let measured = machine::Start::now()?;
    let watched = create_many(&client, "watched", WATCHED_CREATES).await?;
    for task in seen {
        task.await??;
    }
    let delivered = measured.end(WATCHED_CREATES * WATCHERS)?;
    println!("creates in memory, nobody watches: {alone}");
    println!(
        "creates in memory, {WATCHERS} watch: {watched}; {:.2} of the rate alone",
        watched.rate() / alone.rate()
    );
    println!("  events delivered, creates included: {delivered}");
    server.stop().await;
    Ok(())
}

async fn count_events(body: Body, count: usize) -> Result<()> {
    let mut chunks = body.into_data_stream();
    let mut seen = 0;
    while seen < count {
        let chunk: Bytes = chunks.next().await.context("a watch ended early")??;
        seen += chunk.split(|byte| *byte == b'\n').count() - 1;
    }
    ensure!(seen == count, "a watch saw {seen} events instead of {count}");
    Ok(())
}

/// A start with many stored objects, lists of some of them, and the memory they take.
async fn start_with_many_objects() -> Result<()> {
    let directory = TempDir::new_in(SCRATCH)?;
    let (server, _) = on_disk(directory.path()).await?;
    let client = local(&server);
    widgets::define(&client).await?;
    let filled = create_many(&client, "stored", STORED_OBJECTS).await?;
    println!("filling with {STORED_OBJECTS} objects: {filled}");
    server.stop().await;
    let status = Command::new(std::env::current_exe()?)
        .arg(START)
        .arg(directory.path())
        .status()?;
    if !status.success() {
        bail!("the process that starts with many objects failed");
    }
    Ok(())
}

/// Runs in a process of its own, on what `start_with_many_objects` left.
async fn started_with_many_objects(directory: &Path) -> Result<()> {
    let memory_before = machine::resident_bytes()?;
    let measured = machine::Start::now()?;
    let (server, store) = on_disk(directory).await?;
    let started = measured.end(1)?;
    let grown = machine::resident_bytes()?.saturating_sub(memory_before);
    let stats = store.stats();
    ensure!(
        stats.objects >= STORED_OBJECTS as u64,
        "objects are missing after the start"
    );
    println!(
        "start with {} stored objects: {:.0} ms, {:.0} ms CPU",
        stats.objects,
        started.wall.as_secs_f64() * 1e3,
        started.cpu.as_secs_f64() * 1e3
    );
    println!(
        "memory per stored object: {} bytes resident, {} of them its JSON",
        grown / stats.objects,
        stats.bytes / stats.objects
    );
    let router = server.local(user());
    let path = format!("{}?limit={LIST_LENGTH}", widgets::PATH);
    let mut times = Vec::with_capacity(LISTS);
    for _ in 0..LISTS {
        let started = Instant::now();
        get(&router, &path).await?;
        times.push(started.elapsed());
    }
    let page: Value = serde_json::from_slice(&get(&router, &path).await?)?;
    let length = page.get("items").and_then(Value::as_array).map_or(0, Vec::len);
    ensure!(
        length == LIST_LENGTH,
        "a list of {LIST_LENGTH} has {length} items"
    );
    println!("list of {LIST_LENGTH}: {}", spread(&mut times));
    server.stop().await;
    Ok(())
}

async fn get(router: &Router, path: &str) -> Result<Bytes> {
    answer(router, Request::get(path).body(Body::empty())?).await
}

/// The body of a good answer.
async fn answer(router: &Router, request: Request<Body>) -> Result<Bytes> {
    let response = router.clone().oneshot(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    ensure!(
        status.is_success(),
        "{status}: {}",
        String::from_utf8_lossy(&body)
    );
    Ok(body)
}

async fn on_disk(directory: &Path) -> Result<(Server, Store)> {
    start(Store::open(&directory.join("bench.redb"), Limits::default())?).await
}

async fn in_memory() -> Result<(Server, Store)> {
    start(Store::in_memory(Limits::default())).await
}

async fn start(store: Store) -> Result<(Server, Store)> {
    let mut config = Config::new(store.clone());
    config.tokens = vec![Token::new(token(), user())];
    Ok((Server::start(config).await?, store))
}

fn token() -> &'static str {
    "bench"
}

fn user() -> User {
    User::system("bench")
}

fn local(server: &Server) -> Client {
    Client::new(server.local(user()), "default")
}

fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |percent: usize| {
        times
            .get((times.len().saturating_sub(1)) * percent / 100)
            .map_or(0, Duration::as_micros)
    };
    format!("median {} µs, 99th percentile {} µs", at(50), at(99))
}
