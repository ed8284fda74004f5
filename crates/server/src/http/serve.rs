//! Listens for connections, HTTP/1 and HTTP/2 alike, and gives each request the address it came from.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::Request};
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
    time::sleep,
};
use tower::ServiceExt;

/// Connections at once; more wait in the queue of the operating system. A stream of HTTP/1 keeps one for itself.
const CONNECTIONS_MAX: usize = 4_096;
/// A client that has begun no request for this long gives its place to another.
const IDLE_CONNECTION: Duration = Duration::from_mins(1);
/// Requests at once on one connection of HTTP/2.
const STREAMS_PER_CONNECTION: u32 = 256;
/// How often a connection of HTTP/2 is asked whether there is still somebody.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// After an error of the listener itself, such as too many open files, trying again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The address that a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// A listener that is served. Dropping it ends it.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Serving {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves a router on a listener.
pub fn serve(listener: TcpListener, router: Router) -> std::io::Result<Serving> {
    let address = listener.local_addr()?;
    Ok(Serving {
        address,
        task: tokio::spawn(accept(listener, router)),
    })
}

async fn accept(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    // The semaphore is never closed.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let router = router.clone();
                connections.spawn(async move {
                    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
                        request.extensions_mut().insert(Peer(peer));
                        let request: Request = request.map(axum::body::Body::new);
                        router.clone().oneshot(request)
                    });
                    let mut builder = auto::Builder::new(TokioExecutor::new());
                    builder
                        .http1()
                        .timer(TokioTimer::new())
                        .header_read_timeout(IDLE_CONNECTION);
                    builder
                        .http2()
                        .timer(TokioTimer::new())
                        .keep_alive_interval(KEEP_ALIVE)
                        .max_concurrent_streams(STREAMS_PER_CONNECTION);
                    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                        tracing::debug!(%error, "the connection ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
        // Those that have ended are forgotten.
        while connections.try_join_next().is_some() {}
    }
}
