//! The shipped controllers in a simulated world: every scenario undisturbed, with trouble at every write, and with what seeds
//! bring. `docs/simulation.md` tells more.
//!
//! | variable | what it does |
//! |---|---|
//! | `JANGAR_SIM_SEEDS` | how many seeds are played |
//! | `JANGAR_SIM_THOROUGH` | plays every crash at every write of all scenarios, of those too that have some of them otherwise |
//! | `JANGAR_SIM_SEED` | plays what this seed stands for, and nothing else |
//! | `JANGAR_SIM_SCENARIO`, `JANGAR_SIM_PLAN` | play this scenario with these faults, and print what happened |
//! | `JANGAR_SIM_WITHOUT` | takes a safeguard away from the controllers: `barrier`, `adoption-check`, `job-finalizer`, `one-caller` or `leisure` |
//! | `JANGAR_SIM_JOBS` | `jangar`: the controllers look after their Jobs themselves |

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test that cannot go on has failed the test"
)]

mod own_jobs;
mod reasons;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
    thread,
    time::Duration,
};

use jangar_engine::settings::Safeguards;
use jangar_testkit::{
    faults::{Plan, Trouble, Watched},
    program::{self, Shipped},
    scenario::{self, Scenario},
    search::{self, Clean, Failure},
    simulation::{Simulation, play},
};

/// How many seeds are played for each scenario, unless somebody says how many in all.
const SEEDS_PER_SCENARIO: u64 = 3;
/// Scenarios, by the beginning of their names, that have a crash at some of their writes only, unless `JANGAR_SIM_THOROUGH` is
/// set: tests have little time. Seeds bring trouble to them as to all, and graphs have tests of their own.
const IN_PART: [&str; 8] = [
    "custom-in-vain",
    "hindered-",
    "job-deleted",
    "missing-",
    "orchestration",
    "refused-",
    "temporal-",
    "tool-",
];
/// At how many of its writes such a scenario has a crash.
const SOME_WRITES: u32 = 6;
/// What may happen to a process at a write.
const CRASHES: [Trouble; 3] = [Trouble::CrashBefore, Trouble::CrashAfter, Trouble::LostAnswer];
/// What else may happen to a write, or around it. Longer than a lease is for a takeover, and than the barrier waits for a freeze.
const OTHER_TROUBLES: [Trouble; 6] = [
    Trouble::Conflict,
    Trouble::Busy,
    Trouble::Broken,
    Trouble::NoAnswer,
    TAKEOVER,
    Trouble::Freeze(Watched::All, Duration::from_secs(40)),
];
/// Scenarios that have all of that at each of their writes: between them a run starts, ends, is stopped and is let go.
const CORE: [&str; 3] = ["succeeds", "cancelled", "deleted"];
/// Scenarios whose limits have to hold although a leader that was cut off wakes up and writes what it was about to, at each of
/// their writes: of Jobs, of slots that no Job shows, and of a window of time.
const CONTENDED: [&str; 3] = ["one-at-a-time", "custom-one-slot", "paced"];
/// Scenarios that are played as if there was always much to do: what gives way then is told late, or let go late.
const GIVE_WAY: [&str; 14] = [
    "succeeds",
    "cancelled",
    "deleted",
    "one-at-a-time",
    "app-in-steps",
    "workflow-retried",
    "workflow-job-taken",
    "tool-succeeds",
    "orchestration",
    "orchestration-deleted",
    "orchestration-fail-fast",
    "orchestration-nested-cancelled",
    "orchestration-retried",
    "orchestration-retry-cancelled",
];
/// Longer than a lease is.
const TAKEOVER: Trouble = Trouble::Takeover(Duration::from_secs(70));
/// How many failures are told in full; the others are only named.
const TOLD_MAX: usize = 3;
/// How many seeds are tried where one is not enough, or no longer shows what it is for: which rule is broken first is a matter of
/// moments, and every watch that is added shifts them.
const NEEDED_SEEDS: u64 = 8;

fn shipped() -> Shipped {
    Shipped::with(Safeguards::default())
}

