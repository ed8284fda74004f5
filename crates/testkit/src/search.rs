//! Looks for trouble: at every write of a scenario, and in simulations that are drawn from seeds.

use std::{
    collections::BTreeSet,
    fmt,
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rand::{SeedableRng, rngs::StdRng};

use crate::{
    check::end::EndState,
    faults::{Fault, Plan, Trouble},
    program::Program,
    scenario::Scenario,
    simulation::{Report, Simulation, play},
};

/// How long an undisturbed world must stay quiet.
const QUIET: Duration = Duration::from_hours(1);
/// How many lines of the trace a failure shows: enough to see the last process start, few enough to be read.
const TRACE_TAIL: usize = 120;

/// The undisturbed end of a scenario.
#[derive(Clone, Debug)]
pub struct Clean {
    pub scenario: Scenario,
    pub writes: u32,
    pub end: EndState,
    /// What AgentRuns said that they waited for.
    pub waits: BTreeSet<String>,
    /// With which reasons they ended, those that are gone too.
    pub reasons: BTreeSet<String>,
}

/// What went wrong, and how to see it again.
#[derive(Clone, Debug)]
pub struct Failure {
    pub scenario: &'static str,
    pub seed: u64,
    pub plan: Plan,
    pub violations: Vec<String>,
    /// What sets the program apart, as variables.
    variables: String,
    trace: Vec<String>,
}

impl Failure {
    /// All of it in one line.
    pub fn headline(&self) -> String {
        let Self {
            scenario,
            seed,
            plan,
            violations,
            ..
        } = self;
        format!(
            "scenario {scenario}, seed {seed}, faults [{plan}]: {}",
            violations.join("; ")
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scenario, seed, plan, ..
        } = self;
        writeln!(f, "scenario {scenario}, seed {seed}, faults: {plan}")?;
        for violation in &self.violations {
            writeln!(f, "  VIOLATION: {violation}")?;
        }
        // Leases and watches are renewed all the time.
        let renewed = |line: &String| line.contains("/leases/") || line.contains("watch=true");
        let lines: Vec<&String> = self.trace.iter().filter(|line| !renewed(line)).collect();
        let cut = lines.len().saturating_sub(TRACE_TAIL);
        writeln!(f, "what happened last (the first {cut} lines are left out):")?;
        for line in lines.into_iter().skip(cut) {
            writeln!(f, "  {line}")?;
        }
        writeln!(
            f,
            "again: {}JANGAR_SIM_SCENARIO={scenario} JANGAR_SIM_SEED={seed} JANGAR_SIM_PLAN='{plan}' \
             cargo test --workspace --test simulation -- --exact seeds --nocapture",
            self.variables
        )
    }
}

/// Plays a scenario without faults.
pub fn clean(program: &dyn Program, scenario: &Scenario) -> Result<Clean, Box<Failure>> {
    let report = undisturbed(program, scenario, 0, QUIET)?;
    Ok(Clean {
        scenario: scenario.clone(),
        writes: report.writes,
        end: report.end,
        waits: report.waits,
        reasons: report.reasons,
    })
}

/// Plays a seed of a scenario without faults, and has it stay quiet for so long.
pub fn undisturbed(
    program: &dyn Program,
    scenario: &Scenario,
    seed: u64,
    quiet: Duration,
) -> Result<Report, Box<Failure>> {
    let simulation = Simulation {
        scenario,
        seed,
        plan: Plan::default(),
        quiet,
    };
    judge(program, &simulation, None)
}

/// Plays a scenario with faults, and compares its end with the undisturbed one.
pub fn disturbed(
    program: &dyn Program,
    clean: &Clean,
    seed: u64,
    plan: Plan,
) -> Result<Report, Box<Failure>> {
    let simulation = Simulation {
        scenario: &clean.scenario,
        seed,
        plan,
        quiet: Duration::ZERO,
    };
    judge(program, &simulation, Some(&clean.end))
}

/// Plays every scenario with each of some troubles at each of its writes. Returns how many simulations that took.
pub fn at_every_write(
    program: &dyn Program,
    cleans: &[&Clean],
    troubles: &[Trouble],
) -> (usize, Vec<Failure>) {
    let each = cleans.iter().flat_map(|clean| {
        (0..clean.writes)
            .flat_map(move |write| troubles.iter().map(move |trouble| (*clean, trouble.at(write))))
    });
    all(program, each)
}

/// Plays every scenario with one trouble at each of `most` of its writes, the first and the last among them. Troubles come in
/// turn, and begin with another one in each scenario. Returns how many simulations that took.
pub fn at_some_writes(
    program: &dyn Program,
    cleans: &[&Clean],
    troubles: &[Trouble],
    most: u32,
) -> (usize, Vec<Failure>) {
    let each = cleans.iter().enumerate().flat_map(|(number, clean)| {
        let troubles = troubles.iter().cycle().skip(number % troubles.len().max(1));
        let writes = spread(clean.writes, most).into_iter().zip(troubles);
        writes.map(move |(write, trouble)| (*clean, trouble.at(write)))
    });
    all(program, each)
}

/// So many of the numbers below `writes`, as evenly as can be, from the first to the last; all of them if there are no more.
fn spread(writes: u32, most: u32) -> Vec<u32> {
    let count = most.min(writes);
    let (last, gaps) = (writes.saturating_sub(1), count.saturating_sub(1));
    (0..count).map(|number| number * last / gaps.max(1)).collect()
}

fn all<'a>(program: &dyn Program, each: impl Iterator<Item = (&'a Clean, Fault)>) -> (usize, Vec<Failure>) {
    let all: Vec<(&Clean, Fault)> = each.collect();
    let results = in_parallel(&all, |(clean, fault)| {
        disturbed(program, clean, 0, Plan(vec![*fault])).err()
    });
    (
        all.len(),
        results.into_iter().flatten().map(|failure| *failure).collect(),
    )
}

