//! Finished runs on their way into history, before anything lets them go.
//!
//! The object is the outbox. A run that has ended is offered here whenever there is nothing left to do about it, and is written
//! by a task of its own, so that no decision waits for a database. What is written is remembered by UID and version: as long
//! as that is not so, a run is not deleted for its age. One that is not written soon gets a finalizer, so that somebody's own deletion
//! of it waits for a while; see `driver/archiving.rs`. A process that takes over knows nothing and offers all of them anew; what history
//! has already costs it one question each.
//!
//! A run that goes without having been written, because somebody deleted it before its end or for longer than that is waited for, is
//! written as it was last seen, for as long as this process lives.
//!
//! What fails has its turn again after everything that has not been tried, so that one run that cannot be written holds up no other.
//!
//! [`earlier`] keeps what was true of a run before, which its object does not say any more when it has ended, and which is written with it.
//!
//! [`logs`] does the same for the ends of logs, as well as it can. Without an archive none of this is there: nothing is kept,
//! and nothing waits.

mod earlier;
pub mod logs;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use futures::future::BoxFuture;
use jangar_api::condition::Condition;
use jangar_engine::decision::{Key, Uid};
use serde_json::Value;
use thiserror::Error;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep},
};

use self::{
    earlier::Earlier,
    logs::{LogTails, Tail},
};
use crate::{
    backoff::Backoff,
    caches::{Cached, key_of, uid_of},
    metrics::{ArchiveResult, Metrics},
};

/// How many runs wait at once. They are in the caches as well, so that each costs little; more than this are offered again when
/// somebody looks at them.
const WAITING_MAX: usize = 100_000;
/// How many runs are remembered as written. One that is forgotten is offered once more, which changes nothing.
const REMEMBERED_MAX: usize = 200_000;
/// How many runs are remembered as refused. One that is forgotten is offered once more, and refused again.
const REFUSED_MAX: usize = 10_000;
/// A database that is away is away for a while.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    most: Duration::from_mins(1),
};

/// Why a run was not written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotWritten {
    /// History is away, or does not do what it should: it is tried again.
    #[error("{0}")]
    Away(String),
    /// History will not have this run, however often it is tried.
    #[error("{0}")]
    Refused(String),
}

/// Where history is written.
pub trait Archive: fmt::Debug + Send + Sync {
    /// Writes what is to be remembered of a run, given as the API server has it, with conditions that it had before. When it is done, the run
    /// can go. It takes a bounded time; an error says why it was not possible, in words.
    fn record(&self, run: Value, earlier: Vec<Value>) -> BoxFuture<'static, Result<(), NotWritten>>;

    /// How much of the end of a log is kept.
    fn log_bytes(&self) -> usize;

    /// Whether the end of the log of this attempt is there already.
    fn has_log(&self, run: &Uid, step: &str, attempt: u32) -> BoxFuture<'static, Result<bool, String>>;

    /// Writes the end of a log.
    fn record_log(&self, tail: Tail) -> BoxFuture<'static, Result<(), String>>;
}

/// How the archive is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveState {
    /// How many runs are not written yet.
    pub waiting: usize,
    /// Why the last try failed; absent once one has succeeded, and while nothing waits.
    pub trouble: Option<String>,
}

/// A run that can be written as JSON.
trait Run: Send + Sync {
    fn to_json(&self) -> serde_json::Result<Value>;
}

impl<K: Cached> Run for K {
    fn to_json(&self) -> serde_json::Result<Value> {
        let mut value = serde_json::to_value(self)?;
        // A copy from a watch need not say what it is.
        if let Some(object) = value.as_object_mut() {
            object.insert(
                "apiVersion".to_owned(),
                Value::from(K::api_version(&()).into_owned()),
            );
            object.insert("kind".to_owned(), Value::from(K::kind(&()).into_owned()));
        }
        Ok(value)
    }
}

struct Waiting {
    key: Key,
    version: String,
    /// Whether the run has ended.
    ended: bool,
    /// Since when this run waits, in whichever version.
    since: Instant,
    /// Whether it was tried, and history did not answer.
    tried: bool,
    run: Arc<dyn Run>,
}

