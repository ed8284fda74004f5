//! The kinds that are watched: what each names, and where it is kept.

use std::{collections::BTreeSet, fmt, time::Duration};

use jangar_api::{
    agents::{
        agent::Agent,
        agent_provider::AgentProvider,
        agent_run::{AgentRun, AgentRunSpec, InlineImplementation, VcsMode},
        agent_run_status::{RetentionStatus, VcsStatus},
        implementation_spec::{ImplementationSpec, ImplementationSpecSpec},
        memory::Memory,
        version_control_provider::VersionControlProvider,
    },
    approvals::ApprovalPolicy,
    condition::{CommonStatus, Condition},
    labels,
    orchestration::{
        Orchestration,
        orchestration_run::{OrchestrationRun, WaitsFor},
    },
    phase::RunPhase,
    refs::LocalRef,
    signals::{Signal, SignalDelivery},
    tools::{Tool, ToolRun},
};
use jangar_engine::{
    last_sight::LastSight,
    orchestration_run::takes_deliveries,
    parent,
    settings::Settings,
    vcs::{VcsStamp, WantedBranch},
};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource, ResourceExt, core::NamespaceResourceScope};
use serde::{Serialize, de::DeserializeOwned};

use super::{Caches, cache::Cache, index::Term};
use crate::driver::learned::{Learned, Overlay};

/// A kind that is watched.
pub trait Cached:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + fmt::Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    const KIND: CachedKind;
    /// Of which objects a copy is kept: those that have one of these labels; of all, if there is none.
    const LABELS: &'static [&'static str] = &[];

    /// Whether a copy says who wrote to the object. It says of nobody what they wrote.
    const WRITERS: bool = false;

    /// What is to be remembered of the object when it is gone.
    fn last_sight(&self) -> Option<LastSight> {
        None
    }

    /// Whether the object is over, and waits for us to record how.
    fn is_uncaptured(&self) -> bool {
        false
    }

    /// What whoever remembers runs wants to know of one; absent for everything else.
    fn run_facts(&self) -> Option<RunFacts> {
        None
    }

    /// What the step of this number is called, counted from one, if the object has steps that Jobs execute.
    fn step_name(&self, number: usize) -> Option<&str> {
        let _ = number;
        None
    }

    /// What is true of a run at the moment; nothing for everything else.
    fn run_conditions(&self) -> &[Condition] {
        &[]
    }

    /// What the object names, and is found by.
    fn terms(&self) -> BTreeSet<Term>;
    fn cache(caches: &Caches) -> &Cache<Self>;
    fn cache_mut(caches: &mut Caches) -> &mut Cache<Self>;
    fn overlay(learned: &Learned) -> &Overlay<Self>;
    fn overlay_mut(learned: &mut Learned) -> &mut Overlay<Self>;
}

/// The kinds that are watched, as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CachedKind {
    AgentRun,
    Agent,
    AgentProvider,
    ImplementationSpec,
    Memory,
    VersionControlProvider,
    Tool,
    ToolRun,
    Orchestration,
    OrchestrationRun,
    ApprovalPolicy,
    Signal,
    SignalDelivery,
    Job,
    Pod,
}

impl CachedKind {
    /// All of them, in the order in which their watches start.
    pub const ALL: [Self; 15] = [
        Self::AgentRun,
        Self::Agent,
        Self::AgentProvider,
        Self::ImplementationSpec,
        Self::Memory,
        Self::VersionControlProvider,
        Self::Tool,
        Self::ToolRun,
        Self::Orchestration,
        Self::OrchestrationRun,
        Self::ApprovalPolicy,
        Self::Signal,
        Self::SignalDelivery,
        Self::Job,
        Self::Pod,
    ];

    /// Whether the kind is watched with these settings. An operator who switches version control off need not grant the
    /// right to it.
    pub fn is_watched(self, settings: &Settings) -> bool {
        self != Self::VersionControlProvider || settings.vcs.enabled
    }
}

impl fmt::Display for CachedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What whoever remembers runs wants to know of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFacts {
    /// Whether it has ended for good.
    pub ended: bool,
    /// By what its pods are found; absent for runs that have none.
    pub pods: Option<Term>,
    /// How long the ends of its logs are kept, as far as it says so.
    pub logs_kept: Option<Duration>,
}

