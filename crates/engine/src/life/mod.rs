//! The life of a run that Jobs execute: the same for an AgentRun and for a ToolRun.
//!
//! | the run | module |
//! |---|---|
//! | is gone, or being deleted | `leftovers`: nothing of it is left running, and its Jobs are let go |
//! | has ended | `finished`: its Jobs are let go, and it is deleted when its time has come; `survivors`: when all was gone after a cancel that took too long |
//! | is asked to stop | `cancel` |
//! | was given up while its pod is there | `abort` |
//! | has a Job | `follow`: its pod tells how it ends; `waiting` why it does not, `unreachable` whether its node is lost |
//! | has a Job that Kubernetes leaves to us | `kept`: what the Job controller would have done |
//! | has none yet | `start`: why it has to wait for one, or never gets one; what the Job is made from is the kind's own |
//!
//! `outcome` reads what a pod or a Job says about its end, `retry` and `vanished` what follows from a bad one, `evidence` what is
//! known of a Job that went, `next_status` writes the status, and `attempt` is what the status remembers of Jobs. `task` is the
//! piece of work that a run is at, which is all of it unless the run is a workflow, and `progress` shows where its steps stand.
//!
//! What differs between the kinds is in the trait [`Run`].

pub(crate) mod abort;
pub(crate) mod attempt;
pub(crate) mod cancel;
mod evidence;
pub(crate) mod finished;
pub(crate) mod follow;
pub(crate) mod hold;
pub(crate) mod jobs;
pub(crate) mod kept;
pub(crate) mod leftovers;
pub(crate) mod next_status;
pub(crate) mod outcome;
mod progress;
pub(crate) mod retry;
pub(crate) mod start;
pub(crate) mod survivors;
pub(crate) mod task;
mod unreachable;
mod vanished;
pub(crate) mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jangar_api::{
    agents::agent_run_status::{RetentionStatus, RunOutcome, WorkflowStatus},
    cancel::CancelRequest,
    phase::RunPhase,
    reason::Reason,
    values::{self, AnyMap},
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::{Resource, ResourceExt};

use self::{attempt::Attempt, next_status::NextStatus, outcome::Ending, task::Task};
use crate::{
    decision::{Decision, Effect, Key, ObjectId, Occupant, Plan, PodSight, Refusal, Rejection, Uid},
    job::{self, Place},
    last_sight::{LastSight, MadeFor},
    plain_status::PlainStatus,
    retention::Ladder,
    settings::Settings,
};

/// A kind of runs that Jobs execute: what it has of its own.
pub(crate) trait Run: Resource<DynamicType = ()> + fmt::Debug + Sized {
    type Status: RunStatus;
    /// All that is known about a run at the moment of a decision.
    type Observed: fmt::Debug;
    /// Who works in the pods.
    const WORKER: Worker;

    fn status(&self) -> Option<&Self::Status>;
    /// Whether somebody asks it to stop.
    fn stop(&self) -> &CancelRequest;
    /// Hash of what may not change any more once the run was accepted.
    fn spec_hash(&self) -> String;
    /// The part of what is known that every kind has.
    fn seen(observed: &Self::Observed) -> Seen<'_, Self>;
    /// The task of this number, if the run has it: a step, counted from one, or 0 for all of a run that has no steps.
    fn task(&self, number: u32) -> Option<Task<'_>>;

    /// Makes the Job of the next attempt, or says why there is none.
    fn start(situation: &Situation<'_, Self>) -> Decision<Self::Status>;
    /// How many attempts the current task has in all, as its Job was made for if there is one.
    fn attempts_allowed(situation: &Situation<'_, Self>, job: Option<&Job>) -> u32;
    /// How long the current attempt may take from the creation of its Job, and what is said when it takes longer.
    fn timeout(situation: &Situation<'_, Self>, job: &Job) -> Option<(Duration, Rejection)>;
    /// Records what the kind has to say of a Job that is seen for the first time.
    fn begun(situation: &Situation<'_, Self>, next: &mut NextStatus<'_, Self>, job: &Job, attempt: &Attempt);
    /// The same of a Job that went before it was recorded, as far as it is known what it was made for.
    fn begun_unseen(
        situation: &Situation<'_, Self>,
        next: &mut NextStatus<'_, Self>,
        made_for: &MadeFor,
        attempt: &Attempt,
    );
    /// Takes over what was left behind. The error is that there is something wrong with it, which fails the run.
    fn take_over(
        situation: &Situation<'_, Self>,
        next: &mut NextStatus<'_, Self>,
        ending: &Ending,
    ) -> Result<(), Rejection>;

    /// Adds to what is decided about a run whose Job is there and has not ended.
    fn attended(
        situation: &Situation<'_, Self>,
        job: &Job,
        decision: Decision<Self::Status>,
    ) -> Decision<Self::Status> {
        let _ = (situation, job);
        decision
    }
    /// Records what is said of the work on a repository.
    fn delivered(next: &mut NextStatus<'_, Self>, ending: &Ending) {
        let _ = (next, ending);
    }

    /// How long a finished Job of the run is kept, in seconds; `None` until the run is deleted.
    fn job_ttl(&self, job: &Job, settings: &Settings) -> Option<u32>;
    /// How long things are kept. `known` is the status as far as it is made.
    fn ladder(&self, known: &Self::Status, settings: &Settings) -> Ladder;
    /// How long the run is kept after its end; `None` for good.
    fn retention(&self, settings: &Settings) -> Option<Duration>;
    /// Whether something holds the run that has ended.
    fn hold(situation: &Situation<'_, Self>) -> Hold;
}

/// What holds a run that has ended.
pub(crate) enum Hold {
    Nothing,
    /// We do, and this lets it go.
    Ours(Vec<Effect>),
    /// Somebody else: its parent has not recorded its end.
    Parent,
}

/// Who works in the pods of a kind of runs, and by which words it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker {
    /// Name of the container.
    pub container: &'static str,
    /// What people call it.
    pub who: &'static str,
    /// The field that bounds its memory.
    pub memory: &'static str,
    /// The field that names its image.
    pub image: &'static str,
    /// What names Secrets, ConfigMaps and volumes.
    pub configuration: &'static str,
    /// What is said of a success without a message.
    pub done: &'static str,
}

/// What the status of every run has.
pub(crate) trait RunStatus: PlainStatus + Default + fmt::Debug {
    fn phase(&self) -> Option<&RunPhase>;
    fn started_at(&self) -> Option<Timestamp>;
    fn finished_at(&self) -> Option<Timestamp>;
    fn cancel_deadline(&self) -> Option<Timestamp>;
    fn survivors_gone_at(&self) -> Option<Timestamp>;
    fn spec_hash(&self) -> Option<&String>;
    fn runtime_ref(&self) -> Option<&AnyMap>;
    /// The same fields, to be changed.
    fn course(&mut self) -> Course<'_>;

    /// Where the steps stand, if it is a workflow.
    fn workflow(&mut self) -> Option<&mut WorkflowStatus> {
        None
    }

    /// Says how long things are kept.
    fn keep(&mut self, retention: RetentionStatus);

    /// Says of no limit any more that it holds the run up.
    fn out_of_line(&mut self) {}
}

/// The fields of a status that a life changes.
pub(crate) struct Course<'s> {
    pub phase: &'s mut Option<RunPhase>,
    pub started_at: &'s mut Option<values::Timestamp>,
    pub finished_at: &'s mut Option<values::Timestamp>,
    pub cancel_deadline: &'s mut Option<values::Timestamp>,
    pub survivors_gone_at: &'s mut Option<values::Timestamp>,
    pub spec_hash: &'s mut Option<String>,
    pub runtime_ref: &'s mut Option<AnyMap>,
    pub outcome: &'s mut Option<RunOutcome>,
}

/// Says where a status keeps what every run has.
macro_rules! course_in_fields {
    () => {
        fn phase(&self) -> Option<&jangar_api::phase::RunPhase> {
            self.phase.as_ref()
        }

        fn started_at(&self) -> Option<jiff::Timestamp> {
            self.started_at.map(|at| at.0)
        }

        fn finished_at(&self) -> Option<jiff::Timestamp> {
            self.finished_at.map(|at| at.0)
        }

        fn cancel_deadline(&self) -> Option<jiff::Timestamp> {
            self.cancel_deadline.map(|at| at.0)
        }

        fn survivors_gone_at(&self) -> Option<jiff::Timestamp> {
            self.survivors_gone_at.map(|at| at.0)
        }

        fn spec_hash(&self) -> Option<&String> {
            self.spec_hash.as_ref()
        }

        fn runtime_ref(&self) -> Option<&jangar_api::values::AnyMap> {
            self.runtime_ref.as_ref()
        }

        fn course(&mut self) -> $crate::life::Course<'_> {
            $crate::life::Course {
                phase: &mut self.phase,
                started_at: &mut self.started_at,
                finished_at: &mut self.finished_at,
                cancel_deadline: &mut self.cancel_deadline,
                survivors_gone_at: &mut self.survivors_gone_at,
                spec_hash: &mut self.spec_hash,
                runtime_ref: &mut self.runtime_ref,
                outcome: &mut self.outcome,
            }
        }
    };
}
pub(crate) use course_in_fields;

/// Says where a run and what is observed of it keep what every run has.
macro_rules! run_in_fields {
    () => {
        fn status(&self) -> Option<&Self::Status> {
            self.status.as_ref()
        }

        fn stop(&self) -> &jangar_api::cancel::CancelRequest {
            &self.spec.stop
        }

        fn spec_hash(&self) -> String {
            super::spec_hash(&self.spec)
        }

        fn seen(observed: &Self::Observed) -> $crate::life::Seen<'_, Self> {
            $crate::life::Seen {
                key: &observed.key,
                run: observed.run.as_deref(),
                jobs: &observed.jobs,
                live_jobs: &observed.live_jobs,
                departed: &observed.departed,
                lost_pods: &observed.lost_pods,
                pods: &observed.pods,
                refusal: observed.refusal.as_ref(),
                occupant: observed.occupant.as_ref(),
                cancel_above: observed.cancel_above,
                busy: observed.busy,
            }
        }
    };
}
pub(crate) use run_in_fields;

/// What is known about a run of any kind.
#[derive(Debug)]
pub(crate) struct Seen<'a, R> {
    pub key: &'a Key,
    /// The run itself; absent if a live read found it gone.
    pub run: Option<&'a R>,
    /// The Jobs that carry the run's label, and those that were asked for, by name.
    pub jobs: &'a BTreeMap<String, Arc<Job>>,
    /// The names of Jobs that the API server itself has spoken about.
    pub live_jobs: &'a BTreeSet<String>,
    /// What was last seen of Jobs that are gone, by name.
    pub departed: &'a BTreeMap<String, LastSight>,
    /// The UIDs of the Jobs that had a pod which is gone, as far as it is remembered.
    pub lost_pods: &'a BTreeSet<Uid>,
    /// The pods, by the UID of the Job that controls them.
    pub pods: &'a BTreeMap<Uid, PodSight>,
    pub refusal: Option<&'a Refusal>,
    pub occupant: Option<&'a Occupant>,
    /// Until when the run has time to stop, if an OrchestrationRun above is being cancelled.
    pub cancel_above: Option<Timestamp>,
    /// Whether there is so much to do that what may be over soon is told later.
    pub busy: bool,
}

