//! When a key is worked on, and when again.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use jangar_api::phase::RunPhase;
use jangar_engine::decision::{Decision, Plan};
use serde_json::json;
use tokio::time::{Duration, sleep};

use super::{
    stage::{Stage, act, create_job, idle, phase, phase_of},
    tap::{Answer, Seen, Tap, failure},
};
use crate::support::{seconds, settle};

/// How long after each other these were sent, in milliseconds.
fn pauses(seen: &[Seen]) -> Vec<u128> {
    let pairs = seen.windows(2);
    pairs.map(|pair| (pair[1].at - pair[0].at).as_millis()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_worked_on_twice_at_once() {
    let tap = Tap::new();
    tap.answer(|request| match request {
        "POST jobs" => Answer::Later(seconds(8)),
        _ => Answer::Server,
    });
    let stage = Stage::on_tap(
        tap,
        async |props| {
            props.run("a", "coder").await;
        },
        |observed| match observed.jobs.len() {
            0 => act(vec![create_job("one", "a")], None),
            _ => idle(),
        },
    )
    .await;
    stage.props().touch_run("a").await;
    sleep(seconds(7)).await;
    assert_eq!(stage.planned_runs(), ["a"]);
    assert_eq!(stage.tap.requests(), ["POST jobs"]);

    sleep(seconds(2)).await;

    // Once in the same reconcile, and once because of what happened meanwhile.
    assert_eq!(stage.planned_runs().len(), 3);
    assert_eq!(stage.tap.requests(), ["POST jobs"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_key_is_tried_again_after_longer_and_longer_pauses() {
    let tap = Tap::new();
    let mut left = 5;
    tap.answer(move |request| match request {
        "PATCH agentruns/a/status" if left > 0 => {
            left -= 1;
            failure(500, "InternalError", &json!({}))
        }
        _ => Answer::Server,
    });
    let stage = Stage::on_tap(
        tap,
        async |props| {
            props.run("a", "coder").await;
        },
        |observed| match phase_of(observed) {
            None => act(vec![], Some(phase(RunPhase::Running))),
            Some(_) => idle(),
        },
    )
    .await;

    sleep(seconds(60)).await;

    let sent = stage.tap.timed();
    assert_eq!(sent.len(), 6);
    let doubled = [200, 400, 800, 1600, 3200];
    for (pause, least) in pauses(&sent).into_iter().zip(doubled) {
        assert!((least..least + 5).contains(&pause), "{pause} after {least}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_api_server_is_left_alone_for_as_long_as_it_asks() {
    let tap = Tap::new();
    let mut throttled = false;
    tap.answer(move |request| match request {
        "POST jobs" if !throttled => {
            throttled = true;
            failure(429, "TooManyRequests", &json!({ "retryAfterSeconds": 7 }))
        }
        _ => Answer::Server,
    });
    let stage = Stage::on_tap(
        tap,
        async |props| {
            props.run("a", "coder").await;
        },
        |observed| match observed.jobs.len() {
            0 => act(vec![create_job("one", "a")], None),
            _ => idle(),
        },
    )
    .await;

    sleep(seconds(60)).await;

    let pauses = pauses(&stage.tap.timed());
    assert_eq!(pauses.len(), 1);
    assert!((7000..7005).contains(&pauses[0]), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_never_ends_is_given_up_and_tried_again_later() {
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
        },
        // It looks for what it has been told already.
        |_| Decision::look(jangar_engine::decision::Question::Agent("coder".to_owned())),
    )
    .await;

    let first = stage.planned().len();
    assert_eq!(first, 16);
    sleep(Duration::from_millis(210)).await;

    assert_eq!(stage.planned().len(), 2 * first);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_looked_at_again_when_its_plan_asked_for_it() {
    let wake_at = crate::support::OddClock::right().now() + seconds(90);
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
        },
        move |_| {
            Decision::Act(Plan {
                wake_at: Some(wake_at),
                ..Plan::nothing()
            })
        },
    )
    .await;
    stage.forget();

    sleep(seconds(89)).await;
    assert_eq!(stage.planned_runs(), [] as [&str; 0]);
    sleep(seconds(2)).await;

    assert!(!stage.planned_runs().is_empty());
    assert!(
        stage.planned_runs().len() < 25,
        "a time in the past is no reason to spin"
    );
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_panics_costs_one_attempt_and_not_the_key() {
    let panicked = Arc::new(AtomicBool::new(false));
    let once = Arc::clone(&panicked);
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
            props.run("b", "coder").await;
        },
        move |observed| {
            assert!(
                observed.key.name != "a" || once.swap(true, Ordering::Relaxed),
                "the bug of this test"
            );
            idle()
        },
    )
    .await;
    settle().await;
    assert!(stage.planned_runs().contains(&"b".to_owned()));

    sleep(seconds(1)).await;

    assert_eq!(stage.planned_runs().iter().filter(|run| *run == "a").count(), 2);
}
