//! Every change that somebody made through the control plane: who, what, from where, and what came of it.
//!
//! A line in the log always, and an entry in the database if there is one. The entry is written beside the request, so that a
//! database that is slow or away holds nobody up; what does not get there is counted, and the log has it all the same.

use std::sync::Arc;

use jangar_api::Kind;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

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
            Err(refusal) => match refusal.trouble {
                Trouble::Forbidden | Trouble::Unauthenticated | Trouble::NotFound => Self::Denied,
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

/// Where entries go.
#[derive(Clone, Debug)]
pub struct Audit {
    queue: Option<mpsc::Sender<Entry>>,
    metrics: Arc<Metrics>,
}

impl Audit {
    /// With a history, a task of its own writes entries there.
    pub fn new(history: Option<Arc<dyn History>>, metrics: Arc<Metrics>) -> Self {
        let queue = history.map(|history| {
            let (sender, mut entries) = mpsc::channel::<Entry>(QUEUE_MAX);
            let metrics = Arc::clone(&metrics);
            tokio::spawn(async move {
                while let Some(entry) = entries.recv().await {
                    if let Err(error) = history.audit(&entry).await {
                        metrics.loss(Loss::Audit);
                        tracing::warn!(%error, "an entry of the audit is in the log only");
                    }
                }
            });
            sender
        });
        Self { queue, metrics }
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
            && queue.try_send(entry).is_err()
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
        Err(refusal) => json!({"error": refusal.to_string()}),
    }
}
