//! Jobs that Kubernetes leaves to us, where the API server does not let us say how they stand.

use jangar_api::{labels::is_held, phase::RunPhase, values::Int32};
use jangar_engine::settings::JobController;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    life::controllers_with,
    stage::{Props, cluster_with_kinds, settings},
    tap::{Answer, Tap, failure},
};
use crate::support::{seconds, settle};

const STATUS: &str = "PATCH jobs/a-job/status";

#[tokio::test(start_paused = true)]
async fn a_job_whose_status_is_refused_holds_nothing_up_and_is_not_told_for_ever() {
    let cluster = cluster_with_kinds().await;
    let props = Props { cluster: &cluster };
    props.provider("shell").await;
    props.agent("coder", "shell").await;
    let tap = Tap::new();
    tap.answer(|request| match request {
        STATUS => failure(403, "Forbidden", &json!({})),
        _ => Answer::Server,
    });
    let mut own = settings();
    own.runner.job_controller = JobController::Jangar;
    let _controllers = controllers_with(own, &cluster, &tap, "one");
    settle().await;

    let mut run = props.new_run("a", "coder");
    run.spec.ttl_seconds_after_finished = Some(Int32::from(1800));
    props.runs().create(&PostParams::default(), &run).await.unwrap();
    tokio::time::sleep(seconds(20)).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let [pod] = &pods.list(&ListParams::default()).await.unwrap().items[..] else {
        panic!("a Job has one pod")
    };
    let ended = json!({"status": {"phase": "Succeeded"}});
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&ended))
        .await
        .unwrap();
    tokio::time::sleep(seconds(600)).await;

    let status = props.runs().get("a").await.unwrap().status.unwrap();
    assert_eq!(status.phase, Some(RunPhase::Succeeded));
    assert!(!is_held(pods.get(&pod.name_any()).await.unwrap().finalizers()));
    assert!(!is_held(props.jobs().get("a-job").await.unwrap().finalizers()));
    let tries = tap.requests().iter().filter(|request| *request == STATUS).count();
    assert!((1..=12).contains(&tries), "{tries} in ten minutes");

    tokio::time::sleep(seconds(1800)).await;
    assert!(
        props.runs().get_opt("a").await.unwrap().is_none(),
        "its time was over"
    );
}
