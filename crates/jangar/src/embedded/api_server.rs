//! The embedded API server on the files of a data directory: in process, and over TLS for everybody else.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use kube::Client;
use kubelite::{
    kubeconfig::Kubeconfig,
    node::executor::PodLogStore,
    server::{Config, Server, Token, User},
    store::{Limits, Store},
    tls,
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use super::directory::Directory;

/// How cluster, user and context are called in the kubeconfig.
const CONTEXT: &str = "jangar";

/// A running API server.
#[derive(Debug)]
pub(crate) struct ApiServer {
    pub(super) server: Server,
    address: SocketAddr,
    kubeconfig: PathBuf,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl ApiServer {
    /// Serves what is in the directory, and writes the kubeconfig of this user there.
    pub(super) async fn start(
        directory: &Directory,
        listener: TcpListener,
        namespace: &str,
        user: User,
        logs: PodLogStore,
    ) -> Result<Self> {
        let store = Store::open(&directory.path().join("objects.redb"), Limits::default())?;
        let secret = directory.token()?;
        let mut config = Config::new(store);
        config.tokens = vec![Token::new(&secret, user)];
        config.logs = Some(Arc::new(logs));
        let server = Server::start(config)
            .await
            .context("failed to start the API server")?;

        let address = listener.local_addr()?;
        let names = [address.ip().to_string()];
        let identity =
            tls::Identity::load_or_create(&directory.path().join("tls"), &names, jiff::Timestamp::now())?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(tls::serve(
            listener,
            Arc::new(identity.server_config()?),
            server.router(),
            tls::Limits::default(),
            async {
                // The sender is gone only when the program ends, which stops serving as well.
                let _ = stopped.await;
            },
        ));

        let kubeconfig = directory.path().join("kubeconfig");
        let file = Kubeconfig {
            name: CONTEXT,
            server: &format!("https://{address}"),
            ca_pem: identity.ca_pem(),
            token: &secret,
            namespace,
        };
        file.write(&kubeconfig)?;
        Ok(Self {
            server,
            address,
            kubeconfig,
            stop,
            serving,
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client in the same process, as this user of the system.
    pub(super) fn client(&self, user: &str, namespace: &str) -> Client {
        Client::new(self.server.local(User::system(user)), namespace)
    }

    /// A client in the same process that is nobody: each of its requests needs a token.
    pub(super) fn anonymous(&self, namespace: &str) -> Client {
        Client::new(self.server.router(), namespace)
    }

    /// Ends connections and watches, and closes the store.
    pub(super) async fn stop(self) -> Result<()> {
        // Serving may have ended by itself already.
        let _ = self.stop.send(());
        self.server.stop().await;
        self.serving.await.context("the listener failed")
    }
}
