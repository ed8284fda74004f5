//! What `jangar up` runs in pods, as a program of its own: the process that holds a container, and agent-runner.
//!
//! `jangar` itself can be both, so this program need not be there. But each pod starts it several times, and a program with a
//! server in it takes several times as long to start as this one.

use std::{ffi::OsString, io::Write, process::ExitCode};

use kubelite::node::executor::shim_main;

/// The argument that asks for the build, and for nothing else. `jangar` knows it as well.
const BUILD_ARGUMENT: &str = "--build-of-jangar";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments
        .get(1)
        .is_some_and(|argument| argument == BUILD_ARGUMENT)
    {
        return match write!(std::io::stdout(), env!("JANGAR_BUILD")) {
            Ok(()) => ExitCode::SUCCESS,
            // Nobody is there to be told.
            Err(_) => ExitCode::FAILURE,
        };
    }
    shim_main(arguments.clone()).unwrap_or_else(|| agent_runner::main(arguments))
}
