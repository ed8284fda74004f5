//! `agent-runner install DIR` and `agent-runner install --link DIR`.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use tempfile::TempDir;

use crate::workspace::runner;

#[test]
fn installing_twice_leaves_one_program_that_works() {
    let directory = TempDir::new().expect("a temporary directory");
    for _ in 0..2 {
        let installed = Command::new(runner())
            .arg("install")
            .arg(directory.path())
            .output()
            .expect("the runner starts");
        assert!(installed.status.success());
    }

    let names: Vec<_> = fs::read_dir(directory.path())
        .expect("the directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["agent-runner"]);
    let program = directory.path().join("agent-runner");
    let mode = fs::metadata(&program).expect("the program").permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    let version = Command::new(program)
        .arg("--version")
        .output()
        .expect("it starts");
    assert_eq!(
        String::from_utf8_lossy(&version.stdout),
        format!("agent-runner {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_link_leads_to_the_program_that_made_it_and_replaces_what_was_there() {
    let directory = TempDir::new().expect("a temporary directory");
    let program = directory.path().join("agent-runner");
    fs::write(&program, "an older one").expect("a file");

    let installed = Command::new(runner())
        .args(["install", "--link"])
        .arg(directory.path())
        .output()
        .expect("the runner starts");

    assert!(installed.status.success());
    assert_eq!(
        String::from_utf8_lossy(&installed.stdout),
        format!("installed {}\n", program.display())
    );
    assert_eq!(
        fs::read_link(&program).expect("a link"),
        runner().canonicalize().expect("a path")
    );
    let entries = fs::read_dir(directory.path()).expect("the directory");
    assert_eq!(entries.count(), 1, "nothing else is left");
    let version = Command::new(program)
        .arg("--version")
        .output()
        .expect("it starts");
    assert!(version.status.success());
}

#[test]
fn a_directory_that_is_not_there_is_not_made() {
    let directory = TempDir::new().expect("a temporary directory");
    let missing = directory.path().join("missing");

    let output = Command::new(runner())
        .arg("install")
        .arg(&missing)
        .output()
        .expect("the runner starts");

    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("missing is not a directory; mount the volume"),
        "{message}"
    );
    assert!(!missing.exists());
}

#[test]
fn arguments_that_mean_nothing_are_answered_with_the_usage() {
    let output = Command::new(runner())
        .arg("bogus")
        .output()
        .expect("the runner starts");

    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("agent-runner install DIR"));
}
