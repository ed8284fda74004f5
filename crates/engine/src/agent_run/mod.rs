//! The life of an AgentRun: what to do about it next.
//!
//! [`plan`] looks at where a run stands and hands over to the module of that part of its life:
//!
//! | the run | module |
//! |---|---|
//! | is gone, or being deleted | `leftovers`: nothing of it is left running, and its Jobs are let go |
//! | has ended | `finished`: its Jobs are let go, and it is deleted when its time has come |
//! | is done by an endpoint of somebody's own | `custom`, from here to its end |
//! | is asked to stop | `cancel` |
//! | was given up while its pod is there | `abort` |
//! | has a Job | `follow`: its pod tells how it ends; `waiting` why it does not, `unreachable` whether its node is lost |
//! | has none yet | `start`: `references`, its `admission` by the queue, and the Job of the next attempt |
//!
//! A run of the runtime `workflow` goes through the same parts with each of its steps, one at a time; `task` is the piece of
//! work that a run is at, and a run of the runtime `job` has one that is all of it. `steps` says whether steps make sense and
//! what they get from each other, `progress` shows where they stand.
//!
//! `outcome` reads what a pod or a Job says about its end, `retry` and `vanished` what follows from a bad one, `evidence` what is
//! known of a Job that went, `next_status` writes the status, and `attempt` is what the status remembers of Jobs.

mod abort;
mod admission;
mod artifacts;
mod attempt;
mod cancel;
mod custom;
mod evidence;
mod finished;
mod follow;
mod jobs;
mod leftovers;
mod next_status;
mod outcome;
mod progress;
mod references;
mod retry;
mod spec_hash;
mod stamp;
mod start;
mod steps;
mod task;
#[cfg(test)]
mod tests;
mod unreachable;
mod vanished;
mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jangar_api::{
    agents::{
        agent::Agent,
        agent_provider::AgentProvider,
        agent_run::{AgentRun, AgentRunStatus},
        implementation_spec::ImplementationSpec,
        memory::Memory,
    },
    phase::RunPhase,
    reason::Reason,
};
use jiff::{Timestamp, Unit};
use k8s_openapi::api::batch::v1::Job;

use self::{attempt::Attempt, next_status::NextStatus, stamp::Stamp, task::Task};
pub use self::{custom::receipt, spec_hash::spec_hash};
use crate::{
    custom::call::Outside,
    decision::{Decision, Key, KeyHolder, Keys, Occupant, PodSight, Question, Refusal, Sight, Uid},
    job::{self, Place},
    last_sight::LastSight,
    parent,
    queue::Answer,
    settings::Settings,
    waiting::Waiting,
};

/// What is known about a run at the moment of a decision.
#[derive(Clone, Debug)]
pub struct Observed {
    pub key: Key,
    /// The run itself; absent if a live read found it gone: what is left of it may have to be cleaned up.
    pub run: Option<Arc<AgentRun>>,
    pub references: References,
    /// The Jobs that carry the run's label, and those that were asked for, by name. One of them may belong to another run
    /// of the same name that is gone.
    pub jobs: BTreeMap<String, Arc<Job>>,
    /// The names of Jobs that the API server itself has spoken about: if there is none in `jobs`, there is none.
    pub live_jobs: BTreeSet<String>,
    /// What was last seen of Jobs that are gone, by name, as far as it is remembered. It is evidence, and decides nothing.
    pub departed: BTreeMap<String, LastSight>,
    /// The pods, by the UID of the Job that controls them.
    pub pods: BTreeMap<Uid, PodSight>,
    /// The Secrets and ConfigMaps that were asked for.
    pub keys: BTreeMap<KeyHolder, Keys>,
    /// What the API server said to the effects of the plan before.
    pub refusal: Option<Refusal>,
    /// What has the name of the ConfigMap that the plan before was to create.
    pub occupant: Option<Occupant>,
    /// What the queue said to the question whether the run may start; absent if it was not asked.
    pub admission: Option<Answer>,
    /// What is known of the endpoint of the run, if it has one.
    pub outside: Outside,
}

impl Observed {
    /// The pods of one Job, however they are known.
    fn pods_of(&self, job: &Uid) -> PodSight {
        self.pods
            .get(job)
            .cloned()
            .unwrap_or_else(|| PodSight::Cached(Vec::new()))
    }

