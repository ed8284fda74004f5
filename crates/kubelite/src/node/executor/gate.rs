//! What keeps a container from beginning whose surroundings are made before its turn comes.
//!
//! A named pipe in the directory of the attempt. The executor holds it open and writes one byte when the turn has come; the process that
//! holds the container waits for that, and goes away if the executor does. Whoever takes the name of the pipe away decides: the
//! container if it begins, or the next executor on the same data if it finds the pipe there. So it is never in doubt whether a
//! container has begun, whoever crashed meanwhile.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
};

use super::{
    attempt::{make_fifo, nonblocking},
    run::Files,
};

/// The executor's side. Dropping it sends the container away.
#[derive(Debug)]
pub(crate) struct Gate(File);

impl Gate {
    pub(crate) fn make(files: &Files) -> io::Result<Self> {
        make_fifo(&files.gate())?;
        // Open for reading as well, so that nobody has to be on the other side yet.
        let pipe = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(nonblocking())
            .open(files.gate())?;
        Ok(Self(pipe))
    }

    /// Lets the container begin.
    pub(crate) fn open(mut self) -> io::Result<OpenGate> {
        self.0.write_all(b".")?;
        Ok(OpenGate { _pipe: self.0 })
    }
}

/// Kept until the container has begun: what was written into a pipe is lost when nobody has it open, and the container may still be on
/// its way to it.
#[derive(Debug)]
pub(crate) struct OpenGate {
    _pipe: File,
}

/// What the container's side has seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Turn {
    ToCome,
    /// The container may begin, and nobody else decides about that any more.
    Now,
    /// It will never come: the executor is gone, or another one has decided.
    Never,
}

/// The container's side.
#[derive(Debug)]
pub(crate) struct Waiting(File);

impl Waiting {
    /// `None` if the gate was shut for good already.
    pub(crate) fn at(files: &Files) -> io::Result<Option<Self>> {
        // Opened without waiting for an executor, which may be gone.
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(nonblocking())
            .open(files.gate());
        match pipe {
            Ok(pipe) => Ok(Some(Self(pipe))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Looks whether the turn has come, and takes it if so.
    pub(crate) fn look(&mut self, files: &Files) -> io::Result<Turn> {
        match self.0.read(&mut [0]) {
            Ok(0) => Ok(Turn::Never),
            Ok(_) => match fs::remove_file(files.gate()) {
                Ok(()) => Ok(Turn::Now),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Turn::Never),
                Err(error) => Err(error),
            },
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(Turn::ToCome)
            }
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Waiting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Decides, for an attempt of an earlier executor, that it will not begin. `false` if it has begun, or never waited.
pub(crate) fn shut(files: &Files) -> io::Result<bool> {
    match fs::rename(files.gate(), files.shut_gate()) {
        Ok(()) => Ok(true),
        // It may have been shut by one that crashed before it could clear away what stood there.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(files.shut_gate().exists()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> (tempfile::TempDir, Files) {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::new(directory.path().to_owned());
        (directory, files)
    }

    #[test]
    fn a_container_begins_when_the_gate_is_opened_and_not_before() {
        let (_directory, files) = files();
        let gate = Gate::make(&files).unwrap();
        let mut waiting = Waiting::at(&files).unwrap().unwrap();
        assert_eq!(waiting.look(&files).unwrap(), Turn::ToCome);
        let _open = gate.open().unwrap();
        assert_eq!(waiting.look(&files).unwrap(), Turn::Now);
        assert!(!shut(&files).unwrap(), "it has begun");
    }

    #[test]
    fn a_container_that_comes_late_finds_the_gate_open() {
        let (_directory, files) = files();
        let _open = Gate::make(&files).unwrap().open().unwrap();
        let mut waiting = Waiting::at(&files).unwrap().unwrap();
        assert_eq!(waiting.look(&files).unwrap(), Turn::Now);
    }

    #[test]
    fn a_container_goes_away_with_its_executor() {
        let (_directory, files) = files();
        let gate = Gate::make(&files).unwrap();
        let mut early = Waiting::at(&files).unwrap().unwrap();
        assert_eq!(early.look(&files).unwrap(), Turn::ToCome);
        drop(gate);
        assert_eq!(early.look(&files).unwrap(), Turn::Never);
        let mut late = Waiting::at(&files).unwrap().unwrap();
        assert_eq!(late.look(&files).unwrap(), Turn::Never, "it came after the end");
        assert!(shut(&files).unwrap());
        assert!(shut(&files).unwrap(), "and stays so");
        assert!(Waiting::at(&files).unwrap().is_none());
    }

    #[test]
    fn a_gate_that_was_opened_and_shut_lets_nobody_begin() {
        let (_directory, files) = files();
        let gate = Gate::make(&files).unwrap();
        let mut waiting = Waiting::at(&files).unwrap().unwrap();
        let _open = gate.open().unwrap();
        assert!(shut(&files).unwrap(), "the next executor was first");
        assert_eq!(waiting.look(&files).unwrap(), Turn::Never);
    }
}
