//! All runs as the queue sees them, kept up to date, and who of them may start.
//!
//! Three things change it: what the caches show of a run ([`Index::put`]), a run that asks whether it may start
//! ([`Index::ask`]), and time ([`Index::admit`]). Between being let in and its Job being seen, a run has a **reservation**,
//! which counts as its slot: so nothing is given away twice while a cache is late.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;

use super::{
    Answer, Grant,
    facts::{Demand, Facts, Hold, Slot, Stands},
    line::{Line, Order, Rules},
    places::{Arrival, Places},
    scope::{Lane, Scope},
    told::{Limit, Tellings, Told},
    usage::{Admission, Usage, concurrency_limit, queue_limit, rate_limit},
};
use crate::{
    decision::{Key, Uid},
    settings::LimitSettings,
    waiting::{Full, Gate, Waiting},
};

/// What would show that a run has used the slot it was told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// The Job of this name.
    Job(String),
    /// The status of the run itself, which no Job executes.
    Run,
}

/// A slot that was given and that no object shows yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reservation {
    uid: Uid,
    lane: Lane,
    at: Timestamp,
    /// The Job that the run is to make of it.
    job: Option<String>,
    /// Whether the run was told of it. From then on something may have been created, seen or not.
    told: bool,
}

/// What is known under one name.
#[derive(Clone, Debug, Default)]
struct Record {
    facts: Facts,
    /// The run asked to start, and was not let in yet.
    asked: Option<Demand>,
    /// The run was looked at and did not ask: it contends no more until it does.
    declined: bool,
    reservation: Option<Reservation>,
    told: Option<Limit>,
}

/// What a record adds to the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Weight {
    slots: Vec<Lane>,
    admissions: BTreeMap<Admission, Lane>,
    contender: Option<Demand>,
    execution: Option<Execution>,
    told: Option<Limit>,
}

/// What is executed once: namespace, agent, and the idempotency key.
type Execution = (String, String, String);

impl Record {
    fn weight(&self) -> Weight {
        let reserved = self.reservation.iter();
        let held = self.facts.slots.iter().filter(|slot| slot.hold != Hold::Over);
        let mut admissions = self.facts.admissions();
        admissions.extend(
            reserved
                .clone()
                .map(|slot| ((slot.at, slot.uid.clone()), slot.lane.clone())),
        );
        let lanes = held.map(|slot| &slot.lane).chain(reserved.map(|slot| &slot.lane));
        Weight {
            slots: lanes.cloned().collect(),
            admissions,
            contender: self.contender().cloned(),
            execution: self.facts.run.as_ref().and_then(|run| execution(&run.demand)),
            told: self.told.clone(),
        }
    }

    /// The run, if it waits to be let in.
    fn contender(&self) -> Option<&Demand> {
        if self.reservation.is_some() || self.facts.is_over() {
            return None;
        }
        let unasked = self
            .facts
            .run
            .as_ref()
            .filter(|run| run.stands == Stands::Contends && !self.declined)
            .map(|run| &run.demand);
        self.asked.as_ref().or(unasked)
    }

    /// Whether the run has everything but its turn, as far as is known.
    fn may_start(&self) -> bool {
        self.contender().is_some() || (self.reservation.is_some() && !self.facts.is_over())
    }

    /// Whether the run has started something, or is about to.
    fn is_executed(&self) -> bool {
        self.facts.run.as_ref().is_some_and(|run| run.executed)
            || self
                .reservation
                .as_ref()
                .is_some_and(|reservation| reservation.told)
    }

    fn is_empty(&self) -> bool {
        self.facts == Facts::default() && self.reservation.is_none()
    }
}

fn execution(demand: &Demand) -> Option<Execution> {
    let key = demand.idempotency_key.clone()?;
    Some((demand.lane.namespace.clone(), demand.lane.agent.clone(), key))
}

fn order(key: &Key, demand: &Demand) -> Order {
    Order {
        priority: Reverse(demand.priority),
        created: demand.created,
        uid: demand.uid.clone(),
        key: key.clone(),
    }
}

fn arrival(key: &Key, demand: &Demand) -> Arrival {
    (demand.created, demand.uid.clone(), key.clone())
}

/// When each repository, or agent without one, had its turns.
type Turns = BTreeMap<Scope, BTreeSet<Admission>>;

struct View<'a> {
    usage: &'a Usage,
    turns: &'a Turns,
    limits: &'a LimitSettings,
}

impl Rules for View<'_> {
    fn is_full(&self, scope: &Scope) -> bool {
        self.usage.is_full(scope, self.limits)
    }

    fn last_turn(&self, lane: &Lane) -> Option<Timestamp> {
        let (at, _) = self.turns.get(&lane.turn())?.last()?;
        Some(*at)
    }
}

