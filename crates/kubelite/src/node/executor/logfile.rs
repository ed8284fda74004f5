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

/// What a log begins with whose oldest part is gone, so that nobody takes the rest for the whole.
const CUT_NOTE: &str = "[kubelite: earlier output was dropped, because a log is kept up to a limited size]";

/// What stands in a log where output could not be written.
const LOST_NOTE: &str = "[kubelite: output is missing here, because it could not be written to the disk]";

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
    /// Output was dropped, and the log does not say so yet.
    lost: bool,
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
            lost: false,
        })
    }

    /// Appends whole lines, or drops them if that cannot be: a full disk must neither end a container nor make it wait for
    /// its pipe to be emptied. The next lines that can be written come after a note.
    pub(crate) fn append_or_drop(&mut self, lines: &[u8]) {
        let noted = if self.lost {
            [note(lines, LOST_NOTE).as_slice(), lines].concat()
        } else {
            lines.to_vec()
        };
        self.lost = self.append(&noted).is_err();
        if self.lost {
            // Half a line would spoil the next one. If it cannot be taken back, readers pass over what they cannot read.
            let _ = self.file.set_len(self.written);
        }
    }

    /// Appends whole lines.
    fn append(&mut self, mut lines: &[u8]) -> io::Result<()> {
        while !lines.is_empty() {
            let room = (self.bytes_max / 2).saturating_sub(self.written);
            let fitting = fitting(lines, usize::try_from(room).unwrap_or(usize::MAX));
            let count = match fitting {
                0 if self.written > 0 => {
                    self.rotate()?;
                    continue;
                }
                // A line that is larger than all the room there is: half a line would be of no use to anybody.
                0 => first_line(lines),
                count => count,
            };
            let (now, later) = lines.split_at(count);
            self.file.write_all(now)?;
            self.written = self
                .written
                .saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
            lines = later;
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.files.older_log().exists() {
            File::create(self.files.log_cut())?;
        }
        match fs::rename(self.files.log(), self.files.older_log()) {
            // The new file could not be made the last time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        self.file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.files.log())?;
        self.written = 0;
        Ok(())
    }
}

/// How many bytes of whole lines fit into the room.
fn fitting(lines: &[u8], room: usize) -> usize {
    let end = lines.len().min(room);
    lines
        .iter()
        .take(end)
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |last| last + 1)
}

fn first_line(lines: &[u8]) -> usize {
    let end = lines.iter().position(|byte| *byte == b'\n');
    end.map_or(lines.len(), |end| end + 1)
}

/// The line that stands for the dropped part of a log, with the time of the first line that is left.
pub(crate) fn cut_note(lines: &[u8]) -> Vec<u8> {
    note(lines, CUT_NOTE)
}

/// A line of ours, with the time of the first of those that follow it.
fn note(lines: &[u8], text: &str) -> Vec<u8> {
    let first = lines.split(|byte| *byte == b'\n').find_map(parse);
    let time = first.map_or("", |entry| entry.time);
    format!("{time} {} F {text}\n", Stream::Stderr.name()).into_bytes()
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
        let whole: Vec<u8> = entries.iter().flat_map(|entry| entry.text).copied().collect();
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
        for number in 0..400 {
            assert_eq!(files.log_cut().exists(), number > 222, "line {number}");
            writer.append(format!("line {number:03}\n").as_bytes()).unwrap();
        }
        let (older, newer) = (
            fs::read_to_string(files.older_log()).unwrap(),
            fs::read_to_string(files.log()).unwrap(),
        );
        assert!(older.len() <= 1_000 && newer.len() <= 1_000);
        assert!(newer.ends_with("line 399\n"), "the newest output is kept");
    }

    #[test]
    fn a_large_batch_is_kept_within_the_bound_too() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::new(directory.path().to_owned());
        let batch = "a line of output\n".repeat(1000) + "the last\n";
        let mut writer = Writer::create(files.clone(), 2_000).unwrap();
        writer.append(batch.as_bytes()).unwrap();
        let length = |path| fs::metadata(path).unwrap().len();
        assert!(length(files.log()) + length(files.older_log()) <= 2_000);
        assert!(fs::read_to_string(files.log()).unwrap().ends_with("the last\n"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn output_that_cannot_be_written_is_dropped_and_noted_once_it_can() {
        const LINE: &str = "2026-03-01T10:20:30Z stdout F x\n";
        let directory = tempfile::tempdir().unwrap();
        let files = Files::new(directory.path().to_owned());
        let mut writer = Writer::create(files.clone(), 2_000).unwrap();
        let disk = std::mem::replace(
            &mut writer.file,
            OpenOptions::new().append(true).open("/dev/full").unwrap(),
        );
        for _ in 0..100 {
            writer.append_or_drop(LINE.as_bytes());
        }
        writer.file = disk;
        writer.append_or_drop(LINE.as_bytes());
        writer.append_or_drop(LINE.as_bytes());
        assert_eq!(
            fs::read_to_string(files.log()).unwrap(),
            format!("2026-03-01T10:20:30Z stderr F {LOST_NOTE}\n{LINE}{LINE}")
        );
    }

    #[test]
    fn the_note_about_dropped_output_is_a_line_like_others() {
        let note = cut_note(b"rest\n2026-03-01T10:20:30Z stdout F x\n");
        let entry = parse(note.strip_suffix(b"\n").unwrap()).unwrap();
        assert_eq!((entry.time, entry.partial), ("2026-03-01T10:20:30Z", false));
    }
}
