//! One reconcile: what is sent, in which order, and what the plan learns from the answers.

use std::sync::{Arc, Mutex};

use jangar_api::phase::RunPhase;
use jangar_engine::decision::{
    ChildKind, Decision, Effect, Notice, ObjectId, Plan, PodSight, Question, Severity, Sight, Uid,
};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use super::{
    stage::{Stage, act, create_job, idle, job, phase, phase_of},
    tap::{Answer, Tap, failure},
};
use crate::support::{seconds, settle};

#[tokio::test(start_paused = true)]
async fn effects_come_before_the_status_and_notices_after_it() {
    let notice = || Notice {
        regarding: Uid("u-1".to_owned()),
        severity: Severity::Normal,
        reason: jangar_api::reason::Reason::Running,
        message: "it runs".to_owned(),
    };
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
        },
        move |observed| match observed.jobs.len() {
            0 => Decision::Act(Plan {
                effects: vec![create_job("one", "a"), create_job("two", "a")],
                status: Some(phase(RunPhase::Running)),
                notices: vec![notice()],
                ..Plan::nothing()
            }),
            _ => idle(),
        },
    )
    .await;

    let requests = stage.tap.requests();
    assert_eq!(
        requests[..3],
        ["POST jobs", "POST jobs", "PATCH agentruns/a/status"]
    );
    assert_eq!(requests[3..], ["POST events"]);
    assert_eq!(stage.props().job_names().await, ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_as_planned_is_not_written() {
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
        },
        |_| act(vec![], Some(phase(RunPhase::Running))),
    )
    .await;

    assert_eq!(stage.tap.requests(), ["PATCH agentruns/a/status"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_there_already_is_read_and_shown_to_the_plan() {
    let found = Arc::new(Mutex::new(None));
    let shown = Arc::clone(&found);
    let stage = Stage::start(
        async |props| {
            // It carries no label, so no cache has it.
            let mut stranger = job("one", "a");
            stranger.metadata.labels = None;
            props.job(&stranger).await;
            props.run("a", "coder").await;
        },
        move |observed| match observed.jobs.get("one") {
            None => act(vec![create_job("one", "a")], Some(phase(RunPhase::Running))),
            Some(job) => {
                *shown.lock().unwrap() = job.uid();
                idle()
            }
        },
    )
    .await;

    assert_eq!(
        stage.tap.requests(),
        ["POST jobs", "GET jobs/one"],
        "the rest of the plan is void"
    );
    let job = stage.props().jobs().get("one").await.unwrap();
    assert_eq!(*found.lock().unwrap(), job.uid());
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_is_told_to_the_plan_in_its_words() {
    let tap = Tap::new();
    tap.answer(|request| match request {
        "POST jobs" => failure(422, "Invalid", &json!({})),
        _ => Answer::Server,
    });
    let told = Arc::new(Mutex::new(None));
    let heard = Arc::clone(&told);
    let stage = Stage::on_tap(
        tap,
        async |props| {
            props.run("a", "coder").await;
        },
        move |observed| match (phase_of(observed), &observed.refusal) {
            (Some(_), _) => idle(),
            (None, Some(refusal)) => {
                *heard.lock().unwrap() = Some(refusal.clone());
                act(vec![], Some(phase(RunPhase::Failed)))
            }
            (None, None) => act(vec![create_job("one", "a")], Some(phase(RunPhase::Running))),
        },
    )
    .await;

    assert_eq!(stage.tap.requests(), ["POST jobs", "PATCH agentruns/a/status"]);
    let refusal = told.lock().unwrap().clone().unwrap();
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (422, "the test says Invalid")
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_that_somebody_else_changed_is_read_again_and_planned_anew() {
    let tap = Tap::new();
    // The cache of runs stays as it was listed.
    tap.answer(|request| match request {
        "WATCH agentruns" => Answer::Silence,
        _ => Answer::Server,
    });
    let stage = Stage::on_tap(
        tap,
        async |props| {
            props.run("a", "coder").await;
        },
        |observed| match (phase_of(observed), observed.jobs.len()) {
            (None, 1) => act(vec![], Some(phase(RunPhase::Running))),
            _ => idle(),
        },
    )
    .await;
    let newer = stage.props().touch_run("a").await;

    // A Job of the run wakes it.
    stage.props().job(&job("one", "a")).await;
    settle().await;

    assert_eq!(
        stage.tap.requests(),
        [
            "PATCH agentruns/a/status",
            "GET agentruns/a",
            "PATCH agentruns/a/status"
        ]
    );
    let run = stage.props().runs().get("a").await.unwrap();
    assert_eq!(run.annotations(), newer.annotations(), "nothing was overwritten");
    assert_eq!(run.status.unwrap().phase, Some(RunPhase::Running));
}

#[tokio::test(start_paused = true)]
async fn questions_are_answered_by_the_api_server() {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&answers);
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
        },
        move |observed| {
            let agent = &observed.references.agent;
            if observed.live_jobs.is_empty() && observed.pods.is_empty() {
                assert!(matches!(agent, Sight::Unseen), "a cache proves nothing");
                let questions = [
                    Question::Agent("coder".to_owned()),
                    Question::Job("one".to_owned()),
                    Question::PodsOf(Uid("u".to_owned())),
                ];
                return Decision::Look(questions.into());
            }
            let pods = observed.pods.get(&Uid("u".to_owned()));
            heard.lock().unwrap().extend([
                matches!(agent, Sight::Absent),
                observed.live_jobs.contains("one"),
                matches!(pods, Some(PodSight::Live(pods)) if pods.is_empty()),
            ]);
            idle()
        },
    )
    .await;

    assert_eq!(
        stage.tap.requests(),
        ["GET agents/coder", "GET jobs/one", "GET pods"]
    );
    assert_eq!(*answers.lock().unwrap(), [true; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_job_is_stopped_in_the_foreground_and_then_released() {
    let finalizer = "agents.proompteng.ai/job-status";
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
            let mut held = job("one", "a");
            held.metadata.finalizers = Some(vec![finalizer.to_owned(), "example.com/other".to_owned()]);
            props.job(&held).await;
        },
        move |observed| {
            let Some(job) = observed.jobs.get("one") else {
                return idle();
            };
            let id = ObjectId {
                name: job.name_any(),
                uid: Uid(job.uid().unwrap()),
            };
            let held = job.finalizers().iter().any(|held| held == finalizer);
            if job.metadata.deletion_timestamp.is_none() {
                return act(vec![Effect::StopJob { job: id }], None);
            }
            if !held {
                return idle();
            }
            let release = Effect::ReleaseJob {
                job: id,
                finalizers: job.finalizers().to_vec(),
                ttl_seconds_after_finished: Some(60),
                kept: None,
            };
            act(vec![release], None)
        },
    )
    .await;

    // There are no pods, so the API server takes its own finalizer of a foreground deletion off at once. The first patch
    // names the finalizers before that, and must not put it back.
    assert_eq!(
        stage.tap.requests(),
        [
            "DELETE jobs/one",
            "PATCH jobs/one",
            "GET jobs/one",
            "PATCH jobs/one"
        ]
    );
    let job = stage.props().jobs().get("one").await.unwrap();
    assert_eq!(job.finalizers(), ["example.com/other"]);
    assert_eq!(job.spec.unwrap().ttl_seconds_after_finished, Some(60));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_took_the_name_of_another_is_not_stopped() {
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
            props.job(&job("one", "a")).await;
        },
        {
            let mut asked = false;
            move |_| {
                if asked {
                    return idle();
                }
                asked = true;
                let job = ObjectId {
                    name: "one".to_owned(),
                    uid: Uid("the-one-before".to_owned()),
                };
                act(vec![Effect::StopJob { job }], None)
            }
        },
    )
    .await;

    assert_eq!(stage.tap.requests(), ["DELETE jobs/one", "GET jobs/one"]);
    let job = stage.props().jobs().get("one").await.unwrap();
    assert_eq!(job.metadata.deletion_timestamp, None);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_deleted_only_once() {
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
        },
        |observed| match &observed.run {
            Some(run) => {
                let version = run.resource_version().unwrap();
                let run = ObjectId {
                    name: run.name_any(),
                    uid: Uid(run.uid().unwrap()),
                };
                act(vec![Effect::DeleteRun { run, version }], None)
            }
            None => idle(),
        },
    )
    .await;

    assert_eq!(stage.tap.requests(), ["DELETE agentruns/a"]);
    assert!(stage.props().runs().get_opt("a").await.unwrap().is_none());
}

