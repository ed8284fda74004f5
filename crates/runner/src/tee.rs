//! Copies what the agent prints to the runner's own output and to the log file, which is bounded.

use std::{
    fs::File,
    io::{self, Read, Write},
    sync::{Arc, Mutex, PoisonError},
};

/// One read of the agent's output: what a pipe holds.
const CHUNK_BYTES: usize = 64 * 1024;

/// A log that stops at a number of bytes and says so.
///
/// It keeps the beginning. The end of a long output is in the container's log, of which Kubernetes keeps the newest part, so
/// that the two complete each other.
#[derive(Debug)]
pub(crate) struct BoundedLog<W> {
    out: W,
    limit: u64,
    left: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Cut,
    /// The disk is full, for instance. The agent goes on all the same.
    Broken,
}

impl<W: Write> BoundedLog<W> {
    pub(crate) fn new(out: W, limit: u64) -> Self {
        Self {
            out,
            limit,
            left: limit,
            state: State::Open,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        if self.state != State::Open {
            return;
        }
        if self.write_within_limit(bytes).is_err() {
            self.state = State::Broken;
        }
    }

    fn write_within_limit(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        if length <= self.left {
            self.left -= length;
            return self.out.write_all(bytes);
        }
        self.state = State::Cut;
        // What fits is less than `bytes.len()`, so it fits a usize.
        let fits = usize::try_from(self.left).unwrap_or(bytes.len());
        self.out.write_all(bytes.get(..fits).unwrap_or(bytes))?;
        write!(
            self.out,
            "\nagent-runner: the log is cut here, at its limit of {} bytes; the rest is in the container's own log only\n",
            self.limit
        )
    }
}

/// The log file, shared by those who write to it.
#[derive(Clone, Debug)]
pub(crate) struct SharedLog(Arc<Mutex<BoundedLog<File>>>);

/// What became of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogEnd {
    Whole,
    Cut,
    /// Writing failed at some point.
    Broken,
}

impl SharedLog {
    pub(crate) fn new(file: File, limit: u64) -> Self {
        Self(Arc::new(Mutex::new(BoundedLog::new(file, limit))))
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        // A thread that panicked while it wrote has left at worst half a line.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes);
    }

    pub(crate) fn end(&self) -> LogEnd {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).state {
            State::Open => LogEnd::Whole,
            State::Cut => LogEnd::Cut,
            State::Broken => LogEnd::Broken,
        }
    }
}

/// Copies until the other end is closed.
pub(crate) fn tee(mut from: impl Read, mut console: impl Write, log: &SharedLog) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let bytes = chunk.get(..read).unwrap_or_default();
        // When nobody reads the runner's output any more, the agent must still not block on a full pipe.
        let _ = console.write_all(bytes).and_then(|()| console.flush());
        log.write(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(limit: u64, chunks: &[&str]) -> String {
        let mut log = BoundedLog::new(Vec::new(), limit);
        for chunk in chunks {
            log.write(chunk.as_bytes());
        }
        String::from_utf8(log.out).unwrap()
    }

    #[test]
    fn a_log_within_its_limit_is_whole() {
        assert_eq!(written(8, &["1234", "5678"]), "12345678");
    }

    #[test]
    fn a_longer_log_is_cut_once_and_says_so() {
        let log = written(6, &["1234", "5678", "9"]);

        assert!(
            log.starts_with("123456\nagent-runner: the log is cut here, at its limit of 6 bytes"),
            "{log}"
        );
        assert_eq!(log.lines().count(), 2);
    }

    #[test]
    fn a_disk_that_is_full_does_not_stop_the_agent() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut log = BoundedLog::new(Full, 100);

        log.write(b"lost");
        log.write(b"lost");

        assert_eq!(log.state, State::Broken);
    }
}
