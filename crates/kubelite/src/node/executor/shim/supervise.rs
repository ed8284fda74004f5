//! What process 1 of a container does: starts the program, writes its output to its log, passes signals on, reaps, and records
//! how it ended.

use std::{
    fs::File,
    io::{self, PipeReader, Read, Write},
    os::fd::AsFd,
    path::PathBuf,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_setfl},
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, fchdir, wait},
};

use super::{
    Doing, ShimError,
    begin::{self, Program, Refusal},
    signals::Signals,
    tree::Tree,
};
use crate::{
    clock::{Clock, SystemClock},
    node::executor::{
        gate::{Turn, Waiting},
        logfile::{Lines, Stream, Writer},
        run::{self, Cause, Exit, Files, Run, Started},
    },
};

/// How much output is read at once: what a pipe holds.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long output is still read once every process that we can reach is dead. Without a sandbox one may have escaped with
/// the pipe in its hands.
const DRAIN: Duration = Duration::from_secs(2);
/// Each round ends one process; nobody has more of them.
const KILL_ROUNDS_MAX: usize = 1_000_000;

/// As process 1 of a PID namespace.
pub(super) fn init(files: &Files) -> Result<(), ShimError> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .doing(|| "tying this process to its parent".to_owned())?;
    let run: Run = run::read(&files.run())
        .and_then(|run| run.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)))
        .doing(|| "reading what to run".to_owned())?;
    supervise(files, &run, |_| Tree::Namespace)
}

/// As a plain process.
pub(super) fn unsandboxed(files: &Files, run: &Run) -> Result<(), ShimError> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .doing(|| "asking for orphans".to_owned())?;
    supervise(files, run, |main| Tree::Descendants { main })
}

fn supervise(files: &Files, run: &Run, tree: impl FnOnce(Pid) -> Tree) -> Result<(), ShimError> {
    let wake = io::stdout()
        .as_fd()
        .try_clone_to_owned()
        .doing(|| "opening the way back".to_owned())?;
    // Nobody may be listening, and then nobody may be waited for.
    fcntl_setfl(&wake, OFlags::NONBLOCK).doing(|| "opening the way back".to_owned())?;
    // Whoever learns that the container has begun may send a signal at once.
    let mut signals = Signals::listen()?;
    let waiting = if run.gated {
        let Some(waiting) = Waiting::at(files).doing(standing_by)? else {
            return Ok(());
        };
        Some(waiting)
    } else {
        None
    };
    // The sandbox does not show the directory of the attempt. It is opened before, and being in it is then the way to it.
    let returning = || "returning to the files of the attempt".to_owned();
    let outside = File::open(&files.dir).doing(returning)?;
    let entered = begin::enter(files, run);
    fchdir(&outside).doing(returning)?;
    let files = Files::new(PathBuf::from("."));
    let log = Writer::create(files.clone(), run.log_bytes_max)
        .doing(|| "opening the container's log".to_owned())?;
    // A disk that is full now would be full at the end, when more would be lost.
    let reserved = entered
        .and_then(|()| run::reserve(&files.exit()).doing(|| "keeping room to record the end".to_owned()));
    if let Some(waiting) = waiting
        && reserved.is_ok()
        && !turn_comes(waiting, &files, &mut signals)?
    {
        return Ok(());
    }
    let begun = reserved
        .map_err(|error| Refusal::start_failed(error.to_string()))
        .and_then(|()| begin::start(run));
    fchdir(&outside).doing(returning)?;
    let mut report = Report {
        files,
        wake: File::from(wake),
    };
    match begun {
        Err(refusal) => report.refused(refusal),
        Ok(Program { pid, stdout, stderr }) => Holder {
            started: SystemClock.now(),
            report,
            log,
            signals,
            outputs: [
                Output::new(Stream::Stdout, stdout),
                Output::new(Stream::Stderr, stderr),
            ],
            main: pid,
            tree: tree(pid),
            status: None,
        }
        .hold(),
    }
}

fn standing_by() -> String {
    "waiting for the turn".to_owned()
}

/// Waits until the container may begin. `false` says that it never will.
fn turn_comes(mut waiting: Waiting, files: &Files, signals: &mut Signals) -> Result<bool, ShimError> {
    loop {
        match waiting.look(files).doing(standing_by)? {
            Turn::Now => return Ok(true),
            Turn::Never => return Ok(false),
            Turn::ToCome => {}
        }
        let polled = &mut [
            PollFd::new(&waiting, PollFlags::IN),
            PollFd::new(signals, PollFlags::IN),
        ];
        match poll(polled, None) {
            // The signal that is waited for may also be what interrupts.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).doing(standing_by),
        }
        if signals.take().next().is_some() {
            return Ok(false);
        }
    }
}

/// What the executor is told.
struct Report {
    files: Files,
    wake: File,
}

impl Report {
    fn begun(&mut self, at: Timestamp) -> Result<(), ShimError> {
        run::write(&self.files.started(), &Started { at }).doing(|| "recording the start".to_owned())?;
        self.wake();
        Ok(())
    }

    fn refused(&mut self, refusal: Refusal) -> Result<(), ShimError> {
        self.ended(&Exit {
            cause: refusal.cause,
            code: refusal.code,
            signal: None,
            message: refusal.message,
            started_at: None,
            finished_at: SystemClock.now(),
        })
    }

    fn ended(&mut self, exit: &Exit) -> Result<(), ShimError> {
        // The executor reads it at once and has the end stored durably. If there is none now, and the machine loses its power
        // before it has written this by itself, the container counts as lost.
        run::write(&self.files.exit(), exit).doing(|| "recording the end".to_owned())?;
        self.wake();
        Ok(())
    }

