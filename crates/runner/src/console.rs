//! What the runner says itself: on stderr and in the log file, with secrets masked.

use std::io::{self, Write};

use crate::{mask::Masker, tee::SharedLog};

/// Where the runner's own messages go.
#[derive(Debug)]
pub(crate) struct Console {
    pub(crate) masker: Masker,
    log: Option<SharedLog>,
}

impl Console {
    pub(crate) fn new(masker: Masker) -> Self {
        Self { masker, log: None }
    }

    /// From now on messages go to the log file too.
    pub(crate) fn also_to(&mut self, log: SharedLog) {
        self.log = Some(log);
    }

    pub(crate) fn say(&self, message: &str) {
        let line = format!("agent-runner: {}\n", self.masker.text(message));
        // A closed stderr must not end the run.
        let _ = io::stderr().write_all(line.as_bytes());
        if let Some(log) = &self.log {
            log.write(line.as_bytes());
        }
    }
}