/// The controllers without one of their safeguards.
fn without(safeguard: &str) -> Shipped {
    let safeguards = program::without(safeguard).unwrap_or_else(|| {
        let all = program::SAFEGUARDS.join(", ");
        panic!("there is no safeguard {safeguard:?}: say one of {all}")
    });
    Shipped::with(safeguards)
}

fn scenario(name: &str) -> Scenario {
    let mut all = scenario::all().into_iter().chain([scenario::job_taken_untold()]);
    let found = all.find(|scenario| scenario.name == name);
    found.unwrap_or_else(|| panic!("there is no scenario {name:?}"))
}

fn clean(name: &str) -> Clean {
    search::clean(&shipped(), &scenario(name)).unwrap_or_else(|failure| panic!("{failure}"))
}

/// The undisturbed ends of all scenarios.
fn cleans() -> &'static [Clean] {
    static CLEANS: OnceLock<Vec<Clean>> = OnceLock::new();
    CLEANS.get_or_init(|| cleans_of(&shipped(), &scenario::all()))
}

/// The undisturbed ends of some scenarios, as this program comes to them.
fn cleans_of(program: &Shipped, scenarios: &[Scenario]) -> Vec<Clean> {
    let played = search::in_parallel(scenarios, |scenario| search::clean(program, scenario));
    let cleans = played.into_iter();
    cleans
        .map(|clean| clean.unwrap_or_else(|failure| panic!("{failure}")))
        .collect()
}

fn assert_none(simulations: usize, failures: &[Failure]) {
    let told: String = failures.iter().take(TOLD_MAX).map(ToString::to_string).collect();
    let named: Vec<String> = failures.iter().map(Failure::headline).collect();
    let named = named.join("\n");
    let count = failures.len();
    assert!(
        failures.is_empty(),
        "{told}\n{count} of {simulations} simulations failed:\n{named}"
    );
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    variable(name).map(|value| {
        let number = value.parse();
        number.unwrap_or_else(|_| panic!("{name} is {value:?}, which is no number"))
    })
}

#[test]
fn crash_or_lost_answer_at_any_write_changes_nothing() {
    let thorough = variable("JANGAR_SIM_THOROUGH").is_some();
    let plain = scenario::of_plain_runs();
    let whole: Vec<&Clean> = cleans()
        .iter()
        .filter(|clean| thorough || plain.iter().any(|plain| plain.name == clean.scenario.name))
        .collect();
    let (simulations, failures) = search::at_every_write(&shipped(), &whole, &CRASHES);
    assert!(simulations > 500, "only {simulations} simulations");
    assert_none(simulations, &failures);
}

#[test]
fn crash_or_lost_answer_in_turn_at_any_write_of_other_runs_changes_nothing() {
    let plain = scenario::of_plain_runs();
    let (others, _) = by_coverage();
    let others: Vec<&Clean> = others
        .into_iter()
        .filter(|clean| plain.iter().all(|plain| plain.name != clean.scenario.name))
        .collect();
    let (simulations, failures) = search::at_some_writes(&shipped(), &others, &CRASHES, u32::MAX);
    assert!(simulations > 300, "only {simulations} simulations");
    assert_none(simulations, &failures);
}

#[test]
fn crash_or_lost_answer_at_some_writes_of_what_has_it_in_part_changes_nothing() {
    let (_, part) = by_coverage();
    let (simulations, failures) = search::at_some_writes(&shipped(), &part, &CRASHES, SOME_WRITES);
    assert!(simulations > 100, "only {simulations} simulations");
    assert_none(simulations, &failures);
}

/// What gives way to a crowd comes all the same, once, whoever crashed meanwhile: as if there was always much to do.
#[test]
fn crash_or_lost_answer_at_some_writes_where_there_is_much_to_do_changes_nothing() {
    let crowded = without("leisure");
    let cleans = cleans_of(&crowded, &GIVE_WAY.map(scenario));
    let cleans: Vec<&Clean> = cleans.iter().collect();
    let (simulations, failures) = search::at_some_writes(&crowded, &cleans, &CRASHES, SOME_WRITES);
    assert!(simulations > 50, "only {simulations} simulations");
    assert_none(simulations, &failures);
}

