//! What the machine says: time, processor time, memory, and what its disk costs. Read from `/proc`, so only on Linux.

use std::{
    fmt, fs,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// Processor times in `/proc` are in hundredths of a second on every Linux that kubelite is built for.
const TICK: Duration = Duration::from_millis(10);
const PAGE_BYTES: u64 = 4096;
const SYNCS: usize = 100;
/// About what a small transaction writes.
const SYNC_BYTES: usize = 16 << 10;

/// The beginning of a measurement.
#[derive(Debug)]
pub(crate) struct Start {
    wall: Instant,
    cpu: Duration,
}

/// What a number of operations took.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    count: u32,
}

impl Start {
    pub(crate) fn now() -> Result<Self> {
        Ok(Self {
            wall: Instant::now(),
            cpu: processor_time()?,
        })
    }

    pub(crate) fn end(self, count: usize) -> Result<Span> {
        let cpu = processor_time()?.saturating_sub(self.cpu);
        Ok(Span {
            wall: self.wall.elapsed(),
            cpu,
            count: u32::try_from(count)?,
        })
    }
}

impl Span {
    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        f64::from(self.count) / self.wall.as_secs_f64()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.cpu.as_secs_f64() * 1e6 / f64::from(self.count);
        write!(
            f,
            "{} in {:.2} s, {:.0}/s, {cpu:.1} µs CPU each",
            self.count,
            self.wall.as_secs_f64(),
            self.rate()
        )
    }
}

/// What all threads of this process have used so far.
fn processor_time() -> Result<Duration> {
    let text = fs::read_to_string("/proc/self/stat").context("processor time is read from /proc")?;
    // The name of the program is in brackets and may hold spaces.
    let (_, fields) = text.rsplit_once(')').context("/proc/self/stat has no name")?;
    let mut times = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
    let mut next = || times.next().context("/proc/self/stat is short");
    Ok(TICK * (next()?? + next()??))
}

pub(crate) fn resident_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/statm").context("memory is read from /proc")?;
    let pages: u64 = text
        .split(' ')
        .nth(1)
        .context("/proc/self/statm is short")?
        .parse()?;
    Ok(pages * PAGE_BYTES)
}

/// Of the last minute, five minutes and quarter of an hour.
pub(crate) fn load_average() -> Result<String> {
    let text = fs::read_to_string("/proc/loadavg").context("the load is read from /proc")?;
    Ok(text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

/// How long a small write takes to reach the disk.
pub(crate) fn sync_cost(directory: &Path) -> Result<String> {
    let mut file = tempfile::tempfile_in(directory)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        file.write_all(&[0; SYNC_BYTES])?;
        let started = Instant::now();
        file.sync_data()?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let at = |place: usize| times.get(place).map_or(0, Duration::as_micros);
    Ok(format!(
        "{} µs (median of {SYNCS}; {} to {} µs)",
        at(SYNCS / 2),
        at(0),
        at(SYNCS - 1)
    ))
}