impl<R> Clone for Seen<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Seen<'_, R> {}

impl<R> Seen<'_, R> {
    /// The pods of one Job, however they are known.
    pub(crate) fn pods_of(&self, job: &Uid) -> PodSight {
        self.pods
            .get(job)
            .cloned()
            .unwrap_or_else(|| PodSight::Cached(Vec::new()))
    }

    /// Whether the API server itself said that there is no Job of this name.
    pub(crate) fn is_absent(&self, job: &str) -> bool {
        self.live_jobs.contains(job) && !self.jobs.contains_key(job)
    }
}

/// A run that is there, and all that a decision about it depends on.
pub(crate) struct Situation<'a, R: Run> {
    pub observed: &'a R::Observed,
    pub seen: Seen<'a, R>,
    pub run: &'a R,
    pub uid: Uid,
    /// The status as it was written last.
    pub status: &'a R::Status,
    /// What the status remembers of Jobs.
    pub attempt: Attempt,
    /// What the run is at.
    pub task: Task<'a>,
    pub settings: &'a Settings,
    pub now: Timestamp,
}

/// Puts what has to be done about what a run left behind before what has to be done about the run.
pub(crate) fn after_leftovers<S>(decision: Decision<S>, leftovers: Plan<S>) -> Decision<S> {
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

/// What a run begins with.
pub(crate) fn first_task<R: Run>(run: &R) -> Task<'_> {
    run.task(1).unwrap_or(Task::Whole)
}

