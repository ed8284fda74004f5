//! Holding the lease: renewing it, noticing its loss, giving it back.

use std::{fmt, sync::Arc};

use k8s_openapi::api::coordination::v1::Lease;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    LeaseError,
    election::Election,
    gate::{Confirmed, Gate, Hold, Phase, Standing, Writes},
    record::{self, Sighting},
};
use crate::{
    metrics::{Metrics, RenewalResult, Role},
    signal::Signal,
};

/// The right to write, for as long as it lasts. A task renews it.
///
/// Dropped, it shuts its gates and renews no more, but the lease is not given back: others wait until it has run out.
pub struct Leadership {
    election: Arc<Election>,
    tenure: Arc<Tenure>,
    writes: Arc<Writes>,
    /// Absent where there is no election.
    renewing: Option<JoinHandle<()>>,
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = self.tenure.standing.read().phase;
        f.debug_struct("Leadership")
            .field("phase", &phase)
            .finish_non_exhaustive()
    }
}

impl Leadership {
    pub(super) fn begin(election: Arc<Election>, hold: Hold) -> Self {
        let challenged = matches!(hold, Hold::Lease(_));
        let tenure = Arc::new(Tenure::begin(hold, Arc::clone(&election.metrics)));
        let renewing = challenged.then(|| tokio::spawn(renew(Arc::clone(&election), Arc::clone(&tenure))));
        Self {
            election,
            tenure,
            writes: Arc::default(),
            renewing,
        }
    }

    /// What every write goes through.
    pub fn gate(&self) -> Gate {
        Gate::new(
            Arc::clone(&self.tenure.standing),
            Arc::clone(&self.writes),
            self.election.settings.duration,
            Arc::clone(&self.election.metrics),
        )
    }

    /// Waits until this process does not lead any more. All its work has to stop then.
    pub async fn lost(&self) {
        self.tenure.over().await;
    }

    /// Gives the lease back, so that another process can lead at once.
    ///
    /// No write starts any more; those under way are waited for, and those that were given up without an answer get the
    /// time in which they may still be done. If it fails, the lease runs out by itself.
    pub async fn release(mut self) -> Result<(), LeaseError> {
        let hold = self.tenure.close();
        if let Some(renewing) = self.renewing.take() {
            renewing.abort();
            // It ends as cancelled; what matters is that it sends nothing any more.
            let _ = renewing.await;
        }
        match hold {
            None => {
                self.writes.ended().await;
                Err(LeaseError::Lost)
            }
            Some(Hold::Unchallenged) => {
                self.writes.ended().await;
                Ok(())
            }
            Some(Hold::Lease(confirmed)) => {
                self.writes.settled(self.election.settings.duration).await;
                give_back(&self.election, &confirmed.lease).await
            }
        }
    }

    /// The Lease as this process last wrote it, which it has seen unchanged since.
    pub(super) fn last_sighting(&self) -> LastSighting {
        LastSighting(Arc::clone(&self.tenure.standing))
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        if let Some(renewing) = &self.renewing {
            renewing.abort();
        }
        self.tenure.end();
    }
}

/// Remembers the Lease as a leadership last wrote it, beyond its end.
#[derive(Debug)]
pub(super) struct LastSighting(Arc<Signal<Standing>>);

impl LastSighting {
    pub(super) fn get(&self) -> Option<Sighting> {
        match &self.0.read().hold {
            Hold::Unchallenged => None,
            Hold::Lease(confirmed) => Some(Sighting::new(confirmed.lease.clone(), confirmed.sent)),
        }
    }
}

/// What a leadership, its gates and the task that renews it have in common.
#[derive(Debug)]
struct Tenure {
    standing: Arc<Signal<Standing>>,
    metrics: Arc<Metrics>,
}

impl Tenure {
    fn begin(hold: Hold, metrics: Arc<Metrics>) -> Self {
        metrics.role(Role::Leader);
        let phase = Phase::Leading;
        Self {
            standing: Arc::new(Signal::new(Standing { phase, hold })),
            metrics,
        }
    }

    /// A renewal was confirmed. One that comes too late opens nothing again.
    fn confirm(&self, confirmed: Confirmed) {
        self.standing.change(|standing| {
            let leading = standing.phase == Phase::Leading;
            if leading {
                standing.hold = Hold::Lease(Box::new(confirmed));
            }
            leading
        });
    }

    /// Lets no write start any more. `None` if it is over already.
    fn close(&self) -> Option<Hold> {
        let mut hold = None;
        self.standing.change(|standing| {
            let leading = standing.phase == Phase::Leading;
            if leading {
                standing.phase = Phase::Closing;
                hold = Some(standing.hold.clone());
            }
            leading
        });
        hold
    }

    /// Ends it from any phase.
    fn end(&self) {
        self.end_if(|phase| phase != Phase::Over);
    }

    /// Ends it unless it is being closed in good order.
    fn lose(&self) {
        self.end_if(|phase| phase == Phase::Leading);
    }

