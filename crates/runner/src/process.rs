//! Starts the agent in a process group of its own and stays with it until it has ended.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait},
};
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::Signals,
};

use crate::{
    console::Console,
    schedule::{Schedule, StopCause},
    tee::{SharedLog, tee},
};

/// How long a killed process may take to go. One that hangs in the kernel longer than this is reported, not waited for.
const GONE_MAX: Duration = Duration::from_secs(10);

/// How long the output is read after the agent has ended. Only a process that left the agent's group can hold it open.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Threads that copy output: one for stdout, one for stderr.
const OUTPUTS: usize = 2;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    #[error("the kernel did not start {binary}: {source}{}", hint(source))]
    Start { binary: String, source: io::Error },
    #[error("cannot receive signals: {0}")]
    Signals(io::Error),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("cannot wait for the agent: {0}")]
    Wait(io::Error),
    #[error("the agent was killed, but is still there after {} s", GONE_MAX.as_secs())]
    Immortal,
}

/// A file that is there and is still "not found" lacks what is needed to execute it.
fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => {
            "; its interpreter (the #! line) or its dynamic loader is not in this image, or the working directory is gone"
        }
        io::ErrorKind::PermissionDenied => {
            "; the file or a directory on the way is closed to this user, or mounted noexec"
        }
        _ => "",
    }
}

/// How the agent's own process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(u8),
    Signal(u8),
}

impl Exit {
    /// The code a shell would report.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => 128_u8.saturating_add(number),
        }
    }
}

/// How the agent ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    /// Why it had been told to stop, if it had, and whether it had to be killed.
    pub(crate) stop: Option<(StopCause, bool)>,
}

enum Event {
    Signal(i32),
    OutputEnded,
}

/// Receives signals from now on, so that none ends the runner before it has written an outcome.
pub(crate) struct Watch {
    events: Receiver<Event>,
    sender: Sender<Event>,
}

impl Watch {
    pub(crate) fn start() -> Result<Self, ProcessError> {
        let mut signals = Signals::new([SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2])
            .map_err(ProcessError::Signals)?;
        // The kernel merges signals that nobody has taken yet, so this queue stays short.
        let (sender, events) = mpsc::channel();
        let to_loop = sender.clone();
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    if to_loop.send(Event::Signal(signal)).is_err() {
                        return;
                    }
                }
            })
            .map_err(ProcessError::Thread)?;
        Ok(Self { events, sender })
    }

    /// Starts the agent and returns when it has ended, with everything it left in its process group killed.
    pub(crate) fn run(
        &self,
        mut command: Command,
        mut schedule: Schedule,
        log: &SharedLog,
        console: &Console,
    ) -> Result<Ended, ProcessError> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let start = Instant::now();
        let mut child = command.spawn().map_err(|source| ProcessError::Start {
            binary: command.get_program().to_string_lossy().into_owned(),
            source,
        })?;
        let group = Pid::from_child(&child);
        let mut open = OUTPUTS;
        let ended = self
            .copy_output(&mut child, log)
            .and_then(|()| self.attend(group, &mut schedule, start, &mut open, console));
        // What the agent left behind would die with the container anyway; until then it would hold the output open. If the
        // group is empty its number is free, but numbers go round: it is not given out again within these microseconds.
        signal_group(group, Signal::KILL, console);
        let exit = ended?;
        self.drain(open, console);
        Ok(Ended {
            exit,
            stop: schedule.stop(),
        })
    }

    fn copy_output(&self, child: &mut Child, log: &SharedLog) -> Result<(), ProcessError> {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        self.copy(stdout, io::stdout(), log)?;
        self.copy(stderr, io::stderr(), log)
    }

    fn copy(
        &self,
        from: Option<impl io::Read + Send + 'static>,
        console: impl io::Write + Send + 'static,
        log: &SharedLog,
    ) -> Result<(), ProcessError> {
        let (sender, log) = (self.sender.clone(), log.clone());
        thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || {
                if let Some(from) = from {
                    tee(from, console, &log);
                }
                // Nobody listens any more when the run has been given up.
                let _ = sender.send(Event::OutputEnded);
            })
            .map(drop)
            .map_err(ProcessError::Thread)
    }

    /// Passes signals on and keeps the deadlines until the agent has ended.
    fn attend(
        &self,
        group: Pid,
        schedule: &mut Schedule,
        start: Instant,
        open: &mut usize,
        console: &Console,
    ) -> Result<Exit, ProcessError> {
        let mut gone_at = None;
        loop {
            while let Some(signal) = schedule.due(start.elapsed()) {
                if signal == Signal::KILL {
                    console.say("the agent's time is up: killing it");
                    gone_at = Some(start.elapsed().saturating_add(GONE_MAX));
                } else {
                    console.say("the agent has reached its soft deadline: asking it to stop");
                }
                signal_group(group, signal, console);
            }
            let wait = match gone_at {
                Some(gone_at) if gone_at <= start.elapsed() => return Err(ProcessError::Immortal),
                Some(gone_at) => Some(gone_at.saturating_sub(start.elapsed())),
                None => schedule.wait(start.elapsed()),
            };
            let event = match wait {
                Some(wait) => self.events.recv_timeout(wait),
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::Signal(SIGCHLD)) => {
                    if let Some(exit) = reap(group)? {
                        return Ok(exit);
                    }
                }
                Ok(Event::Signal(number)) => {
                    if let Some(signal) = Signal::from_named_raw(number) {
                        schedule.forward(signal, start.elapsed());
                        signal_group(group, signal, console);
                    }
                }
                // An agent may close its output long before it ends.
                Ok(Event::OutputEnded) => *open -= 1,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(ProcessError::Signals(io::Error::other(
                        "the thread that receives them ended",
                    )));
                }
            }
        }
    }

    fn drain(&self, mut open: usize, console: &Console) {
        let start = Instant::now();
        while open > 0 {
            match self
                .events
                .recv_timeout(DRAIN_MAX.saturating_sub(start.elapsed()))
            {
                Ok(Event::OutputEnded) => open -= 1,
                Ok(Event::Signal(_)) => {}
                Err(_) => {
                    console.say("a process outside the agent's group still holds its output open: the rest of it is lost");
                    return;
                }
            }
        }
    }
}

fn signal_group(group: Pid, signal: Signal, console: &Console) {
    match kill_process_group(group, signal) {
        // That nobody is left is what the signal was for. macOS says "not permitted" of a group of zombies.
        Ok(()) | Err(Errno::SRCH | Errno::PERM) => {}
        Err(error) => console.say(&format!("cannot send a signal to the agent: {error}")),
    }
}

/// Takes leave of all children that have ended, and says how the agent did if it is among them.
///
/// As the first process of a container the runner inherits every orphan, so it does not wait for its own child alone.
fn reap(agent: Pid) -> Result<Option<Exit>, ProcessError> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == agent => {
                if let Some(exit) = exit_of(status) {
                    return Ok(Some(exit));
                }
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Ok(None),
            Err(error) => return Err(ProcessError::Wait(error.into())),
        }
    }
}

fn exit_of(status: WaitStatus) -> Option<Exit> {
    let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    status
        .exit_status()
        .map(|code| Exit::Code(byte(code)))
        .or_else(|| {
            status
                .terminating_signal()
                .map(|number| Exit::Signal(byte(number)))
        })
}
