//! What callers can do, whatever protocol they speak. HTTP and gRPC only translate.

pub mod approvals;
pub mod create;
pub mod cursor;
pub mod events;
pub mod explain;
mod gates;
pub mod logs;
pub mod objects;
pub mod pods;
pub mod policy;
pub mod runs;
pub mod status;
pub mod stream;
pub mod submit;

use std::{sync::Arc, time::Duration};

use jangar_engine::settings::Settings;
use jiff::Timestamp;
use kube::Client;
use tokio::sync::{Semaphore, watch};

use crate::{
    access::{Gatekeeper, Identity},
    audit::{Audit, Deed, Entry, Outcome, detail},
    history::{Counted, History, Pulse},
    metrics::Metrics,
    refusal::{Refusal, Trouble},
    tls::Certificate,
    webhooks::Webhooks,
    world::World,
};

/// How long the API server has for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Streams at once, of all callers together. Each is a task and a number; the changes are shared.
const STREAMS_MAX: usize = 2_048;
/// Logs that are followed at once, which are streams as well. Each is a connection to the API server.
const LOG_STREAMS_MAX: usize = 512;
/// Under this name the writes of the control plane stand in the managed fields of objects.
pub const FIELD_MANAGER: &str = "jangar-control-plane";

/// Whose request it is, and where it came from.
#[derive(Clone, Debug)]
pub struct Caller {
    pub identity: Arc<Identity>,
    pub source: String,
}

/// Which program this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub version: String,
    pub build_sha: String,
    pub build_time: String,
}

/// The time, as an argument.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What a control plane is made of.
pub struct Parts {
    pub world: Arc<World>,
    pub gatekeeper: Gatekeeper,
    /// The account of the control plane itself: reads, and writes approvals and what webhooks bring.
    pub own: Client,
    pub settings: Arc<Settings>,
    pub about: About,
    pub history: Option<Arc<dyn History>>,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    /// Where gRPC is answered, as the status tells it.
    pub grpc_address: Option<String>,
    /// What callers are shown; absent: nothing is encrypted.
    pub certificate: Option<Arc<Certificate>>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parts")
    }
}

/// What HTTP and gRPC have in common: everything.
pub struct ControlPlane {
    pub world: Arc<World>,
    pub(crate) gatekeeper: Gatekeeper,
    pub(crate) own: Client,
    pub(crate) settings: Arc<Settings>,
    pub(crate) about: About,
    history: Option<Arc<dyn History>>,
    pulse: Option<Pulse>,
    pub(crate) audit: Audit,
    pub(crate) metrics: Arc<Metrics>,
    clock: Clock,
    grpc_address: Option<String>,
    certificate: Option<Arc<Certificate>>,
    lease: tokio::sync::Mutex<Option<status::KnownLease>>,
    pub(crate) streams: Arc<Semaphore>,
    log_streams: Arc<Semaphore>,
    /// Whether the program ends.
    closing: watch::Sender<bool>,
    pub(crate) webhooks: Webhooks,
}

impl std::fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ControlPlane")
    }
}

impl ControlPlane {
    /// Must be called in a tokio runtime.
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            world,
            gatekeeper,
            own,
            settings,
            about,
            history,
            metrics,
            clock,
            grpc_address,
            certificate,
        } = parts;
        let history = history.map(|history| {
            let counted = Counted::new(history, Arc::clone(&metrics));
            Arc::new(counted) as Arc<dyn History>
        });
        Arc::new(Self {
            webhooks: Webhooks::new(&settings.webhooks),
            world,
            gatekeeper,
            own,
            settings,
            about,
            audit: Audit::new(history.clone(), Arc::clone(&metrics)),
            pulse: history
                .as_ref()
                .map(|history| Pulse::start(Arc::clone(history), Arc::clone(&metrics))),
            history,
            metrics,
            clock,
            grpc_address,
            certificate,
            lease: tokio::sync::Mutex::default(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            log_streams: Arc::new(Semaphore::new(LOG_STREAMS_MAX)),
            closing: watch::Sender::new(false),
        })
    }

    pub(crate) fn history(&self) -> Option<&Arc<dyn History>> {
        self.history.as_ref()
    }

    /// The namespace of a request that names none: the one that Jangar itself is in.
    pub fn default_namespace(&self) -> &str {
        &self.settings.lease.namespace
    }

    /// Ends the streams, because the program ends. Clients that come back go on where they were.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// What is missing before requests can be answered from the caches; nothing: ready.
    pub fn missing(&self) -> Vec<String> {
        self.world.missing()
    }

    /// Whether there should be a history, and its database did not answer when it was asked last.
    pub fn history_is_away(&self) -> bool {
        self.pulse.as_ref().and_then(Pulse::trouble).is_some()
    }

    /// Waits until every change that somebody began has been made and recorded.
    pub async fn settled(&self) {
        self.audit.settled().await;
    }

    /// Does something for a caller, and records it.
    async fn audited<T: Send + 'static>(
        &self,
        caller: &Caller,
        deed: Deed,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.audited_if(caller, deed, work, |_| true).await
    }

    /// Does something for a caller, and records it unless it changed nothing.
    ///
    /// It is a task of its own: a caller who hangs up ends their request, and neither what it has begun nor the record of it.
    async fn audited_if<T: Send + 'static>(
        &self,
        caller: &Caller,
        deed: Deed,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
        changed: fn(&T) -> bool,
    ) -> Result<T, Refusal> {
        let (audit, clock, caller) = (self.audit.clone(), Arc::clone(&self.clock), caller.clone());
        let begun = audit.begin();
        let task = tokio::spawn(async move {
            let result = work.await;
            if result.as_ref().map_or(true, changed) {
                audit.record(Entry {
                    at: clock(),
                    actor: caller.identity.user.clone(),
                    groups: caller.identity.groups.clone(),
                    source: caller.source.clone(),
                    deed,
                    outcome: Outcome::of(&result),
                    detail: detail(&result),
                });
            }
            drop(begun);
            result
        });
        task.await.unwrap_or_else(|_| {
            Err(Refusal::new(Trouble::Internal, "the request ended in the middle")
                .remedy("look whether it changed anything before you repeat it"))
        })
    }
}

/// Waits for the API server, but not for ever.
pub(crate) async fn live<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Refusal> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Refusal::unavailable("the Kubernetes API did not answer in time")),
    }
}
