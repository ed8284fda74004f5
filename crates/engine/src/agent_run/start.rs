//! The Job of the next attempt: what it needs before it can be made.

use std::time::Duration;

use jangar_api::{
    agents::agent_run::{AgentRunStatus, RuntimeType},
    condition::{ConditionStatus, ConditionType},
    reason::Reason,
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{
    Situation, jobs,
    leftovers::after,
    references::{self, Lacking, Resolved, Unresolved},
    retry, spec_hash,
    stamp::Stamp,
    token, version_control,
};
use crate::{
    decision::{Decision, Effect, NewJob, Occupant, Plan, Refusal, Rejection, TokenSight},
    job::{self, JobRequest},
    vcs::{Resolution, TokenStamp, VcsStamp},
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
    if let Some(due) = retry::waits_until(&situation.attempt, situation.now) {
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
    }
}

/// The Job and what it needs, once all that the run refers to is there and allows it.
fn first_effects(situation: &Situation<'_>) -> Result<Vec<Effect>, Unresolved> {
    acceptable(situation).map_err(Unresolved::Wrong)?;
    let resolved = references::resolve(situation)?;
    build(situation, &resolved)
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

fn build(situation: &Situation<'_>, resolved: &Resolved<'_>) -> Result<Vec<Effect>, Unresolved> {
    let spec_hash = spec_hash(&situation.run.spec);
    let request = JobRequest {
        run: situation.run,
        attempt: situation.attempt.current(),
        agent: resolved.agent,
        provider: resolved.provider,
        implementation: resolved.implementation,
        implementation_ref: resolved.implementation_ref,
        memory: resolved.memory,
        nats_auth: references::nats_auth(situation, resolved.agent)?,
        vcs: None,
        spec_hash: &spec_hash,
        admitted_at: situation.now,
    };
    let vcs = match version_control::resolve(situation, resolved) {
        Ok(vcs) => vcs,
        Err(unclear) => {
            // What is wrong with the rest of the run is said first: no repository would help it.
            job::build(&request, situation.settings).map_err(Unresolved::Wrong)?;
            return Err(unclear);
        }
    };
    let request = JobRequest {
        vcs: match &vcs {
            Resolution::Ready(vcs) => Some(vcs),
            Resolution::Unasked | Resolution::Skipped(_) => None,
        },
        ..request
    };
    let mut built = job::build(&request, situation.settings).map_err(Unresolved::Wrong)?;
    let attempts_allowed = job::attempts_allowed(situation.run, Some(resolved.agent), situation.settings)
        .map_err(Unresolved::Wrong)?;
    let system_prompt_hash = match &built.system_prompt_source {
        Some(source) => references::prompt_hash(situation, source)?,
        None => built.system_prompt_hash,
    };
    let stamp = Stamp {
        attempts_allowed,
        system_prompt_hash,
        contract: built.contract,
        vcs: VcsStamp::of(&vcs),
    };
    let Some(stamp) = with_token(situation, stamp, &vcs) else {
        // All else is well, so that a token is made for something.
        return Ok(mint(situation, &vcs).into_iter().collect());
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

/// The stamp of a Job with the token it needs; `None` if that has to be made first.
fn with_token(situation: &Situation<'_>, stamp: Stamp, vcs: &Resolution) -> Option<Stamp> {
    let Resolution::Ready(ready) = vcs else {
        return Some(stamp);
    };
    let Some(new) = token::wanted(situation, ready) else {
        return Some(stamp);
    };
    let Some(TokenSight::Ready { expires_at }) = &situation.observed.token else {
        return None;
    };
    let token = TokenStamp {
        secret: new.secret.name_any(),
        api: new.api,
        repository: new.repository,
        writes: new.writes,
        expires_at: *expires_at,
    };
    Some(Stamp {
        vcs: stamp.vcs.map(|vcs| vcs.with_token(token)),
        ..stamp
    })
}

fn mint(situation: &Situation<'_>, vcs: &Resolution) -> Option<Effect> {
    let Resolution::Ready(ready) = vcs else {
        return None;
    };
    let new = token::wanted(situation, ready)?;
    Some(Effect::MintToken(Box::new(new)))
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
pub(super) fn waiting_since(situation: &Situation<'_>, reason: &Reason) -> Option<Timestamp> {
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
