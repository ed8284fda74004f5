//! What lets Jobs go when there are no controllers.

use std::collections::BTreeSet;

use jangar_api::{
    agents::agent_run::AgentRun,
    labels::{ARCHIVE_FINALIZER, JOB_STATUS_FINALIZER, RUNTIME_CLEANUP_FINALIZER},
    orchestration::orchestration_run::OrchestrationRun,
    tools::ToolRun,
};
use jangar_controllers::release_jobs::{Fate, Release, leader, release_jobs};
use jangar_engine::settings::{LeaseSettings, Namespaces};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Namespace, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    driver::stage::cluster_with_kinds,
    support::{Cluster, NAMESPACE, seconds},
};

async fn job(cluster: &Cluster, namespace: &str, name: &str, finalizers: &[&str]) {
    let pod = json!({
        "restartPolicy": "Never", "containers": [{ "name": "agent", "image": "example.com/agent:1" }],
    });
    let job = json!({
        "metadata": { "name": name, "finalizers": finalizers }, "spec": { "template": { "spec": pod } },
    });
    let job: Job = serde_json::from_value(job).unwrap();
    let jobs = Api::namespaced(cluster.client(), namespace);
    jobs.create(&PostParams::default(), &job).await.unwrap();
}

async fn released(cluster: &Cluster, namespaces: &Namespaces, dry_run: bool) -> Vec<String> {
    let mut told = Vec::new();
    let tell = |release: &Release| {
        let fate = match &release.fate {
            Fate::Released => "released",
            Fate::WouldBe => "would be",
            Fate::Gone => "gone",
            Fate::Failed(_) => "failed",
        };
        let leaves = release.leaves.as_ref().map(|left| format!(": {left}"));
        let leaves = leaves.unwrap_or_default();
        told.push(format!("{}/{} {fate}{leaves}", release.namespace, release.name));
    };
    release_jobs(&cluster.client(), namespaces, dry_run, tell)
        .await
        .unwrap();
    told
}

fn here() -> Namespaces {
    Namespaces::These(BTreeSet::from([NAMESPACE.to_owned()]))
}

#[tokio::test(start_paused = true)]
async fn every_job_that_is_held_is_let_go_once_and_the_finalizers_of_others_stay() {
    let cluster = Cluster::start().await;
    let mut other = Namespace::default();
    other.metadata.name = Some("other".to_owned());
    let namespaces = Api::all(cluster.client());
    namespaces.create(&PostParams::default(), &other).await.unwrap();
    job(
        &cluster,
        NAMESPACE,
        "both",
        &["example.com/theirs", JOB_STATUS_FINALIZER],
    )
    .await;
    job(&cluster, NAMESPACE, "free", &[]).await;
    job(&cluster, NAMESPACE, "theirs", &["example.com/theirs"]).await;
    job(&cluster, "other", "elsewhere", &[JOB_STATUS_FINALIZER]).await;

    assert_eq!(released(&cluster, &here(), true).await, ["agents/both would be"]);
    assert_eq!(released(&cluster, &here(), false).await, ["agents/both released"]);

    let jobs: Api<Job> = Api::namespaced(cluster.client(), NAMESPACE);
    assert_eq!(
        jobs.get("both").await.unwrap().finalizers(),
        ["example.com/theirs"]
    );
    assert_eq!(
        released(&cluster, &here(), false).await,
        [] as [&str; 0],
        "nothing is left to do"
    );
    assert_eq!(
        released(&cluster, &Namespaces::All, false).await,
        ["other/elsewhere released"]
    );
}

