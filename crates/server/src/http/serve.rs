//! Listens for connections, HTTP/1 and HTTP/2 alike, encrypted or not, and gives each request the address it came from.

use std::{convert::Infallible, future::pending, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Router, extract::Request};
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::patience::{Patient, Prompt};
use crate::metrics::Metrics;

/// Connections at once; more wait in the queue of the operating system. A stream of HTTP/1 keeps one for itself.
const CONNECTIONS_MAX: usize = 4_096;
/// A client that has begun no request for this long gives its place to another.
const IDLE_CONNECTION: Duration = Duration::from_mins(1);
/// How long it may take until a connection is encrypted.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// What is kept of an answer that a client does not read: of each connection of HTTP/1, and of each request of HTTP/2. The headers of
/// a request have to fit as well.
const BUFFER_MAX_BYTES: usize = 64 * 1024;
/// Requests at once on one connection of HTTP/2.
const STREAMS_PER_CONNECTION: u32 = 256;
/// How often a connection of HTTP/2 is asked whether there is still somebody.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// After an error of the listener itself, such as too many open files, trying again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long requests may take to end once the program ends: less than Kubernetes gives a pod.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// The address that a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// How bytes go to and fro.
#[derive(Clone, Debug)]
pub struct Transport {
    /// What encrypts them; absent: nothing does.
    pub tls: Option<Arc<ServerConfig>>,
    /// Where clients are counted that do not read.
    pub metrics: Arc<Metrics>,
}

/// A listener that is served. Dropping it ends it at once.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Serving {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, and waits for the requests that are under way, but not for ever.
    pub async fn stop(mut self) {
        // Without a connection nobody listens, which is fine; and a task that failed has ended as well.
        let _ = self.stop.send(());
        let _ = (&mut self.task).await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves a router on a listener.
pub fn serve(listener: TcpListener, router: Router, transport: Transport) -> std::io::Result<Serving> {
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(());
    Ok(Serving {
        address,
        stop,
        task: tokio::spawn(accept(listener, router, transport, stopped)),
    })
}

async fn accept(
    listener: TcpListener,
    router: Router,
    transport: Transport,
    mut stopped: watch::Receiver<()>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let (place, stream, peer) = tokio::select! {
            accepted = next(&listener, &places) => accepted,
            _ = stopped.changed() => break,
        };
        let connection = connection(stream, peer, router.clone(), transport.clone(), stopped.clone());
        connections.spawn(async move {
            connection.await;
            drop(place);
        });
        // Those that have ended are forgotten.
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN_MAX, ended).await.is_err() {
        connections.shutdown().await;
    }
}

/// The next connection, when there is a place for it.
async fn next(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (OwnedSemaphorePermit, TcpStream, SocketAddr) {
    loop {
        let Ok(place) = Arc::clone(places).acquire_owned().await else {
            // The semaphore is never closed.
            match pending::<Infallible>().await {}
        };
        match listener.accept().await {
            Ok((stream, peer)) => return (place, stream, peer),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    transport: Transport,
    stopped: watch::Receiver<()>,
) {
    // Answers are written whole; waiting for more would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let stream = Patient::new(stream, transport.metrics);
    let Some(tls) = transport.tls else {
        return requests(stream, peer, router, stopped).await;
    };
    match timeout(HANDSHAKE_MAX, TlsAcceptor::from(tls).accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, peer, router, stopped).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "the TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
    }
}

/// Answers the requests of one connection.
async fn requests<S>(stream: S, peer: SocketAddr, router: Router, mut stopped: watch::Receiver<()>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        let request: Request = request.map(axum::body::Body::new);
        router.clone().oneshot(request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_CONNECTION)
        .max_buf_size(BUFFER_MAX_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .max_send_buf_size(BUFFER_MAX_BYTES);
    // Which of both it is shows with the first bytes, and until then nobody else counts the time.
    let stream = Prompt::new(stream, IDLE_CONNECTION);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "the connection ended");
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv4Addr,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use axum::{body::Body, routing::get};
    use bytes::Bytes;
    use futures::stream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::metrics::Loss;

    const CHUNK: &[u8] = &[b'x'; 4 * 1024];
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

    /// A router with one answer that never ends, and how much of it was asked for.
    fn endless() -> (Router, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&made);
        let handler = move || async move {
            let chunks = stream::repeat_with(move || {
                counted.fetch_add(CHUNK.len(), Ordering::SeqCst);
                Ok::<_, Infallible>(Bytes::from_static(CHUNK))
            });
            Body::from_stream(chunks)
        };
        (Router::new().route("/", get(handler)), made)
    }

    /// A client of the router, whose buffer is small.
    fn client(router: Router, metrics: &Arc<Metrics>) -> (DuplexStream, JoinHandle<()>) {
        let (near, far) = duplex(1024);
        let (stop, stopped) = watch::channel(());
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let served = Patient::new(far, Arc::clone(metrics));
        let task = tokio::spawn(async move {
            requests(served, peer, router, stopped).await;
            drop(stop);
        });
        (near, task)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_dropped_with_little_kept_for_it_and_others_go_on() {
        let metrics = Arc::new(Metrics::default());
        let (router, made) = endless();
        let (mut slow, dropped) = client(router, &metrics);
        slow.write_all(REQUEST).await.expect("a request");
        dropped.await.expect("it ends");
        assert_eq!(metrics.losses_counted(Loss::SlowClient), 1);
        let kept = made.load(Ordering::SeqCst);
        assert!(kept <= 2 * BUFFER_MAX_BYTES, "{kept} bytes were made for nobody");

        let (router, _) = endless();
        let (mut quick, _task) = client(router, &metrics);
        quick.write_all(REQUEST).await.expect("a request");
        let mut taken = vec![0; 16 * BUFFER_MAX_BYTES];
        quick
            .read_exact(&mut taken)
            .await
            .expect("more than is ever kept");
        assert_eq!(metrics.losses_counted(Loss::SlowClient), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_not_waited_for() {
        let (router, _) = endless();
        let (silent, dropped) = client(router, &Arc::default());
        dropped.await.expect("it ends");
        drop(silent);
    }

    #[tokio::test]
    async fn a_request_that_is_under_way_is_answered_before_the_end() {
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let release = Arc::new(tokio::sync::Notify::new());
        let waits = Arc::clone(&release);
        let handler = move || async move {
            begun.send(()).expect("the test waits");
            waits.notified().await;
            "done"
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let transport = Transport {
            tls: None,
            metrics: Arc::default(),
        };
        let router = Router::new().route("/", get(handler));
        let serving = serve(listener, router, transport).expect("it serves");
        let address = serving.address();
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(REQUEST).await.expect("a request");
        begins.recv().await.expect("it is under way");
        let stopping = tokio::spawn(serving.stop());
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        release.notify_one();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"),
            "{answer}"
        );
        stopping.await.expect("it stops");
    }
}