/// What follows when a task is done.
pub(crate) fn following<'a, R: Run>(run: &'a R, task: Task<'_>) -> Option<Task<'a>> {
    match task {
        Task::Whole => None,
        Task::Step(step) => run.task(step.number + 1),
    }
}

/// What the status remembers of Jobs. If it was lost, the Jobs themselves tell how far the run had come: an attempt is
/// never made twice, and a step that a later one has followed is over.
fn attempt<R: Run>(seen: &Seen<'_, R>, run: &R, status: &R::Status) -> Attempt {
    let is_of_run = |place: &Place| run.task(place.step).is_some();
    let unbegun = || {
        Attempt::at(Place {
            step: first_task(run).number(),
            attempt: 0,
        })
    };
    let remembered = Some(Attempt::remembered(status.runtime_ref()))
        .filter(|attempt| is_of_run(&attempt.place()))
        .unwrap_or_else(unbegun);
    let made = jobs::of_run(seen, run)
        .filter_map(|job| jobs::place(job))
        .filter(is_of_run)
        .max();
    let attempt = match made {
        Some(place) if place.step > remembered.step => Attempt::at(place),
        Some(place) if place > remembered.place() => Attempt {
            number: place.attempt,
            job: None,
            first_seen: None,
            ..remembered
        },
        Some(_) | None => remembered,
    };
    if attempt.job.is_some() {
        return attempt;
    }
    match departed(seen, run, &attempt) {
        Some(job) => Attempt {
            number: attempt.current(),
            job: Some(job),
            ..attempt
        },
        None => attempt,
    }
}

