//! `jangar demo`, run as a person runs it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_jangar");

#[test]
fn demo_shows_work_done_an_approval_and_a_cancel_that_leaves_no_process() {
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

/// Before the number of processes of a run.
const ALIVE: &str = "processes of it on this machine: ";

/// What tells that somebody signed it off: agentctl says it where that was built beside jangar, as in a test of everything.
fn signed_off() -> &'static str {
    if Path::new(PROGRAM).with_file_name("agentctl").is_file() {
        "step sign-off of release-1 approved, as you"
    } else {
        "you approved step sign-off"
    }
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
        // What comes between may be over before it is looked at.
        "mend-adder-1: ",
        "[stand-in] running the test again",
        "| ok",
        "mend-adder-1: Succeeded",
        "read (Succeeded) -> review (Succeeded), test (Succeeded) -> sign-off (Running, ApprovalPending) -> release (Pending)",
        "OrchestrationRun agents/release-1 waits because of step sign-off",
        "User you can approve it with `agentctl approve release-1 sign-off -n agents`",
        "$ agentctl approve release-1 sign-off -n agents",
        signed_off(),
        "sign-off (Succeeded) -> release (Succeeded)",
        "release-1: Succeeded",
        "review: {\"verdict\":\"good\"}",
        "release: {\"released\":\"Add instead of subtracting\"}",
        "read (Succeeded) -> style (Failed, AgentRunFailed), count (Succeeded) -> publish (Skipped, DependencyFailed)",
        "check-1: Failed",
        "publish was skipped: step style failed",
        "left (Running), right (Running) -> compare (Pending)",
        ALIVE,
        "left (Cancelled, RunCancelled), right (Cancelled, RunCancelled) -> compare (Skipped, RunCancelled)",
        "dawdle-1: Cancelled",
        "receipt: dawdle-1-left-1: Cancelled",
        "receipt: dawdle-1-right-1: Cancelled",
        "processes of it on this machine: 0",
        "-echo $(($1 - $2))",
        "+echo $(($1 + $2))",
    ] {
        let (_, after) = rest
            .split_once(expected)
            .unwrap_or_else(|| panic!("{expected:?} is missing, or in the wrong place, in:\n{text}"));
        rest = after;
        if expected == ALIVE {
            // Two, or three where a shell is about to become another program.
            let count = after.lines().next().unwrap_or_default().parse::<u32>();
            assert!(matches!(count, Ok(2..)), "{count:?} in:\n{text}");
        }
    }
}

/// Interrupts a demo while an agent works, and returns what it ended with and what it said.
fn interrupted_by(signal: Signal, directory: &Path) -> (Option<i32>, String) {
    let mut demo = Command::new(PROGRAM)
        .arg("demo")
        .env("TMPDIR", directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let mut text = Vec::new();
    for line in lines.by_ref().map_while(Result::ok) {
        // This one works until it is stopped.
        let works = line.contains(ALIVE);
        text.push(line);
        if works {
            break;
        }
    }
    kill_process(Pid::from_child(&demo), signal).unwrap();
    text.extend(lines.map_while(Result::ok));
    (demo.wait().unwrap().code(), text.join("\n"))
}

/// How many processes have a directory in their command line: those that hold containers do.
fn processes_in(directory: &Path) -> usize {
    let directory = directory.to_str().unwrap();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(directory))
        .count()
}

#[test]
fn an_interrupted_demo_leaves_nothing_and_says_so() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let directory = tempfile::tempdir().unwrap();
        let (ended_with, text) = interrupted_by(signal, directory.path());
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().flatten().collect();
        assert_eq!(
            (processes_in(directory.path()), left.len()),
            (0, 0),
            "{left:?}\n{text}"
        );
        assert_eq!(ended_with, Some(code), "{text}");
        assert!(text.ends_with("Nothing of it is left."), "{text}");
    }
}
