//! Parts of the cluster are taken away and come back: the controllers go on without being started again.

use jangar_api::phase::RunPhase;
use jangar_testkit::cluster::{Failure, Part, until};
use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap};
use kube::api::PostParams;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    connection::{all_pods_ended, at_a_cable, goes_on, patient},
    fake_nodes::Nodes,
    stage::{Stage, alone},
};

/// Where etcd answers inside of the bench, also in JSON.
const ETCD: &str = "127.0.0.1:2379";

/// The controllers come back with versions that neither etcd nor the API server remembers: 410, and everything is listed anew.
#[tokio::test]
async fn runs_go_on_after_etcd_forgot_what_the_watches_were_at() -> Result<(), Failure> {
    alone("compacted", async |stage| {
        let mut nodes = Nodes::of(stage, "1s");
        nodes.add("zone-a").await?;
        let settings = patient(nodes.settings(stage.settings()));
        let (cable, mut controllers) = at_a_cable(stage, &settings).await?;
        stage.agent("worker", "true").await?;
        stage.run("worker", "one", &json!({})).await?;
        until(&stage.scene.api::<Job>(), "one-job", "to be there", |_| true).await?;

        cable.cut();
        all_pods_ended(stage, 1).await?;
        stage.run("worker", "two", &json!({})).await?;
        let bench = stage.scene.bench();
        let version = now(stage).await?;
        bench
            .without(Part::ApiServer, async || compact(version).await)
            .await?;
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

            bench.without(part, async || Ok(())).await?;
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
                "sleep 15; echo '{\"summary\": \"still here\"}' > $AGENT_OUTCOME_PATH",
            )
            .await?;
        stage.working("works", 1).await?;

        bench.without(Part::Kubelet, async || Ok(())).await?;

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
