//! Objects that are there and cannot be read, as after a change of the schema they were stored under.

use jangar_api::{Kind, agents::agent::Agent, condition::ConditionType, phase::RunPhase};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    life::controllers,
    stage::{Props, cluster_with_kinds},
    tap::Tap,
};
use crate::support::{Cluster, settle};

/// Lets the API server take any Agent, as an older definition might have.
pub(super) async fn loosen_agents(cluster: &Cluster) {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let name = Kind::Agent.crd().metadata.name.unwrap();
    let mut definition = definitions.get(&name).await.unwrap();
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut().unwrap();
        schema.open_api_v3_schema = Some(JSONSchemaProps {
            type_: Some("object".to_owned()),
            x_kubernetes_preserve_unknown_fields: Some(true),
            ..JSONSchemaProps::default()
        });
    }
    let params = PostParams::default();
    definitions.replace(&name, &params, &definition).await.unwrap();
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_says_which_object_and_field_cannot_be_read_and_goes_on_when_it_is_mended() {
    let cluster = cluster_with_kinds().await;
    loosen_agents(&cluster).await;
    let _controllers = controllers(&cluster, &Tap::new(), "one");
    settle().await;
    let props = Props { cluster: &cluster };
    props.provider("shell").await;
    let kind = ApiResource::erase::<Agent>(&());
    let agents: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &kind);
    let bad = json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "Agent", "metadata": { "name": "coder" },
        "spec": { "providerRef": { "name": "shell" }, "env": "many" },
    });
    let bad: DynamicObject = serde_json::from_value(bad).unwrap();
    agents.create(&PostParams::default(), &bad).await.unwrap();

    props.run("a", "coder").await;
    settle().await;

    let status = props.runs().get("a").await.unwrap().status.unwrap();
    assert_eq!(status.phase, Some(RunPhase::Pending));
    let blocked = status.common.condition(&ConditionType::Blocked).unwrap();
    assert_eq!(blocked.reason.as_str(), "UnreadableReference");
    for word in ["Agent coder", "spec.env", "mend it"] {
        assert!(blocked.message.contains(word), "{}", blocked.message);
    }

    let mended = Patch::Merge(json!({ "spec": { "env": null } }));
    let params = PatchParams::default();
    agents.patch("coder", &params, &mended).await.unwrap();
    settle().await;

    assert_eq!(props.job_names().await, ["a-job"]);
}
