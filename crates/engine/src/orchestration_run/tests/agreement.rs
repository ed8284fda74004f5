//! Whole runs end as the reference says: every graph of up to three steps is played to its end, and what the steps have come to is
//! read back from the status each time, as it is after a restart.

#[path = "../../../tests/orchestration/reference.rs"]
mod reference;

use jangar_api::phase::{RunPhase, StepPhase};
use serde_json::{Value, json};

use self::reference::{End, Outcome, Skip, Step, evaluate};
use super::world::{World, agent};

const OUTCOMES: [Outcome; 4] = [
    Outcome::Succeeds,
    Outcome::Fails,
    Outcome::IsCancelled,
    Outcome::ConditionFalse,
];

/// Every list of so many steps in which a step depends on earlier ones.
fn graphs(count: usize) -> Vec<Vec<Step>> {
    let mut graphs: Vec<Vec<Step>> = vec![Vec::new()];
    for position in 0..count {
        let mut longer = Vec::new();
        for graph in &graphs {
            for dependencies in 0..1_usize << position {
                for outcome in OUTCOMES {
                    for continue_on_failure in [false, true] {
                        let step = Step {
                            depends_on: (0..position)
                                .filter(|other| dependencies >> other & 1 == 1)
                                .collect(),
                            continue_on_failure,
                            outcome,
                        };
                        longer.push(graph.iter().cloned().chain([step]).collect());
                    }
                }
            }
        }
        graphs = longer;
    }
    graphs
}

fn written(steps: &[Step]) -> Value {
    let written = steps.iter().enumerate().map(|(number, step)| {
        let above: Vec<String> = step.depends_on.iter().map(|other| format!("s{other}")).collect();
        let mut fields = json!({"dependsOn": above, "continueOnFailure": step.continue_on_failure});
        if step.outcome == Outcome::ConditionFalse {
            fields["when"] = json!("run.name == 'another'");
        }
        agent(&format!("s{number}"), fields)
    });
    Value::Array(written.collect())
}

/// Plays a graph to its end: whatever works ends as it is to.
fn played(steps: &[Step]) -> World {
    let mut world = World::of(written(steps));
    world.settle();
    while !world.phase().is_terminal() {
        let working = (0..steps.len()).find(|number| {
            let step = world.step(&format!("s{number}"));
            step.progress.phase == Some(StepPhase::Running)
        });
        let Some(number) = working else {
            panic!("nothing works, and the run has not ended: {steps:?}");
        };
        let phase = match steps[number].outcome {
            Outcome::Succeeds => RunPhase::Succeeded,
            Outcome::Fails => RunPhase::Failed,
            Outcome::IsCancelled => RunPhase::Cancelled,
            Outcome::ConditionFalse => {
                panic!("step {number} runs although its condition is false: {steps:?}")
            }
        };
        world.ends(&format!("run-s{number}-1"), phase);
    }
    world
}

fn told(world: &World, number: usize) -> End {
    let step = world.step(&format!("s{number}"));
    match step.progress.phase.as_ref() {
        Some(StepPhase::Succeeded) => End::Succeeded,
        Some(StepPhase::Failed) => End::Failed,
        Some(StepPhase::Cancelled) => End::Cancelled,
        Some(StepPhase::Skipped) => {
            let why = match step.reason.as_ref().map(ToString::to_string).as_deref() {
                Some("ConditionFalse") => Skip::ConditionFalse,
                Some("DependencySkipped") => Skip::DependencySkipped,
                Some("DependencyCancelled") => Skip::DependencyCancelled,
                Some("DependencyFailed") => Skip::DependencyFailed,
                other => panic!("{other:?}"),
            };
            let cause = step.caused_by.as_deref().map(|name| {
                let number = name.strip_prefix('s').and_then(|number| number.parse().ok());
                number.expect("the name of a step")
            });
            End::Skipped(why, cause)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_run_of_up_to_three_steps_ends_as_the_reference_says() {
    let mut count = 0;
    for steps in (1..=3).flat_map(graphs) {
        let (ends, whole) = evaluate(&steps);
        let world = played(&steps);
        let is: Vec<End> = (0..steps.len()).map(|number| told(&world, number)).collect();
        assert_eq!(is, ends, "{steps:?}");
        let succeeded = world.phase() == RunPhase::Succeeded;
        assert_eq!(succeeded, whole == End::Succeeded, "{steps:?}");
        count += 1;
    }
    assert_eq!(count, 8 + 2 * 8 * 8 + 8 * 8 * 8 * 8);
}