    fn end_if(&self, condition: impl FnOnce(Phase) -> bool) {
        self.standing.change(|standing| {
            let ends = condition(standing.phase);
            if ends {
                standing.phase = Phase::Over;
                self.metrics.role(Role::Follower);
            }
            ends
        });
    }

    async fn over(&self) {
        self.standing
            .until(|standing| standing.phase == Phase::Over)
            .await;
    }

    fn confirmed(&self) -> Option<Confirmed> {
        match &self.standing.read().hold {
            Hold::Unchallenged => None,
            Hold::Lease(confirmed) => Some(confirmed.as_ref().clone()),
        }
    }
}

/// Ends a tenure when the task that renews it ends, in whatever way.
struct LoseOnDrop(Arc<Tenure>);

impl Drop for LoseOnDrop {
    fn drop(&mut self) {
        self.0.lose();
    }
}

/// Why a leadership ended.
#[derive(Debug, thiserror::Error)]
enum Loss {
    #[error("it could not be renewed in time")]
    Deadline,
    #[error("{0} holds it")]
    Taken(String),
    #[error("it was taken from us")]
    Cleared,
    #[error("the Lease was deleted")]
    Deleted,
}

/// Renews until the leadership is lost.
async fn renew(election: Arc<Election>, tenure: Arc<Tenure>) {
    let tenure = LoseOnDrop(tenure);
    let Some(confirmed) = tenure.0.confirmed() else {
        return;
    };
    let loss = renew_until_lost(&election, &tenure.0, confirmed).await;
    election.metrics.renewal(RenewalResult::Lost);
    tracing::warn!(
        lease = %election.settings.name,
        identity = %election.identity,
        %loss,
        "lost the lease"
    );
}

/// An error, whatever it is, is tried again until the deadline: what the API server says in bad times says nothing about
/// who holds the lease. Only a Lease that was read decides that.
async fn renew_until_lost(election: &Election, tenure: &Tenure, mut confirmed: Confirmed) -> Loss {
    let mut next = confirmed.sent + election.settings.retry_period;
    loop {
        let deadline = confirmed.sent + election.settings.renew_deadline;
        sleep_until(next.min(deadline)).await;
        let sent = Instant::now();
        if sent >= deadline {
            return Loss::Deadline;
        }
        next = sent + election.settings.retry_period;
        match timeout_at(deadline, renew_once(election, &confirmed.lease)).await {
            Ok(Ok(lease)) => {
                election.metrics.renewal(RenewalResult::Renewed);
                confirmed = Confirmed { lease, sent };
                tenure.confirm(confirmed.clone());
            }
            Ok(Err(RenewError::Lost(loss))) => return loss,
            Ok(Err(RenewError::Request(error))) => {
                let timed_out = matches!(error, LeaseError::TimedOut { .. });
                election.metrics.renewal(if timed_out {
                    RenewalResult::TimedOut
                } else {
                    RenewalResult::Failed
                });
                tracing::warn!(
                    lease = %election.settings.name,
                    error = %chain(&error),
                    "could not renew the lease; trying again"
                );
            }
            Err(_) => {
                election.metrics.renewal(RenewalResult::TimedOut);
                return Loss::Deadline;
            }
        }
    }
}

enum RenewError {
    Lost(Loss),
    Request(LeaseError),
}

/// One renewal. A conflict means that somebody wrote the Lease: another holder, or a person who set a label, or we
/// ourselves with a request whose answer never came. So it is read again.
async fn renew_once(election: &Election, lease: &Lease) -> Result<Lease, RenewError> {
    let next = record::renewed(lease, &election.settings, election.clock.now());
    match election.replace(&next).await {
        Ok(renewed) => return Ok(renewed),
        Err(error) if error.is_conflict() => {}
        Err(error) if error.is_not_found() => return Err(RenewError::Lost(Loss::Deleted)),
        Err(error) => return Err(RenewError::Request(error)),
    }
    let Some(current) = election.get().await.map_err(RenewError::Request)? else {
        return Err(RenewError::Lost(Loss::Deleted));
    };
    if record::term(&current) != record::term(lease) {
        let loss = record::term(&current).map_or(Loss::Cleared, |term| Loss::Taken(term.holder));
        return Err(RenewError::Lost(loss));
    }
    let next = record::renewed(&current, &election.settings, election.clock.now());
    election.replace(&next).await.map_err(RenewError::Request)
}

/// Writes that nobody holds the Lease, if its term is still ours.
async fn give_back(election: &Election, lease: &Lease) -> Result<(), LeaseError> {
    let free = record::released(lease, election.clock.now());
    match election.replace(&free).await {
        Ok(_) => return Ok(()),
        Err(error) if error.is_conflict() => {}
        Err(error) => return Err(error),
    }
    // A last renewal whose answer did not come may have been done.
    match election.get().await? {
        Some(current) if record::term(&current) == record::term(lease) => {
            let free = record::released(&current, election.clock.now());
            election.replace(&free).await.map(|_| ())
        }
        _ => Err(LeaseError::Lost),
    }
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
