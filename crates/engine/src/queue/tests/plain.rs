//! The same queue written down plainly: every decision looks at everybody. Whatever happens, both let in the same runs in the
//! same order.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;
use proptest::{collection, prelude::Strategy, prop_oneof, proptest};

use super::{Desk, Run, run, seconds};
use crate::{
    decision::{Key, Uid},
    queue::{
        Answer,
        scope::{Lane, Scope},
    },
    settings::{LimitSettings, RepositoryLimits},
};

/// How many runs there are in one play.
const RUNS: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    Contends,
    Declined,
    Reserved(Timestamp),
    Works(Timestamp),
    Ended(Timestamp),
}

/// Everybody, in a list.
struct Plain {
    limits: LimitSettings,
    runs: Vec<(Run, State)>,
    /// When who was let in, unless it came to nothing.
    admissions: BTreeMap<(Timestamp, Uid), Lane>,
}

impl Plain {
    fn slots(&self, scope: &Scope) -> u32 {
        let held = self.runs.iter().filter(|(run, state)| {
            matches!(state, State::Reserved(_) | State::Works(_))
                && run.demand.lane.scopes().any(|other| other == *scope)
        });
        u32::try_from(held.count()).expect("a few")
    }

    fn starts(&self, scope: &Scope, now: Timestamp) -> u32 {
        let begin = now - self.limits.rate.window;
        let recent = self
            .admissions
            .iter()
            .filter(|((at, _), lane)| *at > begin && lane.scopes().any(|other| other == *scope));
        u32::try_from(recent.count()).expect("a few")
    }

    fn has_room(&self, lane: &Lane, now: Timestamp) -> bool {
        let limits = &self.limits;
        lane.scopes().all(|scope| {
            let (slots, starts) = match &scope {
                Scope::Agent { .. } => (Some(limits.concurrency.agent), None),
                Scope::Repository(name) => (
                    limits
                        .concurrency
                        .repositories
                        .as_ref()
                        .and_then(|all| all.of(name)),
                    limits.rate.repository,
                ),
                Scope::Namespace(_) => (Some(limits.concurrency.namespace), limits.rate.namespace),
                Scope::Cluster => (Some(limits.concurrency.cluster), limits.rate.cluster),
            };
            slots.is_none_or(|limit| self.slots(&scope) < limit)
                && starts.is_none_or(|limit| self.starts(&scope, now) < limit)
        })
    }

    /// When the repository of a run, or its agent without one, had its last turn.
    fn last_turn(&self, lane: &Lane) -> Option<Timestamp> {
        let turns = self.runs.iter().filter_map(|(run, state)| match state {
            State::Reserved(at) | State::Works(at) | State::Ended(at)
                if run.demand.lane.turn() == lane.turn() =>
            {
                Some(*at)
            }
            _ => None,
        });
        turns.max()
    }

    fn admit(&mut self, now: Timestamp) -> Vec<Key> {
        let mut granted = Vec::new();
        loop {
            let first = self
                .runs
                .iter()
                .enumerate()
                .filter(|(_, (run, state))| *state == State::Contends && self.has_room(&run.demand.lane, now))
                .min_by_key(|(_, (run, _))| {
                    let demand = &run.demand;
                    (
                        Reverse(demand.priority),
                        self.last_turn(&demand.lane),
                        demand.created,
                        demand.uid.clone(),
                    )
                })
                .map(|(index, _)| index);
            let Some(index) = first else { return granted };
            self.runs[index].1 = State::Reserved(now);
            let demand = self.runs[index].0.demand.clone();
            self.admissions.insert((now, demand.uid), demand.lane);
            granted.push(self.runs[index].0.key.clone());
        }
    }
}

/// What can happen to a run.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives(usize),
    Asks(usize),
    Declines(usize),
    JobSeen(usize),
    Ends(usize),
    Goes(usize),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..RUNS).prop_map(Event::Arrives),
        3 => (0..RUNS).prop_map(Event::Asks),
        2 => (0..RUNS).prop_map(Event::Declines),
        4 => (0..RUNS).prop_map(Event::JobSeen),
        4 => (0..RUNS).prop_map(Event::Ends),
        1 => (0..RUNS).prop_map(Event::Goes),
        3 => (1..40_u64).prop_map(Event::Pass),
    ]
}

