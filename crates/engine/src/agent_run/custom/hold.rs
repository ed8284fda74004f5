//! A run that is deleted while its endpoint works: it stays until the endpoint was told to stop.
//!
//! Nothing in the cluster is left of such a run that could tell what it has outside, so the run itself carries a finalizer,
//! from before the endpoint is called until it has ended.

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus, RuntimeType},
    labels::RUNTIME_CLEANUP_FINALIZER,
    phase::RunPhase,
    reason::Reason,
};
use kube::ResourceExt;

use super::{
    super::{Situation, jobs},
    ending,
    record::Record,
    reported_end,
    stop::{Stopping, confirmed_by, stop},
};
use crate::decision::{Decision, Effect, Notice, Plan};

/// Whether our finalizer is on a run whose work is done outside.
pub(in super::super) fn is_held(run: &AgentRun) -> bool {
    run.spec.runtime.type_ == RuntimeType::Custom
        && run
            .finalizers()
            .iter()
            .any(|name| name == RUNTIME_CLEANUP_FINALIZER)
}

/// Keeps a run from vanishing.
pub(super) fn hold(run: &AgentRun) -> Effect {
    let others = run.finalizers().iter().cloned();
    set(
        run,
        others.chain([RUNTIME_CLEANUP_FINALIZER.to_owned()]).collect(),
    )
}

/// Lets a run go.
pub(in super::super) fn let_go(run: &AgentRun) -> Effect {
    let others = run.finalizers().iter();
    let others = others.filter(|name| *name != RUNTIME_CLEANUP_FINALIZER);
    set(run, others.cloned().collect())
}

fn set(run: &AgentRun, finalizers: Vec<String>) -> Effect {
    Effect::SetFinalizers {
        run: jobs::id(run),
        version: run.resource_version().unwrap_or_default(),
        finalizers,
    }
}

/// The run was deleted: its endpoint is told to stop, and the run goes when it says that it has, or has had its time.
pub(in super::super) fn farewell(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    let over = situation.status.phase.as_ref().is_some_and(RunPhase::is_terminal);
    // A record that cannot be read names nobody who could be told.
    let record = Record::of(situation.status).ok().flatten().filter(|_| !over);
    let Some(record) = record else {
        return go(situation, None);
    };
    if let Some(end) = reported_end(situation, &record) {
        return ending::conclude(situation, &record, end);
    }
    let going = match stop(situation, &record) {
        Stopping::Never => return go(situation, None),
        Stopping::Going(going) => *going,
    };
    let deadline = confirmed_by(situation, &record);
    if situation.now >= deadline {
        let message = format!(
            "the run was deleted, and {} did not confirm that it has stopped: it may still be working",
            record.name
        );
        return go(
            situation,
            Some(situation.warning(Reason::CancelTimedOut, message)),
        );
    }
    going.plan(situation.next_status(), deadline)
}

fn go(situation: &Situation<'_>, notice: Option<Notice>) -> Decision<AgentRunStatus> {
    Decision::Act(Plan {
        effects: vec![let_go(situation.run)],
        notices: notice.into_iter().collect(),
        ..Plan::nothing()
    })
}
