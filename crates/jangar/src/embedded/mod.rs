//! Everything in one process: the embedded Kubernetes API with Jangar's kinds in it, a node that runs pods as processes of
//! this machine, and the controllers. It is what `jangar up` serves and `jangar demo` plays on.

mod api_server;
mod directory;
mod kinds;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use kube::Client;
use kubelite::node::{
    self, Node,
    executor::{self, Executor, Isolation, PodLogStore, SandboxPolicy},
};

use self::{api_server::ApiServer, directory::Directory};
use crate::{
    manifests::{self, Document},
    probes,
    readiness::{Part, Readiness},
    runner,
};

/// How it is set up.
#[derive(Debug)]
pub(crate) struct Options {
    /// Where objects, certificates, the kubeconfig and what pods write are kept.
    pub(crate) data_dir: PathBuf,
    /// Where the Kubernetes API listens; port 0 picks a free one.
    pub(crate) api_listen: SocketAddr,
    /// The namespace that is made, and that objects go to unless they say otherwise.
    pub(crate) namespace: String,
    pub(crate) sandbox: SandboxPolicy,
    /// Applied once the kinds are there, before anything runs.
    pub(crate) manifests: Vec<Document>,
}

/// The running whole.
#[derive(Debug)]
pub(crate) struct Embedded {
    namespace: String,
    api: ApiServer,
    node: Node,
    executor: Executor,
    /// Dropped last, so that nobody else has the directory before everything in it is closed.
    _directory: Directory,
}

impl Embedded {
    /// What is missing before it is started.
    pub(crate) fn readiness() -> Readiness {
        Readiness::new([
            (Part::Kinds, "the kinds are not established yet"),
            (Part::Manifests, "the manifests are not applied yet"),
        ])
    }

    /// Starts on the data in the directory, and tells `readiness` how far it has come.
    pub(crate) async fn start(options: Options, readiness: &Readiness) -> Result<Self> {
        let Options {
            data_dir,
            api_listen,
            namespace,
            sandbox,
            manifests,
        } = options;
        let directory = Directory::claim(&data_dir)?;
        let listener = probes::bind(api_listen, "--api-listen").await?;
        let logs = PodLogStore::default();
        let api = ApiServer::start(&directory, listener, &namespace, logs.clone()).await?;

        let admin = api.client("admin", &namespace);
        kinds::install(&admin).await?;
        readiness.there(Part::Kinds);
        kinds::make_namespace(&admin, &namespace).await?;
        for object in manifests::apply(&admin, &namespace, &manifests).await? {
            tracing::info!(object, "applied");
        }
        readiness.there(Part::Manifests);

        let settings = node::Config::default();
        let node = Node::start(&api.server, &settings)
            .await
            .context("failed to start the node")?;
        let mut config = executor::Config::new(&settings.name, &directory.path().join("pods"));
        config.hidden = vec![directory.path().to_owned()];
        config.exposed = vec![runner::program()?];
        config.sandbox = sandbox;
        let kubelet = api.client(&format!("node:{}", settings.name), &namespace);
        let executor = Executor::start(kubelet, config, logs).await?;
        Ok(Self {
            namespace,
            api,
            node,
            executor,
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

    /// How pods are kept apart from this machine.
    pub(crate) fn isolation(&self) -> &Isolation {
        self.executor.isolation()
    }

    /// Ends pods with their grace, or at once when `hurry` resolves; then connections and watches; and closes the store.
    pub(crate) async fn stop(self, hurry: impl Future<Output = ()>) -> Result<()> {
        tokio::select! {
            () = self.executor.drain() => {}
            () = hurry => self.executor.kill().await,
        }
        self.executor.stop().await;
        self.node.stop().await;
        self.api.stop().await
    }
}
