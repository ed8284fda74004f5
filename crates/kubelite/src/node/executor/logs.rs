//! What containers wrote, for whoever asks: the executor keeps this up to date, the API server reads it.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use super::{logfile, run::Files};
use crate::{
    clock::{Clock, SystemClock},
    error::{ApiError, Reason},
    server::{LogRequest, PodLogs},
};

/// How much of a log is read at once. A log's own bound keeps a reader from more than a few rounds.
const READ_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How often a log may be rotated while it is opened. One that is rotated faster than it is read has a gap.
const ROTATIONS_MAX: usize = 3;
/// The kubelet cuts what it shows instead of a missing termination message to this.
const FALLBACK_BYTES_MAX: usize = 2048;
const FALLBACK_LINES_MAX: usize = 80;

/// Counts what happened to a running container's log; says when there will be no more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Live {
    pub(crate) changes: u64,
    pub(crate) ended: bool,
}

/// One container's logs.
#[derive(Clone, Debug)]
pub(crate) struct ContainerLogs {
    pub(crate) name: String,
    /// Whether it runs before the containers proper.
    pub(crate) init: bool,
    /// The present attempt.
    pub(crate) current: Option<(Files, watch::Receiver<Live>)>,
    pub(crate) previous: Option<Files>,
    /// Why there is no present attempt.
    pub(crate) waiting: String,
}

#[derive(Clone, Debug)]
struct PodEntry {
    uid: String,
    containers: Vec<ContainerLogs>,
}

/// The logs of every pod on this node. Clones share them: one goes to the API server, one to the executor.
#[derive(Clone, Debug)]
pub struct PodLogStore {
    pods: Arc<Mutex<BTreeMap<(String, String), PodEntry>>>,
    clock: Arc<dyn Clock>,
}

