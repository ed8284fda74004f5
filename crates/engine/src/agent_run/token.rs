//! The token of a GitHub App for one attempt of a run: made before its Job, renewed while it works, taken back at its end.
//!
//! It lives in a Secret that the run owns, one for each attempt, and never stands in a Job. The pod gets it as a variable when
//! it starts, and as a file that Kubernetes brings up to date when the token is renewed. Kubernetes removes the Secret as soon
//! as the run is gone, and the token would work on; so the run is held for as long as it may have one.

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus},
    labels,
    reason::Reason,
    values,
};
use jiff::{Span, Timestamp};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    NextStatus, Observed, Situation,
    attempt::Attempt,
    custom, hold, jobs,
    leftovers::{self, sooner},
    stamp::Stamp,
    temporal,
};
use crate::{
    decision::{Decision, Effect, KeyHolder, NewToken, Plan, TokenSight},
    job::{self, Place},
    vcs::{AppKey, Auth, Credentials, StoredValue, TokenStamp, VcsStamp, VersionControl, api_address},
};

/// The longest time before its end at which a token is renewed, in seconds.
const MARGIN_MAX: i64 = 300;
/// The shortest.
const MARGIN_MIN: i64 = 30;

/// How long before its end a token that is used for so many seconds is renewed: a tenth of that, within bounds.
fn margin(ttl_seconds: i64) -> Span {
    Span::new().seconds((ttl_seconds / 10).clamp(MARGIN_MIN, MARGIN_MAX))
}

/// The Secret and the App that the token of an attempt comes from, if the run shows who it is with one.
pub(super) fn wanted(situation: &Situation<'_>, place: Place, vcs: &VersionControl) -> Option<NewToken> {
    let Credentials::App(app) = &vcs.auth.credentials else {
        return None;
    };
    let api = vcs.addresses.api.clone()?;
    let writes = vcs.access == crate::vcs::Access::ReadWrite;
    let purpose = Purpose {
        place,
        repository: &vcs.repository,
        writes,
    };
    new_token(situation, app, api, purpose)
}

/// What a token is for.
#[derive(Clone, Copy, Debug)]
struct Purpose<'a> {
    place: Place,
    repository: &'a str,
    writes: bool,
}

fn new_token(situation: &Situation<'_>, app: &AppKey, api: String, purpose: Purpose<'_>) -> Option<NewToken> {
    let AppKey {
        app_id,
        installation_id,
        private_key:
            StoredValue {
                holder: KeyHolder::Secret(key_secret),
                key,
                ..
            },
        token_ttl,
    } = app
    else {
        return None;
    };
    let ttl = i64::try_from(token_ttl.as_secs()).unwrap_or(i64::MAX);
    let metadata = ObjectMeta {
        name: Some(job::token_name(&situation.observed.key.name, purpose.place).into()),
        namespace: Some(situation.observed.key.namespace.clone()),
        labels: Some([(labels::AGENT_RUN.to_owned(), situation.observed.key.name.clone())].into()),
        annotations: Some([(labels::API_BASE_URL.to_owned(), api.clone())].into()),
        owner_references: Some(vec![job::owned_by(situation.run)]),
        ..Default::default()
    };
    Some(NewToken {
        secret: Secret {
            metadata,
            ..Default::default()
        },
        api,
        app_id: app_id.clone(),
        installation_id: installation_id.clone(),
        key_secret: key_secret.clone(),
        key: key.clone(),
        repository: purpose.repository.to_owned(),
        writes: purpose.writes,
        good_until: situation.now.saturating_add(margin(ttl)).unwrap_or(situation.now),
        used_until: situation
            .now
            .saturating_add(Span::new().seconds(ttl))
            .unwrap_or(situation.now),
    })
}

/// Makes a token, or holds the run first that is to have it.
pub(super) fn made(situation: &Situation<'_>, new: Box<NewToken>) -> Effect {
    if hold::is_held(situation.run) {
        Effect::MintToken(new)
    } else {
        hold::hold(situation.run)
    }
}

/// Renews the token of a run that works, in time, and notes how long the new one lasts.
pub(super) fn kept_fresh(
    situation: &Situation<'_>,
    job: &Job,
    decision: Decision<AgentRunStatus>,
) -> Decision<AgentRunStatus> {
    let Decision::Act(mut plan) = decision else {
        return decision;
    };
    let Some(vcs) = Stamp::of(job).vcs else {
        return Decision::Act(plan);
    };
    let Some(stamp) = &vcs.token else {
        return Decision::Act(plan);
    };
    // A first status that is to be written says how long the first token lasts.
    let noted = plan
        .status
        .as_ref()
        .unwrap_or(situation.status)
        .vcs
        .clone()
        .unwrap_or_default();
    let expires_at = noted.token_expires_at.map_or(stamp.expires_at, |at| at.0);
    let Some(new) = renewal(situation, &vcs, stamp) else {
        return Decision::Act(plan);
    };
    let margin = new.good_until.duration_since(situation.now);
    let due = |expires_at: Timestamp| expires_at.saturating_sub(margin).unwrap_or(expires_at);
    let again = match situation.observed.tokens.get(&stamp.secret) {
        // The first one is told of with the Job.
        Some(TokenSight::Ready { .. }) if plan.status.is_none() && situation.attempt.job.is_none() => {
            return Decision::Act(plan);
        }
        Some(TokenSight::Ready { expires_at: renewed }) => {
            note(situation, &mut plan, Renewal::Done(*renewed));
            due(*renewed).max(after_failure(situation.now))
        }
        Some(TokenSight::Failed { message, not_before }) => {
            note(situation, &mut plan, Renewal::Failed { expires_at, message });
            let rests_until = not_before.unwrap_or(situation.now);
            after_failure(situation.now).max(rests_until)
        }
        None if situation.now >= due(expires_at) => {
            plan.effects.push(Effect::MintToken(Box::new(new)));
            return Decision::Act(plan);
        }
        None => due(expires_at),
    };
    plan.wake_at = sooner(plan.wake_at, Some(again));
    Decision::Act(plan)
}

