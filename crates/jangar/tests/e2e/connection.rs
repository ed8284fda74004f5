//! The way to the API server is cut, or falls silent: the controllers go on without being started again.

use jangar_api::{labels, phase::RunPhase};
use jangar_testkit::cluster::{Failure, until, until_list};
use k8s_openapi::api::{batch::v1::Job, coordination::v1::Lease, core::v1::Pod};
use kube::api::ListParams;
use serde_json::json;

use crate::{
    cable::Cable,
    fake_nodes::Nodes,
    replica::{LEASE, Replica, Settings, holder},
    rights,
    runs::phase,
    stage::{Stage, beside_others},
};

/// A lease that outlasts what happens here: the controllers go on with the caches and watches that they have. After a silence
/// the first renewal may go out on a connection that is dead, and is given up after half of the deadline.
pub(crate) fn patient(settings: Settings) -> Settings {
    settings
        .with("JANGAR_LEADER_ELECTION_LEASE_DURATION_SECONDS", "300")
        .with("JANGAR_LEADER_ELECTION_RENEW_DEADLINE_SECONDS", "280")
        .with("JANGAR_LEADER_ELECTION_RETRY_PERIOD_SECONDS", "2")
}

/// Controllers that lead, at the end of a cable.
pub(crate) async fn at_a_cable(stage: &Stage<'_>, settings: &Settings) -> Result<(Cable, Replica), Failure> {
    let cable = Cable::lay(stage.scene).await?;
    let server = cable.server();
    let replica = stage
        .start("one", rights::ACCOUNT, Some(&server), settings)
        .await?;
    replica.until_leading(stage.scene).await?;
    Ok((cable, replica))
}

/// Waits until the pods of all runs have ended, whatever the runs say.
pub(crate) async fn all_pods_ended(stage: &Stage<'_>, count: usize) -> Result<(), Failure> {
    until_list(
        &stage.scene.api::<Pod>(),
        labels::AGENT_RUN,
        "to have ended",
        |pods| pods.len() == count && pods.iter().all(|pod| phase(pod) == "Succeeded"),
    )
    .await?;
    Ok(())
}

/// What was going on is recorded, and what comes is done.
pub(crate) async fn goes_on(stage: &Stage<'_>, before: &[&str], after: &str) -> Result<(), Failure> {
    for run in before {
        stage.reached(run, &RunPhase::Succeeded).await?;
    }
    stage.run("worker", after, &json!({})).await?;
    stage.reached(after, &RunPhase::Succeeded).await?;
    let jobs = stage.scene.api::<Job>().list(&ListParams::default()).await?;
    let mut runs: Vec<_> = jobs
        .iter()
        .map(|job| {
            job.metadata
                .labels
                .as_ref()
                .map(|labels| &labels[labels::AGENT_RUN])
        })
        .collect();
    runs.sort_unstable();
    runs.dedup();
    assert_eq!(runs.len(), jobs.items.len(), "one Job for each run");
    Ok(())
}

/// Breaks the connection while one run works and another is asked for, mends it, and holds that all go on.
async fn go_on_after(scene: &str, break_it: fn(&Cable)) -> Result<(), Failure> {
    beside_others(scene, async |stage| {
        let mut nodes = Nodes::of(stage, "1s");
        nodes.add("zone-a").await?;
        let settings = patient(nodes.settings(stage.settings()));
        let (cable, mut controllers) = at_a_cable(stage, &settings).await?;
        stage.agent("worker", "true").await?;
        stage.run("worker", "one", &json!({})).await?;
        until(&stage.scene.api::<Job>(), "one-job", "to be there", |_| true).await?;

        break_it(&cable);
        all_pods_ended(stage, 1).await?;
        stage.run("worker", "two", &json!({})).await?;
        cable.mend();

        goes_on(stage, &["one", "two"], "three").await?;
        assert!(controllers.is_alive()?);
        nodes.remove_all().await
    })
    .await
}

#[tokio::test]
async fn runs_go_on_after_the_connection_is_cut() -> Result<(), Failure> {
    go_on_after("connection-cut", Cable::cut).await
}

/// Nobody says that the connections are dead. Each watch finds out by itself, because none lasts for ever.
#[tokio::test]
async fn runs_go_on_after_the_connection_falls_silent() -> Result<(), Failure> {
    go_on_after("connection-silent", Cable::silence).await
}

/// With the lease that is shipped (30/20/5 s). The renewal that goes out into the silence is given up while there is time for
/// another, so nobody has to take over.
#[tokio::test]
async fn the_shipped_lease_outlasts_eight_seconds_of_silence() -> Result<(), Failure> {
    beside_others("connection-lease", async |stage| {
        let mut nodes = Nodes::of(stage, "8s");
        nodes.add("zone-a").await?;
        let (cable, mut controllers) = at_a_cable(stage, &nodes.settings(stage.settings())).await?;
        stage.agent("worker", "true").await?;
        stage.run("worker", "one", &json!({})).await?;
        stage.working("one", 1).await?;

        cable.silence();
        // The pod knows nothing of it, and its end tells the time.
        all_pods_ended(stage, 1).await?;
        let leases = stage.scene.api::<Lease>();
        let renewed = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        let before = renewed(&leases.get(LEASE).await?);
        cable.mend();

        let lease = until(&leases, LEASE, "to be renewed", |lease| renewed(lease) > before).await?;
        assert_eq!(holder(&lease), Some(&controllers.identity));
        assert!(controllers.is_alive()?);
        let log = controllers.log()?;
        assert!(!log.contains("no longer leading"), "{log}");
        nodes.remove_all().await
    })
    .await
}
