//! A server, an executor and a client, for one test.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, LogParams, PostParams},
    runtime::wait::await_condition,
};
use kubelite::{
    node::executor::{Backoff, Config, Executor, PodLogStore, SandboxPolicy},
    server::{Config as ServerConfig, Server, User},
    store::{Limits, Store},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Only a broken executor takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
pub(crate) const NODE: &str = "here";
/// How often every other task has its turn before a slow API server hears of something.
const TURNS: usize = 100;

pub(crate) struct Cluster {
    executor: Option<Executor>,
    pub(crate) client: Client,
    logs: PodLogStore,
    _server: Server,
    /// The last to go, when nobody writes to it any more.
    pub(crate) dir: TempDir,
}

/// A directory outside of `/tmp`, which no pod sees anyway.
pub(crate) fn directory() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn config(dir: &Path) -> Config {
    let home = dir.join("home");
    fs::create_dir_all(&home).unwrap();
    Config {
        home: Some(home),
        shim: PathBuf::from(env!("CARGO_BIN_EXE_kubelite-shim")),
        backoff: Backoff {
            initial: Duration::from_millis(1),
            max: Duration::from_millis(10),
        },
        ..Config::new(NODE, &dir.join("data"))
    }
}

pub(crate) async fn server(store: Store, logs: &PodLogStore) -> Server {
    let mut config = ServerConfig::new(store);
    config.logs = Some(Arc::new(logs.clone()));
    Server::start(config).await.unwrap()
}

impl Cluster {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn unsandboxed() -> Self {
        Self::with(|config| config.sandbox = SandboxPolicy::Off).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::connected(change, Client::clone).await
    }

    /// With an API server that everybody else gets ahead of before it hears the executor.
    pub(crate) async fn slow() -> Self {
        let slow = |client: &Client| {
            let client = client.clone();
            let service = tower::service_fn(move |request| {
                let client = client.clone();
                async move {
                    for _ in 0..TURNS {
                        tokio::task::yield_now().await;
                    }
                    client.send(request).await
                }
            });
            Client::new(service, "default")
        };
        Self::connected(|_| {}, slow).await
    }

    async fn connected(change: impl FnOnce(&mut Config), connect: impl FnOnce(&Client) -> Client) -> Self {
        let dir = directory();
        let logs = PodLogStore::default();
        let server = server(Store::in_memory(Limits::default()), &logs).await;
        let client = Client::new(server.local(User::system("admin")), "default");
        let mut config = config(dir.path());
        change(&mut config);
        let executor = Executor::start(connect(&client), config, logs.clone())
            .await
            .unwrap();
        Self {
            dir,
            client,
            logs,
            executor: Some(executor),
            _server: server,
        }
    }

    pub(crate) fn executor(&self) -> &Executor {
        self.executor.as_ref().unwrap()
    }

    /// Stops the executor. Its pods go on.
    pub(crate) async fn stop(&mut self) {
        if let Some(executor) = self.executor.take() {
            executor.stop().await;
        }
    }

    /// Starts another executor on the same data.
    pub(crate) async fn restart(&mut self) {
        self.restart_with(|_| {}).await;
    }

    pub(crate) async fn restart_with(&mut self, change: impl FnOnce(&mut Config)) {
        self.stop().await;
        let mut config = config(self.dir.path());
        change(&mut config);
        let executor = Executor::start(self.client.clone(), config, self.logs.clone()).await;
        self.executor = Some(executor.unwrap());
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::default_namespaced(self.client.clone());
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    /// Creates a pod on the node.
    pub(crate) async fn pod(&self, name: &str, spec: Value) -> Pod {
        self.create(pod(name, spec)).await
    }

    /// Creates a pod whose one container runs a shell script.
    pub(crate) async fn script(&self, name: &str, script: &str) -> Pod {
        self.pod(name, json!({"containers": [shell("main", script)]}))
            .await
    }

    /// Waits until the pod is as wanted, and returns it.
    pub(crate) async fn until(&self, name: &str, wanted: impl Fn(&Pod) -> bool + Send) -> Pod {
        let condition = |pod: Option<&Pod>| pod.is_some_and(&wanted);
        match tokio::time::timeout(PATIENCE, await_condition(self.pods(), name, condition)).await {
            Ok(pod) => pod.unwrap().unwrap(),
            Err(_) => {
                let pod = self.pods().get(name).await.unwrap();
                panic!("{name} did not become as wanted: {:#}", json!(pod.status))
            }
        }
    }

    /// Waits until the pod has ended.
    pub(crate) async fn over(&self, name: &str) -> Pod {
        self.until(name, |pod| matches!(phase(pod), "Succeeded" | "Failed"))
            .await
    }

    pub(crate) async fn running(&self, name: &str) -> Pod {
        self.until(name, |pod| phase(pod) == "Running").await
    }

    /// Waits until nothing is left of the pod, in the API and on disk.
    pub(crate) async fn gone(&self, pod: &Pod) {
        let (name, uid) = (
            pod.metadata.name.clone().unwrap(),
            pod.metadata.uid.clone().unwrap(),
        );
        let gone = |found: Option<&Pod>| found.is_none_or(|found| found.metadata.uid.as_ref() != Some(&uid));
        tokio::time::timeout(PATIENCE, await_condition(self.pods(), &name, gone))
            .await
            .expect("the pod is removed")
            .unwrap();
    }

    pub(crate) async fn delete(&self, name: &str, grace: Option<u32>) {
        let params = DeleteParams {
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        self.pods().delete(name, &params).await.unwrap();
    }

    pub(crate) async fn log(&self, name: &str) -> String {
        self.pods().logs(name, &LogParams::default()).await.unwrap()
    }

    /// Runs a script to its end and returns what it wrote.
    pub(crate) async fn output(&self, name: &str, script: &str) -> String {
        self.script(name, script).await;
        let pod = self.over(name).await;
        let log = self.log(name).await;
        assert_eq!(phase(&pod), "Succeeded", "{log}\n{:#}", json!(pod.status));
        log
    }

    pub(crate) fn pod_dir(&self, pod: &Pod) -> PathBuf {
        self.dir
            .path()
            .join("data/pods")
            .join(pod.metadata.uid.as_ref().unwrap())
    }
}

impl Drop for Cluster {
    /// Pods outlive their executor, but not their test.
    fn drop(&mut self) {
        self.executor = None;
        kill_all(self.dir.path());
    }
}

/// Kills the processes of every pod below a test's directory, and with them all that they hold.
pub(crate) fn kill_all(dir: &Path) {
    let entries = |path: PathBuf| {
        fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
    };
    let containers = entries(dir.join("data/pods")).flat_map(|pod| entries(pod.join("containers")));
    for attempt in containers.flat_map(entries) {
        if attempt.join("exit.json").exists() {
            continue;
        }
        let pid = fs::read_to_string(attempt.join("pid.json")).ok();
        let pid = pid.and_then(|pid| rustix::process::Pid::from_raw(pid.parse().ok()?));
        if let Some(pid) = pid {
            // It may have ended by itself meanwhile.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

pub(crate) fn pod(name: &str, mut spec: Value) -> Value {
    spec["nodeName"] = NODE.into();
    if spec.get("restartPolicy").is_none() {
        spec["restartPolicy"] = "Never".into();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

pub(crate) fn shell(name: &str, script: &str) -> Value {
    json!({"name": name, "image": "none", "command": ["/bin/sh", "-c", script]})
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("")
}

/// The status of a container, init containers included.
pub(crate) fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
        .find(|container| container.name == name)
}

pub(crate) fn ended<'a>(pod: &'a Pod, name: &str) -> &'a ContainerStateTerminated {
    let state = container(pod, name).and_then(|container| container.state.as_ref());
    state
        .and_then(|state| state.terminated.as_ref())
        .unwrap_or_else(|| panic!("{name} has ended: {:#}", json!(pod.status)))
}

/// The reason for which a container waits.
pub(crate) fn waits_for<'a>(pod: &'a Pod, name: &str) -> Option<(&'a str, &'a str)> {
    let waiting = container(pod, name)?.state.as_ref()?.waiting.as_ref()?;
    Some((
        waiting.reason.as_deref()?,
        waiting.message.as_deref().unwrap_or(""),
    ))
}

pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    conditions
        .find(|condition| condition.type_ == kind)
        .map(|condition| condition.status.as_str())
}

/// How many processes of this machine have a word in their command line.
pub(crate) fn processes_with(word: &str) -> usize {
    let found = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.windows(word.len()).any(|part| part == word.as_bytes())
    });
    found.count()
}

/// Waits for something that no event tells of.
pub(crate) async fn eventually(what: &str, wanted: impl Fn() -> bool) {
    let waiting = async {
        while !wanted() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "{what}");
}