/// The Job of an attempt that was made, and went before the status told of it: somebody took our finalizer away and deleted it.
/// What it was doing may have been done, so it counts as one that the status remembers.
fn departed<R: Run>(seen: &Seen<'_, R>, run: &R, attempt: &Attempt) -> Option<ObjectId> {
    let name: String = job::name(&seen.key.name, attempt.current_place()).into();
    let sight = seen.departed.get(&name)?;
    let is_own = run.uid().is_some_and(|uid| sight.owner == Some(Uid(uid)));
    let is_gone = !seen.jobs.contains_key(&name);
    (is_own && is_gone).then(|| ObjectId {
        name,
        uid: sight.uid.clone(),
    })
}

impl<'a, R: Run> Situation<'a, R> {
    pub(crate) fn of(
        observed: &'a R::Observed,
        run: &'a R,
        status: &'a R::Status,
        settings: &'a Settings,
        now: Timestamp,
    ) -> Self {
        let seen = R::seen(observed);
        let attempt = attempt(&seen, run, status);
        Self {
            observed,
            seen,
            run,
            uid: Uid(run.uid().unwrap_or_default()),
            status,
            task: run.task(attempt.step).unwrap_or(Task::Whole),
            attempt,
            settings,
            now,
        }
    }

    /// What to do about a run that has not ended.
    pub(crate) fn decide(&self) -> Decision<R::Status> {
        // One that has begun goes on, whatever the settings say by now.
        if self.status.phase() == Some(&RunPhase::Cancelling) || self.is_asked_to_stop() {
            return cancel::plan(self);
        }
        if let Some(deadline) = self.cancel_above() {
            return cancel::ahead(self, deadline);
        }
        if let Some(reason) = abort::reason(self) {
            return abort::plan(self, reason);
        }
        follow::plan(self)
    }

