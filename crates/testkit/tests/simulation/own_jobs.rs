//! The same with Jobs that Kubernetes leaves to the controllers: they make the pods, and say how these ended.

use std::sync::OnceLock;

use jangar_testkit::{
    program::Shipped,
    scenario::Scenario,
    search::{self, Clean},
};

use super::{CORE, CRASHES, GIVE_WAY, OTHER_TROUBLES, assert_none, cleans_of, scenario, shipped, without};

/// Scenarios that are not played here, by the beginning of their names: there is no Job in them, or what they are about comes before
/// there is one, or others that are played here show it of pods.
const LEFT_OUT: [&str; 5] = ["custom-", "hindered-", "missing-", "refused-", "temporal-"];

/// At how many of its writes a scenario has a crash. Each has them at more of its writes, or at all, where Kubernetes looks after its
/// Jobs, and nearly all of what happens is the same.
const SOME_WRITES: u32 = 4;

fn own() -> Shipped {
    shipped().with_own_jobs()
}

fn cleans() -> &'static [Clean] {
    static CLEANS: OnceLock<Vec<Clean>> = OnceLock::new();
    CLEANS.get_or_init(|| {
        let is_played = |scenario: &Scenario| {
            let mut left_out = LEFT_OUT.iter();
            !left_out.any(|beginning| scenario.name.starts_with(beginning))
        };
        let scenarios: Vec<_> = scenario::all().into_iter().filter(is_played).collect();
        cleans_of(&own(), &scenarios)
    })
}

fn core() -> Vec<&'static Clean> {
    let core: Vec<&Clean> = cleans()
        .iter()
        .filter(|clean| CORE.contains(&clean.scenario.name))
        .collect();
    assert_eq!(core.len(), CORE.len());
    core
}

/// What becomes of a run does not depend on who looks after its Job.
#[test]
fn runs_end_as_they_do_when_kubernetes_looks_after_their_jobs() {
    for clean in cleans() {
        let plain = super::clean(clean.scenario.name);
        let differences = plain.end.phases().differences(&clean.end.phases());
        assert!(
            differences.is_empty(),
            "{}: {differences:#?}",
            clean.scenario.name
        );
    }
}

#[test]
fn crash_or_lost_answer_at_any_write_of_a_run_that_makes_its_pod_changes_nothing() {
    let (simulations, failures) = search::at_every_write(&own(), &core(), &CRASHES);
    assert!(simulations > 50, "only {simulations} simulations");
    assert_none(simulations, &failures);
}

#[test]
fn crash_or_lost_answer_at_some_writes_of_runs_that_make_their_pods_changes_nothing() {
    let all: Vec<&Clean> = cleans().iter().collect();
    let (simulations, failures) = search::at_some_writes(&own(), &all, &CRASHES, SOME_WRITES);
    assert!(simulations > 200, "only {simulations} simulations");
    assert_none(simulations, &failures);
}

#[test]
fn refusal_silence_takeover_or_stale_watch_at_any_write_of_a_run_that_makes_its_pod_changes_nothing() {
    let (simulations, failures) = search::at_every_write(&own(), &core(), &OTHER_TROUBLES);
    assert_none(simulations, &failures);
}

#[test]
fn crash_or_lost_answer_where_there_is_much_to_do_and_pods_are_made_changes_nothing() {
    let crowded = without("leisure").with_own_jobs();
    let cleans = cleans_of(&crowded, &GIVE_WAY.map(scenario));
    let cleans: Vec<&Clean> = cleans.iter().collect();
    let (simulations, failures) = search::at_some_writes(&crowded, &cleans, &CRASHES, SOME_WRITES);
    assert!(simulations > 40, "only {simulations} simulations");
    assert_none(simulations, &failures);
}

#[test]
fn seeds_of_runs_that_make_their_pods() {
    let seeds = u64::try_from(cleans().len()).unwrap_or(u64::MAX);
    let failures = search::seeds(&own(), cleans(), 0..seeds);
    assert_none(usize::try_from(seeds).unwrap_or(usize::MAX), &failures);
}
