//! `jangar release-jobs`, on the API server of a `jangar up`.

use std::{path::Path, process::Command};

use jangar_api::phase::RunPhase;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;

use crate::{
    agent_runs::{reached, script},
    process::Setup,
};

/// Exit code, standard output and standard error of a call with no configuration of the person who runs the tests.
fn release_jobs(
    home: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_jangar"))
        .arg("release-jobs")
        .args(arguments)
        .env("HOME", home)
        .env("KUBECONFIG", home.join("kubeconfig"))
        .env_remove("KUBERNETES_SERVICE_HOST")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

async fn is_held(jobs: &Api<Job>, name: &str) -> bool {
    jobs.get(name).await.unwrap().metadata.finalizers.is_some()
}

#[tokio::test]
async fn jobs_are_let_go_when_nobody_leads_or_when_it_is_forced() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let up = Setup::on(home).ready();
    let client = up.client().await;
    script(&client, "held", "while :; do sleep 1; done").await;
    reached(&client, "held", &RunPhase::Running).await;
    let jobs: Api<Job> = Api::default_namespaced(client.clone());

    let (code, _, complaint) = release_jobs(home, &[], &[]);
    assert_eq!(code, Some(2), "{complaint}");
    assert!(
        complaint.contains("controllers are at work: jangar-up/"),
        "{complaint}"
    );
    assert!(is_held(&jobs, "held-job").await);

    let (code, told, _) = release_jobs(home, &["--dry-run"], &[]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.starts_with("would release agents/held-job, whose work has not ended"),
        "{told}"
    );
    assert!(is_held(&jobs, "held-job").await);

    // To somebody who asks another Lease, nobody leads.
    let nobody = [("JANGAR_LEADER_ELECTION_LEASE_NAME", "another")];
    let (code, told, _) = release_jobs(home, &["-n", "default"], &nobody);
    assert_eq!((code, told.lines().count()), (Some(0), 1), "{told}");
    assert!(is_held(&jobs, "held-job").await);
    let (code, told, _) = release_jobs(home, &[], &nobody);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(
        told.lines().last(),
        Some("Jobs released: 1 (1 of them before their work ended); held no more: 0; failed: 0")
    );
    assert!(!is_held(&jobs, "held-job").await);

    let (code, told, _) = release_jobs(home, &["--force", "-A"], &[]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.starts_with("Jobs released: 0"), "{told}");
}

#[test]
fn what_is_asked_wrongly_is_told() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, word) in [
        (&["-n", "Not/A/Name"][..], "lower-case letters"),
        (&["-n", "agents", "-A"], "cannot be used with"),
    ] {
        let (code, _, complaint) = release_jobs(directory.path(), arguments, &[]);
        assert_eq!(code, Some(2), "{complaint}");
        assert!(complaint.contains(word), "{complaint}");
    }
    let (code, _, complaint) = release_jobs(directory.path(), &[], &[]);
    assert_eq!(code, Some(1), "{complaint}");
    assert!(complaint.contains("failed to find a cluster"), "{complaint}");
}
