//! Where output goes: data to standard output, everything else to standard error.

use std::io::{self, IsTerminal, Write};

use crate::{environment::Environment, error::Error};

/// What a word in the output means, for those who see colours. The word itself says it as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Bad,
    Busy,
    Waiting,
    Faint,
}

impl Tone {
    /// The tone of a phase, a status or a state.
    pub fn of(word: &str) -> Self {
        match word {
            "Succeeded" | "Ready" | "True" | "Active" | "Approved" | "ok" | "healthy" | "succeeded" => {
                Self::Good
            }
            "Failed" | "Invalid" | "False" | "Denied" | "fail" | "degraded" | "missing" | "failed" => {
                Self::Bad
            }
            "Running" | "Cancelling" | "Retrying" | "working" | "stopping" => Self::Busy,
            "Pending" | "Blocked" | "warn" | "unknown" | "waiting" => Self::Waiting,
            "Skipped" | "Cancelled" | "cancelled" | "skip" => Self::Faint,
            _ => Self::Plain,
        }
    }

    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("32"),
            Self::Bad => Some("31"),
            Self::Busy => Some("36"),
            Self::Waiting => Some("33"),
            Self::Faint => Some("2"),
        }
    }

    /// The text in its colour.
    pub fn paint(self, text: &str, colour: bool) -> String {
        match self.code().filter(|_| colour && !text.is_empty()) {
            Some(code) => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            None => text.to_owned(),
        }
    }
}

/// The two streams, and what they can show.
pub struct Console {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    /// Whether data may be coloured.
    pub colour: bool,
    /// Whether standard output can be drawn over.
    pub out_is_terminal: bool,
    /// Whether standard error can be drawn over.
    pub err_is_terminal: bool,
    /// Whether a line stands there that the next one takes the place of.
    live_line: bool,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console")
            .field("colour", &self.colour)
            .finish_non_exhaustive()
    }
}

impl Console {
    /// The streams of the process. `colour` is what the command line asked for, if anything.
    pub fn of_the_process(colour: Option<bool>, environment: &Environment) -> Self {
        let out_is_terminal = io::stdout().is_terminal();
        let plain = environment.get("NO_COLOR").is_some() || environment.get("TERM") == Some("dumb");
        Self {
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
            colour: colour.unwrap_or(out_is_terminal && !plain),
            out_is_terminal,
            err_is_terminal: io::stderr().is_terminal(),
            live_line: false,
        }
    }

    /// Writes data, as it is.
    pub fn data(&mut self, text: &str) -> Result<(), Error> {
        self.end_live_line()?;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(())
    }

    /// Writes a line of data.
    pub fn line(&mut self, text: &str) -> Result<(), Error> {
        self.data(&format!("{text}\n"))
    }

    /// Writes a line about what is going on.
    pub fn note(&mut self, text: &str) -> Result<(), Error> {
        self.end_live_line()?;
        writeln!(self.err, "{text}")?;
        Ok(())
    }

    /// Shows where something stands. At a terminal it takes the place of what was shown before; elsewhere nothing is shown:
    /// those who read a log later want changes, which are notes.
    pub fn progress(&mut self, text: &str) -> Result<(), Error> {
        if self.err_is_terminal {
            write!(self.err, "\r\u{1b}[K{text}")?;
            self.err.flush()?;
            self.live_line = true;
        }
        Ok(())
    }

    /// The text in the colour of its meaning, if there are colours.
    pub fn painted(&self, text: &str, tone: Tone) -> String {
        tone.paint(text, self.colour)
    }

    fn end_live_line(&mut self) -> Result<(), Error> {
        if self.live_line {
            write!(self.err, "\r\u{1b}[K")?;
            self.err.flush()?;
            self.live_line = false;
        }
        Ok(())
    }
}
