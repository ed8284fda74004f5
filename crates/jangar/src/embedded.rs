//! The embedded Kubernetes API with Jangar's kinds in it: what `jangar up` serves and `jangar demo` plays on.

use std::{
    io::Write,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use jangar_api::Kind;
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use kubelite::{
    kubeconfig::{self, Kubeconfig},
    node::{
        self, Node,
        executor::{self, Executor, Isolation, PodLogStore, SandboxPolicy},
    },
    server::{Config, Server, Token, User},
    store::{Limits, Store},
    tls,
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

const MANAGER: &str = "jangar";
/// Establishing a definition takes milliseconds; a minute means that something is broken.
const ESTABLISH_TIMEOUT: Duration = Duration::from_mins(1);

/// A running API server, reachable in process and over TLS.
pub(crate) struct Embedded {
    server: Server,
    node: Node,
    executor: Executor,
    address: SocketAddr,
    kubeconfig: PathBuf,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Embedded {
    /// Starts on the data in `directory`, installs the kinds and makes the namespace.
    pub(crate) async fn start(
        directory: &Path,
        listen: SocketAddr,
        namespace: &str,
        sandbox: SandboxPolicy,
    ) -> Result<Self> {
        let unusable = || format!("failed to use the data directory {}", directory.display());
        std::fs::create_dir_all(directory).with_context(unusable)?;
        let directory = &directory.canonicalize().with_context(unusable)?;
        let store = Store::open(&directory.join("objects.redb"), Limits::default())?;
        let secret = token(&directory.join("token"))?;
        let mut config = Config::new(store);
        config.tokens = vec![Token::new(&secret, User::system("admin"))];
        let logs = PodLogStore::default();
        config.logs = Some(Arc::new(logs.clone()));
        let server = Server::start(config)
            .await
            .context("failed to start the API server")?;

        let listener = TcpListener::bind(listen).await.with_context(|| {
            format!("failed to listen on {listen}; choose another address with --api-listen")
        })?;
        let address = listener.local_addr()?;
        let names = [address.ip().to_string()];
        let identity = tls::Identity::load_or_create(&directory.join("tls"), &names, jiff::Timestamp::now())?;
        let tls_config = Arc::new(identity.server_config()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(tls::serve(
            listener,
            tls_config,
            server.router(),
            tls::Limits::default(),
            async {
                // The sender is gone only when the program ends, which stops serving as well.
                let _ = stopped.await;
            },
        ));

        let path = directory.join("kubeconfig");
        let file = Kubeconfig {
            name: MANAGER,
            server: &format!("https://{address}"),
            ca_pem: identity.ca_pem(),
            token: &secret,
            namespace,
        };
        file.write(&path)?;
        let client = Client::new(server.local(User::system("admin")), namespace);
        install_kinds(&client).await?;
        make_namespace(&client, namespace).await?;
        let settings = node::Config::default();
        let node = Node::start(&server, &settings)
            .await
            .context("failed to start the node")?;
        let mut config = executor::Config::new(&settings.name, &directory.join("pods"));
        config.hidden = vec![directory.clone()];
        config.sandbox = sandbox;
        let kubelet = Client::new(
            server.local(User::system(&format!("node:{}", settings.name))),
            namespace,
        );
        let executor = Executor::start(kubelet, config, logs).await?;
        Ok(Self {
            server,
            node,
            executor,
            address,
            kubeconfig: path,
            stop,
            serving,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client in the same process.
    pub(crate) fn client(&self, namespace: &str) -> Client {
        Client::new(self.server.local(User::system("admin")), namespace)
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
        // Serving may have ended by itself already.
        let _ = self.stop.send(());
        self.server.stop().await;
        self.serving.await.context("the listener failed")
    }
}

/// The bearer token of this directory, made on first use and kept, so that clients outlive a restart.
fn token(path: &Path) -> Result<String> {
    let failed = || format!("failed to keep the token in {}", path.display());
    if let Ok(kept) = std::fs::read_to_string(path)
        && !kept.trim().is_empty()
    {
        return Ok(kept.trim().to_owned());
    }
    let secret = kubeconfig::new_token(&mut rand::rng());
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).with_context(failed)?;
    file.write_all(secret.as_bytes()).with_context(failed)?;
    file.sync_all().with_context(failed)?;
    Ok(secret)
}

/// Applies the nineteen definitions and waits until they are served.
async fn install_kinds(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(MANAGER).force();
    for kind in Kind::ALL {
        let crd = kind.crd();
        let name = crd.metadata.name.clone().unwrap_or_default();
        api.patch(&name, &params, &Patch::Apply(&crd))
            .await
            .with_context(|| format!("failed to install {name}"))?;
        let established = await_condition(api.clone(), &name, is_crd_established());
        tokio::time::timeout(ESTABLISH_TIMEOUT, established)
            .await
            .with_context(|| format!("{name} was not established within a minute"))??;
    }
    Ok(())
}

async fn make_namespace(client: &Client, name: &str) -> Result<()> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    let api: Api<Namespace> = Api::all(client.clone());
    api.patch(
        name,
        &PatchParams::apply(MANAGER).force(),
        &Patch::Apply(&namespace),
    )
    .await
    .with_context(|| format!("failed to make the namespace {name}"))?;
    Ok(())
}
