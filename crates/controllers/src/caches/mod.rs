//! What the controllers know of the cluster: one cache for each kind, fed by watches.

mod cache;
mod delivered;
mod departed;
mod index;
mod kinds;
mod version;
mod watch;

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use jangar_api::{
    agents::{
        agent::Agent, agent_provider::AgentProvider, agent_run::AgentRun,
        implementation_spec::ImplementationSpec, memory::Memory,
        version_control_provider::VersionControlProvider,
    },
    approvals::ApprovalPolicy,
    orchestration::{Orchestration, orchestration_run::OrchestrationRun},
    signals::{Signal, SignalDelivery},
    tools::{Tool, ToolRun},
};
use jangar_engine::{
    decision::{Key, Uid},
    settings::{Namespaces, Settings},
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{Api, Client, Resource, core::NamespaceResourceScope, runtime::watcher::Event};
use tokio::sync::Notify;

pub use self::{
    cache::{Applied, Cache, Change, Unreadable},
    delivered::{Delivered, Illegible},
    index::Term,
    kinds::{Cached, CachedKind, RunFacts},
    version::ResourceVersion,
};
pub(crate) use self::{
    cache::{key_of, label_of, uid_of},
    kinds::{has_ended, implementation_names, waited_for, with_kind},
    watch::spawn_watches,
};
use crate::archive::Archiver;

/// The objects of all kinds that are watched.
#[derive(Debug)]
pub struct Caches {
    pub agent_runs: Cache<AgentRun>,
    pub agents: Cache<Agent>,
    pub agent_providers: Cache<AgentProvider>,
    pub implementation_specs: Cache<ImplementationSpec>,
    pub memories: Cache<Memory>,
    pub version_control_providers: Cache<VersionControlProvider>,
    pub tools: Cache<Tool>,
    pub tool_runs: Cache<ToolRun>,
    pub orchestrations: Cache<Orchestration>,
    pub orchestration_runs: Cache<OrchestrationRun>,
    pub approval_policies: Cache<ApprovalPolicy>,
    pub signals: Cache<Signal>,
    pub signal_deliveries: Cache<SignalDelivery>,
    pub jobs: Cache<Job>,
    pub pods: Cache<Pod>,
}

impl Caches {
    /// Empty caches. One of a kind that is not watched is complete as it is.
    pub(crate) fn new(scopes: &BTreeSet<Scope>, settings: &Settings) -> Self {
        let nothing = BTreeSet::new();
        let vcs = if CachedKind::VersionControlProvider.is_watched(settings) {
            scopes
        } else {
            &nothing
        };
        Self {
            agent_runs: Cache::new(scopes),
            agents: Cache::new(scopes),
            agent_providers: Cache::new(scopes),
            implementation_specs: Cache::new(scopes),
            memories: Cache::new(scopes),
            version_control_providers: Cache::new(vcs),
            tools: Cache::new(scopes),
            tool_runs: Cache::new(scopes),
            orchestrations: Cache::new(scopes),
            orchestration_runs: Cache::new(scopes),
            approval_policies: Cache::new(scopes),
            signals: Cache::new(scopes),
            signal_deliveries: Cache::new(scopes),
            jobs: Cache::new(scopes),
            pods: Cache::new(scopes),
        }
    }

    /// Takes in what a watch says.
    pub(crate) fn apply<K: Cached>(&mut self, feed: &Feed, event: Event<Delivered<K>>) -> Applied {
        K::cache_mut(self).apply(feed, event)
    }

    /// Whether every first list is complete. Before that, nothing can be decided.
    pub fn are_ready(&self) -> bool {
        let Self {
            agent_runs,
            agents,
            agent_providers,
            implementation_specs,
            memories,
            version_control_providers,
            tools,
            tool_runs,
            orchestrations,
            orchestration_runs,
            approval_policies,
            signals,
            signal_deliveries,
            jobs,
            pods,
        } = self;
        agent_runs.is_ready()
            && agents.is_ready()
            && agent_providers.is_ready()
            && implementation_specs.is_ready()
            && memories.is_ready()
            && version_control_providers.is_ready()
            && tools.is_ready()
            && tool_runs.is_ready()
            && orchestrations.is_ready()
            && orchestration_runs.is_ready()
            && approval_policies.is_ready()
            && signals.is_ready()
            && signal_deliveries.is_ready()
            && jobs.is_ready()
            && pods.is_ready()
    }
}

/// What one watch brings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Feed {
    pub scope: Scope,
    /// Only objects that have this label. A watch cannot ask for one label or another, so that each has a watch of its own.
    pub label: Option<&'static str>,
}

