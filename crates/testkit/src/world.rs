//! The stage: kubelite with its objects in memory, its Job controller and scheduler, and the hands of the people who use it.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::Router;
use http::{Method, Request};
use jangar_api::Kind;
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, api::PostParams};
use kubelite::{
    clock::{Ids, TokioClock},
    node::{Config as NodeConfig, Node},
    server::{Config, Server, User},
    store::{Change, Collection, Expect, Key, Limits, Object, Store, Write},
};
use serde_json::Value;

use crate::{
    clock::WallClock,
    scenario::Place,
    trace::{Trace, fingerprint},
};

/// Where everything happens.
pub const NAMESPACE: &str = "agents";
/// The name of the one node.
pub const NODE: &str = "node-1";
/// When the world begins. Any time will do.
const BEGINNING: &str = "2026-03-01T12:00:00Z";
/// The node's heartbeat matters to nothing here, and each costs as much as a request.
const HEARTBEAT: Duration = Duration::from_hours(1);

/// The kinds that the controllers look at.
const KINDS: [Kind; 13] = [
    Kind::Agent,
    Kind::AgentProvider,
    Kind::AgentRun,
    Kind::ApprovalPolicy,
    Kind::ImplementationSpec,
    Kind::Memory,
    Kind::Orchestration,
    Kind::OrchestrationRun,
    Kind::Signal,
    Kind::SignalDelivery,
    Kind::VersionControlProvider,
    Kind::Tool,
    Kind::ToolRun,
];

/// A running API server with a node's controllers.
#[derive(Debug)]
pub struct World {
    server: Server,
    store: Store,
    clock: TokioClock,
    wall: Arc<WallClock>,
    trace: Arc<Trace>,
    // Ends when the world does.
    _node: Node,
}

impl World {
    pub async fn start(definitions: &Definitions, seed: u64, place: &Place) -> Self {
        let store = Store::in_memory(Limits::default());
        definitions.put_into(&store).await;
        let clock = TokioClock::starting_at(BEGINNING.parse().expect("a time"));
        let trace = Arc::new(Trace::starting_now());
        let server = Server::start(Config {
            clock: Arc::new(clock),
            ids: Ids::seeded(seed),
            ..Config::new(store.clone())
        })
        .await
        .expect("the server starts");
        let config = NodeConfig {
            name: NODE.to_owned(),
            pods: place.slots,
            ahead: 0,
            lease_renewal: HEARTBEAT,
            job_sync_delay: place.job_sync_delay,
            controllers_on: None,
        };
        let node = Node::start(&server, &config).await.expect("the node starts");
        Self {
            server,
            store,
            clock,
            wall: Arc::new(WallClock::new(clock)),
            trace,
            _node: node,
        }
    }

    /// The API, for somebody who is trusted to be who they say.
    pub fn api(&self, user: &str) -> Router {
        self.server.local(User::system(user))
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The time of day of the cluster itself.
    pub fn clock(&self) -> TokioClock {
        self.clock
    }

    /// The time of day that the controllers are given.
    pub fn wall(&self) -> &Arc<WallClock> {
        &self.wall
    }

    pub fn trace(&self) -> &Arc<Trace> {
        &self.trace
    }

    /// Somebody who uses the API by hand.
    pub fn person(&self, name: &'static str) -> Person {
        Person {
            name,
            client: Client::new(self.api(name), NAMESPACE),
            trace: Arc::clone(&self.trace),
        }
    }
}

/// The collections that matter here.
pub fn runs() -> Collection {
    Collection::new("agents.proompteng.ai", "agentruns")
}

pub fn orchestration_runs() -> Collection {
    Collection::new("orchestration.proompteng.ai", "orchestrationruns")
}

pub fn tool_runs() -> Collection {
    Collection::new("tools.proompteng.ai", "toolruns")
}

/// Whatever has work done and ends.
pub fn all_runs() -> [Collection; 2] {
    [runs(), tool_runs()]
}

pub fn jobs() -> Collection {
    Collection::new("batch", "jobs")
}

pub fn secrets() -> Collection {
    Collection::new("", "secrets")
}

pub fn config_maps() -> Collection {
    Collection::new("", "configmaps")
}

pub fn events() -> Collection {
    Collection::new("events.k8s.io", "events")
}

pub fn pods() -> Collection {
    Collection::new("", "pods")
}

/// The objects of a collection, in the order of their names.
pub fn objects(store: &Store, collection: &Collection) -> Vec<Object> {
    let snapshot = store.snapshot(collection, None).expect("the present is known");
    snapshot
        .iter(Some(NAMESPACE), None)
        .map(|(_, object)| object.clone())
        .collect()
}

/// The stored definitions of the kinds, and the namespace. Making them takes as long as a whole simulation, so every world
/// gets copies.
#[derive(Debug)]
pub struct Definitions(Vec<(Collection, Key, Value)>);

impl Definitions {
    /// Makes them at the first call. Not to be called inside of a runtime.
    pub fn get() -> &'static Self {
        static MADE: OnceLock<Definitions> = OnceLock::new();
        MADE.get_or_init(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .expect("a runtime");
            runtime.block_on(Self::make())
        })
    }

    async fn make() -> Self {
        let store = Store::in_memory(Limits::default());
        let server = Server::start(Config {
            clock: Arc::new(TokioClock::starting_at(BEGINNING.parse().expect("a time"))),
            ids: Ids::seeded(0),
            ..Config::new(store.clone())
        })
        .await
        .expect("the server starts");
        let client = Client::new(server.local(User::system("admin")), NAMESPACE);
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for kind in KINDS {
            let created = definitions.create(&PostParams::default(), &kind.crd()).await;
            created.expect("a definition is accepted");
        }
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(NAMESPACE.to_owned());
        let created = Api::all(client).create(&PostParams::default(), &namespace).await;
        created.expect("a namespace is accepted");
        // Time moves only once the server has nothing left to do: the kinds are established.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut all = Vec::new();
        for collection in store.collections() {
            let snapshot = store.snapshot(&collection, None).expect("the present is known");
            for (key, object) in snapshot.iter(None, None) {
                all.push((collection.clone(), key.clone(), object.value()));
            }
        }
        Self(all)
    }

    async fn put_into(&self, store: &Store) {
        for (collection, key, value) in &self.0 {
            let write = Write {
                collection: collection.clone(),
                key: key.clone(),
                expect: Expect::Absent,
                change: Change::Put(value.clone()),
            };
            store.commit(write).await.expect("an empty store takes it");
        }
    }
}

/// Somebody who uses the API by hand, and whom no fault concerns.
#[derive(Clone)]
pub struct Person {
    name: &'static str,
    client: Client,
    trace: Arc<Trace>,
}

impl fmt::Debug for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Person")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Person {
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    pub async fn create(&self, collection: &str, object: &Value) {
        self.send(Method::POST, collection, "application/json", object)
            .await;
    }

    pub async fn merge(&self, path: &str, patch: &Value) {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch)
            .await;
    }

    pub async fn delete(&self, path: &str, options: &Value) {
        self.send(Method::DELETE, path, "application/json", options).await;
    }

    /// Sends a request; that it is refused, because the object is gone for example, is the person's own trouble.
    async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) {
        let body = serde_json::to_vec(body).expect("JSON can be written");
        let print = fingerprint(&body);
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header("content-type", content_type)
            .body(body)
            .expect("a request");
        let answer = match self.client.request::<Value>(request).await {
            Ok(_) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        self.trace
            .note(self.name, format_args!("{method} {path} #{print:08x}: {answer}"));
    }
}
