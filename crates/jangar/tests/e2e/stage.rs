//! What every test here begins with: a namespace in which the kinds are served, the controllers have their rights, and
//! nothing else is.

use std::{
    fmt::Debug,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
};

use futures::FutureExt;
use jangar_api::{Kind, labels};
use jangar_testkit::cluster::{Bench, Failure, JANGAR_IMAGE, Scene, User, play, until};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{OnceCell, RwLock};

use crate::{
    replica::{Replica, Settings},
    rights,
};

/// The image of agents: a shell and its tools.
pub(crate) const BUSYBOX: &str = "jangar.test/busybox:1";

/// Held together by tests that leave the cluster alone, and by one alone that takes parts of it away.
static TURN: RwLock<()> = RwLock::const_new(());
/// What is done once for all tests.
static PREPARED: OnceCell<()> = OnceCell::const_new();

/// Who looks after the Jobs of runs, as `JANGAR_AGENT_RUNNER_JOB_CONTROLLER` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobController {
    Kubernetes,
    Jangar,
}

/// One test's part of the cluster, ready for runs.
pub(crate) struct Stage<'a> {
    pub(crate) scene: &'a Scene,
    job_controller: JobController,
    /// For the kubeconfigs of the programs.
    directory: TempDir,
}

/// Plays a test beside others.
pub(crate) async fn beside_others<T>(name: &str, test: T) -> Result<(), Failure>
where
    T: AsyncFnOnce(&Stage<'_>) -> Result<(), Failure>,
{
    let _turn = TURN.read().await;
    on_stage(name, JobController::Kubernetes, test).await
}

/// Plays a test beside others, once where Kubernetes looks after the Jobs of runs and once where we do: it has to come to the same.
pub(crate) async fn whoever_looks_after_jobs<T>(name: &str, test: T) -> Result<(), Failure>
where
    T: AsyncFn(&Stage<'_>) -> Result<(), Failure>,
{
    let _turn = TURN.read().await;
    let own = format!("{name}-own");
    // In boxes, because both are large.
    let (theirs, ours) = tokio::join!(
        Box::pin(on_stage(name, JobController::Kubernetes, &test)),
        Box::pin(on_stage(&own, JobController::Jangar, &test))
    );
    theirs?;
    ours
}

/// Plays a test beside others where we look after the Jobs of runs.
pub(crate) async fn with_own_jobs<T>(name: &str, test: T) -> Result<(), Failure>
where
    T: AsyncFnOnce(&Stage<'_>) -> Result<(), Failure>,
{
    let _turn = TURN.read().await;
    on_stage(name, JobController::Jangar, test).await
}

/// Plays a test that everybody else on the cluster would feel.
pub(crate) async fn alone<T>(name: &str, test: T) -> Result<(), Failure>
where
    T: AsyncFnOnce(&Stage<'_>) -> Result<(), Failure>,
{
    let _turn = TURN.write().await;
    on_stage(name, JobController::Kubernetes, test).await
}

async fn on_stage<T>(name: &str, job_controller: JobController, test: T) -> Result<(), Failure>
where
    T: AsyncFnOnce(&Stage<'_>) -> Result<(), Failure>,
{
    PREPARED.get_or_try_init(prepare).await?;
    play(name, async |scene| {
        // What an earlier run of this test wrote down says nothing about this one.
        let _ = std::fs::remove_dir_all(scene.reports());
        rights::grant(scene, rights::ACCOUNT, &rights::role()?).await?;
        let stage = Stage {
            scene,
            job_controller,
            directory: tempfile::tempdir()?,
        };
        // Its programs end with the test, whatever becomes of it, and nobody is left to let its Jobs go.
        let outcome = AssertUnwindSafe(test(&stage)).catch_unwind().await;
        let failed = !matches!(outcome, Ok(Ok(())));
        if !failed {
            stage.let_jobs_go().await?;
        }
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
    .await
}

/// Gives the cluster every kind, and the real node the image of Jangar if there is a real node.
async fn prepare() -> Result<(), Failure> {
    let bench = Bench::here()?;
    let api: Api<CustomResourceDefinition> = Api::all(bench.client(&User::Admin).await?);
    let definitions: Vec<_> = Kind::ALL.iter().map(|kind| kind.crd()).collect();
    for definition in &definitions {
        // Applied, because a bench that is reused has them from the last time.
        let parameters = PatchParams::apply("jangar-tests").force();
        api.patch(&definition.name_any(), &parameters, &Patch::Apply(definition))
            .await?;
    }
    for definition in &definitions {
        until(&api, &definition.name_any(), "to be established", |definition| {
            let status = definition.status.iter();
            let mut conditions = status.flat_map(|status| status.conditions.iter().flatten());
            conditions.any(|condition| condition.type_ == "Established" && condition.status == "True")
        })
        .await?;
    }
    if bench.real_node().is_ok() {
        bench.import_jangar().await?;
    }
    Ok(())
}

impl Stage<'_> {
    pub(crate) fn namespace(&self) -> &str {
        self.scene.namespace()
    }

    /// The settings of controllers that look after this namespace alone.
    pub(crate) fn settings(&self) -> Settings {
        let job_controller = match self.job_controller {
            JobController::Kubernetes => "kubernetes",
            JobController::Jangar => "jangar",
        };
        Settings::default()
            .with("JANGAR_AGENT_RUNNER_JOB_CONTROLLER", job_controller)
            .with("JANGAR_AGENTS_CONTROLLER_NAMESPACES", self.namespace())
            .with("JANGAR_POD_NAMESPACE", self.namespace())
            .with("JANGAR_IMAGE", JANGAR_IMAGE)
            .with("JANGAR_AGENT_RUNNER_IMAGE", BUSYBOX)
            // What a test is about is not the queue, unless it says so.
            .with("JANGAR_AGENTS_CONTROLLER_CONCURRENCY_AGENT", "1000")
            .with("JANGAR_AGENTS_CONTROLLER_CONCURRENCY_NAMESPACE", "1000")
            .with("JANGAR_AGENTS_CONTROLLER_CONCURRENCY_CLUSTER", "1000")
            .with("JANGAR_AGENTS_CONTROLLER_RATE_NAMESPACE", "0")
            .with("JANGAR_AGENTS_CONTROLLER_RATE_CLUSTER", "0")
    }

    /// The same, with the pods of runs on the real node, if there is one.
    pub(crate) fn on_the_real_node(&self) -> Result<Settings, Failure> {
        self.scene.bench().real_node()?;
        let selector = json!({"jangar.test/node": "real"});
        Ok(self
            .settings()
            .with_json("JANGAR_AGENT_RUNNER_NODE_SELECTOR", &selector))
    }

    /// Starts controllers under this name, as the account that has the Role, and waits until they lead.
    pub(crate) async fn lead(&self, name: &str, settings: &Settings) -> Result<Replica, Failure> {
        let replica = self.start(name, rights::ACCOUNT, None, settings).await?;
        replica.until_leading(self.scene).await?;
        Ok(replica)
    }

    /// Starts controllers as this account, which reach the API server at its own address or at another one.
    pub(crate) async fn start(
        &self,
        name: &str,
        account: &str,
        server: Option<&str>,
        settings: &Settings,
    ) -> Result<Replica, Failure> {
        let path = self.kubeconfig(name, account, server).await?;
        self.start_with(name, &path, settings)
    }

    /// A file by which a program under this name is this account.
    pub(crate) async fn kubeconfig(
        &self,
        name: &str,
        account: &str,
        server: Option<&str>,
    ) -> Result<PathBuf, Failure> {
        let kubeconfig = rights::kubeconfig(self.scene, account, server).await?;
        let path = self.directory.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, kubeconfig.to_string())?;
        Ok(path)
    }

    fn start_with(&self, name: &str, kubeconfig: &Path, settings: &Settings) -> Result<Replica, Failure> {
        Replica::start(name, kubeconfig, &self.scene.reports(), settings)
    }

    /// Takes our finalizer from every Job and pod that is left, so that the namespace can go.
    async fn let_jobs_go(&self) -> Result<(), Failure> {
        self.let_go::<Job>().await?;
        self.let_go::<Pod>().await
    }

    async fn let_go<K>(&self) -> Result<(), Failure>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let objects = self.scene.api::<K>();
        for object in objects.list(&ListParams::default()).await? {
            let mut finalizers = object.finalizers().iter();
            if !finalizers.any(|name| name == labels::JOB_STATUS_FINALIZER) {
                continue;
            }
            let patch = json!({"metadata": {"finalizers": null}});
            let patched = objects
                .patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch))
                .await;
            match patched {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                other => drop(other?),
            }
        }
        Ok(())
    }
}

/// An object as JSON, of a kind in the group of agents.
pub(crate) fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}
