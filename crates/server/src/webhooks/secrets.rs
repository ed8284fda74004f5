//! The secrets that deliveries are signed with: read with the control plane's own account, and kept for a moment.

use std::time::Duration;

use jangar_api::reason::Reason;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::time::Instant;

use super::{
    Delivery, Source, issue,
    report::{self, Verdict},
    signature::SigningKey,
};
use crate::{
    access::Recent,
    plane::{ControlPlane, live},
    refusal::{Refusal, Trouble},
};

/// How long a secret is taken for what it was. Anybody can send a delivery, so that not each may ask the API server; and one that
/// is signed with a new secret may be refused for that much longer.
const AGE: Duration = Duration::from_secs(5);
/// Secrets that are remembered: more than there may be sources.
const ENTRIES_MAX: usize = 1_024;
/// The key of a Secret whose source names none.
const DEFAULT_KEY: &str = "token";

/// Secrets that were read a moment ago. Of a source that cannot be used, that it cannot.
#[derive(Debug)]
pub(super) struct Secrets(Recent<(String, String, Option<String>), Option<SigningKey>>);

/// Why a source takes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unusable {
    reason: Reason,
    message: String,
}

impl Secrets {
    pub(super) fn new() -> Self {
        Self(Recent::new(AGE, ENTRIES_MAX))
    }

    /// The secret of a source; none, if the source cannot be used as it is. That is told in its status. Fails if the API server
    /// does not answer.
    pub(super) async fn of(
        &self,
        plane: &ControlPlane,
        source: &Source,
        delivery: &Delivery,
    ) -> Result<Option<SigningKey>, Refusal> {
        // A source that names another Secret is looked at anew.
        let reference = source.spec.auth.secret_ref.clone();
        let entry = (source.key(), reference.name, reference.key);
        if let Some(known) = self.0.get(&entry, Instant::now()) {
            return Ok(known);
        }
        let key = match read(plane, source, delivery).await? {
            Ok(key) => Some(key),
            Err(unusable) => {
                tracing::warn!(
                    source = source.key(),
                    reason = unusable.reason.as_str(),
                    why = unusable.message,
                    "an ImplementationSource takes no deliveries"
                );
                let verdict = Verdict::Unusable(unusable.reason, unusable.message);
                report::write(plane, source, delivery, None, &verdict, 0).await;
                None
            }
        };
        self.0.put(entry, key.clone(), Instant::now());
        Ok(key)
    }
}

async fn read(
    plane: &ControlPlane,
    source: &Source,
    delivery: &Delivery,
) -> Result<Result<SigningKey, Unusable>, Refusal> {
    let unusable = |reason: Reason, message: String| Ok(Err(Unusable { reason, message }));
    if let Some(message) = issue::unusable(&source.spec, delivery.sender) {
        return unusable(Reason::InvalidSpec, message);
    }
    let reference = &source.spec.auth.secret_ref;
    let name = reference.name.trim();
    if name.is_empty() {
        let message = "spec.auth.secretRef.name is blank: name the Secret that deliveries are signed with";
        return unusable(Reason::MissingSecretRef, message.to_owned());
    }
    let key = reference
        .key
        .as_deref()
        .map(str::trim)
        .filter(|key| !key.is_empty());
    let key = key.unwrap_or(DEFAULT_KEY);
    let secrets: Api<Secret> = Api::namespaced(plane.own.clone(), &source.namespace);
    let found = match live(secrets.get_opt(name)).await {
        Ok(found) => found,
        Err(refusal) if refusal.trouble == Trouble::Forbidden => {
            let message = format!(
                "the control plane may not read Secret {name}: give its account the verb get on that Secret"
            );
            return unusable(Reason::SecretNotFound, message);
        }
        Err(refusal) => {
            // Whoever sends need not be anybody, and learns nothing of what there is.
            tracing::warn!(source = source.key(), error = %refusal, "the Secret of an ImplementationSource cannot be read");
            return Err(Refusal::unavailable("the signature cannot be checked just now"));
        }
    };
    let Some(found) = found else {
        let message = format!("there is no Secret {name} in this namespace: create it");
        return unusable(Reason::SecretNotFound, message);
    };
    let Some(value) = found.data.as_ref().and_then(|data| data.get(key)) else {
        let message =
            format!("Secret {name} has no key {key}: add it, or name another one in spec.auth.secretRef.key");
        return unusable(Reason::SecretKeyMissing, message);
    };
    match SigningKey::new(&value.0) {
        Ok(key) => Ok(Ok(key)),
        Err(weak) => unusable(
            Reason::SecretKeyMissing,
            format!("key {key} of Secret {name} cannot be used: {weak}"),
        ),
    }
}
