//! Drives kubelite with an unchanged kubectl.
//!
//! `cargo test` leaves this file out, because it needs a kubectl of the release that kubelite answers as: `make kubectl-tests`
//! gets one and names it in `JANGAR_TEST_KUBECTL`.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{env, path::PathBuf, process::Command};

use serde_json::Value;

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