/// A run whose turn it is.
struct Next {
    uid: Uid,
    key: Key,
    version: String,
    ended: bool,
    run: Arc<dyn Run>,
    /// Conditions that it had before.
    earlier: Vec<Condition>,
}

/// What is written of a run.
struct Written {
    version: String,
    /// Whether its end is.
    ended: bool,
}

/// A run that history will not have.
struct RefusedRun {
    version: String,
    why: String,
}

#[derive(Default)]
struct Books {
    /// The versions that are written, and their order of writing.
    written: BTreeMap<Uid, Written>,
    written_order: VecDeque<Uid>,
    refused: BTreeMap<Uid, RefusedRun>,
    waiting: BTreeMap<Uid, Waiting>,
    /// Whose turn it is: those that have not been tried, and then those that failed. Each that waits is in one of them, but for the one
    /// that is being written; so may be some that no longer wait.
    turns: VecDeque<Uid>,
    again: VecDeque<Uid>,
    /// When history answered last.
    answered: Option<Instant>,
    /// What was true of runs before.
    earlier: Earlier,
    /// Since when we know of runs that somebody has deleted, and that are held.
    leaving: BTreeMap<Uid, Instant>,
    /// Whether somebody is writing.
    at_work: bool,
    /// They end when this is dropped.
    workers: JoinSet<()>,
}

impl Books {
    fn remember(&mut self, uid: Uid, written: Written) {
        if self.written.insert(uid.clone(), written).is_none() {
            self.written_order.push_back(uid);
        }
        if self.written_order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.written_order.pop_front()
        {
            self.written.remove(&oldest);
        }
    }
}

/// The runs of one process that wait to be written, and those that are.
pub struct Archiver {
    archive: Arc<dyn Archive>,
    books: Mutex<Books>,
    state: watch::Sender<ArchiveState>,
    /// Tells whoever writes, and waits because history is away, that there is something new.
    offered: Arc<Notify>,
    metrics: OnceLock<Arc<Metrics>>,
    logs: Arc<LogTails>,
}

impl fmt::Debug for Archiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archiver")
            .field("archive", &self.archive)
            .finish_non_exhaustive()
    }
}

impl Archiver {
    pub fn new(archive: Arc<dyn Archive>) -> Self {
        Self {
            logs: Arc::new(LogTails::new(Arc::clone(&archive))),
            archive,
            books: Mutex::default(),
            state: watch::Sender::default(),
            offered: Arc::default(),
            metrics: OnceLock::new(),
        }
    }

    /// The ends of logs on their way into history.
    pub(crate) fn logs(&self) -> &Arc<LogTails> {
        &self.logs
    }

    /// How the archive is doing, now and whenever it changes.
    pub fn state(&self) -> watch::Receiver<ArchiveState> {
        self.state.subscribe()
    }

    /// Where it is counted from now on.
    pub(crate) fn count_in(&self, metrics: Arc<Metrics>) {
        self.logs.count_in(Arc::clone(&metrics));
        // A second term of the same process counts in the same place.
        let _ = self.metrics.set(metrics);
    }

    /// Whether the run is written as it is now.
    pub(crate) fn has<K: Cached>(&self, run: &K) -> bool {
        let books = self.books();
        let written = books.written.get(&uid_of(run.meta()));
        written.is_some_and(|written| written.version == version_of(run))
    }

    /// Whether the end of a run is written, whatever has changed since, or will never be.
    pub(crate) fn is_done_with(&self, run: &Uid) -> bool {
        let books = self.books();
        books.written.get(run).is_some_and(|written| written.ended) || books.refused.contains_key(run)
    }

    /// Why history will not have a run.
    pub(crate) fn refusal(&self, run: &Uid) -> Option<String> {
        self.books().refused.get(run).map(|refused| refused.why.clone())
    }

    /// For how long history has not answered a run that waits; absent if it does not wait.
    ///
    /// A long line is no outage: a process that takes over offers thousands at once. So a run that has not had its turn has waited no
    /// longer than since history answered last, for whichever run.
    pub(crate) fn waits(&self, run: &Uid) -> Option<Duration> {
        let books = self.books();
        let waiting = books.waiting.get(run)?;
        let since = match books.answered {
            Some(answered) if !waiting.tried => waiting.since.max(answered),
            _ => waiting.since,
        };
        Some(since.elapsed())
    }

