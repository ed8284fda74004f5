//! The cluster, and the part of it that each measurement has to itself.

use std::{
    env,
    fmt::Debug,
    fs,
    io::{Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use jangar_bench::audit::Writes;
use k8s_openapi::{
    api::{
        authentication::v1::TokenRequest,
        batch::v1::Job,
        core::v1::{Namespace, ServiceAccount},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{GroupVersionKind, NamespaceResourceScope},
    runtime::wait::{Condition, await_condition, conditions},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    controller::{Controller, Program},
    engine::Engine,
};

/// The service account of a controller, in its namespace.
const ACCOUNT: &str = "controller";
/// No run of the benchmark takes as long.
const TOKEN_SECONDS: i64 = 6 * 3600;
/// What the cluster does of itself takes a second; this is for a busy machine.
const LIMIT: Duration = Duration::from_mins(2);
/// How long nothing must be written before what was counts as all there is, and how often that is waited for: Argo with its
/// defaults needs more than three minutes for the Events of a thousand runs.
const SETTLED: Duration = Duration::from_secs(5);
const SETTLING_LIMIT: u32 = 200;
/// How long Jobs may be held after their runs have ended: half a minute for the last of them, and more for ten thousand.
const RELEASE_LIMIT: Duration = Duration::from_mins(10);
const RELEASE_PAUSE: Duration = Duration::from_secs(1);
/// Ten thousand pods take some minutes to go on two cores.
const CLEANING_LIMIT: Duration = Duration::from_mins(20);

/// The cluster.
pub(crate) struct Place {
    admin: Client,
    kubeconfig: Kubeconfig,
    directory: PathBuf,
    logs: PathBuf,
    /// For the kubeconfigs of controllers.
    secrets: TempDir,
}

impl Place {
    /// The cluster that this process was started in, by `tests/cluster/bench.sh run`.
    pub(crate) async fn here(logs: &Path) -> Result<Self> {
        let directory = env::var_os("JANGAR_TEST_CLUSTER").map(PathBuf::from);
        let directory = directory.context(
            "JANGAR_TEST_CLUSTER is not set, so this does not run inside a bench: use `make bench-cluster`, or put \
             `tests/cluster/bench.sh run` before the command",
        )?;
        let kubeconfig = Kubeconfig::read_from(directory.join("admin.kubeconfig"))?;
        let config =
            Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default()).await?;
        Ok(Self {
            admin: Client::try_from(config)?,
            kubeconfig,
            directory,
            logs: logs.to_owned(),
            secrets: tempfile::tempdir()?,
        })
    }

    /// What the parts of the cluster write to, by which they are found.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn admin(&self) -> Client {
        self.admin.clone()
    }

    /// Gives kinds to the cluster and waits until it serves them.
    pub(crate) async fn install(
        &self,
        definitions: impl IntoIterator<Item = CustomResourceDefinition>,
    ) -> Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.admin());
        let definitions: Vec<_> = definitions.into_iter().collect();
        for definition in &definitions {
            let parameters = PatchParams::apply("benchmark").force();
            api.patch(&definition.name_any(), &parameters, &Patch::Apply(definition))
                .await?;
        }
        for definition in &definitions {
            until(
                api.clone(),
                &definition.name_any(),
                conditions::is_crd_established(),
                LIMIT,
            )
            .await?;
        }
        Ok(())
    }

    /// A namespace of its own for `engine`, with what it needs there.
    pub(crate) async fn open(&self, engine: &dyn Engine) -> Result<Stage<'_>> {
        let stage = self
            .open_empty(&format!("{:?}", engine.subject()).to_lowercase())
            .await?;
        for object in engine.furniture() {
            stage.create(&object).await?;
        }
        Ok(stage)
    }

    pub(crate) async fn open_empty(&self, name: &str) -> Result<Stage<'_>> {
        let namespace = format!("{name}-{:06x}", rand::random::<u32>() >> 8);
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let created = Api::all(self.admin())
            .create(&PostParams::default(), &object)
            .await?;
        let stage = Stage {
            place: self,
            uid: created.metadata.uid.unwrap_or_default(),
            namespace,
        };
        // Pods are refused in a namespace until its service account is there.
        let is_there = |account: Option<&ServiceAccount>| account.is_some();
        until(stage.api(), "default", is_there, LIMIT).await?;
        stage
            .create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}))
            .await?;
        stage
            .create(&json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": ACCOUNT},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": stage.namespace}],
            }))
            .await?;
        Ok(stage)
    }
}

/// A namespace that one measurement has to itself.
pub(crate) struct Stage<'a> {
    place: &'a Place,
    namespace: String,
    uid: String,
}

