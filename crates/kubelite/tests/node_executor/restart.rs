//! What survives the executor.
//!
//! The victim is this test program itself, told by an environment variable to serve a data directory until it is killed.

use std::{
    env, fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client, api::PostParams};
use kubelite::{
    node::executor::{Executor, PodLogStore},
    server::User,
    store::{Limits, Store},
};
use serde_json::json;

use super::cluster::{self, Cluster, condition, container, ended, eventually, phase, processes_with, shell};

const DIRECTORY: &str = "KUBELITE_TEST_NODE_DIRECTORY";

/// The victim. Does nothing unless the parent asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn victim() {
    let Some(directory) = env::var_os(DIRECTORY) else {
        return;
    };
    let dir = Path::new(&directory);
    let logs = PodLogStore::default();
    let store = Store::open(&dir.join("objects.redb"), Limits::default()).unwrap();
    let server = cluster::server(store, &logs).await;
    let client = Client::new(server.local(User::system("admin")), "default");
    let _executor = Executor::start(client.clone(), cluster::config(dir), logs)
        .await
        .unwrap();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(client);
    let mut container = shell(
        "main",
        "echo began >> /w/count; until test -e /w/go; do sleep 0.01; done; echo through",
    );
    container["volumeMounts"] = json!([{"name": "w", "mountPath": "/w"}]);
    let init = {
        let mut init = shell("init", "echo init >> /w/count");
        init["volumeMounts"] = json!([{"name": "w", "mountPath": "/w"}]);
        init
    };
    let spec = json!({
        "initContainers": [init], "containers": [container], "volumes": [{"name": "w", "emptyDir": {}}]
    });
    let pod = serde_json::from_value(cluster::pod("p", spec)).unwrap();
    // Another round may have made it.
    let _ = pods.create(&PostParams::default(), &pod).await;
    std::future::pending::<()>().await;
}

