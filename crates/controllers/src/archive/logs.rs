//! The ends of logs on their way into history.
//!
//! A pod goes soon after its end, and with it what it wrote. So as soon as a pod of a run has ended, the end of its log is read and
//! written, by tasks of their own. It is best effort: nothing waits for it, and a log that cannot be had is counted and missed.
//! What is read is bounded, in lines by asking for the last ones only, and in memory by keeping the last bytes.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use futures::{AsyncRead, AsyncReadExt};
use jangar_engine::decision::{Key, Uid};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::Archive;
use crate::{
    backoff::Backoff,
    metrics::{LogTailResult, Metrics},
};

/// How many logs are read at once. The API server and the nodes have better things to do.
const WORKERS_MAX: usize = 2;
/// How many logs wait at once. More are offered again when somebody looks at their runs.
const WAITING_MAX: usize = 10_000;
/// How many pods are remembered as done. One that is forgotten costs a question to the database.
const REMEMBERED_MAX: usize = 50_000;
/// How many lines are asked for: more than a mebibyte of ordinary ones has.
const LINES_MAX: u32 = 50_000;
/// How long a log may take to be read. What has not come by then is missed.
const READ_PATIENCE: Duration = Duration::from_secs(20);
/// How often one log is tried. By then its pod is about to go.
const TRIES_MAX: u32 = 8;
const BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    most: Duration::from_mins(1),
};
/// How much is read at once.
const CHUNK_BYTES: usize = 32 << 10;

/// A container that has ended, and whose log is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub run: Uid,
    /// Empty for a run without steps.
    pub step: String,
    pub attempt: u32,
    pub pod: Key,
    pub pod_uid: Uid,
    pub container: String,
    /// For how long its end is kept.
    pub kept_for: Duration,
}

/// The end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    pub source: Source,
    pub text: String,
    /// Whether the beginning is missing.
    pub cut: bool,
    /// How long the whole log was, if that is known.
    pub total_bytes: Option<u64>,
}

struct Turn {
    client: Client,
    source: Source,
    tries: u32,
    /// Not before this time.
    due: Instant,
}

/// What somebody who works does next.
enum Next {
    Take(Box<Turn>),
    /// Nothing is due before this time is over.
    Wait(Duration),
    End,
}

#[derive(Default)]
struct Books {
    /// The pods that wait or are done, in the order in which they came.
    known: BTreeSet<Uid>,
    order: VecDeque<Uid>,
    turns: VecDeque<Turn>,
    at_work: usize,
    /// They end when this is dropped.
    workers: JoinSet<()>,
}

/// The logs of one process that wait to be read and written.
pub struct LogTails {
    archive: Arc<dyn Archive>,
    books: Mutex<Books>,
    /// Tells those who wait for a log to be due that there is a new one.
    offered: Arc<Notify>,
    metrics: OnceLock<Arc<Metrics>>,
}

impl fmt::Debug for LogTails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogTails").finish_non_exhaustive()
    }
}

/// What became of one try.
enum Taken {
    Written,
    /// History has it.
    Already,
    /// The pod is gone, or never wrote.
    Missing(String),
    Failed(String),
}

impl LogTails {
    pub(crate) fn new(archive: Arc<dyn Archive>) -> Self {
        Self {
            archive,
            books: Mutex::default(),
            offered: Arc::default(),
            metrics: OnceLock::new(),
        }
    }

    pub(crate) fn count_in(&self, metrics: Arc<Metrics>) {
        // A second term of the same process counts in the same place.
        let _ = self.metrics.set(metrics);
    }

    /// Whether the log of this pod is done, or about to be.
    pub(crate) fn knows(&self, pod: &Uid) -> bool {
        self.books().known.contains(pod)
    }

    /// Reads the end of this log and writes it, soon.
    pub(crate) fn offer(self: &Arc<Self>, client: &Client, source: Source) {
        let mut books = self.books();
        if books.known.contains(&source.pod_uid) {
            return;
        }
        if books.turns.len() >= WAITING_MAX {
            drop(books);
            self.count(LogTailResult::Overflow);
            return;
        }
        books.known.insert(source.pod_uid.clone());
        books.order.push_back(source.pod_uid.clone());
        if books.order.len() > REMEMBERED_MAX
            && let Some(oldest) = books.order.pop_front()
        {
            books.known.remove(&oldest);
        }
        books.turns.push_back(Turn {
            client: client.clone(),
            source,
            tries: 0,
            due: Instant::now(),
        });
        if books.at_work < WORKERS_MAX {
            books.at_work += 1;
            // Those that have ended are forgotten.
            while books.workers.try_join_next().is_some() {}
            let this = Arc::downgrade(self);
            books.workers.spawn(work(this, Arc::clone(&self.offered)));
        }
        self.offered.notify_one();
    }

