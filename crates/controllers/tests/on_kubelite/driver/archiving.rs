//! Runs that have to be in history before they go.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use futures::future::BoxFuture;
use jangar_api::{
    agents::agent_run::AgentRunStatus,
    labels::{self, ARCHIVE_FINALIZER, RUNTIME_CLEANUP_FINALIZER},
    phase::RunPhase,
};
use jangar_controllers::{
    archive::{Archive, NotWritten, logs::Tail},
    outside::Outside,
};
use jangar_engine::{
    agent_run::Observed,
    decision::{Decision, Effect, ObjectId, Uid},
};
use k8s_openapi::api::{core::v1::Pod, events::v1::Event};
use kube::{
    Api, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    stage::{Props, Stage, act, create_job, idle, job, phase, phase_of},
    tap::Tap,
};
use crate::support::{seconds, settle};

/// A history that can be away.
#[derive(Clone, Debug, Default)]
struct Shelf {
    away: Arc<AtomicBool>,
    /// A run that it cannot take, for as long as it is said so.
    refuses: Option<&'static str>,
    takes_it: Arc<AtomicBool>,
    /// Names and phases, in the order of writing.
    written: Arc<Mutex<Vec<(String, String)>>>,
    tails: Arc<Mutex<Vec<Tail>>>,
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

    /// A stage with this history and one run.
    async fn beside(
        &self,
        run: &str,
        decide: impl FnMut(&Observed) -> Decision<AgentRunStatus> + Send + 'static,
    ) -> Stage {
        let before = async |props: &Props<'_>| {
            props.run(run, "coder").await;
        };
        Stage::beside(self.outside(), Tap::new(), before, decide).await
    }
}