    /// Until when it has time to stop, if an OrchestrationRun above is being cancelled.
    pub(crate) fn cancel_above(&self) -> Option<Timestamp> {
        let closes = self.settings.safeguards.cancel_closes;
        self.seen.cancel_above.filter(|_| closes)
    }

    /// Whether somebody asks it to stop, and the settings let it.
    pub(crate) fn is_asked_to_stop(&self) -> bool {
        let people_may = self.settings.runs.cancel_enabled;
        crate::parent::has_to_stop(self.run.meta(), self.run.stop(), people_may)
    }

    /// The status, ready to be changed.
    pub(crate) fn next_status(&self) -> NextStatus<'_, R> {
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

    /// Whether somebody asks it to stop, and the settings do not let it.
    pub(crate) fn refuses_to_stop(&self) -> bool {
        let people_may = self.settings.runs.cancel_enabled;
        crate::parent::is_stop_refused(self.run.meta(), self.run.stop(), people_may)
    }

    /// A cancel that the settings do not allow is answered, and changes nothing. It is honoured when they do.
    fn answer_disabled_cancel(&self, next: &mut NextStatus<'_, R>) {
        let stands = self.status.phase();
        let open = stands.is_none_or(|phase| !phase.is_terminal() && *phase != RunPhase::Cancelling);
        if open && self.refuses_to_stop() {
            next.not_cancelled(
                &Reason::CancelDisabled,
                "a cancel was asked for, and the settings do not allow it (JANGAR_ORCHESTRATION_CANCEL_ENABLED is false): set it \
                 to true, or delete the run",
            );
        }
    }

    /// What was last seen of the Job of the current attempt, if it went before the status told of it.
    fn untold(&self) -> Option<&'a LastSight> {
        let job = self.attempt.job.as_ref()?;
        let told = Attempt::remembered(self.status.runtime_ref()).job;
        let sight = self.seen.departed.get(&job.name)?;
        (told.as_ref() != Some(job) && sight.uid == job.uid).then_some(sight)
    }

    /// The name of the Job of the current attempt.
    pub(crate) fn job_name(&self) -> String {
        job::name(&self.seen.key.name, self.attempt.current_place()).into()
    }

    /// The Jobs of this run whose end is not recorded.
    fn unfinished_jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        let current = self.job_name();
        self.own_jobs()
            .filter(move |job| jobs::is_held(job) || job.metadata.name.as_ref() == Some(&current))
    }

    /// The Jobs of this run, without those of earlier attempts and steps, which `leftovers` sees to.
    fn own_jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        let is_past = |place: Place| place < self.attempt.place() && self.run.task(place.step).is_some();
        jobs::of_run(&self.seen, self.run)
            .filter(move |job| jobs::place(job).is_none_or(|place| !is_past(place)))
    }

    /// The Job of the current attempt, if it is there.
    pub(crate) fn current_job(&self) -> Option<&Arc<Job>> {
        let name = self.job_name();
        self.own_jobs()
            .find(|job| job.metadata.name.as_ref() == Some(&name))
    }
}
