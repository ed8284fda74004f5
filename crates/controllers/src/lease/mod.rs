//! One process writes at a time: the one that holds a `coordination.k8s.io/v1` Lease.
//!
//! The rules that make it one:
//!
//! - Only the clock that counts forward in this process decides. The times in a Lease are written for people; they come from
//!   other machines, and are compared with each other only, to see that something changed.
//! - A candidate takes the lease only after it has itself seen the same Lease for as long as a lease lasts. That holds for
//!   its own name too: a process that was started again cannot know what its predecessor has left on the way. Only a lease
//!   that was released, and one that never was, is taken at once.
//! - A holder counts from when it *sent* the last renewal that was confirmed. Nobody else can have seen that renewal
//!   earlier, so whatever a holder does in that time is over before a candidate's has passed. [`Gate`] keeps writes within.
//! - Every write of the Lease names the version it replaces. Of two candidates one wins, and a holder that was replaced
//!   finds out with its next renewal.
//! - Errors do not end a leadership before the renew deadline, and a request that hangs does not prolong it.
//! - A canary of a rollout lets others go first: it asks only after nobody has held the lease for [`CANARY_PATIENCE`].
//!
//! What this cannot see is time in which the machine stood still between looking at the gate and sending, and somebody
//! who deletes the Lease by hand while a new process starts. Writes that name the version or the UID they are meant for are
//! the second line of defence.

mod election;
mod gate;
mod leadership;
mod record;
mod rollout;

use std::{fmt, sync::Arc, time::Duration};

use jangar_engine::settings::LeaseSettings;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::time::{Instant, sleep_until};

pub(crate) use self::rollout::says_canary;
use self::{
    election::Election,
    gate::{Confirmed, Hold},
    leadership::{LastSighting, chain},
    record::{Sighting, Term},
    rollout::RoleFile,
};
pub use self::{
    gate::{Gate, REQUEST_TIMEOUT, WriteError},
    leadership::Leadership,
    rollout::CANARY_PATIENCE,
};
use crate::{clock::Clock, metrics::Metrics};

/// The longest time that a Lease can tell. It also keeps sums of times from overflowing.
const TIME_MAX: Duration = Duration::from_secs(i32::MAX.unsigned_abs() as u64);
/// The API server is asked about the lease no more often than this, whatever the settings say.
const RETRY_PERIOD_MIN: Duration = Duration::from_millis(100);

/// What a process is called in the Lease and in Events. No two processes that run at the same time may share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(String);

/// The text cannot be an identity.
#[derive(Debug, thiserror::Error)]
#[error("an identity has 1 to {max} bytes, this one has {bytes}", max = Identity::BYTES_MAX)]
pub struct BadIdentity {
    bytes: usize,
}

impl Identity {
    /// What the reporting instance of an Event may have.
    pub const BYTES_MAX: usize = 128;

    /// An empty one is refused: in a Lease it means that nobody holds it.
    pub fn new(text: impl Into<String>) -> Result<Self, BadIdentity> {
        let text = text.into();
        if (1..=Self::BYTES_MAX).contains(&text.len()) {
            Ok(Self(text))
        } else {
            Err(BadIdentity { bytes: text.len() })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why something about the Lease could not be done.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("failed to {action} the Lease")]
    Api {
        action: &'static str,
        source: kube::Error,
    },
    #[error("failed to {action} the Lease: no answer within {limit:?}")]
    TimedOut { action: &'static str, limit: Duration },
    #[error("the Lease is not ours any more")]
    Lost,
}

impl LeaseError {
    fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    fn code(&self) -> Option<u16> {
        match self {
            Self::Api {
                source: kube::Error::Api(status),
                ..
            } => Some(status.code),
            Self::Api { .. } | Self::TimedOut { .. } | Self::Lost => None,
        }
    }
}

/// A process that wants to lead.
#[derive(Debug)]
pub struct Elector {
    election: Arc<Election>,
    last_leadership: Option<LastSighting>,
}

impl Elector {
    pub fn new(
        client: Client,
        settings: LeaseSettings,
        identity: Identity,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let settings = LeaseSettings {
            duration: settings.duration.min(TIME_MAX),
            renew_deadline: settings.renew_deadline.min(TIME_MAX),
            retry_period: settings.retry_period.clamp(RETRY_PERIOD_MIN, TIME_MAX),
            ..settings
        };
        let election = Election {
            api: Api::namespaced(client, &settings.namespace),
            settings,
            identity,
            clock,
            metrics,
        };
        Self {
            election: Arc::new(election),
            last_leadership: None,
        }
    }

    /// Waits until this process leads. Without an election that is at once.
    ///
    /// Given up while it waits, it may leave a claim on the way, for which others then wait as for any holder.
    pub async fn lead(&mut self) -> Leadership {
        let hold = if self.election.settings.enabled {
            Hold::Lease(Box::new(self.win().await))
        } else {
            Hold::Unchallenged
        };
        let leadership = Leadership::begin(Arc::clone(&self.election), hold);
        self.last_leadership = Some(leadership.last_sighting());
        leadership
    }

    /// Asks for the lease until it is ours.
    async fn win(&mut self) -> Confirmed {
        let election = Arc::clone(&self.election);
        let sighting = self.last_leadership.take().and_then(|last| last.get());
        let mut candidate = Candidate {
            election: &election,
            role: election.settings.role_file.as_deref().map(RoleFile::new),
            since: Instant::now(),
            sighting,
            claim: None,
        };
        loop {
            let next = Instant::now() + election.settings.retry_period;
            match candidate.ask().await {
                Ok(Some(confirmed)) => {
                    tracing::info!(
                        lease = %election.settings.name,
                        identity = %election.identity,
                        "leading"
                    );
                    return confirmed;
                }
                Ok(None) => {}
                // Another candidate was faster. The next look shows whose it is.
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(
                        lease = %election.settings.name,
                        error = %chain(&error),
                        "could not ask for the lease; trying again"
                    );
                }
            }
            sleep_until(next).await;
        }
    }
}

/// What a candidate knows while it waits.
struct Candidate<'e> {
    election: &'e Election,
    /// Absent, this process is no canary.
    role: Option<RoleFile>,
    /// When it began to look. Where there never was a Lease, nobody has had it since then.
    since: Instant,
    /// The last Lease there was. One that was deleted since still keeps its holder's time.
    sighting: Option<Sighting>,
    /// What was last sent to take the lease. Its answer may have been lost.
    claim: Option<Lease>,
}

