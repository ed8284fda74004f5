//! Whom a change concerns.

use super::stage::{Stage, idle, job};
use crate::support::settle;

#[tokio::test(start_paused = true)]
async fn an_agent_wakes_the_runs_that_refer_to_it_and_have_not_ended() {
    let stage = Stage::start(
        async |props| {
            props.agent("coder", "shell").await;
            props.agent("other", "shell").await;
            props.run("waits", "coder").await;
            props.run("elsewhere", "other").await;
            props.run("ended", "coder").await;
            props.end_run("ended").await;
        },
        |_| idle(),
    )
    .await;
    stage.forget();

    stage.props().touch_agent("coder").await;
    settle().await;

    assert_eq!(stage.planned_runs(), ["waits"]);
}

/// However many there are, each change of a run is about that run alone, and nothing is asked about it that the caches show.
#[tokio::test(start_paused = true)]
async fn a_change_of_one_of_many_runs_looks_at_that_run_and_at_no_other() {
    const RUNS: usize = 400;
    let stage = Stage::start(
        async |props| {
            for number in 0..RUNS {
                let name = format!("run-{number}");
                props.run(&name, "coder").await;
                if number % 2 == 0 {
                    props.end_run(&name).await;
                } else {
                    props.job(&job(&format!("{name}-job"), &name)).await;
                }
            }
        },
        |_| idle(),
    )
    .await;
    stage.forget();

    for number in 0..20 {
        stage.props().touch_run(&format!("run-{number}")).await;
        settle().await;
        assert_eq!(stage.planned_runs(), [format!("run-{number}")]);
        assert_eq!(stage.tap.requests(), [] as [&str; 0]);
        stage.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_appears_wakes_the_run_that_waited_for_it() {
    let stage = Stage::start(
        async |props| {
            props.run("waits", "coder").await;
            props.run("elsewhere", "other").await;
        },
        |_| idle(),
    )
    .await;
    stage.forget();

    stage.props().agent("coder", "shell").await;
    settle().await;

    assert_eq!(stage.planned_runs(), ["waits"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_wakes_the_run_in_its_label() {
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
            props.run("b", "coder").await;
        },
        |_| idle(),
    )
    .await;
    stage.forget();

    stage.props().job(&job("one", "b")).await;
    settle().await;

    assert_eq!(stage.planned_runs(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_run_is_gone_is_looked_at() {
    let stage = Stage::start(
        async |props| {
            props.job(&job("left-over", "a")).await;
        },
        |observed| {
            assert!(observed.run.is_none() && observed.jobs.contains_key("left-over"));
            idle()
        },
    )
    .await;

    assert_eq!(stage.planned_runs(), ["a"]);
    assert_eq!(
        stage.tap.requests(),
        ["GET agentruns/a"],
        "that the run is gone is proven"
    );
}
