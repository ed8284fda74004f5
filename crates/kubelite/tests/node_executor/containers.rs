//! What containers are given, how they end, and what the API shows of it.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use serde_json::json;

use super::cluster::{Cluster, condition, container, ended, phase, shell, waits_for};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_to_its_end_and_its_status_tells() {
    let cluster = Cluster::new().await;
    cluster.script("p", "echo done").await;
    let pod = cluster.over("p").await;
    assert_eq!(phase(&pod), "Succeeded");
    let end = ended(&pod, "main");
    assert_eq!((end.exit_code, end.reason.as_deref()), (0, Some("Completed")));
    assert!(end.started_at.is_some() && end.finished_at.is_some());
    for (kind, value) in [
        ("PodReadyToStartContainers", "False"),
        ("Initialized", "True"),
        ("Ready", "False"),
        ("ContainersReady", "False"),
        ("PodScheduled", "True"),
    ] {
        assert_eq!(condition(&pod, kind), Some(value), "{kind}");
    }
    let status = pod.status.as_ref().unwrap();
    assert!(status.start_time.is_some());
    assert_eq!(
        status.qos_class.as_deref(),
        Some("BestEffort"),
        "what the server decided stays"
    );
    assert_eq!(container(&pod, "main").unwrap().image, "none");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_pod_is_ready() {
    let cluster = Cluster::new().await;
    cluster.script("p", "read line").await;
    // Standard input is empty, so that one ends; this one does not.
    let created = cluster.script("q", "sleep 1000").await;
    let pod = cluster.running("q").await;
    assert_eq!(condition(&pod, "Ready"), Some("True"));
    let status = container(&pod, "main").unwrap();
    assert_eq!((status.ready, status.started), (true, Some(true)));
    assert_eq!(phase(&cluster.over("p").await), "Failed");
    cluster.delete("q", Some(0)).await;
    cluster.gone(&created).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_reported_with_code_and_reason() {
    let cluster = Cluster::new().await;
    for (name, command, code, reason) in [
        ("code", json!(["/bin/sh", "-c", "exit 7"]), 7, "Error"),
        ("signal", json!(["/bin/sh", "-c", "kill -9 $$$$"]), 137, "Error"),
        ("missing", json!(["no-such-program"]), 128, "StartError"),
        ("missing-path", json!(["/no/such/program"]), 128, "StartError"),
        ("forbidden", json!(["/etc/passwd"]), 128, "StartError"),
    ] {
        let container = json!({"name": "main", "image": "none", "command": command});
        cluster.pod(name, json!({"containers": [container]})).await;
        let pod = cluster.over(name).await;
        let end = ended(&pod, "main");
        assert_eq!(phase(&pod), "Failed", "{name}");
        assert_eq!(
            (end.exit_code, end.reason.as_deref()),
            (code, Some(reason)),
            "{name}"
        );
    }
    let pod = cluster.over("missing").await;
    let message = ended(&pod, "main").message.clone().unwrap();
    assert!(message.contains("images are not pulled here"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_run_in_order_before_the_others() {
    let cluster = Cluster::new().await;
    let mount = json!([{"name": "w", "mountPath": "/w"}]);
    let with = |name: &str, script: &str| {
        let mut container = shell(name, script);
        container["volumeMounts"] = mount.clone();
        container
    };
    let spec = json!({
        "volumes": [{"name": "w", "emptyDir": {}}],
        "initContainers": [with("one", "echo 1 >> /w/order"), with("two", "echo 2 >> /w/order")],
        "containers": [with("main", "echo 3 >> /w/order; cat /w/order"), with("other", "cat /w/order")],
    });
    cluster.pod("p", spec).await;
    let pod = cluster.over("p").await;
    assert_eq!(phase(&pod), "Succeeded");
    let params = kube::api::LogParams {
        container: Some("main".to_owned()),
        ..kube::api::LogParams::default()
    };
    assert_eq!(cluster.pods().logs("p", &params).await.unwrap(), "1\n2\n3\n");
    assert_eq!(ended(&pod, "one").exit_code, 0);
    assert!(container(&pod, "one").unwrap().ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_init_container_fails_the_pod_and_nothing_else_runs() {
    let cluster = Cluster::new().await;
    let spec = json!({"initContainers": [shell("init", "exit 3")], "containers": [shell("main", "true")]});
    cluster.pod("p", spec).await;
    let pod = cluster.over("p").await;
    assert_eq!(phase(&pod), "Failed");
    assert_eq!(ended(&pod, "init").exit_code, 3);
    assert_eq!(waits_for(&pod, "main"), Some(("PodInitializing", "")));
    assert_eq!(condition(&pod, "Initialized"), Some("False"));
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_and_arguments_are_as_declared() {
    let cluster = Cluster::new().await;
    cluster
        .create::<ConfigMap>(json!({"metadata": {"name": "m"}, "data": {"k": "from map"}}))
        .await;
    cluster
        .create::<Secret>(json!({"metadata": {"name": "s"}, "stringData": {"token": "from secret"}}))
        .await;
    let container = json!({
        "name": "main", "image": "none", "workingDir": "/usr",
        "command": ["/bin/sh", "-c", "pwd; echo \"$A,$k,$S,$POD,$CPU,$0,$HOSTNAME\""],
        "args": ["$(A)-$(B)"],
        "resources": {"limits": {"cpu": "250m"}},
        "envFrom": [{"configMapRef": {"name": "m"}}],
        "env": [
            {"name": "A", "value": "a"},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        ]
    });
    cluster.pod("p", json!({"containers": [container]})).await;
    cluster.over("p").await;
    assert_eq!(
        cluster.log("p").await,
        "/usr\na,from map,from secret,p,250,a-$(B),p\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_object_is_waited_for_by_name() {
    let cluster = Cluster::new().await;
    let mut container = shell("main", "echo $T");
    container["env"] = json!([{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "t"}}}]);
    cluster.pod("p", json!({"containers": [container]})).await;
    let blocked =
        |pod: &Pod| waits_for(pod, "main") == Some(("CreateContainerConfigError", "secret \"s\" not found"));
    let pod = cluster.until("p", blocked).await;
    assert_eq!(phase(&pod), "Pending");
    cluster
        .create::<Secret>(json!({"metadata": {"name": "s"}, "stringData": {"other": "x"}}))
        .await;
    let no_key = (
        "CreateContainerConfigError",
        "couldn't find key t in Secret default/s",
    );
    cluster
        .until("p", |pod| waits_for(pod, "main") == Some(no_key))
        .await;
    let secrets: kube::Api<Secret> = kube::Api::default_namespaced(cluster.client.clone());
    let patch = kube::api::Patch::Merge(json!({"stringData": {"t": "here"}}));
    secrets
        .patch("s", &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap();
    cluster.over("p").await;
    assert_eq!(cluster.log("p").await, "here\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_a_command_says_what_to_do() {
    let cluster = Cluster::with(|config| {
        let command = ["/bin/echo", "known"].map(str::to_owned).to_vec();
        config.entrypoints.insert("known".to_owned(), command);
    })
    .await;
    let created = cluster
        .pod("p", json!({"containers": [{"name": "main", "image": "busybox"}]}))
        .await;
    let pod = cluster
        .until("p", |pod| {
            waits_for(pod, "main").is_some_and(|(_, text)| !text.is_empty())
        })
        .await;
    let (reason, message) = waits_for(&pod, "main").unwrap();
    assert_eq!(reason, "CreateContainerError");
    assert!(message.contains("set the container's `command`"), "{message}");
    cluster.delete("p", None).await;
    cluster.gone(&created).await;

    cluster
        .pod(
            "q",
            json!({"containers": [{"name": "main", "image": "known", "args": ["x"]}]}),
        )
        .await;
    cluster.over("q").await;
    assert_eq!(cluster.log("q").await, "known x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_containers_are_started_again_until_they_succeed() {
    let cluster = Cluster::new().await;
    let mut container = shell("main", "echo x >> /w/tries; test $(wc -l < /w/tries) -ge 3");
    container["volumeMounts"] = json!([{"name": "w", "mountPath": "/w"}]);
    let spec = json!({
        "restartPolicy": "OnFailure", "containers": [container], "volumes": [{"name": "w", "emptyDir": {}}]
    });
    cluster.pod("p", spec).await;
    let pod = cluster.over("p").await;
    let status = container_of(&pod);
    assert_eq!((phase(&pod), status.restart_count), ("Succeeded", 2));
    let last = status.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(last.exit_code, 1);
}

fn container_of(pod: &Pod) -> &k8s_openapi::api::core::v1::ContainerStatus {
    container(pod, "main").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_keeps_failing_is_kept_waiting() {
    let cluster = Cluster::with(|config| config.backoff = kubelite::node::executor::Backoff::default()).await;
    let spec = json!({"restartPolicy": "Always", "containers": [shell("main", "exit 1")]});
    let created = cluster.pod("p", spec).await;
    let waiting = |pod: &Pod| waits_for(pod, "main").is_some_and(|(reason, _)| reason == "CrashLoopBackOff");
    let pod = cluster.until("p", waiting).await;
    assert_eq!((phase(&pod), container_of(&pod).restart_count), ("Running", 1));
    let (_, message) = waits_for(&pod, "main").unwrap();
    assert!(
        message.starts_with("back-off 10s restarting failed container=main pod=p_default("),
        "{message}"
    );
    cluster.delete("p", None).await;
    cluster.gone(&created).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn termination_messages_are_kept_within_bounds() {
    let cluster = Cluster::new().await;
    let spec = json!({"containers": [
        shell("plain", "echo -n told > /dev/termination-log"),
        {
            "name": "file", "image": "none", "terminationMessagePath": "/w/deep/message",
            "volumeMounts": [{"name": "w", "mountPath": "/w"}],
            "command": ["/bin/sh", "-c", "head -c 5000 /dev/zero | tr '\\0' x > /w/deep/message; echo -n end >> /w/deep/message"]
        },
        {
            "name": "logs", "image": "none", "terminationMessagePolicy": "FallbackToLogsOnError",
            "command": ["/bin/sh", "-c", "echo last words; exit 1"]
        }
    ], "volumes": [{"name": "w", "emptyDir": {}}]});
    cluster.pod("p", spec).await;
    let pod = cluster.over("p").await;
    let message = |name| ended(&pod, name).message.clone().unwrap_or_default();
    assert_eq!(message("plain"), "told");
    assert_eq!(message("logs"), "last words\n");
    let cut = message("file");
    assert!(cut.len() == 4096 && cut.ends_with("xend"), "{}", cut.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn more_pods_than_the_node_runs_are_rejected() {
    let cluster = Cluster::with(|config| config.pods_max = 1).await;
    let first = cluster.script("first", "sleep 1000").await;
    cluster.running("first").await;
    cluster.script("second", "true").await;
    let pod = cluster.over("second").await;
    let status = pod.status.as_ref().unwrap();
    assert_eq!(
        (phase(&pod), status.reason.as_deref()),
        ("Failed", Some("OutOfpods"))
    );
    cluster.delete("first", Some(0)).await;
    cluster.gone(&first).await;
    cluster.script("third", "true").await;
    assert_eq!(phase(&cluster.over("third").await), "Succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_other_nodes_are_left_alone() {
    let cluster = Cluster::new().await;
    let mut other = super::cluster::pod("other", json!({"containers": [shell("main", "true")]}));
    other["spec"]["nodeName"] = "there".into();
    cluster.create::<Pod>(other).await;
    cluster.output("own", "true").await;
    let pod = cluster.pods().get("other").await.unwrap();
    assert_eq!(phase(&pod), "Pending");
    assert_eq!(container(&pod, "main"), None);
}