/// Somebody asked to keep it, and the caches do not show that yet.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_changed_since_it_was_seen_is_looked_at_again_and_not_deleted() {
    let mut asked = false;
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
        },
        move |observed| match &observed.run {
            Some(run) if !asked => {
                asked = true;
                let run = ObjectId {
                    name: run.name_any(),
                    uid: Uid(run.uid().unwrap()),
                };
                let version = "1".to_owned();
                act(vec![Effect::DeleteRun { run, version }], None)
            }
            Some(_) | None => idle(),
        },
    )
    .await;

    assert_eq!(stage.tap.requests(), ["DELETE agentruns/a", "GET agentruns/a"]);
    let run = stage.props().runs().get("a").await.unwrap();
    assert_eq!(run.metadata.deletion_timestamp, None);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_once_all_is_as_it_should_be() {
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
        },
        |observed| match observed.jobs.len() {
            0 => act(vec![create_job("one", "a")], Some(phase(RunPhase::Running))),
            _ => act(vec![], Some(phase(RunPhase::Running))),
        },
    )
    .await;
    settle().await;
    stage.forget();

    tokio::time::sleep(seconds(3600)).await;

    assert_eq!(stage.tap.requests(), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_run_with_a_left_over_job_is_still_looked_at() {
    let stage = Stage::start(
        async |props| {
            props.job(&job("one", "a")).await;
            props.run("a", "coder").await;
        },
        |_| idle(),
    )
    .await;
    stage.forget();

    let params = DeleteParams::default();
    stage.props().runs().delete("a", &params).await.unwrap();
    settle().await;

    // The Job is still there, so it is looked at; that the run is gone is proven and not assumed.
    assert_eq!(stage.tap.requests(), ["GET agentruns/a"]);
    assert_eq!(stage.planned_runs(), ["a"]);
    let touched = json!({ "metadata": { "annotations": { "test/touched": "1" } } });
    let params = PatchParams::default();
    let jobs = stage.props().jobs();
    jobs.patch("one", &params, &Patch::Merge(touched)).await.unwrap();
    settle().await;
    assert_eq!(stage.planned_runs(), ["a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_plan_is_not_sent_once_somebody_wants_otherwise() {
    let tap = Tap::new();
    let mut slow = true;
    tap.answer(move |request| match request {
        "POST jobs" if std::mem::take(&mut slow) => Answer::Later(seconds(1)),
        _ => Answer::Server,
    });
    let stage = Stage::on_tap(
        tap,
        async |props| {
            props.run("a", "coder").await;
        },
        |observed| {
            let run = observed.run.as_ref().expect("a run");
            match (run.spec.stop.is_requested(), observed.jobs.len()) {
                (true, _) => act(vec![], Some(phase(RunPhase::Cancelling))),
                (false, 0) => {
                    let names = ["one", "two", "three"];
                    let jobs = names.map(|name| create_job(name, "a"));
                    act(jobs.into(), Some(phase(RunPhase::Running)))
                }
                (false, _) => idle(),
            }
        },
    )
    .await;
    assert_eq!(stage.tap.requests(), ["POST jobs"]);

    let cancel = Patch::Merge(json!({ "spec": { "cancel": true } }));
    let runs = stage.props().runs();
    runs.patch("a", &PatchParams::default(), &cancel).await.unwrap();
    tokio::time::sleep(seconds(2)).await;

    assert_eq!(
        stage.tap.requests(),
        ["POST jobs", "PATCH agentruns/a/status"],
        "two Jobs are not made any more"
    );
    assert_eq!(stage.props().job_names().await, ["one"]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_goes_on_although_something_about_its_object_changed_that_nobody_asked_for() {
    let tap = Tap::new();
    let mut slow = true;
    tap.answer(move |request| match request {
        "POST jobs" if std::mem::take(&mut slow) => Answer::Later(seconds(1)),
        _ => Answer::Server,
    });
    let stage = Stage::on_tap(
        tap,
        async |props| {
            props.run("a", "coder").await;
        },
        |observed| match observed.jobs.len() {
            0 => act(vec![create_job("one", "a"), create_job("two", "a")], None),
            _ => idle(),
        },
    )
    .await;

    stage.props().touch_run("a").await;
    tokio::time::sleep(seconds(2)).await;

    assert_eq!(stage.props().job_names().await, ["one", "two"]);
    assert_eq!(stage.tap.requests(), ["POST jobs", "POST jobs"]);
}

#[tokio::test(start_paused = true)]
async fn questions_about_many_children_are_asked_at_the_same_time() {
    let tap = Tap::new();
    tap.answer(|request| match request {
        _ if request.starts_with("GET agentruns/child") => Answer::Later(seconds(1)),
        _ => Answer::Server,
    });
    let stage = Stage::on_tap(
        tap,
        async |props| {
            props.run("a", "coder").await;
        },
        {
            let mut asked = false;
            move |_| {
                if std::mem::replace(&mut asked, true) {
                    return idle();
                }
                let child = |number| Question::Child(ChildKind::AgentRun, format!("child-{number}"));
                Decision::Look((0..5).map(child).collect())
            }
        },
    )
    .await;
    tokio::time::sleep(seconds(5)).await;

    let asked = stage.tap.timed();
    assert_eq!(asked.len(), 5);
    assert!(asked.iter().all(|request| request.at == asked[0].at), "{asked:?}");
}
