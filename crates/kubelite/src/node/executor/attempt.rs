//! One attempt to run a container: started, found again after a restart, signalled, and cleaned up.
//!
//! The lock decides what is true. It is taken before the process is made and handed to it, so a held lock means that a process
//! of the attempt may live, and a free one that none does, whoever crashed meanwhile.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Stdio,
};

use jiff::Timestamp;
use rustix::{
    fs::OFlags,
    process::{Pid, Signal},
};
use tokio::{
    net::unix::pipe::{self, Receiver},
    process::{Child, Command},
};

use super::{
    run::{self, Exit, Files, Run, Started},
    shim::{ARGUMENT, Stage},
};

/// How deep a tree may be whose permissions have to be repaired before it can be removed; deeper than any path can name.
const DEPTH_MAX: usize = 2_048;

/// What became of an attempt.
#[derive(Debug)]
pub(crate) enum State {
    /// Nothing was ever started, so it may be.
    Prepared,
    /// A process lives. `started` once the container's own program runs.
    Alive(Receiver),
    Ended(Exit),
}

/// A process of an attempt, just started.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) wake: Receiver,
    pub(crate) child: Child,
}

/// Starts the process that holds the container. The caller has written everything else that the attempt needs.
pub(crate) fn start(files: &Files, shim: &Path, run: &Run) -> io::Result<Begun> {
    let lock = open_lock(files)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the container is running already",
            ));
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    run::write(&files.run(), run)?;
    let wake = open_wake(files)?;
    let waker = OpenOptions::new()
        .write(true)
        .custom_flags(nonblocking())
        .open(files.wake())?;
    let complaints = OpenOptions::new()
        .create(true)
        .append(true)
        .open(files.complaints())?;
    let child = Command::new(shim)
        .args([ARGUMENT, Stage::Outer.into()])
        .arg(&files.dir)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(lock))
        .stdout(Stdio::from(waker))
        .stderr(Stdio::from(complaints))
        .spawn()?;
    Ok(Begun { wake, child })
}

/// Looks at what an attempt left behind. `now` is the end of one that nobody saw end.
pub(crate) fn find(files: &Files, now: Timestamp) -> io::Result<State> {
    if let Some(exit) = run::read(&files.exit())? {
        return Ok(State::Ended(exit));
    }
    if !files.lock().exists() {
        return Ok(State::Prepared);
    }
    // Opened before the lock is tried: a process that holds the lock then also holds the other end, and its end is seen.
    let wake = open_wake(files)?;
    match open_lock(files)?.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(State::Alive(wake)),
        Err(TryLockError::Error(error)) => Err(error),
        Ok(()) => match ended(files, now)? {
            Some(exit) => Ok(State::Ended(exit)),
            None => Ok(State::Prepared),
        },
    }
}

/// How an attempt without living processes ended; `None` if it never began.
pub(crate) fn ended(files: &Files, now: Timestamp) -> io::Result<Option<Exit>> {
    if let Some(exit) = run::read(&files.exit())? {
        return Ok(Some(exit));
    }
    if !files.pid().exists() {
        return Ok(None);
    }
    let exit = Exit::lost(started_at(files)?, now);
    run::write_durably(&files.exit(), &exit)?;
    Ok(Some(exit))
}

pub(crate) fn started_at(files: &Files) -> io::Result<Option<Timestamp>> {
    Ok(run::read::<Started>(&files.started())?.map(|started| started.at))
}

/// Every attempt of every container below a pod's directory.
pub(crate) fn all_in(pod: &Path) -> io::Result<Vec<Files>> {
    let mut found = Vec::new();
    let containers = pod.join("containers");
    if !containers.exists() {
        return Ok(found);
    }
    for container in fs::read_dir(containers)? {
        for attempt in fs::read_dir(container?.path())? {
            found.push(Files::new(attempt?.path()));
        }
    }
    Ok(found)
}

/// Sends a signal to the process that holds the container, if it lives.
pub(crate) fn signal(files: &Files, signal: Signal) -> io::Result<()> {
    let Some(pid) = run::read::<i32>(&files.pid())?.and_then(Pid::from_raw) else {
        return Ok(());
    };
    let result = send(files, pid, signal);
    match result {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(()),
        result => result,
    }
}

