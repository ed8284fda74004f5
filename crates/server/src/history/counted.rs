//! The history, with everything that is asked of it counted.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jangar_api::Kind;
use jangar_store::{
    AuditEntry, AuditFilter, Delivery, LogTail, LogTailInfo, Page, PageRequest, RunFilter, RunPage,
    RunSummary,
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{ArchivedRun, Children, History, HistoryError, SubmittedKey};
use crate::{
    audit::Entry,
    metrics::{HistoryAccess, HistoryResult, Metrics},
};

#[derive(Debug)]
pub(crate) struct Counted {
    inner: Arc<dyn History>,
    metrics: Arc<Metrics>,
}

type Answer<'a, T> = BoxFuture<'a, Result<T, HistoryError>>;

impl Counted {
    pub(crate) fn new(inner: Arc<dyn History>, metrics: Arc<Metrics>) -> Self {
        Self { inner, metrics }
    }

    fn counted<'a, T: Send + 'a>(&'a self, access: HistoryAccess, work: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            let begun = Instant::now();
            let answer = work.await;
            let result = match &answer {
                Ok(_) => HistoryResult::Done,
                Err(HistoryError::Asked(_)) => HistoryResult::Refused,
                Err(HistoryError::Failed(_)) => HistoryResult::Failed,
            };
            self.metrics.history(access, result, begun.elapsed());
            answer
        })
    }

    fn read<'a, T: Send + 'a>(&'a self, work: Answer<'a, T>) -> Answer<'a, T> {
        self.counted(HistoryAccess::Read, work)
    }

    fn written<'a, T: Send + 'a>(&'a self, work: Answer<'a, T>) -> Answer<'a, T> {
        self.counted(HistoryAccess::Write, work)
    }
}

impl History for Counted {
    fn place(&self) -> &str {
        self.inner.place()
    }

    /// The pulse counts this itself.
    fn ready(&self) -> Answer<'_, Duration> {
        self.inner.ready()
    }

    fn audit<'a>(&'a self, entry: &'a Entry) -> Answer<'a, ()> {
        self.written(self.inner.audit(entry))
    }

    fn audited<'a>(&'a self, filter: &'a AuditFilter, page: &'a PageRequest) -> Answer<'a, Page<AuditEntry>> {
        self.read(self.inner.audited(filter, page))
    }

    fn delivery<'a>(&'a self, delivery: &'a Delivery) -> Answer<'a, ()> {
        self.written(self.inner.delivery(delivery))
    }

    fn run<'a>(&'a self, uid: &'a str) -> Answer<'a, Option<ArchivedRun>> {
        self.read(self.inner.run(uid))
    }

    fn run_named<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
        name: &'a str,
    ) -> Answer<'a, Option<ArchivedRun>> {
        self.read(self.inner.run_named(kind, namespace, name))
    }

    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a PageRequest) -> Answer<'a, Page<RunSummary>> {
        self.read(self.inner.runs(filter, page))
    }

    fn page<'a>(&'a self, uid: &'a str) -> Answer<'a, Option<RunPage>> {
        self.read(self.inner.page(uid))
    }

    fn children<'a>(&'a self, namespace: &'a str, uid: &'a str) -> Answer<'a, Children> {
        self.read(self.inner.children(namespace, uid))
    }

    fn logs<'a>(&'a self, uid: &'a str) -> Answer<'a, Vec<LogTailInfo>> {
        self.read(self.inner.logs(uid))
    }

    fn log<'a>(&'a self, of: &'a LogTailInfo) -> Answer<'a, Option<LogTail>> {
        self.read(self.inner.log(of))
    }

    fn key<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
        subject: &'a str,
        key: &'a str,
        now: Timestamp,
    ) -> Answer<'a, Option<SubmittedKey>> {
        self.read(self.inner.key(kind, namespace, subject, key, now))
    }

    fn remember<'a>(&'a self, key: &'a SubmittedKey, now: Timestamp) -> Answer<'a, ()> {
        self.written(self.inner.remember(key, now))
    }
}

#[cfg(test)]
mod tests {
    use jangar_store::{Config, Store};
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::{super::Database, *};

    #[tokio::test]
    async fn what_is_asked_of_history_is_counted_with_what_came_of_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = |name: &str| {
            let url = format!("sqlite://{}/{name}", directory.path().display());
            Store::open(Config::new(&url, |_| None).expect("an address"))
        };
        let mut registry = Registry::default();
        let metrics = Arc::new(Metrics::register(&mut registry));
        let there = Counted::new(Arc::new(Database(store("history.db"))), Arc::clone(&metrics));
        let away = Counted::new(Arc::new(Database(store("none/history.db"))), metrics);
        assert_eq!(there.run("nobody").await, Ok(None));
        assert!(away.run("nobody").await.is_err());
        let mut text = String::new();
        encode(&mut text, &registry).expect("the metrics can be written");
        for line in [
            "jangar_control_plane_history_requests_total{access=\"read\",result=\"done\"} 1\n",
            "jangar_control_plane_history_requests_total{access=\"read\",result=\"failed\"} 1\n",
            "jangar_control_plane_history_request_seconds_count{access=\"read\"} 2\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
