//! How an agent ends, by itself or told to, and what the runner makes of it.

use std::{fs::File, io::Read};

use rustix::process::Signal;
use serde_json::json;

use crate::workspace::Workspace;

#[test]
fn an_agent_that_exits_with_0_has_completed() {
    let workspace = Workspace::with_agent("echo out; echo err >&2");

    let finished = workspace.run();

    assert_eq!(finished.code, Some(0));
    assert_eq!(finished.stdout, "out\n");
    assert_eq!(finished.stderr, "err\n");
    assert_eq!(
        finished.outcome,
        json!({"version": 1, "exitCode": 0, "reason": "Completed"})
    );
    assert_eq!(finished.status["status"], "succeeded");
    assert_eq!(finished.status["provider"], "scripted");
    assert_eq!(finished.status["binary"], "/bin/sh");
    let log = workspace.read(".agent/runner.log");
    assert!(log.contains("out\n") && log.contains("err\n"), "{log}");
}

#[test]
fn while_the_agent_works_the_status_file_says_so() {
    let workspace = Workspace::with_agent("cp .agent/status.json seen");

    workspace.run();

    let seen: serde_json::Value = serde_json::from_str(&workspace.read("seen")).expect("JSON");
    assert_eq!(seen["status"], "running");
    assert!(seen.get("exitCode").is_none(), "{seen}");
}

#[test]
fn the_exit_code_of_the_agent_is_that_of_the_runner() {
    let finished = Workspace::with_agent("exit 42").run();

    assert_eq!(finished.code, Some(42));
    assert_eq!(finished.reason(), "AgentFailed");
    assert_eq!(finished.outcome["exitCode"], 42);
    assert_eq!(finished.status["status"], "failed");
    assert_eq!(finished.status["exitCode"], 42);
}

#[test]
fn an_agent_that_a_signal_killed_has_128_and_its_number() {
    let finished = Workspace::with_agent("kill -KILL $$").run();

    assert_eq!(finished.code, Some(137));
    assert_eq!(finished.reason(), "AgentKilled");
    assert_eq!(finished.status["signal"], "SIGKILL");
}

#[test]
fn sigterm_to_the_runner_ends_the_whole_tree() {
    let workspace =
        Workspace::with_agent("(sleep 10; echo survived >&3) 3>alive & exec 3>alive; echo ready; wait");
    let pipe = workspace.pipe("alive");
    let mut started = workspace.start();
    let mut alive = File::open(pipe).expect("the agent opens the pipe");
    started.until("ready");

    started.signal(Signal::TERM);

    assert_eq!(until_all_are_gone(&mut alive), "");
    let finished = started.finish();
    assert_eq!(finished.code, Some(143));
    assert_eq!(finished.reason(), "Stopped");
    assert!(finished.message().contains("SIGTERM"), "{}", finished.message());
}

#[test]
fn the_request_to_stop_reaches_the_children_of_the_agent_too() {
    let workspace = Workspace::with_agent(
        "trap 'wait; exit 5' TERM; sh -c 'trap \"echo asked; exit\" TERM; echo ready; sleep 30 & wait' & wait",
    );
    let mut started = workspace.start();
    started.until("ready");

    started.signal(Signal::TERM);

    let finished = started.finish();
    assert_eq!(finished.stdout, "asked\n");
    assert_eq!(finished.code, Some(5));
    assert_eq!(finished.reason(), "Stopped");
}

#[test]
fn other_signals_reach_the_agent_and_mean_what_it_says() {
    let workspace = Workspace::with_agent("trap 'exit 7' USR1; echo ready; sleep 30 & wait");
    let mut started = workspace.start();
    started.until("ready");

    started.signal(Signal::USR1);

    let finished = started.finish();
    assert_eq!(finished.code, Some(7));
    assert_eq!(finished.reason(), "AgentFailed");
}

#[test]
fn an_agent_that_ignores_the_request_to_stop_is_killed_after_its_grace() {
    let workspace = Workspace::with_agent_and(
        "trap '' TERM; echo ready; sleep 30",
        &json!({"deadlines": {"graceSeconds": 0.1}}),
    );
    let mut started = workspace.start();
    started.until("ready");

    started.signal(Signal::TERM);

    let finished = started.finish();
    assert_eq!(finished.code, Some(137));
    assert_eq!(finished.reason(), "Stopped");
}

