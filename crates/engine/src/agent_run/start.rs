//! The Job of the next attempt: what it needs before it can be made.

use std::time::Duration;

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus, RuntimeType, VcsMode},
    condition::{ConditionStatus, ConditionType},
    reason::Reason,
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use serde_json::Value;

use super::{
    References, Situation, jobs,
    leftovers::after,
    references::{self, Lacking, Resolved, Unresolved},
    retry, spec_hash,
    stamp::Stamp,
    steps::{self, Earlier},
    task::{self, Description, Task},
};
use crate::{
    decision::{Decision, Effect, NewJob, Occupant, Plan, Refusal, Rejection, Sight},
    job::{self, JobRequest, Place, StepOfRun},
};

/// How long after a refusal that may pass, such as a quota, the Job is tried again. No event tells when it has.
const FORBIDDEN_RETRY: Duration = Duration::from_secs(30);
/// How long until a Job that has the name and is going away is looked for again. It need not be one that is watched.
const TERMINATING_RETRY: Duration = Duration::from_secs(5);
/// How long until a ConfigMap that has the name and stays until somebody deletes it is looked for again. ConfigMaps are not
/// watched, so that no event tells.
const OCCUPIED_RETRY: Duration = Duration::from_secs(30);

/// How long until something that is not watched and is missing is looked for again, for as long as the grace lasts.
const UNWATCHED_RETRY: Duration = Duration::from_secs(5);

/// Makes the Job of the next attempt.
pub(super) fn plan(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    if let Some(due) = retry::waits_until(&situation.attempt, situation.task, situation.now) {
        return Decision::Act(Plan {
            wake_at: Some(due),
            ..Plan::nothing()
        });
    }
    if let Some(refusal) = &situation.observed.refusal {
        return refused(situation, refusal);
    }
    if let Some(occupant) = &situation.observed.occupant {
        return occupied(situation, occupant);
    }
    match first_effects(situation) {
        Ok(effects) => Decision::Act(Plan {
            effects,
            ..Plan::nothing()
        }),
        Err(Unresolved::Unsure(question)) => Decision::look(question),
        Err(Unresolved::Lacking(lacking)) => lacking_reference(situation, lacking),
        Err(Unresolved::Wrong(rejection)) => reject(situation, &rejection),
        Err(Unresolved::NotReported(why)) => fail(situation, &why),
    }
}

/// The Job and what it needs, once all that the run refers to is there and allows it.
///
/// Before the first step of a workflow starts, all of them have to be possible: a mistake in the last one would otherwise
/// show when the others have done their work. A step that starts later finds what is there by then, and waits for what is not.
fn first_effects(situation: &Situation<'_>) -> Result<Vec<Effect>, Unresolved> {
    let task = situation.task;
    let is_new = situation.attempt.number == 0;
    let later: Vec<Task<'_>> = task.onwards(situation.run).skip(1).filter(|_| is_new).collect();
    acceptable(situation, &later)?;
    let reports = steps::reported(task, situation.status);
    let effects = effects_of(situation, task, Earlier::Ran(&reports))?;
    for task in later {
        effects_of(situation, task, Earlier::NotRun)?;
    }
    Ok(effects)
}

/// The Job of a task and what it needs.
fn effects_of(
    situation: &Situation<'_>,
    task: Task<'_>,
    earlier: Earlier<'_>,
) -> Result<Vec<Effect>, Unresolved> {
    let made = || {
        let parameters = steps::parameters(task, situation.run, earlier).map_err(Unresolved::NotReported)?;
        let resolved = references::resolve(situation, task)?;
        version_control(situation).map_err(Unresolved::Wrong)?;
        let run = task.run(situation.run, parameters);
        build(situation, task, &run, &resolved, earlier)
    };
    made().map_err(|why: Unresolved| why.of(task))
}

/// Whether the run makes sense by itself, and this version can execute it.
fn acceptable(situation: &Situation<'_>, later: &[Task<'_>]) -> Result<(), Unresolved> {
    let run = situation.run;
    match &run.spec.runtime.type_ {
        RuntimeType::Job => job::check_run(run, situation.settings).map_err(Unresolved::Wrong),
        RuntimeType::Workflow => {
            steps::check(run).map_err(Unresolved::Wrong)?;
            [situation.task].iter().chain(later).try_for_each(|task| {
                let parameters =
                    steps::parameters(*task, run, Earlier::NotRun).map_err(Unresolved::NotReported)?;
                job::check_run(&task.run(run, parameters), situation.settings)
                    .map_err(|why| Unresolved::Wrong(why).of(*task))
            })
        }
        other @ (RuntimeType::Temporal | RuntimeType::Custom | RuntimeType::Other(_)) => {
            Err(Unresolved::Wrong(Rejection::new(
                Reason::UnsupportedRuntime,
                format!(
                    "spec.runtime.type is {other}, which this version does not execute: use job or workflow"
                ),
            )))
        }
    }
}