fn start_victim(dir: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "restart::victim", "--nocapture"])
        .env(DIRECTORY, dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The volume of the only pod below a data directory.
fn volume(dir: &Path) -> Option<std::path::PathBuf> {
    let pods = fs::read_dir(dir.join("data/pods")).ok()?;
    let pod = pods.flatten().next()?;
    Some(pod.path().join("volumes/w"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_executor_finds_its_pods_again_and_starts_nothing_twice() {
    let dir = cluster::directory();
    let _cleaner = Cleaner(dir.path());
    let mut victim = start_victim(dir.path());
    let began = || {
        volume(dir.path()).is_some_and(|volume| {
            fs::read_to_string(volume.join("count")).is_ok_and(|count| count.contains("began"))
        })
    };
    eventually("the container runs", began).await;
    victim.kill().unwrap();
    victim.wait().unwrap();

    let logs = PodLogStore::default();
    let store = Store::open(&dir.path().join("objects.redb"), Limits::default()).unwrap();
    let server = cluster::server(store, &logs).await;
    let client = Client::new(server.local(User::system("admin")), "default");
    let _executor = Executor::start(client.clone(), cluster::config(dir.path()), logs)
        .await
        .unwrap();
    let cluster = Found { client };
    let pod = cluster.until(|pod| phase(pod) == "Running").await;
    assert_eq!(condition(&pod, "Ready"), Some("True"));
    let volume = volume(dir.path()).unwrap();
    assert_eq!(fs::read_to_string(volume.join("count")).unwrap(), "init\nbegan\n");
    fs::write(volume.join("go"), "").unwrap();
    let pod = cluster.until(|pod| phase(pod) != "Running").await;
    assert_eq!((phase(&pod), ended(&pod, "main").exit_code), ("Succeeded", 0));
    assert_eq!(container(&pod, "main").unwrap().restart_count, 0);
}

struct Cleaner<'a>(&'a Path);

impl Drop for Cleaner<'_> {
    fn drop(&mut self) {
        cluster::kill_all(self.0);
    }
}

struct Found {
    client: Client,
}

impl Found {
    async fn until(
        &self,
        wanted: impl Fn(&k8s_openapi::api::core::v1::Pod) -> bool + Send,
    ) -> k8s_openapi::api::core::v1::Pod {
        let api: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(self.client.clone());
        let condition = |pod: Option<&k8s_openapi::api::core::v1::Pod>| pod.is_some_and(&wanted);
        let waiting = kube::runtime::wait::await_condition(api, "p", condition);
        tokio::time::timeout(cluster::PATIENCE, waiting)
            .await
            .unwrap()
            .unwrap()
            .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ended_meanwhile_is_known_and_what_vanished_is_reported_lost() {
    for killed in [false, true] {
        let mut cluster = Cluster::new().await;
        let mut container = shell(
            "main",
            "echo ready; until test -e /w/go; do sleep 0.01; done; exit 4",
        );
        container["volumeMounts"] = json!([{"name": "w", "mountPath": "/w"}]);
        let created = cluster
            .pod(
                "p",
                json!({"containers": [container], "volumes": [{"name": "w", "emptyDir": {}}]}),
            )
            .await;
        super::end::wait_for_log(&cluster, "p", "ready").await;
        let dir = cluster.pod_dir(&created);
        let attempt = dir.join("containers/main/0");
        let word = created.metadata.uid.clone().unwrap();
        cluster.stop().await;
        if killed {
            let pid: i32 = fs::read_to_string(attempt.join("pid.json"))
                .unwrap()
                .parse()
                .unwrap();
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            eventually("its tree dies with it", || processes_with(&word) == 0).await;
        } else {
            fs::write(dir.join("volumes/w/go"), "").unwrap();
            eventually("it ends", || attempt.join("exit.json").exists()).await;
        }
        cluster.restart().await;
        let pod = cluster.over("p").await;
        let end = ended(&pod, "main");
        let expected = if killed {
            (137, "ContainerStatusUnknown")
        } else {
            (4, "Error")
        };
        assert_eq!((end.exit_code, end.reason.as_deref().unwrap()), expected);
        assert!(
            cluster.log("p").await.starts_with("ready\n"),
            "its log is still there"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_pods_deleted_meanwhile_is_removed() {
    let mut cluster = Cluster::new().await;
    let created = cluster
        .script("p", "trap '' TERM; while :; do sleep 1; done")
        .await;
    cluster.running("p").await;
    cluster.stop().await;
    cluster.delete("p", Some(0)).await;
    let (dir, uid) = (cluster.pod_dir(&created), created.metadata.uid.unwrap());
    assert!(processes_with(&uid) > 0, "it outlives the executor");
    cluster.restart().await;
    eventually("its processes are dead", || processes_with(&uid) == 0).await;
    eventually("its directory is removed", || !dir.exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directory_of_a_claim_deleted_meanwhile_is_removed() {
    let mut cluster = Cluster::new().await;
    cluster.stop().await;
    let claim = cluster
        .dir
        .path()
        .join("data/claims/11111111-2222-3333-4444-555555555555");
    fs::create_dir_all(claim.join("deep")).unwrap();
    cluster.restart().await;
    eventually("the claim's directory is removed", || !claim.exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_deleted_meanwhile_is_ended_in_its_time() {
    let mut cluster = Cluster::new().await;
    let script = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let created = cluster.script("p", script).await;
    super::end::wait_for_log(&cluster, "p", "ready").await;
    cluster.stop().await;
    cluster.delete("p", Some(300)).await;
    cluster.restart().await;
    cluster.gone(&created).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_record_is_not_run_again() {
    let mut cluster = Cluster::new().await;
    let created = cluster.script("p", "sleep 1000").await;
    cluster.running("p").await;
    let uid = created.metadata.uid.clone().unwrap();
    let pid = fs::read_to_string(cluster.pod_dir(&created).join("containers/main/0/pid.json")).unwrap();
    cluster.stop().await;
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("it is dead", || processes_with(&uid) == 0).await;
    fs::remove_dir_all(cluster.pod_dir(&created)).unwrap();
    cluster.restart().await;
    let pod = cluster.over("p").await;
    let end = ended(&pod, "main");
    assert_eq!(
        (end.exit_code, end.reason.as_deref()),
        (137, Some("ContainerStatusUnknown"))
    );
}

#[tokio::test]
async fn pods_that_had_ended_before_a_restart_take_no_places() {
    let mut cluster = Cluster::new().await;
    for name in ["a", "b", "c"] {
        cluster.output(name, "true").await;
    }
    cluster.stop().await;
    // Named so that it is listed after them.
    cluster.script("new", "true").await;
    cluster.restart_with(|config| config.pods_max = 1).await;
    let pod = cluster.over("new").await;
    assert_eq!(phase(&pod), "Succeeded", "{:#}", json!(pod.status));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_attempt_that_cannot_be_removed_does_not_hold_up_the_next() {
    let cluster = Cluster::new().await;
    let script = "echo began >> /w/count; test $(wc -l < /w/count) -lt 3 || exit 0
        test $(wc -l < /w/count) -lt 2 || until test -e /w/go; do sleep 0.01; done; exit 1";
    let mut main = shell("main", script);
    main["volumeMounts"] = json!([{"name": "w", "mountPath": "/w"}]);
    let claim = json!({"metadata": {"name": "w"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let claim: PersistentVolumeClaim = cluster.create(claim).await;
    let volume = json!({"name": "w", "persistentVolumeClaim": {"claimName": "w"}});
    let spec = json!({"restartPolicy": "OnFailure", "containers": [main], "volumes": [volume]});
    let created = cluster.pod("p", spec).await;
    let attempts = cluster.pod_dir(&created).join("containers/main");
    let shared = cluster
        .dir
        .path()
        .join("data/claims")
        .join(claim.metadata.uid.unwrap());
    let began = || fs::read_to_string(shared.join("count")).unwrap_or_default();
    eventually("the second attempt waits", || began() == "began\nbegan\n").await;
    // Only what is a directory is removed.
    fs::remove_dir_all(attempts.join("0")).unwrap();
    fs::write(attempts.join("0"), "").unwrap();
    fs::write(shared.join("go"), "").unwrap();
    let pod = cluster.over("p").await;
    assert_eq!(phase(&pod), "Succeeded", "{:#}", json!(pod.status));
    assert_eq!(container(&pod, "main").unwrap().restart_count, 2);
    assert_eq!(began(), "began\nbegan\nbegan\n");
}
