//! Who leads, since when and until when.

use std::{sync::Arc, time::Duration};

use jangar_controllers::lease::{CANARY_PATIENCE, Elector, Leadership, LeaseError};
use jangar_engine::settings::LeaseSettings;
use jiff::SignedDuration;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Cluster, Counted, Fault, Line, OddClock, identity, seconds, settle, shut};

/// How long the elector took to lead.
async fn time_to_lead(elector: &mut Elector) -> (Leadership, Duration) {
    let start = Instant::now();
    let leadership = timeout(seconds(600), elector.lead())
        .await
        .expect("it never leads");
    (leadership, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn first_to_come_leads_at_once() {
    let cluster = Cluster::start().await;

    let (leadership, took) = time_to_lead(&mut cluster.elector("a")).await;

    assert!(took < seconds(1), "{took:?}");
    assert!(leadership.gate().is_open());
    let lease = cluster.lease().await;
    assert_eq!(lease.holder_identity.as_deref(), Some("a"));
    assert_eq!(lease.lease_duration_seconds, Some(30));
    assert_eq!(lease.lease_transitions, Some(0));
    assert_eq!(lease.acquire_time, lease.renew_time);
}

#[tokio::test(start_paused = true)]
async fn a_holder_renews_and_keeps_its_term() {
    let cluster = Cluster::start().await;
    let mut elector = cluster.elector("a");
    let leadership = elector.lead().await;
    let before = cluster.lease().await;

    sleep(seconds(300)).await;

    let after = cluster.lease().await;
    assert!(leadership.gate().is_open());
    assert_eq!(after.acquire_time, before.acquire_time);
    assert_eq!(after.lease_transitions, Some(0));
    assert_ne!(after.renew_time, before.renew_time);
}

#[tokio::test(start_paused = true)]
async fn a_second_one_waits_as_long_as_the_first_renews() {
    let cluster = Cluster::start().await;
    let mut first = cluster.elector("a");
    let leadership = first.lead().await;

    let mut second = cluster.elector("b");
    let waited = timeout(seconds(600), second.lead()).await;

    assert!(waited.is_err());
    assert!(leadership.gate().is_open());
    assert_eq!(cluster.holder().await, "a");
}

#[tokio::test(start_paused = true)]
async fn a_second_one_takes_over_once_it_has_seen_the_lease_run_out() {
    let cluster = Cluster::start().await;
    let leadership = cluster.elector("a").lead().await;
    let gate = leadership.gate();
    let mut second = cluster.elector("b");
    // It has been watching for a while before the first one dies.
    assert!(timeout(seconds(12), second.lead()).await.is_err());

    drop(leadership);
    assert!(!gate.is_open());
    let (_leadership, took) = time_to_lead(&mut second).await;

    // Its own watching counts, from the start of this wait, and ends with a look every five seconds.
    assert!(took >= seconds(30) && took < seconds(36), "{took:?}");
    let lease = cluster.lease().await;
    assert_eq!(lease.holder_identity.as_deref(), Some("b"));
    assert_eq!(lease.lease_transitions, Some(1));
    assert_eq!(lease.acquire_time, lease.renew_time);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_comes_back_waits_like_any_other() {
    let cluster = Cluster::start().await;
    drop(cluster.elector("a").lead().await);

    let (_leadership, took) = time_to_lead(&mut cluster.elector("a")).await;

    assert!(took >= seconds(30), "{took:?}");
    assert_eq!(cluster.lease().await.lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_clock_is_off_is_not_robbed() {
    for offset in [SignedDuration::from_hours(-48), SignedDuration::from_hours(48)] {
        let cluster = Cluster::start().await;
        let clock = OddClock::off_by(offset);
        let mut first = cluster.elector_by("a", clock);
        let leadership = first.lead().await;

        let mut second = cluster.elector("b");
        assert!(timeout(seconds(300), second.lead()).await.is_err(), "{offset:?}");
        assert!(leadership.gate().is_open());
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_clock_stands_still_is_not_robbed() {
    let cluster = Cluster::start().await;
    let mut first = cluster.elector_by("a", OddClock::stopped());
    let leadership = first.lead().await;

    let mut second = cluster.elector("b");

    assert!(timeout(seconds(300), second.lead()).await.is_err());
    assert!(leadership.gate().is_open());
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_with_a_time_in_the_future_is_still_replaced() {
    let cluster = Cluster::start().await;
    let clock = OddClock::off_by(SignedDuration::from_hours(48));
    drop(cluster.elector_by("a", clock).lead().await);

    let (_leadership, took) = time_to_lead(&mut cluster.elector("b")).await;

    assert!(took < seconds(36), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn release_hands_over_at_the_next_look() {
    let cluster = Cluster::start().await;
    let leadership = cluster.elector("a").lead().await;
    let gate = leadership.gate();
    let mut second = cluster.elector("b");
    assert!(timeout(seconds(12), second.lead()).await.is_err());

    leadership.release().await.unwrap();

    assert!(!gate.is_open());
    assert_eq!(cluster.holder().await, "");
    let (_leadership, took) = time_to_lead(&mut second).await;
    assert!(took <= seconds(5), "{took:?}");
    assert_eq!(cluster.lease().await.lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn release_leaves_the_lease_of_another_alone() {
    let cluster = Cluster::start().await;
    let line = Line::default();
    let leadership = cluster.elector_on("a", &line).lead().await;
    take(&cluster, "b").await;

    let released = leadership.release().await;

    assert!(matches!(released, Err(LeaseError::Lost)), "{released:?}");
    assert_eq!(cluster.holder().await, "b");
}

#[tokio::test(start_paused = true)]
async fn release_succeeds_although_the_last_renewal_was_done_without_an_answer() {
    let cluster = Cluster::start().await;
    let line = Line::default();
    let leadership = cluster.elector_on("a", &line).lead().await;
    line.set(Fault::LoseAnswer);
    sleep(seconds(6)).await;
    line.set(Fault::None);

    leadership.release().await.unwrap();

    assert_eq!(cluster.holder().await, "");
}

#[tokio::test(start_paused = true)]
async fn an_api_that_hangs_costs_the_leadership_before_others_may_lead() {
    let cluster = Cluster::start().await;
    let line = Line::default();
    let leadership = cluster.elector_on("a", &line).lead().await;
    let gate = leadership.gate();
    let mut second = cluster.elector("b");
    assert!(timeout(seconds(12), second.lead()).await.is_err());

    line.set(Fault::Hang);
    let start = Instant::now();
    let (lost, (_second, led)) = tokio::join!(
        async {
            leadership.lost().await;
            start.elapsed()
        },
        time_to_lead(&mut second),
    );

    // The last renewal was up to five seconds before.
    assert!(lost >= seconds(15) && lost <= seconds(20), "{lost:?}");
    assert!(!gate.is_open());
    assert!(led >= lost + seconds(10), "{lost:?} {led:?}");
}

#[tokio::test(start_paused = true)]
async fn the_lease_counts_from_when_a_renewal_was_sent() {
    let cluster = Cluster::start().await;
    let line = Line::default();
    let leadership = cluster.elector_on("a", &line).lead().await;
    let start = Instant::now();
    // The renewal at five seconds is answered at thirteen; after that nothing is.
    line.set(Fault::LateAnswer(seconds(8)));
    sleep(seconds(6)).await;
    line.set(Fault::Hang);

    leadership.lost().await;

    assert_eq!(start.elapsed().as_secs(), 25);
}

#[tokio::test(start_paused = true)]
async fn errors_shorter_than_the_renew_deadline_do_not_matter() {
    for fault in [Fault::Refuse, Fault::Hang, Fault::LoseAnswer] {
        let cluster = Cluster::start().await;
        let line = Line::default();
        let leadership = cluster.elector_on("a", &line).lead().await;
        sleep(seconds(6)).await;

        line.set(fault);
        sleep(seconds(12)).await;
        line.set(Fault::None);
        sleep(seconds(60)).await;

        assert!(leadership.gate().is_open(), "{fault:?}");
        assert_eq!(cluster.lease().await.lease_transitions, Some(0), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_is_recognised() {
    let cluster = Cluster::start().await;
    let line = Line::default();
    line.set_writes(Fault::LoseAnswer);
    let mut elector = cluster.elector_on("a", &line);

    let ((_leadership, took), ()) = tokio::join!(time_to_lead(&mut elector), async {
        sleep(seconds(2)).await;
        line.set(Fault::None);
    });

    assert!(took > seconds(2) && took < seconds(10), "{took:?}");
    assert_eq!(cluster.lease().await.lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_after_it_was_given_up_is_recognised() {
    let cluster = Cluster::start().await;
    drop(cluster.elector("a").lead().await);
    let line = Line::default();
    // Requests are given up after ten seconds, so that this claim meets another one like it.
    line.set_writes(Fault::Late(seconds(12)));
    let mut elector = cluster.elector_on("b", &line);

    let ((_leadership, took), ()) = tokio::join!(time_to_lead(&mut elector), async {
        sleep(seconds(45)).await;
        line.set(Fault::None);
    });

    assert!(took < seconds(55), "{took:?}");
    assert_eq!(cluster.lease().await.lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_failed_is_not_mistaken_for_that_of_another_process_of_the_same_name() {
    let cluster = Cluster::start().await;
    let line = Line::default();
    line.set_writes(Fault::Refuse);
    let mut refused = cluster.elector_on("a", &line);
    let (waited, _leadership) = tokio::join!(timeout(seconds(300), refused.lead()), async {
        sleep(seconds(1)).await;
        // A term is told by its time, too, so these two clocks must not show the same.
        let clock = OddClock::off_by(SignedDuration::from_secs(1));
        let leadership = cluster.elector_by("a", clock).lead().await;
        line.set(Fault::None);
        leadership
    });

    assert!(waited.is_err());
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_the_same_process_leads_again_once_its_lease_has_run_out() {
    let cluster = Cluster::start().await;
    let line = Line::default();
    let mut elector = cluster.elector_on("a", &line);
    let leadership = elector.lead().await;
    let start = Instant::now();
    line.set(Fault::Hang);
    leadership.lost().await;
    line.set(Fault::None);

    let leadership = elector.lead().await;

    // It wrote the Lease itself, so that it need not watch it for another thirty seconds.
    let took = start.elapsed();
    assert!(took >= seconds(30) && took < seconds(36), "{took:?}");
    assert!(leadership.gate().is_open());
}

/// Somebody else writes itself into the Lease.
async fn take(cluster: &Cluster, name: &str) {
    let leases = cluster.leases();
    let mut lease = leases.get(&LeaseSettings::default().name).await.unwrap();
    let spec = lease.spec.as_mut().unwrap();
    spec.holder_identity = Some(name.to_owned());
    spec.lease_transitions = Some(1);
    let name = LeaseSettings::default().name;
    leases
        .replace(&name, &PostParams::default(), &lease)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_replaced_notices_with_its_next_renewal() {
    for other in ["b", "a"] {
        let cluster = Cluster::start().await;
        let leadership = cluster.elector("a").lead().await;
        let start = Instant::now();

        take(&cluster, other).await;
        let lost = timeout(seconds(600), leadership.lost()).await;

        assert!(lost.is_ok(), "{other}: it never notices");
        assert!(start.elapsed() <= seconds(5), "{other}: {:?}", start.elapsed());
        assert!(!leadership.gate().is_open());
        assert_eq!(cluster.holder().await, other);
    }
}

#[tokio::test(start_paused = true)]
async fn a_label_on_the_lease_costs_nothing() {
    let cluster = Cluster::start().await;
    let leadership = cluster.elector("a").lead().await;
    let name = LeaseSettings::default().name;
    let label = Patch::Merge(json!({ "metadata": { "labels": { "team": "red" } } }));

    cluster
        .leases()
        .patch(&name, &PatchParams::default(), &label)
        .await
        .unwrap();
    sleep(seconds(60)).await;

    assert!(leadership.gate().is_open());
    let lease = cluster.leases().get(&name).await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap()["team"], "red");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_ends_the_leadership_and_is_made_again_only_after_its_time() {
    let cluster = Cluster::start().await;
    let mut first = cluster.elector("a");
    let leadership = first.lead().await;
    let mut second = cluster.elector("b");
    assert!(timeout(seconds(12), second.lead()).await.is_err());
    let start = Instant::now();
    let mut second = tokio::spawn(async move { second.lead().await });
    sleep(seconds(2)).await;

    let name = LeaseSettings::default().name;
    cluster
        .leases()
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    leadership.lost().await;

    assert!(start.elapsed() <= seconds(7), "{:?}", start.elapsed());
    assert!(timeout(seconds(15), &mut second).await.is_err());
    let _second = second.await.unwrap();
    assert_eq!(cluster.holder().await, "b");
}

#[tokio::test(start_paused = true)]
async fn without_an_election_it_leads_at_once_and_writes_no_lease() {
    let cluster = Cluster::start().await;
    let counted = Counted::new();
    let settings = LeaseSettings {
        enabled: false,
        ..LeaseSettings::default()
    };
    let mut elector = Elector::new(
        cluster.client(),
        settings,
        identity("a"),
        OddClock::right(),
        Arc::clone(&counted.metrics),
    );

    let leadership = elector.lead().await;

    assert!(timeout(seconds(3600), leadership.lost()).await.is_err());
    let gate = leadership.gate();
    assert!(gate.is_open());
    assert_eq!(counted.value("jangar_leader"), 1);
    leadership.release().await.unwrap();
    assert!(!gate.is_open());
    assert_eq!(counted.value("jangar_leader"), 0);
    assert!(
        cluster
            .leases()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn the_election_is_counted() {
    let cluster = Cluster::start().await;
    let counted = Counted::new();
    let line = Line::default();
    let mut elector = Elector::new(
        cluster.client_in(line.weather()),
        LeaseSettings::default(),
        identity("a"),
        OddClock::right(),
        Arc::clone(&counted.metrics),
    );
    let leadership = elector.lead().await;
    let gate = leadership.gate();
    assert_eq!(counted.value("jangar_leader"), 1);

    sleep(seconds(11)).await;
    line.set(Fault::Refuse);
    sleep(seconds(5)).await;
    line.set(Fault::Hang);
    shut(&gate).await;
    settle().await;

    let renewals =
        |result: &str| counted.value(&format!("jangar_lease_renewals_total{{result=\"{result}\"}}"));
    assert_eq!(renewals("renewed"), 2);
    assert_eq!(renewals("failed"), 1);
    assert_eq!(renewals("timed_out"), 1);
    assert_eq!(renewals("lost"), 1);
    assert_eq!(counted.value("jangar_leader"), 0);
    let created = "jangar_api_requests_total{verb=\"create\",kind=\"Lease\",result=\"done\"}";
    assert_eq!(counted.value(created), 1);
    assert_eq!(counted.value("jangar_leader_changes_total{to=\"follower\"}"), 1);
    drop(leadership);
    assert_eq!(counted.value("jangar_leader_changes_total{to=\"follower\"}"), 1);
}

/// The settings of a process that finds its role in a file, and the file.
fn with_role(role: &str) -> (LeaseSettings, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), role).unwrap();
    let settings = LeaseSettings {
        role_file: Some(file.path().to_str().unwrap().to_owned()),
        ..LeaseSettings::default()
    };
    (settings, file)
}

#[tokio::test(start_paused = true)]
async fn a_canary_leaves_a_released_lease_to_those_who_are_stable() {
    let cluster = Cluster::start().await;
    let leadership = cluster.elector("old").lead().await;
    let ((canary, _canary_file), (stable, _stable_file)) = (with_role("canary"), with_role("stable\n"));
    let mut canary = cluster.elector_with("canary", &Line::default(), canary);
    let mut stable = cluster.elector_with("stable", &Line::default(), stable);
    let canary = tokio::spawn(async move { canary.lead().await });
    // The canary looks first after the release, and so would win.
    sleep(seconds(1)).await;
    let stable = tokio::spawn(async move { stable.lead().await });
    sleep(seconds(1)).await;

    leadership.release().await.unwrap();
    let _stable = timeout(seconds(10), stable).await.unwrap().unwrap();

    assert_eq!(cluster.holder().await, "stable");
    assert!(timeout(seconds(300), canary).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_canary_leads_where_nobody_else_has_for_a_while() {
    let cluster = Cluster::start().await;
    let (settings, _file) = with_role("canary");
    let (leadership, took) =
        time_to_lead(&mut cluster.elector_with("a", &Line::default(), settings.clone())).await;
    assert!(took >= CANARY_PATIENCE && took < seconds(21), "{took:?}");

    leadership.release().await.unwrap();
    let (_leadership, took) = time_to_lead(&mut cluster.elector_with("b", &Line::default(), settings)).await;
    assert!(took >= CANARY_PATIENCE && took < seconds(21), "{took:?}");
}

/// To take the lease from it would only interrupt the work.
#[tokio::test(start_paused = true)]
async fn a_canary_that_leads_keeps_the_lease_although_a_stable_one_comes() {
    let cluster = Cluster::start().await;
    let ((canary, _canary_file), (stable, _stable_file)) = (with_role("canary"), with_role("stable"));
    let leadership = cluster
        .elector_with("canary", &Line::default(), canary)
        .lead()
        .await;
    let mut stable = cluster.elector_with("stable", &Line::default(), stable);

    assert!(timeout(seconds(300), stable.lead()).await.is_err());

    assert!(leadership.gate().is_open());
    assert_eq!(cluster.holder().await, "canary");
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_became_stable_asks_at_once() {
    let cluster = Cluster::start().await;
    let leadership = cluster.elector("old").lead().await;
    let (settings, file) = with_role("canary");
    let mut elector = cluster.elector_with("new", &Line::default(), settings);
    assert!(timeout(seconds(60), elector.lead()).await.is_err());

    std::fs::write(file.path(), "stable").unwrap();
    leadership.release().await.unwrap();
    let (_leadership, took) = time_to_lead(&mut elector).await;

    assert!(took < seconds(6), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_role_that_cannot_be_read_waits_as_a_canary_does() {
    let cluster = Cluster::start().await;
    let (settings, file) = with_role("stable");
    drop(file);

    let (_leadership, took) = time_to_lead(&mut cluster.elector_with("a", &Line::default(), settings)).await;

    assert!(took >= CANARY_PATIENCE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_the_label_is_no_canary() {
    let cluster = Cluster::start().await;
    let (settings, _file) = with_role("");

    let (_leadership, took) = time_to_lead(&mut cluster.elector_with("a", &Line::default(), settings)).await;

    assert!(took < seconds(1), "{took:?}");
}
