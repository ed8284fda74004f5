//! Lines of a log, however long a program makes them.

use futures::{
    AsyncBufRead, AsyncBufReadExt, Stream, io,
    stream::{self},
};

/// The longest line of one message. What is longer comes in parts, so that a pod that never ends its line fills nobody's memory.
pub(super) const LINE_MAX_BYTES: usize = 64 * 1024;
/// A character of UTF-8 has at most so many bytes after its first.
const CONTINUATIONS_MAX: usize = 3;

/// A line, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) text: String,
    /// The line goes on in the next part.
    pub(super) goes_on: bool,
}

/// The lines of a reader, in parts of at most [`LINE_MAX_BYTES`].
pub(super) fn parts(reader: impl AsyncBufRead + Send + Unpin) -> impl Stream<Item = io::Result<Part>> + Send {
    let state = Some((reader, Vec::new()));
    stream::unfold(state, |state| async move {
        let (mut reader, mut line) = state?;
        match next(&mut reader, &mut line).await {
            Ok(Some(part)) => Some((Ok(part), Some((reader, line)))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
}

async fn next(reader: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> io::Result<Option<Part>> {
    loop {
        let read = reader.fill_buf().await?;
        if read.is_empty() {
            let rest = std::mem::take(line);
            return Ok((!rest.is_empty()).then(|| whole(&rest)));
        }
        let room = LINE_MAX_BYTES.saturating_sub(line.len());
        let end = read
            .iter()
            .take(room.saturating_add(1))
            .position(|byte| *byte == b'\n');
        if let Some(end) = end {
            line.extend(read.iter().take(end));
            reader.consume_unpin(end + 1);
            return Ok(Some(whole(&std::mem::take(line))));
        }
        let taken = read.len().min(room);
        line.extend(read.iter().take(taken));
        reader.consume_unpin(taken);
        if taken == room {
            let rest = line.split_off(boundary(line));
            let part = std::mem::replace(line, rest);
            return Ok(Some(Part {
                text: String::from_utf8_lossy(&part).into_owned(),
                goes_on: true,
            }));
        }
    }
}

fn whole(line: &[u8]) -> Part {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Part {
        text: String::from_utf8_lossy(line).into_owned(),
        goes_on: false,
    }
}

/// Where a part may end without breaking a character, so that some of it is left in any case.
fn boundary(line: &[u8]) -> usize {
    let bytes = line.len();
    let begins = |back: &usize| {
        let at = bytes.checked_sub(*back)?;
        line.get(at).filter(|byte| **byte >= 0xC0).map(|_| at)
    };
    // The last character may not be whole yet; what follows it is seen next time.
    (1..=CONTINUATIONS_MAX)
        .find_map(|back| begins(&back))
        .unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use futures::{TryStreamExt, io::Cursor};

    use super::*;

    async fn all(text: &[u8]) -> Vec<(usize, bool)> {
        let parts: Vec<Part> = parts(Cursor::new(text)).try_collect().await.expect("it is read");
        parts.iter().map(|part| (part.text.len(), part.goes_on)).collect()
    }

    #[tokio::test]
    async fn a_line_without_an_end_comes_in_parts() {
        let long = "x".repeat(2 * LINE_MAX_BYTES + 10);
        let text = format!("one\r\n{long}\nend");
        let expected = [
            (3, false),
            (LINE_MAX_BYTES, true),
            (LINE_MAX_BYTES, true),
            (10, false),
            (3, false),
        ];
        assert_eq!(all(text.as_bytes()).await, expected);
        let exact = format!("{}\nx\n", "y".repeat(LINE_MAX_BYTES));
        assert_eq!(all(exact.as_bytes()).await, [(LINE_MAX_BYTES, false), (1, false)]);
        assert_eq!(all(b"\n\n").await, [(0, false), (0, false)]);
        assert_eq!(all(b"").await, []);
    }

    #[tokio::test]
    async fn parts_put_together_are_the_line_and_no_byte_stops_the_log() {
        let long = format!("x{}", "é".repeat(LINE_MAX_BYTES));
        let found: Vec<Part> = parts(Cursor::new(long.as_bytes()))
            .try_collect()
            .await
            .expect("it is read");
        let together: String = found.iter().map(|part| part.text.as_str()).collect();
        assert!(together == long && found.len() == 3, "{} parts", found.len());
        assert_eq!(all(b"\xff\xfe\nafter\n").await, [(6, false), (5, false)]);
    }
}
