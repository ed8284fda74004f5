//! Everything in one process: the embedded Kubernetes API with Jangar's kinds in it, a node that runs pods as processes of
//! this machine, and the controllers. It is what `jangar up` serves and `jangar demo` plays on.

mod api_server;
mod directory;
mod kinds;
mod lease;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
};

use anyhow::{Context, Result};
use jangar_controllers::{Controllers, Setup, clock::SystemClock, lease::Identity, outside::Outside};
use jangar_engine::settings::Settings;
use kube::Client;
use kubelite::{
    node::{
        self, Node,
        executor::{self, Executor, Isolation, PodLogStore, SandboxPolicy},
    },
    server::User,
};
use tokio::runtime::Handle;

use self::api_server::ApiServer;
pub(crate) use self::{directory::Directory, lease::identity};
use crate::{
    control_plane::Clients,
    lanes::{Lane, Weight},
    leading::{self, Standby},
    manifests::{self, Document},
    pod_program::PodProgram,
    probes::{self, Instruments},
    readiness::{Part, Readiness},
    runner,
};

/// How many pods the node has in line for each that it runs, and at most: as many as end while the API server hears of an end and the
/// scheduler finds the next pod. A node of three pods or fewer has none in line.
const PODS_PER_ONE_AHEAD: u32 = 4;
const AHEAD_MAX: u32 = 16;

/// How it is set up.
#[derive(Debug)]
pub(crate) struct Options {
    /// Where objects, certificates, the kubeconfig and what pods write are kept.
    pub(crate) directory: Directory,
    /// Where the Kubernetes API listens; port 0 picks a free one.
    pub(crate) api_listen: SocketAddr,
    /// The namespace that is made, and that objects go to unless they say otherwise.
    pub(crate) namespace: String,
    /// Who the kubeconfig is of. They may do everything.
    pub(crate) user: User,
    pub(crate) sandbox: SandboxPolicy,
    /// What pods see read-only although it lies in a hidden directory.
    pub(crate) exposed: Vec<PathBuf>,
    /// How many pods may run at once; the rest wait.
    pub(crate) pods: u32,
    /// How the controllers work. Pods take agent-runner from this program whatever the settings say.
    pub(crate) settings: Settings,
    /// Applied once the kinds are there, before anything runs.
    pub(crate) manifests: Vec<Document>,
    /// What tells the controllers of this start from all others.
    pub(crate) identity: Identity,
    /// The way to endpoints that do the work of runs.
    pub(crate) outside: Arc<Outside>,
}

/// The running whole.
#[derive(Debug)]
pub(crate) struct Embedded {
    namespace: String,
    api: ApiServer,
    node: Node,
    executor: Executor,
    controllers: Controllers,
    /// Where the node and what runs its pods work.
    _lane: Lane,
    /// Kept open as long as pods are started with it.
    _program: PodProgram,
    /// Dropped last, so that nobody else has the directory before everything in it is closed.
    _directory: Directory,
}

impl Embedded {
    /// What can be read off one that is not started yet.
    pub(crate) fn instruments() -> Instruments {
        Instruments::new(Readiness::new([
            (Part::Kinds, "the kinds are not established yet"),
            (Part::Manifests, "the manifests are not applied yet"),
            (Part::Controllers, "the controllers have not started yet"),
        ]))
    }

