//! What is remembered of runs that are gone from the cluster, if there is a database. Everything else works without.

mod database;

use std::{fmt, time::Duration};

use futures::future::BoxFuture;
use jangar_api::Kind;
use jiff::Timestamp;
use serde_json::Value;

pub use self::database::Database;
use crate::audit::Entry;

/// Why the history has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HistoryError(pub String);

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

/// The end of what a container wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedLog {
    pub pod: String,
    pub container: String,
    pub text: String,
    /// Only the end is there.
    pub cut: bool,
}

/// Where runs are remembered.
pub trait History: fmt::Debug + Send + Sync {
    /// Where it is, for people; without any secret.
    fn place(&self) -> &str;
    /// Whether it answers, and how fast.
    fn ready(&self) -> BoxFuture<'_, Result<Duration, HistoryError>>;
    /// Records what somebody did.
    fn audit<'a>(&'a self, entry: &'a Entry) -> BoxFuture<'a, Result<(), HistoryError>>;
    /// The document of a run, by its UID.
    fn run<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<Option<Value>, HistoryError>>;
    /// The document of the latest run of this name.
    fn run_named<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, HistoryError>>;
    /// The end of what the last attempt of a run wrote.
    fn log<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<Option<ArchivedLog>, HistoryError>>;
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