impl Default for PodLogStore {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl PodLogStore {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            pods: Arc::default(),
            clock,
        }
    }

    pub(crate) fn set(&self, namespace: &str, name: &str, uid: &str, containers: Vec<ContainerLogs>) {
        let entry = PodEntry {
            uid: uid.to_owned(),
            containers,
        };
        self.locked()
            .insert((namespace.to_owned(), name.to_owned()), entry);
    }

    /// Forgets a pod, unless another of the same name has taken its place.
    pub(crate) fn remove(&self, namespace: &str, name: &str, uid: &str) {
        let mut pods = self.locked();
        let key = (namespace.to_owned(), name.to_owned());
        if pods.get(&key).is_some_and(|entry| entry.uid == uid) {
            pods.remove(&key);
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), PodEntry>> {
        // Each change is a single insertion or removal, so a panic elsewhere leaves it whole.
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn container(&self, request: &LogRequest) -> Result<ContainerLogs, ApiError> {
        let key = (request.namespace.clone(), request.pod.clone());
        let containers = self.locked().get(&key).map(|entry| entry.containers.clone());
        let containers = containers.unwrap_or_default();
        let pod = &request.pod;
        let found = match (request.container.as_str(), containers.as_slice()) {
            ("", []) => {
                let message = format!("no container of pod {pod:?} has been started yet");
                return Err(ApiError::bad_request(message));
            }
            ("", several) => {
                // Init containers do not make it ambiguous.
                let mut proper = several.iter().filter(|container| !container.init);
                if let (Some(only), None) = (proper.next(), proper.next()) {
                    return Ok(only.clone());
                }
                let names: Vec<&str> = several.iter().map(|container| container.name.as_str()).collect();
                let message = format!(
                    "a container name must be specified for pod {pod}, choose one of: [{}]",
                    names.join(" ")
                );
                return Err(ApiError::bad_request(message));
            }
            (name, several) => several.iter().find(|container| container.name == name),
        };
        found.cloned().ok_or_else(|| {
            let message = format!("container {} is not valid for pod {pod}", request.container);
            ApiError::bad_request(message)
        })
    }

    async fn body(&self, request: LogRequest) -> Result<Body, ApiError> {
        let container = self.container(&request)?;
        let (name, pod) = (&container.name, &request.pod);
        if request.previous {
            let files = container.previous.ok_or_else(|| {
                ApiError::bad_request(format!(
                    "previous terminated container {name:?} in pod {pod:?} not found"
                ))
            })?;
            let (_, ended) = watch::channel(Live {
                changes: 0,
                ended: true,
            });
            return self.stream(files, ended, &request).await;
        }
        let (files, live) = container.current.ok_or_else(|| {
            let waiting = &container.waiting;
            ApiError::bad_request(format!(
                "container {name:?} in pod {pod:?} is waiting to start: {waiting}"
            ))
        })?;
        self.stream(files, live, &request).await
    }

    async fn stream(
        &self,
        files: Files,
        mut live: watch::Receiver<Live>,
        request: &LogRequest,
    ) -> Result<Body, ApiError> {
        // Marked before the first read, so that nothing that is written during it goes unnoticed.
        live.mark_unchanged();
        let since = request
            .since_seconds
            .map(|seconds| before(self.clock.now(), seconds));
        let unreadable = |error: io::Error| {
            ApiError::new(Reason::InternalError, format!("the log cannot be read: {error}"))
        };
        let (mut reader, lines) = tokio::task::spawn_blocking(move || Reader::open(files))
            .await
            .map_err(io::Error::other)
            .and_then(|result| result)
            .map_err(unreadable)?;
        let mut filter = Filter {
            since,
            timestamps: request.timestamps,
            left: request.limit_bytes,
            continued: false,
        };
        let first = filter.show(tail(&lines, request.tail_lines));
        if !request.follow {
            return Ok(Body::from(first));
        }
        reader.keep_incomplete(&lines);
        let state = Some((reader, filter, live));
        let rest = stream::unfold(state, async |state| {
            let (mut reader, mut filter, mut live) = state?;
            loop {
                if filter.left == Some(0) {
                    return None;
                }
                let ended = live.borrow_and_update().ended;
                let (bytes, back) = tokio::task::spawn_blocking(move || (reader.more(), reader))
                    .await
                    .ok()?;
                reader = back;
                let shown = match bytes {
                    Ok(bytes) => filter.show(&bytes),
                    Err(error) => return Some((Err(error), None)),
                };
                if !shown.is_empty() {
                    return Some((Ok(Bytes::from(shown)), Some((reader, filter, live))));
                }
                // If the executor is gone there will be nothing more either.
                if ended || live.changed().await.is_err() {
                    return None;
                }
            }
        });
        let first = stream::once(async move { Ok::<_, io::Error>(Bytes::from(first)) });
        Ok(Body::from_stream(first.chain(rest)))
    }
}

impl PodLogs for PodLogStore {
    fn read(&self, request: LogRequest) -> BoxFuture<'_, Result<Body, ApiError>> {
        Box::pin(self.body(request))
    }
}

fn before(now: Timestamp, seconds: u64) -> Timestamp {
    let duration = SignedDuration::try_from(Duration::from_secs(seconds)).unwrap_or(SignedDuration::MAX);
    now.saturating_sub(duration).unwrap_or(Timestamp::MIN)
}

/// The last lines of a log.
fn tail(lines: &[u8], count: Option<u64>) -> &[u8] {
    let Some(count) = count.and_then(|count| usize::try_from(count).ok()) else {
        return lines;
    };
    let mut starts: Vec<usize> = vec![0];
    starts.extend(
        lines
            .iter()
            .enumerate()
            .filter(|(index, byte)| **byte == b'\n' && index + 1 < lines.len())
            .map(|(index, _)| index + 1),
    );
    match starts.len().checked_sub(count) {
        _ if lines.is_empty() => lines,
        None | Some(0) => lines,
        Some(skipped) => starts.get(skipped).map_or(&[], |start| &lines[*start..]),
    }
}

/// What of a log's lines is shown, and how.
#[derive(Debug)]
struct Filter {
    since: Option<Timestamp>,
    timestamps: bool,
    /// How many bytes may still be shown.
    left: Option<u64>,
    /// The line before was only a part of one.
    continued: bool,
}

