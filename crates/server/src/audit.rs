//! Every change that somebody made through the control plane: who, what, from where, and what came of it.
//!
//! A line in the log always, and an entry in the database if there is one. The entry is written beside the request, so that a
//! database that is slow or away holds nobody up; what does not get there is counted, and the log has it all the same.

use std::sync::Arc;

use jangar_api::Kind;
use jangar_store::withhold;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::{
    history::History,
    metrics::{Loss, Metrics},
    refusal::{Refusal, Trouble},
};

/// Entries that wait for the database. Some seconds of more changes than people make.
const QUEUE_MAX: usize = 1_024;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The caller may not.
    Denied,
    Failed,
}

impl Outcome {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }

    pub(crate) fn of<T>(result: &Result<T, Refusal>) -> Self {
        match result {
            Ok(_) => Self::Done,
            // Who may not see something is told that it is not there.
            Err(refusal) if refusal.is_denial() => Self::Denied,
            Err(refusal) => match refusal.trouble {
                Trouble::Forbidden | Trouble::Unauthenticated => Self::Denied,
                _ => Self::Failed,
            },
        }
    }
}

/// What somebody wants to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// Such as `agent_run.created`.
    pub action: &'static str,
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

/// Something that somebody did, or tried to.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub at: Timestamp,
    pub actor: String,
    pub groups: Vec<String>,
    /// The address that the request came from.
    pub source: String,
    pub deed: Deed,
    pub outcome: Outcome,
    pub detail: Value,
}

/// What is under way, counted, so that the program can wait for it when it ends.
#[derive(Clone, Debug, Default)]
struct UnderWay(Arc<watch::Sender<usize>>);

/// One thing that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct Begun(Arc<watch::Sender<usize>>);

impl UnderWay {
    fn begin(&self) -> Begun {
        self.0.send_modify(|count| *count += 1);
        Begun(Arc::clone(&self.0))
    }

    async fn none(&self) {
        // The sender is ours, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Where entries go.
#[derive(Clone, Debug)]
pub struct Audit {
    queue: Option<mpsc::Sender<(Entry, Begun)>>,
    under_way: UnderWay,
    metrics: Arc<Metrics>,
}

impl Audit {
    /// With a history, a task of its own writes entries there.
    pub fn new(history: Option<Arc<dyn History>>, metrics: Arc<Metrics>) -> Self {
        let queue = history.map(|history| {
            let (sender, mut entries) = mpsc::channel::<(Entry, Begun)>(QUEUE_MAX);
            let metrics = Arc::clone(&metrics);
            tokio::spawn(async move {
                while let Some((entry, _begun)) = entries.recv().await {
                    if let Err(error) = history.audit(&entry).await {
                        metrics.loss(Loss::Audit);
                        tracing::warn!(%error, "an entry of the audit is in the log only");
                    }
                }
            });
            sender
        });
        Self {
            queue,
            under_way: UnderWay::default(),
            metrics,
        }
    }

    /// Something begins that will be recorded.
    pub(crate) fn begin(&self) -> Begun {
        self.under_way.begin()
    }

    /// Waits until everything that began has been recorded, also in the database.
    pub(crate) async fn settled(&self) {
        self.under_way.none().await;
    }

    pub(crate) fn record(&self, entry: Entry) {
        let Deed {
            action,
            kind,
            namespace,
            name,
        } = &entry.deed;
        self.metrics.mutation(action, entry.outcome.word());
        tracing::info!(
            target: "jangar::audit",
            actor = entry.actor,
            source = entry.source,
            action,
            kind = kind.info().kind,
            namespace,
            name,
            outcome = entry.outcome.word(),
            detail = %entry.detail,
            "audit"
        );
        if let Some(queue) = &self.queue
            && queue.try_send((entry, self.begin())).is_err()
        {
            self.metrics.loss(Loss::Audit);
            tracing::warn!("the database is behind: an entry of the audit is in the log only");
        }
    }
}

/// What an entry says of a request that came to nothing.
pub(crate) fn detail<T>(result: &Result<T, Refusal>) -> Value {
    match result {
        Ok(_) => json!({}),
        Err(refusal) => {
            // Refusals repeat what was sent, and words of the API server.
            let mut detail = json!({"error": refusal.to_string()});
            withhold(&mut detail);
            detail
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_for_a_caller_is_a_denial_only_if_it_was_denied() {
        let missing: Result<(), Refusal> = Err(Refusal::not_found("Agent", "a", "b"));
        assert_eq!(Outcome::of(&missing), Outcome::Failed);
        let hidden: Result<(), Refusal> = Err(Refusal::not_found("Agent", "a", "b").denied());
        assert_eq!(Outcome::of(&hidden), Outcome::Denied);
        assert_eq!(Outcome::of(&Ok(())), Outcome::Done);
    }

    #[test]
    fn what_a_refusal_repeats_is_told_without_secrets() {
        let refusal = Refusal::field("spec.parameters", "DB_PASSWORD=hunter2", "this is too long");
        let told = detail::<()>(&Err(refusal)).to_string();
        assert!(
            told.contains("DB_PASSWORD") && !told.contains("hunter2"),
            "{told}"
        );
    }

    #[tokio::test]
    async fn the_end_waits_for_what_has_begun() {
        let under_way = UnderWay::default();
        let begun = under_way.begin();
        let mut none = std::pin::pin!(under_way.none());
        assert!(futures::poll!(&mut none).is_pending());
        drop(begun);
        none.await;
    }
}
