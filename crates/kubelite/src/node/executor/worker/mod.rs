//! One pod: from the moment it is seen on this node until nothing is left of it.
//!
//! A loop: look at what is wanted and what is, act, say what is, wait for a change. Every wait has an event or a time that
//! ends it.

mod begin;
mod claims;
mod end;
mod recover;
mod report;
mod standby;
mod turn;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use serde_json::Value;
use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        mpsc, watch,
    },
    task::JoinSet,
};

pub(crate) use self::{
    claims::ClaimsInUse,
    recover::PLACES,
    standby::send_away,
    turn::{Turn, has_begun},
};
use self::{end::Stop, standby::Standby};
use super::{
    Control, ObjectChange, Shared,
    lifecycle::{self, Action, ContainerState, Record, RestartPolicy, Role},
    logs::Live,
    prepare::Places,
    run::{Exit, Files},
    status::{Course, Transitions, Verdict},
};

/// How many containers a pod may have: far more than any does, and few enough for a thread of work each.
const CONTAINERS_MAX: usize = 100;
/// Events that may wait for a busy worker. Senders wait for room, so nothing is lost.
const EVENTS_MAX: usize = 16;

/// What the API server shows of the pod.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Present(Arc<Pod>),
    Removed,
}

/// What a container's process tells.
#[derive(Debug)]
enum Event {
    Started(usize, Timestamp),
    /// Nothing of the container lives any more, but for the process that held it.
    Ended(usize, Exit),
    /// That one is gone as well, and the sandbox with it.
    Gone,
}

/// A container's present attempt.
#[derive(Debug)]
struct Current {
    files: Files,
    live: watch::Receiver<Live>,
}

struct Worker {
    shared: Arc<Shared>,
    uid: String,
    seen: watch::Receiver<Seen>,
    /// As last seen.
    pod: Arc<Pod>,
    removed: bool,
    dir: PathBuf,
    /// Init containers first.
    records: Vec<Record>,
    /// In the order of `records`.
    current: Vec<Option<Current>>,
    places: Option<Places>,
    /// The container that begins when the turn of the pod comes, if its surroundings are made.
    standby: Option<Standby>,
    seen_at: Timestamp,
    course: Course,
    stop: Option<Stop>,
    /// No container runs, and none will.
    over: bool,
    turn: Turn,
    /// Whoever drains the node waits for it. Nothing of a pod in line runs.
    active: Option<Counted>,
    /// Its turn has come, and its program has not begun.
    starting: Option<Counted>,
    /// How many others are in that state.
    others_starting: watch::Receiver<usize>,
    /// It is to stand by when those are few.
    stands_by_later: bool,
    /// Its end had been published before this executor started; nothing is added to it.
    settled: bool,
    tidied: bool,
    events: mpsc::Receiver<Event>,
    sender: mpsc::Sender<Event>,
    monitors: JoinSet<()>,
    objects: broadcast::Receiver<ObjectChange>,
    control: watch::Receiver<Control>,
    published: Option<Value>,
    transitions: Transitions,
    /// When to try again what the API server did not take, or was not told yet.
    retry_at: Option<Timestamp>,
    /// Until when the present status waits for the next one.
    hold_until: Option<Timestamp>,
    /// The files of runs that have ended and not been cleared away, and whether their sandboxes are gone.
    spent: Vec<(Files, watch::Receiver<Live>)>,
}

/// Counts a pod for as long as it lives.
#[derive(Debug)]
struct Counted(watch::Sender<usize>);