    /// For how long we know that somebody has deleted a run that is held.
    pub(crate) fn leaves(&self, run: &Uid) -> Duration {
        let mut books = self.books();
        let since = books.leaving.entry(run.clone()).or_insert_with(Instant::now);
        since.elapsed()
    }

    /// Writes the run as it is now, soon.
    pub(crate) fn offer<K: Cached>(self: &Arc<Self>, run: &Arc<K>) {
        if self.has(run.as_ref()) {
            return;
        }
        let uid = uid_of(run.meta());
        let mut books = self.books();
        let refused = books.refused.get(&uid);
        if refused.is_some_and(|refused| refused.version == version_of(run.as_ref())) {
            return;
        }
        let before = books.waiting.get(&uid);
        let waiting = Waiting {
            key: key_of(run.meta()),
            version: version_of(run.as_ref()),
            ended: run.run_facts().is_some_and(|facts| facts.ended),
            since: before.map_or_else(Instant::now, |waiting| waiting.since),
            tried: before.is_some_and(|waiting| waiting.tried),
            run: Arc::clone(run) as Arc<dyn Run>,
        };
        if books.waiting.len() >= WAITING_MAX && !books.waiting.contains_key(&uid) {
            drop(books);
            self.count(ArchiveResult::Overflow);
            return;
        }
        if books.waiting.insert(uid.clone(), waiting).is_none() {
            books.turns.push_back(uid);
        }
        if !books.at_work {
            books.at_work = true;
            // Those that have ended are forgotten.
            while books.workers.try_join_next().is_some() {}
            let this = Arc::downgrade(self);
            books.workers.spawn(work(this, Arc::clone(&self.offered)));
        }
        self.offered.notify_one();
        self.tell(books, |_| {});
    }

    /// A run changed. What its conditions say no more is kept until it is written.
    pub(crate) fn changed<K: Cached>(&self, before: &K, now: &K) {
        let over = earlier::over(before.run_conditions(), now.run_conditions());
        let uid = uid_of(now.meta());
        if over.is_empty() || uid_of(before.meta()) != uid {
            return;
        }
        let lost = self.books().earlier.keep(&uid, over);
        if lost > 0
            && let Some(metrics) = self.metrics.get()
        {
            metrics.transitions_lost(lost);
        }
    }

    /// A run went. It is written as it was last, unless its end is written already or about to be.
    pub(crate) fn went<K: Cached>(self: &Arc<Self>, run: &K) {
        let Some(facts) = run.run_facts() else {
            return;
        };
        let uid = uid_of(run.meta());
        let mut books = self.books();
        books.leaving.remove(&uid);
        let due = books.waiting.contains_key(&uid);
        let done = books.written.contains_key(&uid) || books.refused.contains_key(&uid);
        if facts.ended && done && !due {
            // It has no turn any more.
            books.earlier.forget(&uid, usize::MAX);
        }
        drop(books);
        if !(facts.ended && (due || done)) {
            self.offer(&Arc::new(run.clone()));
        }
    }

    /// The next run to be written, which stays among those that wait. `None` ends the work.
    fn next(&self) -> Option<Next> {
        let mut books = self.books();
        while let Some(uid) = books.turns.pop_front().or_else(|| books.again.pop_front()) {
            if let Some(waiting) = books.waiting.get(&uid) {
                return Some(Next {
                    key: waiting.key.clone(),
                    version: waiting.version.clone(),
                    ended: waiting.ended,
                    run: Arc::clone(&waiting.run),
                    earlier: books.earlier.of(&uid),
                    uid,
                });
            }
        }
        books.at_work = false;
        None
    }

    fn written(&self, next: Next) {
        let Next {
            uid,
            version,
            ended,
            earlier,
            ..
        } = next;
        let mut books = self.books();
        books.answered = Some(Instant::now());
        books.refused.remove(&uid);
        books.earlier.forget(&uid, earlier.len());
        let waiting = books.waiting.get(&uid).map(|waiting| waiting.version == version);
        match waiting {
            Some(true) => drop(books.waiting.remove(&uid)),
            // It has changed since, so that it has another turn.
            Some(false) => books.turns.push_back(uid.clone()),
            None => {}
        }
        books.remember(uid, Written { version, ended });
        self.count(ArchiveResult::Written);
        self.tell(books, |state| state.trouble = None);
    }

