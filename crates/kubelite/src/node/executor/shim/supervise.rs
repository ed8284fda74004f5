//! The second stage: starts the container's program, writes its output to its log, passes signals on, reaps, and records
//! how it ended.

use std::{
    fs::File,
    io::{self, PipeReader, Write},
    os::fd::{AsFd, OwnedFd},
    process::{Command, Stdio},
    time::Duration,
};

use jiff::Timestamp;
use rustix::{
    fs::{OFlags, fcntl_setfl},
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, wait},
};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    signal::unix::{self, SignalKind},
};

use super::{ARGUMENT, Doing, ShimError, Stage, program, tree::Tree};
use crate::{
    clock::{Clock, SystemClock},
    node::executor::{
        logfile::{Lines, Stream, Writer},
        run::{self, Cause, Exit, Files, Refusal, Run, Started},
    },
};

/// How much output is read at once: what a pipe holds.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long output is still read once every process that we can reach is dead. Without a sandbox one may have escaped with
/// the pipe in its hands.
const DRAIN: Duration = Duration::from_secs(2);
/// A refusal is a short message; more than this of it nobody reads.
const REFUSAL_BYTES_MAX: u64 = 64 * 1024;
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
    let log = Writer::create(files.clone(), run.log_bytes_max)
        .doing(|| "opening the container's log".to_owned())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .doing(|| "waiting for events".to_owned())?;
    runtime.block_on(async {
        // Whoever learns that the container has begun may send a signal at once.
        let signals = Signals::listen()?;
        let (main, pipes) = start(files)?;
        let holder = Holder {
            files,
            wake: File::from(wake),
            log,
            main,
            tree: tree(main),
            status: None,
            started: None,
        };
        holder.hold(pipes, signals).await
    })
}

/// The signals that both holding stages listen for.
pub(super) struct Signals {
    pub(super) terminate: unix::Signal,
    pub(super) kill: unix::Signal,
    pub(super) children: unix::Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, ShimError> {
        let listen = |kind| unix::signal(kind).doing(|| "listening for signals".to_owned());
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            kill: listen(SignalKind::user_defined1())?,
            children: listen(SignalKind::child())?,
        })
    }
}

struct Pipes {
    stdout: Receiver,
    stderr: Receiver,
    /// Ends empty when the program has begun, and holds a refusal when it has not.
    begun: Receiver,
}

/// Starts the last stage.
fn start(files: &Files) -> Result<(Pid, Pipes), ShimError> {
    let piping = || "making pipes".to_owned();
    let (stdout, stdout_end) = io::pipe().doing(piping)?;
    let (stderr, stderr_end) = io::pipe().doing(piping)?;
    let (begun, begun_end) = io::pipe().doing(piping)?;
    let child = Command::new(program().doing(|| "finding the program".to_owned())?)
        .args([ARGUMENT, Stage::Enter.into()])
        .arg(&files.dir)
        // The standard library hands on three descriptors only; this one is replaced before the container's program begins.
        .stdin(Stdio::from(begun_end))
        .stdout(Stdio::from(stdout_end))
        .stderr(Stdio::from(stderr_end))
        .spawn()
        .doing(|| "starting the container's process".to_owned())?;
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("a process without a number"))
        .doing(|| "starting the container's process".to_owned())?;
    let receiver = |pipe: PipeReader| Receiver::from_owned_fd(OwnedFd::from(pipe)).doing(piping);
    Ok((
        pid,
        Pipes {
            stdout: receiver(stdout)?,
            stderr: receiver(stderr)?,
            begun: receiver(begun)?,
        },
    ))
}

/// Reads until the pipe is empty for now. `true` says that it has ended.
async fn pump(pipe: &mut Receiver, buffer: &mut Vec<u8>) -> bool {
    buffer.clear();
    match pipe.read_buf(buffer).await {
        Ok(count) => count == 0,
        Err(_) => true,
    }
}

struct Holder<'a> {
    files: &'a Files,
    wake: File,
    log: Writer,
    main: Pid,
    tree: Tree,
    status: Option<WaitStatus>,
    started: Option<Timestamp>,
}

