//! A run that has something outside of the cluster, kept from vanishing.
//!
//! Nothing in the cluster would be left of such a run that could tell what it has outside, so the run itself carries a
//! finalizer, from before anybody outside is asked for anything until that is over.

use jangar_api::{agents::agent_run::AgentRun, labels::RUNTIME_CLEANUP_FINALIZER};
use kube::ResourceExt;

use super::{Situation, jobs};
use crate::decision::{Decision, Effect, Notice, Plan};

/// Whether our finalizer is on a run. Whoever put it there, nobody else will take it away.
pub(super) fn is_held(run: &AgentRun) -> bool {
    run.finalizers()
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
pub(super) fn let_go(run: &AgentRun) -> Effect {
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

/// Lets a run go that was deleted.
pub(super) fn go<S>(situation: &Situation<'_>, notice: Option<Notice>) -> Decision<S> {
    Decision::Act(Plan {
        effects: vec![let_go(situation.run)],
        notices: notice.into_iter().collect(),
        ..Plan::nothing()
    })
}
