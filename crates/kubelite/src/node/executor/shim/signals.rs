//! The signals that both holding stages listen for, as something to wait on among other things.

use std::{
    io::{self, PipeReader, Read},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::process::Signal;
use signal_hook::{flag, low_level::pipe};

use super::{Doing, ShimError};

/// More than is ever in the pipe: it only has to be emptied.
const WAKES_MAX: usize = 512;

pub(super) struct Signals {
    /// A byte for each signal that came, so that waiting for it does not miss one that came just before.
    wakes: PipeReader,
    terminate: Arc<AtomicBool>,
    kill: Arc<AtomicBool>,
}

impl Signals {
    /// From here on TERM, USR1 and the ends of children are noted instead of what they do by default.
    pub(super) fn listen() -> Result<Self, ShimError> {
        let listening = || "listening for signals".to_owned();
        let (wakes, waker) = io::pipe().doing(listening)?;
        rustix::io::ioctl_fionbio(&wakes, true).doing(listening)?;
        let signals = Self {
            wakes,
            terminate: Arc::default(),
            kill: Arc::default(),
        };
        // What a signal says is noted before it wakes, so that who is woken finds it.
        for (signal, noted) in [
            (Signal::TERM, Some(&signals.terminate)),
            (Signal::USR1, Some(&signals.kill)),
            (Signal::CHILD, None),
        ] {
            if let Some(noted) = noted {
                flag::register(signal.as_raw(), Arc::clone(noted)).doing(listening)?;
            }
            let waker = waker.try_clone().doing(listening)?;
            pipe::register(signal.as_raw(), waker).doing(listening)?;
        }
        Ok(signals)
    }

    /// The signals to pass on that came since the last time, TERM before KILL.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Signal> {
        // Emptied first: a signal that comes meanwhile wakes again.
        let mut buffer = [0; WAKES_MAX];
        while self.wakes.read(&mut buffer).is_ok_and(|count| count == WAKES_MAX) {}
        let came = |noted: &AtomicBool, signal| noted.swap(false, Ordering::Relaxed).then_some(signal);
        [
            came(&self.terminate, Signal::TERM),
            came(&self.kill, Signal::KILL),
        ]
        .into_iter()
        .flatten()
    }
}

impl AsFd for Signals {
    /// Readable when a signal came.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }
}