impl Feed {
    /// The watches of a kind that cover these scopes.
    pub(crate) fn of<K: Cached>(scopes: &BTreeSet<Scope>) -> impl Iterator<Item = Self> {
        let labels = K::LABELS.iter().copied().map(Some);
        let all = K::LABELS.is_empty().then_some(None);
        let labels = labels.chain(all);
        scopes.iter().flat_map(move |scope| {
            let scope = scope.clone();
            labels.clone().map(move |label| Self {
                scope: scope.clone(),
                label,
            })
        })
    }
}

/// Where a watch looks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    All,
    Namespace(String),
}

impl Scope {
    /// The watches that cover what is looked after.
    pub(crate) fn covering(settings: &Settings) -> BTreeSet<Self> {
        match &settings.namespaces {
            _ if !settings.agents_enabled => BTreeSet::new(),
            Namespaces::All => BTreeSet::from([Self::All]),
            Namespaces::These(names) => names.iter().cloned().map(Self::Namespace).collect(),
        }
    }

    fn covers(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(name) => *name == key.namespace,
        }
    }

    pub(crate) fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self {
            Self::All => Api::all(client.clone()),
            Self::Namespace(name) => Api::namespaced(client.clone(), name),
        }
    }
}

/// Who is told of changes. It is called with the caches as they are after the change.
pub trait Listener: Send + Sync {
    fn changed(&self, caches: &Caches, change: &Change);
}

/// The caches, shared by the watches that write them and the controllers that read them.
pub struct World {
    caches: RwLock<Caches>,
    listeners: Vec<Arc<dyn Listener>>,
    /// Remembers runs that go.
    archiver: Option<Arc<Archiver>>,
    /// Tells those who wait, in the order in which they came.
    changed: Notify,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl World {
    pub(crate) fn new(
        scopes: &BTreeSet<Scope>,
        settings: &Settings,
        listeners: Vec<Arc<dyn Listener>>,
        archiver: Option<Arc<Archiver>>,
    ) -> Self {
        Self {
            caches: RwLock::new(Caches::new(scopes, settings)),
            listeners,
            archiver,
            changed: Notify::new(),
        }
    }

    /// The caches as they are now. The lock is held as long as the guard is: no waiting meanwhile.
    pub(crate) fn caches(&self) -> RwLockReadGuard<'_, Caches> {
        // A poisoned lock means that a task panicked while it held it. Every change to a cache is complete before anything
        // can fail, so the caches are still good.
        self.caches.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the caches are as they should be.
    pub(crate) async fn until(&self, condition: impl Fn(&Caches) -> bool) {
        loop {
            // It hears of every change from here on, so none is missed between the look and the wait.
            let changed = self.changed.notified();
            if condition(&self.caches()) {
                return;
            }
            changed.await;
        }
    }

    /// Takes in what a watch says, and returns what could not be read of it.
    fn apply<K: Cached>(&self, feed: &Feed, event: Event<Delivered<K>>) -> Vec<Unreadable> {
        let mut caches = self.writable();
        if let Some(archiver) = &self.archiver {
            match &event {
                Event::Delete(Delivered(Ok(object))) => archiver.went(object),
                // What went while nobody watched.
                Event::InitDone => {
                    for object in K::cache(&caches).unlisted(feed) {
                        archiver.went(object.as_ref());
                    }
                }
                Event::Apply(Delivered(Ok(object))) | Event::InitApply(Delivered(Ok(object))) => {
                    note(archiver, &caches, object);
                }
                Event::Delete(_) | Event::Init | Event::InitApply(_) | Event::Apply(_) => {}
            }
        }
        let Applied { changes, unreadable } = caches.apply(feed, event);
        self.tell(&caches, &changes);
        drop(caches);
        self.changed.notify_waiters();
        unreadable
    }

    /// Takes in the answer of a live read: the object, or that this one is gone.
    pub(crate) fn learn<K: Cached>(&self, key: &Key, uid: &Uid, answer: Option<Delivered<K>>) {
        let mut caches = self.writable();
        if let (Some(archiver), Some(Delivered(Ok(object)))) = (&self.archiver, &answer) {
            note(archiver, &caches, object);
        }
        let cache = K::cache_mut(&mut caches);
        let change = match answer {
            Some(object) => cache.learn(object),
            None => cache.forget(key, uid),
        };
        self.tell(&caches, change.as_slice());
        drop(caches);
        self.changed.notify_waiters();
    }

    fn writable(&self) -> RwLockWriteGuard<'_, Caches> {
        self.caches.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, caches: &Caches, changes: &[Change]) {
        for change in changes {
            for listener in &self.listeners {
                listener.changed(caches, change);
            }
        }
    }
}

/// Lets the archiver see what an object that is newer than the one in the cache says no more.
fn note<K: Cached>(archiver: &Archiver, caches: &Caches, object: &K) {
    let known = K::cache(caches).get(&key_of(object.meta()));
    if let Some(known) = known
        && ResourceVersion::of(known.meta()) < ResourceVersion::of(object.meta())
    {
        archiver.changed(known.as_ref(), object);
    }
}
