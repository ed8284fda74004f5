//! Where the story is played: what the demo asks of the API server, and what it waits for.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use jangar_api::{
    agents::agent_run::AgentRun,
    condition::ConditionType,
    labels,
    orchestration::orchestration_run::{OrchestrationRun, OrchestrationRunStatus},
    phase::RunPhase,
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, Client,
    api::{LogParams, Patch, PatchParams},
    core::NamespaceResourceScope,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{agentctl::Agentctl, console};
use crate::manifests;

/// Everything in the demo takes a second or two. A minute means that something is broken.
const PATIENCE: Duration = Duration::from_mins(1);

/// The API server, and the namespace that the story is played in.
pub(super) struct Stage {
    pub(super) client: Client,
    pub(super) namespace: &'static str,
    /// The program that a person has on their machine, if it was built.
    pub(super) agentctl: Option<Agentctl>,
}

impl Stage {
    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Applies manifests, and shows the command.
    pub(super) async fn apply(&self, files: &[(&str, &str)]) -> Result<()> {
        let names: Vec<String> = files.iter().map(|(name, _)| format!("-f {name}")).collect();
        console::command(&format!("kubectl apply --server-side {}", names.join(" ")))?;
        let documents = manifests::parse(files)?;
        for object in manifests::apply(&self.client, self.namespace, &documents).await? {
            console::show(&format!("applied {object}"))?;
        }
        Ok(())
    }

    /// Waits until an object is as it should be.
    async fn wait<K>(&self, selector: watcher::Config, what: &str, is: impl Fn(&K) -> bool) -> Result<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let objects = watcher(self.api::<K>(), selector).applied_objects();
        let mut objects = std::pin::pin!(objects);
        let seen = async {
            while let Some(object) = objects.try_next().await? {
                if is(&object) {
                    return Ok(object);
                }
            }
            bail!("the watch ended")
        };
        tokio::time::timeout(PATIENCE, seen)
            .await
            .with_context(|| format!("waited a minute for {what}"))?
            .with_context(|| format!("failed to wait for {what}"))
    }

    /// Waits until a run has one of these phases, and shows where it stands.
    pub(super) async fn run_is(&self, name: &str, phases: &[RunPhase]) -> Result<AgentRun> {
        let words: Vec<&str> = phases.iter().map(RunPhase::as_str).collect();
        let what = format!("AgentRun {name} to be {}", words.join(" or "));
        let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let run: AgentRun = self
            .wait(one, &what, |run: &AgentRun| {
                let phase = run.status.as_ref().and_then(|status| status.phase.as_ref());
                phase.is_some_and(|phase| phases.contains(phase))
            })
            .await?;
        let status = run.status.clone().unwrap_or_default();
        let phase = status.phase.as_ref().map(RunPhase::as_str).unwrap_or_default();
        let message = status
            .common
            .condition(&ConditionType::Succeeded)
            .map(|condition| condition.message.clone())
            .unwrap_or_default();
        console::show(&format!("{name}: {phase}: {message}"))?;
        Ok(run)
    }

    /// Waits for the pod of a run to work, and shows what it says: all of it, or up to a line with this text.
    pub(super) async fn follow_run(&self, name: &str, up_to: Option<&str>) -> Result<()> {
        console::command(&format!("kubectl logs --follow job/{name}-job"))?;
        let of_run = watcher::Config::default().labels(&format!("{}={name}", labels::AGENT_RUN));
        self.follow(of_run, name, up_to).await
    }

    /// Waits for a Job to end, and shows what it said.
    pub(super) async fn job_says(&self, name: &str) -> Result<()> {
        console::command(&format!("kubectl logs --follow job/{name}"))?;
        let of_job = watcher::Config::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        self.follow(of_job, name, None).await?;
        let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let ended = |job: &Job| succeeded(job).is_some();
        let job: Job = self.wait(one, &format!("Job {name} to end"), ended).await?;
        match succeeded(&job) {
            Some(true) => Ok(()),
            Some(false) | None => bail!("Job {name} failed; its log is above"),
        }
    }

    async fn follow(&self, selector: watcher::Config, name: &str, up_to: Option<&str>) -> Result<()> {
        let started = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase.is_some_and(|phase| phase != "Pending")
        };
        let pod: Pod = self
            .wait(selector, &format!("the pod of {name} to start"), started)
            .await?;
        let pod = pod.metadata.name.unwrap_or_default();
        let params = LogParams {
            follow: true,
            ..LogParams::default()
        };
        let reading = async {
            let mut lines = self.api::<Pod>().log_stream(&pod, &params).await?.lines();
            while let Some(line) = lines.next().await {
                let line = line?;
                console::log(&line)?;
                if up_to.is_some_and(|text| line.contains(text)) {
                    break;
                }
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, reading)
            .await
            .with_context(|| format!("waited a minute for the log of {pod} to end"))?
    }

    /// Waits until an orchestration is as it should be.
    pub(super) async fn orchestration(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&OrchestrationRunStatus) -> bool,
    ) -> Result<OrchestrationRun> {
        let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let reached = |run: &OrchestrationRun| run.status.as_ref().is_some_and(&is);
        self.wait(one, &format!("OrchestrationRun {name} {what}"), reached)
            .await
    }

    /// Changes a run, and shows the command.
    pub(super) async fn patch<K>(&self, resource: &str, name: &str, patch: &Value) -> Result<()>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        console::command(&format!(
            "kubectl patch {resource} {name} --type=merge -p '{patch}'"
        ))?;
        self.api::<K>()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .with_context(|| format!("failed to patch {name}"))?;
        Ok(())
    }
}

/// How a Job ended, if it did.
fn succeeded(job: &Job) -> Option<bool> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .filter(|condition| condition.status == "True")
        .find_map(|condition| match condition.type_.as_str() {
            "Complete" => Some(true),
            "Failed" => Some(false),
            _ => None,
        })
}
