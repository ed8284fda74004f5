//! The process that holds a container of kubelite's node, for tests that run pods. Not for people to start.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubelite::node::executor::shim_main(std::env::args_os()).unwrap_or(ExitCode::FAILURE)
}