/// All runs as the queue sees them.
#[derive(Clone, Debug)]
pub struct Index {
    limits: LimitSettings,
    records: BTreeMap<Key, Record>,
    usage: Usage,
    turns: Turns,
    line: Line,
    places: Places,
    executions: BTreeMap<Execution, BTreeSet<Key>>,
    told: Tellings,
    /// Let in, and not yet returned by [`Self::admit`].
    granted: Vec<Grant>,
    /// Got a place after they were told that there is none.
    promoted: BTreeSet<Key>,
}

impl Index {
    pub fn new(limits: LimitSettings) -> Self {
        Self {
            limits,
            records: BTreeMap::new(),
            usage: Usage::default(),
            turns: Turns::new(),
            line: Line::default(),
            places: Places::default(),
            executions: BTreeMap::new(),
            told: Tellings::default(),
            granted: Vec::new(),
            promoted: BTreeSet::new(),
        }
    }

    /// Takes in what the objects of one name say now.
    pub fn put(&mut self, key: &Key, mut facts: Facts, now: Timestamp) {
        self.update(key, now, |record, usage| {
            if record.facts.uid() != facts.uid() {
                record.declined = false;
            }
            let other = |demand: &Demand| Some(&demand.uid) != facts.uid();
            if facts.is_over() || record.asked.as_ref().is_some_and(other) {
                record.asked = None;
                record.told = None;
            }
            // What a slot was taken of does not change when the run goes, and with it what it was known by.
            for slot in &mut facts.slots {
                if let Some(known) = record.facts.slots.iter().find(|known| known.id == slot.id) {
                    // A pod may be seen before its Job, and only the Job tells of which repository it takes a slot.
                    if known.admitted_at.is_some() || slot.admitted_at.is_none() {
                        slot.lane = known.lane.clone();
                    }
                    // A pod that has ended and is gone has ended all the same.
                    if known.hold == Hold::Over && slot.hold == Hold::Job {
                        slot.hold = Hold::Over;
                    }
                }
            }
            if let Some(reservation) = &record.reservation {
                let admission = (reservation.at, reservation.uid.clone());
                let unwanted = facts.is_over() || facts.uid() != Some(&reservation.uid);
                let seen =
                    |slot: &Slot| slot.run == reservation.uid && slot.admitted_at == Some(reservation.at);
                if facts.slots.iter().any(seen) {
                    // The object is the record from here on. That the status of the run tells of it is not enough: it may be
                    // seen before the Job is.
                    record.reservation = None;
                } else if unwanted && !reservation.told {
                    usage.withdraw(&admission);
                    record.reservation = None;
                }
            }
            record.facts = facts;
        });
    }

    /// A run asks whether it may start. It contends from here on, until it is let in or [declines](Self::decline).
    /// `job` is what it would make.
    pub fn ask(&mut self, key: &Key, demand: &Demand, job: Option<&str>, now: Timestamp) -> Answer {
        if let Some(of) = self.executed_instead(key, demand) {
            self.decline(key, now);
            return Answer::Duplicate { of };
        }
        self.update(key, now, |record, usage| {
            record.declined = false;
            record.asked = Some(demand.clone());
            let Some(reservation) = &record.reservation else {
                return;
            };
            if !reservation.told && reservation.lane != demand.lane {
                // It was let in by what was known of it before it asked, and needs another slot than that.
                usage.withdraw(&(reservation.at, reservation.uid.clone()));
                record.reservation = None;
            } else if reservation.told
                && (reservation.uid != demand.uid
                    || reservation.job.as_deref() != job
                    || reservation.lane != demand.lane)
            {
                // Whoever asks for the next one is done with the one before.
                record.reservation = None;
            }
        });
        self.granted.retain(|grant| grant.key != *key);
        self.let_in(now);
        let granted = self.records.get_mut(key).and_then(|record| {
            let reservation = record.reservation.as_mut()?;
            record.asked = None;
            reservation.told = true;
            reservation.job = job.map(str::to_owned);
            Some(reservation.at)
        });
        if let Some(at) = granted {
            // It knows.
            self.granted.retain(|grant| grant.key != *key);
            return Answer::Granted { at };
        }
        let waiting = Waiting::at(self.gate(key, demand));
        let told = Limit::of(&waiting.gate);
        self.update(key, now, |record, _| record.told = told);
        Answer::Waiting(Box::new(waiting))
    }

