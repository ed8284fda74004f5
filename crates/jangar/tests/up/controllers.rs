//! `jangar controllers`, against the API server of a `jangar up`.

use std::{path::Path, process::Command};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use crate::process::{Setup, Up, eventually};

/// With no configuration of the person who runs the tests.
fn controllers(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jangar"));
    command
        .args(["controllers", "--listen", "127.0.0.1:0"])
        .env("HOME", home)
        .env("KUBECONFIG", home.join("kubeconfig"))
        .env_remove("KUBERNETES_SERVICE_HOST");
    command
}

#[tokio::test]
async fn they_lead_by_the_kubeconfig_and_release_the_lease_when_they_are_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let mut command = controllers(directory.path());
    command
        .env("HOSTNAME", "a-pod")
        .env("JANGAR_POD_UID", "its-uid")
        .env("JANGAR_LEADER_ELECTION_LEASE_NAME", "another")
        .env("JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_SECONDS", "60")
        .env("NATS_URL", "nats://127.0.0.1")
        .env("JANGAR_AGENT_RUNER_IMAGE", "slip");
    let mut controllers = Up::begin(&mut command, directory.path());
    assert_eq!(
        controllers.logged("nothing reads this variable")["name"],
        "JANGAR_AGENT_RUNER_IMAGE"
    );
    let warning = controllers.logged("the Job is deleted with the run");
    let warning = warning["message"].as_str().unwrap();
    assert!(warning.contains("600 s") && warning.contains("60 s"), "{warning}");
    controllers.logged("NATS_URL has no effect any more");
    controllers.wait_until_served();
    let kept = controllers.logged("kept after their end");
    let kept = kept["message"].as_str().unwrap();
    assert!(
        kept.ends_with("finished Jobs 600 s, archived logs 604800 s, finished runs 60 s"),
        "{kept}"
    );
    let leases: Api<Lease> = Api::default_namespaced(up.client().await);
    controllers.logged("\"leading\"");
    eventually("they are ready", || controllers.get("/readyz").0 == 200);
    let lease = leases.get("another").await.unwrap();
    assert_eq!(
        lease.spec.unwrap().holder_identity.as_deref(),
        Some("a-pod_its-uid")
    );
    let (code, metrics) = controllers.get("/metrics");
    assert_eq!(code, 200);
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(
        metrics.contains("jangar_retention_seconds{what=\"run\"} 60"),
        "{metrics}"
    );

    assert_eq!(controllers.stop(), Some(0));

    let lease = leases.get("another").await.unwrap();
    let holder = lease.spec.unwrap().holder_identity.unwrap_or_default();
    assert_eq!(holder, "", "the next one need not wait");
}

#[tokio::test]
async fn one_that_waits_for_another_is_ready_too() {
    let directory = tempfile::tempdir().unwrap();
    let _up = Setup::on(directory.path()).ready();
    let mut controllers = Up::begin(&mut controllers(directory.path()), directory.path());
    controllers.wait_until_served();
    controllers.logged("waiting for the lease");
    eventually("it is ready", || {
        controllers.get("/readyz") == (200, "ready\n".to_owned())
    });
    assert_eq!(controllers.stop(), Some(0));
}

#[test]
fn every_bad_setting_is_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let output = controllers(directory.path())
        .env("JANGAR_AGENTRUN_ARTIFACTS_MAX", "many")
        .env("JANGAR_AGENT_RUNNER_TOLERATIONS", "{")
        .output()
        .unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(
        complaint.contains("JANGAR_AGENTRUN_ARTIFACTS_MAX='many'")
            && complaint.contains("JANGAR_AGENT_RUNNER_TOLERATIONS='{'"),
        "{complaint}"
    );
}

#[test]
fn without_a_cluster_the_remedy_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let output = controllers(directory.path()).output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(
        complaint.contains("failed to find a cluster: set KUBECONFIG"),
        "{complaint}"
    );
}