impl Stage<'_> {
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        Api::namespaced(self.place.admin(), &self.namespace)
    }

    pub(crate) fn api_of(&self, kind: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.place.admin(), &self.namespace, kind)
    }

    /// Creates an object of whatever kind it says it is.
    pub(crate) async fn create(&self, object: &Value) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let types = object.types.clone().context("an object without a kind")?;
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let created = self.api_of(&kind).create(&PostParams::default(), &object).await;
        created.with_context(|| format!("failed to create the {} {}", types.kind, object.name_any()))?;
        Ok(())
    }

    /// The name of the controller to the API server.
    fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace)
    }

    /// Starts the controller of `engine`, if it has one.
    pub(crate) async fn start(&self, engine: &dyn Engine) -> Result<Option<Controller>> {
        match engine.program(&self.namespace) {
            None => Ok(None),
            Some(program) => self.start_program(&program).await.map(Some),
        }
    }

    async fn start_program(&self, program: &Program) -> Result<Controller> {
        let request: TokenRequest = serde_json::from_value(json!({
            "spec": {"audiences": [], "expirationSeconds": TOKEN_SECONDS},
        }))?;
        let accounts = self.api::<ServiceAccount>();
        let answer = accounts
            .create_token_request(ACCOUNT, &PostParams::default(), &request)
            .await?;
        let token = answer.status.context("no token for the controller")?.token;
        let cluster = self
            .place
            .kubeconfig
            .clusters
            .first()
            .and_then(|each| each.cluster.as_ref());
        let cluster = cluster.context("the kubeconfig names no cluster")?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "measured",
            "clusters": [{"name": "measured", "cluster": {
                "server": cluster.server, "certificate-authority-data": cluster.certificate_authority_data,
            }}],
            "users": [{"name": "measured", "user": {"token": token}}],
            "contexts": [{"name": "measured", "context": {"cluster": "measured", "user": "measured"}}],
        });
        let path = self.place.secrets.path().join(&self.namespace);
        let mut options = fs::OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        serde_json::to_writer(file, &kubeconfig)?;
        program.start(&path, &self.place.logs.join(format!("{}.log", self.namespace)))
    }

    /// Counts what the controller writes from now on.
    pub(crate) fn count_writes(&self) -> Result<WriteCount> {
        let path = self.place.directory.join("audit.log");
        Ok(WriteCount {
            read: fs::metadata(&path)?.len(),
            path,
            user: self.user(),
            writes: Writes::default(),
        })
    }

    /// Waits until no Job is held any more. Whoever has much to do lets go of them later, in moments in which it seems to have nothing
    /// left to do; what it writes then counts, and what it had not let go of would keep the namespace from going.
    pub(crate) async fn released(&self) -> Result<()> {
        let jobs: Api<Job> = self.api();
        let deadline = Instant::now() + RELEASE_LIMIT;
        loop {
            let all = jobs.list_metadata(&ListParams::default()).await?;
            let held = all.iter().filter(|job| !job.finalizers().is_empty()).count();
            if held == 0 {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{held} Jobs are still held {RELEASE_LIMIT:?} after their runs"
            );
            tokio::time::sleep(RELEASE_PAUSE).await;
        }
    }

    /// Ends the controller once it holds nothing, removes the namespace and waits until all that was in it is gone, so that the next
    /// measurement is not disturbed.
    pub(crate) async fn close(self, controller: Option<Controller>) -> Result<()> {
        if let Some(controller) = controller {
            self.released().await?;
            controller.stop().await?;
        }
        let namespaces: Api<Namespace> = Api::all(self.place.admin());
        namespaces
            .delete(&self.namespace, &DeleteParams::default())
            .await?;
        until(
            namespaces,
            &self.namespace,
            conditions::is_deleted(&self.uid),
            CLEANING_LIMIT,
        )
        .await
    }
}

/// What a controller has written since a moment.
pub(crate) struct WriteCount {
    path: PathBuf,
    /// How much of the log has been read.
    read: u64,
    user: String,
    writes: Writes,
}

impl WriteCount {
    /// Waits until no more is written: a controller may have a long queue in front of its own limits when its runs have
    /// ended. Returns all that was.
    pub(crate) async fn settle(&mut self) -> Result<&Writes> {
        for _ in 0..SETTLING_LIMIT {
            let before = self.writes.total();
            tokio::time::sleep(SETTLED).await;
            self.read_on()?;
            if self.writes.total() == before {
                return Ok(&self.writes);
            }
        }
        bail!(
            "{} still writes {:?} after its last run",
            self.user,
            SETTLED * SETTLING_LIMIT
        )
    }

    fn read_on(&mut self) -> Result<()> {
        let mut file = fs::File::open(&self.path)?;
        if file.metadata()?.len() < self.read {
            bail!("{} was begun anew while it was needed", self.path.display());
        }
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // What comes after the last line's end is read when it is whole.
        let whole = bytes
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |end| end + 1);
        bytes.truncate(whole);
        self.writes.take(&String::from_utf8_lossy(&bytes), &self.user)?;
        self.read += u64::try_from(whole)?;
        Ok(())
    }
}

/// Waits for an object to be as it should.
async fn until<K>(api: Api<K>, name: &str, condition: impl Condition<K>, limit: Duration) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let waited = tokio::time::timeout(limit, await_condition(api, name, condition)).await;
    waited
        .with_context(|| format!("waited {limit:?} for {name}, in vain"))?
        .with_context(|| format!("failed to watch {name}"))?;
    Ok(())
}
