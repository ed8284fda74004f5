//! The life of an AgentRun: what to do about it next.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jangar_api::agents::{
    agent::Agent,
    agent_provider::AgentProvider,
    agent_run::{AgentRun, AgentRunStatus},
    implementation_spec::ImplementationSpec,
    memory::Memory,
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use crate::{
    decision::{Decision, Key, Plan, PodSight, Refusal, Sight, Uid},
    settings::Settings,
};

/// What is known about a run at the moment of a decision.
#[derive(Clone, Debug)]
pub struct Observed {
    pub key: Key,
    /// The run itself; absent if it is gone, which is known from the cache of runs alone: what is left of it may have to
    /// be cleaned up.
    pub run: Option<Arc<AgentRun>>,
    pub references: References,
    /// The Jobs that carry the run's label, and those that were asked for, by name. One of them may belong to another run
    /// of the same name that is gone.
    pub jobs: BTreeMap<String, Arc<Job>>,
    /// The names at which a live read found no Job.
    pub absent_jobs: BTreeSet<String>,
    /// The pods, by the UID of the Job that controls them.
    pub pods: BTreeMap<Uid, PodSight>,
    /// What the API server said to the effects of the plan before.
    pub refusal: Option<Refusal>,
}

/// The objects that a run refers to, directly or through another one. One that nothing refers to is `None`.
#[derive(Clone, Debug)]
pub struct References {
    pub agent: Sight<Agent>,
    /// `None` as long as the Agent is not known.
    pub provider: Option<Sight<AgentProvider>>,
    /// `None` if the work is described in the run itself.
    pub implementation: Option<Sight<ImplementationSpec>>,
    /// `None` if neither the run nor its Agent names one.
    pub memory: Option<Sight<Memory>>,
}

/// What to do about a run.
pub fn plan(observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<AgentRunStatus> {
    let _ = (observed, settings, now);
    Decision::Act(Plan::nothing())
}