impl Candidate<'_> {
    /// Looks at the Lease once, and takes it if it is free.
    async fn ask(&mut self) -> Result<Option<Confirmed>, LeaseError> {
        let seen = self.election.get().await?;
        let now = Instant::now();
        if let Some(lease) = &seen {
            if self.is_our_claim(lease) {
                return self.renew(lease).await.map(Some);
            }
            self.note_holder(lease);
            self.sighting = Some(Sighting::then(self.sighting.take(), lease.clone(), now));
        }
        let duration = self.election.settings.duration;
        let free_at = self
            .sighting
            .as_ref()
            .map_or(self.since, |sighting| sighting.free_at(duration));
        if now < free_at + self.patience().await {
            return Ok(None);
        }
        self.claim(seen.as_ref()).await.map(Some)
    }

    /// How long a free lease is left to others. The role is read at each look, because a canary becomes stable while it runs.
    async fn patience(&mut self) -> Duration {
        let canary = match &mut self.role {
            Some(role) => role.is_canary().await,
            None => false,
        };
        if canary { CANARY_PATIENCE } else { Duration::ZERO }
    }

    /// A claim whose answer was lost, but which was done.
    fn is_our_claim(&self, lease: &Lease) -> bool {
        let claimed = self.claim.as_ref().and_then(record::term);
        claimed.is_some() && claimed == record::term(lease)
    }

    /// What was claimed before is ours; with a renewal it is also known from when it counts.
    async fn renew(&self, lease: &Lease) -> Result<Confirmed, LeaseError> {
        let next = record::renewed(lease, &self.election.settings, self.election.clock.now());
        let sent = Instant::now();
        let lease = self.election.replace(&next).await?;
        Ok(Confirmed { lease, sent })
    }

    async fn claim(&mut self, seen: Option<&Lease>) -> Result<Confirmed, LeaseError> {
        let claim = self.next_claim(seen);
        self.claim = Some(claim.clone());
        let sent = Instant::now();
        let lease = if seen.is_some() {
            self.election.replace(&claim).await?
        } else {
            self.election.create(&claim).await?
        };
        Ok(Confirmed { lease, sent })
    }

    /// The same claim again, if it replaces the same Lease: an earlier one may still be on the way, and must be
    /// recognised as ours when it arrives first.
    fn next_claim(&self, seen: Option<&Lease>) -> Lease {
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        match &self.claim {
            Some(claim) if version(claim) == seen.and_then(version) => claim.clone(),
            _ => {
                let Election {
                    settings,
                    identity,
                    clock,
                    ..
                } = self.election;
                record::claimed(seen, settings, identity, clock.now())
            }
        }
    }

    /// Says once for whom this process waits.
    fn note_holder(&self, lease: &Lease) {
        let holder = |term: Term| term.holder;
        let now = record::term(lease).map(holder);
        let before = self
            .sighting
            .as_ref()
            .and_then(|sighting| record::term(&sighting.lease));
        if let Some(now) = now
            && Some(&now) != before.map(holder).as_ref()
        {
            tracing::info!(lease = %self.election.settings.name, holder = %now, "waiting for the lease");
        }
    }
}
