//! Watches: a stream of events that begins where the client left off.
//!
//! There is no queue per watcher. Each stream reads the collection's shared history at its own pace; one that falls out of
//! it gets an in-stream 410 and starts again with a list.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    defects::Defect,
    error::ApiError,
    request::{WatchFrom, WatchOptions},
    server::{Core, present::Presenter, read::snapshot_error, select::Selection, target::Target},
    store::{Event, EventKind, Key, Lagged, Object, SnapshotError, Watch},
};

/// How often a quiet watch tells its client how far it has come.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// How long before the end of a watch its last bookmark is sent.
const LAST_BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// A watch without `timeoutSeconds` ends between this and twice this, so that clients do not all come back at once.
const DEFAULT_TIMEOUT_SECONDS: u64 = 1800;
/// How many bytes of events are put together before they are handed to the connection.
const CHUNK_BYTES: usize = 64 * 1024;

struct Stream {
    core: Arc<Core>,
    selection: Selection,
    presenter: Presenter,
    watch: Watch,
    bookmarks: bool,
    /// Objects still to be sent as the initial state.
    initial: VecDeque<Object>,
    /// After the initial state, a bookmark that says so.
    marks_initial_end: Option<u64>,
    deadline: Instant,
    next_bookmark: Instant,
    ended: bool,
}

impl Core {
    /// Opens a watch. Errors that a client can only act on after a list are sent in the stream, as Kubernetes does.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        target: &Target,
        options: &WatchOptions,
        presenter: Presenter,
    ) -> Result<Body, ApiError> {
        let selection = self.selection(target, &options.label_selector, &options.field_selector)?;
        let collection = &target.served.resource.collection;
        let mut initial = VecDeque::new();
        let mut marks_initial_end = None;
        let after = match options.from {
            WatchFrom::State { at_least } => {
                self.reach(at_least.unwrap_or(0)).await?;
                let snapshot = self
                    .store
                    .snapshot(collection, None)
                    .map_err(|error| snapshot_error(error, 0))?;
                let objects = snapshot
                    .iter(selection.namespace.as_deref(), None)
                    .filter(|(key, object)| selection.matches(key, object))
                    .map(|(_, object)| object.clone());
                initial.extend(objects);
                marks_initial_end = options.allow_bookmarks.then_some(snapshot.revision);
                snapshot.revision
            }
            WatchFrom::After(_) if self.defects.has(Defect::Start) => self.store.revision(),
            WatchFrom::After(version) => {
                self.reach(version).await?;
                version
            }
            WatchFrom::Now => self.store.revision(),
        };
        let watch = match self.store.watch(collection, after) {
            Ok(watch) => watch,
            Err(error @ SnapshotError::Expired { .. }) => {
                return Ok(Body::from(error_line(&snapshot_error(error, after))));
            }
            Err(error) => return Err(snapshot_error(error, after)),
        };
        let timeout = options.timeout.unwrap_or_else(|| {
            Duration::from_secs(DEFAULT_TIMEOUT_SECONDS + self.ids.below(DEFAULT_TIMEOUT_SECONDS))
        });
        let now = Instant::now();
        let state = Stream {
            core: self.clone(),
            selection,
            presenter,
            watch,
            bookmarks: options.allow_bookmarks,
            initial,
            marks_initial_end,
            deadline: now + timeout,
            next_bookmark: now + BOOKMARK_INTERVAL,
            ended: false,
        };
        self.metrics.watches_opened.inc();
        let stream = stream::unfold(state, |mut state| async move {
            let chunk = state.next_chunk().await?;
            Some((Ok::<_, std::convert::Infallible>(chunk), state))
        });
        Ok(Body::from_stream(stream))
    }
}

