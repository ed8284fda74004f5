//! The handle that everybody holds: reads go to the shared state, writes to the writer.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering, mpsc as std_mpsc},
    thread::{self, JoinHandle},
};

use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{
    Collection, CommitError, Follow, Key, Limits, Meta, Object, OpenError, Snapshot, SnapshotError, Watch,
    Write,
    backend::{Backend, Damage, Stored},
    encode::Prepared,
    history::History,
    state::{Address, Shared, State},
    writer::{Committer, Job, Message, panic_text, run},
};

/// The least room that a write takes in the queue, so that tiny writes are bounded in number as well.
const QUEUE_BYTES_MIN: usize = 1 << 10;

/// Rows per message between the threads that load: enough to make the message itself cheap.
const LOAD_CHUNK_ROWS: usize = 256;
/// Messages that may wait, which bounds what is in memory twice to a few megabytes.
const LOAD_CHUNKS_MAX: usize = 8;

/// A cheap handle on the objects, to be cloned freely. The last one to go closes the store.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    writer: Writer,
}

enum Writer {
    /// Commits in the caller's thread. `None` once closed.
    Inline(Mutex<Option<Committer>>),
    Thread {
        queue: mpsc::UnboundedSender<Message>,
        /// Bounds the queue in bytes.
        room: Arc<Semaphore>,
        thread: Mutex<Option<JoinHandle<()>>>,
    },
}

/// Numbers for `/metrics`.
#[derive(Clone, Debug)]
pub struct Stats {
    pub revision: u64,
    pub objects: u64,
    pub objects_by_collection: Vec<(Collection, u64)>,
    /// The JSON of all objects, without what the maps around them take.
    pub bytes: u64,
    pub history_events: u64,
    pub history_bytes: u64,
    /// Transactions that were made durable, the writes in them, and the most writes that one held.
    pub transactions: u64,
    pub writes: u64,
    pub batch_writes_max: u64,
    pub transactions_failed: u64,
    /// Watches that were overtaken by the history.
    pub watches_dropped: u64,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

impl Store {
    pub(super) fn inline(limits: Limits, backend: Box<dyn Backend>) -> Self {
        let shared = Arc::new(Shared::new(State::new(limits)));
        let committer = Committer::new(Arc::clone(&shared), backend);
        Self(Arc::new(Inner {
            shared,
            writer: Writer::Inline(Mutex::new(Some(committer))),
        }))
    }

