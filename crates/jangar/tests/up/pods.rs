//! Pods of `jangar up`.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, runtime::wait::await_condition};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::process::{PATIENCE, Setup};

/// Waits until a pod is over, and returns it.
async fn over(pods: &Api<Pod>, name: &str) -> Pod {
    let over = |pod: Option<&Pod>| matches!(phase(pod).as_deref(), Some("Succeeded" | "Failed"));
    timeout(PATIENCE, await_condition(pods.clone(), name, over))
        .await
        .unwrap()
        .unwrap()
        .unwrap()
}

pub(crate) fn phase(pod: Option<&Pod>) -> Option<String> {
    pod?.status.as_ref()?.phase.clone()
}

fn message(pod: &Pod) -> Value {
    let status = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    let ended = status.state.as_ref().unwrap().terminated.as_ref().unwrap();
    serde_json::from_str(ended.message.as_deref().unwrap()).unwrap()
}

/// A pod as the controllers make one.
fn pod() -> Value {
    let runner = json!({
        "provider": "scripted",
        "providerSpec": {
            "binary": "/bin/sh",
            "args": ["-c", "ls -A $HOME; echo \"{\\\"summary\\\": \\\"it ran\\\"}\" > $AGENT_OUTCOME_PATH"],
        },
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "run"},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": true},
            "containers": [{
                "name": "agent-runner", "image": "none",
                "command": ["/opt/agent-runner/agent-runner"],
                "workingDir": "/workspace",
                "env": [{"name": "SPEC", "value": runner.to_string()}],
                "volumeMounts": [
                    {"name": "workspace", "mountPath": "/workspace"},
                    {"name": "files", "mountPath": "/workspace/agent-runner.json", "subPath": "agent-runner.json"},
                    {"name": "files", "mountPath": "/workspace/run.json", "subPath": "run.json"},
                ],
            }],
            "volumes": [
                {"name": "workspace", "emptyDir": {}},
                {"name": "files", "configMap": {"name": "files"}},
            ],
        },
    })
}

#[tokio::test]
async fn a_pod_runs_this_very_program_as_agent_runner_although_it_lies_in_the_hidden_home() {
    let base = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = base.path().join("home");
    fs::create_dir_all(home.join("bin")).unwrap();
    fs::write(home.join("private"), "not for pods").unwrap();
    let program = home.join("bin/jangar");
    fs::hard_link(env!("CARGO_BIN_EXE_jangar"), &program).unwrap();
    let up = Setup::on(&base.path().join("data"))
        .program(&program)
        .variable("HOME", home.to_str().unwrap())
        .ready();
    let pod = pod();
    let spec = &pod["spec"]["containers"][0]["env"][0]["value"];
    let files = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"},
        "data": {"agent-runner.json": spec, "run.json": "{}"},
    });
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::default_namespaced(up.client().await);
    maps.create(
        &kube::api::PostParams::default(),
        &serde_json::from_value(files).unwrap(),
    )
    .await
    .unwrap();

    let pods = up.pod(&pod).await;

    let pod = over(&pods, "run").await;
    assert_eq!(
        phase(Some(&pod)).as_deref(),
        Some("Succeeded"),
        "{:#?}",
        pod.status
    );
    let outcome = message(&pod);
    assert_eq!(
        (&outcome["reason"], &outcome["summary"]),
        (&json!("Completed"), &json!("it ran"))
    );
    let log = pods.logs("run", &kube::api::LogParams::default()).await.unwrap();
    assert_eq!(log, "", "of the home there is nothing");
}
