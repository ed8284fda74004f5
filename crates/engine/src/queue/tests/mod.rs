//! The queue, held to a plain search through everybody, and to what it promises.

mod drain;
mod duplicates;
mod limits;
mod objects;
mod order;
mod plain;

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Index,
    facts::{Demand, Facts, Hold, RunFacts, Slot, Stands},
    scope::Lane,
};
use crate::{
    decision::{Key, Uid},
    settings::LimitSettings,
};

/// When the tests begin. Any time will do.
fn start() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn key(name: &str) -> Key {
    Key {
        namespace: "agents".to_owned(),
        name: name.to_owned(),
    }
}

/// No limits but those on what is under way, and those wide open.
fn open() -> LimitSettings {
    let mut limits = LimitSettings::default();
    limits.concurrency.agent = 1000;
    limits.concurrency.namespace = 1000;
    limits.concurrency.cluster = 1000;
    limits.queue.namespace = None;
    limits.queue.repository = None;
    limits.queue.cluster = None;
    limits.rate.namespace = None;
    limits.rate.repository = None;
    limits.rate.cluster = None;
    limits
}

/// A run, by everything that the queue looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    key: Key,
    demand: Demand,
}

/// A run of the agent `fixer` in the namespace `agents`, with a UID that is its name.
fn run(name: &str) -> Run {
    Run {
        key: key(name),
        demand: Demand {
            uid: Uid(name.to_owned()),
            lane: Lane {
                namespace: "agents".to_owned(),
                agent: "fixer".to_owned(),
                repository: None,
            },
            priority: 0,
            created: start(),
            idempotency_key: None,
        },
    }
}

impl Run {
    fn agent(mut self, name: &str) -> Self {
        self.demand.lane.agent = name.to_owned();
        self
    }

    fn repository(mut self, name: &str) -> Self {
        self.demand.lane.repository = Some(name.to_owned());
        self
    }

    fn namespace(mut self, name: &str) -> Self {
        self.demand.lane.namespace = name.to_owned();
        self.key.namespace = name.to_owned();
        self
    }

    fn priority(mut self, priority: i32) -> Self {
        self.demand.priority = priority;
        self
    }

    /// Created so many seconds later.
    fn later(mut self, by: u64) -> Self {
        self.demand.created = start() + seconds(by);
        self
    }

    fn idempotent(mut self, key: &str) -> Self {
        self.demand.idempotency_key = Some(key.to_owned());
        self
    }

    fn facts(&self, stands: Stands, admitted_at: Option<Timestamp>, slots: Vec<Slot>) -> Facts {
        Facts {
            run: Some(RunFacts {
                demand: self.demand.clone(),
                stands,
                executed: admitted_at.is_some(),
                admitted_at,
            }),
            slots,
        }
    }

    /// It was created and wants to start.
    fn fresh(&self) -> Facts {
        self.facts(Stands::Contends, None, Vec::new())
    }

    fn slot(&self, at: Timestamp, held: bool) -> Slot {
        Slot {
            id: Uid(format!("job-of-{}-at-{at}", self.key)),
            run: self.demand.uid.clone(),
            lane: self.demand.lane.clone(),
            admitted_at: Some(at),
            hold: if held { Hold::Pod } else { Hold::Over },
        }
    }

    /// Its Job is there and works.
    fn works(&self, at: Timestamp) -> Facts {
        self.facts(Stands::Apart, Some(at), vec![self.slot(at, true)])
    }

    /// Its Job has ended, and with it the run.
    fn ended(&self, at: Timestamp) -> Facts {
        self.facts(Stands::Over, Some(at), vec![self.slot(at, false)])
    }
}

/// An index with a clock, and with words for what happens.
struct Desk {
    index: Index,
    now: Timestamp,
}

impl Desk {
    fn new(limits: LimitSettings) -> Self {
        Self {
            index: Index::new(limits),
            now: start(),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn arrives(&mut self, run: &Run) {
        self.index.put(&run.key, run.fresh(), self.now);
    }

    fn works(&mut self, run: &Run) {
        self.index.put(&run.key, run.works(self.now), self.now);
    }

    fn ends(&mut self, run: &Run, at: Timestamp) {
        self.index.put(&run.key, run.ended(at), self.now);
    }

    /// The names of those who are let in now. Their Jobs are seen at once.
    fn admit(&mut self, runs: &[Run]) -> Vec<String> {
        let granted = self.index.admit(self.now);
        for grant in &granted {
            let run = runs.iter().find(|run| run.key == grant.key).expect("a known run");
            self.index.put(&run.key, run.works(grant.at), self.now);
        }
        granted.into_iter().map(|grant| grant.key.name).collect()
    }
}
