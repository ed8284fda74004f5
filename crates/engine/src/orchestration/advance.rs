//! What follows from how the steps stand: which start, which are skipped and why, and how the run ends.
//!
//! A step is decided when all its dependencies have ended, and from their ends alone. So the result of a run does not depend
//! on which of two steps was faster.

use jangar_api::reason::Reason;

use super::graph::{Graph, Node, StepId};

/// Where a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has not begun.
    Waiting,
    /// It works, or is to be attempted again.
    Active,
    Ended(Ended),
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Succeeded,
    Failed,
    /// Somebody cancelled it.
    Cancelled,
    Skipped(Skipped),
}

/// Why a step will never run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub why: Why,
    /// The step that is the cause, however far up it is.
    pub cause: Option<StepId>,
}

/// The kinds of causes, the graver ones last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Its own condition is false.
    ConditionFalse,
    DependencySkipped,
    DependencyCancelled,
    DependencyFailed,
    /// The run has to stop, because a step failed or its time is up.
    RunStopping,
    RunCancelled,
}

impl Why {
    pub const fn reason(self) -> Reason {
        match self {
            Self::ConditionFalse => Reason::ConditionFalse,
            Self::DependencySkipped => Reason::DependencySkipped,
            Self::DependencyCancelled => Reason::DependencyCancelled,
            Self::DependencyFailed => Reason::DependencyFailed,
            Self::RunStopping => Reason::RunStopping,
            Self::RunCancelled => Reason::RunCancelled,
        }
    }

    /// What a step was skipped for, by the word that its status has.
    pub fn of(reason: &Reason) -> Option<Self> {
        [
            Self::ConditionFalse,
            Self::DependencySkipped,
            Self::DependencyCancelled,
            Self::DependencyFailed,
            Self::RunStopping,
            Self::RunCancelled,
        ]
        .into_iter()
        .find(|why| why.reason() == *reason)
    }
}

/// Whether the run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    On,
    /// Nothing starts any more, for this cause.
    Stops(Skipped),
}

/// What the condition of a step says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Run,
    Skip,
    /// It has no answer, which is a failure of the step.
    Wrong(String),
}

/// What follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// These start now, in this order.
    pub starts: Vec<StepId>,
    pub skips: Vec<(StepId, Skipped)>,
    /// These fail before they start, for want of an answer of their condition.
    pub fails: Vec<(StepId, String)>,
    /// Set if nothing works, nothing starts, and nothing ever will.
    pub end: Option<RunEnd>,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    Succeeded,
    /// The first step of the list that failed and was not allowed to.
    Failed(StepId),
    /// No step failed; this is the first that somebody cancelled although it was not allowed to be.
    StepCancelled(StepId),
}

/// What follows from how the steps stand. `condition` is asked only about a step that would start.
pub fn advance(
    graph: &Graph,
    states: &[State],
    going: Going,
    mut condition: impl FnMut(StepId) -> Verdict,
) -> Advance {
    let mut states = states.to_vec();
    states.resize(graph.len(), State::Waiting);
    let mut next = Advance::default();
    for (step, node) in graph.in_order() {
        if state(&states, step) != State::Waiting {
            continue;
        }
        let decided = match decide(graph, &states, node, going) {
            Decided::NotYet => continue,
            Decided::Skip(skipped) => Ended::Skipped(skipped),
            Decided::Runnable => match condition(step) {
                Verdict::Run => {
                    next.starts.push(step);
                    set(&mut states, step, State::Active);
                    continue;
                }
                Verdict::Skip => Ended::Skipped(Skipped {
                    why: Why::ConditionFalse,
                    cause: None,
                }),
                Verdict::Wrong(words) => {
                    next.fails.push((step, words));
                    Ended::Failed
                }
            },
        };
        if let Ended::Skipped(skipped) = decided {
            next.skips.push((step, skipped));
        }
        set(&mut states, step, State::Ended(decided));
    }
    next.starts.sort();
    next.end = end(graph, &states);
    next
}

fn state(states: &[State], step: StepId) -> State {
    states.get(step.0).copied().unwrap_or(State::Waiting)
}

fn set(states: &mut [State], step: StepId, to: State) {
    if let Some(place) = states.get_mut(step.0) {
        *place = to;
    }
}

enum Decided {
    NotYet,
    Skip(Skipped),
    Runnable,
}

fn decide(graph: &Graph, states: &[State], node: &Node, going: Going) -> Decided {
    if let Going::Stops(cause) = going {
        return Decided::Skip(cause);
    }
    let mut worst: Option<Skipped> = None;
    for dependency in &node.dependencies {
        let State::Ended(ended) = state(states, *dependency) else {
            return Decided::NotYet;
        };
        let allowed = graph
            .node(*dependency)
            .is_some_and(|node| node.continue_on_failure);
        let Some(cause) = hindrance(*dependency, ended, allowed) else {
            continue;
        };
        let graver =
            |known: &Skipped| cause.why > known.why || (cause.why == known.why && cause.cause < known.cause);
        if worst.as_ref().is_none_or(graver) {
            worst = Some(cause);
        }
    }
    worst.map_or(Decided::Runnable, Decided::Skip)
}

/// What the end of a dependency means for those who depend on it; nothing if they may run.
fn hindrance(step: StepId, ended: Ended, allowed: bool) -> Option<Skipped> {
    let (why, cause) = match ended {
        Ended::Succeeded => return None,
        Ended::Failed | Ended::Cancelled if allowed => return None,
        Ended::Failed => (Why::DependencyFailed, step),
        Ended::Cancelled => (Why::DependencyCancelled, step),
        Ended::Skipped(skipped) => match skipped.why {
            Why::ConditionFalse if allowed => return None,
            Why::ConditionFalse => (Why::DependencySkipped, step),
            further => (further, skipped.cause.unwrap_or(step)),
        },
    };
    Some(Skipped {
        why,
        cause: Some(cause),
    })
}

/// How the run ends, if every step has.
fn end(graph: &Graph, states: &[State]) -> Option<RunEnd> {
    let mut failed = None;
    let mut cancelled = None;
    for (step, node) in graph.steps() {
        let State::Ended(ended) = state(states, step) else {
            return None;
        };
        match ended {
            Ended::Failed if !node.continue_on_failure => failed = failed.or(Some(step)),
            Ended::Cancelled if !node.continue_on_failure => cancelled = cancelled.or(Some(step)),
            Ended::Failed | Ended::Cancelled | Ended::Succeeded | Ended::Skipped(_) => {}
        }
    }
    Some(match (failed, cancelled) {
        (Some(step), _) => RunEnd::Failed(step),
        (None, Some(step)) => RunEnd::StepCancelled(step),
        (None, None) => RunEnd::Succeeded,
    })
}
