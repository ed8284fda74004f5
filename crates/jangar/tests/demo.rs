//! `jangar demo`, run as a person runs it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_jangar");

#[test]
fn demo_shows_work_done_and_a_cancel_that_leaves_no_process() {
    plays(Command::new(PROGRAM).arg("demo"), "processes of this machine");
}

/// A sandbox needs a user namespace, and here the kernel makes none.
#[cfg(target_os = "linux")]
#[test]
fn demo_plays_where_the_kernel_refuses_a_sandbox_and_says_so() {
    let script = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$0\" demo";
    plays(
        Command::new("unshare").args(["--user", "--map-root-user", "/bin/sh", "-euc", script, PROGRAM]),
        "plain processes of this machine (--unsandboxed), because",
    );
}

/// Plays the story to its end.
fn plays(demo: &mut Command, isolation: &str) {
    let output = demo.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut rest = text.as_str();
    for expected in [
        "19 kinds are installed",
        isolation,
        "2 + 3 should be 5, and add.sh says -1",
        "mend-adder-1: Running",
        "[stand-in] running the test again",
        "| ok",
        "mend-adder-1: Succeeded",
        "processes of it on this machine: 1",
        "dawdle-1: Cancelled",
        "processes of it on this machine: 0",
        "-echo $(($1 - $2))",
        "+echo $(($1 + $2))",
    ] {
        let (_, after) = rest
            .split_once(expected)
            .unwrap_or_else(|| panic!("{expected:?} is missing, or in the wrong place, in:\n{text}"));
        rest = after;
    }
}
