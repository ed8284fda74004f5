//! The simulation itself, on a controller so small that its flaws are known: a right one passes, and each flaw is found.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on has failed the test"
)]

mod tiny;

use jangar_testkit::{
    faults::Plan,
    scenario::{self, Scenario},
    search::{self, Clean, Failure},
    simulation::{Simulation, play},
};
use std::time::Duration;
use tiny::{Flaw, Tiny};

use jangar_testkit::faults::Trouble;

/// Every trouble that concerns the answer to a write, or the process that sent it.
const AT_EVERY_WRITE: [Trouble; 9] = [
    Trouble::CrashBefore,
    Trouble::CrashAfter,
    Trouble::LostAnswer,
    Trouble::NoAnswer,
    Trouble::GatewayTimeout,
    Trouble::NotSent,
    Trouble::Conflict,
    Trouble::Busy,
    Trouble::Broken,
];

fn scenario(name: &str) -> Scenario {
    scenario::all()
        .into_iter()
        .find(|scenario| scenario.name == name)
        .unwrap()
}

fn clean(program: &Tiny, name: &str) -> Result<Clean, Box<Failure>> {
    search::clean(program, &scenario(name))
}

fn print(failures: &[Failure]) -> String {
    failures.iter().take(3).map(ToString::to_string).collect()
}

#[test]
fn equal_seeds_give_equal_traces() {
    for (name, plan) in [
        ("succeeds", ""),
        ("fails", "crash-after@0,lost-answer@2"),
        ("kept", "takeover:40000@1,late:3000@2"),
        ("deleted", "delete-pod:4000@0"),
    ] {
        let scenario = scenario(name);
        let trace = |seed| {
            let plan: Plan = plan.parse().unwrap();
            let simulation = Simulation {
                scenario: &scenario,
                seed,
                plan,
                quiet: Duration::ZERO,
            };
            // Another thread has other random states in its hash maps.
            std::thread::scope(|scope| scope.spawn(|| play(&Tiny::right(), &simulation)).join().unwrap())
                .trace
        };
        let (one, same, other) = (trace(7), trace(7), trace(8));
        assert!(one.len() > 20, "{name}");
        for (line, again) in one.iter().zip(&same) {
            assert_eq!(line, again, "{name}");
        }
        assert_eq!(one.len(), same.len(), "{name}");
        assert_ne!(one, other, "{name}");
    }
}

#[test]
fn a_right_controller_survives_every_trouble_at_every_write() {
    let program = Tiny::right();
    let cleans: Vec<Clean> = ["succeeds", "fails", "kept", "deleted"]
        .iter()
        .map(|name| clean(&program, name).unwrap_or_else(|failure| panic!("{failure}")))
        .collect();
    let cleans: Vec<&Clean> = cleans.iter().collect();
    let (count, failures) = search::at_every_write(&program, &cleans, &AT_EVERY_WRITE);
    assert!(count > 80, "{count} simulations");
    assert!(failures.is_empty(), "{}", print(&failures));
}

#[test]
fn each_flaw_is_found() {
    for (flaw, scenario, plan, expected) in [
        (
            Flaw::GeneratesNames,
            "succeeds",
            "lost-answer@0",
            "was done twice",
        ),
        (
            Flaw::GeneratesNames,
            "succeeds",
            "crash-after@0",
            "was done twice",
        ),
        (
            Flaw::NeverReleases,
            "succeeds",
            "",
            "is held for a run that has ended",
        ),
        (Flaw::WritesAlways, "succeeds", "", "no end of them"),
        (
            Flaw::ChangesItsMind,
            "fails",
            "",
            "had ended as Failed and became Running",
        ),
        (Flaw::BelievesAnyJob, "name-reused", "", "no work of its own has"),
        (Flaw::EndsTooEarly, "succeeds", "", "still works for it"),
        (
            Flaw::LosesTheEnd,
            "succeeds",
            "crash-before@2,delete-job:0@2",
            "its work ended well",
        ),
    ] {
        let program = Tiny::with(flaw);
        let scenario = self::scenario(scenario);
        let plan: Plan = plan.parse().unwrap();
        let simulation = Simulation {
            scenario: &scenario,
            seed: 1,
            plan,
            quiet: Duration::from_hours(1),
        };
        let report = play(&program, &simulation);
        let found = report.violations;
        assert!(
            found.iter().any(|violation| violation.contains(expected)),
            "{flaw:?}: {found:?}"
        );
    }
}
