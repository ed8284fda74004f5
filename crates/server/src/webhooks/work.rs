//! Has each source take in an issue: in a bounded queue, with bounded attempts, and with an answer as soon as there is one.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use jangar_api::{Kind, phase::WebhookState};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    Delivery, Issue, Source, Taken,
    apply::{self, Written},
    report::{self, Verdict},
};
use crate::{
    audit::{Deed, Entry, Outcome},
    metrics::{Loss, Webhook},
    plane::ControlPlane,
    refusal::{Refusal, Trouble},
};

/// How long an answer waits for the first attempt. Linear waits for 5 s, and GitHub for 10 s.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);
/// When a sender that found the queue full may come back.
const FULL_RETRY_SECONDS: u32 = 15;

/// How long history tells of a delivery: as long as a forge shows its own list of them.
const KEPT_FOR: Duration = Duration::from_hours(30 * 24);
/// What both senders tell of.
const EVENT: &str = "issue";

/// What came of the first attempt.
type First = oneshot::Receiver<Result<Written, Refusal>>;

/// A delivery on its way into one source. It holds its place in the queue until it has ended.
struct Job {
    plane: Arc<ControlPlane>,
    delivery: Arc<Delivery>,
    issue: Arc<Issue>,
    source: Source,
    _place: Arc<OwnedSemaphorePermit>,
}

/// Gives an issue to sources, and waits for the first attempt of each. Fails unless all of them have ended well by then; what
/// may still work is tried again all the same.
pub(super) async fn enqueue(
    plane: &Arc<ControlPlane>,
    delivery: Delivery,
    issue: Issue,
    sources: Vec<Source>,
) -> Result<Taken, Refusal> {
    let sender = delivery.sender.word();
    let key = delivery.key(&issue);
    let (known, new): (Vec<Source>, Vec<Source>) = sources
        .into_iter()
        .partition(|source| plane.webhooks.is_known(source, &key, delivery.signature));
    let mut taken = Taken {
        queued: new.len(),
        deduped: known.len(),
        ..Taken::default()
    };
    for _ in &known {
        plane.metrics.webhook(sender, Webhook::Deduplicated);
    }
    if new.is_empty() {
        return Ok(taken);
    }
    let Ok(place) = Arc::clone(&plane.webhooks.places).try_acquire_owned() else {
        plane.metrics.webhook(sender, Webhook::Full);
        return Err(Refusal::new(Trouble::Unavailable, "the queue of deliveries is full")
            .retry_after(FULL_RETRY_SECONDS)
            .remedy("send it again later; JANGAR_AGENTS_CONTROLLER_WEBHOOK_QUEUE_SIZE is the size of the queue"));
    };
    let (place, delivery, issue) = (Arc::new(place), Arc::new(delivery), Arc::new(issue));
    let firsts = new.into_iter().map(|source| {
        let (sender, first): (_, First) = oneshot::channel();
        let job = Job {
            plane: Arc::clone(plane),
            delivery: Arc::clone(&delivery),
            issue: Arc::clone(&issue),
            source,
            _place: Arc::clone(&place),
        };
        tokio::spawn(job.run(sender));
        first
    });
    let firsts: Vec<First> = firsts.collect();
    let answers = tokio::time::timeout(ANSWER_WITHIN, join_all(firsts)).await;
    let Ok(answers) = answers else {
        return Err(Refusal::unavailable("the delivery is not written yet")
            .remedy("it is still tried; send it again to be sure: what was written is recognised"));
    };
    for answer in answers {
        match answer {
            Ok(Ok(Written::Synced)) => taken.synced += 1,
            Ok(Ok(Written::Outdated)) => taken.outdated += 1,
            Ok(Err(refusal)) => return Err(refusal),
            Err(_) => {
                return Err(Refusal::unavailable(
                    "the delivery was dropped: this program ends",
                ));
            }
        }
    }
    Ok(taken)
}

impl Job {
    async fn run(self, first: oneshot::Sender<Result<Written, Refusal>>) {
        let settings = self.plane.webhooks.settings.clone();
        let mut first = Some(first);
        for attempt in 1..=settings.attempts.max(1) {
            let result = self.attempt().await;
            let last = attempt >= settings.attempts;
            let goes_on = result.as_ref().is_err_and(may_work_later) && !last;
            self.tell(&result, attempt, goes_on).await;
            let error = result.as_ref().err().map(ToString::to_string);
            if let Some(first) = first.take() {
                // Whoever asked may have waited long enough.
                let _ = first.send(result);
            }
            // After the answer, which does not wait for the database.
            self.keep(error, attempt, goes_on).await;
            if !goes_on {
                return;
            }
            tokio::time::sleep(settings.pause(attempt)).await;
        }
    }

