//! OrchestrationRuns in a simulated world: cancelled at every instant, and random graphs whose end the reference knows.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test that cannot go on has failed the test"
)]

// Nobody cancels a step of the graphs here.
#[expect(dead_code, reason = "see above")]
#[path = "../../engine/tests/orchestration/reference.rs"]
mod reference;

use std::time::Duration;

use jangar_api::phase::RunPhase;
use jangar_engine::settings::Safeguards;
use jangar_testkit::{
    faults::Plan,
    program::Shipped,
    scenario::{Scenario, orchestrations},
    search,
    simulation::{Report, Simulation, play},
};
use serde_json::{Value, json};

use self::reference::{End, Outcome, Skip, Step, evaluate};

fn shipped() -> Shipped {
    Shipped::with(Safeguards::default())
}

fn played(scenario: &Scenario, seed: u64, plan: &str) -> Report {
    let simulation = Simulation {
        scenario,
        seed,
        plan: plan.parse::<Plan>().unwrap_or_else(|error| panic!("{error}")),
        quiet: Duration::ZERO,
    };
    let report = play(&shipped(), &simulation);
    assert!(
        report.violations.is_empty(),
        "seed {seed}, plan {plan:?}: {:#?}\n{}",
        report.violations,
        report.trace.join("\n")
    );
    report
}

/// A diamond takes a minute. Whenever it is cancelled, nothing starts afterwards and nothing is left.
#[test]
fn a_cancel_at_any_instant_leaves_nothing_behind() {
    let instants: Vec<u64> = (0..22).map(|number| number * 2690).collect();
    search::in_parallel(&instants, |instant| {
        let scenario = orchestrations::cancelled_after(Duration::from_millis(*instant));
        played(&scenario, *instant % 4, "");
    });
}

/// Random graphs, undisturbed and with trouble at some write, end as the reference says, step by step.
#[test]
fn random_graphs_end_as_the_reference_says_whatever_goes_wrong() {
    let seeds: Vec<u64> = (0..12).collect();
    search::in_parallel(&seeds, |seed| {
        let steps = random_steps(*seed);
        let (ends, whole) = evaluate(&steps);
        let written: Vec<Value> = steps.iter().enumerate().map(written).collect();
        let fail: Vec<String> = steps
            .iter()
            .enumerate()
            .filter(|(_, step)| step.outcome == Outcome::Fails)
            .map(|(number, _)| format!("s{number}"))
            .collect();
        let phase = if whole == End::Succeeded {
            RunPhase::Succeeded
        } else {
            RunPhase::Failed
        };
        let scenario = orchestrations::of_steps(&json!(written), &fail, phase);
        for plan in [
            "",
            "crash-after@6",
            "lost-answer@4,crash-before@9",
            "freeze:agentruns:40000@7",
        ] {
            let report = played(&scenario, *seed, plan);
            assert_eq!(
                told(&report),
                ends.iter().map(|end| expected(*end)).collect::<Vec<_>>(),
                "seed {seed} {plan}"
            );
        }
    });
}

fn random_steps(seed: u64) -> Vec<Step> {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = random.usize(3..=7);
    (0..count)
        .map(|number| {
            let depends_on = (0..number).filter(|_| random.u8(0..10) < 4).collect();
            let outcome = match random.u8(0..10) {
                0..=5 => Outcome::Succeeds,
                6..=8 => Outcome::Fails,
                _ => Outcome::ConditionFalse,
            };
            Step {
                depends_on,
                continue_on_failure: random.u8(0..4) == 0,
                outcome,
            }
        })
        .collect()
}

fn written((number, step): (usize, &Step)) -> Value {
    let depends_on: Vec<String> = step.depends_on.iter().map(|other| format!("s{other}")).collect();
    let mut fields = json!({"dependsOn": depends_on, "continueOnFailure": step.continue_on_failure});
    if step.outcome == Outcome::ConditionFalse {
        fields["when"] = json!("run.name == 'another'");
    }
    orchestrations::agent(&format!("s{number}"), &fields)
}

/// How the steps ended, as the run says: phase, reason of a skip, and the cause.
fn told(report: &Report) -> Vec<(String, String, String)> {
    let objects = report.end.objects();
    let run = objects.iter().find(|(key, _)| key.contains("orchestrationruns"));
    let Some((_, run)) = run else {
        panic!("there is no run: {objects:#?}")
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let steps = run["status"]["stepStatuses"].as_array().into_iter().flatten();
    steps
        .map(|step| {
            let skipped = step["phase"] == "Skipped";
            let reason = if skipped {
                text(&step["reason"])
            } else {
                String::new()
            };
            (text(&step["phase"]), reason, text(&step["causedBy"]))
        })
        .collect()
}

fn expected(end: End) -> (String, String, String) {
    let (phase, reason, cause) = match end {
        End::Succeeded => ("Succeeded", "", None),
        End::Failed => ("Failed", "", None),
        End::Cancelled => ("Cancelled", "", None),
        End::Skipped(why, cause) => {
            let why = match why {
                Skip::ConditionFalse => "ConditionFalse",
                Skip::DependencySkipped => "DependencySkipped",
                Skip::DependencyCancelled => "DependencyCancelled",
                Skip::DependencyFailed => "DependencyFailed",
            };
            ("Skipped", why, cause)
        }
    };
    let cause = cause.map_or_else(String::new, |cause| format!("s{cause}"));
    (phase.to_owned(), reason.to_owned(), cause)
}
