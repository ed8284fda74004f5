//! agent-runner: the program that Jangar puts into every pod to run an agent there.
//!
//! It prepares the workspace, starts the agent, passes signals on to it, bounds its time and its log, and writes down what
//! came of it: in full to the status file, and in at most 4 KiB as the termination message, from which the controller knows
//! the result without reading anything else of the pod. `docs/agent-runner.md` is its contract with those who bring an agent.

mod artifacts;
mod askpass;
mod bounded;
mod cli;
mod console;
mod delivery;
mod environment;
mod git;
mod inputs;
mod install;
mod mask;
mod outcome;
mod process;
mod program;
mod pull_request;
mod reason;
mod report;
mod repository;
mod root;
mod run;
mod schedule;
mod spec;
mod status;
mod tee;
mod template;

use std::{ffi::OsString, process::ExitCode};

pub use reason::Reason;

/// The name of the program. Another program that was started under this name, by a link for instance, calls [`main`].
pub const NAME: &str = "agent-runner";

/// Runs the program with these arguments, the name it was started under first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let name = arguments.next().unwrap_or_else(|| NAME.into());
    let arguments: Vec<OsString> = arguments.collect();
    ExitCode::from(cli::run(&name, &arguments))
}
