//! Tokens of GitHub Apps: makes one and keeps it in the Secret of a run, and takes it back.

use std::collections::BTreeMap;

use jangar_api::labels;
use jangar_engine::decision::{NewToken, TokenSight};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, ResourceExt,
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
    let there = live::secret(context, namespace, &name).await?;
    if let Some(there) = &there {
        if there.metadata.owner_references != new.secret.metadata.owner_references {
            let message = format!("there is a Secret {name} that does not belong to the run: delete it");
            return Ok(failed(work, name, message));
        }
        if let Some(expires_at) = expiry(there).filter(|expires_at| *expires_at > new.good_until) {
            work.learned.tokens.insert(name, TokenSight::Ready { expires_at });
            return Ok(Outcome::Already);
        }
    }
    let Some(key) = live::value_of(context, namespace, &new.key_secret, &new.key).await? else {
        let message = format!("Secret {} with the key {} is not there", new.key_secret, new.key);
        return Ok(failed(work, name, message));
    };
    let minted = match context.forges.mint(new, key, context.clock.now()).await {
        Ok(minted) => minted,
        Err(Failure { message }) => return Ok(failed(work, name, message)),
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
            Some(refused) => Ok(failed(work, name, refused.message.clone())),
            None => Err(ReconcileError::write("keep a token".to_owned(), error)),
        };
    }
    work.learned.tokens.insert(name, TokenSight::Ready { expires_at });
    Ok(Outcome::Done)
}

/// The token for this Secret could not be had.
fn failed(work: &mut Work, secret: String, message: String) -> Outcome {
    work.learned.tokens.insert(secret, TokenSight::Failed { message });
    Outcome::Otherwise
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
    let annotations = BTreeMap::from([(labels::EXPIRES_AT.to_owned(), expires_at.to_string())]);
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

/// Takes the token of a Secret back, and removes the Secret.
pub(crate) async fn revoke(
    context: &Context,
    namespace: &str,
    name: &str,
    api_base_url: &str,
) -> Result<Outcome, ReconcileError> {
    let Some(secret) = live::secret(context, namespace, name).await? else {
        return Ok(Outcome::Already);
    };
    if let Some(token) = secret.data.as_ref().and_then(|data| data.get(KEY)) {
        take_back(context, api_base_url, Credential(token.0.clone())).await;
    }
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
    if let Err(Failure { message }) = context.forges.revoke(api_base_url, token).await {
        tracing::warn!(message, "a token of a GitHub App was not taken back");
    }
}