impl Holder<'_> {
    async fn hold(mut self, pipes: Pipes, mut signals: Signals) -> Result<(), ShimError> {
        let Pipes {
            mut stdout,
            mut stderr,
            begun,
        } = pipes;
        let mut lines = [Lines::new(Stream::Stdout), Lines::new(Stream::Stderr)];
        let mut buffers = [Vec::with_capacity(CHUNK_BYTES), Vec::with_capacity(CHUNK_BYTES)];
        let (mut out_open, mut err_open) = (true, true);
        let [out_buffer, err_buffer] = &mut buffers;
        let [out_lines, err_lines] = &mut lines;
        let mut begun = Box::pin(refusal(begun));
        let mut refused: Option<Option<Refusal>> = None;
        // The children may have ended before we listened.
        self.reap()?;
        while self.status.is_none() {
            tokio::select! {
                ended = pump(&mut stdout, out_buffer), if out_open => {
                    out_open = !ended;
                    self.write(out_lines, out_buffer, ended)?;
                }
                ended = pump(&mut stderr, err_buffer), if err_open => {
                    err_open = !ended;
                    self.write(err_lines, err_buffer, ended)?;
                }
                answer = &mut begun, if refused.is_none() => {
                    if answer.is_none() {
                        self.begin()?;
                    }
                    refused = Some(answer);
                }
                _ = signals.terminate.recv() => self.tree.signal(Signal::TERM),
                _ = signals.kill.recv() => self.tree.signal(Signal::KILL),
                _ = signals.children.recv() => self.reap()?,
            }
        }
        self.kill_rest()?;
        let drain = async {
            while out_open || err_open {
                tokio::select! {
                    ended = pump(&mut stdout, out_buffer), if out_open => {
                        out_open = !ended;
                        self.write(out_lines, out_buffer, ended)?;
                    }
                    ended = pump(&mut stderr, err_buffer), if err_open => {
                        err_open = !ended;
                        self.write(err_lines, err_buffer, ended)?;
                    }
                }
            }
            if refused.is_none() {
                let answer = begun.await;
                if answer.is_none() {
                    self.begin()?;
                }
                refused = Some(answer);
            }
            Ok(())
        };
        if let Ok(result) = tokio::time::timeout(DRAIN, drain).await {
            result?;
        }
        self.record(refused.flatten())
    }

    fn begin(&mut self) -> Result<(), ShimError> {
        let at = SystemClock.now();
        self.started = Some(at);
        run::write(&self.files.started(), &Started { at }).doing(|| "recording the start".to_owned())?;
        self.wake();
        Ok(())
    }

    fn write(&mut self, lines: &mut Lines, bytes: &[u8], ended: bool) -> Result<(), ShimError> {
        let now = SystemClock.now();
        let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 2);
        lines.push(bytes, now, &mut out);
        if ended {
            lines.finish(now, &mut out);
        }
        if out.is_empty() {
            return Ok(());
        }
        self.log
            .append(&out)
            .doing(|| "writing the container's log".to_owned())?;
        self.wake();
        Ok(())
    }

    /// Tells the executor, if there is one, that something changed. If the pipe is full it knows already.
    fn wake(&mut self) {
        let _ = self.wake.write(b".");
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
                Ok(_) => {}
                Err(Errno::CHILD) => return Ok(()),
                Err(error) => return Err(error).doing(|| "waiting for children".to_owned()),
            }
        }
        Ok(())
    }

    fn record(mut self, refused: Option<Refusal>) -> Result<(), ShimError> {
        let finished_at = SystemClock.now();
        let signal = self.status.and_then(WaitStatus::terminating_signal);
        let exit = match (refused, signal) {
            (Some(refusal), _) => Exit {
                cause: refusal.cause,
                code: refusal.code,
                signal: None,
                message: refusal.message,
                started_at: None,
                finished_at,
            },
            (None, Some(signal)) => Exit::signalled(signal, self.started, finished_at),
            (None, None) => Exit {
                cause: Cause::Exited,
                code: self.status.and_then(WaitStatus::exit_status).unwrap_or_default(),
                signal: None,
                message: String::new(),
                started_at: self.started,
                finished_at,
            },
        };
        run::write_durably(&self.files.exit(), &exit).doing(|| "recording the end".to_owned())?;
        self.wake();
        Ok(())
    }
}

/// Waits until the last stage has become the container's program, or says why it could not.
async fn refusal(begun: Receiver) -> Option<Refusal> {
    let mut bytes = Vec::new();
    // A broken pipe ends like a closed one.
    let _ = begun.take(REFUSAL_BYTES_MAX).read_to_end(&mut bytes).await;
    serde_json::from_slice(&bytes).ok()
}