    /// Opens and loads in the thread that will be the writer. A storage engine may panic on a damaged file; the thread
    /// contains that, and it becomes an error here.
    pub(super) fn threaded(
        limits: Limits,
        path: PathBuf,
        open: impl FnOnce() -> Result<Box<dyn Backend>, OpenError> + Send + 'static,
    ) -> Result<Self, OpenError> {
        let room = limits
            .write_queue_bytes
            .clamp(QUEUE_BYTES_MIN, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let file = path.clone();
        let (queue, jobs) = mpsc::unbounded_channel();
        let (report, opened) = std_mpsc::sync_channel(1);
        let started = thread::Builder::new()
            .name("kubelite-store".to_owned())
            .spawn(move || {
                let loaded =
                    open().and_then(|mut backend| Ok((load(&mut *backend, limits, &file)?, backend)));
                let (state, backend) = match loaded {
                    Ok(loaded) => loaded,
                    Err(error) => {
                        let _gone = report.send(Err(error));
                        return;
                    }
                };
                let shared = Arc::new(Shared::new(state));
                let committer = Committer::new(Arc::clone(&shared), backend);
                // Where the opener went away there will be no writes either, and the loop ends at once.
                let _gone = report.send(Ok(shared));
                drop(report);
                run(committer, jobs);
            });
        let thread = started.map_err(|source| OpenError::Io {
            path: path.clone(),
            source,
        })?;
        match opened.recv() {
            Ok(Ok(shared)) => {
                let room = Arc::new(Semaphore::new(room));
                let writer = Writer::Thread {
                    queue,
                    room,
                    thread: Mutex::new(Some(thread)),
                };
                Ok(Self(Arc::new(Inner { shared, writer })))
            }
            Ok(Err(error)) => {
                // Joined so that the file is closed and unlocked by the time the caller hears of it.
                let _ended = thread.join();
                Err(error)
            }
            Err(std_mpsc::RecvError) => {
                let what = match thread.join() {
                    Err(panic) => format!("the storage engine gave up on it ({})", panic_text(&*panic)),
                    Ok(()) => "the storage engine gave up on it".to_owned(),
                };
                Err(OpenError::Damaged { path, what })
            }
        }
    }

    /// Commits one write and returns the stored object, once it is durable and visible to every reader. A write whose
    /// future is dropped may or may not happen.
    pub async fn commit(&self, write: Write) -> Result<Object, CommitError> {
        let write = Prepared::new(write, self.0.shared.limits.object_bytes_max)?;
        match &self.0.writer {
            Writer::Inline(committer) => {
                let mut committer = committer.lock().unwrap_or_else(PoisonError::into_inner);
                let answers = committer.as_mut().ok_or(CommitError::Closed)?.commit(vec![write]);
                answers.into_iter().next().unwrap_or(Err(CommitError::Closed))
            }
            Writer::Thread { queue, room, .. } => {
                let most = self.0.shared.limits.write_queue_bytes.max(QUEUE_BYTES_MIN);
                let bytes = write.body.size_max().clamp(QUEUE_BYTES_MIN, most);
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                let room = Arc::clone(room)
                    .acquire_many_owned(bytes)
                    .await
                    .map_err(|_| CommitError::Closed)?;
                let (answer, answered) = oneshot::channel();
                let job = Job {
                    write,
                    answer,
                    _room: room,
                };
                queue
                    .send(Message::Write(Box::new(job)))
                    .map_err(|_| CommitError::Closed)?;
                answered.await.unwrap_or(Err(CommitError::Closed))
            }
        }
    }

    pub fn get(&self, collection: &Collection, key: &Key) -> Option<Object> {
        self.0.shared.read().get(collection, key).cloned()
    }

    /// The newest published revision.
    pub fn revision(&self) -> u64 {
        self.0.shared.read().revision()
    }

    /// Waits until a revision has been published.
    pub async fn wait_for(&self, revision: u64) {
        loop {
            // Asked for before the revision is read: a publication in between ends the wait below.
            let published = self.0.shared.published.notified();
            if self.revision() >= revision {
                return;
            }
            published.await;
        }
    }

    /// A collection as it is, or as it was at an older revision that the history still reaches.
    pub fn snapshot(&self, collection: &Collection, at: Option<u64>) -> Result<Snapshot, SnapshotError> {
        let state = self.0.shared.read();
        let current = state.revision();
        let at = at.unwrap_or(current);
        reachable(&state, collection, at)?;
        let mut snapshot = Snapshot::new(at, state.objects(collection).cloned().unwrap_or_default());
        let since: Vec<_> = state
            .history(collection)
            .into_iter()
            .flat_map(|history| history.after(at).rev())
            .cloned()
            .collect();
        drop(state);
        for event in since {
            snapshot.undo(&event);
        }
        Ok(snapshot)
    }

    /// The events of a collection after a revision, those that come included.
    pub fn watch(&self, collection: &Collection, after: u64) -> Result<Watch, SnapshotError> {
        let changed = self.0.shared.subscribe(collection);
        reachable(&self.0.shared.read(), collection, after)?;
        Ok(Watch::new(
            Arc::clone(&self.0.shared),
            collection.clone(),
            after,
            changed,
        ))
    }

    /// Every event of every collection from now on.
    pub fn follow(&self) -> Follow {
        let changed = Arc::clone(&self.0.shared.published);
        Follow::new(Arc::clone(&self.0.shared), self.revision(), changed)
    }

    /// The objects that name this UID among their owners.
    pub fn dependents(&self, owner_uid: &str) -> Vec<(Collection, Key, Object)> {
        self.0.shared.read().owned_by(owner_uid).map(found).collect()
    }

    pub fn find_uid(&self, uid: &str) -> Option<(Collection, Key, Object)> {
        self.0.shared.read().by_uid(uid).map(found)
    }

    /// The collections that hold objects, in order.
    pub fn collections(&self) -> Vec<Collection> {
        let state = self.0.shared.read();
        state
            .shelves()
            .filter(|(_, objects, _)| *objects > 0)
            .map(|(name, ..)| name.clone())
            .collect()
    }

    pub fn stats(&self) -> Stats {
        let state = self.0.shared.read();
        let counters = &self.0.shared.counters;
        let objects_by_collection: Vec<_> = state
            .shelves()
            .map(|(name, objects, _)| (name.clone(), objects as u64))
            .collect();
        let history = |measure: fn(&History) -> usize| {
            state.shelves().map(|(.., history)| measure(history) as u64).sum()
        };
        Stats {
            revision: state.revision(),
            objects: objects_by_collection.iter().map(|(_, objects)| objects).sum(),
            objects_by_collection,
            bytes: state.bytes() as u64,
            history_events: history(History::len),
            history_bytes: history(History::bytes),
            transactions: counters.transactions.load(Ordering::Relaxed),
            writes: counters.writes.load(Ordering::Relaxed),
            batch_writes_max: counters.batch_writes_max.load(Ordering::Relaxed),
            transactions_failed: counters.transactions_failed.load(Ordering::Relaxed),
            watches_dropped: counters.watches_dropped.load(Ordering::Relaxed),
        }
    }

    /// Commits what is queued, then stops writing and lets go of the file. Reads go on; later writes get `Closed`.
    pub fn close(&self) {
        self.0.close();
    }
}

impl Inner {
    fn close(&self) {
        match &self.writer {
            Writer::Inline(committer) => {
                committer.lock().unwrap_or_else(PoisonError::into_inner).take();
            }
            Writer::Thread { queue, room, thread } => {
                room.close();
                // An error means that the thread has ended already.
                let _ended = queue.send(Message::Close);
                let thread = thread.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(thread) = thread {
                    // A panic of the writer has been answered to its callers; there is nobody else to tell.
                    let _panicked = thread.join();
                }
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

fn found((address, object): (&Address, &Object)) -> (Collection, Key, Object) {
    (address.collection.clone(), address.key.clone(), object.clone())
}

fn reachable(state: &State, collection: &Collection, at: u64) -> Result<(), SnapshotError> {
    let current = state.revision();
    let oldest = state.history(collection).map_or(state.floor(), History::oldest);
    if at > current {
        Err(SnapshotError::Future { current })
    } else if at < oldest {
        Err(SnapshotError::Expired { oldest })
    } else {
        Ok(())
    }
}

/// Loads everything. The backend reads and verifies in this thread while another parses, which takes as long again.
fn load(backend: &mut dyn Backend, limits: Limits, path: &Path) -> Result<State, OpenError> {
    thread::scope(|scope| {
        let (rows, read) = std_mpsc::sync_channel::<Vec<Stored>>(LOAD_CHUNKS_MAX);
        let parser = scope.spawn(move || {
            let mut state = State::new(limits);
            for stored in read.into_iter().flatten() {
                take(&mut state, stored)?;
            }
            Ok(state)
        });
        let mut chunk = Vec::with_capacity(LOAD_CHUNK_ROWS);
        let loaded = backend.load(&mut |stored| {
            chunk.push(stored);
            if chunk.len() < LOAD_CHUNK_ROWS {
                return Ok(());
            }
            // The parser goes away only when it found damage, which is reported below.
            rows.send(std::mem::take(&mut chunk))
                .map_err(|_| Damage("a row cannot be read".to_owned()))
        });
        // An error means the same as above.
        let _found_damage = rows.send(chunk);
        drop(rows);
        let parsed = parser
            .join()
            .unwrap_or_else(|panic| Err(Damage(panic_text(&*panic).to_owned())));
        let state = parsed.map_err(|Damage(what)| OpenError::Damaged {
            path: path.to_owned(),
            what,
        })?;
        Ok(state.loaded(loaded?))
    })
}

fn take(state: &mut State, stored: Stored) -> Result<(), Damage> {
    let Stored {
        collection,
        key,
        json,
    } = stored;
    let place = || format!("{} {}/{}", collection.as_str(), key.namespace, key.name);
    let (meta, revision) = Meta::from_json(&json)
        .map_err(|error| Damage(format!("the metadata of {} cannot be read: {error}", place())))?;
    let revision = revision.ok_or_else(|| Damage(format!("{} carries no revision", place())))?;
    state.load(
        &collection,
        key,
        Object {
            revision,
            json,
            meta: Arc::new(meta),
        },
    );
    Ok(())
}
