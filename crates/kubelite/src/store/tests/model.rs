//! The store against a model so small that it is obviously right: the list of everything that was ever committed.
//!
//! Random writes, watches, lists of older revisions and restarts run on both; every answer must be the same.

use std::{collections::BTreeMap, marker::PhantomData};

use futures::FutureExt;
use proptest::{
    prelude::{Just, Strategy, any, prop_oneof},
    strategy::BoxedStrategy,
    test_runner::Config,
};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use tempfile::{TempDir, tempdir};
use tokio::runtime::Runtime;

use super::{
    super::{Change, CommitError, EventKind, Expect, Limits, SnapshotError, Store, Watch, Write},
    body, gadgets, key, size_of, widgets,
};

/// Small, so that watches lag and revisions expire within a short run.
const HISTORY: usize = 6;

type Place = (bool, u8);

/// One committed change; its revision is its position in the log, counted from one.
#[derive(Clone, Debug)]
struct Entry {
    place: Place,
    /// `None` for a deletion.
    size: Option<i64>,
}

#[derive(Clone, Debug)]
struct Follower {
    gadgets: bool,
    at: u64,
}

/// What the store has to answer to the latest step.
#[derive(Clone, Debug, PartialEq)]
enum Expected {
    Nothing,
    Commit(Result<u64, CommitError>),
    Start(Result<(), SnapshotError>),
    Events(Option<Vec<(u64, EventKind, u8)>>),
    List(Result<BTreeMap<u8, (i64, u64)>, SnapshotError>),
}

#[derive(Clone, Debug)]
struct Model {
    log: Vec<Entry>,
    /// The revision at the latest restart.
    floor: u64,
    followers: Vec<Follower>,
    expected: Expected,
}

#[derive(Clone, Debug)]
enum Step {
    Create { place: Place, size: i64 },
    Update { place: Place, size: i64, stale: u64 },
    Delete { place: Place, stale: u64 },
    Watch { gadgets: bool, back: u64 },
    Poll { follower: usize },
    List { gadgets: bool, back: u64 },
    Future,
    Restart,
}

impl Model {
    fn revision(&self) -> u64 {
        self.log.len() as u64
    }

    /// The log with its revisions.
    fn entries(&self) -> impl DoubleEndedIterator<Item = (u64, &Entry)> {
        (1..).zip(&self.log).collect::<Vec<_>>().into_iter()
    }

    fn objects(&self, gadgets: bool, at: u64) -> BTreeMap<u8, (i64, u64)> {
        let mut objects = BTreeMap::new();
        for (revision, entry) in self
            .entries()
            .filter(|(revision, entry)| *revision <= at && entry.place.0 == gadgets)
        {
            match entry.size {
                Some(size) => objects.insert(entry.place.1, (size, revision)),
                None => objects.remove(&entry.place.1),
            };
        }
        objects
    }

    fn current(&self, place: Place) -> Option<u64> {
        self.objects(place.0, self.revision())
            .get(&place.1)
            .map(|(_, revision)| *revision)
    }

    /// The newest revision that the history no longer reaches behind.
    fn oldest(&self, gadgets: bool) -> u64 {
        let kept = self
            .entries()
            .rev()
            .filter(|(revision, entry)| entry.place.0 == gadgets && *revision > self.floor);
        kept.map(|(revision, _)| revision)
            .nth(HISTORY)
            .unwrap_or(self.floor)
    }

    fn reach(&self, gadgets: bool, at: u64) -> Result<u64, SnapshotError> {
        let oldest = self.oldest(gadgets);
        if at < oldest {
            Err(SnapshotError::Expired { oldest })
        } else {
            Ok(at)
        }
    }

    fn write(&mut self, place: Place, expect: Expect, size: Option<i64>) -> Result<u64, CommitError> {
        match (expect, self.current(place)) {
            (Expect::Absent, Some(_)) => return Err(CommitError::Exists),
            (Expect::Revision(_), None) => return Err(CommitError::NotFound),
            (Expect::Revision(expected), Some(current)) if expected != current => {
                return Err(CommitError::Conflict { current });
            }
            (Expect::Absent, None) | (Expect::Revision(_), Some(_)) => {}
        }
        self.log.push(Entry { place, size });
        Ok(self.revision())
    }

    /// What a step is told to expect: the object's revision, or one that it never had.
    fn expectation(&self, place: Place, stale: u64) -> Expect {
        Expect::Revision(self.current(place).unwrap_or(1) + stale)
    }

