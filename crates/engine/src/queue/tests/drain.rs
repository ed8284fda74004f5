//! Thousands of runs that wait: all start, no limit is exceeded on the way, and a change costs little.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use super::{Desk, Run, run, seconds};
use crate::{
    queue::scope::{Lane, Scope},
    settings::{LimitSettings, RepositoryLimits},
};

const RUNS: usize = 5_000;
/// How many others are there that have ended long ago.
const FINISHED: usize = 5_000;

/// Limits of every sort.
fn limits() -> LimitSettings {
    let mut limits = LimitSettings::default();
    limits.concurrency.agent = 20;
    limits.concurrency.namespace = 60;
    limits.concurrency.cluster = 100;
    limits.concurrency.repositories = Some(RepositoryLimits {
        default: Some(7),
        overrides: BTreeMap::from([("team/repo-3".to_owned(), Some(1))]),
    });
    limits.rate.repository = None;
    limits.rate.namespace = Some(900);
    limits.rate.cluster = Some(1_500);
    limits
}

fn some_run(index: usize) -> Run {
    let run = run(&format!("run-{index:05}"))
        .namespace(["blue", "green"][index % 2])
        .agent(&format!("agent-{}", index % 7))
        .priority(i32::try_from(index % 3).expect("small"))
        .later(u64::try_from(index / 50).expect("small"));
    match index % 41 {
        0 => run,
        number => run.repository(&format!("team/repo-{number}")),
    }
}

/// What is under way, counted from the outside.
#[derive(Default)]
struct Count(BTreeMap<Scope, u32>);

impl Count {
    fn change(&mut self, lane: &Lane, by: i64) {
        for scope in lane.scopes() {
            let count = self.0.entry(scope).or_default();
            *count = u32::try_from(i64::from(*count) + by).expect("never below nothing");
        }
    }

    fn assert_within(&self, limits: &LimitSettings) {
        for (scope, count) in &self.0 {
            let limit = match scope {
                Scope::Agent { .. } => Some(limits.concurrency.agent),
                Scope::Repository(name) => limits
                    .concurrency
                    .repositories
                    .as_ref()
                    .and_then(|all| all.of(name)),
                Scope::Namespace(_) => Some(limits.concurrency.namespace),
                Scope::Cluster => Some(limits.concurrency.cluster),
            };
            assert!(limit.is_none_or(|limit| *count <= limit), "{scope}: {count}");
        }
    }
}

#[test]
fn thousands_of_queued_runs_drain_within_every_limit() {
    let limits = limits();
    let mut desk = Desk::new(limits.clone());
    for index in 0..FINISHED {
        let old = some_run(index).key.name;
        let old = run(&format!("old-{old}"));
        desk.ends(&old, super::start() - seconds(100_000));
    }
    let runs: Vec<Run> = (0..RUNS).map(some_run).collect();
    let by_key: BTreeMap<_, _> = runs.iter().map(|run| (run.key.clone(), run)).collect();
    for run in &runs {
        desk.arrives(run);
    }
    let mut count = Count::default();
    // Those that work, with when they will have ended.
    let mut working: VecDeque<(Timestamp, &Run, Timestamp)> = VecDeque::new();
    let mut starts: Vec<Timestamp> = Vec::new();
    while starts.len() < RUNS || !working.is_empty() {
        for grant in desk.index.admit(desk.now) {
            let run = by_key[&grant.key];
            count.change(&run.demand.lane, 1);
            count.assert_within(&limits);
            starts.push(grant.at);
            let window = starts
                .iter()
                .rev()
                .take_while(|at| **at > desk.now - limits.rate.window);
            assert!(window.count() <= 1_500);
            desk.index.put(&run.key, run.works(grant.at), desk.now);
            working.push_back((desk.now + seconds(2), run, grant.at));
        }
        let Some((end, run, at)) = working.pop_front() else {
            // Everybody waits for the window.
            let next = desk
                .index
                .next_look()
                .expect("somebody waits, so something will happen");
            assert!(next > desk.now);
            desk.now = next;
            continue;
        };
        desk.now = desk.now.max(end);
        count.change(&run.demand.lane, -1);
        desk.ends(run, at);
    }
    assert_eq!(starts.len(), RUNS);
    assert_eq!(desk.index.in_use(&Scope::Cluster), 0);
}
