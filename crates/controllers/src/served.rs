//! Which kinds the API server does not serve yet.
//!
//! The definitions of the kinds may be applied after the controllers start, and rights may be granted late. Both are waited
//! for, and named.

use std::{fmt, time::Duration};

use jangar_engine::settings::Settings;
use kube::{Client, api::ListParams};

use crate::caches::{Cached, CachedKind, Delivered, Scope, with_kind};

/// How long one kind is waited for before it counts as not served.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// A kind that cannot be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// Plural and group: `agentruns.agents.proompteng.ai`.
    pub kind: String,
    pub reason: String,
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.reason)
    }
}

/// The kinds that cannot be listed, each with the reason.
pub(crate) async fn unserved(client: &Client, settings: &Settings) -> Vec<Unserved> {
    let Some(scope) = Scope::covering(settings).pop_first() else {
        return Vec::new();
    };
    let mut unserved = Vec::new();
    for kind in CachedKind::ALL
        .into_iter()
        .filter(|kind| kind.is_watched(settings))
    {
        unserved.extend(with_kind!(kind, K => probe::<K>(client, &scope).await));
    }
    unserved
}

/// Lists one object. An API server has no such path as long as it does not know the kind.
async fn probe<K: Cached>(client: &Client, scope: &Scope) -> Option<Unserved> {
    let api = scope.api::<Delivered<K>>(client);
    let params = ListParams::default().limit(1);
    let reason = match tokio::time::timeout(PROBE_TIMEOUT, api.list(&params)).await {
        Ok(Ok(_)) => return None,
        Ok(Err(kube::Error::Api(status))) if status.is_not_found() => {
            "the API server does not know this kind; `jangar crds | kubectl apply -f -` teaches it".to_owned()
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", PROBE_TIMEOUT.as_secs()),
    };
    let kind = match K::group(&()) {
        group if group.is_empty() => K::plural(&()).into_owned(),
        group => format!("{}.{group}", K::plural(&())),
    };
    Some(Unserved { kind, reason })
}
