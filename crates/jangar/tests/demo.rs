//! `jangar demo`, run as a person runs it.

use std::process::Command;

#[test]
fn demo_shows_work_done_and_a_cancel_that_leaves_no_process() {
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
    let mut rest = text.as_str();
    for expected in [
        "19 kinds are installed",
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
