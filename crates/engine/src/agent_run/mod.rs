//! The life of an AgentRun: what to do about it next.
//!
//! [`plan`] looks at where a run stands and hands over to the module of that part of its life:
//!
//! | the run | module |
//! |---|---|
//! | is done by an endpoint of somebody's own | `custom`, to its end |
//! | is done by a workflow of a Temporal server | `temporal`, to its end |
//! | has no Job yet | `start`: `references`, `version_control`, its `admission` by the queue, and the Job of the next attempt |
//! | has a Job, had one, or is being stopped | [`life`](crate::life), which it has in common with ToolRuns |
//!
//! A run of the runtime `workflow` goes through the same parts with each of its steps, one at a time. `steps` says whether steps
//! make sense and what they get from each other. `elsewhere` is what runs of endpoints and of workflows share, `hold` keeps a run
//! that has something outside, and `kind` is what AgentRuns have
//! of their own in all that they have in common.

mod admission;
mod artifacts;
mod custom;
mod elsewhere;
mod hold;
mod kind;
mod references;
mod spec_hash;
mod stamp;
mod start;
mod steps;
mod temporal;
#[cfg(test)]
mod tests;
mod token;
mod version_control;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jangar_api::{
    agents::{
        agent::Agent,
        agent_provider::AgentProvider,
        agent_run::{AgentRun, AgentRunStatus, RuntimeType},
        implementation_spec::ImplementationSpec,
        memory::Memory,
        version_control_provider::VersionControlProvider,
    },
    phase::RunPhase,
};
use jiff::{Timestamp, Unit};
use k8s_openapi::api::batch::v1::Job;

pub use self::{
    custom::receipt,
    spec_hash::spec_hash,
    version_control::{providers_needed, wanted_branches},
};
use crate::{
    custom::call::Outside,
    decision::{Decision, Key, KeyHolder, Keys, Occupant, Plan, PodSight, Refusal, Sight, TokenSight, Uid},
    last_sight::LastSight,
    life::{self, Run, abort, attempt, cancel, finished, follow, jobs, leftovers, outcome, survivors, task},
    parent,
    queue::Answer,
    settings::Settings,
    vcs::WantedBranch,
};

/// An AgentRun that is there, and all that a decision about it depends on.
type Situation<'a> = life::Situation<'a, AgentRun>;
/// The next status of an AgentRun while it is made.
type NextStatus<'a> = life::next_status::NextStatus<'a, AgentRun>;

/// What is known about a run at the moment of a decision.
#[derive(Clone, Debug)]
pub struct Observed {
    pub key: Key,
    /// The run itself; absent if a live read found it gone: what is left of it may have to be cleaned up.
    pub run: Option<Arc<AgentRun>>,
    pub references: References,
    /// The Jobs that carry the run's label, and those that were asked for, by name. One of them may belong to another run
    /// of the same name that is gone.
    pub jobs: BTreeMap<String, Arc<Job>>,
    /// The names of Jobs that the API server itself has spoken about: if there is none in `jobs`, there is none.
    pub live_jobs: BTreeSet<String>,
    /// What was last seen of Jobs that are gone, by name, as far as it is remembered: evidence, and all that keeps a run from
    /// beginning anew whose Job went before its status told of it.
    pub departed: BTreeMap<String, LastSight>,
    /// The UIDs of the Jobs that had a pod which is gone, as far as it is remembered: it is not made again.
    pub lost_pods: BTreeSet<Uid>,
    /// The pods, by the UID of the Job that controls them.
    pub pods: BTreeMap<Uid, PodSight>,
    /// The Secrets and ConfigMaps that were asked for.
    pub keys: BTreeMap<KeyHolder, Keys>,
    /// What the API server said to the effects of the plan before.
    pub refusal: Option<Refusal>,
    /// What has the name of the ConfigMap that the plan before was to create.
    pub occupant: Option<Occupant>,
    /// Until when the run has time to stop, if an OrchestrationRun above is being cancelled.
    pub cancel_above: Option<Timestamp>,
    /// Whether there is so much to do that what may be over soon is told later.
    pub busy: bool,
    /// What the queue said to the question whether the run may start; absent if it was not asked.
    pub admission: Option<Answer>,
    /// What is known of the endpoint of the run, if it has one.
    pub outside: Outside,
    /// Other runs that have not ended, by the branch that they work on and that this one would take.
    pub branch_rivals: BTreeMap<WantedBranch, String>,
    /// What became of the tokens that the plans before asked for, by the name of their Secret.
    pub tokens: BTreeMap<String, TokenSight>,
}