    /// Starts on the data in the directory. `instruments` tell how far it has come; it works once they say ready.
    pub(crate) async fn start(options: Options, instruments: &Instruments) -> Result<Self> {
        let Options {
            directory,
            api_listen,
            namespace,
            user,
            sandbox,
            exposed,
            pods,
            mut settings,
            manifests,
            identity,
            outside,
        } = options;
        let program = PodProgram::find().await?;
        runner::use_own(&mut settings.runner);
        let listener = probes::bind(api_listen, "--api-listen").await?;
        let logs = PodLogStore::default();
        let api = ApiServer::start(&directory, listener, &namespace, user, logs.clone()).await?;

        let admin = api.client("admin", &namespace);
        kinds::install(&admin).await?;
        instruments.readiness.there(Part::Kinds);
        kinds::make_namespace(&admin, &namespace).await?;
        for object in manifests::apply(&admin, &namespace, &manifests).await? {
            tracing::info!(object, "applied");
        }
        instruments.readiness.there(Part::Manifests);

        let mut config = executor::Config::new(&node::Config::default().name, &directory.path().join("pods"));
        config.hidden = vec![directory.path().to_owned()];
        config.exposed = exposed;
        config.sandbox = sandbox;
        // Before pods are found again: what fails after that would leave them unattended.
        lease::free(&admin, &settings.lease).await?;
        // A place that became free is given away and used without standing in line with what the controllers do.
        let lane = Lane::open("node", Weight::Usual)?;
        let settings_of_node = node::Config {
            pods,
            ahead: (pods / PODS_PER_ONE_AHEAD).min(AHEAD_MAX),
            controllers_on: Some(Handle::current()),
            ..node::Config::default()
        };
        let starting = start_node(&api, config, &settings_of_node, &program, logs);
        let (node, executor) = lane.run(starting).await?;
        let controllers = jangar_controllers::start(Setup {
            client: api.client("jangar-controllers", &namespace),
            lease_client: api.client("jangar-controllers", &namespace),
            settings: Arc::new(settings),
            clock: Arc::new(SystemClock),
            identity,
            registry: &mut instruments.registry(),
            outside,
        });
        leading::follow(
            controllers.state(),
            instruments.readiness.clone(),
            Standby::NotReady,
        );
        Ok(Self {
            namespace,
            api,
            node,
            executor,
            controllers,
            _lane: lane,
            _program: program,
            _directory: directory,
        })
    }

    /// Where the Kubernetes API listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.api.address()
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        self.api.kubeconfig()
    }

    /// A client in the same process, which may do everything.
    pub(crate) fn client(&self) -> Client {
        self.api.client("admin", &self.namespace)
    }

    /// How the control plane reaches the API server: with an account of its own, and with the tokens of its callers.
    pub(crate) fn control_plane_clients(&self) -> Clients {
        Clients {
            own: self.api.client("jangar-control-plane", &self.namespace),
            anonymous: self.api.anonymous(&self.namespace),
        }
    }

    /// How pods are kept apart from this machine.
    pub(crate) fn isolation(&self) -> &Isolation {
        self.executor.isolation()
    }

    /// Waits until the controllers have ended, which they do not do by themselves unless something is broken.
    pub(crate) async fn controllers_ended(&self) {
        leading::ended(self.controllers.state()).await;
    }

    /// Ends the controllers, then pods with their grace, or both at once when `hurry` resolves; then connections and watches;
    /// and closes the store.
    pub(crate) async fn stop(self, hurry: impl Future<Output = ()>) -> Result<()> {
        let mut hurry = pin!(hurry);
        let hurried = tokio::select! {
            () = self.controllers.stop() => false,
            () = &mut hurry => true,
        };
        if hurried {
            self.executor.kill().await;
        } else {
            tokio::select! {
                () = self.executor.drain() => {}
                () = hurry => self.executor.kill().await,
            }
        }
        self.executor.stop().await;
        self.node.stop().await;
        self.api.stop().await
    }
}

/// Starts what makes Jobs run, and what runs pods.
async fn start_node(
    api: &ApiServer,
    mut config: executor::Config,
    settings: &node::Config,
    program: &PodProgram,
    logs: PodLogStore,
) -> Result<(Node, Executor)> {
    let node = Node::start(&api.server, settings)
        .await
        .context("failed to start the node")?;
    config.provided = runner::provided(&program.file);
    if let Some(shim) = &program.shim {
        config.shim.clone_from(shim);
    }
    config.pods_max = settings.pods as usize;
    config.ahead = settings.ahead as usize;
    let kubelet = api.client(&format!("node:{}", settings.name), "default");
    let executor = Executor::start(kubelet, config, logs)
        .await
        .context("failed to start what runs pods")?;
    Ok((node, executor))
}
