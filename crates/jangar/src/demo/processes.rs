//! The processes of this machine, as proof of what runs and what does not.

use anyhow::{Context, Result};

/// How many processes have this text in their command line. A sandbox hides processes from a pod, not a pod from us.
#[cfg(target_os = "linux")]
pub(super) fn count(marker: &str) -> Result<usize> {
    let entries = std::fs::read_dir("/proc").context("failed to list the processes of this machine")?;
    let found = entries
        .filter_map(Result::ok)
        // A process that ended meanwhile has no command line, and neither has anything that is not a process.
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(marker))
        .count();
    Ok(found)
}

/// How many processes have this text in their command line.
#[cfg(not(target_os = "linux"))]
pub(super) fn count(marker: &str) -> Result<usize> {
    let output = std::process::Command::new("ps")
        .args(["-A", "-o", "args="])
        .output()
        .context("failed to list the processes of this machine with ps")?;
    let lines = String::from_utf8_lossy(&output.stdout);
    Ok(lines.lines().filter(|line| line.contains(marker)).count())
}
