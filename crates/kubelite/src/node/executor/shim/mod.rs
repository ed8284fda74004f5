//! The process that holds a container, in two stages, each the same program started again.
//!
//! `Outer` is started by the executor and outlives it. It makes the user and PID namespaces, starts `Init` in them, passes
//! signals on and records the end if `Init` could not. `Init` is process 1 of the PID namespace: it makes the mount namespace,
//! enters it and gives up what it no longer needs, starts the container's program, writes its output to the log, reaps, records
//! the end, and takes everything with it when it goes.
//!
//! Both are alive as long as the container, and start with each of them, so they are small: no runtime, no threads.
//!
//! Without a sandbox `Outer` does the work of `Init` itself.
//!
//! Signals to `Outer`: TERM asks every process of the container to end, USR1 kills them all.

mod begin;
mod outer;
#[cfg(target_os = "linux")]
mod root;
mod signals;
mod supervise;
mod tree;

use std::{ffi::OsString, io, path::PathBuf, process::ExitCode};

use super::run::Files;

/// The first argument that makes a program a shim. No command line of a person looks like it.
pub(crate) const ARGUMENT: &str = "__kubelite-shim";

#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Stage {
    Outer,
    Init,
}

/// What went wrong while a container was started or held.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {source}")]
pub(crate) struct ShimError {
    doing: String,
    source: io::Error,
}

/// Says what was being done when a system call failed.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, ShimError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, ShimError> {
        self.map_err(|error| ShimError {
            doing: what(),
            source: error.into(),
        })
    }
}

/// Runs the hidden part of the program if the arguments ask for it. A program that runs pods calls this before anything else
/// in `main`, while it has one thread only, and ends with the code if there is one.
pub fn shim_main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next()?.to_str() != Some(ARGUMENT) {
        return None;
    }
    let stage = args
        .next()
        .and_then(|stage| stage.to_str()?.parse::<Stage>().ok());
    let (Some(stage), Some(dir)) = (stage, args.next()) else {
        complain(&"this is a hidden command that only the program itself uses");
        return Some(ExitCode::FAILURE);
    };
    let files = Files::new(PathBuf::from(dir));
    let result = match stage {
        Stage::Outer => outer::outer(&files),
        Stage::Init => supervise::init(&files),
    };
    Some(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    })
}

#[expect(
    clippy::print_stderr,
    reason = "the executor collects what its hidden processes complain about"
)]
fn complain(what: &dyn std::fmt::Display) {
    eprintln!("kubelite: {what}");
}

/// The program to start again: this one, even if its file has been replaced since.
fn program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        Ok(PathBuf::from("/proc/self/exe"))
    } else {
        std::env::current_exe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hidden_argument_makes_a_shim() {
        let args = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
        assert!(shim_main(args(&["jangar"])).is_none());
        assert!(shim_main(args(&["jangar", "up"])).is_none());
        assert!(shim_main(args(&["jangar", ARGUMENT])).is_some());
        assert!(shim_main(args(&["jangar", ARGUMENT, "nonsense", "/"])).is_some());
    }
}