fn logs_kept(retention: &RetentionStatus) -> Option<Duration> {
    let seconds = u64::try_from(retention.log_retention_seconds.get()).ok()?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Says where the objects of a kind are kept.
macro_rules! kept_in {
    ($kind:ident, $field:ident) => {
        const KIND: CachedKind = CachedKind::$kind;

        fn cache(caches: &Caches) -> &Cache<Self> {
            &caches.$field
        }

        fn cache_mut(caches: &mut Caches) -> &mut Cache<Self> {
            &mut caches.$field
        }

        fn overlay(learned: &Learned) -> &Overlay<Self> {
            &learned.$field
        }

        fn overlay_mut(learned: &mut Learned) -> &mut Overlay<Self> {
            &mut learned.$field
        }
    };
}

/// Evaluates an expression with the type that a [`CachedKind`] stands for.
macro_rules! with_kind {
    ($kind:expr, $type:ident => $body:expr) => {
        $crate::caches::with_kind!(@match $kind, $type => $body,
            AgentRun = jangar_api::agents::agent_run::AgentRun,
            Agent = jangar_api::agents::agent::Agent,
            AgentProvider = jangar_api::agents::agent_provider::AgentProvider,
            ImplementationSpec = jangar_api::agents::implementation_spec::ImplementationSpec,
            Memory = jangar_api::agents::memory::Memory,
            VersionControlProvider = jangar_api::agents::version_control_provider::VersionControlProvider,
            Tool = jangar_api::tools::Tool,
            ToolRun = jangar_api::tools::ToolRun,
            Orchestration = jangar_api::orchestration::Orchestration,
            OrchestrationRun = jangar_api::orchestration::orchestration_run::OrchestrationRun,
            ApprovalPolicy = jangar_api::approvals::ApprovalPolicy,
            Signal = jangar_api::signals::Signal,
            SignalDelivery = jangar_api::signals::SignalDelivery,
            Job = k8s_openapi::api::batch::v1::Job,
            Pod = k8s_openapi::api::core::v1::Pod,
        )
    };
    (@match $kind:expr, $type:ident => $body:expr, $($variant:ident = $path:path,)+) => {
        match $kind {
            $($crate::caches::CachedKind::$variant => {
                type $type = $path;
                $body
            })+
        }
    };
}
pub(crate) use with_kind;

/// Runs that have ended name nothing: no change of what they referred to concerns them any more.
impl Cached for AgentRun {
    kept_in!(AgentRun, agent_runs);

    fn step_name(&self, number: usize) -> Option<&str> {
        let step = self.spec.workflow.as_ref()?.steps.get(number.checked_sub(1)?)?;
        Some(step.name.trim())
    }

    fn run_conditions(&self) -> &[Condition] {
        self.status
            .as_ref()
            .map_or(&[], |status| &status.common.conditions)
    }

    fn run_facts(&self) -> Option<RunFacts> {
        let status = self.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_ref());
        Some(RunFacts {
            ended: phase.is_some_and(RunPhase::is_terminal),
            pods: Some(Term::AgentRun(self.name_any())),
            logs_kept: status.and_then(|status| logs_kept(status.retention.as_ref()?)),
        })
    }

    fn terms(&self) -> BTreeSet<Term> {
        let status = self.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_ref());
        if phase.is_some_and(RunPhase::is_terminal) {
            let common = status.map(|status| &status.common);
            return parents(self.meta(), phase, common).collect();
        }
        let spec = &self.spec;
        let memory = spec.memory_ref.as_ref();
        let inline = inline_implementations(spec).filter_map(|work| vcs_of(&work.inline));
        let branch = self
            .status
            .as_ref()
            .and_then(|status| branch(status.vcs.as_ref()?));
        [Term::Agent(name(&spec.agent_ref))]
            .into_iter()
            .chain(parents(self.meta(), phase, None))
            .chain(implementation_names(spec).map(|name| Term::ImplementationSpec(name.to_owned())))
            .chain(memory.map(|reference| Term::Memory(name(reference))))
            .chain(spec.vcs_ref.as_ref().map(vcs))
            .chain(inline)
            .chain(branch)
            .collect()
    }
}

