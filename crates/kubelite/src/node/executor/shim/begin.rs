//! How the container's program begins: in the sandbox, with what it is given and nothing else.

use std::{
    io::{self, PipeReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::Pid;

#[cfg(not(target_os = "linux"))]
use super::Doing;
use super::ShimError;
use crate::node::executor::run::{Cause, Files, Run, START_FAILED_CODE};

/// Why a container's program did not begin.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) cause: Cause,
    pub(super) code: i32,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn start_failed(message: String) -> Self {
        Self {
            cause: Cause::StartFailed,
            code: START_FAILED_CODE,
            message,
        }
    }
}

/// A container's program that has begun.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) pid: Pid,
    pub(super) stdout: PipeReader,
    pub(super) stderr: PipeReader,
}

/// Makes what the container sees, and goes there for good.
pub(super) fn enter(files: &Files, run: &Run) -> Result<(), ShimError> {
    match &run.sandbox {
        #[cfg(target_os = "linux")]
        Some(sandbox) => super::root::enter(files, sandbox, run.working_dir.as_deref()),
        #[cfg(not(target_os = "linux"))]
        Some(_) => {
            let _ = files;
            Err(io::Error::from(io::ErrorKind::Unsupported)).doing(|| "making the sandbox".to_owned())
        }
        None => Ok(()),
    }
}

/// Starts the container's program. It inherits the current directory, which therefore becomes the container's.
pub(super) fn start(run: &Run) -> Result<Program, Refusal> {
    let Some((program, args)) = run.command.split_first() else {
        return Err(Refusal::start_failed("there is no command to run".to_owned()));
    };
    let directory = run.working_dir.as_deref().unwrap_or(Path::new("/"));
    std::env::set_current_dir(directory).map_err(|error| {
        Refusal::start_failed(format!("chdir to workingDir {}: {error}", directory.display()))
    })?;
    let failed = |error: io::Error| Refusal::start_failed(format!("making pipes: {error}"));
    let (stdout, stdout_end) = io::pipe().map_err(failed)?;
    let (stderr, stderr_end) = io::pipe().map_err(failed)?;
    let child = Command::new(program)
        .args(args)
        .env_clear()
        .envs(run.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::from(stdout_end))
        .stderr(Stdio::from(stderr_end))
        // What it sends to its own group is not for us, and without a namespace the group is how its processes are found.
        .process_group(0)
        .spawn()
        .map_err(|error| cannot_run(program, &error))?;
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| Refusal::start_failed("a process without a number".to_owned()))?;
    Ok(Program { pid, stdout, stderr })
}

fn cannot_run(program: &str, error: &io::Error) -> Refusal {
    const HINT: &str =
        "images are not pulled here, so the program must be installed on this machine or be in a volume";
    let why = match error.kind() {
        io::ErrorKind::NotFound if program.contains('/') => format!("no such file or directory; {HINT}"),
        io::ErrorKind::NotFound => format!("executable file not found in $PATH; {HINT}"),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    Refusal::start_failed(format!(
        "unable to start container process: exec: {program:?}: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_run_says_why() {
        for (program, kind, text) in [
            ("nope", io::ErrorKind::NotFound, "not found in $PATH"),
            ("/nope", io::ErrorKind::NotFound, "images are not pulled"),
            ("/x", io::ErrorKind::PermissionDenied, "permission denied"),
            ("/x", io::ErrorKind::OutOfMemory, "memory"),
        ] {
            let refusal = cannot_run(program, &io::Error::from(kind));
            assert_eq!(
                (refusal.cause, refusal.code),
                (Cause::StartFailed, START_FAILED_CODE)
            );
            assert!(refusal.message.contains(text), "{}", refusal.message);
        }
    }
}
