//! A run that has not started: its definition is found, checked and kept.

use jangar_api::{
    orchestration::orchestration_run::{Definition, OrchestrationRunStatus},
    reason::Reason,
    values::Int64,
};
use jiff::Timestamp;

use super::{Situation, after, next_status::keeper};
use crate::{
    decision::{Decision, Plan, Question, Rejection, Sight},
    job,
    orchestration::{Graph, size::Need},
};

/// The most parameters of a run, and the most bytes of all of them together: they are handed to every child, and stand in the
/// same object as the status.
const PARAMETERS_MAX: usize = 100;
const PARAMETERS_MAX_BYTES: usize = 32 * 1024;

pub(super) fn plan(situation: &Situation<'_>) -> Decision<OrchestrationRunStatus> {
    if situation.is_asked_to_stop() {
        return cancelled(situation);
    }
    let name = situation.run.spec.orchestration_ref.name.trim();
    if name.is_empty() {
        return reject(
            situation,
            &Rejection::new(
                Reason::MissingOrchestrationRef,
                "spec.orchestrationRef.name is blank: set it to the name of an Orchestration in this namespace",
            ),
        );
    }
    if let Some(why) = parameters(situation) {
        return reject(situation, &why);
    }
    // Its children have them from it, and would all be refused for want of them.
    if let Err(why) = job::required_labels(situation.run, &situation.settings.policy) {
        return reject(situation, &why);
    }
    let definition = match &situation.observed.definition {
        Sight::Unseen => return Decision::look(Question::Orchestration(name.to_owned())),
        Sight::Seen(definition) => definition,
        Sight::Absent => {
            return lacks(
                situation,
                &Rejection::new(
                    Reason::MissingOrchestration,
                    format!(
                        "spec.orchestrationRef.name is {name}, and there is no Orchestration of that name in this namespace: \
                         create it"
                    ),
                ),
            );
        }
        Sight::Illegible(words) => {
            return lacks(
                situation,
                &Rejection::new(
                    Reason::UnreadableReference,
                    format!("spec.orchestrationRef.name is {name}, which cannot be read ({words}): mend it"),
                ),
            );
        }
    };
    let graph: &Graph = match &situation.observed.graph {
        Some(Ok(graph)) => graph,
        Some(Err(mistakes)) => {
            let Rejection { reason, message } = mistakes.rejection();
            let message = format!("Orchestration {name} is wrong: {message}");
            return lacks(situation, &Rejection::new(reason, message));
        }
        None => return Decision::Act(Plan::nothing()),
    };
    if let Some(words) = Need::of(&definition.spec.steps, keeper(situation.run)).excess() {
        let words = format!("a run of Orchestration {name} is too large: {words}");
        return reject(situation, &Rejection::new(Reason::OrchestrationTooLarge, words));
    }
    let mut next = situation.next_status();
    let kept = Definition {
        uid: definition.metadata.uid.clone(),
        generation: definition.metadata.generation.map(Int64::from),
        steps: definition.spec.steps.clone(),
    };
    next.accepted(&situation.name(), kept, graph);
    let message = format!(
        "the run of Orchestration {name} has started: {} steps",
        graph.len()
    );
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.normal(Reason::Submitted, message)],
        ..Plan::nothing()
    })
}

fn parameters(situation: &Situation<'_>) -> Option<Rejection> {
    let given = &situation.run.spec.parameters;
    let bytes: usize = given.iter().map(|(key, value)| key.len() + value.len()).sum();
    let told = if given.len() > PARAMETERS_MAX {
        format!(
            "spec.parameters has {} values, and may have {PARAMETERS_MAX}",
            given.len()
        )
    } else if bytes > PARAMETERS_MAX_BYTES {
        format!("spec.parameters has {bytes} bytes, and may have {PARAMETERS_MAX_BYTES}")
    } else {
        return None;
    };
    Some(Rejection::new(
        Reason::ParametersTooLarge,
        format!("{told}: let the steps read large values from where they are kept"),
    ))
}

/// What is missing may have been applied together with the run and come a moment later, and what is wrong may be mended.
fn lacks(situation: &Situation<'_>, why: &Rejection) -> Decision<OrchestrationRunStatus> {
    let grace = situation.settings.runs.reference_grace;
    let created = situation.run.metadata.creation_timestamp.as_ref();
    let until: Timestamp = after(created.map_or(situation.now, |time| time.0), grace);
    // A creation that lies ahead was stamped before the clock was set back.
    let until = until.min(after(situation.now, grace));
    if situation.now >= until {
        return reject(situation, why);
    }
    let mut next = situation.next_status();
    next.waits(&Rejection::new(
        why.reason.clone(),
        format!("{}; the run fails at {until} otherwise", why.message),
    ));
    Decision::Act(Plan {
        status: next.into_status(),
        wake_at: Some(until),
        ..Plan::nothing()
    })
}

fn reject(situation: &Situation<'_>, why: &Rejection) -> Decision<OrchestrationRunStatus> {
    let mut next = situation.next_status();
    next.rejected(why);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(why.reason.clone(), why.message.clone())],
        ..Plan::nothing()
    })
}

/// Nothing has started, so that there is nothing to stop.
fn cancelled(situation: &Situation<'_>) -> Decision<OrchestrationRunStatus> {
    let mut next = situation.next_status();
    let message = super::cancel::because(situation, "the run was cancelled before it started");
    next.cancelled(&Reason::Cancelled, &message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.normal(Reason::Cancelled, message)],
        ..Plan::nothing()
    })
}
