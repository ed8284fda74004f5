//! When a write may start, and until when it may take.

use std::{future::pending, time::Duration};

use jangar_controllers::lease::{Gate, Leadership, REQUEST_TIMEOUT, WriteError};
use jangar_engine::settings::LeaseSettings;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Cluster, Fault, Line, config_map, seconds, settle};

/// A leader whose last renewal was sent just now, and whose next ones go the way of `line`.
async fn fresh_leader(cluster: &Cluster, line: &Line) -> (Leadership, Gate) {
    let mut elector = cluster.elector_on("a", line);
    let leadership = elector.lead().await;
    let gate = leadership.gate();
    (leadership, gate)
}

/// A write that takes this long.
async fn slow(duration: Duration) -> kube::Result<()> {
    sleep(duration).await;
    Ok(())
}

/// Goes on trying to renew almost until the lease ends, so that only the gate stops writes.
fn stubborn() -> LeaseSettings {
    LeaseSettings {
        renew_deadline: seconds(29),
        ..LeaseSettings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_gets_its_answer() {
    let cluster = Cluster::start().await;
    let (_leadership, gate) = fresh_leader(&cluster, &Line::default()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let (parameters, map) = (PostParams::default(), config_map("once"));

    let first = gate.write(maps.create(&parameters, &map)).await;
    let second = gate.write(maps.create(&parameters, &map)).await;

    assert!(first.is_ok(), "{first:?}");
    let Err(WriteError::Api(kube::Error::Api(status))) = second else {
        panic!("{second:?}");
    };
    assert_eq!(status.code, 409);
}

#[tokio::test(start_paused = true)]
async fn no_write_starts_in_the_last_third_of_the_lease() {
    let cluster = Cluster::start().await;
    let line = Line::default();
    let leadership = cluster.elector_with("a", &line, stubborn()).lead().await;
    let gate = leadership.gate();
    line.set(Fault::Refuse);

    sleep(seconds(19)).await;
    assert!(gate.write(slow(Duration::ZERO)).await.is_ok());
    sleep(seconds(1)).await;
    let refused = gate.write::<()>(async { unreachable!("it was sent") }).await;

    assert!(matches!(refused, Err(WriteError::NotLeading)), "{refused:?}");
    assert!(!gate.is_open());
    // It still leads, and the next renewal opens the gate again.
    line.set(Fault::None);
    assert!(timeout(seconds(6), leadership.lost()).await.is_err());
    assert!(gate.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_write_is_cut_off_before_the_lease_ends() {
    let cluster = Cluster::start().await;
    let line = Line::default();
    let leadership = cluster.elector_with("a", &line, stubborn()).lead().await;
    let renewed = Instant::now();
    line.set(Fault::Refuse);
    sleep(seconds(19)).await;

    let answer = leadership.gate().write(pending::<kube::Result<()>>()).await;

    assert!(matches!(answer, Err(WriteError::TimedOut)), "{answer:?}");
    let cut = renewed.elapsed();
    assert!(cut > seconds(24) && cut <= seconds(25), "{cut:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_is_cut_off_when_the_leadership_is_lost() {
    let cluster = Cluster::start().await;
    let line = Line::default();
    let (leadership, gate) = fresh_leader(&cluster, &line).await;
    line.set(Fault::Hang);
    sleep(seconds(18)).await;
    let start = Instant::now();

    let (answer, ()) = tokio::join!(gate.write(pending::<kube::Result<()>>()), leadership.lost());

    assert!(matches!(answer, Err(WriteError::TimedOut)), "{answer:?}");
    assert!(start.elapsed() <= seconds(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_is_cut_off_although_the_lease_is_renewed() {
    let cluster = Cluster::start().await;
    for enabled in [true, false] {
        let settings = LeaseSettings {
            enabled,
            ..LeaseSettings::default()
        };
        let mut elector = cluster.elector_with("a", &Line::default(), settings);
        let leadership = elector.lead().await;
        let start = Instant::now();

        let answer = leadership.gate().write(pending::<kube::Result<()>>()).await;

        assert!(matches!(answer, Err(WriteError::TimedOut)), "{answer:?}");
        assert_eq!(start.elapsed().as_secs(), REQUEST_TIMEOUT.as_secs());
        assert!(leadership.gate().is_open());
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_leadership_shuts_every_gate() {
    let cluster = Cluster::start().await;
    let (leadership, gate) = fresh_leader(&cluster, &Line::default()).await;
    let other = gate.clone();

    drop(leadership);

    assert!(!gate.is_open() && !other.is_open());
    let refused = other.write(slow(Duration::ZERO)).await;
    assert!(matches!(refused, Err(WriteError::NotLeading)), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn release_lets_writes_under_way_end_and_none_begin() {
    let cluster = Cluster::start().await;
    let (leadership, gate) = fresh_leader(&cluster, &Line::default()).await;
    let under_way = tokio::spawn({
        let gate = gate.clone();
        async move { gate.write(slow(seconds(3))).await }
    });
    settle().await;
    let start = Instant::now();
    let release = tokio::spawn(leadership.release());
    settle().await;

    let late = gate.write(slow(Duration::ZERO)).await;
    assert!(matches!(late, Err(WriteError::NotLeading)), "{late:?}");
    assert_eq!(cluster.holder().await, "a");
    release.await.unwrap().unwrap();

    assert!(under_way.await.unwrap().is_ok());
    assert_eq!(start.elapsed().as_secs(), 2);
    assert_eq!(cluster.holder().await, "");
}

#[tokio::test(start_paused = true)]
async fn release_waits_for_what_a_write_given_up_may_still_do() {
    let cluster = Cluster::start().await;
    let (leadership, gate) = fresh_leader(&cluster, &Line::default()).await;
    let given_up = timeout(seconds(1), gate.write(slow(seconds(3)))).await;
    assert!(given_up.is_err());
    let start = Instant::now();

    leadership.release().await.unwrap();

    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn only_an_answer_makes_an_error_certain() {
    let cluster = Cluster::start().await;
    let line = Line::default();
    let (_leadership, gate) = fresh_leader(&cluster, &Line::default()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client_in(line.weather()));
    let mut uncertain = Vec::new();
    for fault in [Fault::Refuse, Fault::LoseAnswer, Fault::Hang] {
        line.set(fault);
        let error = gate.write(maps.get("none")).await.unwrap_err();
        uncertain.push(error.is_uncertain());
    }
    assert_eq!(uncertain, [false, true, true]);
}
