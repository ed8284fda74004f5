//! Who waits for the same slots, and who holds them, as far as the runs that are known tell.

use std::{cmp::Reverse, collections::BTreeMap};

use jangar_api::{
    agents::{agent_run::AgentRun, agent_run_status::LimitScope},
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    Context, Position,
    subject::{Facts, Subject},
};
use crate::{
    life::attempt::is_between,
    queue::{Demand, Scope},
    waiting::scope_told,
};

/// What is known about the line that a run stands in.
#[derive(Default)]
pub(super) struct Line<'a> {
    pub position: Option<Position>,
    /// What is counted.
    pub scope: Option<Scope>,
    /// Those who hold slots of it: first whom to cancel first, the least important and youngest.
    pub holders: Vec<&'a AgentRun>,
    /// Those who wait for it and were created earlier, so that they have the places: first whom to cancel first.
    pub earlier: Vec<&'a AgentRun>,
}

/// Whether a run waits for its turn: then its place is counted among runs of other namespaces too, since a repository takes turns
/// wherever its runs are.
pub fn stands_in_line(run: &AgentRun) -> bool {
    waits(run)
}

/// Whether what a run waits for is counted over all namespaces, so that who sees only one of them cannot tell its place.
pub fn counts_all_namespaces(run: &AgentRun) -> bool {
    let told = run.status.as_ref().and_then(|status| status.waiting.as_ref());
    told.is_some_and(|told| matches!(told.scope, LimitScope::Cluster | LimitScope::Repository))
}

pub(super) fn of<'a>(facts: &Facts<'a>, context: &Context<'a>) -> Line<'a> {
    let Subject::AgentRun(run) = facts.what else {
        return Line::default();
    };
    let own = Demand::of(facts.namespace, run);
    let told = run.status.as_ref().and_then(|status| status.waiting.as_ref());
    let Some(scope) = told.and_then(|told| scope_told(told, facts.namespace)) else {
        return Line::default();
    };
    let same: Vec<(&'a AgentRun, Demand)> = context
        .agent_runs
        .iter()
        .map(|run| (*run, demand(run)))
        .filter(|(_, demand)| demand.uid != own.uid && demand.lane.scopes().any(|other| other == scope))
        .collect();
    // First whom to cancel first: the least important, and of those the youngest.
    let dispensable = |demand: &Demand| (demand.priority, Reverse(demand.created), demand.uid.clone());
    let mut holders: Vec<&(&AgentRun, Demand)> = same.iter().filter(|(run, _)| holds(run)).collect();
    // Those last of which nothing is told: they may have no slot yet.
    holders.sort_by_cached_key(|(run, demand)| (phase(run).is_none(), dispensable(demand)));

    let turns = last_turns(&context.agent_runs);
    let rank = |demand: &Demand| {
        // Never is before every time.
        let turn = turns.get(&demand.lane.turn()).copied();
        (Reverse(demand.priority), turn, demand.created, demand.uid.clone())
    };
    let mut others: Vec<&(&AgentRun, Demand)> = same.iter().filter(|(run, _)| waits(run)).collect();
    others.sort_by_cached_key(|(_, demand)| rank(demand));
    let first = rank(&own);
    let ahead = others.iter().filter(|(_, demand)| rank(demand) < first).count();
    // Places go by creation, whoever starts first.
    let arrival = |demand: &Demand| (demand.created, demand.uid.clone());
    let mut earlier: Vec<&(&AgentRun, Demand)> = others
        .iter()
        .filter(|(_, demand)| arrival(demand) < arrival(&own))
        .copied()
        .collect();
    earlier.sort_by_cached_key(|(_, demand)| dispensable(demand));
    let counted = !context.agent_runs.is_empty() && !context.more_agent_runs;
    Line {
        position: counted.then(|| Position {
            place: number(ahead + 1),
            of: Some(number(others.len() + 1)),
        }),
        scope: Some(scope),
        holders: holders.into_iter().map(|(run, _)| *run).collect(),
        earlier: earlier.into_iter().map(|(run, _)| *run).collect(),
    }
}

fn demand(run: &AgentRun) -> Demand {
    Demand::of(&run.namespace().unwrap_or_default(), run)
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn phase(run: &AgentRun) -> Option<&RunPhase> {
    run.status.as_ref().and_then(|status| status.phase.as_ref())
}

/// Whether a run is under way. Its status is taken for that: who asks does not see every pod. One of which nothing is told has been
/// let in and its pod is about to start, or it came a moment ago. Between two attempts a run has no slot.
fn holds(run: &AgentRun) -> bool {
    let status = run.status.as_ref();
    let between = status.is_some_and(|status| is_between(status.runtime_ref.as_ref()));
    matches!(phase(run), None | Some(RunPhase::Running | RunPhase::Cancelling)) && !waits(run) && !between
}

/// Whether a run waits for its turn, as its status says.
fn waits(run: &AgentRun) -> bool {
    let status = run.status.as_ref();
    let over = phase(run).is_some_and(RunPhase::is_terminal);
    let blocked = status.and_then(|status| status.common.condition(&ConditionType::Blocked));
    !over
        && blocked.is_some_and(|blocked| {
            blocked.status == ConditionStatus::True
                && matches!(
                    blocked.reason,
                    Reason::ConcurrencyLimit | Reason::QueueLimit | Reason::RateLimit
                )
        })
}

/// When each repository, or each agent where there is none, was last let in.
fn last_turns(runs: &[&AgentRun]) -> BTreeMap<Scope, Timestamp> {
    let mut turns = BTreeMap::new();
    for run in runs {
        let Some(at) = run.status.as_ref().and_then(|status| status.admitted_at) else {
            continue;
        };
        let last = turns.entry(demand(run).lane.turn()).or_insert(at.0);
        *last = at.0.max(*last);
    }
    turns
}
