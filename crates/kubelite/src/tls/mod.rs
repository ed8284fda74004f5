//! TLS: the certificates that the server makes for itself, and the loop that serves requests over them.

mod identity;
mod serve;

pub use self::{
    identity::{Identity, TlsError},
    serve::{Limits, serve},
};

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use axum::{Router, routing::get};
    use http::{HeaderMap, StatusCode};
    use jiff::Timestamp;
    use kube::config::{KubeConfigOptions, Kubeconfig as ClientConfig};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        sync::oneshot,
        task::JoinHandle,
    };

    use super::*;
    use crate::{discovery, kubeconfig::Kubeconfig};

    const TOKEN: &str = "let-me-in";

    struct Server {
        port: u16,
        client: kube::Client,
        config: kube::Config,
        /// The most requests that were in the handler at once.
        busiest: Arc<AtomicUsize>,
        stop: oneshot::Sender<()>,
        task: JoinHandle<()>,
        _directory: tempfile::TempDir,
    }

    async fn version(
        headers: HeaderMap,
        now: Arc<AtomicUsize>,
        busiest: Arc<AtomicUsize>,
    ) -> Result<String, StatusCode> {
        busiest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        now.fetch_sub(1, Ordering::SeqCst);
        match headers.get("authorization") {
            Some(value) if value == &format!("Bearer {TOKEN}") => Ok(discovery::version_info().to_string()),
            _ => Err(StatusCode::UNAUTHORIZED),
        }
    }

    /// A server with one route and a client that knows it from a kubeconfig file only.
    async fn start(limits: Limits) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let identity =
            Identity::load_or_create(&directory.path().join("tls"), &[], Timestamp::now()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let path = directory.path().join("kubeconfig");
        let server = format!("https://127.0.0.1:{port}");
        let file = Kubeconfig {
            name: "kubelite",
            server: &server,
            ca_pem: identity.ca_pem(),
            token: TOKEN,
            namespace: "default",
        };
        file.write(&path).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (now, busiest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&busiest);
        let handler = move |headers| version(headers, Arc::clone(&now), Arc::clone(&counted));
        let router = Router::new().route("/version", get(handler));
        let config = Arc::new(identity.server_config().unwrap());
        let task = tokio::spawn(serve(listener, config, router, limits, async {
            // The test may end without stopping the server.
            let _ = stopped.await;
        }));
        let read = ClientConfig::read_from(path).unwrap();
        let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
            .await
            .unwrap();
        let client = kube::Client::try_from(config.clone()).unwrap();
        Server {
            port,
            client,
            config,
            busiest,
            stop,
            task,
            _directory: directory,
        }
    }

    #[tokio::test]
    async fn a_client_with_the_kubeconfig_gets_in() {
        let server = start(Limits::default()).await;
        let info = server.client.apiserver_version().await.unwrap();
        assert_eq!(info.git_version, discovery::GIT_VERSION);
    }

    #[tokio::test]
    async fn a_silent_connection_keeps_nobody_out() {
        let server = start(Limits::default()).await;
        let silent = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
        server.client.apiserver_version().await.unwrap();
        drop(silent);
    }

    #[tokio::test]
    async fn a_handshake_that_takes_too_long_is_cut_off() {
        let limits = Limits {
            handshake: Duration::from_millis(20),
            ..Limits::default()
        };
        let server = start(limits).await;
        let mut silent = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
        assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0, "the server hangs up");
        // What is not TLS at all does no harm either.
        let mut confused = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
        confused.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        server.client.apiserver_version().await.unwrap();
    }

    #[tokio::test]
    async fn connections_beyond_the_limit_wait_for_a_place() {
        let limits = Limits {
            connections: 1,
            ..Limits::default()
        };
        let server = start(limits).await;
        let requests = (0..4).map(|_| {
            // A client of its own has a connection of its own, which ends with it.
            let client = kube::Client::try_from(server.config.clone()).unwrap();
            async move { client.apiserver_version().await.unwrap() }
        });
        futures::future::join_all(requests).await;
        assert_eq!(server.busiest.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn stopping_ends_idle_connections() {
        let server = start(Limits::default()).await;
        server.client.apiserver_version().await.unwrap();
        server.stop.send(()).unwrap();
        server.task.await.unwrap();
        assert!(TcpStream::connect(("127.0.0.1", server.port)).await.is_err());
    }
}
