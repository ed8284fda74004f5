//! What a container can see and touch, and what is left of it.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use kubelite::node::executor::Isolation;
use serde_json::json;

use super::cluster::{Cluster, condition, ended, eventually, phase, processes_with, shell};

#[tokio::test(flavor = "multi_thread")]
async fn home_and_data_directory_are_invisible() {
    let cluster = Cluster::new().await;
    assert_eq!(cluster.executor().isolation(), &Isolation::Sandboxed);
    let base = cluster.dir.path().display().to_string();
    fs::write(cluster.dir.path().join("home/private"), "secret").unwrap();
    fs::write(cluster.dir.path().join("data/private"), "secret").unwrap();
    // Below /tmp the data directory is not even there as an empty one.
    let script = format!(
        "cat {base}/home/private {base}/data/private 2>/dev/null; ls -A {base}/home; ls -A {base}/data 2>/dev/null; \
         echo \"home is $HOME\"; touch $HOME/own && ls $HOME; test -s /etc/passwd && echo the rest is visible"
    );
    let log = cluster.output("p", &script).await;
    assert_eq!(log, format!("home is {base}/home\nown\nthe rest is visible\n"));
    assert_eq!(
        fs::read_to_string(cluster.dir.path().join("home/private")).unwrap(),
        "secret"
    );
    assert!(!cluster.dir.path().join("home/own").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn exposed_paths_are_visible_and_read_only() {
    let cluster = Cluster::with(|config| {
        let tools = config.home.as_ref().unwrap().join("tools/bin");
        fs::create_dir_all(&tools).unwrap();
        fs::write(tools.join("tool"), "#!/bin/sh\necho it works\n").unwrap();
        fs::set_permissions(tools.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        config.path = format!("{}:{}", tools.display(), config.path);
        config.exposed.push(tools);
    })
    .await;
    let log = cluster
        .output(
            "p",
            "tool; touch $HOME/tools/bin/x 2>/dev/null || echo fixed; touch $HOME/y && echo mine",
        )
        .await;
    assert_eq!(log, "it works\nfixed\nmine\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn provided_files_are_at_a_place_of_their_own_and_read_only() {
    let cluster = Cluster::with(|config| {
        let tool = config.home.as_ref().unwrap().join("tool");
        fs::write(&tool, "#!/bin/sh\necho it works as $0\n").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        config.provided.insert("/opt/for-a-test/other".into(), tool);
    })
    .await;
    let script = "/opt/for-a-test/other; touch /opt/for-a-test/other 2>/dev/null || echo fixed; \
                  touch /opt/for-a-test/x 2>/dev/null || echo fixed; ls -A $HOME";
    let log = cluster.output("p", script).await;
    assert_eq!(log, "it works as /opt/for-a-test/other\nfixed\nfixed\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_is_read_only_and_tmp_is_private() {
    let cluster = Cluster::new().await;
    let base = cluster.dir.path().display().to_string();
    // A checkout below /tmp leaves its own empty path in the pod's private one.
    let private = ["/tmp/", "/var/tmp/"]
        .iter()
        .find_map(|tmp| base.strip_prefix(tmp));
    let (machine, own) = match private {
        Some(below) => ("", below.split('/').next().unwrap_or_default()),
        None => (base.as_str(), ""),
    };
    let script = format!(
        "for d in / /etc /usr /var {machine}; do touch $d/kubelite-test 2>/dev/null && echo wrote $d; done; \
         ls -A /tmp /var/tmp /run | grep -v '^systemd$' | grep -vx '{own}' | grep . ; \
         echo x > /tmp/mine && cat /tmp/mine; echo y > /var/tmp/z && cat /var/tmp/z; \
         echo > /dev/null && head -c 1 /dev/zero | wc -c; touch /dev/shm/s && echo shm; \
         mount -o remount,rw / 2>/dev/null && echo remounted; umount /proc 2>/dev/null && echo unmounted; \
         mount -t tmpfs none /mnt 2>/dev/null && echo mounted; true"
    );
    let log = cluster.output("p", &script).await;
    assert_eq!(log, "/run:\n/tmp:\n/var/tmp:\nx\ny\n1\nshm\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_sees_only_its_own_processes() {
    let cluster = Cluster::new().await;
    let log = cluster
        .output("p", "ls /proc | grep -c '^[0-9]'; cat /proc/1/cmdline | tr '\\0' ' ' | grep -c kubelite-shim; test $$$$ -ne 1 && echo child")
        .await;
    let mut lines = log.lines();
    let count: usize = lines.next().unwrap().parse().unwrap();
    assert!(count < 6, "{log}");
    assert_eq!(lines.collect::<Vec<_>>(), ["1", "child"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_that_holds_a_container_is_no_way_out_of_it() {
    let cluster = Cluster::new().await;
    // How many files it has open can be seen, but none of them can be reached.
    let script = "ls /proc/1/cwd/ && echo directory; ls /proc/1/root/ && echo root; readlink /proc/1/fd/* && echo files; \
                  cat /proc/1/fd/0 && echo file; head -c 1 /proc/1/mem && echo memory; \
                  ls /proc/self/cwd/ > /dev/null && readlink /proc/self/fd/0";
    let log = cluster.output("p", &format!("exec 2>/dev/null; {script}")).await;
    assert_eq!(log, "/dev/null\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_whom_it_asks_to_be() {
    let cluster = Cluster::new().await;
    let mut container = shell(
        "main",
        "id -u; id -g; touch /tmp/x; stat -c %u /tmp/x; grep NoNewPrivs /proc/self/status",
    );
    container["securityContext"] = json!({"runAsUser": 1234, "runAsGroup": 4321, "runAsNonRoot": true});
    cluster.pod("p", json!({"containers": [container]})).await;
    cluster.over("p").await;
    assert_eq!(cluster.log("p").await, "1234\n4321\n1234\nNoNewPrivs:\t1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_die_with_their_container_and_nothing_is_left() {
    let cluster = Cluster::new().await;
    let word = cluster
        .dir
        .path()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let mounts = || {
        fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .matches(&word)
            .count()
    };
    let script = format!(
        "setsid sh -c 'trap \"\" TERM HUP; sleep 1000; : {word}-orphan' & mkdir -p /tmp/a/b; chmod 0 /tmp/a; echo started"
    );
    cluster.script("p", &script).await;
    let pod = cluster.over("p").await;
    assert_eq!(phase(&pod), "Succeeded");
    assert_eq!(processes_with(&format!("{word}-orphan")), 0);
    let dir = cluster.pod_dir(&pod);
    let left = || {
        ["tmp", "home", "root", "run.json"]
            .iter()
            .any(|name| dir.join("containers/main/0").join(name).exists())
    };
    eventually("what only the container needed goes", || !left()).await;
    eventually("the volumes go", || !dir.join("volumes").exists()).await;
    assert_eq!(cluster.log("p").await, "started\n", "the log stays");
    cluster.delete("p", None).await;
    cluster.gone(&pod).await;
    eventually("nothing is left of the pod", || !dir.exists()).await;
    assert_eq!(mounts(), 0);
    assert_eq!(processes_with(&word), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_sandbox_the_status_says_so_and_orphans_die_too() {
    let cluster = Cluster::unsandboxed().await;
    let word = cluster
        .dir
        .path()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let mut container = shell(
        "main",
        &format!(
            "setsid sh -c 'trap \"\" TERM HUP; sleep 1000; : {word}-orphan' & echo hello > $FILE; cat $KUBELITE_ROOT/w/f; echo $HOME"
        ),
    );
    container["env"] = json!([{"name": "FILE", "value": "/w/f"}]);
    container["volumeMounts"] = json!([{"name": "w", "mountPath": "/w"}]);
    cluster
        .pod(
            "p",
            json!({"containers": [container], "volumes": [{"name": "w", "emptyDir": {}}]}),
        )
        .await;
    let pod = cluster.over("p").await;
    let log = cluster.log("p").await;
    assert_eq!(phase(&pod), "Succeeded", "{log}");
    assert_eq!(condition(&pod, "kubelite.dev/Sandboxed"), Some("False"));
    assert!(log.starts_with("hello\n") && log.contains(&word), "{log}");
    assert_eq!(processes_with(&format!("{word}-orphan")), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_sandbox_relative_and_temporary_files_are_the_containers_own() {
    let cluster = Cluster::unsandboxed().await;
    let mut container = shell(
        "main",
        "cat w/f; touch $SCRATCH $TMPDIR/b; ls tmp; echo found > dev/termination-log; pwd",
    );
    container["env"] = json!([{"name": "SCRATCH", "value": "/tmp/kubelite-a"}]);
    container["volumeMounts"] = json!([{"name": "w", "mountPath": "/w"}]);
    let mut first = shell("first", "echo hello > f");
    first["workingDir"] = json!("/w");
    first["volumeMounts"] = container["volumeMounts"].clone();
    cluster
        .pod(
            "p",
            json!({
                "initContainers": [first], "containers": [container],
                "volumes": [{"name": "w", "emptyDir": {}}],
            }),
        )
        .await;
    let pod = cluster.over("p").await;
    let log = cluster.log("p").await;
    assert_eq!(phase(&pod), "Succeeded", "{log}");
    let data = cluster.dir.path().display();
    assert!(log.starts_with(&format!("hello\nb\nkubelite-a\n{data}")), "{log}");
    assert_eq!(ended(&pod, "main").message.as_deref(), Some("found\n"));
    assert!(!Path::new("/tmp/kubelite-a").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_is_no_sandbox_to_be_had_pods_are_rejected() {
    // A shim that cannot make a sandbox stands for a kernel that refuses.
    let cluster = Cluster::with(|config| config.shim = "/bin/false".into()).await;
    assert!(matches!(
        cluster.executor().isolation(),
        Isolation::Refused { .. }
    ));
    cluster.script("p", "true").await;
    let pod = cluster.over("p").await;
    let status = pod.status.as_ref().unwrap();
    assert_eq!(
        (phase(&pod), status.reason.as_deref()),
        ("Failed", Some("SandboxUnavailable"))
    );
}
