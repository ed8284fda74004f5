//! What the status of a source says about its deliveries.

use jangar_api::{
    agents::implementation_source::{ImplementationSource, ImplementationSourceStatus, LastWebhook},
    condition::{ConditionStatus, ConditionType},
    phase::WebhookState,
    reason::Reason,
    values::{self, Int32},
};
use jangar_engine::conditions::{Conditions, Health, touched};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Delivery, Issue, Source, apply::FIELD_MANAGER, issue::cut};
use crate::{
    metrics::Loss,
    plane::{ControlPlane, live},
    refusal::{Refusal, Trouble},
};

/// How often a status is tried again because it changed meanwhile. Other replicas are all that writes it.
const TRIES_MAX: usize = 8;
/// The most characters of what is wrong with a delivery: its own words may be among them.
const ERROR_MAX: usize = 1_024;

/// What became of a delivery, or of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The ImplementationSpec is as the issue is, or was of a later version already.
    Synced,
    /// An attempt failed, and there will be another one.
    Retrying(String),
    /// All attempts have failed.
    GivenUp(String),
    /// It cannot be written, however often it is tried.
    Refused(String),
    /// It makes no sense.
    Unreadable(String),
    /// The source cannot take deliveries as it is.
    Unusable(Reason, String),
}

impl Verdict {
    fn state(&self) -> Option<WebhookState> {
        match self {
            Self::Synced => Some(WebhookState::Synced),
            Self::Retrying(_) => Some(WebhookState::Retrying),
            Self::GivenUp(_) | Self::Refused(_) | Self::Unreadable(_) => Some(WebhookState::Failed),
            Self::Unusable(..) => None,
        }
    }

    /// The reason and the words, if something is wrong with the delivery.
    fn error(&self) -> Option<(Reason, String)> {
        let (reason, error) = match self {
            Self::Synced | Self::Unusable(..) => return None,
            Self::Retrying(error) | Self::Refused(error) => (Reason::WebhookFailed, error),
            Self::GivenUp(error) => (Reason::WebhookRetryDropped, error),
            Self::Unreadable(error) => (Reason::InvalidPayload, error),
        };
        Some((reason, cut(error, ERROR_MAX)))
    }
}

/// Writes it to the status of the source. It is told to people, and nothing depends on it: what cannot be written is in the log.
pub(super) async fn write(
    plane: &ControlPlane,
    source: &Source,
    delivery: &Delivery,
    issue: Option<&Issue>,
    verdict: &Verdict,
    attempts: u32,
) {
    let told = told(delivery, issue, verdict, attempts, plane.now());
    let _turn = plane.webhooks.reporting.lock().await;
    if let Err(refusal) = written(plane, source, &told, verdict).await {
        plane.metrics.loss(Loss::Webhook);
        tracing::warn!(
            source = source.key(),
            error = %refusal,
            ?verdict,
            "the status of an ImplementationSource cannot be written: the control plane needs get on implementationsources and \
             patch on implementationsources/status"
        );
    }
}

