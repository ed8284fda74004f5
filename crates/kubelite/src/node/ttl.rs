//! Deletes finished Jobs once their `ttlSecondsAfterFinished` has passed.

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::{AT_ONCE, collection, timers::Timers};
use crate::{
    builtin::Builtin,
    defects::Defect,
    request::Propagation,
    server::Client,
    store::{Collection, Event, EventKind, Key, Object},
};

/// How long to wait after a deletion that the store refused.
const RETRY_DELAY: SignedDuration = SignedDuration::from_secs(10);

#[derive(Debug)]
pub(super) struct Ttl {
    client: Client,
    jobs: Collection,
    timers: Timers<Key>,
}

/// The part of a Job that matters here; everything else is skipped unread.
#[derive(Deserialize)]
struct View {
    spec: Option<SpecView>,
    status: Option<StatusView>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecView {
    ttl_seconds_after_finished: Option<i64>,
}

#[derive(Deserialize)]
struct StatusView {
    conditions: Option<Vec<ConditionView>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConditionView {
    r#type: String,
    status: String,
    last_transition_time: Option<Timestamp>,
}

impl Ttl {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            jobs: collection(Builtin::Job),
            timers: Timers::default(),
        }
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    pub(super) fn note(&mut self, event: &Event) {
        if event.collection == self.jobs {
            let stays = event.kind != EventKind::Deleted;
            self.note_job(&event.key, stays.then_some(&event.object));
        }
    }

    pub(super) fn note_everything(&mut self) {
        if let Ok(snapshot) = self.client.store().snapshot(&self.jobs, None) {
            for (key, object) in snapshot.iter(None, None) {
                self.note_job(key, Some(object));
            }
        }
    }

    fn note_job(&mut self, key: &Key, job: Option<&Object>) {
        // The time may have been moved either way.
        self.timers.remove(key);
        if let Some(at) = job
            .and_then(expires_at)
            .filter(|_| !self.client.has(Defect::TimeToLive))
        {
            self.timers.add(key.clone(), at);
        }
    }

    /// Deletes what has expired. A Job that changed in the meantime is asked again first.
    pub(super) async fn act(&mut self) {
        let now = self.client.now();
        let due = self.timers.take_due(now, AT_ONCE);
        let this = &*self;
        let again: Vec<Option<(Key, Timestamp)>> = futures::stream::iter(due)
            .map(|key| this.expire(key, now))
            .buffered(AT_ONCE)
            .collect()
            .await;
        for (key, at) in again.into_iter().flatten() {
            self.timers.add(key, at);
        }
    }

    /// Deletes a Job if its time has come; otherwise says when to come back.
    async fn expire(&self, key: Key, now: Timestamp) -> Option<(Key, Timestamp)> {
        let job = self.client.store().get(&self.jobs, &key)?;
        let at = expires_at(&job)?;
        if at > now {
            return Some((key, at));
        }
        let propagation = Some(Propagation::Foreground);
        let error = self
            .client
            .delete(Builtin::Job, &key, &job.meta.uid, propagation)
            .await
            .err()?;
        tracing::warn!(job = %key.name, namespace = %key.namespace, %error, "could not delete an expired Job");
        let again = now.saturating_add(RETRY_DELAY).unwrap_or(now);
        Some((key, again))
    }
}

/// When a Job's time after its end is over. Unfinished Jobs, those that have no such time, and those on their way out
/// already never expire.
fn expires_at(job: &Object) -> Option<Timestamp> {
    if job.meta.deleting {
        return None;
    }
    let view: View = serde_json::from_slice(&job.json).ok()?;
    let ttl = view.spec?.ttl_seconds_after_finished?;
    let conditions = view.status?.conditions?;
    let end = conditions.into_iter().find(|condition| {
        matches!(condition.r#type.as_str(), "Complete" | "Failed") && condition.status == "True"
    });
    let at = end?.last_transition_time?;
    at.checked_add(SignedDuration::from_secs(ttl)).ok()
}