impl Archive for Shelf {
    fn record(&self, run: Value, _: Vec<Value>) -> BoxFuture<'static, Result<(), NotWritten>> {
        let this = self.clone();
        Box::pin(async move {
            let bad = this.refuses.is_some() && run["metadata"]["name"].as_str() == this.refuses;
            if this.away.load(Ordering::SeqCst) || (bad && !this.takes_it.load(Ordering::SeqCst)) {
                return Err(NotWritten::Away("nobody answers".to_owned()));
            }
            assert_eq!(run["kind"], "AgentRun");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let entry = (text(&run["metadata"]["name"]), text(&run["status"]["phase"]));
            this.written.lock().unwrap().push(entry);
            Ok(())
        })
    }

    fn log_bytes(&self) -> usize {
        1_000
    }

    fn has_log(&self, run: &Uid, step: &str, attempt: u32) -> BoxFuture<'static, Result<bool, String>> {
        let tails = self.tails.lock().unwrap();
        let is = |tail: &Tail| {
            tail.source.run == *run && tail.source.step == step && tail.source.attempt == attempt
        };
        let found = tails.iter().any(is);
        Box::pin(async move { Ok(found) })
    }

    fn record_log(&self, tail: Tail) -> BoxFuture<'static, Result<(), String>> {
        let this = self.clone();
        Box::pin(async move {
            if this.away.load(Ordering::SeqCst) {
                return Err("nobody answers".to_owned());
            }
            this.tails.lock().unwrap().push(tail);
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
    let stage = shelf.beside("mend", |_| idle()).await;
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

/// The version of the run that was observed.
fn version_of(observed: &Observed) -> String {
    let version = observed
        .run
        .as_ref()
        .and_then(|run| run.metadata.resource_version.clone());
    version.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_time_has_come_is_kept_until_it_is_in_history() {
    let shelf = Shelf::away();
    let stage = shelf
        .beside("due", |observed| match (phase_of(observed), id(observed)) {
            (None, Some(_)) => act(vec![], Some(phase(RunPhase::Succeeded))),
            (Some(_), Some(run)) => {
                let version = version_of(observed);
                act(vec![Effect::DeleteRun { run, version }], None)
            }
            _ => idle(),
        })
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

/// The finalizers of a run; nothing if it is gone.
async fn finalizers(stage: &Stage, name: &str) -> Option<Vec<String>> {
    let run = stage.props().runs().get_opt(name).await.unwrap()?;
    Some(run.metadata.finalizers.unwrap_or_default())
}

async fn delete(stage: &Stage, name: &str) {
    let runs = stage.props().runs();
    runs.delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_run_that_is_not_in_history_is_held_and_goes_a_minute_after_somebody_deletes_it() {
    let shelf = Shelf::away();
    let stage = shelf.beside("mend", |_| idle()).await;
    stage.props().end_run("mend").await;
    sleep(seconds(7)).await;
    let held = Some(vec![ARCHIVE_FINALIZER.to_owned()]);
    assert_eq!(finalizers(&stage, "mend").await, held);

    delete(&stage, "mend").await;
    sleep(seconds(50)).await;
    assert_eq!(finalizers(&stage, "mend").await, held, "it is waited for");
    sleep(seconds(15)).await;
    assert_eq!(
        finalizers(&stage, "mend").await,
        None,
        "and not for longer than a minute"
    );
    let given_up = "jangar_runs_archived_total{result=\"given_up\"}";
    assert_eq!(stage.counted(given_up), Some(1));
    let events: Api<Event> = Api::default_namespaced(stage.cluster.client());
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let told = events
        .iter()
        .filter(|event| event.reason.as_deref() == Some("NotArchived"));
    assert_eq!(told.count(), 1);

    // It is not lost for all that.
    shelf.away.store(false, Ordering::SeqCst);
    sleep(seconds(120)).await;
    let written = shelf.written.lock().unwrap().clone();
    assert_eq!(written, [("mend".to_owned(), "Succeeded".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_waits_ends_when_history_is_back() {
    let shelf = Shelf::away();
    let stage = shelf.beside("mend", |_| idle()).await;
    stage.props().end_run("mend").await;
    sleep(seconds(7)).await;
    delete(&stage, "mend").await;
    sleep(seconds(5)).await;
    shelf.away.store(false, Ordering::SeqCst);
    sleep(seconds(35)).await;
    assert_eq!(finalizers(&stage, "mend").await, None);
    assert!(!shelf.written.lock().unwrap().is_empty());
    let given_up = "jangar_runs_archived_total{result=\"given_up\"}";
    assert_eq!(stage.counted(given_up), None);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_held_is_let_go_when_history_has_it() {
    let shelf = Shelf::away();
    let stage = shelf.beside("mend", |_| idle()).await;
    stage.props().end_run("mend").await;
    sleep(seconds(7)).await;
    assert_ne!(finalizers(&stage, "mend").await, Some(Vec::new()));
    shelf.away.store(false, Ordering::SeqCst);
    sleep(seconds(180)).await;
    assert_eq!(finalizers(&stage, "mend").await, Some(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_run_costs_no_write_while_history_is_there() {
    let stage = Shelf::default().beside("mend", |_| idle()).await;
    stage.props().end_run("mend").await;
    let version = async || {
        let run = stage.props().runs().get("mend").await.unwrap();
        run.metadata.resource_version
    };
    let before = version().await;
    sleep(seconds(300)).await;
    assert_eq!(version().await, before);
}

#[tokio::test(start_paused = true)]
async fn without_a_history_nothing_is_held_and_what_was_is_let_go() {
    let before = async |props: &Props<'_>| {
        let mut run = props.new_run("mend", "coder");
        run.metadata.finalizers = Some(vec![ARCHIVE_FINALIZER.to_owned()]);
        props.runs().create(&PostParams::default(), &run).await.unwrap();
    };
    let stage = Stage::beside(Arc::default(), Tap::new(), before, |_| idle()).await;
    stage.props().end_run("mend").await;
    sleep(seconds(1)).await;
    assert_eq!(finalizers(&stage, "mend").await, Some(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_time_has_come_goes_although_it_was_held() {
    let shelf = Shelf::away();
    let stage = shelf
        .beside("due", |observed| match (phase_of(observed), id(observed)) {
            (None, Some(_)) => act(vec![], Some(phase(RunPhase::Succeeded))),
            (Some(_), Some(run))
                if observed
                    .run
                    .as_ref()
                    .is_some_and(|run| run.metadata.finalizers.is_some()) =>
            {
                let version = version_of(observed);
                act(vec![Effect::DeleteRun { run, version }], None)
            }
            _ => idle(),
        })
        .await;
    sleep(seconds(10)).await;
    assert_ne!(finalizers(&stage, "due").await, Some(Vec::new()));
    shelf.away.store(false, Ordering::SeqCst);
    sleep(seconds(180)).await;
    let left = finalizers(&stage, "due").await;
    assert_eq!(left.unwrap_or_default(), Vec::<String>::new(), "nothing holds it");
}

#[tokio::test(start_paused = true)]
async fn a_run_is_kept_until_those_of_its_steps_are_in_history() {
    let shelf = Shelf {
        refuses: Some("child"),
        ..Shelf::default()
    };
    let before = async |props: &Props<'_>| {
        props.run("parent", "coder").await;
        let mut child = props.new_run("child", "coder");
        let parent = [(labels::ORCHESTRATION_RUN.to_owned(), "parent".to_owned())];
        child.metadata.labels = Some(parent.into());
        props.runs().create(&PostParams::default(), &child).await.unwrap();
    };
    let stage = Stage::beside(shelf.outside(), Tap::new(), before, |observed| {
        match (phase_of(observed), id(observed), observed.key.name.as_str()) {
            (None, Some(_), _) => act(vec![], Some(phase(RunPhase::Succeeded))),
            (Some(_), Some(run), "parent") => {
                let version = version_of(observed);
                act(vec![Effect::DeleteRun { run, version }], None)
            }
            _ => idle(),
        }
    })
    .await;
    sleep(seconds(120)).await;
    assert!(
        finalizers(&stage, "parent").await.is_some(),
        "its child would go with it"
    );
    shelf.takes_it.store(true, Ordering::SeqCst);
    sleep(seconds(180)).await;
    assert_eq!(finalizers(&stage, "parent").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_history_that_is_away_holds_up_no_run() {
    let shelf = Shelf::away();
    let stage = Stage::beside(
        shelf.outside(),
        Tap::new(),
        async |props| {
            for name in ["one", "two", "three"] {
                props.run(name, "coder").await;
            }
        },
        |observed| {
            let run = &observed.key.name;
            match (phase_of(observed), observed.jobs.is_empty()) {
                (None, true) => act(vec![create_job(&format!("{run}-job"), run)], None),
                (None, false) => act(vec![], Some(phase(RunPhase::Succeeded))),
                (Some(_), _) => idle(),
            }
        },
    )
    .await;

    sleep(seconds(1)).await;

    let runs = stage.props().runs().list(&ListParams::default()).await.unwrap();
    let ended = runs.iter().filter_map(|run| run.status.as_ref()?.phase.as_ref());
    assert_eq!(ended.filter(|phase| **phase == RunPhase::Succeeded).count(), 3);
    assert_eq!(stage.props().job_names().await.len(), 3);
    assert_eq!(stage.counted("jangar_runs_archive_waiting"), Some(3));
    assert_eq!(stage.counted("jangar_runs_archive_down"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_deleted_before_its_end_is_written_as_it_was() {
    let shelf = Shelf::default();
    let stage = shelf
        .beside("mend", |observed| match phase_of(observed) {
            None if observed.run.is_some() => act(vec![], Some(phase(RunPhase::Running))),
            _ => idle(),
        })
        .await;
    sleep(seconds(1)).await;
    assert!(shelf.written.lock().unwrap().is_empty(), "it is at work");

    let runs = stage.props().runs();
    runs.delete("mend", &DeleteParams::default()).await.unwrap();
    sleep(seconds(1)).await;

    let written = shelf.written.lock().unwrap().clone();
    assert_eq!(written, [("mend".to_owned(), "Running".to_owned())]);
}

/// A pod of this run that has ended, with its Job.
async fn ended_pod(props: &Props<'_>, run: &str, attempt: &str) {
    let run = props.runs().get(run).await.unwrap();
    let name = format!("{}-{attempt}", run.metadata.name.as_deref().unwrap());
    let mut job = job(&name, run.metadata.name.as_deref().unwrap());
    job.metadata.owner_references = run.controller_owner_ref(&()).map(|owner| vec![owner]);
    let annotations = [(labels::ATTEMPT.to_owned(), attempt.to_owned())];
    job.metadata.annotations = Some(annotations.into());
    let mut all = job.metadata.labels.take().unwrap();
    all.insert(labels::STEP.to_owned(), "build".to_owned());
    job.metadata.labels = Some(all.clone());
    let job = props.job(&job).await;
    let pod = json!({
        "metadata": {"name": format!("{name}-pod"), "labels": all, "ownerReferences": [job.controller_owner_ref(&())]},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "agent", "image": "example.com/agent:1"}]},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pods: Api<Pod> = Api::default_namespaced(props.cluster.client());
    let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    let ended = json!({"status": {"phase": "Succeeded"}});
    let name = pod.metadata.name.unwrap();
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(ended))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_pod_is_kept_when_it_has_ended_although_its_run_goes_on() {
    let shelf = Shelf::default();
    let stage = shelf.beside("mend", |_| idle()).await;

    ended_pod(&stage.props(), "mend", "2").await;
    sleep(seconds(1)).await;

    let tails = shelf.tails.lock().unwrap().clone();
    assert_eq!(tails.len(), 1, "{tails:?}");
    let tail = &tails[0];
    assert_eq!((tail.source.step.as_str(), tail.source.attempt), ("build", 2));
    assert_eq!(
        (tail.text.as_str(), tail.cut),
        ("agent of mend-2-pod was here\n", false)
    );
    assert_eq!(tail.source.kept_for, seconds(604_800));
    assert!(shelf.written.lock().unwrap().is_empty(), "the run goes on");
    assert_eq!(
        stage.counted("jangar_log_tails_total{result=\"written\"}"),
        Some(1)
    );

    // Whatever else happens to the run, the log is not read again.
    stage.props().touch_run("mend").await;
    sleep(seconds(1)).await;
    assert_eq!(shelf.tails.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_log_waits_for_history_and_holds_up_nothing() {
    let shelf = Shelf::away();
    let stage = shelf.beside("mend", |_| idle()).await;
    ended_pod(&stage.props(), "mend", "1").await;
    sleep(seconds(2)).await;
    assert!(shelf.tails.lock().unwrap().is_empty());

    shelf.away.store(false, Ordering::SeqCst);
    sleep(seconds(10)).await;
    assert_eq!(shelf.tails.lock().unwrap().len(), 1);
}
