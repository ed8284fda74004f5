//! The last stage: makes what the container sees, gives up what it no longer needs, and becomes the container's program.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
};

use super::{Doing, ShimError};
use crate::node::executor::run::{self, Cause, Files, Refusal, Run, START_FAILED_CODE};

/// What a shell reports for a program that is not there, and for one that may not be run.
const NOT_FOUND_CODE: i32 = 127;
const NOT_EXECUTABLE_CODE: i32 = 126;

/// Returns only if the container's program could not be started.
pub(super) fn enter(files: &Files) -> Result<(), ShimError> {
    // Standard input is where a refusal goes. The copy closes by itself when the container's program begins, and that is how
    // the other side learns of it.
    let answer = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .doing(|| "opening the way back".to_owned())?;
    let refusal = match prepare(files) {
        Ok(run) => become_program(&run),
        Err(error) => Refusal {
            cause: Cause::StartFailed,
            code: START_FAILED_CODE,
            message: error.to_string(),
        },
    };
    refuse(answer, &refusal)
}

fn refuse(answer: OwnedFd, refusal: &Refusal) -> Result<(), ShimError> {
    let bytes = serde_json::to_vec(refusal)
        .map_err(io::Error::from)
        .doing(|| "saying why".to_owned())?;
    File::from(answer)
        .write_all(&bytes)
        .doing(|| "saying why".to_owned())
}

fn prepare(files: &Files) -> Result<Run, ShimError> {
    let run: Run = run::read(&files.run())
        .and_then(|run| run.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)))
        .doing(|| "reading what to run".to_owned())?;
    match &run.sandbox {
        #[cfg(target_os = "linux")]
        Some(sandbox) => super::root::enter(files, sandbox, run.working_dir.as_deref())?,
        #[cfg(not(target_os = "linux"))]
        Some(_) => {
            return Err(io::Error::from(io::ErrorKind::Unsupported))
                .doing(|| "making the sandbox".to_owned());
        }
        None => {
            // Its own process group is how its processes are found where there is no namespace.
            rustix::process::setsid().doing(|| "leaving the session".to_owned())?;
        }
    }
    Ok(run)
}

fn become_program(run: &Run) -> Refusal {
    let Some((program, args)) = run.command.split_first() else {
        return Refusal {
            cause: Cause::StartFailed,
            code: START_FAILED_CODE,
            message: "there is no command to run".to_owned(),
        };
    };
    let directory = run.working_dir.as_deref().unwrap_or(Path::new("/"));
    if let Err(error) = std::env::set_current_dir(directory) {
        return Refusal {
            cause: Cause::StartFailed,
            code: START_FAILED_CODE,
            message: format!("chdir to workingDir {}: {error}", directory.display()),
        };
    }
    let error = Command::new(program)
        .args(args)
        .env_clear()
        .envs(run.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .exec();
    cannot_run(program, &error)
}

fn cannot_run(program: &str, error: &io::Error) -> Refusal {
    const HINT: &str =
        "images are not pulled here, so the program must be installed on this machine or be in a volume";
    let (cause, code, why) = match error.kind() {
        io::ErrorKind::NotFound if program.contains('/') => (
            Cause::CannotRun,
            NOT_FOUND_CODE,
            format!("no such file or directory; {HINT}"),
        ),
        io::ErrorKind::NotFound => (
            Cause::CannotRun,
            NOT_FOUND_CODE,
            format!("executable file not found in $PATH; {HINT}"),
        ),
        io::ErrorKind::PermissionDenied => (
            Cause::CannotRun,
            NOT_EXECUTABLE_CODE,
            "permission denied".to_owned(),
        ),
        _ => (Cause::StartFailed, START_FAILED_CODE, error.to_string()),
    };
    Refusal {
        cause,
        code,
        message: format!("unable to start container process: exec: {program:?}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_run_says_why_with_the_code_of_a_shell() {
        for (program, kind, cause, code, text) in [
            (
                "nope",
                io::ErrorKind::NotFound,
                Cause::CannotRun,
                127,
                "not found in $PATH",
            ),
            (
                "/nope",
                io::ErrorKind::NotFound,
                Cause::CannotRun,
                127,
                "images are not pulled",
            ),
            (
                "/x",
                io::ErrorKind::PermissionDenied,
                Cause::CannotRun,
                126,
                "permission denied",
            ),
            (
                "/x",
                io::ErrorKind::OutOfMemory,
                Cause::StartFailed,
                128,
                "memory",
            ),
        ] {
            let refusal = cannot_run(program, &io::Error::from(kind));
            assert_eq!((refusal.cause, refusal.code), (cause, code), "{program}");
            assert!(refusal.message.contains(text), "{}", refusal.message);
        }
    }
}
