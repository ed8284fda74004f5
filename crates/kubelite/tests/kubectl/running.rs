//! What kubectl talks to: a server on this machine that writes down what passes, and who answers behind it.

use std::{
    path::Path,
    sync::{Arc, mpsc},
    thread,
};

use axum::Router;
use kubelite::{kubeconfig::Kubeconfig, tls};
use tokio::{net::TcpListener, sync::oneshot};

use crate::{
    fixture::{ManualClock, TOKEN},
    record::Recorder,
    script,
};

/// Who answers.
pub(crate) trait Behind: Sized {
    async fn start(clock: Arc<ManualClock>) -> Self;
    fn service(&self) -> Router;
    async fn stop(self);
}

/// A server on a thread of its own: it has one thread only, so that what follows from a write is done before its answer
/// is sent (see [`crate::fixture::settle`]).
pub(crate) struct Running {
    pub(crate) recorder: Arc<Recorder>,
    clock: Arc<ManualClock>,
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Running {
    /// Returns when the server listens and its kubeconfig is in the directory.
    pub(crate) fn start<B: Behind>(directory: &Path) -> Self {
        let (recorder, clock) = (Recorder::new(), Arc::new(ManualClock::new()));
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = mpsc::channel();
        let (inner_recorder, inner_clock, directory) =
            (recorder.clone(), clock.clone(), directory.to_owned());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(serve::<B>(
                &directory,
                inner_clock,
                &inner_recorder,
                ready,
                stopped,
            ));
        });
        started.recv().expect("the server is ready");
        Self {
            recorder,
            clock,
            stop,
            thread,
        }
    }

    pub(crate) fn stop(self) {
        self.stop.send(()).expect("the server runs");
        self.thread.join().expect("the server stops");
    }
}

async fn serve<B: Behind>(
    directory: &Path,
    clock: Arc<ManualClock>,
    recorder: &Arc<Recorder>,
    ready: mpsc::Sender<()>,
    stopped: oneshot::Receiver<()>,
) {
    let behind = B::start(clock).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    // Certificates are checked with the clock of the machine.
    let identity = tls::Identity::load_or_create(&directory.join("tls"), &[], jiff::Timestamp::now());
    let identity = identity.expect("a certificate");
    let kubeconfig = Kubeconfig {
        name: "kubelite",
        server: &format!("https://{address}"),
        ca_pem: identity.ca_pem(),
        token: TOKEN,
        namespace: "default",
    };
    kubeconfig
        .write(&directory.join("kubeconfig"))
        .expect("the kubeconfig can be written");
    ready.send(()).expect("the test waits");
    let config = Arc::new(identity.server_config().expect("a TLS configuration"));
    let router = recorder.before(behind.service());
    tls::serve(listener, config, router, tls::Limits::default(), async {
        // A test that fails drops the other end, which is a reason to stop as well.
        let _ = stopped.await;
    })
    .await;
    behind.stop().await;
}

impl script::Server for Running {
    fn advance(&self, seconds: i64) {
        self.clock.advance(seconds);
        self.recorder.advance(seconds);
    }

    fn position(&self) -> usize {
        self.recorder.position()
    }

    async fn received(&self, position: usize, text: &str) {
        self.recorder.received(position, text).await;
    }
}
