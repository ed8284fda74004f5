//! Runs that are due all at once, Jobs that vanish, and Jobs whose end nobody has recorded.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use jangar_api::{labels, phase::RunPhase};
use jangar_engine::{
    decision::{Decision, Effect, ObjectId, Question, Uid},
    last_sight::LastSight,
};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::stage::{Stage, act, idle, job, phase, phase_of};
use crate::support::{seconds, settle};

/// More than a batch, and more than a minute's.
const DUE: u32 = 420;

#[tokio::test(start_paused = true)]
async fn runs_that_are_due_at_once_go_in_batches_and_other_work_does_not_wait_for_them() {
    let begun = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&begun);
    let stage = Stage::start(
        async |props| {
            for number in 0..DUE {
                let name = format!("due-{number}");
                props.run(&name, "coder").await;
            }
        },
        move |observed| {
            let Some(run) = &observed.run else { return idle() };
            if observed.key.name == "fresh" {
                if phase_of(observed).is_none() {
                    *seen.lock().unwrap() = Some(Instant::now());
                    return act(vec![], Some(phase(RunPhase::Running)));
                }
                return idle();
            }
            let version = run.metadata.resource_version.clone().unwrap();
            let run = ObjectId {
                name: observed.key.name.clone(),
                uid: Uid(run.metadata.uid.clone().unwrap()),
            };
            act(vec![Effect::DeleteRun { run, version }], None)
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

    sleep(seconds(1)).await;
    assert_eq!(left().await, 370, "a batch of fifty, and the others wait");
    assert_eq!(
        stage.counted("jangar_run_deletions_total{result=\"begun\"}"),
        Some(50)
    );
    assert!(stage.counted("jangar_run_deletions_waiting").unwrap() > 300);

    let asked = Instant::now();
    stage.props().run("fresh", "coder").await;
    settle().await;
    let begun = begun.lock().unwrap().expect("it was looked at");
    assert!(
        begun - asked < Duration::from_millis(5),
        "it waited {:?}",
        begun - asked
    );

    sleep(seconds(58)).await;
    assert!(left().await > 120, "no more than three hundred in a minute");
    sleep(seconds(120)).await;
    assert_eq!(left().await, 1, "all of them go");
    let put_off = stage
        .counted("jangar_run_deletions_total{result=\"put_off\"}")
        .unwrap();
    assert!(put_off < 2 * u64::from(DUE), "{put_off} asked in vain");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_vanished_under_our_eyes_leaves_evidence_of_who_had_a_hand_in_it() {
    let found: Arc<Mutex<Option<LastSight>>> = Arc::default();
    let noted = Arc::clone(&found);
    let stage = Stage::start(
        async |props| {
            props.run("robbed", "coder").await;
            let mut job = job("robbed-job", "robbed");
            job.metadata.finalizers = Some(vec![labels::JOB_STATUS_FINALIZER.to_owned()]);
            props.job(&job).await;
        },
        move |observed| {
            if observed.jobs.contains_key("robbed-job") {
                return idle();
            }
            if !observed.live_jobs.contains("robbed-job") {
                return Decision::look(Question::Job("robbed-job".to_owned()));
            }
            *noted.lock().unwrap() = observed.departed.get("robbed-job").cloned();
            idle()
        },
    )
    .await;
    let jobs = stage.props().jobs();
    let params = PatchParams {
        field_manager: Some("somebody".to_owned()),
        ..PatchParams::default()
    };
    sleep(seconds(2)).await;
    // Kubernetes does not note who takes something away, but who sets something.
    let freed = json!({ "metadata": { "finalizers": null, "annotations": { "test/why": "cleaning" } } });
    let freed = jobs
        .patch("robbed-job", &params, &Patch::Merge(freed))
        .await
        .unwrap();

    jobs.delete("robbed-job", &DeleteParams::background())
        .await
        .unwrap();
    settle().await;

    let sight = found.lock().unwrap().clone().expect("evidence");
    assert_eq!(Some(&sight.uid.0), freed.metadata.uid.as_ref());
    assert_eq!(
        sight.writer.as_ref().map(|writer| writer.program.as_str()),
        Some("somebody")
    );
    assert!(
        sight.written_at.is_some() && !sight.version.is_empty(),
        "{sight:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn finished_jobs_that_are_held_are_counted_until_they_are_not() {
    let stage = Stage::start(
        async |props| {
            for name in ["a", "b"] {
                let mut job = job(name, "gone");
                job.metadata.finalizers = Some(vec![labels::JOB_STATUS_FINALIZER.to_owned()]);
                props.job(&job).await;
            }
        },
        |_| idle(),
    )
    .await;
    let uncaptured = || stage.counted("jangar_jobs_uncaptured");
    assert_eq!(uncaptured(), Some(0), "neither has ended");

    let jobs = stage.props().jobs();
    let params = PatchParams::default();
    for name in ["a", "b"] {
        let conditions = ["FailureTarget", "Failed"].map(|type_| {
            json!({ "type": type_, "status": "True", "reason": "BackoffLimitExceeded",
                "lastTransitionTime": "2026-03-01T12:00:00Z" })
        });
        let status = json!({ "status": { "conditions": conditions, "startTime": "2026-03-01T12:00:00Z" } });
        jobs.patch_status(name, &params, &Patch::Merge(status))
            .await
            .unwrap();
    }
    settle().await;
    assert_eq!(uncaptured(), Some(2));

    let freed = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    jobs.patch("a", &params, &freed).await.unwrap();
    settle().await;
    assert_eq!(uncaptured(), Some(1));
    jobs.patch("b", &params, &freed).await.unwrap();
    jobs.delete("b", &DeleteParams::background()).await.unwrap();
    settle().await;
    assert_eq!(uncaptured(), Some(0));
}