    fn poll(&mut self, follower: usize) -> Option<Vec<(u64, EventKind, u8)>> {
        let Follower { gadgets, at } = self.followers[follower].clone();
        self.reach(gadgets, at).ok()?;
        let newer = self
            .entries()
            .filter(|(revision, entry)| entry.place.0 == gadgets && *revision > at);
        let events = newer.map(|(revision, entry)| {
            let before = self.objects(gadgets, revision - 1).contains_key(&entry.place.1);
            let kind = match (before, entry.size) {
                (_, None) => EventKind::Deleted,
                (true, Some(_)) => EventKind::Modified,
                (false, Some(_)) => EventKind::Added,
            };
            (revision, kind, entry.place.1)
        });
        let events = events.collect();
        self.followers[follower].at = self.revision();
        Some(events)
    }
}

/// Whether a store comes back after it is dropped.
trait Home: 'static {
    const LASTS: bool;
    fn open(directory: &TempDir, limits: Limits) -> Store;
}

#[derive(Clone, Debug)]
struct InMemory;

impl Home for InMemory {
    const LASTS: bool = false;
    fn open(_directory: &TempDir, limits: Limits) -> Store {
        Store::in_memory(limits)
    }
}

#[derive(Clone, Debug)]
struct OnDisk;

impl Home for OnDisk {
    const LASTS: bool = true;
    fn open(directory: &TempDir, limits: Limits) -> Store {
        Store::open(&directory.path().join("objects.redb"), limits).unwrap()
    }
}

struct Reference<H>(PhantomData<H>);

impl<H: Home> ReferenceStateMachine for Reference<H> {
    type State = Model;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Model> {
        Just(Model {
            log: Vec::new(),
            floor: 0,
            followers: Vec::new(),
            expected: Expected::Nothing,
        })
        .boxed()
    }

    fn transitions(model: &Model) -> BoxedStrategy<Step> {
        let place = || (any::<bool>(), 0..4_u8);
        let stale = || prop_oneof![6 => Just(0_u64), 1 => Just(1_u64)];
        let back = || 0..12_u64;
        let restart = u32::from(H::LASTS);
        prop_oneof![
            6 => (place(), 0..1000_i64).prop_map(|(place, size)| Step::Create { place, size }),
            6 => (place(), 0..1000_i64, stale()).prop_map(|(place, size, stale)| Step::Update { place, size, stale }),
            3 => (place(), stale()).prop_map(|(place, stale)| Step::Delete { place, stale }),
            2 => (any::<bool>(), back()).prop_map(|(gadgets, back)| Step::Watch { gadgets, back }),
            4 => (0..=model.followers.len()).prop_map(|follower| Step::Poll { follower }),
            3 => (any::<bool>(), back()).prop_map(|(gadgets, back)| Step::List { gadgets, back }),
            1 => Just(Step::Future),
            restart => Just(Step::Restart),
        ]
        .boxed()
    }

    fn preconditions(model: &Model, step: &Step) -> bool {
        match step {
            Step::Poll { follower } => *follower < model.followers.len(),
            Step::Restart => H::LASTS,
            _ => true,
        }
    }

    fn apply(mut model: Model, step: &Step) -> Model {
        model.expected = match *step {
            Step::Create { place, size } => Expected::Commit(model.write(place, Expect::Absent, Some(size))),
            Step::Update { place, size, stale } => {
                let expect = model.expectation(place, stale);
                Expected::Commit(model.write(place, expect, Some(size)))
            }
            Step::Delete { place, stale } => {
                let expect = model.expectation(place, stale);
                Expected::Commit(model.write(place, expect, None))
            }
            Step::Watch { gadgets, back } => {
                let at = model.revision().saturating_sub(back);
                let reached = model.reach(gadgets, at).map(drop);
                if reached.is_ok() {
                    model.followers.push(Follower { gadgets, at });
                }
                Expected::Start(reached)
            }
            Step::Poll { follower } => Expected::Events(model.poll(follower)),
            Step::List { gadgets, back } => {
                let at = model.revision().saturating_sub(back);
                Expected::List(model.reach(gadgets, at).map(|at| model.objects(gadgets, at)))
            }
            Step::Future => Expected::Start(Err(SnapshotError::Future {
                current: model.revision(),
            })),
            Step::Restart => {
                model.floor = model.revision();
                model.followers.clear();
                Expected::Nothing
            }
        };
        model
    }
}

struct System<H> {
    directory: TempDir,
    runtime: Runtime,
    store: Store,
    watches: Vec<Watch>,
    home: PhantomData<H>,
}

impl<H: Home> System<H> {
    fn limits() -> Limits {
        Limits {
            history_events_per_collection: HISTORY,
            ..Limits::default()
        }
    }