/// One that was made by us, because Kubernetes leaves its Job to us.
#[tokio::test(start_paused = true)]
async fn pods_are_let_go_as_well() {
    let cluster = Cluster::start().await;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    for (name, finalizers) in [
        ("ours", json!([JOB_STATUS_FINALIZER])),
        ("theirs", json!(["example.com/theirs"])),
    ] {
        let pod = json!({
            "metadata": { "name": name, "finalizers": finalizers },
            "spec": { "containers": [{ "name": "agent", "image": "example.com/agent:1" }] },
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }

    assert_eq!(released(&cluster, &here(), false).await, ["agents/ours released"]);
    assert_eq!(pods.get("ours").await.unwrap().finalizers(), [] as [&str; 0]);
    assert_eq!(
        pods.get("theirs").await.unwrap().finalizers(),
        ["example.com/theirs"]
    );
}

#[tokio::test(start_paused = true)]
async fn runs_of_steps_are_let_go_whatever_their_kind() {
    let cluster = cluster_with_kinds().await;
    let metadata = |name: &str| json!({ "name": name, "finalizers": [RUNTIME_CLEANUP_FINALIZER] });
    let tool: ToolRun = serde_json::from_value(json!({
        "apiVersion": "tools.proompteng.ai/v1alpha1", "kind": "ToolRun",
        "metadata": metadata("tool"), "spec": { "toolRef": { "name": "lint" } },
    }))
    .unwrap();
    let nested: OrchestrationRun = serde_json::from_value(json!({
        "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun",
        "metadata": metadata("nested"), "spec": { "orchestrationRef": { "name": "inner" } },
    }))
    .unwrap();
    let tools: Api<ToolRun> = Api::namespaced(cluster.client(), NAMESPACE);
    tools.create(&PostParams::default(), &tool).await.unwrap();
    let orchestrations: Api<OrchestrationRun> = Api::namespaced(cluster.client(), NAMESPACE);
    orchestrations
        .create(&PostParams::default(), &nested)
        .await
        .unwrap();

    assert_eq!(
        released(&cluster, &here(), false).await,
        ["agents/tool released", "agents/nested released"]
    );
}

#[tokio::test(start_paused = true)]
async fn runs_that_are_held_are_let_go_and_what_they_leave_is_told() {
    let cluster = cluster_with_kinds().await;
    let runs: Api<AgentRun> = Api::namespaced(cluster.client(), NAMESPACE);
    let url = "https://agents.example.com/run";
    for (name, runtime, finalizers, status) in [
        ("free", "job", json!(["example.com/theirs"]), json!({})),
        (
            "outside",
            "custom",
            json!([RUNTIME_CLEANUP_FINALIZER]),
            json!({ "phase": "Running", "runtimeRef": { "type": "custom", "name": url } }),
        ),
        (
            "token",
            "job",
            json!(["example.com/theirs", RUNTIME_CLEANUP_FINALIZER, ARCHIVE_FINALIZER]),
            json!({ "phase": "Running", "vcs": { "tokenExpiresAt": "2026-03-01T11:00:00Z" } }),
        ),
    ] {
        let run = json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun",
            "metadata": { "name": name, "finalizers": finalizers },
            "spec": {
                "agentRef": { "name": "coder" }, "implementation": { "inline": { "text": "Do it." } },
                "runtime": { "type": runtime, "config": { "endpoint": url } },
            },
        });
        let run: AgentRun = serde_json::from_value(run).unwrap();
        runs.create(&PostParams::default(), &run).await.unwrap();
        let patch = Patch::Merge(json!({ "status": status }));
        let params = PatchParams::default();
        runs.patch_status(name, &params, &patch).await.unwrap();
    }

    let lines = [
        format!("agents/outside released: {url} is not told to stop"),
        "agents/token released: its token of a GitHub App is good until 2026-03-01T11:00:00Z".to_owned(),
    ];
    assert_eq!(released(&cluster, &here(), false).await, lines);
    let left = runs.get("token").await.unwrap();
    assert_eq!(left.finalizers(), ["example.com/theirs"]);
    assert_eq!(released(&cluster, &here(), false).await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn there_may_be_more_than_a_page_of_them() {
    let cluster = Cluster::start().await;
    for number in 0..230 {
        job(
            &cluster,
            NAMESPACE,
            &format!("held-{number:03}"),
            &[JOB_STATUS_FINALIZER],
        )
        .await;
    }

    assert_eq!(released(&cluster, &here(), false).await.len(), 230);

    let jobs: Api<Job> = Api::namespaced(cluster.client(), NAMESPACE);
    let held = jobs.list(&ListParams::default()).await.unwrap();
    assert!(held.iter().all(|job| job.finalizers().is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_lives_is_told_from_one_that_died_without_looking_at_a_clock() {
    let cluster = Cluster::start().await;
    let settings = LeaseSettings::default();
    let client = cluster.client();
    assert_eq!(
        leader(&client, &settings).await.unwrap(),
        None,
        "there is no Lease"
    );

    let lease = json!({
        "metadata": { "name": settings.name, "namespace": settings.namespace },
        "spec": { "holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "1999-01-01T00:00:00.000000Z" },
    });
    let lease: k8s_openapi::api::coordination::v1::Lease = serde_json::from_value(lease).unwrap();
    let leases = Api::namespaced(client.clone(), &settings.namespace);
    let mut lease = leases.create(&PostParams::default(), &lease).await.unwrap();
    let begin = Instant::now();
    assert_eq!(
        leader(&client, &settings).await.unwrap(),
        None,
        "it is never renewed"
    );
    assert_eq!(begin.elapsed(), seconds(15));

    let renewing = async {
        tokio::time::sleep(seconds(4)).await;
        lease.spec.as_mut().unwrap().lease_transitions = Some(1);
        leases
            .replace(&settings.name, &PostParams::default(), &lease)
            .await
            .unwrap();
    };
    let (found, ()) = tokio::join!(leader(&client, &settings), renewing);
    assert_eq!(found.unwrap().as_deref(), Some("one"));
}
