//! The requests of an election: each has a time in which it must be answered, and is counted.

use std::{fmt, sync::Arc, time::Duration};

use jangar_engine::settings::LeaseSettings;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::time::timeout;

use super::{Identity, LeaseError};
use crate::{
    clock::Clock,
    effects::post,
    metrics::{Metrics, ObjectKind, RequestResult, Verb},
};

/// What a candidate and a leader need to speak about the Lease.
pub(super) struct Election {
    pub(super) api: Api<Lease>,
    pub(super) settings: LeaseSettings,
    pub(super) identity: Identity,
    /// Tells what is written into the Lease, and decides nothing.
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("settings", &self.settings)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// What a request may take at least, where the deadline has the time: a server may be busy for so long.
const REQUEST_MIN: Duration = Duration::from_secs(1);

/// A request that hangs, on a connection that is dead for instance, is given up in time for others before the deadline: three where
/// there is time for them, else one.
fn request_timeout(renew_deadline: Duration) -> Duration {
    (renew_deadline / 4).max(REQUEST_MIN.min(renew_deadline / 2))
}

impl Election {
    /// The Lease as it is now. No version is asked for, so that no cache answers.
    pub(super) async fn get(&self) -> Result<Option<Lease>, LeaseError> {
        self.bounded(Verb::Get, "read", self.api.get_opt(&self.settings.name))
            .await
    }

    pub(super) async fn create(&self, lease: &Lease) -> Result<Lease, LeaseError> {
        let parameters = post();
        self.bounded(Verb::Create, "create", self.api.create(&parameters, lease))
            .await
    }

    /// Writes the Lease if it still has the version in `lease`.
    pub(super) async fn replace(&self, lease: &Lease) -> Result<Lease, LeaseError> {
        let parameters = post();
        let request = self.api.replace(&self.settings.name, &parameters, lease);
        self.bounded(Verb::Update, "update", request).await
    }

    fn request_timeout(&self) -> Duration {
        request_timeout(self.settings.renew_deadline)
    }

    async fn bounded<T>(
        &self,
        verb: Verb,
        action: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, LeaseError> {
        let limit = self.request_timeout();
        let kind = ObjectKind::of::<Lease>();
        let Ok(answer) = timeout(limit, request).await else {
            self.metrics.request(verb, kind, RequestResult::TimedOut);
            return Err(LeaseError::TimedOut { action, limit });
        };
        self.metrics.request(verb, kind, RequestResult::of(&answer));
        answer.map_err(|source| LeaseError::Api { action, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hanging_requests_leave_time_for_others_before_the_deadline() {
        for (deadline, timeout) in [(20_000, 5_000), (8_000, 2_000), (2_000, 1_000), (1_000, 500)] {
            let deadline = Duration::from_millis(deadline);
            assert_eq!(
                request_timeout(deadline),
                Duration::from_millis(timeout),
                "{deadline:?}"
            );
        }
    }
}
