//! The file that holds a container's output: one line per line of output, with its time and stream, as container runtimes
//! write it for the kubelet.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
};

use jiff::Timestamp;

use super::run::Files;

/// A longer line is written in parts, as container runtimes do.
pub(crate) const LINE_BYTES_MAX: usize = 16 * 1024;

/// What a rotated log begins with, so that nobody takes the rest for the whole.
const CUT_NOTE: &str = "[kubelite: earlier output was dropped, because a log is kept up to a limited size]";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// One line of the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Entry<'a> {
    /// As written, with its fraction of a second.
    pub(crate) time: &'a str,
    /// More of the same line follows.
    pub(crate) partial: bool,
    pub(crate) text: &'a [u8],
}

/// Takes a line of the file apart; `None` for one that was cut off by a crash.
pub(crate) fn parse(line: &[u8]) -> Option<Entry<'_>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(parts.next()?).ok()?;
    let _stream = parts.next()?;
    let partial = match parts.next()? {
        b"P" => true,
        b"F" => false,
        _ => return None,
    };
    let text = parts.next()?;
    Some(Entry { time, partial, text })
}

fn format(out: &mut Vec<u8>, time: Timestamp, stream: Stream, partial: bool, text: &[u8]) {
    let tag = if partial { "P" } else { "F" };
    out.extend_from_slice(format!("{time:.9} {} {tag} ", stream.name()).as_bytes());
    out.extend_from_slice(text);
    out.push(b'\n');
}

/// Cuts what a stream delivers into lines.
#[derive(Debug)]
pub(crate) struct Lines {
    stream: Stream,
    pending: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            pending: Vec::new(),
        }
    }

    /// Takes what arrived and appends the lines it completes to `out`.
    pub(crate) fn push(&mut self, bytes: &[u8], time: Timestamp, out: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            for part in text.chunks(LINE_BYTES_MAX) {
                if self.pending.len() + part.len() > LINE_BYTES_MAX {
                    format(out, time, self.stream, true, &self.pending);
                    self.pending.clear();
                }
                self.pending.extend_from_slice(part);
            }
            if ended {
                format(out, time, self.stream, false, &self.pending);
                self.pending.clear();
            }
        }
    }

    /// The stream has ended; what is left is a line without its end.
    pub(crate) fn finish(&mut self, time: Timestamp, out: &mut Vec<u8>) {
        if !self.pending.is_empty() {
            format(out, time, self.stream, true, &self.pending);
            self.pending.clear();
        }
    }
}

/// Appends to the log of a run and keeps it within its bound: two files of half the size each.
#[derive(Debug)]
pub(crate) struct Writer {
    files: Files,
    file: File,
    written: u64,
    bytes_max: u64,
}

impl Writer {
    pub(crate) fn create(files: Files, bytes_max: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(files.log())?;
        let written = file.metadata()?.len();
        Ok(Self {
            files,
            file,
            written,
            bytes_max,
        })
    }

    pub(crate) fn append(&mut self, lines: &[u8], now: Timestamp) -> io::Result<()> {
        let length = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if self.written > 0 && self.written.saturating_add(length) > self.bytes_max / 2 {
            self.rotate(now)?;
        }
        self.file.write_all(lines)?;
        self.written = self.written.saturating_add(length);
        Ok(())
    }

    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        let drops = self.files.older_log().exists();
        fs::rename(self.files.log(), self.files.older_log())?;
        self.file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.files.log())?;
        self.written = 0;
        if drops {
            let mut note = Vec::new();
            format(&mut note, now, Stream::Stderr, false, CUT_NOTE.as_bytes());
            self.file.write_all(&note)?;
            self.written = u64::try_from(note.len()).unwrap_or(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time() -> Timestamp {
        "2026-03-01T10:20:30.5Z".parse().unwrap()
    }

    fn lines(chunks: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut lines = Lines::new(Stream::Stdout);
        for chunk in chunks {
            lines.push(chunk, time(), &mut out);
        }
        lines.finish(time(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_cut_where_the_output_has_them() {
        const AT: &str = "2026-03-01T10:20:30.500000000Z stdout";
        assert_eq!(
            lines(&[b"a\nb", b"c\n\n", b"d"]),
            format!("{AT} F a\n{AT} F bc\n{AT} F \n{AT} P d\n")
        );
        assert_eq!(lines(&[]), "");
    }

    #[test]
    fn long_lines_are_written_in_parts_that_make_up_the_whole() {
        let long = vec![b'x'; LINE_BYTES_MAX * 2 + 7];
        let written = lines(&[&long[..100], &long[100..], b"\n"]);
        let entries: Vec<_> = written
            .lines()
            .map(|line| parse(line.as_bytes()).unwrap())
            .collect();
        assert!(
            entries.iter().rev().skip(1).all(|entry| entry.partial),
            "only the last part is marked as the end"
        );
        assert!(!entries.last().unwrap().partial);
        let whole: Vec<u8> = entries
            .iter()
            .flat_map(|entry| entry.text)
            .copied()
            .collect();
        assert_eq!(whole, long);
        assert!(entries.iter().all(|entry| entry.text.len() <= LINE_BYTES_MAX));
    }

    #[test]
    fn lines_that_are_no_entries_are_skipped() {
        for line in ["", "x", "2026 stdout", "2026 stdout Q text"] {
            assert_eq!(parse(line.as_bytes()), None, "{line:?}");
        }
        assert_eq!(parse(b"t stderr F a b").unwrap().text, b"a b");
    }

    #[test]
    fn a_log_stays_within_its_bound_and_says_that_it_was_cut() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::new(directory.path().to_owned());
        let mut writer = Writer::create(files.clone(), 2_000).unwrap();
        for number in 0..200 {
            writer
                .append(format!("line {number}\n").as_bytes(), time())
                .unwrap();
        }
        let (older, newer) = (
            fs::read_to_string(files.older_log()).unwrap(),
            fs::read_to_string(files.log()).unwrap(),
        );
        assert!(older.len() <= 1_000 && newer.len() <= 1_000);
        assert!(older.contains("earlier output was dropped"), "{older}");
        assert!(newer.ends_with("line 199\n"), "the newest output is kept");
    }
}