impl Stream {
    /// The next bytes of the stream; `None` ends it.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        if let Some(chunk) = self.initial_chunk() {
            return Some(chunk);
        }
        loop {
            let last_bookmark = self
                .deadline
                .checked_sub(LAST_BOOKMARK_BEFORE_END)
                .unwrap_or(self.deadline);
            let bookmark_at = if Instant::now() < last_bookmark {
                self.next_bookmark.min(last_bookmark)
            } else {
                self.next_bookmark
            };
            tokio::select! {
                biased;
                () = self.core.stopping() => return None,
                batch = self.watch.next() => match batch {
                    Ok(batch) => {
                        let chunk = self.events_chunk(&batch.events);
                        if !chunk.is_empty() {
                            return Some(chunk);
                        }
                    }
                    Err(Lagged { at, oldest }) => {
                        self.ended = true;
                        return Some(error_line(&snapshot_error(SnapshotError::Expired { oldest }, at)));
                    }
                },
                () = tokio::time::sleep_until(self.deadline) => return None,
                () = tokio::time::sleep_until(bookmark_at), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
                    let revision = self.watch.progress();
                    return Some(self.bookmark(revision, false));
                }
            }
        }
    }

    fn initial_chunk(&mut self) -> Option<Bytes> {
        let mut chunk = BytesMut::new();
        while chunk.len() < CHUNK_BYTES {
            let Some(object) = self.initial.pop_front() else {
                break;
            };
            self.write_event(&mut chunk, "ADDED", &object);
        }
        if self.initial.is_empty()
            && let Some(revision) = self.marks_initial_end.take()
        {
            chunk.extend_from_slice(&self.bookmark(revision, true));
        }
        (!chunk.is_empty()).then(|| chunk.freeze())
    }

    fn events_chunk(&mut self, events: &[Arc<Event>]) -> Bytes {
        let mut chunk = BytesMut::new();
        for event in events {
            let before = event
                .previous
                .as_ref()
                .is_some_and(|object| self.selects(&event.key, object));
            let after = event.kind != EventKind::Deleted && self.selects(&event.key, &event.object);
            match (before, after) {
                (false, false) => {}
                (true, false) if self.core.defects.has(Defect::Deletions) => {}
                (false, true) => self.write_event(&mut chunk, "ADDED", &event.object),
                (true, true) => self.write_event(&mut chunk, "MODIFIED", &event.object),
                (true, false) if event.kind == EventKind::Deleted => {
                    self.write_event(&mut chunk, "DELETED", &event.object);
                }
                (true, false) => {
                    // It only left the selection: the client sees it go as it last knew it, at the version of the change.
                    if let Some(previous) = &event.previous {
                        self.write_event(&mut chunk, "DELETED", &previous.at_revision(event.revision));
                    }
                }
            }
        }
        chunk.freeze()
    }

    fn selects(&self, key: &Key, object: &Object) -> bool {
        self.selection.matches(key, object)
    }

    fn write_event(&mut self, chunk: &mut BytesMut, type_: &str, object: &Object) {
        let now = self.core.clock.now();
        let body = self.presenter.watched(object, now);
        write_line(chunk, type_, &body);
    }

    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let mut metadata = json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
        if initial_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let body = self.presenter.bookmark(&metadata, self.core.clock.now());
        let mut line = BytesMut::new();
        write_line(&mut line, "BOOKMARK", &body);
        line.freeze()
    }
}

fn write_line(chunk: &mut BytesMut, type_: &str, object: &[u8]) {
    chunk.reserve(object.len() + 48);
    chunk.put_slice(b"{\"type\":\"");
    chunk.put_slice(type_.as_bytes());
    chunk.put_slice(b"\",\"object\":");
    chunk.put_slice(object);
    chunk.put_slice(b"}\n");
}

/// An error in the stream, which is the only place where a client looks for "too old".
fn error_line(error: &ApiError) -> Bytes {
    let mut line = BytesMut::new();
    let status: Value = error.to_status();
    write_line(&mut line, "ERROR", status.to_string().as_bytes());
    line.freeze()
}
