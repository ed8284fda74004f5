//! What one reconcile has learned beyond the caches: the answers of its live reads and of its own writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
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
    decision::{
        ChildKind, DeliveryAnswer, DeliveryQuery, Key, KeyHolder, Keys, Occupant, Refusal, Sight, TokenSight,
        Uid,
    },
    queue::Answer,
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};

use crate::caches::{Cached, Caches, ResourceVersion};

/// What was learned. It is forgotten when the reconcile ends: by then the caches know, or will be asked again.
#[derive(Debug, Default)]
pub struct Learned {
    pub agent_runs: Overlay<AgentRun>,
    pub agents: Overlay<Agent>,
    pub agent_providers: Overlay<AgentProvider>,
    pub implementation_specs: Overlay<ImplementationSpec>,
    pub memories: Overlay<Memory>,
    pub version_control_providers: Overlay<VersionControlProvider>,
    pub tools: Overlay<Tool>,
    pub tool_runs: Overlay<ToolRun>,
    pub orchestrations: Overlay<Orchestration>,
    pub orchestration_runs: Overlay<OrchestrationRun>,
    pub approval_policies: Overlay<ApprovalPolicy>,
    pub signals: Overlay<Signal>,
    pub signal_deliveries: Overlay<SignalDelivery>,
    /// What the API server said to children that it will never take.
    pub child_refusals: BTreeMap<(ChildKind, String), Refusal>,
    pub jobs: Overlay<Job>,
    pub pods: Overlay<Pod>,
    /// The names of the pods that a live list found for a Job, by the Job's UID.
    pub pods_of: BTreeMap<Uid, BTreeSet<String>>,
    /// What Secrets and ConfigMaps hold, by key.
    pub keys: BTreeMap<KeyHolder, Keys>,
    /// What forges said about the work of the run.
    pub deliveries: BTreeMap<DeliveryQuery, DeliveryAnswer>,
    /// What became of the tokens that effects asked for, by the name of their Secret.
    pub tokens: BTreeMap<String, TokenSight>,
    /// What the API server said to the last effects.
    pub refusal: Option<Refusal>,
    /// What has the name of the ConfigMap that the last effects were to create.
    pub occupant: Option<Occupant>,
    /// What the queue said to the question whether the object may start something.
    pub admission: Option<Answer>,
    /// What the API server said to a status that it refused for good. A plain one is written from then on.
    pub status_refusal: Option<Refusal>,
}

impl Learned {
    /// An object as the API server answered it.
    pub(crate) fn seen<K: Cached>(&mut self, object: Arc<K>) {
        let name = object.meta().name.clone().unwrap_or_default();
        K::overlay_mut(self).known.insert(name, Sight::Seen(object));
    }

    /// The API server answered with an object that cannot be read.
    pub(crate) fn illegible<K: Cached>(&mut self, name: &str, error: String) {
        let sight = Sight::Illegible(error);
        K::overlay_mut(self).known.insert(name.to_owned(), sight);
    }

    /// What was learned of children at the same time.
    pub(crate) fn absorb_children(&mut self, other: Self) {
        self.agent_runs.known.extend(other.agent_runs.known);
        self.tool_runs.known.extend(other.tool_runs.known);
        self.orchestration_runs
            .known
            .extend(other.orchestration_runs.known);
        self.child_refusals.extend(other.child_refusals);
    }

    /// The API server has no object of this name.
    pub(crate) fn absent<K: Cached>(&mut self, name: &str) {
        K::overlay_mut(self).known.insert(name.to_owned(), Sight::Absent);
    }
}

/// Objects of one kind, in the namespace of the reconcile, that lie over what the cache has.
#[derive(Debug)]
pub struct Overlay<K> {
    known: BTreeMap<String, Sight<K>>,
}

impl<K> Default for Overlay<K> {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
        }
    }
}

impl<K: Cached> Overlay<K> {
    /// What is known of the object, from here or from the cache, whichever is newer.
    ///
    /// That there is none is believed until the end of the reconcile: what the cache has may be the one that is gone.
    pub fn sight(&self, caches: &Caches, key: &Key) -> Sight<K> {
        let cached = K::cache(caches).get(key);
        match (self.known.get(&key.name), cached) {
            (Some(Sight::Absent), _) => Sight::Absent,
            (Some(Sight::Illegible(words)), _) => Sight::Illegible(words.clone()),
            (Some(Sight::Seen(own)), Some(cached)) if version(own.as_ref()) < version(cached.as_ref()) => {
                Sight::Seen(Arc::clone(cached))
            }
            (Some(Sight::Seen(own)), _) => Sight::Seen(Arc::clone(own)),
            (Some(Sight::Unseen) | None, Some(cached)) => Sight::Seen(Arc::clone(cached)),
            (Some(Sight::Unseen) | None, None) => match K::cache(caches).illegible(key) {
                Some(words) => Sight::Illegible(words.clone()),
                None => Sight::Unseen,
            },
        }
    }

    /// The object, if the API server has answered with it.
    pub(crate) fn seen(&self, name: &str) -> Option<&Arc<K>> {
        self.known.get(name)?.seen()
    }

    /// What is wrong with an object that was read live and cannot be understood.
    pub(crate) fn illegible(&self, name: &str) -> Option<&String> {
        match self.known.get(name)? {
            Sight::Illegible(error) => Some(error),
            Sight::Seen(_) | Sight::Unseen | Sight::Absent => None,
        }
    }

    /// The names about which something was learned.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.known.keys()
    }
}

fn version<K: Cached>(object: &K) -> ResourceVersion {
    ResourceVersion::of(object.meta())
}