    /// The run that has the same idempotency key and is executed, if it is another one: one that has started, else the oldest
    /// that only waits for its turn. One that lacks something else may never start, and nobody is given up for it.
    fn executed_instead(&self, key: &Key, demand: &Demand) -> Option<String> {
        let siblings = self.executions.get(&execution(demand)?)?;
        if self.records.get(key).is_some_and(Record::is_executed) {
            return None;
        }
        let others = || {
            let others = siblings.iter().filter(|other| *other != key);
            others.filter_map(|other| {
                let record = self.records.get(other)?;
                Some((other, record, &record.facts.run.as_ref()?.demand))
            })
        };
        let age = |demand: &Demand| (demand.created, demand.uid.clone());
        let first = |found: Option<(&Key, &Record, &Demand)>| found.map(|(key, _, _)| key.name.clone());
        let started = others()
            .filter(|(_, record, _)| record.is_executed())
            .min_by_key(|(_, _, other)| age(other));
        let older = others()
            .filter(|(_, record, other)| record.may_start() && age(other) < age(demand))
            .min_by_key(|(_, _, other)| age(other));
        first(started).or_else(|| first(older))
    }

    /// Lets in whoever may start now. Returns all who were let in since the last call.
    pub fn admit(&mut self, now: Timestamp) -> Vec<Grant> {
        self.let_in(now);
        std::mem::take(&mut self.granted)
    }

    fn let_in(&mut self, now: Timestamp) {
        for lane in self.usage.expire(&self.limits, now) {
            self.replay(&lane);
        }
        // Each turn takes somebody out of the line.
        while let Some((lane, order)) = self.line.first(&View {
            usage: &self.usage,
            turns: &self.turns,
            limits: &self.limits,
        }) {
            self.update(&order.key, now, |record, _| {
                record.asked = None;
                record.told = None;
                record.reservation = Some(Reservation {
                    uid: order.uid.clone(),
                    lane,
                    at: now,
                    job: None,
                    told: false,
                });
            });
            self.granted.push(Grant {
                key: order.key,
                at: now,
            });
        }
    }

    /// The run was looked at and does not start anything now. What it was given and did not use is given back.
    pub fn decline(&mut self, key: &Key, now: Timestamp) {
        if !self.records.contains_key(key) {
            return;
        }
        self.update(key, now, |record, usage| {
            record.declined = true;
            record.asked = None;
            record.told = None;
            if let Some(reservation) = record.reservation.take() {
                usage.withdraw(&(reservation.at, reservation.uid));
            }
        });
    }

    /// What the run may have started: it was told that it may, and no object shows that it did.
    pub fn unseen(&self, key: &Key) -> Option<Unseen> {
        let reservation = self.records.get(key)?.reservation.as_ref()?;
        let unseen = reservation.job.clone().map_or(Unseen::Run, Unseen::Job);
        reservation.told.then_some(unseen)
    }

