//! The first stage: leaves the executor's session, makes the namespaces, and waits for what runs in them.

use std::{
    fs::{self, File},
    io,
    os::fd::AsFd,
    process::{Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, WaitOptions, WaitStatus, kill_process, setsid, waitpid},
};

use super::{ARGUMENT, Doing, ShimError, Stage, program, signals::Signals, supervise};
use crate::{
    clock::{Clock, SystemClock},
    node::executor::run::{self, Cause, Exit, Files, Run, START_FAILED_CODE, Started},
};

pub(super) fn outer(files: &Files) -> Result<(), ShimError> {
    // Signals of a terminal and the end of the executor's session are none of ours. It fails only if that is so already.
    let _ = setsid();
    let run: Run = run::read(&files.run())
        .and_then(|run| run.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)))
        .doing(|| "reading what to run".to_owned())?;
    run::write(&files.pid(), &std::process::id()).doing(|| "recording the process".to_owned())?;
    let held = match run.sandbox {
        Some(_) => hold(files),
        None => supervise::unsandboxed(files, &run),
    };
    if let Err(error) = &held
        && !files.exit().exists()
    {
        record(files, Cause::StartFailed, START_FAILED_CODE, &error.to_string())?;
    }
    if held.is_ok() && !files.exit().exists() {
        // It has not begun. Its number may soon be somebody else's; whoever sent it away may have removed it by now.
        let _ = fs::remove_file(files.pid());
    }
    held
}

/// Starts the next stage in new namespaces and waits until nothing of it is left.
fn hold(files: &Files) -> Result<(), ShimError> {
    namespaces()?;
    let signals = Signals::listen()?;
    // The kernel ends every process of the namespace before it reports the end of the first.
    let status = wait(start_init(files)?, signals)?;
    // One that ends well and has recorded nothing has not begun, and will not.
    if files.exit().exists() || status.exit_status() == Some(0) {
        return Ok(());
    }
    match status.terminating_signal() {
        // It was killed before it could say how the container ended, so the container was killed with it.
        Some(signal) => record(files, Cause::Exited, signal, ""),
        None => {
            let complaint = fs::read_to_string(files.complaints()).unwrap_or_default();
            record(files, Cause::StartFailed, START_FAILED_CODE, complaint.trim_end())
        }
    }
}

fn start_init(files: &Files) -> Result<Pid, ShimError> {
    let starting = || "starting the first process of the PID namespace".to_owned();
    let lock = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    let child = Command::new(program().doing(starting)?)
        .args([ARGUMENT, Stage::Init.into()])
        .arg(&files.dir)
        // The lock is held as long as either stage lives.
        .stdin(Stdio::from(lock.doing(|| "sharing the lock".to_owned())?))
        .spawn()
        .doing(starting)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("a process without a number"))
        .doing(starting)
}

fn wait(child: Pid, mut signals: Signals) -> Result<WaitStatus, ShimError> {
    let waiting = || "waiting".to_owned();
    loop {
        let ended = waitpid(Some(child), WaitOptions::NOHANG).doing(waiting)?;
        if let Some((_, status)) = ended {
            return Ok(status);
        }
        match poll(&mut [PollFd::new(&signals, PollFlags::IN)], None) {
            // The signal that is waited for may also be what interrupts.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).doing(waiting),
        }
        for signal in signals.take() {
            // A signal that finds nobody is a race with the end, which the next round sees.
            let _ = kill_process(child, signal);
        }
    }
}

/// Records an end that `Init` did not record. `number` is the signal of a container that had begun.
fn record(files: &Files, cause: Cause, number: i32, message: &str) -> Result<(), ShimError> {
    let recording = || "recording the end".to_owned();
    let started: Option<Started> = run::read(&files.started()).doing(recording)?;
    let (started_at, now) = (started.map(|started| started.at), SystemClock.now());
    let exit = match cause {
        Cause::Exited | Cause::Lost => Exit::signalled(number, started_at, now),
        Cause::StartFailed => Exit {
            cause,
            code: number,
            signal: None,
            message: message.to_owned(),
            started_at,
            finished_at: now,
        },
    };
    run::write_durably(&files.exit(), &exit).doing(recording)
}

#[cfg(target_os = "linux")]
fn namespaces() -> Result<(), ShimError> {
    use rustix::{
        process::{getegid, geteuid},
        thread::{UnshareFlags, set_thread_groups},
    };

    let (uid, gid) = (geteuid(), getegid());
    // Only root may, and only root has groups worth losing that its pods do not own anyway.
    let _ = set_thread_groups(&[]);
    super::root::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWPID)
        .doing(|| "making user and PID namespaces".to_owned())?;
    super::root::map_ids(0, uid.as_raw(), 0, gid.as_raw())
}

#[cfg(not(target_os = "linux"))]
fn namespaces() -> Result<(), ShimError> {
    Err(io::Error::from(io::ErrorKind::Unsupported)).doing(|| "making namespaces".to_owned())
}
