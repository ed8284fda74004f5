//! What is remembered of runs that are gone from the cluster, if there is a database. Everything else works without.

mod counted;
mod database;
mod pulse;

use std::{fmt, time::Duration};

use futures::future::BoxFuture;
use jangar_api::Kind;
use jangar_store::{
    AuditEntry, AuditFilter, Delivery, LogTail, LogTailInfo, Page, PageRequest, RunFilter, RunPage,
    RunSummary,
};
use jiff::Timestamp;
use serde_json::Value;

pub use self::database::Database;
pub(crate) use self::{counted::Counted, pulse::Pulse};
use crate::{audit::Entry, refusal::Refusal};

/// Why the history has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The question makes no sense: a cursor of another list, or a search for nothing.
    #[error("{0}")]
    Asked(String),
    /// The database is away, or at fault.
    #[error("{0}")]
    Failed(String),
}

impl HistoryError {
    /// What a caller is told who asked for history.
    pub(crate) fn refusal(&self, what: &str) -> Refusal {
        match self {
            Self::Asked(why) => Refusal::new(crate::refusal::Trouble::BadRequest, why.clone())
                .remedy("search for a few words, and leave the cursor out to begin at the first page"),
            Self::Failed(why) => {
                Refusal::unavailable(format!("{what}, and the history cannot be read: {why}"))
            }
        }
    }
}

/// A run that was submitted with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmittedKey {
    pub kind: Kind,
    pub namespace: String,
    /// The Agent or the Orchestration.
    pub subject: String,
    pub key: String,
    pub run_uid: String,
    pub run_name: String,
}

/// A run as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedRun {
    pub document: Value,
    /// Whether something of it was too long to be kept whole.
    pub cut: bool,
    /// When it was written.
    pub at: Timestamp,
}

/// The runs of the steps of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Children {
    /// Those that failed first.
    pub runs: Vec<ArchivedRun>,
    /// Whether there are others.
    pub more: bool,
}

/// Where runs are remembered.
pub trait History: fmt::Debug + Send + Sync {
    /// Where it is, for people; without any secret.
    fn place(&self) -> &str;
    /// Whether it answers, and how fast.
    fn ready(&self) -> BoxFuture<'_, Result<Duration, HistoryError>>;
    /// Records what somebody did.
    fn audit<'a>(&'a self, entry: &'a Entry) -> BoxFuture<'a, Result<(), HistoryError>>;
    /// A page of what somebody did, the latest first.
    fn audited<'a>(
        &'a self,
        filter: &'a AuditFilter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Page<AuditEntry>, HistoryError>>;
    /// Notes a delivery of a webhook, or how far it has come.
    fn delivery<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<(), HistoryError>>;
    /// A run, by its UID.
    fn run<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<Option<ArchivedRun>, HistoryError>>;
    /// The latest run of this name.
    fn run_named<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<ArchivedRun>, HistoryError>>;
    /// A page of the runs that are remembered.
    fn runs<'a>(
        &'a self,
        filter: &'a RunFilter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Page<RunSummary>, HistoryError>>;
    /// All that is remembered of a run beside the object: steps, transitions, decisions, receipts, artifacts, logs.
    fn page<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<Option<RunPage>, HistoryError>>;
    /// The runs that did the work of the steps of this one, as many as matter.
    fn children<'a>(
        &'a self,
        namespace: &'a str,
        uid: &'a str,
    ) -> BoxFuture<'a, Result<Children, HistoryError>>;
    /// Which ends of logs are there for a run, those that ended first before the others.
    fn logs<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<Vec<LogTailInfo>, HistoryError>>;
    /// One of them, with its text.
    fn log<'a>(&'a self, of: &'a LogTailInfo) -> BoxFuture<'a, Result<Option<LogTail>, HistoryError>>;
    /// The run that was submitted with this key.
    fn key<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
        subject: &'a str,
        key: &'a str,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Option<SubmittedKey>, HistoryError>>;
    /// Remembers the key of a run.
    fn remember<'a>(
        &'a self,
        key: &'a SubmittedKey,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<(), HistoryError>>;
}
