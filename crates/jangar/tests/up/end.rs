//! How it ends, and what happens to pods then.

use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams, runtime::wait::await_condition};
use rustix::process::Signal;
use tokio::time::timeout;

use crate::{
    pods::phase,
    process::{PATIENCE, Setup, processes_with},
};

/// Says when it is asked to end, and goes on for another while. The shell tells of its own children that were terminated too, on
/// the standard error; that is not for these tests.
const STUBBORN: &str =
    "exec 2>/dev/null; trap 'echo asked' TERM; echo started; while :; do sleep 1000 & wait $$!; done";
/// Ends when it is asked to.
const POLITE: &str =
    "exec 2>/dev/null; trap 'echo asked; exit 0' TERM; echo started; while :; do sleep 1000 & wait $$!; done";

/// A word by which the processes of one test can be found.
fn word(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// Waits until the pod has printed the line.
async fn printed(pods: &Api<Pod>, name: &str, line: &str) {
    let params = LogParams {
        follow: true,
        ..LogParams::default()
    };
    let found = async {
        loop {
            // As long as the container has not started there is no log.
            let Ok(stream) = pods.log_stream(name, &params).await else {
                tokio::task::yield_now().await;
                continue;
            };
            let mut lines = stream.lines();
            while let Ok(Some(printed)) = lines.try_next().await {
                if printed == line {
                    return;
                }
            }
        }
    };
    timeout(PATIENCE, found).await.unwrap();
}

fn script(word: &str, script: &str) -> String {
    format!(": {word}; {script}")
}

#[tokio::test]
async fn sigterm_ends_pods_within_their_grace_and_then_itself() {
    let directory = tempfile::tempdir().unwrap();
    let word = word("polite");
    let up = Setup::on(directory.path()).ready();
    let pods = up.script("p", &script(&word, POLITE), 600).await;
    printed(&pods, "p", "started").await;
    assert!(processes_with(&word) > 0);

    assert_eq!(up.stop(), Some(0));

    assert_eq!(processes_with(&word), 0);
    let up = Setup::on(directory.path()).ready();
    let pods: Api<Pod> = Api::default_namespaced(up.client().await);
    let log = pods.logs("p", &LogParams::default()).await.unwrap();
    assert_eq!(log, "started\nasked\n");
    // That it was stopped is not the pod's own failure. What the first one could not write any more, the second one does.
    let disrupted = |pod: Option<&Pod>| {
        let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|condition| condition.type_ == "DisruptionTarget"))
    };
    timeout(PATIENCE, await_condition(pods, "p", disrupted))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_second_sigterm_kills_pods_that_take_their_time() {
    let directory = tempfile::tempdir().unwrap();
    let word = word("stubborn");
    let mut up = Setup::on(directory.path()).ready();
    let pods = up.script("p", &script(&word, STUBBORN), 3600).await;
    printed(&pods, "p", "started").await;

    up.signal(Signal::TERM);
    printed(&pods, "p", "asked").await;
    assert!(processes_with(&word) > 0, "the pod has its grace");
    up.signal(Signal::INT);

    assert_eq!(up.ended(), Some(0));
    assert_eq!(processes_with(&word), 0);
}

#[tokio::test]
async fn after_a_kill_pods_go_on_and_the_next_start_finds_them() {
    let directory = tempfile::tempdir().unwrap();
    let word = word("survivor");
    // Whoever had to wait for the lease of the one that was killed would not be ready while this test lasts.
    let setup = Setup::on(directory.path()).variable("JANGAR_LEADER_ELECTION_LEASE_DURATION_SECONDS", "3600");
    let up = setup.ready();
    let pods = up.script("p", &script(&word, POLITE), 600).await;
    printed(&pods, "p", "started").await;

    up.kill();

    assert!(processes_with(&word) > 0, "pods outlive a crash");
    let up = setup.ready();
    let pods: Api<Pod> = Api::default_namespaced(up.client().await);
    let running = |pod: Option<&Pod>| phase(pod).as_deref() == Some("Running");
    timeout(PATIENCE, await_condition(pods.clone(), "p", running))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(up.stop(), Some(0));
    assert_eq!(processes_with(&word), 0);
    let up = Setup::on(directory.path()).ready();
    let pods: Api<Pod> = Api::default_namespaced(up.client().await);
    let log = pods.logs("p", &LogParams::default()).await.unwrap();
    assert_eq!(log, "started\nasked\n", "it was started once, and asked once");
}
