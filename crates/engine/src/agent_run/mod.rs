//! The life of an AgentRun: what to do about it next.
//!
//! [`plan`] looks at where a run stands and hands over to the module of that part of its life:
//!
//! | the run | module |
//! |---|---|
//! | is gone, or being deleted | `leftovers`: nothing of it is left running, and its Jobs are let go |
//! | has ended | `finished`: its Jobs are let go, and it is deleted when its time has come |
//! | is asked to stop | `cancel` |
//! | was given up while its pod is there | `abort` |
//! | has a Job | `follow`: its pod tells how it ends; `waiting` tells why it does not start |
//! | has none yet | `start`: `references`, `version_control` and the Job of the next attempt |
//!
//! `outcome` reads what a pod or a Job says about its end, `retry` and `vanished` what follows from a bad one, `next_status`
//! writes the status, and `attempt` is what the status remembers of Jobs.

mod abort;
mod artifacts;
mod attempt;
mod cancel;
mod finished;
mod follow;
mod jobs;
mod leftovers;
mod next_status;
mod outcome;
mod references;
mod retry;
mod spec_hash;
mod stamp;
mod start;
#[cfg(test)]
mod tests;
mod token;
mod vanished;
mod version_control;
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
        version_control_provider::VersionControlProvider,
    },
    phase::RunPhase,
    reason::Reason,
};
use jiff::{Timestamp, Unit};
use k8s_openapi::api::batch::v1::Job;

pub use self::spec_hash::spec_hash;
use self::{attempt::Attempt, next_status::NextStatus};
use crate::{
    decision::{Decision, Key, KeyHolder, Keys, Occupant, PodSight, Refusal, Sight, TokenSight, Uid},
    job,
    settings::Settings,
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
    /// The pods, by the UID of the Job that controls them.
    pub pods: BTreeMap<Uid, PodSight>,
    /// The Secrets and ConfigMaps that were asked for.
    pub keys: BTreeMap<KeyHolder, Keys>,
    /// What the API server said to the effects of the plan before.
    pub refusal: Option<Refusal>,
    /// What has the name of the ConfigMap that the plan before was to create.
    pub occupant: Option<Occupant>,
    /// Another run that has not ended and works on the branch that this one would take.
    pub branch_rival: Option<String>,
    /// What became of the token that the plan before asked for.
    pub token: Option<TokenSight>,
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
    /// `None` if the work is described in the run itself.
    pub implementation: Option<Sight<ImplementationSpec>>,
    /// The one that the run names, else its Agent, else the default of the namespace; `None` if there is none of these.
    pub memory: Option<Sight<Memory>>,
    /// The one that the run names, else its implementation, else its Agent; `None` if none of them does, as far as they are
    /// known.
    pub vcs: Option<Sight<VersionControlProvider>>,
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
    settings: &'a Settings,
    now: Timestamp,
}

/// What to do about a run.
pub fn plan(observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<AgentRunStatus> {
    // Finer than anybody needs, and shorter to read.
    let now = now.round(Unit::Millisecond).unwrap_or(now);
    let leftovers = match leftovers::clean_up(observed, settings, now) {
        Ok(mut plan) => {
            token::revoked_with_jobs(observed, &mut plan);
            plan
        }
        Err(question) => return Decision::look(question),
    };
    let Some(run) = &observed.run else {
        return Decision::Act(leftovers);
    };
    if run.metadata.deletion_timestamp.is_some() {
        // Its Jobs are leftovers already.
        return Decision::Act(leftovers);
    }
    let unwritten = AgentRunStatus::default();
    let status = run.status.as_ref().unwrap_or(&unwritten);
    let situation = Situation {
        observed,
        run,
        uid: Uid(run.metadata.uid.clone().unwrap_or_default()),
        status,
        attempt: attempt(observed, run, status),
        settings,
        now,
    };
    match situation.decide() {
        Decision::Act(mut plan) => {
            token::revoked_with_jobs(observed, &mut plan);
            plan.effects.splice(0..0, leftovers.effects);
            plan.notices.extend(leftovers.notices);
            plan.wake_at = leftovers::sooner(plan.wake_at, leftovers.wake_at);
            Decision::Act(plan)
        }
        look @ Decision::Look(_) => look,
    }
}

/// What the status remembers of Jobs. If it was lost, the Jobs themselves tell how far the run had come: an attempt is
/// never made twice.
fn attempt(observed: &Observed, run: &AgentRun, status: &AgentRunStatus) -> Attempt {
    let remembered = Attempt::remembered(status);
    let made = jobs::of_run(observed, run)
        .filter_map(|job| jobs::attempt(job))
        .max();
    match made {
        Some(number) if number > remembered.number => Attempt {
            number,
            job: None,
            ..remembered
        },
        Some(_) | None => remembered,
    }
}

impl Situation<'_> {
    fn decide(&self) -> Decision<AgentRunStatus> {
        let phase = self.status.phase.as_ref();
        if phase.is_some_and(RunPhase::is_terminal) {
            return finished::plan(self);
        }
        let requested = self.run.spec.stop.is_requested() && self.settings.runs.cancel_enabled;
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
        let mut next = NextStatus::of(self.run, self.status, self.now);
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
        job::name(&self.observed.key.name, self.attempt.current()).into()
    }

    /// The Jobs of this run whose end is not recorded.
    fn unfinished_jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        let current = self.job_name();
        self.own_jobs()
            .filter(move |job| jobs::is_held(job) || job.metadata.name.as_ref() == Some(&current))
    }

    /// The Jobs of this run, without those of earlier attempts, which `leftovers` sees to.
    fn own_jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        jobs::of_run(self.observed, self.run)
            .filter(|job| jobs::attempt(job).is_none_or(|number| number >= self.attempt.number))
    }
}