    fn new() -> Self {
        let directory = tempdir().unwrap();
        let store = H::open(&directory, Self::limits());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self {
            directory,
            runtime,
            store,
            watches: Vec::new(),
            home: PhantomData,
        }
    }

    fn write(&self, place: Place, expect: Expect, size: Option<i64>) -> Expected {
        let name = place.1.to_string();
        let change = match size {
            Some(size) => Change::Put(body(&name, size)),
            None => Change::Delete(body(&name, -1)),
        };
        let collection = if place.0 { gadgets() } else { widgets() };
        let answer = self.runtime.block_on(self.store.commit(Write {
            collection,
            key: key(&name),
            expect,
            change,
        }));
        if let Ok(object) = &answer {
            assert_eq!(
                object.value()["metadata"]["resourceVersion"],
                object.revision.to_string()
            );
        }
        Expected::Commit(answer.map(|object| object.revision))
    }

    fn update(&self, place: Place, stale: u64, size: Option<i64>) -> Expected {
        let collection = if place.0 { gadgets() } else { widgets() };
        let current = self.store.get(&collection, &key(&place.1.to_string()));
        let expect = Expect::Revision(current.map_or(1, |object| object.revision) + stale);
        self.write(place, expect, size)
    }

    fn poll(&mut self, follower: usize) -> Expected {
        let watch = &mut self.watches[follower];
        let mut events = Vec::new();
        while let Some(batch) = watch.next().now_or_never() {
            let Ok(batch) = batch else {
                return Expected::Events(None);
            };
            for event in &batch.events {
                assert!(event.revision <= batch.through);
                assert_eq!(event.object.revision, event.revision);
                events.push((event.revision, event.kind, event.key.name.parse().unwrap()));
            }
        }
        assert_eq!(watch.progress(), self.store.revision());
        Expected::Events(Some(events))
    }
}

fn listed(
    store: &Store,
    gadgets_wanted: bool,
    at: Option<u64>,
) -> Result<BTreeMap<u8, (i64, u64)>, SnapshotError> {
    let collection = if gadgets_wanted { gadgets() } else { widgets() };
    let snapshot = store.snapshot(&collection, at)?;
    let read = snapshot.iter(Some("default"), None);
    Ok(read
        .map(|(key, object)| (key.name.parse().unwrap(), (size_of(object), object.revision)))
        .collect())
}

impl<H: Home> StateMachineTest for System<H> {
    type SystemUnderTest = Self;
    type Reference = Reference<H>;

    fn init_test(_model: &Model) -> Self {
        Self::new()
    }

    fn apply(mut system: Self, model: &Model, step: Step) -> Self {
        let revision = system.store.revision();
        let answer = match step {
            Step::Create { place, size } => system.write(place, Expect::Absent, Some(size)),
            Step::Update { place, size, stale } => system.update(place, stale, Some(size)),
            Step::Delete { place, stale } => system.update(place, stale, None),
            Step::Watch {
                gadgets: wanted,
                back,
            } => {
                let collection = if wanted { gadgets() } else { widgets() };
                let started = system.store.watch(&collection, revision.saturating_sub(back));
                Expected::Start(started.map(|watch| system.watches.push(watch)))
            }
            Step::Poll { follower } => system.poll(follower),
            Step::List { gadgets, back } => Expected::List(listed(
                &system.store,
                gadgets,
                Some(revision.saturating_sub(back)),
            )),
            Step::Future => Expected::Start(system.store.watch(&widgets(), revision + 1).map(drop)),
            Step::Restart => {
                system.watches.clear();
                system.store.close();
                system.store = H::open(&system.directory, Self::limits());
                Expected::Nothing
            }
        };
        assert_eq!(answer, model.expected);
        system
    }

    fn check_invariants(system: &Self, model: &Model) {
        assert_eq!(system.store.revision(), model.revision());
        for gadgets in [false, true] {
            assert_eq!(
                listed(&system.store, gadgets, None).unwrap(),
                model.objects(gadgets, model.revision())
            );
        }
        let stats = system.store.stats();
        assert!(stats.history_events <= 2 * HISTORY as u64);
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 200, ..Config::default() })]
    #[test]
    fn store_in_memory_agrees_with_the_model(sequential 1..80 => System<InMemory>);
}

prop_state_machine! {
    // Each step is a transaction that is synced, so fewer and longer runs.
    #![proptest_config(Config { cases: 24, max_shrink_iters: 200, ..Config::default() })]
    #[test]
    fn store_on_disk_agrees_with_the_model(sequential 1..80 => System<OnDisk>);
}