/// Version control is not executed yet. A run that insists on it must not go on without.
fn version_control(situation: &Situation<'_>) -> Result<(), Rejection> {
    let policy = situation.run.spec.vcs_policy.clone().unwrap_or_default();
    let required = policy.required == Some(true) && policy.mode != Some(VcsMode::None);
    if required && wants_version_control(situation) {
        return Err(Rejection::new(
            Reason::VcsUnavailable,
            "spec.vcsPolicy.required is true, and this version has no version control: set it to false, or let the agent \
             clone the repository itself",
        ));
    }
    Ok(())
}

/// Whether the run, its implementation or its Agent names a VersionControlProvider, as far as they are known.
pub(super) fn wants_version_control(situation: &Situation<'_>) -> bool {
    let spec = &situation.run.spec;
    let References {
        agent,
        implementations,
        ..
    } = &situation.observed.references;
    let work = match situation.task.description(situation.run) {
        Description::Inline(implementation, _) => Some(&implementation.inline),
        Description::Reference(reference, _) => implementations
            .get(reference.name.trim())
            .and_then(Sight::seen)
            .map(|object| &object.spec),
        Description::Nowhere => None,
    };
    spec.vcs_ref.is_some()
        || work.is_some_and(|work| work.vcs_ref.is_some())
        || agent.seen().is_some_and(|agent| agent.spec.vcs_ref.is_some())
}

/// Makes the Job of a task. `run` is the run as the task sees it.
fn build(
    situation: &Situation<'_>,
    task: Task<'_>,
    run: &AgentRun,
    resolved: &Resolved<'_>,
    earlier: Earlier<'_>,
) -> Result<Vec<Effect>, Unresolved> {
    let spec_hash = spec_hash(&situation.run.spec);
    let nothing = Value::Object(serde_json::Map::new());
    let earlier = match earlier {
        Earlier::NotRun => &nothing,
        Earlier::Ran(reports) => reports,
    };
    let request = JobRequest {
        run,
        place: Place {
            step: task.number(),
            attempt: situation.attempt.current(),
        },
        step: task.step().map(|step| StepOfRun {
            name: task::name(step.spec),
            earlier,
            timeout_seconds: step.spec.timeout_seconds.map(task::not_negative),
        }),
        agent: resolved.agent,
        provider: resolved.provider,
        implementation: resolved.implementation,
        implementation_ref: resolved.implementation_ref,
        memory: resolved.memory,
        nats_auth: references::nats_auth(situation, resolved.agent)?,
        spec_hash: &spec_hash,
        admitted_at: situation.now,
    };
    let mut built = job::build(&request, situation.settings).map_err(Unresolved::Wrong)?;
    let attempts_allowed = match task.attempts() {
        Some(attempts) => attempts,
        None => job::attempts_allowed(situation.run, Some(resolved.agent), situation.settings)
            .map_err(Unresolved::Wrong)?,
    };
    let system_prompt_hash = match &built.system_prompt_source {
        Some(source) => references::prompt_hash(situation, source)?,
        None => built.system_prompt_hash,
    };
    let stamp = Stamp {
        attempts_allowed,
        system_prompt_hash,
        contract: built.contract,
    };
    stamp.put_on(&mut built.job);
    let files = built
        .config_map
        .map(|files| Effect::CreateConfigMap(Box::new(files)));
    let job = Effect::CreateJob(Box::new(NewJob {
        job: built.job,
        pod_fields: built.pod_fields,
    }));
    Ok(files.into_iter().chain([job]).collect())
}

/// Something the run refers to is not there, or cannot be read: it has the grace to come, or to be mended.
fn lacking_reference(situation: &Situation<'_>, lacking: Lacking) -> Decision<AgentRunStatus> {
    let Lacking { why, remedy, watched } = lacking;
    let grace = situation.settings.runs.reference_grace;
    let since = waiting_since(situation, &why.reason).unwrap_or(situation.now);
    let deadline = since.saturating_add(grace).unwrap_or(Timestamp::MAX);
    if situation.now >= deadline {
        let message = format!(
            "{}, which did not change within {} s: {remedy} and submit the run again",
            why.message,
            grace.as_secs()
        );
        return reject(situation, &Rejection::new(why.reason, message));
    }
    let mut next = situation.next_status();
    let message = format!("{}: {remedy} before {deadline}, or the run fails", why.message);
    next.blocked(&why.reason, &message);
    let look_again = after(situation.now, UNWATCHED_RETRY).min(deadline);
    Decision::Act(Plan {
        status: next.into_status(),
        wake_at: Some(if watched { deadline } else { look_again }),
        ..Plan::nothing()
    })
}