    /// Tells the executor, if there is one, that something changed. If the pipe is full it knows already.
    fn wake(&mut self) {
        let _ = self.wake.write(b".");
    }
}

/// One of the two streams that a container writes.
struct Output {
    /// `None` once it has ended.
    pipe: Option<PipeReader>,
    lines: Lines,
}

impl Output {
    fn new(stream: Stream, pipe: PipeReader) -> Self {
        Self {
            pipe: Some(pipe),
            lines: Lines::new(stream),
        }
    }

    /// Reads what is there, as entries of the log.
    fn read(&mut self, buffer: &mut [u8]) -> Vec<u8> {
        let count = match self.pipe.as_mut().map(|pipe| pipe.read(buffer)) {
            Some(Ok(count)) => count,
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => return Vec::new(),
            // A broken pipe ends like a closed one.
            Some(Err(_)) | None => 0,
        };
        let now = SystemClock.now();
        let mut entries = Vec::with_capacity(count + count / 2);
        self.lines
            .push(buffer.get(..count).unwrap_or_default(), now, &mut entries);
        if count == 0 {
            self.lines.finish(now, &mut entries);
            self.pipe = None;
        }
        entries
    }
}

struct Holder {
    report: Report,
    log: Writer,
    signals: Signals,
    outputs: [Output; 2],
    main: Pid,
    tree: Tree,
    status: Option<WaitStatus>,
    started: Timestamp,
}

impl Holder {
    /// Whatever goes wrong while the container is held, nothing of it lives on: the executor takes our end for that of all its
    /// processes, and another attempt may start beside whoever is left.
    fn hold(mut self) -> Result<(), ShimError> {
        let mut buffer = vec![0; CHUNK_BYTES];
        let held = self.until_over(&mut buffer);
        self.kill_rest()?;
        // How it ended is known by now, and matters more than its last output.
        let _ = self.drain(&mut buffer);
        self.record(held.err().as_ref())
    }

    /// Until the container's program has ended.
    fn until_over(&mut self, buffer: &mut [u8]) -> Result<(), ShimError> {
        self.report.begun(self.started)?;
        while self.status.is_none() {
            self.wait(None, buffer)?;
            for signal in self.signals.take() {
                self.tree.signal(signal);
            }
            self.reap()?;
        }
        Ok(())
    }

    /// Reads what is left of the output.
    fn drain(&mut self, buffer: &mut [u8]) -> Result<(), ShimError> {
        let end = Instant::now() + DRAIN;
        while self.outputs.iter().any(|output| output.pipe.is_some())
            && let Some(left) = end.checked_duration_since(Instant::now())
        {
            self.wait(Some(left), buffer)?;
        }
        Ok(())
    }

    /// Waits for output or a signal, and writes the output to the log.
    fn wait(&mut self, at_most: Option<Duration>, buffer: &mut [u8]) -> Result<(), ShimError> {
        let waiting = || "waiting for events".to_owned();
        let pipes = self.outputs.iter().filter_map(|output| output.pipe.as_ref());
        let mut polled: Vec<PollFd<'_>> = pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        polled.push(PollFd::new(&self.signals, PollFlags::IN));
        let at_most = at_most.map(Timespec::try_from).transpose();
        let at_most = at_most.map_err(io::Error::other).doing(waiting)?;
        match poll(&mut polled, at_most.as_ref()) {
            Ok(_) => {}
            // A signal came, which has been noted.
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error).doing(waiting),
        }
        let ready: Vec<bool> = polled.iter().map(|pipe| !pipe.revents().is_empty()).collect();
        let open = self.outputs.iter_mut().filter(|output| output.pipe.is_some());
        let mut wrote = false;
        for (output, _) in open.zip(ready).filter(|(_, ready)| *ready) {
            let entries = output.read(buffer);
            if !entries.is_empty() {
                self.log.append_or_drop(&entries);
                wrote = true;
            }
        }
        if wrote {
            self.report.wake();
        }
        Ok(())
    }

    /// Collects every child that has ended, whoever started it.
    fn reap(&mut self) -> Result<(), ShimError> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.main => self.status = Some(status),
                Ok(Some(_)) => {}
                Ok(None) | Err(Errno::CHILD) => return Ok(()),
                Err(error) => return Err(error).doing(|| "waiting for children".to_owned()),
            }
        }
    }

    /// The container ends with its program; whatever else it started goes with it.
    fn kill_rest(&mut self) -> Result<(), ShimError> {
        for _ in 0..KILL_ROUNDS_MAX {
            self.tree.signal(Signal::KILL);
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if pid == self.main => self.status = Some(status),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::CHILD) => return Ok(()),
                Err(error) => return Err(error).doing(|| "waiting for children".to_owned()),
            }
        }
        Ok(())
    }

    /// Records how the container ended, and that it was ended because it could not be held, if so.
    fn record(mut self, trouble: Option<&ShimError>) -> Result<(), ShimError> {
        let finished_at = SystemClock.now();
        if let Some(trouble) = trouble {
            return self.report.ended(&Exit {
                message: format!(
                    "the container was killed, because it could not be held any more: {trouble}"
                ),
                ..Exit::lost(Some(self.started), finished_at)
            });
        }
        let signal = self.status.and_then(WaitStatus::terminating_signal);
        self.report.ended(&match signal {
            Some(signal) => Exit::signalled(signal, Some(self.started), finished_at),
            None => Exit {
                cause: Cause::Exited,
                code: self.status.and_then(WaitStatus::exit_status).unwrap_or_default(),
                signal: None,
                message: String::new(),
                started_at: Some(self.started),
                finished_at,
            },
        })
    }
}
