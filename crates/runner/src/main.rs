//! The program `agent-runner`: everything is in the library, so that it can be tested.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_runner::main(std::env::args_os())
}
