//! The history of runs: where it is, how finished runs get there, and what is told when they do not.

use std::{path::Path, sync::Arc};

use futures::future::BoxFuture;
use jangar_controllers::{
    archive::{Archive, ArchiveState},
    outside::Outside,
};
use jangar_store::{Config, RunRecord, Store};
use jiff::Timestamp;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::{BadInput, readiness::Readiness};

/// What runs of this cluster are filed under, unless somebody says otherwise.
const CLUSTER: &str = "default";

/// The database of the environment; `None` if it names none.
pub(crate) fn of_environment() -> Result<Option<Store>, BadInput> {
    open(Config::from_env(variable))
}

/// The database of the environment, else a file in this directory.
pub(crate) fn of_environment_or(directory: &Path) -> Result<Option<Store>, BadInput> {
    if let Some(store) = of_environment()? {
        return Ok(Some(store));
    }
    // In an address some characters of a path would mean something else.
    let path: String = directory.join("history.db").display().to_string();
    let path = path.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    open(Config::new(&format!("sqlite://{path}"), variable).map(Some))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn open(config: Result<Option<Config>, jangar_store::Error>) -> Result<Option<Store>, BadInput> {
    let config = config.map_err(|error| BadInput(error.to_string()))?;
    Ok(config.map(|config| {
        tracing::info!(
            database = config.place(),
            "finished runs are written into history"
        );
        Store::open(config)
    }))
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
    fn record(&self, run: Value) -> BoxFuture<'static, Result<(), String>> {
        let (store, cluster) = (self.store.clone(), self.cluster.clone());
        Box::pin(async move {
            let record = RunRecord::of(&run, &cluster).map_err(|error| error.to_string())?;
            let kept = store.record(&record, Timestamp::now()).await;
            kept.map(drop).map_err(|error| error.to_string())
        })
    }
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
        archive(store.clone()).record(run).await.unwrap();
        let kept = store.run("u-1").await.unwrap().expect("it was written");
        assert_eq!(kept.summary.subject, "lint");
        let error = archive(store)
            .record(serde_json::json!({"kind": "Tool"}))
            .await
            .unwrap_err();
        assert!(error.contains("only AgentRun"), "{error}");
    }
}