/// The objects that a run refers to, directly or through another one. One that nothing refers to is `None`.
#[derive(Clone, Debug)]
pub struct References {
    pub agent: Sight<Agent>,
    /// `None` as long as the Agent is not known.
    pub provider: Option<Sight<AgentProvider>>,
    /// Those that the run and its steps refer to, by name. Where the work is described in place, there is none.
    pub implementations: BTreeMap<String, Sight<ImplementationSpec>>,
    /// The one that the run names, else its Agent, else the default of the namespace; `None` if there is none of these.
    pub memory: Option<Sight<Memory>>,
    /// Those that the run and its steps come to, by name, and the one that its status names. Which one a step comes to follows
    /// from the run, its implementation and its Agent, as far as they are known.
    pub vcs: BTreeMap<String, Sight<VersionControlProvider>>,
}

/// What to do about a run.
pub fn plan(observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<AgentRunStatus> {
    // Finer than anybody needs, and shorter to read.
    let now = now.round(Unit::Millisecond).unwrap_or(now);
    let leftovers = match leftovers::clean_up(&AgentRun::seen(observed), settings, now) {
        Ok(mut plan) => {
            token::revoked_with_jobs(observed, &mut plan);
            plan
        }
        Err(question) => return Decision::look(question),
    };
    let Some(run) = &observed.run else {
        return Decision::Act(leftovers);
    };
    let deleting = run.metadata.deletion_timestamp.is_some();
    let has_parent = parent::is_held(&run.metadata);
    if deleting && !hold::is_held(run.as_ref()) {
        // Its Jobs are leftovers already.
        return Decision::Act(leftovers);
    }
    let unwritten = AgentRunStatus::default();
    let status = run.status.as_ref().unwrap_or(&unwritten);
    let situation = Situation::of(observed, run, status, settings, now);
    let over = status.phase.as_ref().is_some_and(RunPhase::is_terminal);
    let outside = custom::applies(&situation) || temporal::applies(&situation);
    let decision = if deleting && has_parent && over {
        // Its parent lets it go.
        remains(&situation).unwrap_or_else(|| Decision::Act(Plan::nothing()))
    } else if deleting && has_parent && !outside {
        leftovers::farewell(&situation)
    } else if deleting && !has_parent {
        farewell(&situation)
    } else if over {
        ended(&situation)
    } else if custom::applies(&situation) {
        custom::plan(&situation)
    } else if temporal::applies(&situation) {
        temporal::plan(&situation)
    } else {
        situation.decide()
    };
    let decision = match decision {
        Decision::Act(mut plan) => {
            token::revoked_with_jobs(observed, &mut plan);
            token::revoked_without_job(&situation, &mut plan);
            Decision::Act(plan)
        }
        look @ Decision::Look(_) => look,
    };
    life::after_leftovers(decision, leftovers)
}

/// The runtime of a run. What it was accepted as counts, not what somebody made of its spec since.
fn runtime_of<'a>(situation: &Situation<'a>) -> &'a str {
    let accepted = situation.status.runtime_ref.as_ref();
    let accepted = accepted.and_then(|accepted| accepted.0.get("type")?.as_str());
    // One that has a Job and has not told so yet is of those that Jobs execute.
    let has_job = || jobs::of_run(&situation.seen, situation.run).next().is_some();
    match accepted {
        Some(accepted) => accepted,
        None if has_job() => RuntimeType::Job.as_str(),
        None => situation.run.spec.runtime.type_.as_str(),
    }
}

/// The run is over. What does its work elsewhere may not know yet, and is told before the run is let go.
fn ended(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    let is_outside = custom::applies(situation) || temporal::applies(situation);
    if !is_outside {
        return survivors::plan(situation).unwrap_or_else(|| finished::plan(situation));
    }
    let settled = finished::plan(situation);
    if matches!(&settled, Decision::Act(plan) if plan.status.is_some()) {
        return settled;
    }
    removal(situation).unwrap_or(settled)
}

/// What is left to do about the work of a run that is over and was deleted, while its parent keeps it.
fn remains(situation: &Situation<'_>) -> Option<Decision<AgentRunStatus>> {
    if custom::applies(situation) || temporal::applies(situation) {
        removal(situation)
    } else {
        survivors::farewell(situation)
    }
}

/// Goes on making the work end that is done elsewhere. Nothing, if there is none any more.
fn removal(situation: &Situation<'_>) -> Option<Decision<AgentRunStatus>> {
    if custom::applies(situation) {
        custom::removal(situation)
    } else {
        temporal::removal(situation)
    }
}

/// The run was deleted, and may still have something outside.
fn farewell(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    if custom::applies(situation) {
        custom::farewell(situation)
    } else if temporal::applies(situation) {
        temporal::farewell(situation)
    } else {
        token::farewell(situation)
    }
}