impl Counted {
    fn among(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// `others` is how many pods the node has already; `over` is set when this one needs no place any more.
pub(crate) async fn run(
    shared: Arc<Shared>,
    uid: String,
    mut seen: watch::Receiver<Seen>,
    others: usize,
    over: Arc<AtomicBool>,
    turn: Turn,
) {
    let Seen::Present(pod) = seen.borrow_and_update().clone() else {
        return;
    };
    let mut worker = Worker::new(shared, uid, seen, pod, turn);
    worker.recover();
    worker.admit(others);
    loop {
        let wake_at = worker.act().await;
        over.store(worker.over, Ordering::Relaxed);
        worker.give_turn_away();
        if worker.removed && worker.is_gone() {
            worker.tidy().await;
            worker.forget();
            return;
        }
        if !worker.removed {
            // Another pod may have the name by now.
            worker.show_logs();
        }
        worker.publish().await;
        worker.end_was_told();
        // Only now: others may be waiting for the place of what has ended, and nobody waits for its files to go.
        worker.clear().await;
        if worker.is_gone() {
            worker.tidy().await;
        }
        if worker.is_gone() && worker.is_deleted() && worker.delete().await {
            worker.forget();
            return;
        }
        if worker.is_gone() {
            // Only now: whoever drains the node ends this worker as soon as nothing is active, and the end would never be told.
            // It is not waited for again if the API server did not take it; the next executor on the same data finds how it ended.
            worker.active = None;
        }
        let wake_at = earliest(wake_at, worker.retry_at);
        if !worker.wait(wake_at).await {
            return;
        }
    }
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl Worker {
    fn new(shared: Arc<Shared>, uid: String, seen: watch::Receiver<Seen>, pod: Arc<Pod>, turn: Turn) -> Self {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let spec = pod.spec.as_ref();
        let init = spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
        let main = spec.iter().flat_map(|spec| &spec.containers);
        let records: Vec<Record> = init
            .map(|container| Record::new(&container.name, Role::Init))
            .chain(main.map(|container| Record::new(&container.name, Role::Main)))
            .collect();
        let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        Self {
            dir: shared.settings.pods_dir().join(&uid),
            current: records.iter().map(|_| None).collect(),
            seen_at: started.map_or_else(|| shared.now(), |time| time.0),
            transitions: report::transitions_of(&pod),
            objects: shared.objects.subscribe(),
            control: shared.control.subscribe(),
            records,
            places: None,
            standby: None,
            course: Course::Open,
            stop: None,
            over: false,
            active: (!turn.is_to_come()).then(|| Counted::among(&shared.active)),
            starting: None,
            others_starting: shared.starting.subscribe(),
            stands_by_later: false,
            turn,
            settled: false,
            tidied: false,
            removed: false,
            published: None,
            retry_at: None,
            hold_until: None,
            spent: Vec::new(),
            monitors: JoinSet::new(),
            events,
            sender,
            uid,
            seen,
            pod,
            shared,
        }
    }

    fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }

    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or("")
    }

    fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or("")
    }

    /// Whether neither a container nor a sandbox is left, and none will come.
    fn is_gone(&self) -> bool {
        let current = self.current.iter().flatten().map(|current| &current.live);
        let spent = self.spent.iter().map(|(_, live)| live);
        self.over && current.chain(spent).all(|live| live.borrow().ended)
    }

