//! Jangar goes away while runs are under way: their Jobs can go too.

use std::process::Stdio;

use jangar_api::{agents::agent_run::AgentRun, phase::RunPhase};
use jangar_testkit::cluster::{Failure, until_gone};
use k8s_openapi::api::batch::v1::Job;
use kube::{ResourceExt, api::DeleteParams};
use tokio::process::Command;

use crate::{
    rights,
    stage::{Stage, beside_others},
};

/// `jangar release-jobs`, as the account of the controllers: whether it did all, and what it said.
async fn release_jobs(stage: &Stage<'_>, arguments: &[&str]) -> Result<(Option<i32>, String), Failure> {
    let kubeconfig = stage.kubeconfig("release-jobs", rights::ACCOUNT, None).await?;
    let output = Command::new(env!("CARGO_BIN_EXE_jangar"))
        .arg("release-jobs")
        .args(arguments)
        .env_clear()
        .env("KUBECONFIG", &kubeconfig)
        .env("JANGAR_AGENTS_CONTROLLER_NAMESPACES", stage.namespace())
        .env("JANGAR_POD_NAMESPACE", stage.namespace())
        .stdin(Stdio::null())
        .output()
        .await?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8(said)?))
}

#[tokio::test]
async fn the_jobs_of_runs_that_work_can_go_after_they_were_released() -> Result<(), Failure> {
    beside_others("uninstalled", async |stage| {
        let controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        stage.script("left", "sleep 3600").await?;
        stage.working("left", 1).await?;
        stage.reached("left", &RunPhase::Running).await?;

        let (code, said) = release_jobs(stage, &[]).await?;
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("controllers are at work: one_"), "{said}");

        assert!(controllers.stop().await?.success());
        let (code, said) = release_jobs(stage, &[]).await?;
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains("Jobs released: 1 (1 of them before their work ended)"),
            "{said}"
        );
        let jobs = stage.scene.api::<Job>();
        assert!(jobs.get("left-job").await?.finalizers().is_empty());

        // What an uninstall does: with the kinds the runs go, and with a run its Job.
        let runs = stage.scene.api::<AgentRun>();
        runs.delete("left", &DeleteParams::background()).await?;
        until_gone(&jobs, "left-job").await?;
        Ok(())
    })
    .await
}
