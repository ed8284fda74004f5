//! The shipped controllers in a simulated world: every scenario undisturbed, with trouble at every write, and with what seeds
//! bring.

#![expect(
    clippy::panic,
    reason = "a helper of a test that cannot go on has failed the test"
)]

use std::sync::OnceLock;

use jangar_engine::settings::Safeguards;
use jangar_testkit::{
    faults::{Plan, Trouble},
    program::Shipped,
    scenario,
    search::{self, Clean, Failure},
};

/// How many seeds are played unless `JANGAR_SIM_SEEDS` says otherwise.
const SEEDS: u64 = 150;

fn shipped() -> Shipped {
    Shipped::with(Safeguards::default())
}

/// The undisturbed ends of all scenarios.
fn cleans() -> &'static [Clean] {
    static CLEANS: OnceLock<Vec<Clean>> = OnceLock::new();
    CLEANS.get_or_init(|| {
        let played = search::in_parallel(&scenario::all(), |scenario| search::clean(&shipped(), scenario));
        played
            .into_iter()
            .map(|clean| clean.unwrap_or_else(|failure| panic!("{failure}")))
            .collect()
    })
}

fn assert_none(count: usize, failures: &[Box<Failure>]) {
    // The first ones tell enough.
    let shown: String = failures.iter().take(3).map(ToString::to_string).collect();
    let list: Vec<String> = failures
        .iter()
        .map(|failure| {
            format!(
                "{}, seed {}, {}: {:?}",
                failure.scenario, failure.seed, failure.plan, failure.violations
            )
        })
        .collect();
    let list = list.join("\n");
    assert!(
        failures.is_empty(),
        "{} of {count} simulations failed\n{shown}\n{list}",
        failures.len()
    );
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[test]
fn crash_or_lost_answer_at_any_write_changes_nothing() {
    let troubles = [Trouble::CrashBefore, Trouble::CrashAfter, Trouble::LostAnswer];
    let (count, failures) = search::at_every_write(&shipped(), cleans(), &troubles);
    println!("{count} simulations");
    assert_none(count, &failures);
}

#[test]
fn seeds() {
    let program = shipped();
    let seed = variable("JANGAR_SIM_SEED").map(|seed| seed.parse::<u64>().unwrap());
    let plan = variable("JANGAR_SIM_PLAN").map(|plan| plan.parse::<Plan>().unwrap());
    if let Some(name) = variable("JANGAR_SIM_SCENARIO") {
        let scenario = scenario::all()
            .into_iter()
            .find(|scenario| scenario.name == name)
            .unwrap();
        let clean = search::clean(&program, &scenario).unwrap_or_else(|failure| panic!("{failure}"));
        let played = search::disturbed(&program, &clean, seed.unwrap_or(0), plan.unwrap_or_default());
        match played {
            Ok(report) => println!("{}", report.trace.join("\n")),
            Err(failure) => panic!("{failure}"),
        }
        return;
    }
    if let Some(seed) = seed {
        let failures = search::seeds(&program, cleans(), seed..seed + 1);
        assert_none(1, &failures);
        return;
    }
    let count = variable("JANGAR_SIM_SEEDS").map_or(SEEDS, |count| count.parse().unwrap());
    let failures = search::seeds(&program, cleans(), 0..count);
    assert_none(usize::try_from(count).unwrap(), &failures);
}
