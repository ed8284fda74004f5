//! Accepting connections: each handshake and each connection in a task of its own, no more than the limit at once.

use std::{sync::Arc, time::Duration};

use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

/// After an error of the listener itself, such as too many open files, trying again at once would only burn the
/// processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A client that has begun no request for this long is gone or does not mind a new connection.
const IDLE_CONNECTION: Duration = Duration::from_secs(90);
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// What kube-apiserver allows one connection.
const MAX_STREAMS: u32 = 250;

/// Bounds of the accept loop.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once; more wait in the queue of the operating system. The default leaves room for other files
    /// within the usual limit of 1024.
    pub connections: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long requests may take to end once the server stops. Watches never end by themselves.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            handshake: Duration::from_secs(10),
            drain: Duration::from_secs(5),
        }
    }
}

/// Serves until `shutdown` resolves, then lets requests finish within `limits.drain`.
pub async fn serve(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    router: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let acceptor = TlsAcceptor::from(config);
    let places = Arc::new(Semaphore::new(limits.connections));
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let stream = accept(&listener).await;
            let connection = connection(
                stream,
                acceptor.clone(),
                router.clone(),
                limits.handshake,
                stopped.clone(),
            );
            connections.spawn(async move {
                connection.await;
                drop(place);
            });
            // Those that have ended are forgotten.
            while connections.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = accepting => {}
        () = shutdown => {}
    }
    drop(listener);
    // Without connections nobody listens, which is fine.
    let _ = stop.send(());
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.drain, ended).await.is_err() {
        connections.shutdown().await;
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    handshake: Duration,
    mut stopped: watch::Receiver<()>,
) {
    // Answers are small and written whole; waiting for more would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let stream = match timeout(handshake, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "the TLS handshake failed");
            return;
        }
        Err(_) => {
            tracing::debug!("the TLS handshake took too long");
            return;
        }
    };
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_CONNECTION);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_concurrent_streams(MAX_STREAMS);
    let connection =
        builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "the connection ended");
    }
}