    /// Those who have got a place in the queue after they were told that there was none, since the last call.
    pub fn promoted(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.promoted)
    }

    /// When to call [`Self::admit`] although nothing happened: somebody may wait for the window to move on.
    pub fn next_look(&self) -> Option<Timestamp> {
        if self.line.is_empty() {
            return None;
        }
        self.usage.next_expiry(&self.limits)
    }

    /// How many wait at each gate, as they were told.
    pub const fn told(&self) -> &BTreeMap<Told, usize> {
        self.told.counts()
    }

    /// So many at most of those who were told of a limit that does not bite any more: if they ask again, they are told which
    /// one does.
    pub fn outdated(&self, at_most: usize) -> BTreeSet<Key> {
        self.told.outdated(at_most, &self.usage, &self.limits)
    }

    /// How many slots are taken of a scope.
    pub fn in_use(&self, scope: &Scope) -> u32 {
        self.usage.slots(scope)
    }

    /// Whether a run waits to be let in.
    #[cfg(test)]
    pub(super) fn contends(&self, key: &Key) -> bool {
        let record = self.records.get(key);
        record.is_some_and(|record| record.contender().is_some())
    }

    /// What keeps a run from being let in: a full queue is said first, then what is under way, then what has started lately.
    fn gate(&self, key: &Key, demand: &Demand) -> Gate {
        let lane = &demand.lane;
        let arrival = arrival(key, demand);
        let (namespace, repository) = (lane.namespace_scope(), lane.repository_scope());
        let in_queue = [Some(namespace.clone()), Some(Scope::Cluster), repository.clone()];
        let outside = in_queue
            .into_iter()
            .flatten()
            .find(|scope| self.places.is_outside(scope, &arrival));
        if let Some(scope) = outside {
            return Gate::Queue(Full {
                in_use: u32::try_from(self.places.taken(&scope)).unwrap_or(u32::MAX),
                limit: queue_limit(&scope, &self.limits).unwrap_or_default(),
                scope,
            });
        }
        let under_way = lane.scopes().find_map(|scope| {
            let limit = concurrency_limit(&scope, &self.limits)?;
            let in_use = self.usage.slots(&scope);
            (in_use >= limit).then_some(Full { scope, in_use, limit })
        });
        let lately = || {
            let scopes = [Some(Scope::Cluster), Some(namespace), repository];
            scopes.into_iter().flatten().find_map(|scope| {
                let limit = rate_limit(&scope, &self.limits)?;
                let in_use = self.usage.starts(&scope);
                (in_use >= limit).then_some(Gate::Rate {
                    full: Full { scope, in_use, limit },
                    window: self.limits.rate.window,
                })
            })
        };
        // Whoever contends and is not let in has no room somewhere.
        let nowhere = Full {
            scope: Scope::Cluster,
            in_use: self.usage.slots(&Scope::Cluster),
            limit: self.limits.concurrency.cluster,
        };
        under_way
            .map(Gate::Concurrency)
            .or_else(lately)
            .unwrap_or(Gate::Concurrency(nowhere))
    }

    /// Changes one record, and the whole by the difference.
    fn update(&mut self, key: &Key, now: Timestamp, change: impl FnOnce(&mut Record, &mut Usage)) {
        let mut record = self.records.remove(key).unwrap_or_default();
        let before = record.weight();
        change(&mut record, &mut self.usage);
        let after = record.weight();
        if !record.is_empty() {
            self.records.insert(key.clone(), record);
        }
        if before != after {
            self.reweigh(key, &before, &after, now);
        }
    }

    fn reweigh(&mut self, key: &Key, before: &Weight, after: &Weight, now: Timestamp) {
        let mut touched: BTreeSet<&Lane> = BTreeSet::new();
        if before.slots != after.slots {
            before.slots.iter().for_each(|lane| self.usage.give_back(lane));
            after.slots.iter().for_each(|lane| self.usage.take(lane));
            touched.extend(before.slots.iter().chain(&after.slots));
        }
        for (admission, lane) in &before.admissions {
            if !after.admissions.contains_key(admission) {
                self.forget_turn(admission, lane);
                touched.insert(lane);
            }
        }
        for (admission, lane) in &after.admissions {
            if !before.admissions.contains_key(admission) {
                self.turns
                    .entry(lane.turn())
                    .or_default()
                    .insert(admission.clone());
                self.usage.admitted(admission, lane, &self.limits, now);
                touched.insert(lane);
            }
        }
        if before.contender != after.contender {
            if let Some(demand) = &before.contender {
                self.leave(key, demand);
                touched.insert(&demand.lane);
            }
            if let Some(demand) = &after.contender {
                self.line.join(&demand.lane, order(key, demand));
                let limits = &self.limits;
                self.places.enter(&demand.lane, &arrival(key, demand), |scope| {
                    queue_limit(scope, limits)
                });
                touched.insert(&demand.lane);
            }
        }
        if before.execution != after.execution {
            self.reindex(key, before.execution.as_ref(), after.execution.as_ref());
        }
        self.told.change(key, before.told.as_ref(), after.told.as_ref());
        for lane in touched {
            self.replay(lane);
        }
    }

    fn leave(&mut self, key: &Key, demand: &Demand) {
        self.line.leave(&demand.lane, &order(key, demand));
        for next in self.places.leave(&demand.lane, &arrival(key, demand)) {
            let told = self.records.get(&next).and_then(|record| record.told.as_ref());
            if told.is_some_and(|limit| limit.gate == Told::Queue) {
                self.promoted.insert(next);
            }
        }
    }

    fn forget_turn(&mut self, admission: &Admission, lane: &Lane) {
        if let Some(turns) = self.turns.get_mut(&lane.turn()) {
            turns.remove(admission);
            if turns.is_empty() {
                self.turns.remove(&lane.turn());
            }
        }
    }

    fn reindex(&mut self, key: &Key, before: Option<&Execution>, after: Option<&Execution>) {
        if let Some(execution) = before
            && let Some(keys) = self.executions.get_mut(execution)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.executions.remove(execution);
            }
        }
        if let Some(execution) = after {
            let keys = self.executions.entry(execution.clone()).or_default();
            keys.insert(key.clone());
        }
    }

    fn replay(&mut self, lane: &Lane) {
        let rules = View {
            usage: &self.usage,
            turns: &self.turns,
            limits: &self.limits,
        };
        self.line.replay(lane, &rules);
    }
}
