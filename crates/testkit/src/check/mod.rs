//! What must hold, whatever goes wrong.
//!
//! A task follows every change of the store: after each it asks the rules of [`work`], of [`runs`], of [`orchestrations`], of
//! [`deletions`] and of [`limits`]. When nothing happens any more, [`rest`] asks what must be true then, and [`end`] compares with the end of an
//! undisturbed simulation.

pub mod deletions;
pub mod end;
pub mod limits;
pub mod orchestrations;
pub mod rest;
pub mod runs;
pub mod work;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jangar_engine::settings::LimitSettings;
use kubelite::store::{Collection, Event, EventKind, Store};
use serde::Deserialize;
use tokio::{task::JoinSet, time::Instant};

use self::{
    deletions::Deletions,
    end::{EndState, GeneratedNames},
    limits::Slots,
    orchestrations::Orchestrations,
    runs::RunView,
};
use crate::{
    history::SimHistory,
    node::{Record, Work},
    trace::Trace,
    world::{self, NAMESPACE, World},
};

/// What was found wrong, each once, in the order it was found.
#[derive(Clone, Debug, Default)]
pub struct Violations(Arc<Mutex<Found>>);

#[derive(Debug, Default)]
struct Found {
    known: BTreeSet<String>,
    ordered: Vec<String>,
}

impl Violations {
    pub fn add(&self, trace: &Trace, found: impl IntoIterator<Item = String>) {
        let mut list = self.lock();
        for violation in found {
            if list.known.insert(violation.clone()) {
                trace.note("check", format_args!("VIOLATION: {violation}"));
                list.ordered.push(violation);
            }
        }
    }

    pub fn any(&self) -> bool {
        !self.lock().ordered.is_empty()
    }

