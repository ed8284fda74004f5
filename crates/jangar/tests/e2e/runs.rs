//! Runs of agents that are shell scripts, and what becomes of them.

use jangar_api::{
    agents::{
        agent::Agent,
        agent_provider::AgentProvider,
        agent_run::{AgentRun, AgentRunStatus},
    },
    condition::{Condition, ConditionStatus, ConditionType},
    labels,
    phase::RunPhase,
    reason::Reason,
};
use jangar_testkit::cluster::{Failure, until, until_list};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::stage::{Stage, object};

impl Stage<'_> {
    /// An Agent with a provider of its own that runs this shell script.
    pub(crate) async fn agent(&self, name: &str, script: &str) -> Result<(), Failure> {
        let parameters = PostParams::default();
        let provider = json!({"binary": "/bin/sh", "argsTemplate": ["-c", script]});
        let provider: AgentProvider = serde_json::from_value(object("AgentProvider", name, &provider))?;
        let agent = json!({"providerRef": {"name": name}});
        let agent: Agent = serde_json::from_value(object("Agent", name, &agent))?;
        self.scene
            .api::<AgentProvider>()
            .create(&parameters, &provider)
            .await?;
        self.scene.api::<Agent>().create(&parameters, &agent).await?;
        Ok(())
    }

    /// A run of the Agent of that name, with these changes to its spec.
    pub(crate) async fn run(&self, agent: &str, name: &str, changes: &Value) -> Result<AgentRun, Failure> {
        let mut spec = json!({
            "agentRef": {"name": agent},
            "implementation": {"inline": {"text": "Do it."}},
            "runtime": {"type": "job"},
        });
        for (field, value) in changes.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let run: AgentRun = serde_json::from_value(object("AgentRun", name, &spec))?;
        Ok(self
            .scene
            .api::<AgentRun>()
            .create(&PostParams::default(), &run)
            .await?)
    }

    /// A run of a script, both under the same name.
    pub(crate) async fn script(&self, name: &str, script: &str) -> Result<AgentRun, Failure> {
        self.agent(name, script).await?;
        self.run(name, name, &json!({})).await
    }

    pub(crate) async fn cancel(&self, name: &str) -> Result<(), Failure> {
        let patch = Patch::Merge(json!({"spec": {"cancel": true}}));
        let runs = self.scene.api::<AgentRun>();
        runs.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until a run has this phase.
    pub(crate) async fn reached(&self, name: &str, phase: &RunPhase) -> Result<AgentRun, Failure> {
        let what = format!("to be {phase}");
        let is = |run: &AgentRun| run.status.as_ref().and_then(|status| status.phase.as_ref()) == Some(phase);
        Ok(until(&self.scene.api::<AgentRun>(), name, &what, is).await?)
    }

    /// Waits until a condition of a run holds, and returns it.
    pub(crate) async fn told(&self, name: &str, type_: &ConditionType) -> Result<Condition, Failure> {
        let found = |run: &AgentRun| {
            let condition = run.status.as_ref()?.common.condition(type_)?;
            (condition.status == ConditionStatus::True).then(|| condition.clone())
        };
        let what = format!("to be {type_}");
        let runs = self.scene.api::<AgentRun>();
        let run = until(&runs, name, &what, |run| found(run).is_some()).await?;
        Ok(found(&run).ok_or("the condition is gone")?)
    }

    /// Waits until a run is blocked for this reason, and returns what it says. It may be blocked for another one before.
    pub(crate) async fn blocked(&self, name: &str, reason: &Reason) -> Result<String, Failure> {
        let found = |run: &AgentRun| {
            let condition = run.status.as_ref()?.common.condition(&ConditionType::Blocked)?;
            let holds = condition.status == ConditionStatus::True && condition.reason == *reason;
            holds.then(|| condition.message.clone())
        };
        let (runs, what) = (self.scene.api::<AgentRun>(), format!("to be blocked: {reason}"));
        let run = until(&runs, name, &what, |run| found(run).is_some()).await?;
        Ok(found(&run).ok_or("the condition is gone")?)
    }

    /// Waits until the pod of a run's attempt works, and returns it.
    pub(crate) async fn working(&self, run: &str, attempt: usize) -> Result<Pod, Failure> {
        let label = format!("{}={run}", labels::AGENT_RUN);
        let works = |pod: &Pod| phase(pod) == "Running" && attempt_of(pod, run) == Some(attempt);
        let what = format!("to have a pod of attempt {attempt} that works");
        let pods = self.scene.api::<Pod>();
        let pods = until_list(&pods, &label, &what, |pods| pods.iter().any(|pod| works(pod))).await?;
        Ok(pods.into_iter().find(works).ok_or("no pod works")?)
    }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default()
}

/// Which attempt of a run a pod belongs to, by the name of its Job.
fn attempt_of(pod: &Pod, run: &str) -> Option<usize> {
    let job = pod.labels().get("batch.kubernetes.io/job-name")?;
    match job.strip_prefix(run)?.strip_prefix("-job")? {
        "" => Some(1),
        number => number.strip_prefix("-attempt-")?.parse().ok(),
    }
}

pub(crate) fn status(run: &AgentRun) -> &AgentRunStatus {
    run.status.as_ref().expect("a run with a status")
}

/// How many processes of this machine have the word in their command line. Those of pods are among them.
pub(crate) fn processes_with(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(word))
        .count()
}