/// Whether a process of it may live.
pub(crate) fn lives(files: &Files) -> io::Result<bool> {
    match open_lock(files)?.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(target_os = "linux")]
fn send(files: &Files, pid: Pid, signal: Signal) -> io::Result<()> {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

    let process = pidfd_open(pid, PidfdFlags::empty())?;
    // The handle was taken before the lock was looked at, so the number has not been given to another process.
    if lives(files)? {
        pidfd_send_signal(process, signal)?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn send(files: &Files, pid: Pid, signal: Signal) -> io::Result<()> {
    if lives(files)? {
        rustix::process::kill_process(pid, signal)?;
    }
    Ok(())
}

fn open_lock(files: &Files) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(files.lock())
}

fn open_wake(files: &Files) -> io::Result<Receiver> {
    if !files.wake().exists() {
        make_fifo(&files.wake())?;
    }
    pipe::OpenOptions::new().open_receiver(files.wake())
}

#[cfg(target_os = "linux")]
pub(crate) fn make_fifo(path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, Mode, mkfifoat};

    Ok(mkfifoat(CWD, path, Mode::from_raw_mode(0o600))?)
}

/// There is no safe call for it on other systems; the program is everywhere.
#[cfg(not(target_os = "linux"))]
pub(crate) fn make_fifo(path: &Path) -> io::Result<()> {
    let status = std::process::Command::new("mkfifo").arg(path).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other("mkfifo failed"))
    }
}

pub(crate) fn nonblocking() -> i32 {
    // The bits of an open flag are the same number whatever its sign.
    i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default()
}

/// Makes a directory for the owner only, and those above it.
pub(crate) fn make_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a tree, also one that a container has made unreadable for its owner. Nothing there is no error.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_removable(path)?;
            fs::remove_dir_all(path)
        }
        result => result,
    }
}

fn make_removable(root: &Path) -> io::Result<()> {
    let mut open: Vec<(PathBuf, usize)> = vec![(root.to_owned(), 0)];
    while let Some((directory, depth)) = open.pop() {
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
        if depth >= DEPTH_MAX {
            continue;
        }
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push((entry.path(), depth + 1));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> (tempfile::TempDir, Files) {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::new(directory.path().to_owned());
        (directory, files)
    }

    fn now() -> Timestamp {
        "2026-03-01T10:20:30Z".parse().unwrap()
    }

    #[tokio::test]
    async fn an_attempt_whose_process_was_never_made_may_be_started() {
        let (_directory, files) = files();
        assert!(matches!(find(&files, now()).unwrap(), State::Prepared));
        drop(open_lock(&files).unwrap());
        assert!(matches!(find(&files, now()).unwrap(), State::Prepared));
    }

    #[tokio::test]
    async fn a_held_lock_means_that_it_lives() {
        let (_directory, files) = files();
        let lock = open_lock(&files).unwrap();
        lock.lock().unwrap();
        assert!(matches!(find(&files, now()).unwrap(), State::Alive(_)));
        assert!(
            start(&files, Path::new("/bin/false"), &empty()).is_err(),
            "it is not started twice"
        );
    }

    #[tokio::test]
    async fn a_process_that_left_no_record_is_lost_and_stays_so() {
        let (_directory, files) = files();
        drop(open_lock(&files).unwrap());
        run::write(&files.pid(), &1).unwrap();
        let State::Ended(exit) = find(&files, now()).unwrap() else {
            panic!("it has ended");
        };
        assert_eq!((exit.cause, exit.code), (run::Cause::Lost, 137));
        assert_eq!(run::read::<Exit>(&files.exit()).unwrap().unwrap(), exit);
    }

    fn empty() -> Run {
        Run {
            command: vec![],
            env: vec![],
            working_dir: None,
            log_bytes_max: 1,
            sandbox: None,
            gated: false,
        }
    }

    #[test]
    fn trees_without_permissions_are_removed() {
        let (directory, _) = files();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        remove_tree(&tree).unwrap();
    }
}