    fn failed(&self, next: Next, why: String) {
        tracing::warn!(run = %next.key, error = why, "a finished run was not written into history, so it is kept");
        self.count(ArchiveResult::Failed);
        let mut books = self.books();
        if let Some(waiting) = books.waiting.get_mut(&next.uid) {
            waiting.tried = true;
        }
        books.again.push_back(next.uid);
        self.tell(books, |state| state.trouble = Some(why));
    }

    fn refused(&self, next: Next, why: String) {
        tracing::error!(run = %next.key, error = why, "history will not have a finished run, so it is not kept for it");
        self.count(ArchiveResult::Refused);
        let Next { uid, version, .. } = next;
        let mut books = self.books();
        books.earlier.forget(&uid, usize::MAX);
        books.answered = Some(Instant::now());
        match books.waiting.get(&uid).map(|waiting| waiting.version == version) {
            Some(true) => drop(books.waiting.remove(&uid)),
            Some(false) => books.turns.push_back(uid.clone()),
            None => {}
        }
        if books.refused.len() >= REFUSED_MAX {
            books.refused.pop_first();
        }
        books.refused.insert(uid, RefusedRun { version, why });
        self.tell(books, |_| {});
    }

    /// A run goes that is not written: it was waited for in vain. It is still written if history comes back before this process ends.
    pub(crate) fn given_up<K: Cached>(self: &Arc<Self>, run: &Arc<K>) {
        self.books().leaving.remove(&uid_of(run.meta()));
        self.count(ArchiveResult::GivenUp);
        self.offer(run);
    }

    /// Why runs are not written, if they are not.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state.borrow().trouble.clone()
    }

    fn count(&self, result: ArchiveResult) {
        if let Some(metrics) = self.metrics.get() {
            metrics.archived(result);
        }
    }

    fn tell(&self, books: MutexGuard<'_, Books>, change: impl FnOnce(&mut ArchiveState)) {
        let waiting = books.waiting.len();
        drop(books);
        if let Some(metrics) = self.metrics.get() {
            metrics.archive_waiting(waiting);
        }
        self.state.send_if_modified(|state| {
            let before = state.clone();
            state.waiting = waiting;
            change(state);
            // Nobody tries while nothing waits, so that nobody would notice that all is well again.
            if waiting == 0 {
                state.trouble = None;
            }
            *state != before
        });
        if let Some(metrics) = self.metrics.get() {
            metrics.archive_down(self.state.borrow().trouble.is_some());
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Every method leaves them whole, so a panic elsewhere does not make them bad.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version_of<K: Cached>(run: &K) -> String {
    run.meta().resource_version.clone().unwrap_or_default()
}

/// Writes one run after the other until none is left. One that fails has its turn again after the others.
async fn work(archiver: Weak<Archiver>, offered: Arc<Notify>) {
    let mut failures = 0;
    while let Some(this) = archiver.upgrade() {
        let Some(next) = this.next() else {
            return;
        };
        let earlier = next.earlier.iter().map(serde_json::to_value);
        let earlier: serde_json::Result<Vec<Value>> = earlier.collect();
        let written = match next.run.to_json().and_then(|run| Ok((run, earlier?))) {
            Ok((run, earlier)) => this.archive.record(run, earlier).await,
            Err(error) => Err(NotWritten::Refused(format!(
                "it cannot be written as JSON: {error}"
            ))),
        };
        match written {
            Ok(()) => {
                failures = 0;
                this.written(next);
            }
            Err(NotWritten::Refused(why)) => this.refused(next, why),
            Err(NotWritten::Away(why)) => {
                failures += 1;
                this.failed(next, why);
                drop(this);
                sleep(BACKOFF.first).await;
                // It may be that run alone which fails, so that a new one is tried soon.
                tokio::select! {
                    () = sleep(BACKOFF.delay(failures).saturating_sub(BACKOFF.first)) => {}
                    () = offered.notified() => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
