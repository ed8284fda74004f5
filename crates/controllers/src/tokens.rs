//! Tokens of GitHub Apps: makes one and keeps it in the Secret of a run, and takes it back.

use std::collections::BTreeMap;

use jangar_api::{agents::agent_run::AgentRun, labels};
use jangar_engine::decision::{NewToken, TokenSight, Uid};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, Preconditions},
    core::Status,
};
use serde_json::json;

use crate::{
    driver::{Context, ReconcileError, Work},
    effects::{Outcome, patching, post, status},
    forges::{Credential, Failure},
    lease::WriteError,
    live,
    metrics::Verb,
};

/// The key of the token in its Secret.
const KEY: &str = "token";

/// Sees to it that the Secret holds a token that is good for long enough. That it cannot be had is learned: the run says so.
pub(crate) async fn mint(
    context: &Context,
    namespace: &str,
    new: &NewToken,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let name = new.secret.name_any();
    let there = match live::secret(context, namespace, &name).await {
        Err(error) if error.is_forbidden() => return Ok(failed(work, name.clone(), unreadable(&name), None)),
        found => found?,
    };
    if let Some(there) = &there {
        if there.metadata.owner_references != new.secret.metadata.owner_references {
            let message = format!("there is a Secret {name} that does not belong to the run: delete it");
            return Ok(failed(work, name, message, None));
        }
        if let Some(expires_at) = expiry(there).filter(|expires_at| *expires_at > new.good_until) {
            work.learned.tokens.insert(name, TokenSight::Ready { expires_at });
            return Ok(Outcome::Already);
        }
    }
    let key = match live::value_of(context, namespace, &new.key_secret, &new.key).await {
        Err(error) if error.is_forbidden() => {
            return Ok(failed(work, name, unreadable(&new.key_secret), None));
        }
        found => found?,
    };
    let Some(key) = key else {
        let message = format!("Secret {} with the key {} is not there", new.key_secret, new.key);
        return Ok(failed(work, name, message, None));
    };
    let minted = match context.forges.mint(new, key, context.clock.now()).await {
        Ok(minted) => minted,
        Err(Failure { message, not_before }) => return Ok(failed(work, name, message, not_before)),
    };
    let expires_at = minted.expires_at.min(new.used_until);
    let kept = keep(
        context,
        namespace,
        new,
        there.is_some(),
        minted.token.clone(),
        expires_at,
    )
    .await;
    if let Err(error) = kept {
        // Nobody will find it, so it is taken back.
        take_back(context, &new.api, minted.token).await;
        return match status(&error).filter(|status| status.code == 403) {
            Some(refused) => Ok(failed(work, name, refused.message.clone(), None)),
            None => Err(ReconcileError::write("keep a token".to_owned(), error)),
        };
    }
    work.learned.tokens.insert(name, TokenSight::Ready { expires_at });
    Ok(Outcome::Done)
}

/// The token for this Secret could not be had.
fn failed(work: &mut Work, secret: String, message: String, not_before: Option<Timestamp>) -> Outcome {
    let sight = TokenSight::Failed { message, not_before };
    work.learned.tokens.insert(secret, sight);
    Outcome::Otherwise
}

/// An operator may keep Secrets from the controllers. Runs that need none of them do not notice.
fn unreadable(secret: &str) -> String {
    format!("the controllers may not read Secret {secret}: let them get it")
}

/// The UID of the run that a Secret belongs to.
fn owner(secret: &Secret) -> Option<&str> {
    let mut owners = secret.owner_references().iter();
    let run = owners.find(|owner| owner.kind == AgentRun::kind(&()))?;
    Some(&run.uid)
}

fn expiry(secret: &Secret) -> Option<Timestamp> {
    secret.annotations().get(labels::EXPIRES_AT)?.parse().ok()
}

async fn keep(
    context: &Context,
    namespace: &str,
    new: &NewToken,
    exists: bool,
    token: Credential,
    expires_at: Timestamp,
) -> Result<Secret, WriteError> {
    let api = Api::<Secret>::namespaced(context.client.clone(), namespace);
    let mut annotations = new.secret.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(labels::EXPIRES_AT.to_owned(), expires_at.to_string());
    let data = BTreeMap::from([(KEY.to_owned(), ByteString(token.0))]);
    if exists {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}, "data": data}));
        let name = new.secret.name_any();
        return context
            .write::<Secret, _>(Verb::Patch, api.patch(&name, &patching(), &patch))
            .await;
    }
    let mut secret = new.secret.clone();
    secret.metadata.annotations = Some(annotations);
    secret.data = Some(data);
    context
        .write::<Secret, _>(Verb::Create, api.create(&post(), &secret))
        .await
}

/// Takes the token of a Secret back, and removes the Secret, if it belongs to this run.
pub(crate) async fn revoke(
    context: &Context,
    namespace: &str,
    name: &str,
    run: Option<&Uid>,
) -> Result<Outcome, ReconcileError> {
    let secret = match live::secret(context, namespace, name).await {
        // Nobody who may not read it has put a token there. The run must be able to go all the same.
        Err(error) if error.is_forbidden() => return Ok(Outcome::Already),
        found => found?,
    };
    let Some(secret) = secret.filter(|secret| owner(secret) == run.map(|run| run.0.as_str())) else {
        return Ok(Outcome::Already);
    };
    // A Secret without them is not one of ours, whatever its name is.
    let api = secret.annotations().get(labels::API_BASE_URL);
    let token = secret.data.as_ref().and_then(|data| data.get(KEY));
    let (Some(api), Some(token)) = (api, token) else {
        return Ok(Outcome::Already);
    };
    take_back(context, api, Credential(token.0.clone())).await;
    let api = Api::<Secret>::namespaced(context.client.clone(), namespace);
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: secret.metadata.uid.clone(),
        resource_version: None,
    });
    match context
        .write::<Secret, _>(Verb::Delete, api.delete(name, &params))
        .await
    {
        Ok(_) => Ok(Outcome::Done),
        Err(error)
            if status(&error).is_some_and(|status| status.is_not_found() || Status::is_conflict(status)) =>
        {
            Ok(Outcome::Already)
        }
        Err(error) => Err(ReconcileError::write("remove a token".to_owned(), error)),
    }
}

/// A forge that does not answer must not keep a Job from being let go: the token ends by itself within the hour.
async fn take_back(context: &Context, api_base_url: &str, token: Credential) {
    if let Err(Failure { message, .. }) = context.forges.revoke(api_base_url, token).await {
        tracing::warn!(message, "a token of a GitHub App was not taken back");
    }
}
