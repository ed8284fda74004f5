//! How fast kubelite is, with every setting printed beside the figures. Run by `make bench`.
//!
//! The two figures with a floor are durable creates per second, in process and over TLS. The rest is reported so that a
//! change for the worse is seen.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api, Client, Config as ClientConfig,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
};
use kubelite::{
    kubeconfig::{self, Kubeconfig as Written},
    server::{Config, Server, Token, User},
    store::{Limits, Store},
    tls,
};
use serde_json::{Value, json};

const WRITERS: usize = 64;
const OBJECT_BYTES: usize = 2048;
const CREATES: usize = 20_000;
const CREATES_TLS: usize = 10_000;
const STATUS_PATCHES: usize = 2_000;
const WATCHERS: usize = 100;
const WATCHED_CREATES: usize = 2_000;
const STORED_OBJECTS: usize = 100_000;
const LISTS: usize = 200;
const LIST_LENGTH: u32 = 500;
const FLOOR_IN_PROCESS: f64 = 5_000.0;
const FLOOR_TLS: f64 = 2_000.0;
const TOKEN: &str = "bench-token";

#[tokio::main]
async fn main() -> Result<()> {
    // `cargo test --benches` and the like only want to know that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    let cores = std::thread::available_parallelism()?;
    println!(
        "settings: {cores} cores, {OBJECT_BYTES}-byte objects, {WRITERS} writers, redb on {}",
        std::env::temp_dir().display()
    );
    let creates = creates_in_process().await?;
    floor(
        &format!("durable creates in process ({CREATES} objects)"),
        creates,
        FLOOR_IN_PROCESS,
    );
    let creates_tls = creates_over_tls().await?;
    floor(
        &format!("durable creates over TLS ({CREATES_TLS} objects)"),
        creates_tls,
        FLOOR_TLS,
    );
    status_patches().await?;
    watchers().await?;
    many_objects().await?;
    ensure!(
        creates >= FLOOR_IN_PROCESS && creates_tls >= FLOOR_TLS,
        "a figure is below its floor"
    );
    Ok(())
}

fn floor(what: &str, per_second: f64, floor: f64) {
    println!(
        "{what}: {per_second:.0}/s, {:.2} times the floor of {floor:.0}/s",
        per_second / floor
    );
}

async fn creates_in_process() -> Result<f64> {
    let directory = tempfile::tempdir()?;
    let server = on_disk(directory.path()).await?;
    let client = local(&server);
    define(&client).await?;
    let rate = create_many(&client, "c", CREATES).await?;
    server.stop().await;
    Ok(rate)
}

async fn creates_over_tls() -> Result<f64> {
    let directory = tempfile::tempdir()?;
    let server = on_disk(directory.path()).await?;
    define(&local(&server)).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let identity = tls::Identity::load_or_make(directory.path(), &["127.0.0.1".to_owned()])?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(tls::serve(
        listener,
        identity.server_config()?,
        server.router(),
        async {
            let _ = stopped.await;
        },
    ));
    let path = directory.path().join("kubeconfig");
    let written = Written {
        server: format!("https://{address}"),
        certificate_authority: identity.ca_pem().to_owned(),
        token: TOKEN.to_owned(),
        namespace: "default".to_owned(),
        name: "bench".to_owned(),
    };
    kubeconfig::write(&path, &written)?;
    let config =
        ClientConfig::from_custom_kubeconfig(Kubeconfig::read_from(&path)?, &KubeConfigOptions::default())
            .await?;
    let rate = create_many(&Client::try_from(config)?, "t", CREATES_TLS).await?;
    let _ = stop.send(());
    serving.await??;
    server.stop().await;
    Ok(rate)
}

