//! Read your own writes.

use jangar_api::phase::RunPhase;
use jangar_controllers::driver::BARRIER_PATIENCE;
use kube::api::DeleteParams;
use tokio::time::{Duration, Instant, sleep};

use super::{
    stage::{Stage, act, create_job, idle, phase},
    tap::{Answer, Tap},
};
use crate::support::settle;

/// A tap on which the watch of Jobs says nothing.
fn silent_jobs() -> Tap {
    let tap = Tap::new();
    tap.answer(|request| match request {
        "WATCH jobs" => Answer::Silence,
        _ => Answer::Server,
    });
    tap
}

#[tokio::test(start_paused = true)]
async fn a_key_is_not_planned_again_before_the_cache_shows_what_was_written() {
    let start = Instant::now();
    let stage = Stage::on_tap(
        silent_jobs(),
        async |props| {
            props.run("a", "coder").await;
        },
        |observed| match observed.jobs.len() {
            0 => act(vec![create_job("one", "a")], Some(phase(RunPhase::Running))),
            _ => idle(),
        },
    )
    .await;
    let plans = stage.planned().len();
    assert_eq!(stage.tap.requests(), ["POST jobs", "PATCH agentruns/a/status"]);

    // The run changes, and its own watch works.
    stage.props().touch_run("a").await;
    sleep(BARRIER_PATIENCE.mul_f32(0.98)).await;
    assert_eq!(
        stage.planned().len(),
        plans,
        "it would be planned without its Job"
    );

    sleep(Duration::from_millis(200)).await;
    assert_eq!(stage.tap.requests()[2..], ["GET jobs/one"]);
    let again = stage.planned().last().unwrap().at;
    assert!(again - start >= BARRIER_PATIENCE);
    assert_eq!(stage.planned().len(), plans + 1, "the live read filled the cache");
    assert_eq!(stage.props().job_names().await, ["one"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_live_read_does_not_find_is_gone() {
    let mut made = false;
    let stage = Stage::on_tap(
        silent_jobs(),
        async |props| {
            props.run("a", "coder").await;
        },
        move |observed| {
            if made {
                return match observed.jobs.len() {
                    0 => idle(),
                    _ => act(vec![], Some(phase(RunPhase::Running))),
                };
            }
            made = true;
            act(vec![create_job("one", "a")], None)
        },
    )
    .await;
    let params = DeleteParams::background();
    stage.props().jobs().delete("one", &params).await.unwrap();
    stage.forget();

    stage.props().touch_run("a").await;
    sleep(BARRIER_PATIENCE + Duration::from_millis(100)).await;

    assert_eq!(stage.tap.requests(), ["GET jobs/one"]);
    assert_eq!(stage.planned_runs(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn one_key_that_waits_does_not_hold_up_another() {
    let stage = Stage::on_tap(
        silent_jobs(),
        async |props| {
            props.run("a", "coder").await;
            props.run("b", "coder").await;
        },
        |observed| match (observed.key.name.as_str(), observed.jobs.len()) {
            ("a", 0) => act(vec![create_job("one", "a")], None),
            _ => idle(),
        },
    )
    .await;
    stage.forget();

    stage.props().touch_run("a").await;
    stage.props().touch_run("b").await;
    settle().await;

    assert_eq!(stage.planned_runs(), ["b"]);
}
