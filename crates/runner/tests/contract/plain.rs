//! The runner where there are no mounts, because containers cannot be kept apart from the machine: all that it is told of
//! paths is meant below a directory that stands for the root.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::workspace::runner;

/// What a node makes: a volume, the file for the termination message, and links to them below a root.
fn node(spec: &Value) -> TempDir {
    let directory = TempDir::new().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    for name in ["volume", "root/dev"] {
        fs::create_dir_all(path(name)).expect("a directory");
    }
    for (name, content) in [
        ("volume/agent-runner.json", spec.to_string()),
        (
            "volume/run.json",
            json!({"artifacts": [{"name": "a", "path": "/workspace/out"}]}).to_string(),
        ),
        ("message", String::new()),
    ] {
        fs::write(path(name), content).expect("a file");
    }
    symlink(path("volume"), path("root/workspace")).expect("a link");
    symlink(path("message"), path("root/dev/termination-log")).expect("a link");
    directory
}

fn run(node: &Path) -> Output {
    Command::new(runner())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("KUBELITE_ROOT", node.join("root"))
        .output()
        .expect("the runner starts")
}

#[test]
fn every_path_it_is_told_is_below_the_root_that_was_named() {
    let node = node(&json!({
        "provider": "scripted",
        "providerSpec": {
            "binary": "/bin/sh",
            "args": ["/workspace/agent.sh", "/workspace/out", "/etc/passwd"],
            "env": {"PLACE": "/workspace/place"},
            "inputFiles": [{
                "path": "/workspace/agent.sh",
                "content": "echo done > $1; touch $PLACE; test -s $2 && echo '{\"summary\": \"it ran\"}' > $AGENT_OUTCOME_PATH",
            }],
        },
        "artifacts": {
            "statusPath": "/workspace/.agent/status.json", "logPath": "/workspace/.agent/runner.log",
        },
    }));

    let output = run(node.path());

    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let read = |name: &str| fs::read_to_string(node.path().join(name)).expect(name);
    let outcome: Value = serde_json::from_str(&read("message")).expect("JSON");
    assert_eq!(
        (&outcome["reason"], &outcome["summary"]),
        (&json!("Completed"), &json!("it ran"))
    );
    assert_eq!(outcome["artifacts"][0]["bytes"], 5);
    for name in ["out", "place", ".agent/status.json", ".agent/runner.log"] {
        assert!(node.path().join("volume").join(name).exists(), "{name}");
    }
}

#[test]
fn a_place_without_a_volume_is_below_the_root_too() {
    let node = node(&json!({}));
    fs::remove_file(node.path().join("root/workspace")).expect("the link is there");

    let output = run(node.path());

    assert_eq!(output.status.code(), Some(125));
    let message = fs::read_to_string(node.path().join("message")).expect("a message");
    assert!(message.contains("SpecMissing"), "{message}");
    assert!(node.path().join("root/workspace/.agent/status.json").exists());
}

#[test]
fn a_termination_file_that_is_not_there_is_told() {
    let node = node(&json!({"provider": "scripted", "providerSpec": {"binary": "/bin/true"}}));
    let file = node.path().join("root/dev/termination-log");
    fs::remove_file(&file).expect("the link is there");

    let output = run(node.path());

    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("cannot write the termination message to") && said.contains("termination-log"),
        "{said}"
    );
    assert!(!file.exists(), "nobody would read it there");
}