    pub fn all(&self) -> Vec<String> {
        self.lock().ordered.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The checks that follow a world. Dropping them ends them.
#[derive(Debug)]
pub struct Checks {
    pub violations: Violations,
    last_change: Arc<Mutex<Instant>>,
    pods: Arc<Mutex<GeneratedNames>>,
    waits: Arc<Mutex<BTreeSet<String>>>,
    reasons: Arc<Mutex<BTreeSet<String>>>,
    _following: JoinSet<()>,
}

impl Checks {
    pub fn start(
        world: &World,
        record: &Record,
        limits: LimitSettings,
        history: Option<Arc<SimHistory>>,
    ) -> Self {
        let violations = Violations::default();
        let last_change = Arc::new(Mutex::new(Instant::now()));
        let pods = Arc::default();
        let waits = Arc::default();
        let reasons = Arc::default();
        let mut look = Look {
            trace: Arc::clone(world.trace()),
            record: record.clone(),
            violations: violations.clone(),
            last_change: Arc::clone(&last_change),
            pods: Arc::clone(&pods),
            waits: Arc::clone(&waits),
            reasons: Arc::clone(&reasons),
            runs: BTreeMap::new(),
            deletions: Deletions::default(),
            slots: Slots::new(limits),
            orchestrations: Orchestrations::default(),
            history,
        };
        let mut follow = world.store().follow();
        let mut following = JoinSet::new();
        following.spawn(async move {
            loop {
                let batch = follow.next().await.expect("the checks keep up");
                for event in &batch.events {
                    look.at(event);
                }
            }
        });
        Self {
            violations,
            last_change,
            pods,
            waits,
            reasons,
            _following: following,
        }
    }

    /// How the world stands.
    pub fn end_state(&self, store: &Store) -> EndState {
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        EndState::of(store, &pods)
    }

    /// What AgentRuns have said so far that they waited for.
    pub fn waits(&self) -> BTreeSet<String> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// With which reasons AgentRuns have ended so far.
    pub fn reasons(&self) -> BTreeSet<String> {
        self.reasons
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// When anything but a Lease or an Event changed last.
    pub fn last_change(&self) -> Instant {
        *self.last_change.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the task that follows knows.
struct Look {
    trace: Arc<Trace>,
    record: Record,
    violations: Violations,
    last_change: Arc<Mutex<Instant>>,
    pods: Arc<Mutex<GeneratedNames>>,
    waits: Arc<Mutex<BTreeSet<String>>>,
    reasons: Arc<Mutex<BTreeSet<String>>>,
    /// The runs as they are, by name.
    runs: BTreeMap<String, RunView>,
    deletions: Deletions,
    slots: Slots,
    orchestrations: Orchestrations,
    /// Where runs have to be before they go. Nobody but the controllers deletes runs of scenarios that have one.
    history: Option<Arc<SimHistory>>,
}

impl Look {
    fn at(&mut self, event: &Event) {
        if *event.key.namespace != *NAMESPACE || !matters(&event.collection) {
            return;
        }
        *self.last_change.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.note(event);
        if event.collection == world::pods() && event.kind == EventKind::Added {
            let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
            pods.add(&event.object.value());
        }
        self.violations.add(&self.trace, self.slots.broken_by(event));
        let works = self.record.all();
        if world::all_runs().contains(&event.collection) {
            self.at_run(event, &works);
        }
        self.violations
            .add(&self.trace, work::broken(&works, self.runs.values()));
        self.violations
            .add(&self.trace, self.orchestrations.broken_by(event, &works));
    }

    fn at_run(&mut self, event: &Event, works: &[Work]) {
        let before = self.runs.remove(&*event.key.name);
        if event.kind == EventKind::Deleted {
            self.violations.add(&self.trace, self.forgotten(event));
            // A child goes with its parent, which somebody deleted.
            let mut owners = event.object.meta.owners.iter();
            if !owners.any(|owner| owner.kind == "OrchestrationRun") {
                self.violations
                    .add(&self.trace, self.deletions.broken(Instant::now()));
            }
            return;
        }
        let after = RunView::of(&event.object);
        self.violations
            .add(&self.trace, runs::broken(before.as_ref(), &after, works));
        self.violations
            .add(&self.trace, runs::on_one_branch(self.runs.values(), &after));
        if event.collection == world::runs() {
            let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
            waits.extend(after.blocked.clone());
            let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
            reasons.extend(after.reason.clone());
        }
        self.runs.insert(event.key.name.to_string(), after);
    }

    /// What is wrong with a run that went, if history should have it and has not.
    fn forgotten(&self, event: &Event) -> Option<String> {
        let history = self.history.as_ref()?;
        let run = event.object.value();
        let uid = run["metadata"]["uid"].as_str().unwrap_or_default();
        let name = &event.key.name;
        (!history.has_end_of(uid)).then(|| format!("run {name} went before its end was in history"))
    }

    fn note(&self, event: &Event) {
        let collection = event.collection.as_str();
        let (name, kind, revision) = (&event.key.name, event.kind, event.revision);
        let deleting = if event.object.meta.deleting {
            ", deleting"
        } else {
            ""
        };
        let glance: Glance = serde_json::from_slice(&event.object.json).unwrap_or_default();
        let phase = glance.status.phase.map(|phase| format!(", {phase}"));
        let phase = phase.unwrap_or_default();
        self.trace.note(
            "store",
            format_args!("{collection} {name} {kind:?}{phase}{deleting} @{revision}"),
        );
    }
}

/// The little of an object that a trace tells; the rest is skipped unread.
#[derive(Default, Deserialize)]
struct Glance {
    #[serde(default)]
    status: GlanceStatus,
}

#[derive(Default, Deserialize)]
struct GlanceStatus {
    phase: Option<String>,
}

/// Leases are renewed all the time, and Events tell what happened; neither is part of the state.
fn matters(collection: &Collection) -> bool {
    !matches!(
        collection.as_str(),
        "coordination.k8s.io/leases" | "events.k8s.io/events" | "/events"
    )
}
