//! What happened, in order: every request, every change of an object, every fault and all work. Two simulations of one seed
//! have equal traces.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use tokio::time::Instant;

/// A simulation that needs more lines than this is stuck in a loop; what came before tells why.
const LINES_MAX: usize = 50_000;

/// The lines of one simulation.
#[derive(Debug)]
pub struct Trace {
    origin: Instant,
    lines: Mutex<Vec<String>>,
}

impl Trace {
    /// Times are told from now on.
    pub fn starting_now() -> Self {
        Self {
            origin: Instant::now(),
            lines: Mutex::default(),
        }
    }

    pub fn note(&self, who: &str, what: fmt::Arguments<'_>) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < LINES_MAX {
            lines.push(format!(
                "{:>10.3} {who:<10} {what}",
                self.origin.elapsed().as_secs_f64()
            ));
        }
    }

    /// Whether lines had to be left out.
    pub fn is_full(&self) -> bool {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).len() == LINES_MAX
    }

    /// Takes what was noted.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A number that tells two bodies apart, the same on every machine (FNV-1a).
pub fn fingerprint(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}
