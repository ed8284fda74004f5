//! Runs `jangar crds` as a user does.

#![expect(clippy::expect_used, reason = "a test that cannot go on should stop")]

use std::{collections::BTreeSet, fs, process::Command};

use jangar_api::{Kind, crd};

fn jangar(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_jangar"))
        .args(args)
        .output()
        .expect("jangar starts")
}

#[test]
fn definitions_are_printed_as_a_stream_in_the_order_of_the_table() {
    let output = jangar(&["crds"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut expected = String::new();
    for kind in Kind::ALL {
        expected.push_str(
            "---
",
        );
        expected.push_str(&crd::manifest(*kind).expect("a manifest"));
    }
    assert_eq!(String::from_utf8(output.stdout).expect("text"), expected);
}

#[test]
fn definitions_are_written_one_to_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let target = dir.path().join("not/there/yet");
    let output = jangar(&["crds", "--dir", target.to_str().expect("a path")]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.stdout.is_empty());

    let names: BTreeSet<String> = fs::read_dir(&target)
        .expect("the directory was made")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(
        names,
        Kind::ALL.iter().map(|kind| crd::file_name(*kind)).collect()
    );
    let text = fs::read_to_string(target.join("agents.proompteng.ai_agentruns.yaml")).expect("a file");
    assert_eq!(text, crd::manifest(Kind::AgentRun).expect("a manifest"));
}

#[test]
fn a_directory_that_cannot_be_made_is_named_in_the_error() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let output = jangar(&["crds", "--dir", file.path().to_str().expect("a path")]);
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains(&file.path().display().to_string()), "{message}");
}

#[test]
fn the_version_is_printed() {
    let output = jangar(&["--version"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("jangar {}\n", env!("CARGO_PKG_VERSION"))
    );
}
