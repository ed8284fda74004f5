//! The life of a ToolRun: what to do about it next.
//!
//! A ToolRun is one program in one Job, which it has in common with an AgentRun: [`life`](crate::life) is that of both. `start`
//! makes the Job from the Tool, `outputs` reads what the program left, and `kind` is whatever else a ToolRun has of its own. It
//! takes no slot in the queue.

mod kind;
mod outputs;
mod spec_hash;
mod start;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jangar_api::{
    phase::RunPhase,
    tools::{Tool, ToolRun, ToolRunStatus},
};
use jiff::{Timestamp, Unit};
use k8s_openapi::api::batch::v1::Job;

pub use self::spec_hash::spec_hash;
use crate::{
    decision::{Decision, Key, Occupant, Plan, PodSight, Refusal, Sight, Uid},
    last_sight::LastSight,
    life::{self, Run, finished, hold, jobs, leftovers, survivors},
    parent,
    settings::Settings,
};

/// A ToolRun that is there, and all that a decision about it depends on.
type Situation<'a> = life::Situation<'a, ToolRun>;
/// The next status of a ToolRun while it is made.
type NextStatus<'a> = life::next_status::NextStatus<'a, ToolRun>;

/// What is known about a run at the moment of a decision.
#[derive(Clone, Debug)]
pub struct Observed {
    pub key: Key,
    /// The run itself; absent if a live read found it gone: what is left of it may have to be cleaned up.
    pub run: Option<Arc<ToolRun>>,
    /// The Tool that it refers to.
    pub tool: Sight<Tool>,
    /// The Jobs that carry the run's label, and those that were asked for, by name.
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
    /// What the API server said to the effects of the plan before.
    pub refusal: Option<Refusal>,
    /// What has the name of the ConfigMap that the plan before was to create.
    pub occupant: Option<Occupant>,
    /// Until when the run has time to stop, if an OrchestrationRun above is being cancelled.
    pub cancel_above: Option<Timestamp>,
    /// Whether there is so much to do that what may be over soon is told later.
    pub busy: bool,
}

/// What to do about a run.
pub fn plan(observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<ToolRunStatus> {
    // Finer than anybody needs, and shorter to read.
    let now = now.round(Unit::Millisecond).unwrap_or(now);
    let leftovers = match leftovers::clean_up(&ToolRun::seen(observed), settings, now) {
        Ok(plan) => plan,
        Err(question) => return Decision::look(question),
    };
    let Some(run) = &observed.run else {
        return Decision::Act(leftovers);
    };
    let deleting = run.metadata.deletion_timestamp.is_some();
    if deleting && !parent::is_held(&run.metadata) {
        // Its Jobs are leftovers already.
        return Decision::Act(let_go_last(run, observed, leftovers));
    }
    let unwritten = ToolRunStatus::default();
    let status = run.status.as_ref().unwrap_or(&unwritten);
    let situation = Situation::of(observed, run, status, settings, now);
    let over = status.phase.as_ref().is_some_and(RunPhase::is_terminal);
    let decision = match (deleting, over) {
        // Its parent lets it go.
        (true, true) => survivors::farewell(&situation).unwrap_or_else(|| Decision::Act(Plan::nothing())),
        (true, false) => leftovers::farewell(&situation),
        (false, true) => survivors::plan(&situation).unwrap_or_else(|| finished::plan(&situation)),
        (false, false) => situation.decide(),
    };
    life::after_leftovers(decision, leftovers)
}

/// A run that was deleted and has no parent is let go once nothing of it is left. It has our finalizer only if it had a parent, or
/// if somebody else put it there: nobody else will take it away.
fn let_go_last(
    run: &ToolRun,
    observed: &Observed,
    mut leftovers: Plan<ToolRunStatus>,
) -> Plan<ToolRunStatus> {
    let held_jobs = observed.jobs.values().any(|job| jobs::is_held(job));
    if hold::is_held(run) && leftovers.is_idle() && !held_jobs {
        leftovers.effects.push(hold::let_go(run));
    }
    leftovers
}
