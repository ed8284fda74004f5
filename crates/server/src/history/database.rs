//! The history in a database.

use std::{fmt, time::Duration};

use futures::future::BoxFuture;
use jangar_api::Kind;
use jangar_store::{
    AuditEntry, AuditFilter, AuditOutcome, Delivery, Error, IdempotencyKey, LogTail, LogTailInfo, Page,
    PageRequest, Run, RunFilter, RunKind, RunPage, RunSummary, Store,
};
use jiff::Timestamp;
use uuid::Uuid;

use super::{ArchivedRun, Children, History, HistoryError, SubmittedKey};
use crate::audit::{Entry, Outcome};

/// How long a key is remembered after its run was made. Nobody repeats a request after a month.
const KEY_AGE: Duration = Duration::from_hours(30 * 24);
/// How many runs of steps are read to explain a run, those that failed first.
const CHILDREN_MAX: u32 = 50;

/// Postgres, or SQLite.
pub struct Database(pub Store);

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.0.place()).finish()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn failed(error: Error) -> HistoryError {
    if error.is_bad_request() {
        HistoryError::Asked(error.to_string())
    } else {
        HistoryError::Failed(error.to_string())
    }
}

fn archived(run: Run) -> ArchivedRun {
    ArchivedRun {
        document: run.document,
        cut: run.document_cut,
        at: run.summary.archived_at,
    }
}

fn run_kind(kind: Kind) -> Result<RunKind, HistoryError> {
    match kind {
        Kind::AgentRun => Ok(RunKind::AgentRun),
        Kind::OrchestrationRun => Ok(RunKind::OrchestrationRun),
        Kind::ToolRun => Ok(RunKind::ToolRun),
        kind => {
            let kind = &kind.info().kind;
            Err(HistoryError::Asked(format!("{kind} is no kind of run")))
        }
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

    fn audited<'a>(
        &'a self,
        filter: &'a AuditFilter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Page<AuditEntry>, HistoryError>> {
        Box::pin(async move { self.0.audit_entries(filter, page).await.map_err(failed) })
    }

    fn delivery<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<(), HistoryError>> {
        Box::pin(async move { self.0.record_delivery(delivery).await.map(drop).map_err(failed) })
    }

    fn run<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<Option<ArchivedRun>, HistoryError>> {
        Box::pin(async move { Ok(self.0.run(uid).await.map_err(failed)?.map(archived)) })
    }

    fn run_named<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<ArchivedRun>, HistoryError>> {
        Box::pin(async move {
            let kind = Some(run_kind(kind)?);
            let run = self.0.run_named(kind, namespace, name).await.map_err(failed)?;
            Ok(run.map(archived))
        })
    }

    fn runs<'a>(
        &'a self,
        filter: &'a RunFilter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Page<RunSummary>, HistoryError>> {
        Box::pin(async move { self.0.runs(filter, page).await.map_err(failed) })
    }

    fn page<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<Option<RunPage>, HistoryError>> {
        Box::pin(async move { self.0.page(uid).await.map_err(failed) })
    }

    fn children<'a>(
        &'a self,
        namespace: &'a str,
        uid: &'a str,
    ) -> BoxFuture<'a, Result<Children, HistoryError>> {
        Box::pin(async move {
            let (runs, more) = self
                .0
                .children(namespace, uid, CHILDREN_MAX)
                .await
                .map_err(failed)?;
            Ok(Children {
                runs: runs.into_iter().map(archived).collect(),
                more,
            })
        })
    }

    fn logs<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<Vec<LogTailInfo>, HistoryError>> {
        Box::pin(async move {
            let mut tails = self.0.log_tails(uid).await.map_err(failed)?;
            tails.sort_by_key(|tail| (tail.taken_at, tail.attempt));
            Ok(tails)
        })
    }

    fn log<'a>(&'a self, of: &'a LogTailInfo) -> BoxFuture<'a, Result<Option<LogTail>, HistoryError>> {
        Box::pin(async move {
            let tail = self.0.log_tail(&of.run_uid, &of.step, Some(of.attempt)).await;
            tail.map_err(failed)
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
