//! The controllers of what runs refer to: Agents, AgentProviders, ImplementationSpecs and VersionControlProviders. Each
//! says whether the object can be used, and does nothing else.

use std::{collections::BTreeSet, sync::Arc};

use jangar_api::agents::{
    agent::{Agent, AgentStatus},
    agent_provider::{AgentProvider, AgentProviderStatus},
    implementation_spec::{ImplementationSpec, ImplementationSpecStatus},
    version_control_provider::{VersionControlProvider, VersionControlProviderStatus},
};
use jangar_engine::{
    agent, agent_provider,
    decision::{Decision, Key},
    implementation_spec,
    settings::Settings,
    vcs,
};
use jiff::Timestamp;

use crate::{
    caches::{CachedKind, Caches, Change, Term},
    driver::{Controller, Scene},
};

/// Says whether an Agent can be given work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agents;

impl Controller for Agents {
    type Object = Agent;
    type Observed = agent::Observed;
    const NAME: &'static str = "agent";

    /// What an Agent refers to may come later than the Agent, or go.
    fn concerned(&self, caches: &Caches, change: &Change) -> BTreeSet<Key> {
        let Key { namespace, name } = &change.key;
        let term = match change.kind {
            CachedKind::Agent => return BTreeSet::from([change.key.clone()]),
            CachedKind::AgentProvider => Term::AgentProvider(name.clone()),
            CachedKind::Memory => Term::Memory(name.clone()),
            CachedKind::AgentRun
            | CachedKind::ImplementationSpec
            | CachedKind::VersionControlProvider
            | CachedKind::Tool
            | CachedKind::ToolRun
            | CachedKind::Orchestration
            | CachedKind::OrchestrationRun
            | CachedKind::ApprovalPolicy
            | CachedKind::Signal
            | CachedKind::SignalDelivery
            | CachedKind::Job
            | CachedKind::Pod => return BTreeSet::new(),
        };
        let key = |name: &String| Key {
            namespace: namespace.clone(),
            name: name.clone(),
        };
        caches.agents.naming(namespace, term).map(key).collect()
    }

    fn observe(&self, scene: &Scene<'_>, agent: Option<Arc<Agent>>) -> Option<agent::Observed> {
        let agent = agent?;
        let memory = agent.spec.memory_ref.as_ref();
        Some(agent::Observed {
            provider: scene.sight(&agent.spec.provider_ref.name),
            memory: memory.map(|reference| scene.sight(&reference.name)),
            agent,
        })
    }

    fn plan(&self, observed: &agent::Observed, _: &Settings, now: Timestamp) -> Decision<AgentStatus> {
        agent::plan(observed, now)
    }
}

/// Says whether an AgentProvider can be used.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgentProviders;

impl Controller for AgentProviders {
    type Object = AgentProvider;
    type Observed = agent_provider::Observed;
    const NAME: &'static str = "agent-provider";

    fn concerned(&self, _: &Caches, change: &Change) -> BTreeSet<Key> {
        itself(CachedKind::AgentProvider, change)
    }

    fn observe(
        &self,
        _: &Scene<'_>,
        provider: Option<Arc<AgentProvider>>,
    ) -> Option<agent_provider::Observed> {
        Some(agent_provider::Observed { provider: provider? })
    }

    fn plan(
        &self,
        observed: &agent_provider::Observed,
        _: &Settings,
        now: Timestamp,
    ) -> Decision<AgentProviderStatus> {
        agent_provider::plan(observed, now)
    }
}

/// Says whether an ImplementationSpec can be worked on.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImplementationSpecs;

impl Controller for ImplementationSpecs {
    type Object = ImplementationSpec;
    type Observed = implementation_spec::Observed;
    const NAME: &'static str = "implementation-spec";

    fn concerned(&self, _: &Caches, change: &Change) -> BTreeSet<Key> {
        itself(CachedKind::ImplementationSpec, change)
    }

    fn observe(
        &self,
        _: &Scene<'_>,
        spec: Option<Arc<ImplementationSpec>>,
    ) -> Option<implementation_spec::Observed> {
        Some(implementation_spec::Observed { spec: spec? })
    }

    fn plan(
        &self,
        observed: &implementation_spec::Observed,
        _: &Settings,
        now: Timestamp,
    ) -> Decision<ImplementationSpecStatus> {
        implementation_spec::plan(observed, now)
    }
}

/// Says whether a VersionControlProvider can be used.
#[derive(Clone, Copy, Debug, Default)]
pub struct VersionControlProviders;

impl Controller for VersionControlProviders {
    type Object = VersionControlProvider;
    type Observed = vcs::provider::Observed;
    const NAME: &'static str = "version-control-provider";

    fn concerned(&self, _: &Caches, change: &Change) -> BTreeSet<Key> {
        itself(CachedKind::VersionControlProvider, change)
    }

    fn observe(
        &self,
        scene: &Scene<'_>,
        provider: Option<Arc<VersionControlProvider>>,
    ) -> Option<vcs::provider::Observed> {
        Some(vcs::provider::Observed {
            provider: provider?,
            keys: scene.learned.keys.clone(),
        })
    }

    fn plan(
        &self,
        observed: &vcs::provider::Observed,
        settings: &Settings,
        now: Timestamp,
    ) -> Decision<VersionControlProviderStatus> {
        vcs::provider::plan(observed, settings, now)
    }
}

/// The key of the object that changed, if it is of this kind.
pub(crate) fn itself(kind: CachedKind, change: &Change) -> BTreeSet<Key> {
    let key = (change.kind == kind).then(|| change.key.clone());
    key.into_iter().collect()
}