/// Creates objects from `WRITERS` tasks and gives the rate at which they were acknowledged.
async fn create_many(client: &Client, prefix: &str, count: usize) -> Result<f64> {
    let api = widgets(client);
    let started = Instant::now();
    let tasks: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (api, prefix) = (api.clone(), prefix.to_owned());
            tokio::spawn(async move {
                for number in (writer..count).step_by(WRITERS) {
                    api.create(&PostParams::default(), &widget(&format!("{prefix}-{number}")))
                        .await?;
                }
                Ok::<_, kube::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(per_second(count, started.elapsed()))
}

/// Server time of a status patch by server-side apply, one at a time, without a disk.
async fn status_patches() -> Result<()> {
    let server = start(Store::in_memory(Limits::default())).await?;
    let client = local(&server);
    define(&client).await?;
    let api = widgets(&client);
    api.create(&PostParams::default(), &widget("patched")).await?;
    let params = PatchParams::apply("bench").force();
    let mut times = Vec::with_capacity(STATUS_PATCHES);
    for number in 0..STATUS_PATCHES {
        let patch = json!({
            "apiVersion": "bench.example.com/v1", "kind": "Widget", "metadata": {"name": "patched"},
            "status": {"phase": format!("Step{number}"), "conditions": [
                {"type": "Ready", "status": "True", "reason": "Bench", "message": number.to_string()},
                {"type": "Complete", "status": "False", "reason": "Bench", "message": "running"}]},
        });
        let started = Instant::now();
        api.patch_status("patched", &params, &Patch::Apply(&patch))
            .await?;
        times.push(started.elapsed());
    }
    println!(
        "status patch by server-side apply ({STATUS_PATCHES}, in process, in memory): {}",
        spread(&mut times)
    );
    server.stop().await;
    Ok(())
}

/// What 100 watchers cost: the same creates with and without them.
async fn watchers() -> Result<()> {
    let server = start(Store::in_memory(Limits::default())).await?;
    let client = local(&server);
    define(&client).await?;
    let alone = create_many(&client, "alone", WATCHED_CREATES).await?;
    let mut seen = Vec::new();
    for _ in 0..WATCHERS {
        let mut stream = widgets(&client)
            .watch(&WatchParams::default(), "0")
            .await?
            .boxed();
        seen.push(tokio::spawn(async move {
            let mut count = 0;
            while count < 2 * WATCHED_CREATES {
                match stream.try_next().await? {
                    Some(WatchEvent::Added(_)) => count += 1,
                    Some(_) => {}
                    None => break,
                }
            }
            Ok::<_, kube::Error>(count)
        }));
    }
    let started = Instant::now();
    let watched = create_many(&client, "watched", WATCHED_CREATES).await?;
    for task in seen {
        ensure!(task.await?? == 2 * WATCHED_CREATES, "a watcher missed events");
    }
    println!(
        "creates in memory: {alone:.0}/s alone, {watched:.0}/s with {WATCHERS} watchers (ratio {:.2}); every event at every \
         watcher after {:.0} ms",
        watched / alone,
        started.elapsed().as_secs_f64() * 1000.0
    );
    server.stop().await;
    Ok(())
}

/// Start with 100,000 objects, a list of 500, and memory per object.
async fn many_objects() -> Result<()> {
    let directory = tempfile::tempdir()?;
    {
        let server = on_disk(directory.path()).await?;
        let client = local(&server);
        define(&client).await?;
        create_many(&client, "stored", STORED_OBJECTS).await?;
        server.stop().await;
    }
    let memory_before = resident_bytes()?;
    let started = Instant::now();
    let server = on_disk(directory.path()).await?;
    println!(
        "start with {STORED_OBJECTS} stored objects: {:.0} ms",
        started.elapsed().as_secs_f64() * 1000.0
    );
    let grown = resident_bytes()?.saturating_sub(memory_before);
    println!(
        "memory per stored object: {} bytes (resident, {OBJECT_BYTES} of them its JSON)",
        grown / STORED_OBJECTS as u64
    );
    let router = server.local(User::system("bench"));
    let mut times = Vec::with_capacity(LISTS);
    for _ in 0..LISTS {
        let path = format!("/apis/bench.example.com/v1/namespaces/default/widgets?limit={LIST_LENGTH}");
        let request = http::Request::get(path).body(axum::body::Body::empty())?;
        let started = Instant::now();
        let response = tower::ServiceExt::oneshot(router.clone(), request).await?;
        axum::body::to_bytes(response.into_body(), usize::MAX).await?;
        times.push(started.elapsed());
    }
    println!(
        "list of {LIST_LENGTH} out of {STORED_OBJECTS} ({LISTS}): {}",
        spread(&mut times)
    );
    let page = widgets(&local(&server))
        .list(&ListParams::default().limit(LIST_LENGTH))
        .await?;
    ensure!(page.items.len() == LIST_LENGTH as usize, "the list is short");
    server.stop().await;
    Ok(())
}

async fn on_disk(directory: &Path) -> Result<Server> {
    start(Store::open(&directory.join("bench.redb"), Limits::default())?).await
}

async fn start(store: Store) -> Result<Server> {
    let mut config = Config::new(store);
    config.tokens = vec![Token::new(TOKEN, User::system("bench"))];
    Ok(Server::start(config).await?)
}

fn local(server: &Server) -> Client {
    Client::new(server.local(User::system("bench")), "default")
}

fn widgets(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("bench.example.com", "v1", "Widget");
    Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind))
}

