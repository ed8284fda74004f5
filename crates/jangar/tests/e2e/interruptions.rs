//! Parts of the cluster go away and come back, and the way to it is cut: the controllers go on without being started again.

use jangar_api::{labels, phase::RunPhase};
use jangar_testkit::cluster::{Failure, Part, until, until_list};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
};
use kube::api::{ListParams, PostParams};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    cable::Cable,
    fake_nodes::Nodes,
    replica::{Replica, Settings},
    rights,
    runs::phase,
    stage::{Stage, alone, beside_others},
};

/// Where etcd answers inside of the bench, also in JSON.
const ETCD: &str = "127.0.0.1:2379";

/// A lease that outlasts what happens here: the controllers go on with the caches and watches that they have.
fn patient(settings: Settings) -> Settings {
    settings
        .with("JANGAR_LEADER_ELECTION_LEASE_DURATION_SECONDS", "180")
        .with("JANGAR_LEADER_ELECTION_RENEW_DEADLINE_SECONDS", "120")
        .with("JANGAR_LEADER_ELECTION_RETRY_PERIOD_SECONDS", "2")
}

/// Controllers at the end of a cable.
async fn at_a_cable(stage: &Stage<'_>, nodes: &Nodes) -> Result<(Cable, Replica), Failure> {
    let cable = Cable::lay(stage.scene).await?;
    let settings = patient(nodes.settings(stage.settings()));
    let server = cable.server();
    let replica = stage
        .start("one", rights::ACCOUNT, Some(&server), &settings)
        .await?;
    replica.until_leading(stage.scene).await?;
    Ok((cable, replica))
}

/// Waits until the pods of all runs have ended, whatever the runs say.
async fn all_pods_ended(stage: &Stage<'_>, count: usize) -> Result<(), Failure> {
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
async fn goes_on(stage: &Stage<'_>, before: &[&str], after: &str) -> Result<(), Failure> {
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

#[tokio::test]
async fn runs_go_on_after_the_connection_is_cut() -> Result<(), Failure> {
    beside_others("connection-cut", async |stage| {
        let mut nodes = Nodes::of(stage, "1s");
        nodes.add("zone-a").await?;
        let (cable, mut controllers) = at_a_cable(stage, &nodes).await?;
        stage.agent("worker", "true").await?;
        stage.run("worker", "one", &json!({})).await?;
        until(&stage.scene.api::<Job>(), "one-job", "to be there", |_| true).await?;

        cable.cut();
        all_pods_ended(stage, 1).await?;
        stage.run("worker", "two", &json!({})).await?;
        cable.mend();

        goes_on(stage, &["one", "two"], "three").await?;
        assert!(controllers.is_alive()?);
        nodes.remove_all().await
    })
    .await
}

/// Nobody says that the connections are dead. Each watch finds out by itself, because none lasts for ever.
#[tokio::test]
async fn runs_go_on_after_the_connection_falls_silent() -> Result<(), Failure> {
    beside_others("connection-silent", async |stage| {
        let mut nodes = Nodes::of(stage, "1s");
        nodes.add("zone-a").await?;
        let (cable, mut controllers) = at_a_cable(stage, &nodes).await?;
        stage.agent("worker", "true").await?;
        stage.run("worker", "one", &json!({})).await?;
        until(&stage.scene.api::<Job>(), "one-job", "to be there", |_| true).await?;

        cable.silence();
        all_pods_ended(stage, 1).await?;
        stage.run("worker", "two", &json!({})).await?;
        cable.mend();

        goes_on(stage, &["one", "two"], "three").await?;
        assert!(controllers.is_alive()?);
        nodes.remove_all().await
    })
    .await
}

/// The controllers come back with versions that neither etcd nor the API server remembers: 410, and everything is listed anew.
#[tokio::test]
async fn runs_go_on_after_etcd_forgot_what_the_watches_were_at() -> Result<(), Failure> {
    alone("compacted", async |stage| {
        let mut nodes = Nodes::of(stage, "1s");
        nodes.add("zone-a").await?;
        let (cable, mut controllers) = at_a_cable(stage, &nodes).await?;
        stage.agent("worker", "true").await?;
        stage.run("worker", "one", &json!({})).await?;
        until(&stage.scene.api::<Job>(), "one-job", "to be there", |_| true).await?;

        cable.cut();
        all_pods_ended(stage, 1).await?;
        stage.run("worker", "two", &json!({})).await?;
        let bench = stage.scene.bench();
        let version = now(stage).await?;
        bench.stop(Part::ApiServer).await?;
        compact(version).await?;
        bench.start(Part::ApiServer).await?;
        bench.until_ready(&stage.scene.admin()).await?;
        now(stage).await?;
        cable.mend();

        goes_on(stage, &["one", "two"], "three").await?;
        assert!(controllers.is_alive()?);
        let log = controllers.log()?;
        assert!(
            log.contains("too old resource version"),
            "no watch was told that it is too late"
        );
        nodes.remove_all().await
    })
    .await
}

/// The version of the cluster after a write.
async fn now(stage: &Stage<'_>) -> Result<u64, Failure> {
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"generateName": "now-"}}))?;
    let map = stage
        .scene
        .api::<ConfigMap>()
        .create(&PostParams::default(), &map)
        .await?;
    Ok(map.metadata.resource_version.ok_or("no version")?.parse()?)
}

