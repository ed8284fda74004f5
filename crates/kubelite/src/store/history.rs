//! What happened lately, and how watches follow it.
//!
//! A watch has no queue. Each collection keeps one ring of its latest events, bounded by count and by bytes, and a watch is
//! a place in it. A thousand slow watches therefore cost nothing, and one that is overtaken by the ring is told so.

use std::{collections::VecDeque, fmt, sync::Arc};

use tokio::sync::Notify;

use super::{
    Collection, Event,
    state::{Shared, State},
};

/// How many events a watch takes at once: enough to amortise the lock, few enough that a watch which starts far behind
/// does not hold a whole history in its hands.
const BATCH_EVENTS_MAX: usize = 512;
/// What an event costs beside the bytes of its objects: the event, its key, and its place in the ring, rounded up.
const EVENT_OVERHEAD_BYTES: usize = 256;

/// The latest events, oldest first.
#[derive(Debug)]
pub(super) struct History {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Every event after this revision is in the ring.
    oldest: u64,
    events_max: usize,
    bytes_max: usize,
}

impl History {
    pub(super) fn new(oldest: u64, events_max: usize, bytes_max: usize) -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            oldest,
            events_max,
            bytes_max,
        }
    }

    pub(super) fn push(&mut self, event: Arc<Event>) {
        self.bytes += event_bytes(&event);
        self.events.push_back(event);
        // The newest event stays whatever its size, so that a watch which keeps up is never overtaken.
        while self.events.len() > 1 && (self.events.len() > self.events_max || self.bytes > self.bytes_max) {
            if let Some(dropped) = self.events.pop_front() {
                self.bytes -= event_bytes(&dropped);
                self.oldest = dropped.revision;
            }
        }
    }

    pub(super) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The events after a revision, oldest first.
    pub(super) fn after(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let start = self.events.partition_point(|event| event.revision <= revision);
        self.events.range(start..)
    }
}

/// The objects before and after may be shared with other events and with the state; counting both keeps the bound true
/// when they are not.
fn event_bytes(event: &Event) -> usize {
    let previous = event.previous.as_ref().map_or(0, |previous| previous.json.len());
    EVENT_OVERHEAD_BYTES + event.object.json.len() + previous
}

/// Events in order, none missing and none twice.
#[derive(Clone, Debug)]
pub struct Batch {
    pub events: Vec<Arc<Event>>,
    /// Every event up to this revision has been delivered.
    pub through: u64,
}

/// The history was dropped before the watch had read it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("events between revisions {at} and {oldest} are gone from the history")]
pub struct Lagged {
    pub at: u64,
    pub oldest: u64,
}

/// Follows one collection.
#[derive(Debug)]
pub struct Watch(Reader);

impl Watch {
    pub(super) fn new(shared: Arc<Shared>, collection: Collection, after: u64, changed: Arc<Notify>) -> Self {
        Self(Reader {
            shared,
            source: Source::One(collection),
            at: after,
            changed,
            lagged: false,
        })
    }

    /// The next events, once there are some. May be dropped and called again without losing any. On a closed store it
    /// waits for ever, since nothing will happen any more: whoever closes the store ends the streams.
    pub async fn next(&mut self) -> Result<Batch, Lagged> {
        self.0.next().await
    }

    /// Everything up to this revision has been delivered.
    pub fn through(&self) -> u64 {
        self.0.at
    }

    /// As `through`, but first moves an idle watch up to the newest revision, so that a bookmark can carry it.
    pub fn progress(&mut self) -> u64 {
        self.0.progress()
    }
}

/// Follows every collection at once.
#[derive(Debug)]
pub struct Follow(Reader);

impl Follow {
    pub(super) fn new(shared: Arc<Shared>, after: u64, changed: Arc<Notify>) -> Self {
        Self(Reader {
            shared,
            source: Source::All,
            at: after,
            changed,
            lagged: false,
        })
    }

    /// The next events, once there are some. May be dropped and called again without losing any. Who lags starts a new
    /// `Follow` and then looks at the whole state once.
    pub async fn next(&mut self) -> Result<Batch, Lagged> {
        self.0.next().await
    }
}

enum Source {
    One(Collection),
    All,
}

/// A place in a history.
struct Reader {
    shared: Arc<Shared>,
    source: Source,
    at: u64,
    changed: Arc<Notify>,
    lagged: bool,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("at", &self.at)
            .field("lagged", &self.lagged)
            .finish_non_exhaustive()
    }
}

impl Reader {
    async fn next(&mut self) -> Result<Batch, Lagged> {
        loop {
            // Asked for before the history is read: events are in the history before anybody is told, so an event that
            // this read misses ends the wait below.
            let changed = Arc::clone(&self.changed);
            let changed = changed.notified();
            if let Some(batch) = self.read()? {
                return Ok(batch);
            }
            changed.await;
        }
    }

    fn read(&mut self) -> Result<Option<Batch>, Lagged> {
        let state = self.shared.read();
        let Some(history) = self.source.history(&state) else {
            return Ok(None);
        };
        if self.at < history.oldest() {
            let lagged = Lagged {
                at: self.at,
                oldest: history.oldest(),
            };
            drop(state);
            if !std::mem::replace(&mut self.lagged, true) {
                self.shared.counters.add_watch_dropped();
            }
            return Err(lagged);
        }
        let events: Vec<_> = history.after(self.at).take(BATCH_EVENTS_MAX).cloned().collect();
        self.at = match events.last() {
            Some(last) if events.len() == BATCH_EVENTS_MAX => last.revision,
            _ => state.revision(),
        };
        Ok((!events.is_empty()).then_some(Batch {
            events,
            through: self.at,
        }))
    }

    fn progress(&mut self) -> u64 {
        let state = self.shared.read();
        if let Some(history) = self.source.history(&state)
            && self.at >= history.oldest()
            && history.after(self.at).next().is_none()
        {
            self.at = state.revision();
        }
        self.at
    }
}

impl Source {
    fn history<'a>(&self, state: &'a State) -> Option<&'a History> {
        match self {
            Self::One(collection) => state.history(collection),
            Self::All => Some(state.whole_history()),
        }
    }
}
