//! What becomes of a container when nothing can be written about it any more. The process that holds it is started as the
//! executor does, with a directory in which some files cannot be written.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::cluster::{directory, processes_with};

/// How the process that holds a container is told to run a script, as a plain process or in a sandbox.
fn run(script: &str, sandboxed: bool) -> Value {
    let sandbox = json!({"hidden": [], "mounts": [], "uid": 0, "gid": 0});
    json!({
        "command": ["/bin/sh", "-c", script], "env": [["PATH", "/usr/bin:/bin"]], "working_dir": null, "log_bytes_max": 10_000,
        "sandbox": if sandboxed { sandbox } else { Value::Null },
    })
}

/// Holds the container to its end, and returns what was recorded of it.
fn hold(dir: &Path, run: &Value) -> Value {
    fs::create_dir_all(dir.join("root")).unwrap();
    fs::write(dir.join("run.json"), run.to_string()).unwrap();
    let lock = fs::File::create(dir.join("lock")).unwrap();
    let held = Command::new(env!("CARGO_BIN_EXE_kubelite-shim"))
        .args(["__kubelite-shim", "outer"])
        .arg(dir)
        .stdin(Stdio::from(lock))
        .output()
        .unwrap();
    let exit = fs::read(dir.join("exit.json"));
    let exit =
        exit.unwrap_or_else(|_| panic!("nothing was recorded: {}", String::from_utf8_lossy(&held.stderr)));
    serde_json::from_slice(&exit).unwrap()
}

#[test]
fn a_container_whose_log_cannot_be_written_goes_on_to_its_own_end() {
    // More than a pipe holds, so that it would wait for ever if nobody read it.
    let script = "i=0; while [ $i -lt 20000 ]; do echo some output; i=$((i+1)); done; exit 7";
    for sandboxed in [false, true] {
        let dir = directory();
        symlink("/dev/full", dir.path().join("log")).unwrap();
        let exit = hold(dir.path(), &run(script, sandboxed));
        assert_eq!(exit["code"], 7, "{exit}");
        assert_eq!(exit["cause"], "Exited", "{exit}");
    }
}

#[test]
fn a_container_that_cannot_be_held_is_killed_with_all_it_started() {
    for sandboxed in [false, true] {
        let dir = directory();
        // That it has begun is the first thing to be recorded.
        fs::create_dir_all(dir.path().join("started.tmp")).unwrap();
        let word = if sandboxed { "314159.1" } else { "314159.2" };
        let script = format!("sleep {word} & sleep {word}");
        let exit = hold(dir.path(), &run(&script, sandboxed));
        assert_eq!(exit["cause"], "Lost", "{exit}");
        assert_eq!(exit["code"], 137, "{exit}");
        let message = exit["message"].as_str().unwrap();
        assert!(
            message.contains("was killed") && message.contains("recording the start"),
            "{message}"
        );
        assert_eq!(processes_with(word), 0, "nothing of it lives on");
    }
}

#[test]
fn a_container_does_not_start_if_its_end_could_not_be_recorded() {
    let dir = directory();
    fs::create_dir_all(dir.path().join("exit.tmp")).unwrap();
    fs::create_dir_all(dir.path().join("root")).unwrap();
    let mark = dir.path().join("mark");
    let script = format!("echo > {}", mark.display());
    fs::write(dir.path().join("run.json"), run(&script, false).to_string()).unwrap();
    let lock = fs::File::create(dir.path().join("lock")).unwrap();
    let held = Command::new(env!("CARGO_BIN_EXE_kubelite-shim"))
        .args(["__kubelite-shim", "outer"])
        .arg(dir.path())
        .stdin(Stdio::from(lock))
        .output()
        .unwrap();
    assert!(!held.status.success());
    assert!(!mark.exists(), "it must not have worked");
}
