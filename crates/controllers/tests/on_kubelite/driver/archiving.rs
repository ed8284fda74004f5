//! Runs that have to be in history before they go.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use futures::future::BoxFuture;
use jangar_api::{labels::RUNTIME_CLEANUP_FINALIZER, phase::RunPhase};
use jangar_controllers::{archive::Archive, outside::Outside};
use jangar_engine::{
    agent_run::Observed,
    decision::{Effect, ObjectId, Uid},
};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::Value;
use tokio::time::sleep;

use super::{
    stage::{Stage, act, idle, phase, phase_of},
    tap::Tap,
};
use crate::support::{seconds, settle};

/// A history that can be away.
#[derive(Clone, Debug, Default)]
struct Shelf {
    away: Arc<AtomicBool>,
    /// Names and phases, in the order of writing.
    written: Arc<Mutex<Vec<(String, String)>>>,
}

impl Shelf {
    fn away() -> Self {
        let shelf = Self::default();
        shelf.away.store(true, Ordering::SeqCst);
        shelf
    }

    fn outside(&self) -> Arc<Outside> {
        Arc::new(Outside::default().with_archive(Arc::new(self.clone())))
    }
}

impl Archive for Shelf {
    fn record(&self, run: Value) -> BoxFuture<'static, Result<(), String>> {
        let this = self.clone();
        Box::pin(async move {
            if this.away.load(Ordering::SeqCst) {
                return Err("nobody answers".to_owned());
            }
            assert_eq!(run["kind"], "AgentRun");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let entry = (text(&run["metadata"]["name"]), text(&run["status"]["phase"]));
            this.written.lock().unwrap().push(entry);
            Ok(())
        })
    }
}

fn id(observed: &Observed) -> Option<ObjectId> {
    Some(ObjectId {
        name: observed.key.name.clone(),
        uid: Uid(observed.run.as_ref()?.metadata.uid.clone()?),
    })
}

#[tokio::test(start_paused = true)]
async fn a_run_is_written_when_it_has_ended_and_not_before() {
    let shelf = Shelf::default();
    let stage = Stage::beside(
        shelf.outside(),
        Tap::new(),
        async |props| {
            props.run("mend", "coder").await;
        },
        |_| idle(),
    )
    .await;
    settle().await;
    assert!(shelf.written.lock().unwrap().is_empty());

    stage.props().end_run("mend").await;
    sleep(seconds(1)).await;

    let written = shelf.written.lock().unwrap().clone();
    assert_eq!(written, [("mend".to_owned(), "Succeeded".to_owned())]);
    assert_eq!(
        stage.counted("jangar_runs_archived_total{result=\"written\"}"),
        Some(1)
    );
    assert_eq!(stage.counted("jangar_runs_archive_waiting"), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_time_has_come_is_kept_until_it_is_in_history() {
    let shelf = Shelf::away();
    let stage = Stage::beside(
        shelf.outside(),
        Tap::new(),
        async |props| {
            props.run("due", "coder").await;
        },
        |observed| match (phase_of(observed), id(observed)) {
            (None, Some(_)) => act(vec![], Some(phase(RunPhase::Succeeded))),
            (Some(_), Some(run)) => act(vec![Effect::DeleteRun { run }], None),
            _ => idle(),
        },
    )
    .await;
    let left = async || {
        stage
            .props()
            .runs()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len()
    };

    sleep(seconds(600)).await;
    assert_eq!(left().await, 1, "history is away, so it stays");
    assert!(
        stage
            .counted("jangar_runs_archived_total{result=\"failed\"}")
            .unwrap()
            > 3
    );
    assert_eq!(stage.counted("jangar_runs_archive_waiting"), Some(1));

    shelf.away.store(false, Ordering::SeqCst);
    sleep(seconds(120)).await;
    assert_eq!(left().await, 0, "it is written, so it goes");
    assert_eq!(shelf.written.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_somebody_deletes_waits_a_minute_for_history_and_then_goes_with_an_event() {
    let shelf = Shelf::away();
    let stage = Stage::beside(
        shelf.outside(),
        Tap::new(),
        async |props| {
            let mut run = props.new_run("gone", "coder");
            run.metadata.finalizers = Some(vec![RUNTIME_CLEANUP_FINALIZER.to_owned()]);
            props.runs().create(&PostParams::default(), &run).await.unwrap();
        },
        |observed| {
            let Some(run) = &observed.run else { return idle() };
            if phase_of(observed).is_none() {
                return act(vec![], Some(phase(RunPhase::Succeeded)));
            }
            if run.metadata.deletion_timestamp.is_none() {
                return idle();
            }
            let let_go = id(observed).map(|id| Effect::SetFinalizers {
                run: id,
                version: run.metadata.resource_version.clone().unwrap_or_default(),
                finalizers: Vec::new(),
            });
            act(let_go.into_iter().collect(), None)
        },
    )
    .await;
    let runs = stage.props().runs();
    let left = async || runs.list(&ListParams::default()).await.unwrap().items.len();
    runs.delete("gone", &DeleteParams::default()).await.unwrap();

    sleep(seconds(50)).await;
    assert_eq!(left().await, 1, "it is waited for");
    sleep(seconds(15)).await;
    assert_eq!(left().await, 0, "and not for longer than a minute");
    assert_eq!(
        stage.counted("jangar_runs_archived_total{result=\"given_up\"}"),
        Some(1)
    );
    let events: Api<Event> = Api::default_namespaced(stage.cluster.client());
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let told: Vec<_> = events
        .iter()
        .filter(|event| event.reason.as_deref() == Some("NotArchived"))
        .collect();
    assert_eq!(told.len(), 1);
    assert!(
        told[0]
            .note
            .as_deref()
            .unwrap_or_default()
            .contains("nobody answers"),
        "{told:?}"
    );
}
