//! Our finalizer on a run, which keeps it from vanishing before what it leaves is settled.

use jangar_api::labels::RUNTIME_CLEANUP_FINALIZER;
use kube::ResourceExt;

use super::jobs;
use crate::decision::Effect;

/// Whether our finalizer is on a run. Whoever put it there, nobody else will take it away.
pub(crate) fn is_held(run: &impl ResourceExt) -> bool {
    run.finalizers()
        .iter()
        .any(|name| name == RUNTIME_CLEANUP_FINALIZER)
}

/// Keeps a run from vanishing.
pub(crate) fn hold(run: &impl ResourceExt) -> Effect {
    let others = run.finalizers().iter().cloned();
    set(
        run,
        others.chain([RUNTIME_CLEANUP_FINALIZER.to_owned()]).collect(),
    )
}

/// Lets a run go.
pub(crate) fn let_go(run: &impl ResourceExt) -> Effect {
    let others = run.finalizers().iter();
    let others = others.filter(|name| *name != RUNTIME_CLEANUP_FINALIZER);
    set(run, others.cloned().collect())
}

fn set(run: &impl ResourceExt, finalizers: Vec<String>) -> Effect {
    Effect::SetFinalizers {
        run: jobs::id(run),
        version: run.resource_version().unwrap_or_default(),
        finalizers,
    }
}
