//! VersionControlProvider: whether it can be used.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jangar_api::{
    agents::version_control_provider::{
        VersionControlProvider, VersionControlProviderSpec, VersionControlProviderStatus,
    },
    condition::{ConditionStatus, ConditionType},
    reason::Reason,
    values,
};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    addresses::Addresses,
    auth::{Auth, Credentials, Presence, presence},
};
use crate::{
    conditions::{Conditions, Health, touched},
    decision::{Decision, KeyHolder, Keys, Plan, Question, Rejection},
    settings::Settings,
    template,
};

/// How long until a Secret or a ConfigMap that is missing is looked for again. They are not watched, so that no event tells.
const MISSING_RETRY: Duration = Duration::from_secs(30);

/// What is known about a provider.
#[derive(Clone, Debug)]
pub struct Observed {
    pub provider: Arc<VersionControlProvider>,
    /// The Secrets and ConfigMaps that were asked for.
    pub keys: BTreeMap<KeyHolder, Keys>,
}

/// How a provider stands.
enum Standing {
    Ready(Auth),
    Invalid(Rejection),
    /// What it needs is not there.
    Unreachable(Rejection),
}

/// Says whether the provider can be used.
pub fn plan(
    observed: &Observed,
    settings: &Settings,
    now: Timestamp,
) -> Decision<VersionControlProviderStatus> {
    let standing = match check(observed, settings) {
        Ok(standing) => standing,
        Err(question) => return Decision::look(question),
    };
    let provider = &observed.provider;
    let before = provider.status.clone().unwrap_or_default();
    let mut conditions = Conditions::of(&before.common, provider.metadata.generation, now);
    let mut wake_at = None;
    let mut hold =
        |conditions: &mut Conditions, holds: ConditionType, not: ConditionType, why: &Rejection| {
            let Rejection { reason, message } = why;
            conditions.clear(not, reason.clone(), "");
            conditions.set(holds, ConditionStatus::True, reason.clone(), message.clone());
            conditions.stand(Health::Degraded, reason, message);
            // What is missing may come, or be mended.
            let waits = matches!(
                reason,
                Reason::SecretNotFound
                    | Reason::ConfigMapNotFound
                    | Reason::SecretKeyMissing
                    | Reason::ConfigMapKeyMissing
            );
            wake_at = waits.then(|| now.saturating_add(MISSING_RETRY).unwrap_or(Timestamp::MAX));
        };
    match &standing {
        Standing::Ready(auth) => ready(&mut conditions, auth),
        Standing::Invalid(why) => {
            hold(
                &mut conditions,
                ConditionType::InvalidSpec,
                ConditionType::Unreachable,
                why,
            );
        }
        Standing::Unreachable(why) => {
            hold(
                &mut conditions,
                ConditionType::Unreachable,
                ConditionType::InvalidSpec,
                why,
            );
        }
    }
    let mut next = before.clone();
    next.common = conditions.into_status(&before.common);
    let mut status = touched(&before, next, |status| &mut status.common, now);
    if let Some(status) = &mut status {
        // A time by itself is no change.
        status.last_validated_at = Some(values::Timestamp(now));
    }
    Decision::Act(Plan {
        status,
        wake_at,
        ..Plan::nothing()
    })
}

fn ready(conditions: &mut Conditions, auth: &Auth) {
    let reason = match auth.credentials {
        Credentials::None => Reason::NoAuth,
        Credentials::Token(_) | Credentials::App(_) | Credentials::Ssh { .. } => Reason::AuthReady,
    };
    for wrong in [ConditionType::InvalidSpec, ConditionType::Unreachable] {
        conditions.clear(wrong, reason.clone(), "");
    }
    match &auth.deprecated {
        Some(message) => conditions.set(
            ConditionType::Warning,
            ConditionStatus::True,
            Reason::DeprecatedAuth,
            message.clone(),
        ),
        None => conditions.clear(ConditionType::Warning, Reason::None, ""),
    }
    conditions.stand(Health::Ready, &reason, "");
}

fn check(observed: &Observed, settings: &Settings) -> Result<Standing, Question> {
    let spec = &observed.provider.spec;
    let auth = match Auth::of(spec, &settings.vcs) {
        Ok(auth) => auth,
        Err(flaw) => return Ok(Standing::Invalid(flaw.of_provider())),
    };
    let sound = Addresses::of(spec, &auth)
        .map(drop)
        .and_then(|()| templates(spec));
    if let Err(why) = sound {
        return Ok(Standing::Invalid(why));
    }
    for value in auth.credentials.stored() {
        match presence(value, &observed.keys) {
            Presence::Assumed => {}
            Presence::Unknown(question) => return Err(question),
            Presence::HolderMissing(why) => return Ok(Standing::Unreachable(why)),
            Presence::KeyMissing(why) => return Ok(Standing::Invalid(why)),
        }
    }
    Ok(Standing::Ready(auth))
}

/// Whether every template can be rendered, which does not depend on the values.
fn templates(spec: &VersionControlProviderSpec) -> Result<(), Rejection> {
    let Some(defaults) = &spec.defaults else {
        return Ok(());
    };
    let pull_request = defaults.pull_request.clone().unwrap_or_default();
    for (field, text) in [
        ("branchTemplate", &defaults.branch_template),
        (
            "branchConflictSuffixTemplate",
            &defaults.branch_conflict_suffix_template,
        ),
        ("pullRequest.titleTemplate", &pull_request.title_template),
        ("pullRequest.bodyTemplate", &pull_request.body_template),
    ] {
        if let Some(text) = text {
            template::render(text, &Value::Null).map_err(|error| {
                Rejection::new(Reason::InvalidTemplate, format!("spec.defaults.{field}: {error}"))
            })?;
        }
    }
    Ok(())
}