fn some_run(index: usize) -> impl Strategy<Value = Run> {
    let repositories = prop_oneof![
        proptest::prelude::Just(None),
        (0..3_u8).prop_map(|number| Some(format!("team/repo-{number}"))),
    ];
    (0..2_u8, 0..2_u8, repositories, -1..2_i32, 0..3_u64).prop_map(
        move |(namespace, agent, repository, priority, created)| {
            let run = run(&format!("run-{index:02}"))
                .namespace(&format!("ns-{namespace}"))
                .agent(&format!("agent-{agent}"))
                .priority(priority)
                .later(created);
            match repository {
                Some(repository) => run.repository(&repository),
                None => run,
            }
        },
    )
}

fn limits() -> impl Strategy<Value = LimitSettings> {
    let rate = || prop_oneof![proptest::prelude::Just(None), (1..5_u32).prop_map(Some)];
    let concurrency = (1..4_u32, 1..5_u32, 1..7_u32, proptest::option::of(0..3_u32));
    (concurrency, rate(), rate(), rate()).prop_map(
        |((agent, namespace, cluster, repository), one, two, three)| {
            let mut limits = LimitSettings::default();
            limits.concurrency.agent = agent;
            limits.concurrency.namespace = namespace;
            limits.concurrency.cluster = cluster;
            limits.concurrency.repositories = repository.map(|limit| RepositoryLimits {
                default: (limit > 0).then_some(limit),
                overrides: BTreeMap::from([("team/repo-1".to_owned(), Some(1))]),
            });
            limits.rate.namespace = one;
            limits.rate.repository = two;
            limits.rate.cluster = three;
            limits
        },
    )
}

/// Lets something happen to both. Whoever asks and is let in is told at once.
fn happen(plain: &mut Plain, desk: &mut Desk, event: Event) -> Option<Key> {
    let now = desk.now;
    match event {
        Event::Pass(time) => desk.pass(seconds(time)),
        Event::Arrives(index) => {
            let (run, state) = &mut plain.runs[index];
            if *state == State::Absent {
                *state = State::Contends;
                desk.arrives(run);
            }
        }
        Event::Asks(index) => {
            let (run, state) = &mut plain.runs[index];
            if matches!(state, State::Contends | State::Declined | State::Reserved(_)) {
                let known = matches!(state, State::Reserved(_));
                if *state == State::Declined {
                    *state = State::Contends;
                }
                let answer = desk.index.ask(&run.key, &run.demand, Some("job"), now);
                let granted = matches!(answer, Answer::Granted { .. });
                return (granted && !known).then(|| run.key.clone());
            }
        }
        Event::Declines(index) => {
            let (run, state) = &mut plain.runs[index];
            match *state {
                State::Contends => *state = State::Declined,
                State::Reserved(at) => {
                    *state = State::Declined;
                    plain.admissions.remove(&(at, run.demand.uid.clone()));
                }
                _ => return None,
            }
            desk.index.decline(&run.key, now);
        }
        Event::JobSeen(index) => {
            let (run, state) = &mut plain.runs[index];
            if let State::Reserved(at) = *state {
                *state = State::Works(at);
                desk.index.put(&run.key, run.works(at), now);
            }
        }
        Event::Ends(index) => {
            let (run, state) = &mut plain.runs[index];
            if let State::Works(at) = *state {
                *state = State::Ended(at);
                desk.ends(run, at);
            }
        }
        Event::Goes(index) => {
            let (run, state) = &mut plain.runs[index];
            if matches!(state, State::Ended(_) | State::Contends | State::Declined) {
                *state = State::Absent;
                desk.index.put(&run.key, crate::queue::Facts::default(), now);
            }
        }
    }
    None
}

proptest! {
    #[test]
    fn index_lets_in_whom_a_plain_search_lets_in(
        limits in limits(),
        runs in (0..RUNS).map(some_run).collect::<Vec<_>>(),
        events in collection::vec(event(), 1..120),
    ) {
        let mut desk = Desk::new(limits.clone());
        let runs = runs.into_iter().map(|run| (run, State::Absent)).collect();
        let mut plain = Plain { limits, runs, admissions: BTreeMap::new() };
        for event in events {
            let told = happen(&mut plain, &mut desk, event);
            let granted = desk.index.admit(desk.now).into_iter().map(|grant| grant.key);
            let granted: Vec<Key> = told.into_iter().chain(granted).collect();
            proptest::prop_assert_eq!(granted, plain.admit(desk.now));
            for (run, state) in &plain.runs {
                let contends = desk.index.contends(&run.key);
                proptest::prop_assert_eq!(contends, *state == State::Contends, "{}", run.key);
            }
        }
    }
}