    /// The next log: of those that are due the one that was tried least, so that those of a node which does not answer hold up no others.
    fn next(&self) -> Next {
        let now = Instant::now();
        let mut books = self.books();
        let due = books.turns.iter().enumerate().filter(|(_, turn)| turn.due <= now);
        let first = due
            .min_by_key(|(place, turn)| (turn.tries, *place))
            .map(|(place, _)| place);
        if let Some(turn) = first.and_then(|place| books.turns.remove(place)) {
            return Next::Take(Box::new(turn));
        }
        match books.turns.iter().map(|turn| turn.due).min() {
            Some(due) => Next::Wait(due.saturating_duration_since(now)),
            None => {
                books.at_work = books.at_work.saturating_sub(1);
                Next::End
            }
        }
    }

    /// Does something about what came of a try.
    fn tried(&self, mut turn: Turn, taken: Taken) {
        let pod = &turn.source.pod;
        match taken {
            Taken::Written => self.count(LogTailResult::Written),
            Taken::Already => self.count(LogTailResult::Already),
            Taken::Missing(why) => {
                tracing::info!(%pod, why, "the log of a pod is not kept: there is none");
                self.count(LogTailResult::Missing);
            }
            Taken::Failed(why) if turn.tries + 1 >= TRIES_MAX => {
                tracing::warn!(%pod, error = why, "the log of a pod is not kept");
                self.count(LogTailResult::GivenUp);
            }
            Taken::Failed(why) => {
                tracing::info!(%pod, error = why, "the log of a pod is not kept yet");
                self.count(LogTailResult::Failed);
                turn.tries += 1;
                turn.due = Instant::now() + BACKOFF.delay(turn.tries);
                self.books().turns.push_back(turn);
            }
        }
    }

    fn count(&self, result: LogTailResult) {
        if let Some(metrics) = self.metrics.get() {
            metrics.log_tail(result);
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Every method leaves them whole, so a panic elsewhere does not make them bad.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes one log after the other until none is left.
async fn work(tails: Weak<LogTails>, offered: Arc<Notify>) {
    while let Some(this) = tails.upgrade() {
        match this.next() {
            Next::Take(turn) => {
                let taken = take(this.archive.as_ref(), &turn).await;
                this.tried(*turn, taken);
            }
            Next::Wait(pause) => {
                drop(this);
                tokio::select! {
                    () = sleep(pause) => {}
                    () = offered.notified() => {}
                }
            }
            Next::End => return,
        }
    }
}

async fn take(archive: &dyn Archive, turn: &Turn) -> Taken {
    let source = &turn.source;
    match archive.has_log(&source.run, &source.step, source.attempt).await {
        Ok(true) => return Taken::Already,
        Ok(false) => {}
        Err(why) => return Taken::Failed(why),
    }
    let tail = match timeout(READ_PATIENCE, read(&turn.client, source, archive.log_bytes())).await {
        Ok(Ok(tail)) => tail,
        Ok(Err(ReadError::Gone(why))) => return Taken::Missing(why),
        Ok(Err(ReadError::Failed(why))) => return Taken::Failed(why),
        Err(_) => return Taken::Failed("the log did not come in time".to_owned()),
    };
    match archive.record_log(tail).await {
        Ok(()) => Taken::Written,
        Err(why) => Taken::Failed(why),
    }
}

enum ReadError {
    /// There is no such log, and there will be none.
    Gone(String),
    Failed(String),
}

async fn read(client: &Client, source: &Source, bytes: usize) -> Result<Tail, ReadError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &source.pod.namespace);
    let params = LogParams {
        container: Some(source.container.clone()),
        tail_lines: Some(i64::from(LINES_MAX)),
        ..LogParams::default()
    };
    let stream = pods.log_stream(&source.pod.name, &params).await;
    let stream = stream.map_err(|error| match &error {
        // The pod is not there, or its container never ran.
        kube::Error::Api(status) if matches!(status.code, 400 | 404) => ReadError::Gone(error.to_string()),
        _ => ReadError::Failed(error.to_string()),
    })?;
    let end = end_of(stream, bytes).await;
    let end = end.map_err(|error| ReadError::Failed(format!("the log broke off: {error}")))?;
    // Whoever got as many lines as were asked for does not know how many there were before.
    let whole = end.lines < u64::from(LINES_MAX);
    Ok(Tail {
        source: source.clone(),
        text: end.text,
        cut: end.cut || !whole,
        total_bytes: whole.then_some(end.bytes),
    })
}

#[derive(Debug, PartialEq, Eq)]
struct End {
    text: String,
    cut: bool,
    /// How much there was in all.
    bytes: u64,
    lines: u64,
}

/// Reads to the end, and keeps the last bytes in whole lines.
async fn end_of(stream: impl AsyncRead, most: usize) -> std::io::Result<End> {
    let mut stream = pin!(stream);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut kept: Vec<u8> = Vec::new();
    let (mut bytes, mut lines) = (0_u64, 0_u64);
    loop {
        let count = stream.read(&mut chunk).await?;
        let Some(news) = chunk.get(..count).filter(|news| !news.is_empty()) else {
            break;
        };
        bytes = bytes.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        let ends = news.split(|byte| *byte == b'\n').count().saturating_sub(1);
        lines = lines.saturating_add(u64::try_from(ends).unwrap_or(u64::MAX));
        kept.extend_from_slice(news);
        // Not at each chunk: what is left is moved to the front.
        if kept.len() > most.saturating_mul(2).max(CHUNK_BYTES) {
            kept.drain(..kept.len().saturating_sub(most));
        }
    }
    kept.drain(..kept.len().saturating_sub(most));
    let cut = u64::try_from(kept.len()).unwrap_or(u64::MAX) < bytes;
    // A line that has lost its beginning says something else. One that is all there is stays.
    if cut
        && let Some(line) = kept.iter().position(|byte| *byte == b'\n')
        && line + 1 < kept.len()
    {
        kept.drain(..=line);
    }
    Ok(End {
        text: String::from_utf8_lossy(&kept).into_owned(),
        cut,
        bytes,
        lines,
    })
}

#[cfg(test)]
mod tests {
    use futures::{future::BoxFuture, io::Cursor};
    use serde_json::Value;
    use tower::service_fn;

