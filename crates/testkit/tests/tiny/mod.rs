//! A controller that looks at everything whenever something changed, and makes one Job per run. It knows neither retries
//! nor cancel.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use jangar_api::{
    agents::agent_run::AgentRun,
    labels::{ATTEMPT, JOB_STATUS_FINALIZER},
    phase::RunPhase,
};
use jangar_controllers::clock::Clock;
use jangar_testkit::{
    clock::WallClock,
    program::{Program, Running, Surroundings},
};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::task::JoinSet;

/// How long a look at everything may take before it is begun anew.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The name of a Job does not follow from its run, and what was made is remembered in the process only.
    GeneratesNames,
    /// Jobs keep their finalizer.
    NeverReleases,
    /// The status is written at every look.
    WritesAlways,
    /// A run that failed is started again.
    ChangesItsMind,
    /// The run ends when its pod runs.
    EndsTooEarly,
    /// Jobs have no finalizer, and one that is gone has failed.
    LosesTheEnd,
}

pub(crate) struct Tiny {
    flaw: Option<Flaw>,
}

impl Tiny {
    pub(crate) fn right() -> Self {
        Self { flaw: None }
    }

    pub(crate) fn with(flaw: Flaw) -> Self {
        Self { flaw: Some(flaw) }
    }
}

impl Program for Tiny {
    fn start(&self, surroundings: Surroundings) -> Running {
        let Surroundings { client, wall, .. } = surroundings;
        let mut controller = Controller {
            runs: Api::default_namespaced(client.clone()),
            jobs: Api::default_namespaced(client.clone()),
            pods: Api::default_namespaced(client),
            wall,
            flaw: self.flaw,
            made: BTreeMap::new(),
        };
        let mut tasks = JoinSet::new();
        let mut changes = controller.changes();
        tasks.spawn(async move {
            loop {
                match tokio::time::timeout(LOOK_TIMEOUT, controller.look()).await {
                    Ok(Ok(())) => drop(changes.next().await),
                    // Whatever failed is tried again.
                    Ok(Err(_)) | Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                }
                while changes.next().now_or_never().is_some() {}
            }
        });
        Box::new(tasks)
    }
}

struct Controller {
    runs: Api<AgentRun>,
    jobs: Api<Job>,
    pods: Api<Pod>,
    wall: Arc<WallClock>,
    flaw: Option<Flaw>,
    /// The Jobs it made, by the UID of their run.
    made: BTreeMap<String, String>,
}

