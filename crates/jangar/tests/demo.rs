//! `jangar demo`, run as a person runs it.

use std::process::Command;

#[test]
fn demo_shows_refusals_and_survives_its_own_restart() {
    let output = Command::new(env!("CARGO_BIN_EXE_jangar"))
        .arg("demo")
        .output()
        .unwrap();
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
