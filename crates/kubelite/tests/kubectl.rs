//! Drives kubelite with an unchanged kubectl.
//!
//! `kubectl/script.txt` holds the commands and `kubectl/transcript.txt` what they print. With `JANGAR_RECORD=1` both the
//! transcript and the traffic behind it (`kubectl/traffic.jsonl`, which `kubectl_replay.rs` replays without a kubectl)
//! are written anew.
//!
//! `cargo test` leaves this file out, because it needs a kubectl of the release that kubelite answers as: `make kubectl-tests`
//! gets one and names it in `JANGAR_TEST_KUBECTL`. `make conformance-tests` runs the same script on a real cluster.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "kubectl/cluster.rs"]
mod cluster;
#[path = "kubectl/fixture.rs"]
mod fixture;
#[path = "kubectl/on_cluster.rs"]
mod on_cluster;
#[path = "kubectl/record.rs"]
mod record;
#[path = "kubectl/running.rs"]
mod running;
#[path = "kubectl/script.rs"]
mod script;
#[path = "kubectl/traffic.rs"]
mod traffic;

use std::{env, fs, os::unix::fs::symlink, path::PathBuf, process::Command, sync::Arc};

use axum::Router;
use kubelite::server::Server;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    fixture::ManualClock,
    running::{Behind, Running},
};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubectl");

/// The kubectl under test.
fn kubectl() -> PathBuf {
    env::var_os("JANGAR_TEST_KUBECTL").map(PathBuf::from).expect(
        "JANGAR_TEST_KUBECTL must name a kubectl 1.35: run `make kubectl-tests`, which sets it, \
         or take the path that `make kubectl` prints",
    )
}

/// A directory for a script, in which its commands find kubectl.
fn with_kubectl() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let bin = directory.path().join("bin");
    fs::create_dir(&bin).expect("a directory for kubectl");
    symlink(kubectl(), bin.join("kubectl")).expect("a link to kubectl");
    directory
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
    let directory = with_kubectl();
    let home = directory.path();
    let script = fs::read_to_string(format!("{FILES}/script.txt")).expect("the script can be read");

    let running = Running::start::<Server>(home);
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

impl Behind for Server {
    async fn start(clock: Arc<ManualClock>) -> Self {
        fixture::server(clock).await
    }

    fn service(&self) -> Router {
        self.router()
    }

    async fn stop(self) {
        Self::stop(self).await;
    }
}
