//! Pods on the real node really run.

use jangar_testkit::cluster::{Failure, JANGAR_IMAGE, Scene, play, until, until_list};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    ResourceExt,
    api::{LogParams, PostParams},
};
use serde_json::{Value, json};

const BUSYBOX: &str = "jangar.test/busybox:1";

/// A Job with one pod, for which nothing but the real node will do. Images cannot be pulled: there is nowhere to pull from.
fn job(mut pod: Value) -> Job {
    pod["restartPolicy"] = json!("Never");
    pod["nodeSelector"] = json!({"jangar.test/node": "real"});
    let job = json!({
        "metadata": {"name": "real"},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    });
    serde_json::from_value(job).expect("a Job")
}

/// Runs the Job to its end, and returns its pod.
async fn run(scene: &Scene, job: &Job) -> Result<Pod, Failure> {
    scene.bench().real_node()?;
    let jobs = scene.api::<Job>();
    jobs.create(&PostParams::default(), job).await?;
    until(&jobs, "real", "to have ended", |job| {
        let conditions = job
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| {
            matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
        })
    })
    .await?;
    let pods = until_list(&scene.api::<Pod>(), "job-name=real", "to be one", |pods| {
        pods.len() == 1
    })
    .await?;
    Ok(pods.into_iter().next().ok_or("no pod")?)
}

/// The exit code, the reason and the last words of the first container.
fn end_of(pod: &Pod) -> (i32, String, String) {
    let status = pod.status.as_ref().expect("a status");
    let containers = status.container_statuses.as_ref().expect("containers");
    let end = containers[0]
        .state
        .as_ref()
        .and_then(|state| state.terminated.clone());
    let end = end.expect("a container that has ended");
    (
        end.exit_code,
        end.reason.unwrap_or_default(),
        end.message.unwrap_or_default(),
    )
}

#[tokio::test]
async fn a_container_runs_what_an_init_container_copied_and_leaves_its_last_words() -> Result<(), Failure> {
    play("copied-binary", async |scene| {
        let mount = json!([{"name": "tools", "mountPath": "/tools"}]);
        let pod = run(
            scene,
            &job(json!({
                "volumes": [{"name": "tools", "emptyDir": {}}],
                "initContainers": [{
                    "name": "copy", "image": BUSYBOX, "volumeMounts": mount,
                    "command": ["cp", "/bin/busybox", "/tools/busybox"],
                }],
                "containers": [{
                    "name": "main", "image": BUSYBOX, "volumeMounts": mount,
                    "command": ["/tools/busybox", "sh", "-c", "echo from the copy; echo -n the result > /dev/termination-log"],
                }],
            })),
        )
        .await?;

        assert_eq!(end_of(&pod), (0, "Completed".to_owned(), "the result".to_owned()));
        let log = scene.api::<Pod>().logs(&pod.name_any(), &LogParams::default()).await?;
        assert_eq!(log, "from the copy\n");
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        assert!(address.is_some_and(|address| address.starts_with("10.88.")), "{address:?}");
        Ok(())
    })
    .await
}

/// What every run of an agent begins with: the init container has the image of Jangar, the container any other.
#[tokio::test]
async fn agent_runner_installs_itself_from_the_image_and_runs_in_another() -> Result<(), Failure> {
    play("jangar-image", async |scene| {
        scene.bench().import_jangar().await?;
        let mount = json!([{"name": "tools", "mountPath": "/tools"}]);
        let pod = run(
            scene,
            &job(json!({
                "volumes": [{"name": "tools", "emptyDir": {}}],
                "initContainers": [{
                    "name": "install", "image": JANGAR_IMAGE, "volumeMounts": mount,
                    "command": ["agent-runner", "install", "/tools"],
                }],
                "containers": [{
                    "name": "main", "image": BUSYBOX, "volumeMounts": mount,
                    "command": ["/tools/agent-runner", "--version"],
                }],
            })),
        )
        .await?;

        assert_eq!(end_of(&pod), (0, "Completed".to_owned(), String::new()));
        let log = scene
            .api::<Pod>()
            .logs(&pod.name_any(), &LogParams::default())
            .await?;
        assert!(log.starts_with("agent-runner "), "{log}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_container_beyond_its_memory_is_killed_for_it() -> Result<(), Failure> {
    play("out-of-memory", async |scene| {
        let pod = run(
            scene,
            &job(json!({"containers": [{
                "name": "main", "image": BUSYBOX, "command": ["tail", "/dev/zero"],
                "resources": {"limits": {"memory": "32Mi"}},
            }]})),
        )
        .await?;

        let (code, reason, _) = end_of(&pod);
        assert_eq!((code, reason.as_str()), (137, "OOMKilled"));
        Ok(())
    })
    .await
}

/// What every client in a pod depends on: the Service of the API, and so kube-proxy and the routes.
#[tokio::test]
async fn a_pod_reaches_the_api_by_its_service_and_nothing_outside() -> Result<(), Failure> {
    play("pod-network", async |scene| {
        let script = "nc -w 10 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT < /dev/null && echo api || echo no api
                      nc -w 3 198.51.100.1 443 < /dev/null && echo outside || echo no way out";
        let pod = run(
            scene,
            &job(json!({"containers": [{"name": "main", "image": BUSYBOX, "command": ["sh", "-c", script]}]})),
        )
        .await?;

        let log = scene.api::<Pod>().logs(&pod.name_any(), &LogParams::default()).await?;
        let words: Vec<_> = log.lines().filter(|line| !line.starts_with("nc:")).collect();
        assert_eq!(words, ["api", "no way out"], "{log}");
        Ok(())
    })
    .await
}
