//! The one place where writes are decided: check, make durable, publish, answer.

use std::{
    any::Any,
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{
    Collection, CommitError, Event, EventKind, Expect, Key, Object,
    backend::{Backend, BackendError},
    encode::Prepared,
    state::Shared,
};

/// How many writes share a transaction at most: by far enough to hide the cost of a sync, and few enough that the first
/// writer of a batch does not wait long for the last.
const BATCH_WRITES_MAX: usize = 256;
/// How many bytes share a transaction at most, so that large objects do not add up to seconds of writing.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// How long the next transaction waits for more writes after one has ended, while there are many. Each transaction costs about
/// as much processor time as the rest of a write, however many writes share it.
const GATHER: Duration = Duration::from_millis(5);
/// That many writes within that time are many. Those of one caller who waits for each of them are not.
const MANY_WRITES: usize = 40;
const MANY_WITHIN: Duration = Duration::from_millis(100);
/// A transaction that this many writes shared is cheap enough for each of them.
const GATHERED_ENOUGH: usize = 16;

/// Decides writes, one batch at a time.
pub(super) struct Committer {
    shared: Arc<Shared>,
    backend: Box<dyn Backend>,
    /// The newest revision ever given out, published or not: one that belonged to a failed batch is never used again.
    revision: u64,
}

impl std::fmt::Debug for Committer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Committer")
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

type Answer = Result<Object, CommitError>;

impl Committer {
    pub(super) fn new(shared: Arc<Shared>, backend: Box<dyn Backend>) -> Self {
        let revision = shared.read().revision();
        Self {
            shared,
            backend,
            revision,
        }
    }

    /// Commits a batch and answers each write, in order. The answers are known only after the transaction: even a
    /// conflict may stem from a write of the same batch, which nobody may hear of before it is durable.
    pub(super) fn commit(&mut self, writes: Vec<Prepared>) -> Vec<Answer> {
        let (events, answers) = self.decide(writes);
        if events.is_empty() {
            return answers;
        }
        let backend = &mut self.backend;
        let committed = catch_unwind(AssertUnwindSafe(|| backend.commit(&events))).unwrap_or_else(|panic| {
            Err(BackendError(format!(
                "the storage engine failed: {}",
                panic_text(&*panic)
            )))
        });
        match committed {
            Ok(()) => {
                self.shared.counters.add_transaction(events.len());
                self.shared.publish(events);
                answers
            }
            Err(BackendError(why)) => {
                self.shared.counters.add_failure();
                answers
                    .iter()
                    .map(|_| Err(CommitError::Storage(why.clone())))
                    .collect()
            }
        }
    }

    /// What each write becomes, given the published state and the writes before it in the batch.
    fn decide(&mut self, writes: Vec<Prepared>) -> (Vec<Event>, Vec<Answer>) {
        let state = self.shared.read();
        let mut ahead: HashMap<(Collection, Key), Option<Object>> = HashMap::new();
        let mut events = Vec::with_capacity(writes.len());
        let mut answers = Vec::with_capacity(writes.len());
        for write in writes {
            let place = (write.collection, write.key);
            let previous = match ahead.get(&place) {
                Some(pending) => pending.clone(),
                None => state.get(&place.0, &place.1).cloned(),
            };
            if let Err(error) = check(write.expect, write.delete, previous.as_ref()) {
                answers.push(Err(error));
                continue;
            }
            self.revision += 1;
            let object = Object {
                revision: self.revision,
                json: write.body.at_revision(self.revision),
                meta: write.meta,
            };
            let kind = match (write.delete, &previous) {
                (true, _) => EventKind::Deleted,
                (false, None) => EventKind::Added,
                (false, Some(_)) => EventKind::Modified,
            };
            answers.push(Ok(object.clone()));
            let (collection, key) = place.clone();
            ahead.insert(place, (!write.delete).then(|| object.clone()));
            events.push(Event {
                revision: self.revision,
                collection,
                key,
                kind,
                object,
                previous,
            });
        }
        (events, answers)
    }
}

fn check(expect: Expect, delete: bool, current: Option<&Object>) -> Result<(), CommitError> {
    match (expect, current) {
        (Expect::Absent, Some(_)) => Err(CommitError::Exists),
        (Expect::Absent, None) if delete => Err(CommitError::NotFound),
        (Expect::Absent, None) => Ok(()),
        (Expect::Revision(_), None) => Err(CommitError::NotFound),
        (Expect::Revision(expected), Some(current)) if current.revision == expected => Ok(()),
        (Expect::Revision(_), Some(current)) => Err(CommitError::Conflict {
            current: current.revision,
        }),
    }
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason given")
}

/// A write on its way to the writer thread.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) write: Prepared,
    pub(super) answer: oneshot::Sender<Answer>,
    /// Its share of the queue, given back when it is answered.
    pub(super) _room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(super) enum Message {
    Write(Box<Job>),
    Close,
}

/// The transactions of the last moment.
#[derive(Debug, Default)]
struct Pace {
    /// When each ended and how many writes shared it. No older than `MANY_WITHIN`, so only as many as fit into that.
    recent: VecDeque<(Instant, usize)>,
    writes: usize,
}

impl Pace {
    fn note(&mut self, end: Instant, writes: usize) {
        self.recent.push_back((end, writes));
        self.writes += writes;
        self.forget(end);
    }

    fn forget(&mut self, now: Instant) {
        while let Some((end, writes)) = self.recent.front()
            && now.saturating_duration_since(*end) > MANY_WITHIN
        {
            self.writes -= writes;
            self.recent.pop_front();
        }
    }

    /// How long to let writes gather before the next transaction.
    fn gather(&mut self, now: Instant) -> Duration {
        self.forget(now);
        match self.recent.back() {
            Some((end, last)) if self.writes >= MANY_WRITES && *last < GATHERED_ENOUGH => {
                GATHER.saturating_sub(now.saturating_duration_since(*end))
            }
            _ => Duration::ZERO,
        }
    }
}

/// The writer thread: commits whatever is queued, together, until it is told to close and the queue is empty.
pub(super) fn run(mut committer: Committer, mut queue: mpsc::UnboundedReceiver<Message>) {
    let mut pace = Pace::default();
    while let Some(first) = queue.blocking_recv() {
        let gather = pace.gather(Instant::now());
        if !gather.is_zero() {
            thread::sleep(gather);
        }
        let mut waiting = Vec::new();
        let mut writes = Vec::new();
        let mut bytes = 0;
        let mut message = Some(first);
        while let Some(next) = message {
            match next {
                Message::Close => queue.close(),
                Message::Write(job) => {
                    let Job {
                        write,
                        answer,
                        _room: room,
                    } = *job;
                    bytes += write.body.size_max();
                    writes.push(write);
                    waiting.push((answer, room));
                }
            }
            let full = writes.len() >= BATCH_WRITES_MAX || bytes >= BATCH_BYTES_MAX;
            message = if full { None } else { queue.try_recv().ok() };
        }
        let count = writes.len();
        for ((waiter, _room), answer) in waiting.into_iter().zip(committer.commit(writes)) {
            // A caller that went away has nobody to tell; its write stands.
            let _gone = waiter.send(answer);
        }
        pace.note(Instant::now(), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_gather_only_while_there_are_many_in_small_transactions() {
        let mut now = Instant::now();
        let mut pace = Pace::default();
        for _ in 0..MANY_WRITES {
            assert_eq!(pace.gather(now), Duration::ZERO, "there are few yet");
            now += Duration::from_millis(1);
            pace.note(now, 1);
        }
        assert_eq!(pace.gather(now), GATHER);
        assert_eq!(pace.gather(now + GATHER / 2), GATHER / 2);
        assert_eq!(pace.gather(now + GATHER), Duration::ZERO);
        pace.note(now, GATHERED_ENOUGH);
        assert_eq!(pace.gather(now), Duration::ZERO, "enough come by themselves");
        for _ in 0..MANY_WRITES {
            now += MANY_WITHIN / 10;
            pace.note(now, 1);
        }
        assert_eq!(pace.gather(now), Duration::ZERO, "they have become rarer");
    }
}