/// When a renewal that failed is tried again.
fn after_failure(now: Timestamp) -> Timestamp {
    now.saturating_add(Span::new().seconds(MARGIN_MIN))
        .unwrap_or(Timestamp::MAX)
}

/// What renews the token, as long as the provider that the Job was made with is there.
fn renewal(situation: &Situation<'_>, vcs: &VcsStamp, stamp: &TokenStamp) -> Option<NewToken> {
    let name = vcs.status.as_ref()?.provider.as_ref()?;
    let provider = situation.observed.references.vcs.get(name)?.seen()?;
    let auth = Auth::of_provider(&provider.spec, &situation.settings.vcs)?;
    let Credentials::App(app) = &auth.credentials else {
        return None;
    };
    let api = api_address(&provider.spec, &auth)?;
    let purpose = Purpose {
        place: situation.attempt.current_place(),
        repository: &stamp.repository,
        writes: stamp.writes,
    };
    new_token(situation, app, api, purpose)
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug)]
enum Renewal<'a> {
    /// The token is good until then.
    Done(Timestamp),
    Failed {
        expires_at: Timestamp,
        message: &'a str,
    },
}

/// Puts into the status what became of a renewal. One that failed deserves attention as long as the old token is good: after
/// that the work can be neither pushed nor shown.
fn note(situation: &Situation<'_>, plan: &mut Plan<AgentRunStatus>, renewal: Renewal<'_>) {
    let before = plan.status.as_ref().unwrap_or(situation.status).clone();
    let mut next = NextStatus::of(situation.run, &before, situation.settings, situation.now);
    let told = match renewal {
        Renewal::Done(expires_at) => {
            if let Some(vcs) = &mut next.status.vcs {
                vcs.token_expires_at = Some(values::Timestamp(expires_at));
            }
            None
        }
        Renewal::Failed { expires_at, message } => Some(format!(
            "the token of the GitHub App ends at {expires_at} and could not be renewed ({message}): mend that before then, or the \
             work cannot be delivered"
        )),
    };
    match told {
        // It is newer than whatever else deserves attention, and has an end after which it is too late.
        Some(told) => {
            if !next.is_warned_of(&Reason::VcsAuthUnavailable) {
                plan.notices
                    .push(situation.warning(Reason::VcsAuthUnavailable, &told));
            }
            next.warn(&Reason::VcsAuthUnavailable, &told);
        }
        None => next.note(&Reason::VcsAuthUnavailable, None),
    }
    if let Some(status) = next.into_status() {
        plan.status = Some(status);
        plan.gives_way = false;
    }
}

/// Takes back the token of every Job that is let go: its pod is gone by then.
pub(super) fn revoked_with_jobs(observed: &Observed, plan: &mut Plan<AgentRunStatus>) {
    let mut effects = Vec::with_capacity(plan.effects.len());
    for effect in plan.effects.drain(..) {
        if let Effect::ReleaseJob { job, .. } = &effect
            && let Some(found) = observed.jobs.get(&job.name)
            && let Some(token) = Stamp::of(found).vcs.and_then(|vcs| vcs.token)
        {
            effects.push(Effect::RevokeToken {
                secret: token.secret,
                run: jobs::owner_run::<AgentRun>(found, &observed.key.name),
            });
        }
        effects.push(effect);
    }
    plan.effects = effects;
}

/// Takes back the token of an attempt whose Job is not there any more, when the run goes on without it: there is nothing to let go
/// with which it would be taken back. At the end of the run the last one is in any case.
pub(super) fn revoked_without_job(situation: &Situation<'_>, plan: &mut Plan<AgentRunStatus>) {
    let Some(status) = &plan.status else { return };
    let goes_on =
        situation.attempt.current_place() < Attempt::remembered(status.runtime_ref.as_ref()).place();
    if goes_on && hold::is_held(situation.run) && situation.current_job().is_none() {
        plan.effects.extend(last(situation));
    }
}

/// Takes back the token of an attempt that was to have a Job, and may have got none.
pub(super) fn last(situation: &Situation<'_>) -> Option<Effect> {
    let place = situation.attempt.current_place();
    let of_job = !custom::applies(situation) && !temporal::applies(situation);
    of_job.then(|| Effect::RevokeToken {
        secret: job::token_name(&situation.observed.key.name, place).into(),
        run: Some(situation.uid.clone()),
    })
}

/// The run was deleted: it goes when its Jobs are let go, and its tokens with them.
pub(super) fn farewell(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    if let Some(question) = leftovers::unsure_of_job(situation) {
        return Decision::look(question);
    }
    if jobs::of_run(&situation.seen, situation.run).any(|job| jobs::is_held(job)) {
        // They are leftovers, and stopped as such.
        return Decision::Act(Plan::nothing());
    }
    let mut effects: Vec<Effect> = last(situation).into_iter().collect();
    effects.push(hold::let_go(situation.run));
    Decision::Act(Plan {
        effects,
        ..Plan::nothing()
    })
}
