//! What the demo prints: what happens, the command that does the same, and what came of it.

use std::io::{Write, stdout};

use anyhow::Result;

/// A step of the story.
pub(super) fn say(text: &str) -> Result<()> {
    write(format_args!("\n{text}\n"))
}

/// The command a user would type.
pub(super) fn command(text: &str) -> Result<()> {
    write(format_args!("   $ {text}\n"))
}

/// What came of it.
pub(super) fn show(text: &str) -> Result<()> {
    for line in text.lines() {
        write(format_args!("     {line}\n"))?;
    }
    Ok(())
}

/// A line of a pod's log.
pub(super) fn log(line: &str) -> Result<()> {
    write(format_args!("     | {line}\n"))
}

/// Written at once, so that the story can be followed as it happens.
fn write(text: std::fmt::Arguments<'_>) -> Result<()> {
    let mut out = stdout().lock();
    out.write_fmt(text)?;
    out.flush()?;
    Ok(())
}
