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
    Scene, jobs,
    references::{self, Resolved, Unresolved},
    spec_hash,
    stamp::Stamp,
};
use crate::{
    decision::{Decision, Effect, Plan, Refusal, Rejection},
    job::{self, JobRequest},
};

/// How long after a refusal that may pass, such as a quota, the Job is tried again. No event tells when it has.
const FORBIDDEN_RETRY: Duration = Duration::from_secs(30);
/// How long until a Job that has the name and is going away is looked for again. It need not be one that is watched.
const TERMINATING_RETRY: Duration = Duration::from_secs(5);

/// Makes the Job of the next attempt.
pub(super) fn plan(scene: &Scene<'_>) -> Decision<AgentRunStatus> {
    if let Some(due) = scene.attempt.not_before.filter(|due| *due > scene.now) {
        return Decision::Act(Plan {
            wake_at: Some(due),
            ..Plan::nothing()
        });
    }
    if let Some(refusal) = &scene.observed.refusal {
        return refused(scene, refusal);
    }
    let resolved = match acceptable(scene)
        .map_err(Unresolved::Wrong)
        .and_then(|()| references::resolve(scene))
    {
        Ok(resolved) => resolved,
        Err(Unresolved::Unsure(question)) => return Decision::look(question),
        Err(Unresolved::Missing(missing)) => return missing_reference(scene, missing),
        Err(Unresolved::Wrong(rejection)) => return reject(scene, &rejection),
    };
    if let Err(rejection) = version_control(scene, &resolved) {
        return reject(scene, &rejection);
    }
    match build(scene, &resolved) {
        Ok(effects) => Decision::Act(Plan {
            effects,
            ..Plan::nothing()
        }),
        Err(rejection) => reject(scene, &rejection),
    }
}

/// Whether the run makes sense by itself, and this version can execute it.
fn acceptable(scene: &Scene<'_>) -> Result<(), Rejection> {
    match &scene.run.spec.runtime.type_ {
        RuntimeType::Job => job::check_run(scene.run, scene.settings),
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
fn version_control(scene: &Scene<'_>, resolved: &Resolved<'_>) -> Result<(), Rejection> {
    let policy = scene.run.spec.vcs_policy.clone().unwrap_or_default();
    let required = policy.required == Some(true) && policy.mode != Some(VcsMode::None);
    if required && wants_version_control(scene, resolved) {
        return Err(Rejection::new(
            Reason::VcsUnavailable,
            "spec.vcsPolicy.required is true, and this version has no version control: set it to false, or let the agent \
             clone the repository itself",
        ));
    }
    Ok(())
}

fn wants_version_control(scene: &Scene<'_>, resolved: &Resolved<'_>) -> bool {
    scene.run.spec.vcs_ref.is_some()
        || resolved.implementation.vcs_ref.is_some()
        || resolved.agent.spec.vcs_ref.is_some()
}

fn build(scene: &Scene<'_>, resolved: &Resolved<'_>) -> Result<Vec<Effect>, Rejection> {
    let spec_hash = spec_hash(&scene.run.spec);
    let request = JobRequest {
        run: scene.run,
        attempt: scene.attempt.current(),
        agent: resolved.agent,
        provider: resolved.provider,
        implementation: resolved.implementation,
        implementation_ref: resolved.implementation_ref,
        memory: resolved.memory,
        spec_hash: &spec_hash,
        admitted_at: scene.now,
    };
    let mut built = job::build(&request, scene.settings)?;
    let stamp = Stamp {
        attempts_allowed: job::attempts_allowed(scene.run, Some(resolved.agent), scene.settings)?,
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
fn missing_reference(scene: &Scene<'_>, missing: Rejection) -> Decision<AgentRunStatus> {
    let grace = scene.settings.runs.reference_grace;
    let since = waiting_since(scene, &missing.reason).unwrap_or(scene.now);
    let deadline = since.saturating_add(grace).unwrap_or(Timestamp::MAX);
    if scene.now >= deadline {
        let message = format!(
            "{}; it did not appear within {} s: create it and submit the run again",
            missing.message,
            grace.as_secs()
        );
        return reject(scene, &Rejection::new(missing.reason, message));
    }
    let mut standing = scene.standing();
    let message = format!(
        "{}: create it before {deadline}, or the run fails",
        missing.message
    );
    standing.blocked(&missing.reason, &message);
    Decision::Act(Plan {
        status: standing.into_status(),
        wake_at: Some(deadline),
        ..Plan::nothing()
    })
}

/// Since when the run has been blocked for this reason.
fn waiting_since(scene: &Scene<'_>, reason: &Reason) -> Option<Timestamp> {
    scene
        .status
        .common
        .condition(&ConditionType::Blocked)
        .filter(|blocked| blocked.status == ConditionStatus::True && blocked.reason == *reason)
        .and_then(|blocked| blocked.last_transition_time)
        .map(|time| time.0)
}

/// The API server does not take the Job.
fn refused(scene: &Scene<'_>, refusal: &Refusal) -> Decision<AgentRunStatus> {
    if refusal.code != 403 {
        let message = format!("the API server refused the Job of the run: {}", refusal.message);
        return reject(scene, &Rejection::new(Reason::JobRejected, message));
    }
    let mut standing = scene.standing();
    standing.blocked(
        &Reason::JobForbidden,
        &format!(
            "the API server does not let the Job of the run in: {}; it is tried again every {} s",
            refusal.message,
            FORBIDDEN_RETRY.as_secs()
        ),
    );
    Decision::Act(Plan {
        status: standing.into_status(),
        wake_at: scene.now.checked_add(FORBIDDEN_RETRY).ok(),
        ..Plan::nothing()
    })
}

/// Another Job has the name.
pub(super) fn name_taken(scene: &Scene<'_>, job: &Job) -> Decision<AgentRunStatus> {
    let name = job.name_any();
    let of_earlier_run = jobs::owner_run(job, &scene.observed.key.name).is_some();
    let mut standing = scene.standing();
    if of_earlier_run || jobs::is_deleting(job) {
        let message = format!(
            "Job {name} is still there and belongs to something else that is going away; the run starts when it has gone"
        );
        standing.blocked(&Reason::PreviousJobTerminating, &message);
        return Decision::Act(Plan {
            status: standing.into_status(),
            wake_at: scene.now.checked_add(TERMINATING_RETRY).ok(),
            ..Plan::nothing()
        });
    }
    let message = format!(
        "the run needs a Job called {name}, and there is one that does not belong to it: delete that Job, or choose another \
         name for the run"
    );
    standing.failed(scene.now, &Reason::NameTaken, &message);
    Decision::Act(Plan {
        status: standing.into_status(),
        notices: vec![scene.warning(Reason::NameTaken, message)],
        ..Plan::nothing()
    })
}

/// The run can never start as it was written.
pub(super) fn reject(scene: &Scene<'_>, rejection: &Rejection) -> Decision<AgentRunStatus> {
    let mut standing = scene.standing();
    standing.rejected(rejection);
    Decision::Act(Plan {
        status: standing.into_status(),
        notices: vec![scene.warning(rejection.reason.clone(), rejection.message.clone())],
        ..Plan::nothing()
    })
}