impl Cached for Agent {
    kept_in!(Agent, agents);

    fn terms(&self) -> BTreeSet<Term> {
        let memory = self.spec.memory_ref.as_ref();
        [Term::AgentProvider(name(&self.spec.provider_ref))]
            .into_iter()
            .chain(memory.map(|reference| Term::Memory(name(reference))))
            .chain(self.spec.vcs_ref.as_ref().map(vcs))
            .collect()
    }
}

impl Cached for AgentProvider {
    kept_in!(AgentProvider, agent_providers);

    fn terms(&self) -> BTreeSet<Term> {
        BTreeSet::new()
    }
}

impl Cached for ImplementationSpec {
    kept_in!(ImplementationSpec, implementation_specs);

    fn terms(&self) -> BTreeSet<Term> {
        vcs_of(&self.spec).into_iter().collect()
    }
}

impl Cached for VersionControlProvider {
    kept_in!(VersionControlProvider, version_control_providers);

    fn terms(&self) -> BTreeSet<Term> {
        BTreeSet::new()
    }
}

impl Cached for Memory {
    kept_in!(Memory, memories);

    fn terms(&self) -> BTreeSet<Term> {
        let term = self.spec.is_default.then_some(Term::DefaultMemory);
        term.into_iter().collect()
    }
}

impl Cached for Tool {
    kept_in!(Tool, tools);

    fn terms(&self) -> BTreeSet<Term> {
        BTreeSet::new()
    }
}

impl Cached for ToolRun {
    kept_in!(ToolRun, tool_runs);

    fn run_conditions(&self) -> &[Condition] {
        self.status
            .as_ref()
            .map_or(&[], |status| &status.common.conditions)
    }

    fn run_facts(&self) -> Option<RunFacts> {
        let status = self.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_ref());
        Some(RunFacts {
            ended: phase.is_some_and(RunPhase::is_terminal),
            pods: Some(Term::ToolRun(self.name_any())),
            logs_kept: status.and_then(|status| logs_kept(status.retention.as_ref()?)),
        })
    }

    fn terms(&self) -> BTreeSet<Term> {
        let status = self.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_ref());
        let over = phase.is_some_and(RunPhase::is_terminal);
        let tool = (!over).then(|| Term::Tool(name(&self.spec.tool_ref)));
        let parents = parents(self.meta(), phase, status.map(|status| &status.common));
        tool.into_iter().chain(parents).collect()
    }
}

impl Cached for Orchestration {
    kept_in!(Orchestration, orchestrations);

    fn terms(&self) -> BTreeSet<Term> {
        BTreeSet::new()
    }
}

impl Cached for OrchestrationRun {
    kept_in!(OrchestrationRun, orchestration_runs);

    fn run_conditions(&self) -> &[Condition] {
        self.status
            .as_ref()
            .map_or(&[], |status| &status.common.conditions)
    }

    fn run_facts(&self) -> Option<RunFacts> {
        let status = self.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_ref());
        Some(RunFacts {
            ended: phase.is_some_and(RunPhase::is_terminal),
            pods: None,
            logs_kept: None,
        })
    }

    /// The definition is named until the run has kept it, what its steps wait for as long as they do, and the policies under
    /// which somebody decided as long as there is a record of it.
    fn terms(&self) -> BTreeSet<Term> {
        let status = self.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_ref());
        let over = phase.is_some_and(RunPhase::is_terminal);
        let common = status.map(|status| &status.common);
        let mut terms: BTreeSet<Term> = parents(self.meta(), phase, common).collect();
        let decisions = status.into_iter().flat_map(|status| &status.approvals);
        terms.extend(decisions.filter_map(|decision| decision.policy.clone().map(Term::DecidedUnder)));
        if over {
            return terms;
        }
        if status.is_none_or(|status| status.definition.is_none()) {
            terms.insert(Term::Orchestration(name(&self.spec.orchestration_ref)));
        }
        let steps = status.into_iter().flat_map(|status| &status.step_statuses);
        let waited = steps.filter_map(|step| waited_for(step.waits_for.as_ref()?));
        let takes = takes_deliveries(self);
        terms.extend(waited.filter(|term| takes || !term.is_of_delivery()));
        terms
    }
}

