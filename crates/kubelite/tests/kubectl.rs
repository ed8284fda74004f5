//! Drives kubelite with an unchanged kubectl.
//!
//! `kubectl/script.txt` holds the commands and `kubectl/transcript.txt` what they print. With `JANGAR_RECORD=1` both the
//! transcript and the traffic behind it (`kubectl/traffic.jsonl`, which `kubectl_replay.rs` replays without a kubectl)
//! are written anew.
//!
//! `cargo test` leaves this file out, because it needs a kubectl of the release that kubelite answers as: `make kubectl-tests`
//! gets one and names it in `JANGAR_TEST_KUBECTL`.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "kubectl/fixture.rs"]
mod fixture;
#[path = "kubectl/record.rs"]
mod record;
#[path = "kubectl/script.rs"]
mod script;
#[path = "kubectl/traffic.rs"]
mod traffic;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, mpsc},
    thread,
};

use kubelite::{kubeconfig::Kubeconfig, tls};
use serde_json::Value;
use tokio::{net::TcpListener, sync::oneshot};

use crate::{
    fixture::{ManualClock, TOKEN},
    record::Recorder,
};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubectl");

/// The kubectl under test.
fn kubectl() -> PathBuf {
    env::var_os("JANGAR_TEST_KUBECTL").map(PathBuf::from).expect(
        "JANGAR_TEST_KUBECTL must name a kubectl 1.35: run `make kubectl-tests`, which sets it, \
         or take the path that `make kubectl` prints",
    )
}

#[test]
fn kubectl_is_of_the_release_that_kubelite_answers_as() {
    let output = Command::new(kubectl())
        .args(["version", "--client", "--output=json"])
        .output()
        .expect("kubectl could not be started");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let answer: Value = serde_json::from_slice(&output.stdout).expect("kubectl version prints JSON");
    let version = answer["clientVersion"]["gitVersion"]
        .as_str()
        .expect("a gitVersion");

    assert!(
        version.starts_with("v1.35."),
        "kubelite answers as 1.35, and this kubectl is {version}"
    );
}

#[tokio::test]
async fn every_command_of_the_script_prints_what_the_transcript_says() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let home = directory.path();
    fs::create_dir(home.join("bin")).expect("a directory for kubectl");
    std::os::unix::fs::symlink(kubectl(), home.join("bin/kubectl")).expect("a link to kubectl");
    let script = fs::read_to_string(format!("{FILES}/script.txt")).expect("the script can be read");

    let running = Running::start(home);
    let transcript = script::run(&script, home, &running).await;
    let traffic = running.recorder.lines();
    running.stop();

    if env::var_os("JANGAR_RECORD").is_some() {
        fs::write(format!("{FILES}/transcript.txt"), &transcript).expect("the transcript can be written");
        fs::write(format!("{FILES}/traffic.jsonl"), &traffic).expect("the traffic can be written");
        return;
    }
    let expected = fs::read_to_string(format!("{FILES}/transcript.txt")).expect("the transcript can be read");
    if let Some(place) = expected
        .lines()
        .zip(transcript.lines())
        .position(|(one, other)| one != other)
    {
        let printed = concat!(env!("CARGO_TARGET_TMPDIR"), "/transcript.txt");
        fs::write(printed, &transcript).expect("what was printed can be written");
        let line = |text: &str| text.lines().nth(place).unwrap_or_default().to_owned();
        panic!(
            "line {} of the transcript differs\nexpected: {}\nprinted:  {}\n\nsee diff {FILES}/transcript.txt {printed}",
            place + 1,
            line(&expected),
            line(&transcript),
        );
    }
    assert_eq!(
        expected.lines().count(),
        transcript.lines().count(),
        "one transcript is longer"
    );
}

/// A server on a thread of its own: it has one thread only, so that what follows from a write is done before its answer
/// is sent (see [`fixture::settle`]).
struct Running {
    recorder: Arc<Recorder>,
    clock: Arc<ManualClock>,
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Running {
    /// Returns when the server listens and its kubeconfig is in the directory.
    fn start(directory: &Path) -> Self {
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
            runtime.block_on(serve(&directory, inner_clock, &inner_recorder, ready, stopped));
        });
        started.recv().expect("the server is ready");
        Self {
            recorder,
            clock,
            stop,
            thread,
        }
    }

    fn stop(self) {
        self.stop.send(()).expect("the server runs");
        self.thread.join().expect("the server stops");
    }
}

async fn serve(
    directory: &Path,
    clock: Arc<ManualClock>,
    recorder: &Arc<Recorder>,
    ready: mpsc::Sender<()>,
    stopped: oneshot::Receiver<()>,
) {
    let server = fixture::server(clock).await;
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
    let router = recorder.before(server.router());
    tls::serve(listener, config, router, tls::Limits::default(), async {
        // A test that fails drops the other end, which is a reason to stop as well.
        let _ = stopped.await;
    })
    .await;
    server.stop().await;
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
