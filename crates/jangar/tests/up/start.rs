//! From the command line to the line that says ready.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt};

use jangar_api::agents::agent_run::AgentRun;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::process::{Setup, eventually, jangar};

#[tokio::test]
async fn one_line_says_ready_and_the_kubeconfig_carries_the_port() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    assert!(
        up.line.starts_with("ready: Kubernetes API on https://127.0.0.1:"),
        "{}",
        up.line
    );
    let kubeconfig = directory.path().join("kubeconfig");
    assert!(
        up.line.ends_with(&format!("KUBECONFIG={}", kubeconfig.display())),
        "{}",
        up.line
    );
    let mode = fs::metadata(&kubeconfig).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the kubeconfig holds a token");
    let client = up.client().await;
    assert_eq!(client.default_namespace(), "agents");
    let runs: Api<AgentRun> = Api::default_namespaced(client);
    assert!(runs.list(&ListParams::default()).await.unwrap().items.is_empty());
    assert_eq!(up.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(up.get("/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(up.get("/metrics").0, 200);
    assert_eq!(up.stop(), Some(0));
}

#[tokio::test]
async fn it_is_not_ready_before_the_controllers_lead() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lease.yaml");
    let lease = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: jangar-controller-leader}\n\
                 spec: {holderIdentity: somebody-else, leaseDurationSeconds: 3600}\n";
    fs::write(&file, lease).unwrap();
    let mut up = Setup::on(&directory.path().join("data"))
        .with(&["-f", file.to_str().unwrap()])
        .variable("JANGAR_LOG", "info")
        .variable("JANGAR_LEADER_ELECTION_RETRY_PERIOD_SECONDS", "1")
        .begin();
    up.wait_until_served();
    eventually("the controllers wait", || {
        let (code, body) = up.get("/readyz");
        assert_eq!(code, 503, "{body}");
        body == "not ready\nthe controllers do not lead yet: another process holds their Lease, or they are about to begin\n"
    });
    assert_eq!(up.get("/healthz").0, 200);

    let leases: Api<Lease> = Api::default_namespaced(up.client().await);
    let released = Patch::Merge(json!({"spec": {"holderIdentity": null}}));
    leases
        .patch("jangar-controller-leader", &PatchParams::default(), &released)
        .await
        .unwrap();

    up.wait_until_ready();
    assert_eq!(up.get("/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_second_up_on_the_same_directory_is_refused_with_the_process_that_holds_it() {
    let directory = tempfile::tempdir().unwrap();
    let first = Setup::on(directory.path()).ready();
    // As with the default addresses, which the first one has taken too.
    let taken = first.address();
    for addresses in [["127.0.0.1:0", "127.0.0.1:0"], [taken, taken]] {
        let path = directory.path().to_str().unwrap();
        let [listen, api_listen] = addresses;
        let output = jangar(&[
            "up",
            "--data-dir",
            path,
            "--listen",
            listen,
            "--api-listen",
            api_listen,
        ]);
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(
            complaint.contains(&format!("in use by process {}", first.pid()))
                && complaint.contains("--data-dir"),
            "{complaint}"
        );
    }
    assert_eq!(first.get("/readyz").0, 200, "the first one does not mind");
    assert_eq!(first.stop(), Some(0));
}

#[test]
fn a_taken_address_is_named_with_its_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--listen", "--api-listen"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let free = if flag == "--listen" {
            "--api-listen"
        } else {
            "--listen"
        };
        let output = jangar(&["up", "--data-dir", path, flag, &address, free, "127.0.0.1:0"]);
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(
            complaint.contains(&format!(
                "failed to listen on {address}; choose another address with {flag}"
            )),
            "{complaint}"
        );
    }
}

#[test]
fn a_bad_level_of_the_log_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let (code, complaint) = Setup::on(directory.path())
        .variable("JANGAR_LOG", "jangar=loud")
        .refused();
    assert_eq!(code, Some(2), "{complaint}");
    assert!(complaint.contains("JANGAR_LOG"), "{complaint}");
}
