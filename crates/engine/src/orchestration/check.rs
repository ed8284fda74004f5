//! Orchestration: whether its steps make sense. Nothing runs until an OrchestrationRun refers to it.

use std::sync::Arc;

use jangar_api::{
    orchestration::{Orchestration, OrchestrationStatus},
    phase::ObjectPhase,
    reason::Reason,
};
use jiff::Timestamp;

use super::{Graph, work::Work};
use crate::{
    conditions::touched,
    decision::{Decision, Plan, Rejection},
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
    let checked = super::read(&orchestration.spec)
        .map_err(|mistakes| mistakes.rejection())
        .and_then(|graph| runs_another(&graph, name));
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

/// A step that runs the Orchestration it stands in fails whenever it is reached, which can be told before.
fn runs_another(graph: &Graph, name: &str) -> Result<(), Rejection> {
    let own = graph.steps().find(
        |(_, node)| matches!(&node.work, Work::SubOrchestration { orchestration } if orchestration == name),
    );
    match own {
        None => Ok(()),
        Some((step, node)) => Err(Rejection::new(
            Reason::RecursionRefused,
            format!(
                "spec.steps[{}].orchestrationRef.name is {name}, so that step {} would run the Orchestration it stands in: name \
                 another one",
                step.0, node.name
            ),
        )),
    }
}
