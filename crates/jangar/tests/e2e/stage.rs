//! What every test here begins with: a namespace in which the kinds are served, the controllers have their rights, and
//! nothing else is.

use std::{
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
};

use futures::FutureExt;
use jangar_api::{Kind, labels};
use jangar_testkit::cluster::{Bench, Failure, JANGAR_IMAGE, Scene, User, play, until};
use k8s_openapi::{
    api::batch::v1::Job, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
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

/// One test's part of the cluster, ready for runs.
pub(crate) struct Stage<'a> {
    pub(crate) scene: &'a Scene,
    /// For the kubeconfigs of the programs.
    directory: TempDir,
}

/// Plays a test beside others.
pub(crate) async fn beside_others<T>(name: &str, test: T) -> Result<(), Failure>
where
    T: AsyncFnOnce(&Stage<'_>) -> Result<(), Failure>,
{
    let _turn = TURN.read().await;
    on_stage(name, test).await
}

/// Plays a test that everybody else on the cluster would feel.
pub(crate) async fn alone<T>(name: &str, test: T) -> Result<(), Failure>
where
    T: AsyncFnOnce(&Stage<'_>) -> Result<(), Failure>,
{
    let _turn = TURN.write().await;
    on_stage(name, test).await
}

async fn on_stage<T>(name: &str, test: T) -> Result<(), Failure>
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
        Settings::default()
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

    /// Takes our finalizer from every Job that is left, so that the namespace can go.
    async fn let_jobs_go(&self) -> Result<(), Failure> {
        let jobs = self.scene.api::<Job>();
        for job in jobs.list(&ListParams::default()).await? {
            if !job
                .finalizers()
                .iter()
                .any(|name| name == labels::JOB_STATUS_FINALIZER)
            {
                continue;
            }
            let patch = json!({"metadata": {"finalizers": null}});
            let patched = jobs
                .patch(&job.name_any(), &PatchParams::default(), &Patch::Merge(patch))
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