async fn written(
    plane: &ControlPlane,
    source: &Source,
    told: &LastWebhook,
    verdict: &Verdict,
) -> Result<(), Refusal> {
    let sources: Api<ImplementationSource> = Api::namespaced(plane.own.clone(), &source.namespace);
    for _ in 0..TRIES_MAX {
        let Some(found) = live(sources.get_opt(&source.name)).await? else {
            return Ok(());
        };
        let before = found.status.clone().unwrap_or_default();
        let next = next(&before, found.metadata.generation, told, verdict, plane.now());
        let Some(next) = next else { return Ok(()) };
        let patch = json!({
            "metadata": {"resourceVersion": found.resource_version(), "uid": found.uid()},
            "status": patch(&next),
        });
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match live(sources.patch_status(&source.name, &params, &Patch::Merge(&patch))).await {
            Ok(_) => return Ok(()),
            Err(refusal) if refusal.trouble == Trouble::Conflict => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Err(Refusal::unavailable("it changes too fast"))
}

/// The delivery as the status tells of it.
fn told(
    delivery: &Delivery,
    issue: Option<&Issue>,
    verdict: &Verdict,
    attempts: u32,
    now: Timestamp,
) -> LastWebhook {
    LastWebhook {
        attempts: i32::try_from(attempts).ok().map(Int32::from),
        delivery_id: delivery.id.clone(),
        error: verdict.error().map(|(_, error)| error),
        external_id: issue.map(|issue| issue.external_id.clone()),
        idempotency_key: issue.map(|issue| delivery.key(issue)),
        processed_at: Some(values::Timestamp(now)),
        provider: Some(delivery.sender.word().to_owned()),
        received_at: Some(values::Timestamp(delivery.received_at)),
        source_version: issue.map(|issue| issue.version.text.clone()),
        status: verdict.state(),
    }
}

/// The status after this, if it changes. A delivery that arrived later is not taken back from `lastWebhook`.
fn next(
    before: &ImplementationSourceStatus,
    generation: Option<i64>,
    told: &LastWebhook,
    verdict: &Verdict,
    now: Timestamp,
) -> Option<ImplementationSourceStatus> {
    let mut next = before.clone();
    let mut conditions = Conditions::of(&before.common, generation, now);
    let later = before
        .last_webhook
        .as_ref()
        .is_some_and(|last| last.received_at > told.received_at);
    match verdict {
        Verdict::Unusable(reason, message) => conditions.stand(Health::Degraded, reason, message),
        Verdict::Synced => {
            if !later {
                conditions.stand(Health::Ready, &Reason::WebhookSynced, "");
                conditions.clear(ConditionType::Error, Reason::WebhookSynced, "");
            }
            next.last_synced_at = Some(values::Timestamp(now));
        }
        Verdict::Retrying(_) | Verdict::GivenUp(_) | Verdict::Refused(_) | Verdict::Unreadable(_) => {
            if let Some((reason, error)) = verdict.error() {
                conditions.set(ConditionType::Error, ConditionStatus::True, reason, error);
            }
        }
    }
    if verdict.state().is_some() && !later {
        next.last_webhook = Some(told.clone());
    }
    next.common = conditions.into_status(&before.common);
    touched(before, next, |status| &mut status.common, now)
}

/// The status as a merge patch, in which what a delivery lacks does not stay from the one before it.
fn patch(status: &ImplementationSourceStatus) -> Value {
    // It is made of texts and numbers.
    let mut patch = serde_json::to_value(status).unwrap_or_default();
    let last = patch.get_mut("lastWebhook").and_then(Value::as_object_mut);
    if let Some(last) = last {
        for field in [
            "deliveryId",
            "error",
            "externalId",
            "idempotencyKey",
            "sourceVersion",
        ] {
            last.entry(field).or_insert(Value::Null);
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn told(received: i64, verdict: &Verdict) -> LastWebhook {
        LastWebhook {
            received_at: Some(values::Timestamp(at(received))),
            status: verdict.state(),
            error: verdict.error().map(|(_, error)| error),
            ..LastWebhook::default()
        }
    }

    fn after(
        before: &ImplementationSourceStatus,
        received: i64,
        verdict: &Verdict,
    ) -> ImplementationSourceStatus {
        let next = next(
            before,
            Some(1),
            &told(received, verdict),
            verdict,
            at(100 + received),
        );
        next.unwrap_or_else(|| before.clone())
    }

    fn says(status: &ImplementationSourceStatus, type_: &ConditionType) -> Option<(ConditionStatus, Reason)> {
        let condition = status.common.condition(type_)?;
        Some((condition.status.clone(), condition.reason.clone()))
    }

    #[test]
    fn an_error_stays_until_a_later_delivery_is_taken_in() {
        let none = ImplementationSourceStatus::default();
        let retrying = after(&none, 1, &Verdict::Retrying("away".to_owned()));
        assert_eq!(
            says(&retrying, &ConditionType::Error),
            Some((ConditionStatus::True, Reason::WebhookFailed))
        );
        let last = retrying.last_webhook.clone().expect("the delivery");
        assert_eq!(
            (last.status, last.error.as_deref()),
            (Some(WebhookState::Retrying), Some("away"))
        );
        let given_up = after(&retrying, 1, &Verdict::GivenUp("away".to_owned()));
        assert_eq!(
            says(&given_up, &ConditionType::Error),
            Some((ConditionStatus::True, Reason::WebhookRetryDropped))
        );
        let synced = after(&given_up, 2, &Verdict::Synced);
        assert_eq!(
            says(&synced, &ConditionType::Error),
            Some((ConditionStatus::False, Reason::WebhookSynced))
        );
        assert_eq!(
            says(&synced, &ConditionType::Ready),
            Some((ConditionStatus::True, Reason::WebhookSynced))
        );
        assert_eq!(synced.last_synced_at, Some(values::Timestamp(at(102))));
    }

    #[test]
    fn a_delivery_that_arrived_later_is_not_taken_back() {
        let none = ImplementationSourceStatus::default();
        let later = after(&none, 5, &Verdict::Synced);
        let failed = after(&later, 3, &Verdict::Refused("no".to_owned()));
        assert_eq!(failed.last_webhook, later.last_webhook);
        assert_eq!(
            says(&failed, &ConditionType::Error),
            Some((ConditionStatus::True, Reason::WebhookFailed))
        );
        let older = after(&failed, 4, &Verdict::Synced);
        assert_eq!(older.last_webhook, later.last_webhook);
        assert_eq!(
            says(&older, &ConditionType::Error),
            says(&failed, &ConditionType::Error)
        );
    }

    #[test]
    fn a_source_that_cannot_be_used_is_degraded_and_says_so_once() {
        let none = ImplementationSourceStatus::default();
        let verdict = Verdict::Unusable(Reason::SecretNotFound, "there is none".to_owned());
        let degraded = after(&none, 1, &verdict);
        assert_eq!(
            says(&degraded, &ConditionType::Ready),
            Some((ConditionStatus::False, Reason::SecretNotFound))
        );
        assert_eq!(degraded.last_webhook, None);
        assert_eq!(
            next(&degraded, Some(1), &told(2, &verdict), &verdict, at(200)),
            None
        );
    }

    #[test]
    fn the_words_of_a_delivery_do_not_fill_a_status() {
        let verdict = Verdict::Unreadable("ä".repeat(5_000));
        let (_, error) = verdict.error().expect("an error");
        assert_eq!(error.chars().count(), ERROR_MAX);
    }

    #[test]
    fn what_a_delivery_lacks_does_not_stay_from_the_one_before() {
        let none = ImplementationSourceStatus::default();
        let patch = patch(&after(&none, 1, &Verdict::Synced));
        assert_eq!(patch["lastWebhook"]["error"], Value::Null);
        assert!(
            patch["lastWebhook"]
                .as_object()
                .is_some_and(|last| last.contains_key("error"))
        );
        assert_eq!(patch["lastWebhook"]["status"], "synced");
    }
}
