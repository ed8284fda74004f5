//! The history of runs: where it is, how finished runs get there, what is told when they do not, and that it is swept.

use std::{path::Path, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jangar_controllers::{
    archive::{
        Archive, ArchiveState, NotWritten,
        logs::{Source, Tail},
    },
    outside::Outside,
};
use jangar_engine::decision::Uid;
use jangar_store::{Config, NewLogTail, RunRecord, Store};
use jiff::Timestamp;
use serde_json::Value;
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

use crate::{BadInput, readiness::Readiness};

/// What runs of this cluster are filed under, unless somebody says otherwise.
const CLUSTER: &str = "default";
/// How often what has outlived its time is removed. It is kept for days, so that an hour more does not matter.
const SWEEP: Duration = Duration::from_hours(1);

/// The database of the environment; `None` if it names none.
pub(crate) fn of_environment() -> Result<Option<Store>, BadInput> {
    Ok(Config::from_env(variable).map_err(bad)?.map(open))
}

/// The database of the environment, else a file in this directory.
pub(crate) fn of_environment_or(directory: &Path) -> Result<Store, BadInput> {
    if let Some(store) = of_environment()? {
        return Ok(store);
    }
    // In an address some characters of a path would mean something else.
    let path = directory.join("history.db").display().to_string();
    let path = path.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    let config = Config::new(&format!("sqlite://{path}"), variable).map_err(bad)?;
    Ok(open(config))
}

/// What is wrong with the variables of the database, one line each.
pub(crate) fn mistakes(lookup: impl Fn(&str) -> Option<String>) -> Vec<String> {
    Config::mistakes(lookup).iter().map(ToString::to_string).collect()
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn bad(error: jangar_store::Error) -> BadInput {
    BadInput(error.to_string())
}

/// Opens it without asking it for anything: a process starts while its database is down.
fn open(config: Config) -> Store {
    tracing::info!(database = config.place(), "there is a history of runs");
    Store::open(config)
}

/// What the controllers write finished runs with.
pub(crate) fn archive(store: Store) -> Arc<dyn Archive> {
    let named = variable("JANGAR_CONTROL_PLANE_CACHE_CLUSTER").filter(|name| !name.trim().is_empty());
    Arc::new(Shelf {
        store,
        cluster: named.unwrap_or_else(|| CLUSTER.to_owned()),
    })
}

#[derive(Debug)]
struct Shelf {
    store: Store,
    cluster: String,
}

impl Archive for Shelf {
    fn record(&self, run: Value, earlier: Vec<Value>) -> BoxFuture<'static, Result<(), NotWritten>> {
        let (store, cluster) = (self.store.clone(), self.cluster.clone());
        Box::pin(async move {
            let record = RunRecord::of(&run, &cluster);
            let record = record.map_err(|error| NotWritten::Refused(error.to_string()))?;
            let record = record.with_earlier(&earlier);
            // Whatever the database finds fault with, somebody can mend it.
            let kept = store.record(&record, Timestamp::now()).await;
            kept.map(drop)
                .map_err(|error| NotWritten::Away(error.to_string()))
        })
    }

    fn log_bytes(&self) -> usize {
        self.store.log_tail_bytes()
    }

    fn has_log(&self, run: &Uid, step: &str, attempt: u32) -> BoxFuture<'static, Result<bool, String>> {
        let (store, run, step) = (self.store.clone(), run.clone(), step.to_owned());
        Box::pin(async move {
            let tails = store.log_tails(&run.0).await.map_err(|error| error.to_string())?;
            let is =
                |tail: &jangar_store::LogTailInfo| tail.step == step && tail.attempt == i64::from(attempt);
            Ok(tails.iter().any(is))
        })
    }

    fn record_log(&self, tail: Tail) -> BoxFuture<'static, Result<(), String>> {
        let store = self.store.clone();
        Box::pin(async move {
            let tail = new_tail(tail, Timestamp::now());
            store.record_log(&tail).await.map_err(|error| error.to_string())
        })
    }
}

fn new_tail(tail: Tail, now: Timestamp) -> NewLogTail {
    let Tail {
        source,
        text,
        cut,
        total_bytes,
    } = tail;
    let Source {
        run,
        step,
        attempt,
        pod,
        pod_uid: _,
        container,
        kept_for,
    } = source;
    NewLogTail {
        run_uid: run.0,
        step,
        attempt: i64::from(attempt),
        pod: pod.name,
        container,
        text,
        cut,
        total_bytes: total_bytes.and_then(|bytes| i64::try_from(bytes).ok()),
        taken_at: now,
        expires_at: now.saturating_add(kept_for).unwrap_or(Timestamp::MAX),
    }
}

/// Removes what has outlived its time from the history, now and then. Several processes may do it; none waits for another.
pub(crate) fn sweep(store: Store) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut turns = interval(SWEEP);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            // Who did what is kept until somebody asks for its removal.
            match store.prune(Timestamp::now(), None).await {
                Ok(pruned) => tracing::debug!(?pruned, "the history was swept"),
                Err(error) => tracing::info!(%error, "the history was not swept"),
            }
        }
    })
}

/// Keeps what is told beside readiness up to date: runs go on without their history, so it does not decide.
pub(crate) fn follow(outside: &Outside, readiness: Readiness) -> Option<JoinHandle<()>> {
    let mut state = outside.archiver()?.state();
    Some(tokio::spawn(async move {
        loop {
            let note = note(&state.borrow_and_update());
            readiness.note(note);
            if state.changed().await.is_err() {
                return;
            }
        }
    }))
}

fn note(state: &ArchiveState) -> Option<String> {
    let trouble = state.trouble.as_ref()?;
    Some(format!(
        "{} finished runs are not written into history and are kept until they are: {trouble}",
        state.waiting
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_with_history_is_told_with_what_it_holds_up() {
        let state = |trouble: Option<&str>| ArchiveState {
            waiting: 3,
            trouble: trouble.map(str::to_owned),
        };
        assert_eq!(note(&state(None)), None);
        assert_eq!(
            note(&state(Some("nobody answers"))).as_deref(),
            Some("3 finished runs are not written into history and are kept until they are: nobody answers")
        );
    }

    #[tokio::test]
    async fn a_finished_run_is_read_back_from_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/history.db", directory.path().display());
        let store = Store::open(Config::new(&url, |_| None).unwrap());
        let run = serde_json::json!({
            "kind": "ToolRun",
            "metadata": {
                "name": "lint", "namespace": "team", "uid": "u-1", "resourceVersion": "7",
                "creationTimestamp": "2026-03-01T10:00:00Z",
            },
            "spec": {"toolRef": {"name": "lint"}},
            "status": {"phase": "Succeeded"},
        });
        archive(store.clone()).record(run, Vec::new()).await.unwrap();
        let kept = store.run("u-1").await.unwrap().expect("it was written");
        assert_eq!(kept.summary.subject, "lint");
        let error = archive(store)
            .record(serde_json::json!({"kind": "Tool"}), Vec::new())
            .await
            .unwrap_err();
        assert!(
            matches!(&error, NotWritten::Refused(why) if why.contains("only AgentRun")),
            "{error}"
        );
    }
}
