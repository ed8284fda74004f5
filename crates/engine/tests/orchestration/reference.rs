//! What an orchestration comes to, in as few lines as can be. It shares no code with the engine, and knows nothing of time: it
//! is given how each step would end if it ran, and says how all of them do.

/// How a step ends if it runs, or that its condition keeps it from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Succeeds,
    Fails,
    IsCancelled,
    ConditionFalse,
}

/// One step: what it depends on, by position, and whether its failure is only recorded.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) depends_on: Vec<usize>,
    pub(crate) continue_on_failure: bool,
    pub(crate) outcome: Outcome,
}

/// Why a step was skipped; the graver causes come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Skip {
    ConditionFalse,
    DependencySkipped,
    DependencyCancelled,
    DependencyFailed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    Failed,
    Cancelled,
    /// With the step that is the cause; a false condition has none but itself.
    Skipped(Skip, Option<usize>),
}

/// How every step ends, and the run as a whole: `Failed` and `Cancelled` tell which kind of step it failed for.
pub(crate) fn evaluate(steps: &[Step]) -> (Vec<End>, End) {
    let mut ends: Vec<Option<End>> = vec![None; steps.len()];
    // In each round at least one step can be decided, because there is no cycle.
    for _ in 0..steps.len() {
        for (number, step) in steps.iter().enumerate() {
            let dependencies: Option<Vec<(usize, End)>> = step
                .depends_on
                .iter()
                .map(|other| ends[*other].map(|end| (*other, end)))
                .collect();
            if let Some(dependencies) = dependencies {
                ends[number] = Some(one(steps, step, &dependencies));
            }
        }
    }
    let ends: Vec<End> = ends.into_iter().map(|end| end.expect("no cycle")).collect();
    let counts = |wanted: End| {
        let mut all = steps.iter().zip(&ends);
        all.any(|(step, end)| *end == wanted && !step.continue_on_failure)
    };
    let run = [End::Failed, End::Cancelled].into_iter().find(|end| counts(*end));
    (ends, run.unwrap_or(End::Succeeded))
}

/// How one step ends, once all that it depends on has.
fn one(steps: &[Step], step: &Step, dependencies: &[(usize, End)]) -> End {
    let hindrances = dependencies.iter().filter_map(|(other, end)| {
        let allowed = steps[*other].continue_on_failure;
        match end {
            End::Succeeded => None,
            End::Failed => (!allowed).then_some((Skip::DependencyFailed, *other)),
            End::Cancelled => (!allowed).then_some((Skip::DependencyCancelled, *other)),
            End::Skipped(Skip::ConditionFalse, _) => (!allowed).then_some((Skip::DependencySkipped, *other)),
            End::Skipped(why, cause) => Some((*why, cause.expect("a cause"))),
        }
    });
    // The gravest; of several, the one whose cause stands first in the list.
    let gravest = hindrances.max_by_key(|(why, cause)| (*why, std::cmp::Reverse(*cause)));
    match (gravest, step.outcome) {
        (Some((why, cause)), _) => End::Skipped(why, Some(cause)),
        (None, Outcome::ConditionFalse) => End::Skipped(Skip::ConditionFalse, None),
        (None, Outcome::Succeeds) => End::Succeeded,
        (None, Outcome::Fails) => End::Failed,
        (None, Outcome::IsCancelled) => End::Cancelled,
    }
}
