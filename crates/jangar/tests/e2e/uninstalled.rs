//! Jangar goes away while runs are under way: their Jobs can go too.

use std::process::Stdio;

use jangar_api::{agents::agent_run::AgentRun, phase::RunPhase};
use jangar_testkit::cluster::{Failure, until_gone};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{ResourceExt, api::DeleteParams};
use tokio::process::Command;

use crate::{
    rights,
    stage::{Stage, beside_others, with_own_jobs},
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

/// A pod that we made is held as its Job is.
#[tokio::test]
async fn pods_that_were_made_for_runs_can_go_after_they_were_released() -> Result<(), Failure> {
    with_own_jobs("uninstalled-own", async |stage| {
        let controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        stage.script("left", "sleep 3600").await?;
        let pod = stage.working("left", 1).await?.name_any();
        stage.reached("left", &RunPhase::Running).await?;
        assert!(controllers.stop().await?.success());

        let (code, said) = release_jobs(stage, &[]).await?;
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains("Pods released: 1 (1 of them before their work ended)"),
            "{said}"
        );
        let runs = stage.scene.api::<AgentRun>();
        runs.delete("left", &DeleteParams::background()).await?;
        until_gone(&stage.scene.api::<Job>(), "left-job").await?;
        until_gone(&stage.scene.api::<Pod>(), &pod).await?;
        Ok(())
    })
    .await
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
