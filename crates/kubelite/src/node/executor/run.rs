//! What the executor tells the process that holds a container, and what that process tells back. Both go through files in the
//! directory of one attempt, so that either side can die and be started again.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::private_file;

/// One run of one container, complete: nothing is left to be looked up.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Run {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) working_dir: Option<PathBuf>,
    /// How much of the output is kept.
    pub(crate) log_bytes_max: u64,
    /// `None` runs it as a plain process, and the mounts are already translated into paths.
    pub(crate) sandbox: Option<Sandbox>,
    /// Whether the program waits at the [gate](super::gate) for its turn.
    #[serde(default)]
    pub(crate) gated: bool,
}

/// What a container sees instead of the machine.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Sandbox {
    /// Directories of the machine that are empty inside.
    pub(crate) hidden: Vec<PathBuf>,
    /// In the order in which they are mounted.
    pub(crate) mounts: Vec<Mount>,
    /// Who the container believes to be.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Mount {
    pub(crate) source: PathBuf,
    /// Below the source; no part of it may be a symbolic link, because earlier containers can make those.
    pub(crate) sub_path: Option<PathBuf>,
    pub(crate) target: PathBuf,
    pub(crate) read_only: bool,
}

/// Why a container is no longer running.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Cause {
    /// Its program ended.
    Exited,
    /// Its surroundings could not be made, or its program is not there or may not be run.
    #[serde(alias = "CannotRun")] // Earlier releases told these apart.
    StartFailed,
    /// Nobody saw it end.
    Lost,
}

/// The end of a run.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Exit {
    pub(crate) cause: Cause,
    pub(crate) code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) message: String,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Timestamp,
}

/// What a shell and every container runtime add to the number of the signal that ended a process.
const SIGNAL_EXIT_BASE: i32 = 128;
const SIGKILL: i32 = 9;
/// What container runtimes report for a container that could not be started.
pub(crate) const START_FAILED_CODE: i32 = 128;

impl Exit {
    pub(crate) fn signalled(signal: i32, started_at: Option<Timestamp>, finished_at: Timestamp) -> Self {
        Self {
            cause: Cause::Exited,
            code: SIGNAL_EXIT_BASE + signal,
            signal: Some(signal),
            message: String::new(),
            started_at,
            finished_at,
        }
    }

    pub(crate) fn lost(started_at: Option<Timestamp>, finished_at: Timestamp) -> Self {
        Self {
            cause: Cause::Lost,
            code: SIGNAL_EXIT_BASE + SIGKILL,
            signal: None,
            message: "the container's process is gone and left no record of how it ended".to_owned(),
            started_at,
            finished_at,
        }
    }
}

/// A container's program has begun.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Started {
    pub(crate) at: Timestamp,
}

/// The files of one attempt to run a container.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Files {
    pub(crate) dir: PathBuf,
}

impl Files {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.dir.join("run.json")
    }

    /// Locked for as long as a process of the run may live.
    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// A named pipe: a byte says that something changed, its end that the holding process is gone.
    pub(crate) fn wake(&self) -> PathBuf {
        self.dir.join("wake")
    }

    /// There while the container waits for its turn.
    pub(crate) fn gate(&self) -> PathBuf {
        self.dir.join("gate")
    }

    /// There instead of the gate if the turn will never come.
    pub(crate) fn shut_gate(&self) -> PathBuf {
        self.dir.join("gate.shut")
    }

    /// The process to send signals to.
    pub(crate) fn pid(&self) -> PathBuf {
        self.dir.join("pid.json")
    }

    pub(crate) fn started(&self) -> PathBuf {
        self.dir.join("started.json")
    }

    pub(crate) fn exit(&self) -> PathBuf {
        self.dir.join("exit.json")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(crate) fn older_log(&self) -> PathBuf {
        self.dir.join("log.1")
    }

    /// There if a part of the log was dropped.
    pub(crate) fn log_cut(&self) -> PathBuf {
        self.dir.join("log.cut")
    }

    /// What the holding process itself has to complain about.
    pub(crate) fn complaints(&self) -> PathBuf {
        self.dir.join("shim.err")
    }

    /// The termination message.
    pub(crate) fn message(&self) -> PathBuf {
        self.dir.join("message")
    }

    /// Where the links are that a container without a sandbox has for its mounts.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.join("home")
    }
}

/// Reads a file of ours; `None` if it is not there.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// How much room is kept for a file that has to be written when the disk is full: one block, more than the end of a container
/// takes.
const RESERVED: [u8; 4096] = [b' '; 4096];

/// Writes a file of ours whole or not at all, as far as other processes can tell. It need not survive the machine, because
/// the processes that it tells about do not survive it either.
pub(crate) fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let bytes = serde_json::to_vec(value)?;
    let mut file = private(&temporary)?;
    // Over what is there, and shortened after that: the room that was reserved is not given away in between.
    file.write_all(&bytes)?;
    file.set_len(u64::try_from(bytes.len()).map_err(io::Error::other)?)?;
    fs::rename(temporary, path)
}

/// Takes room on the disk for a file that [`write`] will write later.
pub(crate) fn reserve(path: &Path) -> io::Result<()> {
    private(&path.with_extension("tmp"))?.write_all(&RESERVED)
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(private_file::PRIVATE)
        .open(path)
}

/// Writes a file of ours that is still true after the machine has lost its power.
pub(crate) fn write_durably<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    private_file::write(path, &serde_json::to_vec(value)?, private_file::PRIVATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.json");
        assert_eq!(read::<i32>(&path).unwrap(), None);
        write(&path, &1).unwrap();
        assert_eq!(read(&path).unwrap(), Some(1));
        write_durably(&path, &2).unwrap();
        assert_eq!(read(&path).unwrap(), Some(2));
        reserve(&path).unwrap();
        assert_eq!(read(&path).unwrap(), Some(2), "room for the next is not the next");
        write(&path, &3).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"3", "nothing of the reserve is left");
        fs::write(&path, "").unwrap();
        assert!(read::<i32>(&path).is_err(), "half a file is no file");
    }
}