/// The scenarios that have a crash at every write, and those that have one at some.
fn by_coverage() -> (Vec<&'static Clean>, Vec<&'static Clean>) {
    cleans().iter().partition(|clean| {
        let name = clean.scenario.name;
        !IN_PART.iter().any(|beginning| name.starts_with(beginning))
    })
}

#[test]
fn refusal_silence_takeover_or_stale_watch_at_any_write_of_a_run_changes_nothing() {
    let core: Vec<&Clean> = cleans()
        .iter()
        .filter(|clean| CORE.contains(&clean.scenario.name))
        .collect();
    assert_eq!(core.len(), CORE.len());
    let (simulations, failures) = search::at_every_write(&shipped(), &core, &OTHER_TROUBLES);
    assert_none(simulations, &failures);
}

#[test]
fn takeover_at_any_write_of_runs_that_wait_for_a_slot_exceeds_no_limit() {
    let contended: Vec<&Clean> = cleans()
        .iter()
        .filter(|clean| CONTENDED.contains(&clean.scenario.name))
        .collect();
    assert_eq!(contended.len(), CONTENDED.len());
    let (simulations, failures) = search::at_every_write(&shipped(), &contended, &[TAKEOVER]);
    assert_none(simulations, &failures);
}

/// Watches of runs stand still from each write on, until long after the run is due: whoever deletes it must not believe them.
#[test]
fn run_that_is_to_be_kept_stays_although_the_word_is_seen_late() {
    let clean = clean("retained-late");
    let late = Trouble::Freeze(Watched::Runs, Duration::from_mins(5));
    let (simulations, failures) = search::at_every_write(&shipped(), &[&clean], &[late]);
    assert_none(simulations, &failures);
}

#[test]
fn seeds() {
    let seed = number("JANGAR_SIM_SEED");
    let taken_away = variable("JANGAR_SIM_WITHOUT");
    if let Some(safeguard) = &taken_away {
        println!("the controllers have no {safeguard}");
    }
    let own_jobs = match variable("JANGAR_SIM_JOBS").as_deref() {
        None => false,
        Some("jangar") => true,
        Some(other) => panic!("JANGAR_SIM_JOBS is {other:?}: say jangar, or nothing"),
    };
    let of_jobs = |program: Shipped| {
        if own_jobs {
            program.with_own_jobs()
        } else {
            program
        }
    };
    let program = of_jobs(taken_away.as_deref().map_or_else(shipped, without));
    // Without leisure a run ends as well, in another way; without the others it may not.
    let is_whole = taken_away.is_none_or(|safeguard| safeguard == "leisure");
    let undisturbed = if is_whole {
        program.clone()
    } else {
        of_jobs(shipped())
    };
    if let Some(name) = variable("JANGAR_SIM_SCENARIO") {
        let plan = variable("JANGAR_SIM_PLAN").unwrap_or_default();
        let plan = plan.parse::<Plan>().unwrap_or_else(|error| panic!("{error}"));
        let clean =
            search::clean(&undisturbed, &scenario(&name)).unwrap_or_else(|failure| panic!("{failure}"));
        match search::disturbed(&program, &clean, seed.unwrap_or(0), plan) {
            Ok(report) => println!("{}", report.trace.join("\n")),
            Err(failure) => panic!("{failure}"),
        }
        return;
    }
    let range = match seed {
        Some(seed) => seed..seed + 1,
        None => 0..number("JANGAR_SIM_SEEDS").unwrap_or_else(budget),
    };
    let simulations = usize::try_from(range.end - range.start).unwrap();
    assert!(
        simulations > 0,
        "JANGAR_SIM_SEEDS is 0, so nothing would be played"
    );
    let own;
    let cleans = if own_jobs {
        own = cleans_of(&undisturbed, &scenario::all());
        &own
    } else {
        cleans()
    };
    let failures = search::seeds(&program, cleans, range);
    println!("{simulations} seeds played");
    assert_none(simulations, &failures);
}