#[test]
fn an_agent_that_finishes_its_work_when_told_to_stop_has_completed() {
    let workspace = Workspace::with_agent("trap 'echo saved; exit 0' TERM; echo ready; sleep 30 & wait");
    let mut started = workspace.start();
    started.until("ready");

    started.signal(Signal::TERM);

    let finished = started.finish();
    assert_eq!(finished.stdout, "saved\n");
    assert_eq!(finished.code, Some(0));
    assert_eq!(finished.reason(), "Completed");
}

#[test]
fn at_the_soft_deadline_the_agent_is_asked_to_stop() {
    let finished = Workspace::with_agent_and("sleep 30", &json!({"deadlines": {"softSeconds": 0.2}})).run();

    assert_eq!(finished.code, Some(143));
    assert_eq!(finished.reason(), "SoftDeadlineExceeded");
    assert!(
        finished.stderr.contains("asking it to stop"),
        "{}",
        finished.stderr
    );
    assert!(!finished.stderr.contains("killing"), "{}", finished.stderr);
}

#[test]
fn at_the_hard_deadline_it_is_killed_after_it_was_asked() {
    let workspace = Workspace::with_agent_and(
        "trap 'echo asked' TERM; echo ready; while :; do sleep 30 & wait; done",
        &json!({"deadlines": {"softSeconds": 3, "graceSeconds": 3}}),
    );

    let finished = workspace.run();

    assert_eq!(finished.code, Some(137));
    assert_eq!(finished.reason(), "HardDeadlineExceeded");
    assert_eq!(finished.stdout, "ready\nasked\n");
    let asked = finished
        .stderr
        .find("asking it to stop")
        .expect("the request is told");
    let killed = finished.stderr.find("killing it").expect("the kill is told");
    assert!(asked < killed, "{}", finished.stderr);
}

#[test]
fn what_the_agent_left_running_dies_with_it() {
    let workspace = Workspace::with_agent("(sleep 10; echo survived >&3) 3>alive & exec 3>alive; exit 0");
    let pipe = workspace.pipe("alive");
    let started = workspace.start();
    let mut alive = File::open(pipe).expect("the agent opens the pipe");

    let finished = started.finish();

    assert_eq!(until_all_are_gone(&mut alive), "");
    assert_eq!(finished.reason(), "Completed");
}

#[test]
fn a_process_that_left_the_group_does_not_hold_up_the_end() {
    // Job control gives the background process a group of its own; only bash does so without a terminal.
    let finished = Workspace::with_agent("exec bash -c 'set -m; sleep 10 & exit 0'").run();

    assert_eq!(finished.code, Some(0));
    assert!(
        finished.stderr.contains("still holds its output open"),
        "{}",
        finished.stderr
    );
}

#[test]
fn an_agent_that_closes_its_output_early_is_still_waited_for() {
    let finished = Workspace::with_agent("exec >&- 2>&-; sleep 0.1; exit 3").run();

    assert_eq!(finished.code, Some(3));
}

#[test]
fn the_log_stops_at_its_limit_and_says_so_while_the_output_goes_on() {
    let workspace = Workspace::with_agent_and(
        "i=0; while [ $i -lt 200 ]; do echo 0123456789; i=$((i+1)); done",
        &json!({"artifacts": {"logMaxBytes": 100}}),
    );

    let finished = workspace.run();

    assert_eq!(finished.stdout.len(), 200 * 11);
    let log = workspace.read(".agent/runner.log");
    assert!(
        log.contains("the log is cut here, at its limit of 100 bytes"),
        "{log}"
    );
    assert!(log.len() < 300, "{} bytes", log.len());
    assert_eq!(finished.status["artifacts"]["logCut"], true);
}

/// What processes wrote to the pipe before the last of them was gone.
fn until_all_are_gone(pipe: &mut File) -> String {
    let mut written = String::new();
    pipe.read_to_string(&mut written).expect("the pipe can be read");
    written
}
