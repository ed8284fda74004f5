//! What a process costs, by what Linux says of it in `/proc`.

use std::{fs, io, path::PathBuf, time::Duration};

/// Processor times in `/proc` are in hundredths of a second on every Linux that this runs on.
const TICK: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{} does not say {field}", path.display())]
    Silent { path: PathBuf, field: &'static str },
}

/// Memory in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All pages that are in memory.
    pub resident: u64,
    /// The same, with shared pages divided among those who share them.
    pub proportional: u64,
    /// The most that was ever resident.
    pub peak: u64,
}

impl Memory {
    pub fn of(pid: u32) -> Result<Self, ProcessError> {
        let status = read(pid, "status")?;
        let rollup = read(pid, "smaps_rollup")?;
        let field = |(path, text): &(PathBuf, String), field| {
            kibibytes(text, field).ok_or_else(|| ProcessError::Silent {
                path: path.clone(),
                field,
            })
        };
        Ok(Self {
            resident: field(&status, "VmRSS")?,
            proportional: field(&rollup, "Pss")?,
            peak: field(&status, "VmHWM")?,
        })
    }
}

/// The processor time that a process has used, in all its threads.
pub fn processor_time(pid: u32) -> Result<Duration, ProcessError> {
    let (path, text) = read(pid, "stat")?;
    ticks(&text)
        .map(|ticks| TICK * ticks)
        .ok_or(ProcessError::Silent {
            path,
            field: "its processor time",
        })
}

fn read(pid: u32, file: &str) -> Result<(PathBuf, String), ProcessError> {
    let path = PathBuf::from(format!("/proc/{pid}/{file}"));
    match fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(error) => Err(ProcessError::Unreadable { path, error }),
    }
}

/// The value of a line such as `VmRSS:     1234 kB`.
fn kibibytes(text: &str, field: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// User and system time: fields 14 and 15, counted from one. The name, field 2, may hold blanks and brackets.
fn ticks(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u32>().ok();
    next()?.checked_add(next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_the_whole_name_of_its_line() {
        let text = "Pss:                1200 kB\nPss_Dirty:          800 kB\nVmRSS:\t 34 kB\n";

        assert_eq!(kibibytes(text, "Pss"), Some(1200));
        assert_eq!(kibibytes(text, "VmRSS"), Some(34));
        assert_eq!(kibibytes(text, "VmHWM"), None);
    }

    #[test]
    fn processor_time_is_found_behind_a_name_with_blanks_and_brackets() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 9 9 20 0 4 0 77 1 1";

        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7 (cut"), None);
    }
}