/// What a seed stands for: a scenario, and what goes wrong in it.
pub fn drawn(cleans: &[Clean], seed: u64) -> (&Clean, Plan) {
    let mut rng = StdRng::seed_from_u64(seed);
    // In turn, so that a budget of seeds brings every scenario, however many there are.
    let turn = usize::try_from(seed % u64::try_from(cleans.len()).unwrap_or(u64::MAX)).unwrap_or_default();
    let clean = &cleans[turn];
    (clean, Plan::random(&mut rng, clean.writes))
}

/// Plays what some seeds stand for.
pub fn seeds(program: &dyn Program, cleans: &[Clean], seeds: std::ops::Range<u64>) -> Vec<Failure> {
    let all: Vec<u64> = seeds.collect();
    let results = in_parallel(&all, |seed| {
        let (clean, plan) = drawn(cleans, *seed);
        disturbed(program, clean, *seed, plan).err()
    });
    results.into_iter().flatten().map(|failure| *failure).collect()
}

/// Plays a simulation and says what is wrong about it.
fn judge(
    program: &dyn Program,
    simulation: &Simulation<'_>,
    undisturbed: Option<&EndState>,
) -> Result<Report, Box<Failure>> {
    let failure = |violations, trace| {
        Box::new(Failure {
            scenario: simulation.scenario.name,
            seed: simulation.seed,
            plan: simulation.plan.clone(),
            violations,
            variables: program.variables(),
            trace,
        })
    };
    let played = catch_unwind(AssertUnwindSafe(|| play(program, simulation)));
    let mut report = played.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic");
        failure(vec![format!("the simulation broke: {text}")], Vec::new())
    })?;
    if let Some(undisturbed) = undisturbed
        && report.violations.is_empty()
        && !simulation.leaves_a_mark()
    {
        report.violations = undisturbed.differences(&report.end);
    }
    if report.violations.is_empty() {
        Ok(report)
    } else {
        Err(failure(report.violations, report.trace))
    }
}

/// Does something for each item, on every core, and returns the results in the order of the items.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], act: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = act(item);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_writes_are_evenly_spread_from_the_first_to_the_last() {
        for writes in 0..60 {
            for most in 2..20 {
                let chosen = spread(writes, most);
                assert_eq!(chosen.len(), usize::try_from(writes.min(most)).unwrap());
                if writes > 1 {
                    assert_eq!(chosen.first(), Some(&0), "{writes} {most}");
                    assert_eq!(chosen.last(), Some(&(writes - 1)), "{writes} {most}");
                }
                let gaps: Vec<u32> = chosen.windows(2).map(|pair| pair[1] - pair[0]).collect();
                let (least, greatest) = (gaps.iter().min(), gaps.iter().max());
                if let (Some(least), Some(greatest)) = (least, greatest) {
                    assert!(*least > 0 && greatest - least <= 1, "{writes} {most}: {chosen:?}");
                }
            }
        }
    }
}