impl Filter {
    fn show(&mut self, lines: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(lines.len());
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let Some(entry) = line.strip_suffix(b"\n").and_then(logfile::parse) else {
                continue;
            };
            let time: Option<Timestamp> = entry.time.parse().ok();
            if self
                .since
                .is_some_and(|since| time.is_some_and(|time| time < since))
            {
                continue;
            }
            if self.timestamps && !self.continued {
                out.extend_from_slice(entry.time.as_bytes());
                out.push(b' ');
            }
            out.extend_from_slice(entry.text);
            if !entry.partial {
                out.push(b'\n');
            }
            self.continued = entry.partial;
        }
        if let Some(left) = &mut self.left {
            let kept = usize::try_from(*left).unwrap_or(usize::MAX).min(out.len());
            out.truncate(kept);
            *left = left.saturating_sub(u64::try_from(kept).unwrap_or(u64::MAX));
        }
        out
    }
}

/// Follows a log through its rotations.
#[derive(Debug)]
struct Reader {
    files: Files,
    file: Option<File>,
    /// A line whose end has not been written yet.
    incomplete: Vec<u8>,
}

impl Reader {
    /// Opens a log and reads what there is of it.
    fn open(files: Files) -> io::Result<(Self, Vec<u8>)> {
        let (mut file, mut bytes) = Self::both(&files)?;
        for _ in 0..ROTATIONS_MAX {
            if inode(file.as_ref())? == inode(open(&files.log())?.as_ref())? {
                break;
            }
            // The log was rotated between its two halves, and one of them was not read, or both were the same.
            (file, bytes) = Self::both(&files)?;
        }
        if files.log_cut().exists() {
            bytes.splice(0..0, logfile::cut_note(&bytes));
        }
        let reader = Self {
            files,
            file,
            incomplete: Vec::new(),
        };
        Ok((reader, bytes))
    }

    /// The newer half of a log, opened, and what both halves have in them now.
    fn both(files: &Files) -> io::Result<(Option<File>, Vec<u8>)> {
        let mut file = open(&files.log())?;
        let mut bytes = Vec::new();
        if let Some(older) = open(&files.older_log())? {
            older.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
        }
        if let Some(file) = &mut file {
            file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
        }
        Ok((file, bytes))
    }

    fn keep_incomplete(&mut self, lines: &[u8]) {
        let end = lines
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |last| last + 1);
        self.incomplete = lines[end..].to_vec();
    }

    /// Whole lines that have been written since.
    fn more(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.incomplete);
        self.read_into(&mut bytes)?;
        let newest = open(&self.files.log())?;
        if inode(self.file.as_ref())? != inode(newest.as_ref())? {
            // What was written between the read above and the rotation is still to be had from the old file.
            self.read_into(&mut bytes)?;
            self.file = newest;
            self.read_into(&mut bytes)?;
        }
        self.keep_incomplete(&bytes);
        bytes.truncate(bytes.len() - self.incomplete.len());
        Ok(bytes)
    }

    fn read_into(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.take(READ_BYTES_MAX).read_to_end(bytes)?;
        }
        Ok(())
    }
}

