//! The way of one program to the API server, which a test can cut without anybody else noticing.

use std::net::SocketAddr;

use jangar_testkit::cluster::{Failure, Scene};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Whole,
    /// Connections end, and new ones end at once.
    Cut,
    /// Connections stay open, and nothing passes: as when a firewall forgets them. Those that fell silent stay so.
    Silent,
}

/// Listens on this machine, and carries every connection to the API server.
pub(crate) struct Cable {
    address: SocketAddr,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Cable {
    pub(crate) async fn lay(scene: &Scene) -> Result<Self, Failure> {
        let kubeconfig = scene.bench().kubeconfig_for("", None);
        let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str();
        let api: SocketAddr = server
            .and_then(|url| url.strip_prefix("https://"))
            .ok_or("no server")?
            .parse()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (state, receiver) = watch::channel(State::Whole);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                connections.spawn(carry(near, api, receiver.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, state, task })
    }

    /// What a kubeconfig calls it.
    pub(crate) fn server(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    pub(crate) fn silence(&self) {
        self.state.send_replace(State::Silent);
    }

    /// New connections work again.
    pub(crate) fn mend(&self) {
        self.state.send_replace(State::Whole);
    }
}

async fn carry(mut near: TcpStream, api: SocketAddr, mut state: watch::Receiver<State>) {
    let mut far = None;
    if *state.borrow() == State::Whole {
        let Ok(connected) = TcpStream::connect(api).await else {
            return;
        };
        let far = far.insert(connected);
        tokio::select! {
            _ = copy_bidirectional(&mut near, far) => return,
            _ = state.wait_for(|state| *state != State::Whole) => {}
        }
    }
    if *state.borrow() == State::Silent {
        // Both ends stay open until the cable is cut, or is no more.
        let _ = state.wait_for(|state| *state == State::Cut).await;
    }
}