    use super::{super::NotWritten, *};

    /// Fails for the runs whose names say so, and has the logs of all others. It remembers whom it was asked about.
    #[derive(Debug, Default)]
    struct Shelf(Arc<Mutex<Vec<String>>>);

    impl Archive for Shelf {
        fn record(&self, _: Value, _: Vec<Value>) -> BoxFuture<'static, Result<(), NotWritten>> {
            Box::pin(async { Ok(()) })
        }

        fn log_bytes(&self) -> usize {
            1 << 20
        }

        fn has_log(&self, run: &Uid, _: &str, _: u32) -> BoxFuture<'static, Result<bool, String>> {
            self.0.lock().unwrap().push(run.0.clone());
            let fails = run.0.starts_with("dead");
            Box::pin(async move {
                if fails {
                    sleep(READ_PATIENCE).await;
                    return Err("the node does not answer".to_owned());
                }
                Ok(true)
            })
        }

        fn record_log(&self, _: Tail) -> BoxFuture<'static, Result<(), String>> {
            Box::pin(async { Ok(()) })
        }
    }

    fn source(name: &str) -> Source {
        let key = Key {
            namespace: "team".to_owned(),
            name: name.to_owned(),
        };
        Source {
            run: Uid(name.to_owned()),
            step: String::new(),
            attempt: 1,
            pod: key,
            pod_uid: Uid(name.to_owned()),
            container: "agent".to_owned(),
            kept_for: Duration::from_hours(1),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn logs_of_a_node_that_does_not_answer_hold_up_no_others() {
        let shelf = Shelf::default();
        let asked = Arc::clone(&shelf.0);
        let tails = Arc::new(LogTails::new(Arc::new(shelf)));
        let nobody = service_fn(async |_: http::Request<kube::client::Body>| {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody answers"))
        });
        let client = Client::new(nobody, "team");
        for number in 0..WORKERS_MAX {
            tails.offer(&client, source(&format!("dead-{number}")));
        }
        // All of them have failed several times and rest for long.
        sleep(Duration::from_mins(3)).await;
        let tries = |name: &str| asked.lock().unwrap().iter().filter(|run| *run == name).count();
        assert!(tries("dead-0") >= 3, "{:?}", asked.lock().unwrap());
        tails.offer(&client, source("fine"));
        sleep(READ_PATIENCE).await;
        assert_eq!(tries("fine"), 1, "it does not wait for their rest");
        sleep(Duration::from_hours(1)).await;
        assert_eq!(tries("dead-0"), usize::try_from(TRIES_MAX).unwrap());
        assert_eq!(tails.books().at_work, 0, "who has nothing to do ends");
    }

    async fn end(text: &str, most: usize) -> (String, bool, u64, u64) {
        let end = end_of(Cursor::new(text.as_bytes().to_vec()), most).await.unwrap();
        (end.text, end.cut, end.bytes, end.lines)
    }

    #[tokio::test]
    async fn of_a_long_log_the_last_whole_lines_are_kept() {
        assert_eq!(
            end("one\ntwo\n", 100).await,
            ("one\ntwo\n".to_owned(), false, 8, 2)
        );
        assert_eq!(end("one\ntwo\n", 8).await, ("one\ntwo\n".to_owned(), false, 8, 2));
        assert_eq!(end("one\ntwo\n", 6).await, ("two\n".to_owned(), true, 8, 2));
        assert_eq!(end("endless", 3).await, ("ess".to_owned(), true, 7, 0));
        assert_eq!(end("", 3).await, (String::new(), false, 0, 0));
    }

    #[tokio::test]
    async fn a_log_of_many_chunks_needs_no_more_memory_than_its_end() {
        let line = "0123456789abcdef\n";
        let text = line.repeat(20_000);
        let (kept, cut, bytes, lines) = end(&text, 1_000).await;
        assert_eq!((cut, bytes, lines), (true, 340_000, 20_000));
        assert!(
            kept.len() <= 1_000 && kept.starts_with("0123") && kept.ends_with("cdef\n"),
            "{kept}"
        );
    }
}
