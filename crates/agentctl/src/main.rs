//! The program `agentctl`: hands the command line and the environment to the library, and ends with its code.

use std::process::ExitCode;

use jangar_agentctl::{Environment, main_with};

fn main() -> ExitCode {
    ExitCode::from(main_with(std::env::args_os(), Environment::of_the_process()))
}