impl Cached for ApprovalPolicy {
    kept_in!(ApprovalPolicy, approval_policies);

    fn terms(&self) -> BTreeSet<Term> {
        BTreeSet::new()
    }
}

impl Cached for Signal {
    kept_in!(Signal, signals);

    fn terms(&self) -> BTreeSet<Term> {
        BTreeSet::new()
    }
}

impl Cached for SignalDelivery {
    kept_in!(SignalDelivery, signal_deliveries);

    fn terms(&self) -> BTreeSet<Term> {
        let id = self.spec.delivery_id.clone().map(Term::DeliveryId);
        id.into_iter()
            .chain([Term::Signal(name(&self.spec.signal_ref))])
            .collect()
    }
}

/// What a step waits for. A signal is looked for by its name, or by the id of one delivery if it has no name.
pub(crate) fn waited_for(waits_for: &WaitsFor) -> Option<Term> {
    let policy = waits_for.approval_policy.clone().map(Term::ApprovalPolicy);
    let signal = waits_for.signal.clone().map(Term::Signal);
    let id = waits_for.delivery_id.clone().map(Term::DeliveryId);
    policy.or(signal).or(id)
}

/// The OrchestrationRun that a run belongs to, in both ways to ask for it.
fn parents(
    metadata: &ObjectMeta,
    phase: Option<&RunPhase>,
    common: Option<&CommonStatus>,
) -> impl Iterator<Item = Term> {
    let ended = phase.is_some_and(RunPhase::is_terminal);
    let outlived = common.is_some_and(|common| parent::outlived_its_cancel(phase, common));
    let over = ended && !outlived;
    let labels = metadata.labels.as_ref();
    let parent = labels.and_then(|labels| labels.get(labels::ORCHESTRATION_RUN));
    let child = parent.map(|parent| Term::ChildOf(parent.clone()));
    parent_in_label(metadata, over).into_iter().chain(child)
}

/// The OrchestrationRun that a run belongs to, as long as that may not have recorded its end. If somebody took our finalizer from
/// a run, its end has to be seen when it comes: nothing will tell of it later. One that outlived its cancel is never over in this sense: when
/// nothing of it is left is told after its end, and maybe after it was let go.
fn parent_in_label(metadata: &ObjectMeta, over: bool) -> Option<Term> {
    let mut finalizers = metadata.finalizers.iter().flatten();
    let held = finalizers.any(|name| name == labels::RUNTIME_CLEANUP_FINALIZER);
    let awaited = held || (!over && parent::of(metadata).is_some());
    let parent = metadata.labels.as_ref()?.get(labels::ORCHESTRATION_RUN)?;
    awaited.then(|| Term::OrchestrationRun(parent.clone()))
}

/// The labels of Jobs and pods that belong to runs. No object has both.
const RUN_LABELS: &[&str] = &[labels::AGENT_RUN, labels::TOOL_RUN];

impl Cached for Job {
    kept_in!(Job, jobs);
    const LABELS: &'static [&'static str] = RUN_LABELS;
    const WRITERS: bool = true;

    fn last_sight(&self) -> Option<LastSight> {
        Some(LastSight::of(self))
    }

    fn is_uncaptured(&self) -> bool {
        labels::is_held(self.finalizers()) && has_ended(self)
    }

    /// A Job says which branch it works on as soon as it is there, and so before the status of its run does.
    fn terms(&self) -> BTreeSet<Term> {
        let annotations = self.metadata.annotations.as_ref();
        let stamp = annotations.and_then(|annotations| annotations.get(labels::VERSION_CONTROL));
        let stamp = stamp.and_then(|text| serde_json::from_str::<VcsStamp>(text).ok());
        let branch = stamp.and_then(|stamp| branch(stamp.status.as_ref()?));
        run_in_label(self.meta()).into_iter().chain(branch).collect()
    }
}

