//! The Job of the next attempt: what it needs before it can be made.

use std::time::Duration;

use jangar_api::{
    agents::agent_run::{AgentRunStatus, RuntimeType, VcsMode},
    condition::{ConditionStatus, ConditionType},
    reason::Reason,
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{
    References, Situation, jobs,
    references::{self, Resolved, Unresolved},
    retry, spec_hash,
    stamp::Stamp,
};
use crate::{
    decision::{Decision, Effect, Plan, Refusal, Rejection, Sight},
    job::{self, JobRequest},
};

/// How long after a refusal that may pass, such as a quota, the Job is tried again. No event tells when it has.
const FORBIDDEN_RETRY: Duration = Duration::from_secs(30);
/// How long until a Job that has the name and is going away is looked for again. It need not be one that is watched.
const TERMINATING_RETRY: Duration = Duration::from_secs(5);

/// Makes the Job of the next attempt.
pub(super) fn plan(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    if let Some(due) = retry::waits_until(&situation.attempt, situation.now) {
        return Decision::Act(Plan {
            wake_at: Some(due),
            ..Plan::nothing()
        });
    }
    if let Some(refusal) = &situation.observed.refusal {
        return refused(situation, refusal);
    }
    let resolved = match acceptable(situation)
        .map_err(Unresolved::Wrong)
        .and_then(|()| references::resolve(situation))
    {
        Ok(resolved) => resolved,
        Err(Unresolved::Unsure(question)) => return Decision::look(question),
        Err(Unresolved::Missing(missing)) => return missing_reference(situation, missing),
        Err(Unresolved::Wrong(rejection)) => return reject(situation, &rejection),
    };
    if let Err(rejection) = version_control(situation) {
        return reject(situation, &rejection);
    }
    match build(situation, &resolved) {
        Ok(effects) => Decision::Act(Plan {
            effects,
            ..Plan::nothing()
        }),
        Err(rejection) => reject(situation, &rejection),
    }
}

/// Whether the run makes sense by itself, and this version can execute it.
fn acceptable(situation: &Situation<'_>) -> Result<(), Rejection> {
    match &situation.run.spec.runtime.type_ {
        RuntimeType::Job => job::check_run(situation.run, situation.settings),
        other @ (RuntimeType::Workflow
        | RuntimeType::Temporal
        | RuntimeType::Custom
        | RuntimeType::Other(_)) => Err(Rejection::new(
            Reason::UnsupportedRuntime,
            format!("spec.runtime.type is {other}, which this version does not execute: use job"),
        )),
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
        implementation,
        ..
    } = &situation.observed.references;
    let inline = spec
        .implementation
        .as_ref()
        .map(|implementation| &implementation.inline);
    let referenced = implementation
        .as_ref()
        .and_then(Sight::seen)
        .map(|object| &object.spec);
    spec.vcs_ref.is_some()
        || inline.or(referenced).is_some_and(|work| work.vcs_ref.is_some())
        || agent.seen().is_some_and(|agent| agent.spec.vcs_ref.is_some())
}

fn build(situation: &Situation<'_>, resolved: &Resolved<'_>) -> Result<Vec<Effect>, Rejection> {
    let spec_hash = spec_hash(&situation.run.spec);
    let request = JobRequest {
        run: situation.run,
        attempt: situation.attempt.current(),
        agent: resolved.agent,
        provider: resolved.provider,
        implementation: resolved.implementation,
        implementation_ref: resolved.implementation_ref,
        memory: resolved.memory,
        spec_hash: &spec_hash,
        admitted_at: situation.now,
    };
    let mut built = job::build(&request, situation.settings)?;
    let stamp = Stamp {
        attempts_allowed: job::attempts_allowed(situation.run, Some(resolved.agent), situation.settings)?,
        system_prompt_hash: built.system_prompt_hash,
        contract: built.contract,
    };
    stamp.put_on(&mut built.job);
    let files = built
        .config_map
        .map(|files| Effect::CreateConfigMap(Box::new(files)));
    let job = Effect::CreateJob(Box::new(built.job));
    Ok(files.into_iter().chain([job]).collect())
}

/// Something the run refers to is not there: it has the grace to come.
fn missing_reference(situation: &Situation<'_>, missing: Rejection) -> Decision<AgentRunStatus> {
    let grace = situation.settings.runs.reference_grace;
    let since = waiting_since(situation, &missing.reason).unwrap_or(situation.now);
    let deadline = since.saturating_add(grace).unwrap_or(Timestamp::MAX);
    if situation.now >= deadline {
        let message = format!(
            "{}; it did not appear within {} s: create it and submit the run again",
            missing.message,
            grace.as_secs()
        );
        return reject(situation, &Rejection::new(missing.reason, message));
    }
    let mut next = situation.next_status();
    let message = format!(
        "{}: create it before {deadline}, or the run fails",
        missing.message
    );
    next.blocked(&missing.reason, &message);
    Decision::Act(Plan {
        status: next.into_status(),
        wake_at: Some(deadline),
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

/// Another Job has the name.
pub(super) fn name_taken(situation: &Situation<'_>, job: &Job) -> Decision<AgentRunStatus> {
    let name = job.name_any();
    let of_earlier_run = jobs::owner_run(job, &situation.observed.key.name).is_some();
    let mut next = situation.next_status();
    if of_earlier_run || jobs::is_deleting(job) {
        let message = format!(
            "Job {name} is still there and belongs to something else that is going away; the run starts when it has gone"
        );
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
    next.failed(situation.now, &Reason::NameTaken, &message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(Reason::NameTaken, message)],
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