impl Controller {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Says when something changed.
    fn changes(&self) -> BoxStream<'static, ()> {
        fn of<K>(api: &Api<K>) -> BoxStream<'static, ()>
        where
            K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        {
            watcher(api.clone(), watcher::Config::default())
                .default_backoff()
                .map(drop)
                .boxed()
        }
        stream::select_all([of(&self.runs), of(&self.jobs), of(&self.pods)]).boxed()
    }

    async fn look(&mut self) -> Result<(), kube::Error> {
        let runs = self.runs.list(&ListParams::default()).await?.items;
        for run in &runs {
            self.bring_forward(run).await?;
        }
        for job in self.jobs.list(&ListParams::default()).await?.items {
            let is_owner = |run: &AgentRun| {
                let same = |owner: &OwnerReference| run.uid().as_ref() == Some(&owner.uid);
                job.owner_references().iter().any(same)
            };
            if !runs.iter().any(is_owner) {
                self.clear_away(&job).await?;
            }
        }
        Ok(())
    }

    async fn bring_forward(&mut self, run: &AgentRun) -> Result<(), kube::Error> {
        let phase = run.status.as_ref().and_then(|status| status.phase.clone());
        let phase = phase.unwrap_or(RunPhase::Pending);
        let job = self.job_of(run).await?;
        if self.has(Flaw::WritesAlways) {
            self.write(run, phase.as_str()).await?;
        }
        if self.has(Flaw::ChangesItsMind) && phase == RunPhase::Failed {
            return self.write(run, "Running").await;
        }
        match (phase.is_terminal(), job) {
            (true, Some(job)) => self.release(&job).await,
            (true, None) => Ok(()),
            (false, None) if self.has(Flaw::LosesTheEnd) && phase == RunPhase::Running => {
                self.write(run, "Failed").await
            }
            (false, None) => self.create(run).await,
            (false, Some(job)) => {
                let wanted = self.phase_of(&job).await?;
                if wanted == phase.as_str() {
                    return Ok(());
                }
                self.write(run, wanted).await
            }
        }
    }

    async fn job_of(&self, run: &AgentRun) -> Result<Option<Job>, kube::Error> {
        let uid = run.uid().unwrap();
        let name = if self.has(Flaw::GeneratesNames) {
            self.made.get(&uid).cloned()
        } else {
            Some(format!("{}-1", run.name_any()))
        };
        let Some(name) = name else { return Ok(None) };
        let job = self.jobs.get_opt(&name).await?;
        Ok(job.filter(|job| job.owner_references().iter().any(|owner| owner.uid == uid)))
    }

    async fn create(&mut self, run: &AgentRun) -> Result<(), kube::Error> {
        let name = run.name_any();
        let uid = run.uid().unwrap();
        let finalizers: &[&str] = if self.has(Flaw::LosesTheEnd) {
            &[]
        } else {
            &[JOB_STATUS_FINALIZER]
        };
        let mut job = json!({
            "metadata": {
                "name": format!("{name}-1"),
                "annotations": {ATTEMPT: "1"},
                "finalizers": finalizers,
                "ownerReferences": [{
                    "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun", "name": name, "uid": uid,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "backoffLimit": 0, "podReplacementPolicy": "Failed",
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "agent", "image": "agent"}]}},
            },
        });
        if self.has(Flaw::GeneratesNames) {
            job["metadata"]["name"] = json!(null);
            job["metadata"]["generateName"] = json!(format!("{name}-"));
        }
        let job: Job = serde_json::from_value(job).unwrap();
        match self.jobs.create(&PostParams::default(), &job).await {
            Ok(made) => {
                self.made.insert(uid, made.name_any());
                Ok(())
            }
            // The Job of an older run of that name is still there.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn phase_of(&self, job: &Job) -> Result<&'static str, kube::Error> {
        let phases = self.pods_of(job).await?;
        let phases: Vec<&str> = phases.iter().map(phase).collect();
        let failed = job
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let failed = failed.filter(|condition| condition.type_ == "Failed").count() > 0;
        Ok(if phases.contains(&"Succeeded") {
            "Succeeded"
        } else if phases.contains(&"Failed")
            || failed
            || (self.has(Flaw::EndsTooEarly) && phases.contains(&"Running"))
        {
            "Failed"
        } else {
            "Running"
        })
    }

    async fn pods_of(&self, job: &Job) -> Result<Vec<Pod>, kube::Error> {
        let selector = format!("batch.kubernetes.io/controller-uid={}", job.uid().unwrap());
        Ok(self
            .pods
            .list(&ListParams::default().labels(&selector))
            .await?
            .items)
    }

    async fn write(&self, run: &AgentRun, phase: &str) -> Result<(), kube::Error> {
        let mut status = json!({ "phase": phase });
        if RunPhase::from(phase).is_terminal() {
            status["finishedAt"] = json!(self.wall.now().to_string());
        }
        if self.has(Flaw::WritesAlways) {
            status["startedAt"] = json!(self.wall.now().to_string());
        }
        let patch = json!({"metadata": {"resourceVersion": run.resource_version()}, "status": status});
        let params = PatchParams::default();
        self.runs
            .patch_status(&run.name_any(), &params, &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    async fn release(&self, job: &Job) -> Result<(), kube::Error> {
        if job
            .finalizers()
            .iter()
            .all(|finalizer| finalizer != JOB_STATUS_FINALIZER)
            || self.has(Flaw::NeverReleases)
        {
            return Ok(());
        }
        let others: Vec<_> = job
            .finalizers()
            .iter()
            .filter(|finalizer| *finalizer != JOB_STATUS_FINALIZER)
            .collect();
        let patch = json!({
            "metadata": {"finalizers": others, "resourceVersion": job.resource_version()},
            "spec": {"ttlSecondsAfterFinished": 30},
        });
        let params = PatchParams::default();
        self.jobs
            .patch(&job.name_any(), &params, &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// The run of this Job is gone: its pods go first, then it does.
    async fn clear_away(&self, job: &Job) -> Result<(), kube::Error> {
        let pods = self.pods_of(job).await?;
        for pod in pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        {
            self.pods
                .delete(&pod.name_any(), &DeleteParams::default())
                .await?;
        }
        if pods.is_empty()
            || pods
                .iter()
                .all(|pod| matches!(phase(pod), "Succeeded" | "Failed"))
        {
            self.release(job).await?;
        }
        Ok(())
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}