fn widget(name: &str) -> DynamicObject {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("bench.example.com", "v1", "Widget"));
    let mut object = DynamicObject::new(name, &kind);
    object.metadata.labels = Some([("app".to_owned(), "bench".to_owned())].into());
    let steps: Vec<Value> = (0..8)
        .map(|number| json!({"name": format!("step-{number}"), "image": "example.com/image:1", "retries": 2}))
        .collect();
    let padding = "x".repeat(OBJECT_BYTES - 1400);
    object.data = json!({ "spec": { "color": "red", "size": 3, "note": padding, "steps": steps } });
    object
}

async fn define(client: &Client) -> Result<()> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.bench.example.com"},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "x-kubernetes-validations": [{"rule": "self.metadata.name.size() <= 63"}],
                    "properties": {
                        "spec": {
                            "type": "object", "required": ["color"],
                            "x-kubernetes-validations": [{"rule": "self.size >= 0"}],
                            "properties": {
                                "color": {"type": "string", "enum": ["red", "green"]},
                                "size": {"type": "integer", "default": 1},
                                "note": {"type": "string", "maxLength": 4096},
                                "steps": {
                                    "type": "array", "maxItems": 100,
                                    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                                    "items": {"type": "object", "required": ["name"], "properties": {
                                        "name": {"type": "string"}, "image": {"type": "string"},
                                        "retries": {"type": "integer", "minimum": 0}}}}}},
                        "status": {
                            "type": "object",
                            "properties": {
                                "phase": {"type": "string"},
                                "conditions": {
                                    "type": "array",
                                    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                                    "items": {"type": "object", "required": ["type"], "properties": {
                                        "type": {"type": "string"}, "status": {"type": "string"},
                                        "reason": {"type": "string"}, "message": {"type": "string"}}}}}}}}}}]}
    });
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let definition: DynamicObject = serde_json::from_value(definition)?;
    api.create(&PostParams::default(), &definition).await?;
    let established = stream::unfold((), |()| async {
        Some((api.get("widgets.bench.example.com").await, ()))
    });
    let mut established = std::pin::pin!(established.take(10_000));
    while let Some(found) = established.next().await {
        let conditions = found?
            .data
            .pointer("/status/conditions")
            .cloned()
            .unwrap_or_default();
        if conditions.to_string().contains("Established") {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
    Err(anyhow::anyhow!("the definition was never established"))
}

fn per_second(count: usize, time: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / time.as_secs_f64()
}

fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_micros();
    format!("median {} µs, 99th percentile {} µs", at(50), at(99))
}

fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/statm")
        .context("memory is read from /proc, which only Linux has")?;
    let pages: u64 = status.split(' ').nth(1).context("statm is short")?.parse()?;
    Ok(pages * 4096)
}
