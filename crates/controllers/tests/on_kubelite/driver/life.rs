//! The controllers as a whole: waiting, leading, stopping.

use std::sync::Arc;

use jangar_api::{phase::RunPhase, reason::Reason};
use jangar_controllers::{Controllers, Setup, State, start};
use jangar_engine::{
    decision::{Decision, Notice, Plan, Severity, Uid},
    settings::Settings,
};
use prometheus_client::registry::Registry;
use tokio::time::sleep;

use super::{
    stage::{Stage, act, cluster_with_kinds, create_job, idle, install_kinds, phase, settings},
    tap::{Answer, Tap},
};
use crate::support::{Cluster, OddClock, identity, seconds, settle};

pub(super) fn controllers(cluster: &Cluster, tap: &Tap, name: &str) -> Controllers {
    controllers_with(settings(), cluster, tap, name)
}

pub(super) fn controllers_with(settings: Settings, cluster: &Cluster, tap: &Tap, name: &str) -> Controllers {
    start(Setup {
        client: tap.client(&cluster.server),
        lease_client: tap.client(&cluster.server),
        settings: Arc::new(settings),
        clock: OddClock::right(),
        identity: identity(name),
        registry: &mut Registry::default(),
        outside: Arc::default(),
    })
}

#[tokio::test(start_paused = true)]
async fn they_wait_for_their_kinds_and_say_which() {
    let cluster = Cluster::start().await;
    let controllers = controllers(&cluster, &Tap::new(), "one");
    let mut state = controllers.state();
    settle().await;

    let State::Waiting { unserved } = state.borrow_and_update().clone() else {
        panic!("there are no kinds yet");
    };
    let kinds: Vec<&str> = unserved.iter().map(|unserved| unserved.kind.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "agentruns.agents.proompteng.ai",
            "agents.agents.proompteng.ai",
            "agentproviders.agents.proompteng.ai",
            "implementationspecs.agents.proompteng.ai",
            "memories.agents.proompteng.ai",
            "versioncontrolproviders.agents.proompteng.ai",
            "tools.tools.proompteng.ai",
            "toolruns.tools.proompteng.ai",
            "orchestrations.orchestration.proompteng.ai",
            "orchestrationruns.orchestration.proompteng.ai",
            "approvalpolicies.approvals.proompteng.ai",
            "signals.signals.proompteng.ai",
            "signaldeliveries.signals.proompteng.ai",
        ]
    );
    install_kinds(&cluster).await;
    sleep(seconds(10)).await;

    assert_eq!(*state.borrow_and_update(), State::Leading);
}

