//! The small HTTP server beside the work: whether the program lives, whether it is ready, and its metrics.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use prometheus_client::registry::Registry;
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use crate::readiness::Readiness;

/// Connections at once; more wait in the queue of the operating system. A kubelet and a few Prometheus servers need one each.
const CONNECTIONS_MAX: usize = 64;
/// A client that has begun no request for this long gives its place to another.
const IDLE_CONNECTION: Duration = Duration::from_secs(30);
/// After an error of the listener itself, such as too many open files, trying again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What can be read off this program from outside.
#[derive(Clone, Debug)]
pub(crate) struct Instruments {
    pub(crate) readiness: Readiness,
    registry: Arc<Mutex<Registry>>,
}

impl Instruments {
    pub(crate) fn new(readiness: Readiness) -> Self {
        Self {
            readiness,
            registry: Arc::default(),
        }
    }

    /// Where metrics are registered.
    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        // Registering adds one entry at a time, so a panic elsewhere leaves it whole.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All metrics, as they are scraped.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry())?;
        Ok(text)
    }
}

/// An address that is taken, before anything is served there.
pub(crate) async fn bind(listen: SocketAddr, flag: &str) -> Result<TcpListener> {
    TcpListener::bind(listen).await.with_context(|| {
        format!(
            "failed to listen on {listen}; choose another address with {flag}, where port 0 picks a free one"
        )
    })
}

/// The running server. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Probes {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Probes {
    /// Serves the probes, and what else is given.
    pub(crate) fn start(listener: TcpListener, instruments: Instruments, beside: Router) -> Result<Self> {
        let address = listener.local_addr()?;
        let router = router(instruments).merge(beside);
        tracing::info!(%address, "probes and metrics are served");
        Ok(Self {
            address,
            task: tokio::spawn(serve(listener, router)),
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers one connection after the other, for ever.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    // The semaphore is never closed.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let service = TowerToHyperService::new(router.clone());
                connections.spawn(async move {
                    let connection = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(IDLE_CONNECTION)
                        .serve_connection(TokioIo::new(stream), service);
                    if let Err(error) = connection.await {
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

fn router(instruments: Instruments) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        // The names that charts and probes of earlier versions ask for.
        .route("/health", get(healthz))
        .route("/ready", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(instruments)
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(instruments): State<Instruments>) -> impl IntoResponse {
    let missing = instruments.readiness.sentences();
    let (status, word) = if missing.is_empty() {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    };
    let lines = [word.to_owned()].into_iter().chain(missing);
    let note = instruments.readiness.noted();
    let lines: Vec<String> = lines.chain(note.map(|note| format!("note: {note}"))).collect();
    (status, format!("{}\n", lines.join("\n")))
}

async fn metrics(State(instruments): State<Instruments>) -> impl IntoResponse {
    match instruments.text() {
        Ok(text) => (StatusCode::OK, [(CONTENT_TYPE, METRICS_TYPE)], text),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(CONTENT_TYPE, "text/plain; charset=utf-8")],
            format!("the metrics cannot be written: {error}\n"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt;
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt;

    use super::*;
    use crate::readiness::Part;

    async fn get(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn probes_say_what_is_missing_and_metrics_what_was_counted() {
        let instruments = Instruments::new(Readiness::new([(
            Part::Controllers,
            "the controllers do not lead",
        )]));
        let counter: Counter = Counter::default();
        instruments
            .registry()
            .register("things", "Things", counter.clone());
        counter.inc();
        let router = router(instruments.clone());

        for path in ["/healthz", "/health"] {
            assert_eq!(get(&router, path).await, (StatusCode::OK, "ok\n".to_owned()));
        }
        for path in ["/readyz", "/ready"] {
            let (status, text) = get(&router, path).await;
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(text, "not ready\nthe controllers do not lead\n");
        }
        instruments.readiness.there(Part::Controllers);
        for path in ["/readyz", "/ready"] {
            assert_eq!(get(&router, path).await, (StatusCode::OK, "ready\n".to_owned()));
        }
        instruments.readiness.note(Some("history is away".to_owned()));
        let told = (StatusCode::OK, "ready\nnote: history is away\n".to_owned());
        assert_eq!(get(&router, "/readyz").await, told);
        let (status, text) = get(&router, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("things_total 1"), "{text}");
        assert_eq!(get(&router, "/else").await.0, StatusCode::NOT_FOUND);
    }
}