    async fn attempt(&self) -> Result<Written, Refusal> {
        let Self {
            plane,
            delivery,
            issue,
            source,
            ..
        } = self;
        // The semaphore is never closed.
        let _turn = plane.webhooks.writing.acquire().await;
        let written = apply::write(plane, &source.namespace, issue).await?;
        plane
            .webhooks
            .remember(source, &delivery.key(issue), delivery.signature);
        Ok(written)
    }

    /// Tells the metrics, the audit and the status of the source.
    async fn tell(&self, result: &Result<Written, Refusal>, attempt: u32, goes_on: bool) {
        let Self {
            plane,
            delivery,
            issue,
            source,
            ..
        } = self;
        let (counted, verdict) = match result {
            Ok(Written::Synced) => (Webhook::Synced, Verdict::Synced),
            Ok(Written::Outdated) => (Webhook::Outdated, Verdict::Synced),
            Err(refusal) if goes_on => (Webhook::Retried, Verdict::Retrying(refusal.to_string())),
            Err(refusal) if may_work_later(refusal) => {
                (Webhook::Failed, Verdict::GivenUp(refusal.to_string()))
            }
            Err(refusal) => (Webhook::Failed, Verdict::Refused(refusal.to_string())),
        };
        plane.metrics.webhook(delivery.sender.word(), counted);
        if !goes_on {
            plane.audit.record(self.entry(result, attempt));
        }
        report::write(plane, source, delivery, Some(issue), &verdict, attempt).await;
    }

    /// Notes in history how far the delivery has come.
    async fn keep(&self, error: Option<String>, attempt: u32, goes_on: bool) {
        let Some(history) = self.plane.history() else {
            return;
        };
        let Delivery {
            sender,
            id,
            received_at,
            ..
        } = self.delivery.as_ref();
        let key = self.delivery.key(&self.issue);
        let noted = jangar_store::Delivery {
            source: self.source.key(),
            delivery_id: id.clone().unwrap_or(key),
            provider: sender.word().to_owned(),
            event: EVENT.to_owned(),
            external_id: Some(self.issue.external_id.clone()),
            received_at: *received_at,
            state: match (&error, goes_on) {
                (None, _) => WebhookState::Synced,
                (Some(_), true) => WebhookState::Retrying,
                (Some(_), false) => WebhookState::Failed,
            },
            attempts: i64::from(attempt),
            error,
            expires_at: received_at.saturating_add(KEPT_FOR).unwrap_or(Timestamp::MAX),
        };
        if let Err(error) = history.delivery(&noted).await {
            self.plane.metrics.loss(Loss::History);
            tracing::warn!(%error, "a delivery is not noted in history: the status of its source and the log tell of it");
        }
    }

    fn entry(&self, result: &Result<Written, Refusal>, attempt: u32) -> Entry {
        let Delivery { sender, id, peer, .. } = self.delivery.as_ref();
        Entry {
            at: self.plane.now(),
            actor: format!("webhook:{}", sender.word()),
            groups: Vec::new(),
            source: peer.clone(),
            deed: Deed {
                action: "implementation_spec.synced",
                kind: Kind::ImplementationSpec,
                namespace: self.source.namespace.clone(),
                name: self.issue.spec_name.clone(),
            },
            outcome: Outcome::of(result),
            detail: json!({
                "source": self.source.key(),
                "delivery": id,
                "issue": self.issue.external_id,
                "version": self.issue.version.text,
                "attempts": attempt,
                "outdated": matches!(result, Ok(Written::Outdated)),
                "error": result.as_ref().err().map(ToString::to_string),
            }),
        }
    }
}

/// Whether another attempt can help: not where the API server refuses what the issue says.
fn may_work_later(refusal: &Refusal) -> bool {
    match refusal.trouble {
        Trouble::Unavailable
        | Trouble::TimedOut
        | Trouble::TooMany
        | Trouble::Conflict
        | Trouble::Internal
        | Trouble::Unauthenticated => true,
        Trouble::BadRequest
        | Trouble::Forbidden
        | Trouble::NotFound
        | Trouble::Gone
        | Trouble::MethodNotAllowed
        | Trouble::TooLarge
        | Trouble::UnsupportedMediaType
        | Trouble::Invalid
        | Trouble::NotBuilt => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_work_later_is_tried_again() {
        assert!(may_work_later(&Refusal::unavailable("away")));
        assert!(may_work_later(&Refusal::new(Trouble::TooMany, "slow down")));
        assert!(!may_work_later(&Refusal::new(
            Trouble::Invalid,
            "spec.text: too long"
        )));
        assert!(!may_work_later(&Refusal::new(Trouble::NotFound, "no namespace")));
    }
}