#[tokio::test(start_paused = true)]
async fn a_second_process_takes_over_at_once_when_the_first_is_stopped() {
    let cluster = cluster_with_kinds().await;
    let first = controllers(&cluster, &Tap::new(), "first");
    settle().await;
    let second = controllers(&cluster, &Tap::new(), "second");
    sleep(seconds(60)).await;
    let states = [first.state(), second.state()];
    assert_eq!(*states[0].borrow(), State::Leading);
    assert_eq!(*states[1].borrow(), State::Standby);

    first.stop().await;
    sleep(seconds(6)).await;

    assert_eq!(*states[0].borrow(), State::Stopped);
    assert_eq!(*states[1].borrow(), State::Leading);
    assert_eq!(cluster.holder().await, "second");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_lost_its_lease_stands_by_and_leads_again() {
    let cluster = cluster_with_kinds().await;
    let tap = Tap::new();
    let controllers = controllers(&cluster, &tap, "one");
    let state = controllers.state();
    settle().await;
    assert_eq!(*state.borrow(), State::Leading);

    // Its renewals are not answered, until it has to give up.
    tap.answer(|request| match request {
        "PUT leases/jangar-controller-leader" => Answer::Later(seconds(3600)),
        _ => Answer::Server,
    });
    sleep(seconds(30)).await;
    assert_eq!(*state.borrow(), State::Standby);
    tap.answer(|_| Answer::Server);
    sleep(seconds(60)).await;

    assert_eq!(*state.borrow(), State::Leading);
}

#[tokio::test(start_paused = true)]
async fn that_the_lease_is_lost_is_told_although_nothing_is_answered_any_more() {
    let cluster = cluster_with_kinds().await;
    let tap = Tap::new();
    let controllers = controllers(&cluster, &tap, "one");
    let state = controllers.state();
    settle().await;
    assert_eq!(*state.borrow(), State::Leading);

    tap.answer(|_| Answer::Later(seconds(3600)));
    sleep(seconds(30)).await;

    assert_eq!(*state.borrow(), State::Standby);
}

/// After a network was silent, every connection in the pool of the work may be dead.
#[tokio::test(start_paused = true)]
async fn they_keep_the_lease_while_nothing_is_answered_on_the_connections_of_their_work() {
    let cluster = cluster_with_kinds().await;
    let (work, lease) = (Tap::new(), Tap::new());
    let controllers = start(Setup {
        client: work.client(&cluster.server),
        lease_client: lease.client(&cluster.server),
        settings: Arc::new(settings()),
        clock: OddClock::right(),
        identity: identity("one"),
        registry: &mut Registry::default(),
        outside: Arc::default(),
    });
    let mut state = controllers.state();
    settle().await;
    assert_eq!(*state.borrow_and_update(), State::Leading);

    work.answer(|_| Answer::Later(seconds(3600)));
    // And one renewal goes out on a connection that is dead as well.
    let mut hung = false;
    lease.answer(move |request| match request {
        "PUT leases/jangar-controller-leader" if !hung => {
            hung = true;
            Answer::Later(seconds(3600))
        }
        _ => Answer::Server,
    });
    sleep(seconds(300)).await;

    assert!(!state.has_changed().unwrap(), "it led all the time");
    assert_eq!(cluster.holder().await, "one");
}

#[tokio::test(start_paused = true)]
async fn dropping_them_ends_everything_at_once() {
    let cluster = cluster_with_kinds().await;
    let tap = Tap::new();
    let controllers = controllers(&cluster, &tap, "one");
    settle().await;

    drop(controllers);
    settle().await;
    tap.forget();
    sleep(seconds(600)).await;

    assert_eq!(tap.requests(), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_writes_in_flight_end_and_begins_nothing_new() {
    let tap = Tap::new();
    tap.answer(|request| match request {
        "POST jobs" => Answer::Later(seconds(8)),
        _ => Answer::Server,
    });
    let mut stage = Stage::on_tap(
        tap,
        async |props| {
            props.run("a", "coder").await;
        },
        |observed| match observed.jobs.len() {
            0 => act(vec![create_job("one", "a")], Some(phase(RunPhase::Running))),
            _ => idle(),
        },
    )
    .await;
    assert_eq!(stage.tap.requests(), ["POST jobs"]);

    stage.halter.request();
    stage.term.take().unwrap().ended().await;

    assert_eq!(stage.tap.requests(), ["POST jobs"]);
    assert_eq!(
        stage.props().job_names().await,
        ["one"],
        "what was begun has ended"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_events_that_are_slow_to_tell() {
    let tap = Tap::new();
    tap.answer(|request| match request {
        "POST events" => Answer::Later(seconds(60)),
        _ => Answer::Server,
    });
    let notice = |number: u32| Notice {
        regarding: Uid("u-1".to_owned()),
        severity: Severity::Warning,
        reason: Reason::JobMissing,
        message: format!("it is gone, said {number} times"),
    };
    let mut stage = Stage::on_tap(
        tap,
        async |props| {
            props.run("a", "coder").await;
        },
        move |observed| match observed.jobs.len() {
            0 => Decision::Act(Plan {
                effects: vec![create_job("one", "a")],
                status: None,
                notices: (0..5).map(notice).collect(),
                ..Plan::nothing()
            }),
            _ => idle(),
        },
    )
    .await;
    let told = |stage: &Stage| {
        let requests = stage.tap.requests();
        requests
            .iter()
            .filter(|request| *request == "POST events")
            .count()
    };
    assert_eq!(told(&stage), 2, "two at a time");

    stage.halter.request();
    stage.term.take().unwrap().ended().await;

    assert_eq!(told(&stage), 2, "the others are given up");
    assert_eq!(
        stage.counted("jangar_events_total{result=\"dropped\"}"),
        Some(3),
        "and counted"
    );
}