/// How many seeds are always played.
fn budget() -> u64 {
    let scenarios = u64::try_from(scenario::all().len()).unwrap_or(u64::MAX);
    scenarios.saturating_mul(SEEDS_PER_SCENARIO)
}

/// What the seeds that are always played bring, all together: not each trouble to each scenario, which is what more seeds are for.
#[test]
fn budget_of_seeds_brings_every_trouble_and_comes_to_each_scenario_as_often() {
    let drawn: Vec<(&Clean, Plan)> = (0..budget()).map(|seed| search::drawn(cleans(), seed)).collect();
    let mut troubles = BTreeMap::<&str, u32>::new();
    for fault in drawn.iter().flat_map(|(_, plan)| &plan.0) {
        *troubles.entry(fault.trouble.word()).or_default() += 1;
    }
    assert!(
        troubles.keys().eq(&BTreeSet::from(Trouble::WORDS)),
        "{troubles:?}"
    );
    assert!(troubles.values().all(|times| *times >= 5), "{troubles:?}");
    let mut scenarios = BTreeMap::<&str, u64>::new();
    for (clean, _) in &drawn {
        *scenarios.entry(clean.scenario.name).or_default() += 1;
    }
    assert_eq!(scenarios.len(), scenario::all().len());
    assert!(scenarios.values().all(|times| *times == SEEDS_PER_SCENARIO));
}

#[test]
fn equal_seeds_give_equal_traces() {
    for (name, plan) in [
        ("crowded", "crash-after@4,lag:all:2000@7"),
        ("retried", "takeover:70000@3,late:9000@8"),
        ("name-reused", "skip:all:30000@1,no-answer@3"),
        ("drained", "expire@2,busy@4,clock-forward:60000@5"),
    ] {
        let scenario = scenario(name);
        let trace = || {
            let simulation = Simulation {
                scenario: &scenario,
                seed: 7,
                plan: plan.parse().unwrap(),
                quiet: Duration::ZERO,
            };
            // In another thread hash maps have other keys, and tokio another state of its random numbers.
            thread::scope(|scope| scope.spawn(|| play(&shipped(), &simulation)).join().unwrap()).trace
        };
        let (one, two) = (trace(), trace());
        assert!(one.len() > 80, "{name}: {} lines", one.len());
        for (line, again) in one.iter().zip(&two) {
            assert_eq!(line, again, "{name}");
        }
        assert_eq!(one.len(), two.len(), "{name}");
    }
}

/// Plays a seed of a scenario with a plan twice: with every safeguard it passes, without one of them it breaks the named rule.
fn assert_needed(safeguard: &str, (name, seed): (&str, u64), plan: &str, rule: &str) {
    let clean = clean(name);
    let plan: Plan = plan.parse().unwrap_or_else(|error| panic!("{error}"));
    if let Err(failure) = search::disturbed(&shipped(), &clean, seed, plan.clone()) {
        panic!("with every safeguard in place\n{failure}");
    }
    let breaks = |failure: &Failure| failure.violations.iter().any(|found| found.contains(rule));
    let told = match search::disturbed(&without(safeguard), &clean, seed, plan.clone()) {
        Err(failure) if breaks(&failure) => return,
        Err(failure) => failure.to_string(),
        Ok(report) => format!("all went well:\n{}", report.trace.join("\n")),
    };
    let others: Vec<u64> = (0..NEEDED_SEEDS)
        .filter(|other| {
            let played = search::disturbed(&without(safeguard), &clean, *other, plan.clone());
            played.is_err_and(|failure| breaks(&failure))
        })
        .collect();
    panic!(
        "without the {safeguard}, {rule:?} should be broken by seed {seed}, as it is by {others:?}, but\n{told}"
    );
}

/// The watches are late while a workflow goes on to its next attempt. Planned as it was before its own last writes it fails, although
/// that attempt would have ended well. That work is done twice is shown with ToolRuns below: the first status of an AgentRun is only
/// written over what was looked at, and Jobs that were seen to go are remembered.
#[test]
fn without_the_barrier_a_workflow_that_would_succeed_fails() {
    assert_needed(
        "barrier",
        ("workflow-timed-out", 0),
        "lag:all:2000@8",
        "run one should be Succeeded, and is Failed",
    );
}

