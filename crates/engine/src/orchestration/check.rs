//! Orchestration: whether its steps make sense. Nothing runs until an OrchestrationRun refers to it.

use std::sync::Arc;

use jangar_api::{
    orchestration::{Orchestration, OrchestrationStatus},
    phase::ObjectPhase,
};
use jiff::Timestamp;

use crate::{
    conditions::touched,
    decision::{Decision, Plan},
    settings::Settings,
    validity,
};

/// What is known about an Orchestration.
#[derive(Clone, Debug)]
pub struct Observed {
    pub orchestration: Arc<Orchestration>,
}

/// Says whether it can be run. What its steps refer to is looked for when they start.
pub fn plan(observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<OrchestrationStatus> {
    let orchestration = &observed.orchestration;
    if !settings.orchestrates(orchestration.metadata.namespace.as_deref().unwrap_or_default()) {
        return Decision::Act(Plan::nothing());
    }
    let name = orchestration.metadata.name.as_deref().unwrap_or_default();
    let checked = super::read_named(name, &orchestration.spec)
        .map(drop)
        .map_err(|mistakes| mistakes.rejection());
    let before = orchestration.status.clone().unwrap_or_default();
    let mut next = before.clone();
    next.phase = Some(if checked.is_ok() {
        ObjectPhase::Ready
    } else {
        ObjectPhase::Invalid
    });
    next.common = validity::report(&before.common, orchestration.metadata.generation, checked, now);
    Decision::Act(Plan {
        status: touched(&before, next, |status| &mut status.common, now),
        ..Plan::nothing()
    })
}