    fn is_deleted(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    fn container(&self, index: usize) -> Option<&Container> {
        let record = self.records.get(index)?;
        let spec = self.pod.spec.as_ref()?;
        let same = |container: &&Container| container.name == record.name;
        match record.role {
            Role::Init => spec.init_containers.iter().flatten().find(same),
            Role::Main => spec.containers.iter().find(same),
        }
    }

    fn files(&self, index: usize, attempt: u32) -> Option<Files> {
        let record = self.records.get(index)?;
        let dir = self.dir.join("containers").join(&record.name);
        Some(Files::new(dir.join(attempt.to_string())))
    }

    /// Refuses a pod that is new here and that this node cannot run. `others` is how many it has already.
    fn admit(&mut self, others: usize) {
        if self.settled || self.over || self.dir.exists() {
            return;
        }
        let config = &self.shared.settings.config;
        let limit = config.pods_max.saturating_add(config.ahead);
        let sidecar = self
            .spec()
            .iter()
            .flat_map(|spec| spec.init_containers.iter().flatten())
            .find(|container| container.restart_policy.is_some());
        let verdict = if let Some(reason) = &self.shared.settings.refused {
            Some(("SandboxUnavailable", format!("Pod was rejected: {reason}")))
        } else if others >= limit {
            let message = format!(
                "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: {others}, capacity: {limit}"
            );
            Some(("OutOfpods", message))
        } else if self.records.len() > CONTAINERS_MAX {
            let message = format!("Pod was rejected: it has more than {CONTAINERS_MAX} containers");
            Some(("UnexpectedAdmissionError", message))
        } else {
            sidecar.map(|container| {
                let message = format!(
                    "Pod was rejected: init container {:?} has a restartPolicy, which this node does not support",
                    container.name
                );
                ("UnexpectedAdmissionError", message)
            })
        };
        if let Some((reason, message)) = verdict {
            self.course = Course::Failing(Verdict {
                reason,
                message,
                disruption: false,
            });
        }
    }

    /// Brings what is closer to what is wanted. Returns when to look again if nothing happens before.
    async fn act(&mut self) -> Option<Timestamp> {
        let deadline = self.steer();
        let stopping = self.stop_processes();
        if self.over {
            return stopping;
        }
        let runs = *self.control.borrow() == Control::Run;
        if self.course != Course::Open || !runs {
            self.stand_down().await;
        }
        if !runs && self.turn.is_to_come() && self.course == Course::Open {
            // A slot that was given away in the last moment is not taken any more.
            return None;
        }
        if self.course != Course::Open {
            self.over = !self.records.iter().any(Record::is_live);
            return stopping;
        }
        let policy = RestartPolicy::of(self.spec().and_then(|spec| spec.restart_policy.as_deref()));
        let backoff = self.shared.settings.config.backoff;
        // Each round changes the state of every container that it acts on, so there are as many as a start can fail.
        loop {
            let next = lifecycle::next(&self.records, policy, backoff, self.shared.now());
            self.over = next.over;
            let starts = next.actions.iter().any(|(_, action)| *action == Action::Start);
            if starts && !self.may_begin() {
                if runs {
                    self.stand_by(&next.actions).await;
                }
                return earliest(next.wake_at, deadline);
            }
            if next.actions.is_empty() {
                return earliest(next.wake_at, deadline);
            }
            for (index, action) in next.actions {
                match action {
                    Action::Start => self.begin(index).await,
                    Action::BackOff { until, delay } => {
                        self.set_aside(index, ContainerState::BackOff { until, delay });
                    }
                }
            }
        }
    }

    /// Changes the state of a container that may have ended; its end becomes its last one.
    fn set_aside(&mut self, index: usize, state: ContainerState) {
        let Some(record) = self.records.get_mut(index) else {
            return;
        };
        if let ContainerState::Terminated(exit) = std::mem::replace(&mut record.state, state) {
            record.last = Some(exit);
        }
    }

    /// Waits for whatever comes first. `false` says that the executor is gone.
    async fn wait(&mut self, wake_at: Option<Timestamp>) -> bool {
        let sleep = wake_at.map(|time| {
            let left = time.duration_since(self.shared.now());
            tokio::time::sleep(left.try_into().unwrap_or_default())
        });
        let asleep = async {
            match sleep {
                Some(sleep) => sleep.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Nothing is told any more about a pod that is gone.
            changed = self.seen.changed(), if !self.removed => {
                if changed.is_err() {
                    return false;
                }
                if self.look() {
                    self.stand_by_anew(None).await;
                }
            }
            Some(event) = self.events.recv() => {
                self.happened(event);
                while let Ok(event) = self.events.try_recv() {
                    self.happened(event);
                }
            }
            change = self.objects.recv() => match change {
                Ok(change) => self.heard(Some(&change)).await,
                Err(RecvError::Lagged(_)) => self.heard(None).await,
                Err(RecvError::Closed) => return false,
            },
            changed = self.control.changed() => {
                if changed.is_err() {
                    return false;
                }
            }
            slot = self.turn.comes() => self.turn_came(slot),
            () = standby::few_start(&mut self.others_starting), if self.stands_by_later => {
                self.stands_by_later = false;
                self.unblock(None);
            }
            () = asleep => self.retry_at = None,
        }
        true
    }

    /// An object has changed; it may be any if it is not known which.
    async fn heard(&mut self, change: Option<&ObjectChange>) {
        self.stand_by_anew(change).await;
        self.unblock(change);
    }

    /// Whether what the surroundings of a container are made of has changed.
    fn look(&mut self) -> bool {
        let seen = self.seen.borrow_and_update().clone();
        match seen {
            Seen::Present(pod) => {
                let (new, old) = (&pod.metadata, &self.pod.metadata);
                let changed = new.generation != old.generation;
                let told_inside = new.labels != old.labels || new.annotations != old.annotations;
                self.pod = pod;
                if changed {
                    // Another image may be one whose command is known.
                    self.unblock(None);
                }
                changed || told_inside
            }
            Seen::Removed => {
                self.removed = true;
                false
            }
        }
    }

    /// Lets containers try again that wait for this object; for any object if it is not known which.
    fn unblock(&mut self, change: Option<&ObjectChange>) {
        if change.is_some_and(|change| change.namespace != self.namespace()) {
            return;
        }
        for record in &mut self.records {
            if let ContainerState::Blocked { on, .. } = &record.state
                && change.is_none_or(|change| on.contains(&change.reference))
            {
                record.state = ContainerState::Waiting;
            }
        }
    }

    fn happened(&mut self, event: Event) {
        self.starting = None;
        match event {
            Event::Started(index, since) => {
                if let Some(record) = self.records.get_mut(index) {
                    record.state = ContainerState::Running { since };
                }
                self.shared.crowd.note(self.shared.now());
            }
            Event::Ended(index, exit) => self.ended(index, exit),
            // What it left is cleared away in the next round.
            Event::Gone => {}
        }
    }
}