impl Cached for Pod {
    kept_in!(Pod, pods);
    const LABELS: &'static [&'static str] = RUN_LABELS;

    fn last_sight(&self) -> Option<LastSight> {
        Some(LastSight::of(self))
    }

    /// One that we made. Its Job says that it has ended when that is recorded.
    fn is_uncaptured(&self) -> bool {
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        labels::is_held(self.finalizers()) && matches!(phase, Some("Succeeded" | "Failed"))
    }

    fn terms(&self) -> BTreeSet<Term> {
        run_in_label(self.meta())
    }
}

/// The names of the ImplementationSpecs that a run and its steps refer to.
pub(crate) fn implementation_names(spec: &AgentRunSpec) -> impl Iterator<Item = &str> {
    let steps = spec.workflow.iter().flat_map(|workflow| &workflow.steps);
    let of_steps = steps.filter_map(|step| step.implementation_spec_ref.as_ref());
    spec.implementation_spec_ref
        .iter()
        .chain(of_steps)
        .map(|reference| reference.name.trim())
}

/// The work that a run and its steps describe in place.
fn inline_implementations(spec: &AgentRunSpec) -> impl Iterator<Item = &InlineImplementation> {
    let steps = spec.workflow.iter().flat_map(|workflow| &workflow.steps);
    let of_steps = steps.filter_map(|step| step.implementation.as_ref());
    spec.implementation.iter().chain(of_steps)
}

/// Whether a Job is over, by its own conditions.
pub(crate) fn has_ended(job: &Job) -> bool {
    let conditions = job
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut ends = conditions.filter(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed"));
    ends.any(|condition| condition.status == "True")
}

/// The name that a reference means.
fn name(reference: &LocalRef) -> String {
    reference.name.trim().to_owned()
}

fn vcs(reference: &LocalRef) -> Term {
    Term::VersionControlProvider(name(reference))
}

fn vcs_of(implementation: &ImplementationSpecSpec) -> Option<Term> {
    implementation.vcs_ref.as_ref().map(vcs)
}

/// The branch that a run writes to.
fn branch(status: &VcsStatus) -> Option<Term> {
    let writes = status.mode == Some(VcsMode::ReadWrite);
    let branch = WantedBranch::new(status.repository.as_deref()?, status.head_branch.as_deref()?);
    writes.then_some(Term::Branch(branch))
}

fn run_in_label(metadata: &ObjectMeta) -> BTreeSet<Term> {
    let labels = metadata.labels.as_ref();
    let named = |label: &str| labels.and_then(|labels| labels.get(label)).cloned();
    let agent_run = named(labels::AGENT_RUN).map(Term::AgentRun);
    let tool_run = named(labels::TOOL_RUN).map(Term::ToolRun);
    agent_run.into_iter().chain(tool_run).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The run of a step, in this phase and with these finalizers.
    fn child(phase: &str, finalizers: &[&str]) -> AgentRun {
        let owner = json!({
            "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun", "name": "dag", "uid": "u",
            "controller": true,
        });
        let run = json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun",
            "metadata": {
                "name": "dag-build-1", "labels": {labels::ORCHESTRATION_RUN: "dag"}, "finalizers": finalizers,
                "ownerReferences": [owner],
            },
            "spec": {"agentRef": {"name": "coder"}, "runtime": {"type": "job"}},
            "status": {"phase": phase},
        });
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn a_child_concerns_its_parent_until_its_end_is_recorded_or_seen() {
        let parent = Term::OrchestrationRun("dag".to_owned());
        let ours = [labels::RUNTIME_CLEANUP_FINALIZER];
        for (phase, finalizers, expected) in [
            ("Running", &ours[..], true),
            ("Succeeded", &ours[..], true),
            // Somebody took the finalizer away: the change to the end has the terms of both sides.
            ("Running", &[][..], true),
            ("Succeeded", &[][..], false),
            ("Cancelled", &[][..], false),
        ] {
            let concerns = child(phase, finalizers).terms().contains(&parent);
            assert_eq!(concerns, expected, "{phase} {finalizers:?}");
        }
        let mut outlived = child("Cancelled", &[]);
        let status = json!({
            "phase": "Cancelled",
            "conditions": [{"type": "Succeeded", "status": "False", "reason": "CancelTimedOut"}],
        });
        outlived.status = serde_json::from_value(status).unwrap();
        assert!(
            outlived.terms().contains(&parent),
            "when nothing of it is left is told later"
        );
    }
}