    /// Whether the API server itself said that there is no Job of this name.
    fn is_absent(&self, job: &str) -> bool {
        self.live_jobs.contains(job) && !self.jobs.contains_key(job)
    }
}

/// The objects that a run refers to, directly or through another one. One that nothing refers to is `None`.
#[derive(Clone, Debug)]
pub struct References {
    pub agent: Sight<Agent>,
    /// `None` as long as the Agent is not known.
    pub provider: Option<Sight<AgentProvider>>,
    /// Those that the run and its steps refer to, by name. Where the work is described in place, there is none.
    pub implementations: BTreeMap<String, Sight<ImplementationSpec>>,
    /// The one that the run names, else its Agent, else the default of the namespace; `None` if there is none of these.
    pub memory: Option<Sight<Memory>>,
}

/// A run that is there, and all that a decision about it depends on.
struct Situation<'a> {
    observed: &'a Observed,
    run: &'a AgentRun,
    uid: Uid,
    /// The status as it was written last.
    status: &'a AgentRunStatus,
    /// What the status remembers of Jobs.
    attempt: Attempt,
    /// What the run is at.
    task: Task<'a>,
    settings: &'a Settings,
    now: Timestamp,
}

/// What to do about a run.
pub fn plan(observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<AgentRunStatus> {
    // Finer than anybody needs, and shorter to read.
    let now = now.round(Unit::Millisecond).unwrap_or(now);
    let leftovers = match leftovers::clean_up(observed, settings, now) {
        Ok(plan) => plan,
        Err(question) => return Decision::look(question),
    };
    let Some(run) = &observed.run else {
        return Decision::Act(leftovers);
    };
    let deleting = run.metadata.deletion_timestamp.is_some();
    let under_parent = parent::is_deleted_under_parent(&run.metadata);
    if deleting && !custom::is_held(run) && !under_parent {
        // Its Jobs are leftovers already.
        return Decision::Act(leftovers);
    }
    let unwritten = AgentRunStatus::default();
    let status = run.status.as_ref().unwrap_or(&unwritten);
    let situation = Situation::of(observed, run, status, settings, now);
    let decision = if deleting && !under_parent {
        custom::farewell(&situation)
    } else {
        situation.decide()
    };
    match decision {
        Decision::Act(mut plan) => {
            plan.effects.splice(0..0, leftovers.effects);
            plan.notices.extend(leftovers.notices);
            plan.wake_at = leftovers::sooner(plan.wake_at, leftovers.wake_at);
            Decision::Act(plan)
        }
        look @ Decision::Look(_) => look,
    }
}

/// Why a run waits, as far as that can be told from what is observed.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// It cannot be told before these are answered.
    Unsure(BTreeSet<Question>),
    Waits(Box<Waiting>),
    /// It works, or has ended, or is about to go on.
    Goes,
}

/// Answers "why is it waiting?". Nothing is written for it.
pub fn standing(observed: &Observed, settings: &Settings, now: Timestamp) -> Standing {
    let unwritten = AgentRunStatus::default();
    let Some(run) = observed
        .run
        .as_ref()
        .filter(|run| run.metadata.deletion_timestamp.is_none())
    else {
        return Standing::Goes;
    };
    let status = run.status.as_ref().unwrap_or(&unwritten);
    let situation = Situation::of(observed, run, status, settings, now);
    let phase = status.phase.as_ref();
    let stopping = run.spec.stop.is_requested() && settings.runs.cancel_enabled;
    let over = phase.is_some_and(|phase| phase.is_terminal() || *phase == RunPhase::Cancelling);
    if over || stopping || abort::reason(&situation).is_some() {
        return Standing::Goes;
    }
    if custom::applies(&situation) {
        return custom::standing(&situation);
    }
    follow::standing(&situation)
}

/// What the status remembers of Jobs. If it was lost, the Jobs themselves tell how far the run had come: an attempt is
/// never made twice, and a step that a later one has followed is over.
fn attempt(observed: &Observed, run: &AgentRun, status: &AgentRunStatus) -> Attempt {
    let is_of_run = |place: &Place| Task::numbered(run, place.step).is_some();
    let unbegun = || {
        let first = Task::first(run).number();
        Attempt::at(Place {
            step: first,
            attempt: 0,
        })
    };
    let remembered = Some(Attempt::remembered(status))
        .filter(|attempt| is_of_run(&attempt.place()))
        .unwrap_or_else(unbegun);
    let made = jobs::of_run(observed, run)
        .filter_map(|job| jobs::place(job))
        .filter(is_of_run)
        .max();
    match made {
        Some(place) if place.step > remembered.step => Attempt::at(place),
        Some(place) if place > remembered.place() => Attempt {
            number: place.attempt,
            job: None,
            first_seen: None,
            ..remembered
        },
        Some(_) | None => remembered,
    }
}

