//! The name that an object of ours has to have belongs to something else.

use jangar_api::{agents::agent_provider::AgentProvider, condition::ConditionType, phase::RunPhase};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use tokio::time::sleep;

use super::{
    life::controllers,
    stage::{Props, cluster_with_kinds},
    tap::Tap,
};
use crate::support::{seconds, settle};

/// More than fits into the annotations of a pod.
const LARGE: usize = 200_000;

#[tokio::test(start_paused = true)]
async fn a_run_whose_files_have_no_place_says_so_and_starts_when_there_is_one() {
    let cluster = cluster_with_kinds().await;
    let props = Props { cluster: &cluster };
    let config_maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let foreign = json!({ "metadata": { "name": "a-spec" }, "data": { "theirs": "all" } });
    let foreign: ConfigMap = serde_json::from_value(foreign).unwrap();
    config_maps
        .create(&PostParams::default(), &foreign)
        .await
        .unwrap();
    let provider = json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentProvider",
        "metadata": { "name": "shell" },
        "spec": {
            "binary": "/bin/true",
            "inputFiles": [{ "path": "/workspace/large", "content": "x".repeat(LARGE) }],
        },
    });
    let provider: AgentProvider = serde_json::from_value(provider).unwrap();
    let providers = Api::default_namespaced(cluster.client());
    providers.create(&PostParams::default(), &provider).await.unwrap();
    props.agent("coder", "shell").await;
    let tap = Tap::new();
    let _controllers = controllers(&cluster, &tap, "one");
    settle().await;

    props.run("a", "coder").await;
    settle().await;

    let status = props.runs().get("a").await.unwrap().status.unwrap();
    assert_eq!(status.phase, Some(RunPhase::Pending));
    let blocked = status.common.condition(&ConditionType::Blocked).unwrap();
    assert_eq!(blocked.reason.as_str(), "NameTaken");
    assert!(
        blocked.message.contains("a-spec") && blocked.message.contains("delete"),
        "{}",
        blocked.message
    );
    assert_eq!(props.job_names().await, [] as [&str; 0]);
    tap.forget();
    sleep(seconds(300)).await;
    let tries = tap
        .requests()
        .iter()
        .filter(|request| *request == "POST configmaps")
        .count();
    assert_eq!(tries, 10, "one in 30 s");
    let kept = config_maps.get("a-spec").await.unwrap();
    assert_eq!(kept.data, foreign.data, "what is not ours is left alone");

    config_maps
        .delete("a-spec", &DeleteParams::default())
        .await
        .unwrap();
    sleep(seconds(31)).await;

    assert_eq!(props.job_names().await, ["a-job"]);
}
