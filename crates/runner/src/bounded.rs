//! Runs a program that helps the runner, git that is, for a bounded time and with bounded output.

use std::{
    io::{self, Read},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    flag,
};

/// How much of what the program prints is kept: far more than git says of an error. The rest is read and dropped.
const OUTPUT_MAX_BYTES: usize = 64 * 1024;
/// How often to look whether the program has ended. Nothing else happens meanwhile.
const POLL: Duration = Duration::from_millis(10);

/// Whether the runner was told to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Is told of the signals that mean "stop" from now on.
    pub(crate) fn listen() -> io::Result<Self> {
        let stop = Self::default();
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
            flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What to do about a program when the runner is told to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WhenStopped {
    End,
    /// Its work should not be lost: it may go on for this long.
    GoOnFor(Duration),
}

/// What a program printed.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BoundedError {
    #[error("it could not be started: {0}")]
    Start(io::Error),
    #[error("it could not be waited for: {0}")]
    Wait(io::Error),
    #[error("it took longer than {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("the runner was told to stop")]
    Stopped,
    #[error("{}", last_lines(.0))]
    Failed(Printed),
}

/// The end of what a program said of an error, as one line.
fn last_lines(printed: &Printed) -> String {
    let lines: Vec<&str> = printed
        .stderr
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let last = lines.len().saturating_sub(4);
    match lines.get(last..) {
        None | Some([]) => "it gave no reason".to_owned(),
        Some(lines) => lines.join("; "),
    }
}

/// Runs the program to its end, which is no later than `limit` from now.
pub(crate) fn run(
    mut command: Command,
    limit: Duration,
    stop: &Stop,
    when_stopped: WhenStopped,
) -> Result<Printed, BoundedError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Git starts helpers of its own, which have to end with it.
        .process_group(0);
    let mut child = command.spawn().map_err(BoundedError::Start)?;
    let stdout = read(child.stdout.take());
    let stderr = read(child.stderr.take());
    let ended = attend(&mut child, limit, stop, when_stopped);
    if ended.is_err() {
        // One that is gone already is what is wanted.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.wait();
    }
    let printed = Printed {
        stdout: joined(stdout),
        stderr: joined(stderr),
    };
    if ended?.success() {
        Ok(printed)
    } else {
        Err(BoundedError::Failed(printed))
    }
}

fn attend(
    child: &mut Child,
    limit: Duration,
    stop: &Stop,
    when_stopped: WhenStopped,
) -> Result<ExitStatus, BoundedError> {
    let start = Instant::now();
    let mut deadline = start + limit;
    let mut stopped = false;
    loop {
        if let Some(status) = child.try_wait().map_err(BoundedError::Wait)? {
            return Ok(status);
        }
        if stop.is_requested() && !stopped {
            stopped = true;
            match when_stopped {
                WhenStopped::End => return Err(BoundedError::Stopped),
                WhenStopped::GoOnFor(rest) => deadline = deadline.min(Instant::now() + rest),
            }
        }
        if Instant::now() >= deadline {
            return Err(BoundedError::TimedOut(start.elapsed()));
        }
        thread::sleep(POLL);
    }
}

type Reader = io::Result<thread::JoinHandle<Vec<u8>>>;

fn read(source: Option<impl Read + Send + 'static>) -> Option<Reader> {
    let mut source = source?;
    let reader = move || {
        let mut kept = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = source.read(&mut chunk) {
            let room = OUTPUT_MAX_BYTES.saturating_sub(kept.len()).min(count);
            kept.extend(chunk.iter().take(room));
        }
        kept
    };
    Some(thread::Builder::new().name("git output".to_owned()).spawn(reader))
}

fn joined(reader: Option<Reader>) -> String {
    let bytes = reader
        .and_then(Result::ok)
        .and_then(|thread| thread.join().ok())
        .unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn play(script: &str, limit: Duration) -> Result<Printed, BoundedError> {
        run(shell(script), limit, &Stop::default(), WhenStopped::End)
    }

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn what_it_prints_is_kept_up_to_a_bound_and_never_blocks_it() {
        let printed = play("head -c 300000 /dev/zero | tr '\\0' x; echo said >&2", LONG).unwrap();

        assert_eq!(printed.stdout.len(), OUTPUT_MAX_BYTES);
        assert_eq!(printed.stderr, "said\n");
    }

    #[test]
    fn one_that_does_not_end_is_killed_with_its_children() {
        let error = play("sleep 1000 & sleep 1000", Duration::from_millis(50)).unwrap_err();

        // Reading its output to the end returned, so no child has it open any more.
        assert!(matches!(error, BoundedError::TimedOut(_)), "{error}");
    }

    #[test]
    fn a_stop_ends_it_unless_its_work_would_be_lost() {
        let stop = Stop::default();
        stop.0.store(true, Ordering::Relaxed);

        let error = run(shell("sleep 1000"), LONG, &stop, WhenStopped::End).unwrap_err();
        assert!(matches!(error, BoundedError::Stopped), "{error}");
        assert!(run(shell("true"), LONG, &stop, WhenStopped::GoOnFor(LONG)).is_ok());
        let rest = WhenStopped::GoOnFor(Duration::from_millis(50));
        let error = run(shell("sleep 1000"), LONG, &stop, rest).unwrap_err();
        assert!(matches!(error, BoundedError::TimedOut(_)), "{error}");
    }

    #[test]
    fn an_error_tells_the_last_lines_of_what_was_said() {
        let error = play("printf 'a\\nb\\n\\nc\\nd\\ne\\n' >&2; exit 3", LONG).unwrap_err();

        assert_eq!(error.to_string(), "b; c; d; e");
    }
}