/// Since when the run has been blocked for this reason.
fn waiting_since(situation: &Situation<'_>, reason: &Reason) -> Option<Timestamp> {
    situation
        .status
        .common
        .condition(&ConditionType::Blocked)
        .filter(|blocked| blocked.status == ConditionStatus::True && blocked.reason == *reason)
        .and_then(|blocked| blocked.last_transition_time)
        .map(|time| time.0)
}

/// The API server does not take the Job.
fn refused(situation: &Situation<'_>, refusal: &Refusal) -> Decision<AgentRunStatus> {
    if refusal.code != 403 {
        let message = format!(
            "the API server refused the Job of the run or its files: {}",
            refusal.message
        );
        return reject(situation, &Rejection::new(Reason::JobRejected, message));
    }
    let mut next = situation.next_status();
    next.blocked(
        &Reason::JobForbidden,
        &format!(
            "the API server does not let the Job of the run in: {}; it is tried again every {} s",
            refusal.message,
            FORBIDDEN_RETRY.as_secs()
        ),
    );
    Decision::Act(Plan {
        status: next.into_status(),
        wake_at: situation.now.checked_add(FORBIDDEN_RETRY).ok(),
        ..Plan::nothing()
    })
}

/// Another ConfigMap has the name of the one with the run's files. What is in it is not ours, so the Job must not mount it.
fn occupied(situation: &Situation<'_>, occupant: &Occupant) -> Decision<AgentRunStatus> {
    let Occupant { name, owner } = occupant;
    let of_earlier_run = owner
        .as_ref()
        .is_some_and(|owner| owner.kind == "AgentRun" && owner.name == situation.observed.key.name);
    let (message, retry) = if of_earlier_run {
        let message = format!(
            "ConfigMap {name} belongs to an earlier run of this name, and Kubernetes is removing it; the run starts when it \
             has gone"
        );
        (message, TERMINATING_RETRY)
    } else {
        let whose = match owner {
            Some(owner) => format!("belongs to {} {}", owner.kind, owner.name),
            None => "does not belong to it".to_owned(),
        };
        let message = format!(
            "the run needs a ConfigMap called {name} for its files, and there is one that {whose}: delete that ConfigMap, or \
             submit the run under another name; it is looked for again every {} s",
            OCCUPIED_RETRY.as_secs()
        );
        (message, OCCUPIED_RETRY)
    };
    let mut next = situation.next_status();
    next.blocked(&Reason::NameTaken, &message);
    Decision::Act(Plan {
        status: next.into_status(),
        wake_at: situation.now.checked_add(retry).ok(),
        ..Plan::nothing()
    })
}

/// Another Job has the name.
pub(super) fn name_taken(situation: &Situation<'_>, job: &Job) -> Decision<AgentRunStatus> {
    let name = job.name_any();
    let of_earlier_run = jobs::owner_run(job, &situation.observed.key.name).is_some();
    if of_earlier_run || jobs::is_deleting(job) {
        let message = format!(
            "Job {name} is still there and belongs to something else that is going away; the run starts when it has gone"
        );
        let mut next = situation.next_status();
        next.blocked(&Reason::PreviousJobTerminating, &message);
        return Decision::Act(Plan {
            status: next.into_status(),
            wake_at: situation.now.checked_add(TERMINATING_RETRY).ok(),
            ..Plan::nothing()
        });
    }
    let message = format!(
        "the run needs a Job called {name}, and there is one that does not belong to it: delete that Job, or choose another \
         name for the run"
    );
    fail(situation, &Rejection::new(Reason::NameTaken, message))
}

/// The run has failed, although it was written as it should be.
fn fail(situation: &Situation<'_>, why: &Rejection) -> Decision<AgentRunStatus> {
    let mut next = situation.next_status();
    next.failed(situation.now, &why.reason, &why.message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(why.reason.clone(), why.message.clone())],
        ..Plan::nothing()
    })
}

/// The run can never start as it was written.
pub(super) fn reject(situation: &Situation<'_>, rejection: &Rejection) -> Decision<AgentRunStatus> {
    let mut next = situation.next_status();
    next.rejected(rejection);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(rejection.reason.clone(), rejection.message.clone())],
        ..Plan::nothing()
    })
}
