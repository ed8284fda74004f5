//! What volumes hold and where they are.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::{Api, api::DeleteParams, runtime::wait::await_condition};
use serde_json::{Value, json};

use super::cluster::{Cluster, PATIENCE, phase, shell, waits_for};

fn mounted(script: &str, volumes: &Value, mounts: &Value) -> Value {
    let mut container = shell("main", script);
    container["volumeMounts"] = mounts.clone();
    json!({"containers": [container], "volumes": volumes})
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_every_source_are_where_they_belong() {
    let cluster = Cluster::new().await;
    cluster
        .create::<ConfigMap>(json!({"metadata": {"name": "m"}, "data": {"a": "map a", "b": "map b"}}))
        .await;
    cluster
        .create::<Secret>(json!({"metadata": {"name": "s"}, "stringData": {"key": "secret"}}))
        .await;
    let volumes = json!([
        {"name": "map", "configMap": {"name": "m"}},
        {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o400, "items": [{"key": "key", "path": "x/y"}]}},
        {"name": "downward", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"name": "all", "projected": {"sources": [
            {"configMap": {"name": "m", "items": [{"key": "a", "path": "one"}]}},
            {"secret": {"name": "s", "items": [{"key": "key", "path": "two"}]}},
            {"secret": {"name": "none", "optional": true}},
            {"serviceAccountToken": {"path": "token"}}
        ]}}
    ]);
    let mounts = json!([
        {"name": "map", "mountPath": "/map"},
        {"name": "map", "mountPath": "/etc/app/only", "subPath": "b"},
        {"name": "secret", "mountPath": "/opt/secrets"},
        {"name": "downward", "mountPath": "/pod-info"},
        {"name": "all", "mountPath": "/map-too/all"}
    ]);
    let script = "cat /map/a /map/b /etc/app/only /opt/secrets/x/y /pod-info/name /map-too/all/one /map-too/all/two; \
        echo; stat -c %a /opt/secrets/x/y /map/a; ls /map-too/all; ls -d /etc/passwd; \
        (echo x > /map/a) 2>/dev/null || echo read-only";
    cluster.pod("p", mounted(script, &volumes, &mounts)).await;
    cluster.over("p").await;
    let log = cluster.log("p").await;
    assert_eq!(
        log,
        "map amap bmap bsecretpmap asecret\n400\n644\none\ntwo\n/etc/passwd\nread-only\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_mounted_by_sub_path_and_read_only() {
    let cluster = Cluster::new().await;
    let volumes = json!([{"name": "w", "emptyDir": {}}]);
    let mounts = json!([
        {"name": "w", "mountPath": "/w"},
        {"name": "w", "mountPath": "/part", "subPath": "deep/part"},
        {"name": "w", "mountPath": "/w-fixed", "readOnly": true},
        {"name": "w", "mountPath": "/by-name", "subPathExpr": "$(POD)"}
    ]);
    let script = "echo 1 > /part/file; cat /w/deep/part/file /w-fixed/deep/part/file; touch /by-name/x; ls /w/p; \
        touch /w-fixed/no 2>/dev/null || echo fixed";
    let mut spec = mounted(script, &volumes, &mounts);
    spec["containers"][0]["env"] = json!([{"name": "POD", "value": "p"}]);
    cluster.pod("p", spec).await;
    cluster.over("p").await;
    assert_eq!(cluster.log("p").await, "1\n1\nx\nfixed\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_a_volume_leads_no_container_out_of_it() {
    let cluster = Cluster::new().await;
    let mount = json!([{"name": "w", "mountPath": "/w"}]);
    let mut init = shell("init", "ln -s / /w/out");
    init["volumeMounts"] = mount;
    let mut main = shell("main", "ls /x");
    main["volumeMounts"] = json!([{"name": "w", "mountPath": "/x", "subPath": "out/etc"}]);
    let spec =
        json!({"initContainers": [init], "containers": [main], "volumes": [{"name": "w", "emptyDir": {}}]});
    cluster.pod("p", spec).await;
    let pod = cluster.over("p").await;
    let end = super::cluster::ended(&pod, "main");
    assert_eq!((end.exit_code, end.reason.as_deref()), (128, Some("StartError")));
    assert!(end.message.as_ref().unwrap().contains("symbolic link"), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_waits_for_its_object() {
    let cluster = Cluster::new().await;
    let volumes = json!([{"name": "v", "configMap": {"name": "late"}}]);
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    cluster.pod("p", mounted("cat /v/k", &volumes, &mounts)).await;
    let message = "MountVolume.SetUp failed for volume \"v\" : configmap \"late\" not found";
    let blocked = |pod: &Pod| waits_for(pod, "main") == Some(("ContainerCreating", message));
    cluster.until("p", blocked).await;
    cluster
        .create::<ConfigMap>(json!({"metadata": {"name": "late"}, "data": {"k": "v"}}))
        .await;
    cluster.over("p").await;
    assert_eq!(cluster.log("p").await, "v");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_bound_on_first_use_and_outlives_its_pods() {
    let cluster = Cluster::new().await;
    let claim: PersistentVolumeClaim = cluster
        .create(json!({"metadata": {"name": "c"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}
        }}))
        .await;
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    let first = cluster
        .pod("first", mounted("echo kept > /v/file", &volumes, &mounts))
        .await;
    assert_eq!(phase(&cluster.over("first").await), "Succeeded");
    cluster.delete("first", None).await;
    cluster.gone(&first).await;
    cluster
        .pod("second", mounted("cat /v/file", &volumes, &mounts))
        .await;
    cluster.over("second").await;
    assert_eq!(cluster.log("second").await, "kept\n");

    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    let status = claims.get("c").await.unwrap().status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Bound"));
    assert_eq!(status.capacity.unwrap()["storage"].0, "1Gi");
    claims.delete("c", &DeleteParams::default()).await.unwrap();
    let gone = |claim: Option<&PersistentVolumeClaim>| claim.is_none();
    tokio::time::timeout(PATIENCE, await_condition(claims, "c", gone))
        .await
        .unwrap()
        .unwrap();
    let dir = cluster
        .dir
        .path()
        .join("data/claims")
        .join(claim.metadata.uid.unwrap());
    super::cluster::eventually("the claim's directory is removed", || !dir.exists()).await;
}