/// The Job of a deleted run has the name that the next run's Job will have, which would take the end of that one for its own.
#[test]
fn without_the_adoption_check_a_run_takes_the_work_of_another_for_its_own() {
    assert_needed(
        "adoption-check",
        ("name-reused", 0),
        "",
        "run one should be Succeeded, and is Failed",
    );
}

/// Somebody deletes the Job that has ended while the controllers are down.
#[test]
fn without_the_job_finalizer_a_good_end_is_lost() {
    assert_needed(
        "job-finalizer",
        ("succeeds", 0),
        "crash-before@6,delete-job:0@6",
        "run one says that it failed, but its work ended well",
    );
}

/// The Job of a deleted run is gone before its pod is, and the next run of that name starts beside it.
#[test]
fn without_the_job_finalizer_two_pods_work_for_one_name() {
    assert_needed(
        "job-finalizer",
        ("name-reused", 0),
        "",
        "worked for run one at the same time",
    );
}

/// Somebody takes the Job away by force before the run has told of it. Whoever saw it does not begin anew: what the Job did may
/// have been done. A process that crashes meanwhile cannot know, so there are no crashes here.
#[test]
fn work_that_was_taken_away_before_it_was_told_is_not_done_again() {
    let crowded = without("leisure");
    let taken = scenario::job_taken_untold();
    // What is left of the pod to tell, when it is looked at, is a matter of moments: the ends differ from seed to seed.
    for seed in 0..NEEDED_SEEDS {
        if let Err(failure) = search::undisturbed(&crowded, &taken, seed, Duration::ZERO) {
            panic!("{failure}");
        }
    }
}

/// Three runs are due at the same moment, and two may go in a minute.
#[test]
fn without_the_bound_runs_that_are_due_go_all_at_once() {
    let unbounded = shipped().changed(|settings| settings.runs.deletions_per_minute = 1000);
    let Err(failure) = search::clean(&unbounded, &scenario("forgotten-together")) else {
        panic!("nothing was found");
    };
    let found = &failure.violations;
    assert!(
        found
            .iter()
            .any(|found| found.contains("3 runs were deleted within")),
        "{failure}"
    );
}

/// A clock that is set ahead by a day makes every run due that is not kept for good, but no more of them at once; one that is
/// set back keeps them longer, and not for ever.
#[test]
fn clock_that_is_set_changes_neither_the_pace_nor_who_is_kept() {
    for name in ["forgotten-together", "retained", "retained-in-doubt"] {
        let clean = clean(name);
        for at in [0, clean.writes / 2, clean.writes - 1] {
            for jump in ["clock-forward:86400000", "clock-back:300000"] {
                let plan: Plan = format!("{jump}@{at}")
                    .parse()
                    .unwrap_or_else(|error| panic!("{error}"));
                if let Err(failure) = search::disturbed(&shipped(), &clean, 0, plan) {
                    panic!("{failure}");
                }
            }
        }
    }
}

/// The same safeguards keep what ToolRuns do from being done twice, or from being another's.
#[test]
fn without_its_safeguards_a_tool_run_goes_wrong_as_well() {
    for (safeguard, seed, plan, rule) in [
        (
            "barrier",
            ("tool-succeeds", 0),
            // A Job whose departure is seen would not be made again.
            "freeze:agentruns:60000@0,freeze:jobs:60000@0",
            "attempt 1 of run one was done twice",
        ),
        (
            "adoption-check",
            ("tool-name-reused", 1),
            "",
            "run one says that it succeeded, but no work of its own has",
        ),
        (
            "job-finalizer",
            ("tool-name-reused", 0),
            "",
            "worked for run one at the same time",
        ),
    ] {
        assert_needed(safeguard, seed, plan, rule);
    }
}

/// The process that called the endpoint dies before it can say so, and another one finds that it was about to.
#[test]
fn without_one_caller_an_endpoint_does_the_work_twice() {
    assert_needed(
        "one-caller",
        ("custom-succeeds", 0),
        "crash-after@5",
        "attempt 1 of run one was done twice",
    );
}
