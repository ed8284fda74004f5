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

use std::{collections::BTreeSet, time::Duration};

use jangar_api::phase::RunPhase;
use jangar_engine::settings::Safeguards;
use jangar_testkit::{
    faults::{Plan, Trouble},
    program::Shipped,
    scenario::{self, Scenario, orchestrations},
    search,
    simulation::{Report, Simulation, play},
};
use rand::{SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use self::reference::{End, Outcome, Skip, Step, evaluate};

fn shipped() -> Shipped {
    Shipped::with(Safeguards::default())
}

/// The controllers as they are where there is always much to do.
fn crowded() -> Shipped {
    Shipped::with(Safeguards {
        leisure: false,
        ..Safeguards::default()
    })
}

fn played(scenario: &Scenario, seed: u64, plan: &str) -> Report {
    played_by(&shipped(), scenario, seed, plan)
}

fn played_by(program: &Shipped, scenario: &Scenario, seed: u64, plan: &str) -> Report {
    let simulation = Simulation {
        scenario,
        seed,
        plan: plan.parse::<Plan>().unwrap_or_else(|error| panic!("{error}")),
        quiet: Duration::ZERO,
    };
    let report = play(program, &simulation);
    assert!(
        report.violations.is_empty(),
        "seed {seed}, plan {plan:?}: {:#?}\n{}",
        report.violations,
        report.trace.join("\n")
    );
    report
}

/// The instants at which something changes in an undisturbed diamond, in milliseconds from the creation of the run.
fn instants(program: &Shipped) -> Vec<u64> {
    let scenario = orchestrations::cancelled_after(Duration::from_mins(5));
    let report = play(
        program,
        &Simulation {
            scenario: &scenario,
            seed: 0,
            plan: Plan::default(),
            quiet: Duration::ZERO,
        },
    );
    let changes = report.trace.iter().filter(|line| line.contains(" store "));
    let runs = changes.skip_while(|line| !line.contains("orchestrationruns dag Added"));
    // Once the last pod has ended, the run ends by itself.
    let runs = runs.take_while(|line| !(line.contains("pods dag-d-1") && line.contains(", Succeeded")));
    let times: BTreeSet<u64> = runs
        .filter_map(|line| line.split_whitespace().next()?.replace('.', "").parse().ok())
        .collect();
    let Some(begin) = times.first().copied() else {
        panic!("there is no run: {}", report.trace.join("\n"))
    };
    times.into_iter().map(|time| time - begin).collect()
}

/// Whenever a run is cancelled, in the very moment of any change or just after it, nothing starts afterwards and nothing is left.
#[test]
fn a_cancel_at_any_instant_leaves_nothing_behind() {
    cancelled_at_any_instant(&shipped());
}

/// The same while what was done in layers before is not recorded yet.
#[test]
fn a_cancel_at_any_instant_leaves_nothing_behind_where_there_is_much_to_do() {
    cancelled_at_any_instant(&crowded());
}

fn cancelled_at_any_instant(program: &Shipped) {
    let instants = instants(program);
    assert!(instants.len() > 20, "{instants:?}");
    search::in_parallel(&instants, |instant| {
        let scenario = orchestrations::cancelled_after(Duration::from_millis(*instant));
        played_by(program, &scenario, 0, "");
        // And while something goes wrong, at one of the next writes.
        let number = instant % 17 + 2;
        let plan = match instant % 3 {
            0 => format!("crash-after@{number}"),
            1 => format!("lost-answer@{number}"),
            _ => format!("freeze:orchestrationruns:20000@{number}"),
        };
        played_by(program, &scenario, 1 + instant % 3, &plan);
    });
}

/// The rules about a cancel find controllers that do not keep them.
#[test]
fn without_its_safeguards_a_cancelled_run_goes_on() {
    let goes_on = Safeguards {
        cancel_closes: false,
        ..Safeguards::default()
    };
    let leaves = Safeguards {
        cancel_waits: false,
        ..Safeguards::default()
    };
    for (safeguards, name, rule) in [
        (
            goes_on,
            "orchestration-cancelled-at-any-time",
            "was made after dag was cancelled",
        ),
        (
            leaves,
            "orchestration-cancelled-stubborn",
            "works for an orchestration that was cancelled",
        ),
        (
            leaves,
            "orchestration-tool-cancelled",
            "works for an orchestration that was cancelled",
        ),
        (
            leaves,
            "orchestration-outside-cancelled",
            "works for an orchestration that was cancelled",
        ),
        (
            leaves,
            "orchestration-nested-cancelled",
            "works for an orchestration that was cancelled",
        ),
    ] {
        let scenario = match name {
            "orchestration-cancelled-at-any-time" => orchestrations::cancelled_after(Duration::from_secs(5)),
            "orchestration-outside-cancelled" => orchestrations::outside_cancelled(),
            name => scenario::all()
                .into_iter()
                .find(|scenario| scenario.name == name)
                .unwrap_or_else(|| panic!("there is no scenario {name}")),
        };
        played(&scenario, 0, "");
        let simulation = Simulation {
            scenario: &scenario,
            seed: 0,
            plan: Plan::default(),
            quiet: Duration::ZERO,
        };
        let report = play(&Shipped::with(safeguards), &simulation);
        assert!(
            report.violations.iter().any(|found| found.contains(rule)),
            "{name}: {rule:?} should be broken, but {:#?}\n{}",
            report.violations,
            report.trace.join("\n")
        );
    }
}

/// What may happen to a process at a write, and what may keep it from seeing what has become of it.
const MISHAPS: [&str; 5] = [
    "crash-before",
    "crash-after",
    "lost-answer",
    "conflict",
    "freeze:all:40000",
];

/// At one write in so many something happens: tests have little time, and all of it comes in turn.
const MISHAP_EVERY: usize = 3;

/// What outlives a cancel is in the receipts when it is gone, up to the root, whatever happens meanwhile.
#[test]
fn what_outlives_a_cancel_is_in_the_receipt_when_it_is_gone() {
    let scenario = orchestrations::cancel_timed_out();
    let undisturbed = played(&scenario, 0, "");
    let told = survivors(&undisturbed);
    assert_eq!(
        told,
        ["dag inner true", "dag t true", "dag-inner-1 x true"],
        "{}",
        undisturbed.trace.join("\n")
    );
    let writes: Vec<u32> = (0..undisturbed.writes).step_by(MISHAP_EVERY).collect();
    search::in_parallel(&writes, |write| {
        let place = usize::try_from(*write).unwrap_or(usize::MAX);
        let plan = format!("{}@{write}", MISHAPS[place % MISHAPS.len()]);
        let told = survivors(&played(&scenario, 0, &plan));
        assert!(!told.is_empty(), "{plan}");
        assert!(told.iter().all(|line| line.ends_with("true")), "{plan}: {told:?}");
    });
}

/// The receipts of what outlived a cancel: the run, the step, and whether they say when it was gone.
fn survivors(report: &Report) -> Vec<String> {
    let objects = report.end.objects().iter();
    let runs = objects.filter(|(key, _)| key.contains("orchestrationruns"));
    let receipts = runs.flat_map(|(_, run)| {
        let receipts = run["status"]["cancelReceipt"].as_array().into_iter().flatten();
        receipts.map(move |receipt| (run["metadata"]["name"].as_str(), receipt))
    });
    receipts
        .filter(|(_, receipt)| receipt["result"] == "CancelTimedOut")
        .map(|(run, receipt)| {
            let step = receipt["step"].as_str().unwrap_or_default();
            format!(
                "{} {step} {}",
                run.unwrap_or_default(),
                receipt["goneAt"].is_string()
            )
        })
        .collect()
}

/// How many random graphs are played, and with how many random plans each.
const GRAPHS: u64 = 24;
const PLANS: u64 = 3;

/// Every trouble that leaves no mark on the end, one for each of the first graphs. What lasts does so for longer than the barrier
/// waits, and a takeover for longer than the lease.
const TROUBLES: [&str; 15] = [
    "crash-before",
    "crash-after",
    "lost-answer",
    "no-answer",
    "gateway-timeout",
    "not-sent",
    "late:5000",
    "conflict",
    "busy",
    "broken",
    "freeze:all:40000",
    "skip:orchestrationruns:40000",
    "lag:agentruns:3000",
    "expire",
    "takeover:70000",
];

const _: () = assert!(GRAPHS >= TROUBLES.len() as u64, "each needs a graph of its own");

/// The others: somebody deletes what the graph needs, or sets the clock that its waits are measured with.
const LEAVE_A_MARK: [&str; 4] = ["delete-job", "delete-pod", "clock-forward", "clock-back"];

#[test]
fn every_trouble_that_leaves_no_mark_comes_alone_to_a_random_graph() {
    let words = TROUBLES
        .iter()
        .map(|trouble| trouble.split(':').next().unwrap_or_default());
    let all: BTreeSet<&str> = words.chain(LEAVE_A_MARK).collect();
    assert_eq!(all, BTreeSet::from(Trouble::WORDS));
    for trouble in TROUBLES {
        let plan = format!("{trouble}@0").parse::<Plan>();
        assert!(plan.is_ok_and(|plan| plan.leaves_no_mark()), "{trouble}");
    }
}

/// Random graphs, undisturbed and with whatever goes wrong, end as the reference says, step by step. There is much to do for every other
/// one of them.
#[test]
fn random_graphs_end_as_the_reference_says_whatever_goes_wrong() {
    let one = std::env::var(GRAPH).ok().filter(|seed| !seed.is_empty());
    let one = one.map(|seed| {
        seed.parse::<u64>()
            .expect("JANGAR_SIM_GRAPH is the number of a graph")
    });
    let seeds: Vec<u64> = one.map_or_else(|| (0..GRAPHS).collect(), |seed| vec![seed]);
    search::in_parallel(&seeds, |seed| {
        let _again = Again(*seed);
        let graph = Random::graph(*seed);
        let scenario = orchestrations::of_steps(&graph.written(), &graph.fail(), graph.phase());
        let expected = expected(&graph.steps);
        let program = if seed % 2 == 0 { shipped() } else { crowded() };
        let undisturbed = played_by(&program, &scenario, *seed, "");
        assert_eq!(told(&undisturbed), expected, "seed {seed}");
        let drawn = (0..PLANS).map(|number| unmarking(seed * PLANS + number, undisturbed.writes).to_string());
        let place = usize::try_from(*seed).unwrap_or(usize::MAX);
        // Each at another place, from the first write to the last.
        let at = u64::from(undisturbed.writes) * seed / TROUBLES.len() as u64;
        let alone = TROUBLES.get(place).map(|trouble| format!("{trouble}@{at}"));
        for plan in drawn.chain(alone) {
            let report = played_by(&program, &scenario, *seed, &plan);
            assert_eq!(told(&report), expected, "seed {seed} {plan}");
        }
    });
}

/// Somebody deletes the newest Job or pod, or sets the clock, at each of some writes of every random graph. Steps may end otherwise than they
/// would have; what follows from their ends is what the reference makes of them.
#[test]
fn steps_of_random_graphs_follow_from_those_before_them_whatever_is_deleted() {
    let seeds: Vec<u64> = (0..GRAPHS).collect();
    search::in_parallel(&seeds, |seed| {
        let graph = Random::graph(*seed);
        let scenario = orchestrations::of_steps(&graph.written(), &graph.fail(), graph.phase());
        let program = if seed % 2 == 0 {
            shipped()
        } else {
            shipped().with_own_jobs()
        };
        let writes = played_by(&program, &scenario, *seed, "").writes;
        for (number, trouble) in (0..).zip(MARKING) {
            let at = u64::from(writes) * ((seed + number) % 8) / 8;
            let plan = format!("{trouble}@{at}");
            let report = played_by(&program, &scenario, *seed, &plan);
            let told = told(&report);
            let ended = graph.steps.iter().zip(&told).map(|(step, (phase, ..))| Step {
                outcome: match phase.as_str() {
                    "Succeeded" => Outcome::Succeeds,
                    "Failed" => Outcome::Fails,
                    _ => step.outcome,
                },
                ..step.clone()
            });
            let ended: Vec<_> = ended.collect();
            assert_eq!(told, expected(&ended), "seed {seed} {plan}");
            assert_eq!(
                run(&report)["status"]["phase"],
                phase(&ended).as_str(),
                "seed {seed} {plan}"
            );
        }
    });
}

/// One of each that leaves a mark.
const MARKING: [&str; 4] = [
    "delete-job:2000",
    "delete-pod:2000",
    "clock-forward:60000",
    "clock-back:60000",
];

#[test]
fn every_trouble_that_leaves_a_mark_comes_to_random_graphs() {
    let words = MARKING.map(|trouble| trouble.split(':').next().unwrap_or_default());
    assert_eq!(words, LEAVE_A_MARK);
}

/// At how many instants each random graph is cancelled.
const CANCELS: usize = 3;

/// A cancel of random graphs in moments in which something changes, undisturbed and with a trouble: nothing starts afterwards, nothing is
/// left, and the run says of every step what became of it.
#[test]
fn random_graphs_that_are_cancelled_leave_nothing_behind() {
    // A leader that was cut off and wakes up sends what it was about to, whatever was cancelled meanwhile: nothing can keep it from that.
    let troubles = TROUBLES.map(|trouble| (!trouble.starts_with("takeover")).then_some(trouble));
    let troubles: Vec<&str> = troubles.into_iter().flatten().collect();
    let seeds: Vec<u64> = (0..GRAPHS).collect();
    let cancelled = search::in_parallel(&seeds, |seed| {
        let graph = Random::graph(*seed);
        let (steps, fail) = (graph.written(), graph.fail());
        let program = if seed % 2 == 0 { shipped() } else { crowded() };
        let undisturbed = orchestrations::of_steps(&steps, &fail, graph.phase());
        let report = played_by(&program, &undisturbed, *seed, "");
        let instants = changes_while_pods_work(&report);
        let mut cancelled = 0;
        for (number, place) in (0..).zip((0..CANCELS).map(|each| instants.len() * each / CANCELS)) {
            let Some(instant) = instants.get(place) else {
                continue;
            };
            let after = Duration::from_millis(*instant);
            let mut scenario = orchestrations::of_steps_cancelled_after(after, &steps, &fail);
            // What ends in that very moment, or before a late process hears of the cancel, ends by itself.
            scenario.ends.clear();
            let trouble = troubles[usize::try_from(seed + number).unwrap_or(0) % troubles.len()];
            for plan in [String::new(), format!("{trouble}@{}", 4 + instant % 9)] {
                let report = played_by(&program, &scenario, *seed, &plan);
                if run(&report)["status"]["phase"] == "Cancelled" {
                    cancelled += 1;
                    let open = |(phase, ..): &(String, String, String)| !ENDED.contains(&phase.as_str());
                    let open: Vec<_> = told(&report).into_iter().filter(open).collect();
                    assert!(open.is_empty(), "seed {seed} {plan}: {open:?}");
                } else {
                    assert_eq!(
                        told(&report),
                        expected(&graph.steps),
                        "seed {seed} {plan}: it was not cancelled"
                    );
                }
            }
        }
        cancelled
    });
    let cancelled: usize = cancelled.into_iter().sum();
    assert!(cancelled > 100, "only {cancelled} runs were cancelled");
}

const ENDED: [&str; 4] = ["Succeeded", "Failed", "Cancelled", "Skipped"];

/// When something changes before the last pod has ended, in milliseconds from the creation of the run.
fn changes_while_pods_work(report: &Report) -> Vec<u64> {
    let changes: Vec<&String> = report
        .trace
        .iter()
        .filter(|line| line.contains(" store "))
        .collect();
    let over = |line: &&String| {
        line.contains("pods dag-") && (line.contains(", Succeeded") || line.contains(", Failed"))
    };
    let begin = changes
        .iter()
        .position(|line| line.contains("orchestrationruns dag Added"));
    let (Some(begin), Some(end)) = (begin, changes.iter().rposition(over)) else {
        return Vec::new();
    };
    let times: BTreeSet<u64> = changes[begin..end]
        .iter()
        .filter_map(|line| line.split_whitespace().next()?.replace('.', "").parse().ok())
        .collect();
    let first = times.first().copied().unwrap_or_default();
    times.into_iter().map(|time| time - first).collect()
}

/// Plays this graph alone.
const GRAPH: &str = "JANGAR_SIM_GRAPH";

/// Tells how to see a graph again that did not end well.
struct Again(u64);

impl Drop for Again {
    #[expect(
        clippy::print_stderr,
        reason = "it is printed with the failure of the test that it is part of"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "again: {GRAPH}={} cargo test --workspace --test orchestrations -- --exact \
                 random_graphs_end_as_the_reference_says_whatever_goes_wrong --nocapture",
                self.0
            );
        }
    }
}

