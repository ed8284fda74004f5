//! The process that holds a container: see `kubelite::node::executor`. Not for people to start.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubelite::node::executor::shim_main(std::env::args_os()).unwrap_or(ExitCode::FAILURE)
}
