//! The command line: what was typed, and what it means.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    path::PathBuf,
};

use crate::{askpass, environment::Environment, install, install::Method, run};

/// Exit code for a command line that means nothing.
const EXIT_USAGE: u8 = 2;

const USAGE: &str = "\
agent-runner: runs an agent in a pod of Jangar

usage:
  agent-runner                      run the agent that /workspace/agent-runner.json describes
  agent-runner install DIR          copy this program to DIR/agent-runner
  agent-runner install --link DIR   make DIR/agent-runner a symbolic link to this program
  agent-runner --help | --version

As GIT_ASKPASS it answers git's questions for a user name and a password.
";

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Run,
    Install(Method, PathBuf),
    /// Git asks, with its question as the only argument.
    Askpass(String),
    Help,
    Version,
}

/// Does what the arguments say and returns the exit code. `name` is what the program was started under.
pub(crate) fn run(name: &OsStr, arguments: &[OsString]) -> u8 {
    match parse(arguments) {
        Some(Command::Run) => run::run(name, &Environment::of_this_process()),
        Some(Command::Install(method, directory)) => match install::install(method, &directory) {
            Ok(target) => print(&format!("installed {}\n", target.display())),
            Err(error) => fail(&error.to_string(), 1),
        },
        Some(Command::Askpass(prompt)) => match askpass::answer(&prompt, &Environment::of_this_process()) {
            Ok(answer) => print(&format!("{answer}\n")),
            Err(error) => fail(&error.to_string(), 1),
        },
        Some(Command::Help) => print(USAGE),
        Some(Command::Version) => print(&format!("agent-runner {}\n", env!("CARGO_PKG_VERSION"))),
        None => fail(&format!("these arguments mean nothing\n\n{USAGE}"), EXIT_USAGE),
    }
}

fn parse(arguments: &[OsString]) -> Option<Command> {
    let words: Vec<_> = arguments.iter().map(|argument| argument.to_str()).collect();
    match *words.as_slice() {
        [] | [Some("run")] => Some(Command::Run),
        [Some("install"), Some("--link")] => None,
        // The directory need not be UTF-8, so it is taken from the arguments themselves.
        [Some("install"), _] => arguments
            .get(1)
            .map(|directory| Command::Install(Method::Copy, directory.into())),
        [Some("install"), Some("--link"), _] => arguments
            .get(2)
            .map(|directory| Command::Install(Method::Link, directory.into())),
        [Some("help" | "--help" | "-h")] => Some(Command::Help),
        [Some("--version" | "-V")] => Some(Command::Version),
        [Some(prompt)] if askpass::is_prompt(prompt) => Some(Command::Askpass(prompt.to_owned())),
        _ => None,
    }
}

fn print(text: &str) -> u8 {
    u8::from(io::stdout().write_all(text.as_bytes()).is_err())
}

fn fail(message: &str, code: u8) -> u8 {
    // There is nowhere else to say that stderr is closed.
    let _ = writeln!(io::stderr(), "agent-runner: {message}");
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_understood() {
        for (arguments, expected) in [
            (&[][..], Some(Command::Run)),
            (&["run"], Some(Command::Run)),
            (
                &["install", "/shared"],
                Some(Command::Install(Method::Copy, "/shared".into())),
            ),
            (
                &["install", "--link", "/shared"],
                Some(Command::Install(Method::Link, "/shared".into())),
            ),
            (&["install"], None),
            (&["install", "--link"], None),
            (&["--version"], Some(Command::Version)),
            (&["-h"], Some(Command::Help)),
            (
                &["Password for 'https://git@host': "],
                Some(Command::Askpass("Password for 'https://git@host': ".to_owned())),
            ),
            (&["bogus"], None),
            (&["run", "extra"], None),
        ] {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            assert_eq!(parse(&arguments), expected, "{arguments:?}");
        }
    }
}
