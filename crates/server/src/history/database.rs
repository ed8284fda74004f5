//! The history in a database.

use std::{fmt, time::Duration};

use futures::future::BoxFuture;
use jangar_api::Kind;
use jangar_store::{AuditEntry, AuditOutcome, Error, IdempotencyKey, RunKind, Store};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::{ArchivedLog, History, HistoryError, SubmittedKey};
use crate::audit::{Entry, Outcome};

/// How long a key is remembered after its run was made. Nobody repeats a request after a month.
const KEY_AGE: Duration = Duration::from_hours(30 * 24);

/// Postgres, or SQLite.
pub struct Database(pub Store);

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.0.place()).finish()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn failed(error: Error) -> HistoryError {
    HistoryError(error.to_string())
}

fn run_kind(kind: Kind) -> Result<RunKind, HistoryError> {
    match kind {
        Kind::AgentRun => Ok(RunKind::AgentRun),
        Kind::OrchestrationRun => Ok(RunKind::OrchestrationRun),
        Kind::ToolRun => Ok(RunKind::ToolRun),
        kind => Err(HistoryError(format!("{} is no kind of run", kind.info().kind))),
    }
}

impl History for Database {
    fn place(&self) -> &str {
        self.0.place()
    }

    fn ready(&self) -> BoxFuture<'_, Result<Duration, HistoryError>> {
        Box::pin(async { Ok(self.0.ready().await.map_err(failed)?.latency) })
    }

    fn audit<'a>(&'a self, entry: &'a Entry) -> BoxFuture<'a, Result<(), HistoryError>> {
        Box::pin(async move {
            let written = AuditEntry {
                id: Uuid::new_v4(),
                at: entry.at,
                actor: entry.actor.clone(),
                actor_groups: entry.groups.clone(),
                source: entry.source.clone(),
                action: entry.deed.action.to_owned(),
                kind: entry.deed.kind.info().kind.clone(),
                namespace: entry.deed.namespace.clone(),
                name: entry.deed.name.clone(),
                uid: None,
                outcome: match entry.outcome {
                    Outcome::Done => AuditOutcome::Allowed,
                    Outcome::Denied => AuditOutcome::Denied,
                    Outcome::Failed => AuditOutcome::Failed,
                },
                detail: entry.detail.clone(),
            };
            self.0.audit(&written).await.map_err(failed)
        })
    }

    fn run<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<Option<Value>, HistoryError>> {
        Box::pin(async move {
            let run = self.0.run(uid).await.map_err(failed)?;
            Ok(run.map(|run| run.document))
        })
    }

    fn run_named<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, HistoryError>> {
        Box::pin(async move {
            let kind = Some(run_kind(kind)?);
            let run = self.0.run_named(kind, namespace, name).await.map_err(failed)?;
            Ok(run.map(|run| run.document))
        })
    }

    fn log<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<Option<ArchivedLog>, HistoryError>> {
        Box::pin(async move {
            let tails = self.0.log_tails(uid).await.map_err(failed)?;
            // The last attempt of the last step, which is where a run ended.
            let Some(last) = tails.last() else { return Ok(None) };
            let tail = self.0.log_tail(uid, &last.step, Some(last.attempt)).await;
            Ok(tail.map_err(failed)?.map(|tail| ArchivedLog {
                pod: tail.info.pod,
                container: tail.info.container,
                text: tail.text,
                cut: tail.info.cut,
            }))
        })
    }

    fn key<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
        subject: &'a str,
        key: &'a str,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Option<SubmittedKey>, HistoryError>> {
        Box::pin(async move {
            let found = self.0.key(run_kind(kind)?, namespace, subject, key, now).await;
            Ok(found.map_err(failed)?.map(|found| SubmittedKey {
                kind,
                namespace: found.namespace,
                subject: found.subject,
                key: found.key,
                run_uid: found.run_uid,
                run_name: found.run_name,
            }))
        })
    }

    fn remember<'a>(
        &'a self,
        key: &'a SubmittedKey,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<(), HistoryError>> {
        Box::pin(async move {
            let remembered = IdempotencyKey {
                kind: run_kind(key.kind)?,
                namespace: key.namespace.clone(),
                subject: key.subject.clone(),
                key: key.key.clone(),
                // A repetition is told by its key alone.
                digest: String::new(),
                run_uid: key.run_uid.clone(),
                run_name: key.run_name.clone(),
                created_at: now,
                expires_at: now.saturating_add(KEY_AGE).unwrap_or(Timestamp::MAX),
            };
            self.0.remember_key(&remembered).await.map(drop).map_err(failed)
        })
    }
}