/// Makes etcd forget everything before a version.
async fn compact(version: u64) -> Result<(), Failure> {
    let body = json!({"revision": version.to_string(), "physical": true}).to_string();
    let request = format!(
        "POST /v3/kv/compaction HTTP/1.1\r\nHost: {ETCD}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(ETCD).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    if answer.starts_with("HTTP/1.1 200") {
        return Ok(());
    }
    Err(format!("etcd did not compact: {answer}").into())
}

#[tokio::test]
async fn runs_go_on_after_the_api_server_and_etcd_were_away() -> Result<(), Failure> {
    alone("api-away", async |stage| {
        let mut nodes = Nodes::of(stage, "1s");
        nodes.add("zone-a").await?;
        let mut controllers = stage
            .lead("one", &patient(nodes.settings(stage.settings())))
            .await?;
        stage.agent("worker", "true").await?;
        let bench = stage.scene.bench();
        for (part, before, after) in [(Part::ApiServer, "one", "two"), (Part::Etcd, "three", "four")] {
            stage.run("worker", before, &json!({})).await?;
            until(
                &stage.scene.api::<Job>(),
                &format!("{before}-job"),
                "to be there",
                |_| true,
            )
            .await?;

            bench.stop(part).await?;
            bench.start(part).await?;
            bench.until_ready(&stage.scene.admin()).await?;

            goes_on(stage, &[before], after).await?;
        }
        assert!(controllers.is_alive()?);
        nodes.remove_all().await
    })
    .await
}

#[tokio::test]
async fn a_run_goes_on_while_its_kubelet_is_started_again() -> Result<(), Failure> {
    alone("kubelet-away", async |stage| {
        let mut controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        let bench = stage.scene.bench();
        stage
            .script(
                "works",
                "sleep 3; echo '{\"summary\": \"still here\"}' > $AGENT_OUTCOME_PATH",
            )
            .await?;
        stage.working("works", 1).await?;

        bench.stop(Part::Kubelet).await?;
        bench.start(Part::Kubelet).await?;

        let run = stage.reached("works", &RunPhase::Succeeded).await?;
        let outcome = run.status.as_ref().and_then(|status| status.outcome.as_ref());
        assert_eq!(
            outcome.and_then(|outcome| outcome.summary.as_deref()),
            Some("still here")
        );
        assert!(controllers.is_alive()?);
        Ok(())
    })
    .await
}