/// A plan of what leaves no mark on the end.
fn unmarking(seed: u64, writes: u32) -> Plan {
    let mut random = StdRng::seed_from_u64(seed);
    let mut plans = std::iter::repeat_with(|| Plan::random(&mut random, writes));
    plans.find(Plan::leaves_no_mark).unwrap_or_default()
}

/// A graph, and which of its steps are attempted twice.
struct Random {
    steps: Vec<Step>,
    retried: Vec<bool>,
}

impl Random {
    fn graph(seed: u64) -> Self {
        let steps = random_steps(seed);
        let mut random = fastrand::Rng::with_seed(seed + 1000);
        let retried = steps
            .iter()
            .map(|step| step.outcome == Outcome::Succeeds && random.u8(0..5) == 0)
            .collect();
        Self { steps, retried }
    }

    fn phase(&self) -> RunPhase {
        phase(&self.steps)
    }

    fn written(&self) -> Value {
        let steps = self.steps.iter().enumerate().zip(&self.retried);
        let written = steps.map(|(step, retried)| {
            let mut written = written(step);
            if *retried {
                written["retries"] = json!(1);
            }
            written
        });
        Value::Array(written.collect())
    }

    /// The steps whose first attempt fails.
    fn fail(&self) -> Vec<String> {
        let steps = self.steps.iter().zip(&self.retried).enumerate();
        let bad = steps.filter(|(_, (step, retried))| step.outcome == Outcome::Fails || **retried);
        bad.map(|(number, _)| format!("s{number}")).collect()
    }
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

fn run(report: &Report) -> &Value {
    let objects = report.end.objects();
    let run = objects.iter().find(|(key, _)| key.contains("orchestrationruns"));
    let Some((_, run)) = run else {
        panic!("there is no run: {objects:#?}")
    };
    run
}

/// How the steps ended, as the run says: phase, reason of a skip, and the cause.
fn told(report: &Report) -> Vec<(String, String, String)> {
    let run = run(report);
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

/// What becomes of a run of these steps, by the reference.
fn phase(steps: &[Step]) -> RunPhase {
    match evaluate(steps).1 {
        End::Succeeded => RunPhase::Succeeded,
        _ => RunPhase::Failed,
    }
}

/// How the steps should end, by the reference, in the same words.
fn expected(steps: &[Step]) -> Vec<(String, String, String)> {
    evaluate(steps).0.into_iter().map(in_words).collect()
}

fn in_words(end: End) -> (String, String, String) {
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