impl<'a> Situation<'a> {
    fn of(
        observed: &'a Observed,
        run: &'a AgentRun,
        status: &'a AgentRunStatus,
        settings: &'a Settings,
        now: Timestamp,
    ) -> Self {
        let attempt = attempt(observed, run, status);
        Self {
            observed,
            run,
            uid: Uid(run.metadata.uid.clone().unwrap_or_default()),
            status,
            task: Task::numbered(run, attempt.step).unwrap_or(Task::Whole),
            attempt,
            settings,
            now,
        }
    }

    fn decide(&self) -> Decision<AgentRunStatus> {
        let phase = self.status.phase.as_ref();
        if phase.is_some_and(RunPhase::is_terminal) {
            return finished::plan(self);
        }
        if custom::applies(self) {
            return custom::plan(self);
        }
        let requested = self.run.spec.stop.is_requested() && self.settings.runs.cancel_enabled;
        let requested = requested || parent::is_deleted_under_parent(&self.run.metadata);
        // One that has begun goes on, whatever the settings say by now.
        if phase == Some(&RunPhase::Cancelling) || requested {
            return cancel::plan(self);
        }
        if let Some(reason) = abort::reason(self) {
            return abort::plan(self, reason);
        }
        follow::plan(self)
    }

    /// The status, ready to be changed.
    fn next_status(&self) -> NextStatus<'_> {
        let mut next = NextStatus::of(self.run, self.status, self.settings, self.now);
        if !self.settings.runs.immutability_enforced
            && !next.is_warned()
            && let Some(message) = abort::edited(self)
        {
            next.warn(&Reason::SpecImmutableViolation, &message);
        }
        self.answer_disabled_cancel(&mut next);
        next
    }

    /// A cancel that the settings do not allow is answered, and changes nothing. It is honoured when they do.
    fn answer_disabled_cancel(&self, next: &mut NextStatus<'_>) {
        let stands = self.status.phase.as_ref();
        let open = stands.is_none_or(|phase| !phase.is_terminal() && *phase != RunPhase::Cancelling);
        if open && self.run.spec.stop.is_requested() && !self.settings.runs.cancel_enabled {
            next.not_cancelled(
                &Reason::CancelDisabled,
                "a cancel was asked for, and the settings do not allow it (JANGAR_ORCHESTRATION_CANCEL_ENABLED is false): set it \
                 to true, or delete the run",
            );
        }
    }

    /// The name of the Job of the current attempt.
    fn job_name(&self) -> String {
        job::name(&self.observed.key.name, self.attempt.current_place()).into()
    }

    /// The Jobs of this run whose end is not recorded.
    fn unfinished_jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        let current = self.job_name();
        self.own_jobs()
            .filter(move |job| jobs::is_held(job) || job.metadata.name.as_ref() == Some(&current))
    }

    /// The Jobs of this run, without those of earlier attempts and steps, which `leftovers` sees to.
    fn own_jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        jobs::of_run(self.observed, self.run)
            .filter(|job| jobs::place(job).is_none_or(|place| place >= self.attempt.place()))
    }

    /// How many attempts the current step has in all: as it says itself, or as its Job was made for.
    fn attempts_allowed(&self, job: Option<&Job>) -> u32 {
        let agent = self.observed.references.agent.seen();
        let by_settings =
            || job::attempts_allowed(self.run, agent.map(AsRef::as_ref), self.settings).unwrap_or(1);
        self.task
            .attempts()
            .unwrap_or_else(|| job.map_or_else(by_settings, |job| Stamp::of(job).attempts_allowed))
    }

    /// The Job of the current attempt, if it is there.
    fn current_job(&self) -> Option<&Arc<Job>> {
        let name = self.job_name();
        self.own_jobs()
            .find(|job| job.metadata.name.as_ref() == Some(&name))
    }
}
