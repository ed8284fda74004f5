//! The programs that serve the embedded API, run as a person runs them.
#![expect(clippy::unwrap_used, reason = "a helper of a test may fail it")]

use std::{
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
};

fn jangar(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jangar"));
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn up(directory: &Path) -> Child {
    let directory = directory.to_str().unwrap();
    jangar(&["up", "--data-dir", directory, "--api-listen", "127.0.0.1:0"])
        .spawn()
        .unwrap()
}

/// Reads the one line that `up` prints when it is ready.
fn ready_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    line
}

/// Sends SIGTERM to a process that this test started.
fn terminate(child: &Child) {
    let status = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
}

#[test]
fn demo_shows_refusals_and_survives_its_own_restart() {
    let output = jangar(&["demo"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for expected in [
        "19 kinds installed",
        "agentrun.agents.proompteng.ai/fix-the-test-1 serverside-applied",
        "spec.runtime.type: Unsupported value: \"magic\"",
        "the run was accepted",
        "the request to cancel is still there",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing in:\n{text}");
    }
}

#[test]
fn up_prints_one_line_when_ready_and_ends_on_sigterm() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = up(directory.path());
    let line = ready_line(&mut child);
    assert!(
        line.starts_with("ready: Kubernetes API on https://127.0.0.1:"),
        "{line}"
    );
    let kubeconfig = directory.path().join("kubeconfig");
    let mode = std::fs::metadata(&kubeconfig).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the kubeconfig holds a token");
    terminate(&child);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_second_up_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = up(directory.path());
    ready_line(&mut first);
    let mut second = up(directory.path());
    let mut complaint = String::new();
    second
        .stderr
        .as_mut()
        .unwrap()
        .read_to_string(&mut complaint)
        .unwrap();
    assert!(!second.wait().unwrap().success());
    assert!(complaint.contains("in use"), "{complaint}");
    terminate(&first);
    assert!(first.wait().unwrap().success());
}

#[test]
fn a_taken_address_is_named_with_the_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let output = jangar(&[
        "up",
        "--data-dir",
        directory.path().to_str().unwrap(),
        "--api-listen",
        &address,
    ])
    .output()
    .unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        complaint.contains(&address) && complaint.contains("--api-listen"),
        "{complaint}"
    );
}