fn open(path: &std::path::Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn inode(file: Option<&File>) -> io::Result<Option<u64>> {
    file.map(|file| file.metadata().map(|metadata| metadata.ino()))
        .transpose()
}

/// The end of a log, for a failed container that left no termination message.
pub(crate) fn last_lines(files: &Files) -> io::Result<String> {
    let (_, lines) = Reader::open(files.clone())?;
    let mut filter = Filter {
        since: None,
        timestamps: false,
        left: None,
        continued: false,
    };
    let count = u64::try_from(FALLBACK_LINES_MAX).ok();
    let shown = filter.show(tail(&lines, count));
    let start = shown.len().saturating_sub(FALLBACK_BYTES_MAX);
    Ok(String::from_utf8_lossy(&shown[start..]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] = b"2026-03-01T10:00:00.000000000Z stdout F one\n\
        2026-03-01T10:00:01.000000000Z stderr P tw\n\
        2026-03-01T10:00:01.000000000Z stderr F o\n\
        2026-03-01T10:00:02.000000000Z stdout F three\n";

    fn filter() -> Filter {
        Filter {
            since: None,
            timestamps: false,
            left: None,
            continued: false,
        }
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_are_shown_without_what_the_file_adds() {
        assert_eq!(text(&filter().show(LOG)), "one\ntwo\nthree\n");
    }

    #[test]
    fn each_line_has_one_timestamp_if_asked_for() {
        let mut filter = Filter {
            timestamps: true,
            ..filter()
        };
        assert_eq!(
            text(&filter.show(LOG)),
            "2026-03-01T10:00:00.000000000Z one\n2026-03-01T10:00:01.000000000Z two\n\
             2026-03-01T10:00:02.000000000Z three\n"
        );
    }

    #[test]
    fn only_the_end_is_shown_if_asked_for() {
        for (count, expected) in [
            (None, "one\ntwo\nthree\n"),
            (Some(1), "three\n"),
            (Some(0), ""),
            (Some(9), "one\ntwo\nthree\n"),
        ] {
            assert_eq!(text(&filter().show(tail(LOG, count))), expected, "{count:?}");
        }
        assert_eq!(tail(b"", Some(3)), b"");
    }

    #[test]
    fn only_newer_lines_are_shown_if_asked_for() {
        let since = before("2026-03-01T10:00:03Z".parse().unwrap(), 1);
        let mut filter = Filter {
            since: Some(since),
            ..filter()
        };
        assert_eq!(text(&filter.show(LOG)), "three\n");
    }

    #[test]
    fn no_more_bytes_are_shown_than_asked_for() {
        let mut filter = Filter {
            left: Some(5),
            ..filter()
        };
        assert_eq!(text(&filter.show(LOG)), "one\nt");
        assert_eq!(text(&filter.show(LOG)), "");
    }

    #[test]
    fn a_reader_follows_a_log_through_its_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::new(directory.path().to_owned());
        std::fs::write(files.log(), b"a\nb").unwrap();
        let (mut reader, first) = Reader::open(files.clone()).unwrap();
        reader.keep_incomplete(&first);
        assert_eq!(reader.more().unwrap(), b"");
        let append = |text: &str| {
            let mut file = std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(files.log())
                .unwrap();
            io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        };
        append("c\nd\n");
        assert_eq!(reader.more().unwrap(), b"bc\nd\n");
        append("e\n");
        std::fs::rename(files.log(), files.older_log()).unwrap();
        append("f\n");
        assert_eq!(reader.more().unwrap(), b"e\nf\n");
    }

    #[tokio::test]
    async fn what_cannot_be_shown_is_explained() {
        let store = PodLogStore::default();
        let container = |name: &str| ContainerLogs {
            name: name.to_owned(),
            init: name == "i",
            current: None,
            previous: None,
            waiting: "ContainerCreating".to_owned(),
        };
        store.set(
            "ns",
            "p",
            "u",
            vec![container("i"), container("a"), container("b")],
        );
        let request = |name: &str, previous| LogRequest {
            namespace: "ns".to_owned(),
            pod: "p".to_owned(),
            container: name.to_owned(),
            previous,
            ..LogRequest::default()
        };
        for (request, message) in [
            (
                request("", false),
                "a container name must be specified for pod p, choose one of: [i a b]",
            ),
            (request("c", false), "container c is not valid for pod p"),
            (
                request("a", false),
                "container \"a\" in pod \"p\" is waiting to start: ContainerCreating",
            ),
            (
                request("a", true),
                "previous terminated container \"a\" in pod \"p\" not found",
            ),
        ] {
            let error = store.read(request).await.unwrap_err();
            assert_eq!(error.to_status()["message"], message);
        }
        store.set("ns", "p", "u", vec![container("i"), container("a")]);
        let error = store.read(request("", false)).await.unwrap_err();
        assert_eq!(
            error.to_status()["message"],
            "container \"a\" in pod \"p\" is waiting to start: ContainerCreating",
            "the only container proper need not be named"
        );
        store.remove("ns", "p", "another");
        assert!(store.read(request("a", false)).await.is_err());
    }
}
