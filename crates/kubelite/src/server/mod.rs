//! The server: from a request to an answer.
//!
//! `handler` takes a request apart, `verbs`, `delete`, `read` and `watch` do what it asks, `write` holds the steps that all
//! writes share, `present` shapes the answer. `housekeeping` runs beside them.

mod auth;
mod client;
mod crd;
mod delete;
mod gc;
mod handler;
mod housekeeping;
mod logs;
mod metadata;
mod metrics;
mod namespaces;
mod plain;
mod present;
mod read;
mod registry;
mod respond;
mod reviews;
mod select;
mod target;
mod verbs;
mod watch;
mod write;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use axum::Router;
use tokio::{sync::watch as signal, task::JoinHandle};

pub(crate) use self::client::{Client, Expected};
pub use self::{
    auth::Token,
    logs::{LogRequest, PodLogs},
};
use self::{metrics::Metrics, registry::Registry};
pub use crate::builtin::User;
use crate::{
    clock::{Clock, Ids, SystemClock},
    defects::{Defect, Defects},
    error::ApiError,
    resource::Resource,
    store::{Collection, Store},
};

/// How a server is set up.
#[derive(Debug)]
pub struct Config {
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub ids: Ids,
    /// Who may call over a socket. In-process callers are trusted.
    pub tokens: Vec<Token>,
    /// Where pod logs come from; without it the `log` subresource answers that nothing runs pods here.
    pub logs: Option<Arc<dyn PodLogs>>,
    #[doc(hidden)]
    pub defects: Defects,
}

impl Config {
    /// A server on the machine's clock that nobody can call over a socket yet.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            clock: Arc::new(SystemClock),
            ids: Ids::random(),
            tokens: Vec::new(),
            logs: None,
            defects: Defects::default(),
        }
    }
}

/// What every request and every task shares.
#[derive(Debug)]
pub(crate) struct Core {
    store: Store,
    clock: Arc<dyn Clock>,
    ids: Ids,
    tokens: Vec<Token>,
    logs: Option<Arc<dyn PodLogs>>,
    defects: Defects,
    registry: RwLock<Arc<Registry>>,
    /// The kinds of the established definitions, by the name of the definition.
    custom: Mutex<BTreeMap<String, Arc<Resource>>>,
    metrics: Metrics,
    stop: signal::Sender<bool>,
}

impl Core {
    fn registry(&self) -> Arc<Registry> {
        self.registry
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Resolves when the server is told to stop.
    async fn stopping(&self) {
        let mut stop = self.stop.subscribe();
        // An error means that the sender is gone, which is the end as well.
        let _ = stop.wait_for(|stopping| *stopping).await;
    }

    fn serve_custom(&self, definition: &str, mut resource: Resource) {
        if self.defects.has(Defect::ShortNames) {
            resource.short_names.clear();
        }
        let mut custom = self.custom.lock().unwrap_or_else(PoisonError::into_inner);
        custom.insert(definition.to_owned(), Arc::new(resource));
        self.replace_registry(&custom);
    }

    fn stop_serving(&self, definition: &str) {
        let mut custom = self.custom.lock().unwrap_or_else(PoisonError::into_inner);
        if custom.remove(definition).is_some() {
            self.replace_registry(&custom);
        }
    }

    /// The definition behind a collection of custom resources.
    fn definition_of(&self, collection: &Collection) -> Option<String> {
        let custom = self.custom.lock().unwrap_or_else(PoisonError::into_inner);
        custom
            .iter()
            .find(|(_, resource)| resource.collection == *collection)
            .map(|(name, _)| name.clone())
    }

    fn replace_registry(&self, custom: &BTreeMap<String, Arc<Resource>>) {
        let fresh = Arc::new(Registry::new(custom.values().cloned()));
        *self.registry.write().unwrap_or_else(PoisonError::into_inner) = fresh;
    }
}

/// A running API server. Dropping it stops its tasks.
#[derive(Debug)]
pub struct Server {
    core: Arc<Core>,
    housekeeping: JoinHandle<()>,
}

impl Server {
    /// Starts a server on a store: serves what the stored definitions say and begins to follow changes.
    pub async fn start(config: Config) -> Result<Self, ApiError> {
        let core = Arc::new(Core {
            store: config.store,
            clock: config.clock,
            ids: config.ids,
            tokens: config.tokens,
            logs: config.logs,
            defects: config.defects,
            registry: RwLock::new(Arc::new(Registry::new([]))),
            custom: Mutex::default(),
            metrics: Metrics::default(),
            stop: signal::Sender::new(false),
        });
        core.load_definitions();
        core.make_initial_namespaces().await?;
        let housekeeping = tokio::spawn(housekeeping::run(core.clone()));
        Ok(Self { core, housekeeping })
    }

    /// The service for sockets: every request needs a known bearer token.
    pub fn router(&self) -> Router {
        handler::router(self.core.clone(), None)
    }

    /// The service for callers in the same process, who are trusted to be who they say.
    pub fn local(&self, user: User) -> Router {
        handler::router(self.core.clone(), Some(user))
    }

    /// For controllers in the same process that write as `manager`.
    pub(crate) fn client(&self, manager: &'static str) -> Client {
        Client::new(self.core.clone(), manager)
    }

    /// Ends watches and tasks, and closes the store.
    pub async fn stop(mut self) {
        self.core.stop.send_replace(true);
        // The task ends by itself; if it panicked there is nothing left to end.
        let _ = (&mut self.housekeeping).await;
        self.core.store.close();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.core.stop.send_replace(true);
        self.housekeeping.abort();
    }
}
