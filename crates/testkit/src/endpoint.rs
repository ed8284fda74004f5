//! An endpoint of somebody's own, outside of the cluster: it takes work, does what its script says, and reports.
//!
//! It stands outside of every process, so that it keeps its work whatever dies, and it reports as the contract asks: to
//! whichever process takes the report, again and again until one does. Its work goes into the same [`Record`] as that of pods,
//! so that the same rules hold for it.

use std::{
    collections::BTreeMap,
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, StatusCode, header};
use jangar_controllers::{
    clock::Clock as _,
    outside::{Call, Outside, Reception, token::Signer},
};
use jangar_engine::{custom::call::Answer, decision::Key, temporal::call::Closed};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    clock::WallClock,
    faults::Process,
    node::{Ending, Record},
    trace::Trace,
};

/// The address of the endpoint, which nobody resolves.
pub const ENDPOINT: &str = "https://endpoint.example/run";
/// Where it reports, which nobody resolves either.
pub const CALLBACKS: &str = "http://jangar.example";
/// How long it waits before it reports again to somebody who could not take it.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// How often it does, which is for longer than any play lasts.
const REPORTS_MAX: u32 = 5000;
/// How long it takes to stop when it is told to.
const STOPS_WITHIN: Duration = Duration::from_secs(2);

/// What the endpoint does with the work of a run.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Works this long, and reports this.
    Reports(Duration, Value),
    /// Asks to be called later for this long, from the beginning of the play, and reports then.
    Busy(Duration, Value),
    /// Will not have it.
    Refuses,
    /// Answers what nobody understands, and has nothing of it.
    Mumbles,
    /// Works this long, until the Temporal server closes its workflow in this way.
    IsClosed(Duration, Closed),
}

/// How long the work takes that somebody does who was busy before.
pub(crate) const AFTER_BUSY: Duration = Duration::from_secs(10);

/// What it does, by the name of the run.
pub type Deeds = BTreeMap<&'static str, Deed>;

/// The endpoint.
#[derive(Debug)]
pub struct SimEndpoint {
    deeds: Deeds,
    record: Record,
    trace: Arc<Trace>,
    wall: Arc<WallClock>,
    born: Instant,
    /// The work that it has, by idempotency key, with a word to stop.
    jobs: Mutex<BTreeMap<String, watch::Sender<bool>>>,
    /// The processes that may take reports, in the order of their start.
    desks: Mutex<Vec<(Arc<Process>, Weak<Outside>)>>,
}

/// A call, as far as the endpoint reads it.
struct Read {
    key: String,
    token: String,
    run: Key,
    /// The UID of the run, as the idempotency key has it.
    uid: String,
}

impl SimEndpoint {
    pub fn new(deeds: Deeds, record: &Record, trace: &Arc<Trace>, wall: &Arc<WallClock>) -> Arc<Self> {
        Arc::new(Self {
            deeds,
            record: record.clone(),
            trace: Arc::clone(trace),
            wall: Arc::clone(wall),
            born: Instant::now(),
            jobs: Mutex::default(),
            desks: Mutex::default(),
        })
    }

    /// Where it reports to, and by what it is known. Every process has the same key.
    pub fn reception() -> Reception {
        Reception {
            url: CALLBACKS.to_owned(),
            signer: Signer::new(&[7; 32]).expect("a long key"),
        }
    }

    /// Another process may take reports.
    pub fn meet(&self, process: &Arc<Process>, outside: &Arc<Outside>) {
        lock(&self.desks).push((Arc::clone(process), Arc::downgrade(outside)));
    }

    /// Takes a call that has arrived.
    pub fn take(self: &Arc<Self>, call: &Call) -> Answer {
        let header = |name: &str| {
            let found = call.headers.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone()).expect("every call has it")
        };
        let key = header("idempotency-key");
        let mut path = header("jangar-callback-url");
        path = path.trim_start_matches(CALLBACKS).to_owned();
        let mut parts = path.rsplit('/').map(str::to_owned);
        let read = Read {
            uid: key.split('/').next().unwrap_or_default().to_owned(),
            key,
            token: header("jangar-callback-token"),
            run: Key {
                name: parts.next().unwrap_or_default(),
                namespace: parts.next().unwrap_or_default(),
            },
        };
        let answer = match header("jangar-action").as_str() {
            "submit" => self.submit(read),
            _ => self.cancel(&read.key),
        };
        self.trace.note(
            "endpoint",
            format_args!("{} {path}: {answer:?}", header("jangar-action")),
        );
        answer
    }

    fn submit(self: &Arc<Self>, read: Read) -> Answer {
        let (time, end) = match self.deeds.get(read.run.name.as_str()) {
            Some(Deed::Reports(time, end)) => (*time, end.clone()),
            Some(Deed::Busy(until, _)) if self.born.elapsed() < *until => {
                return Answer::NotTaken {
                    words: "HTTP 503: come again".to_owned(),
                    retry_after: None,
                };
            }
            Some(Deed::Busy(_, end)) => (AFTER_BUSY, end.clone()),
            Some(Deed::Mumbles) => {
                return Answer::Unknown {
                    words: "HTTP 302: it is elsewhere".to_owned(),
                };
            }
            Some(Deed::Refuses | Deed::IsClosed(..)) | None => {
                return Answer::Refused {
                    words: "HTTP 422: this endpoint has no use for it".to_owned(),
                };
            }
        };
        let (stop, stopped) = watch::channel(false);
        lock(&self.jobs).insert(read.key.clone(), stop);
        // A second call begins the work a second time: the endpoint is as naive as some are, so that the rules notice.
        let work = self.record.start_outside(&read.run.name, &read.uid);
        let this = Arc::clone(self);
        tokio::spawn(async move { this.work(&work, read, time, end, stopped).await });
        Answer::Taken { response: None }
    }

    async fn work(
        &self,
        work: &str,
        read: Read,
        time: Duration,
        end: Value,
        mut stopped: watch::Receiver<bool>,
    ) {
        let told = tokio::select! {
            biased;
            () = sleep(time) => false,
            _ = stopped.wait_for(|stop| *stop) => true,
        };
        if told {
            sleep(STOPS_WITHIN).await;
            self.record.end_outside(work, Ending::Stopped);
            self.report(&read, &json!({"status": "Cancelled"})).await;
            return;
        }
        let code = i32::from(end["status"] != "Succeeded");
        self.record.end_outside(work, Ending::Exited(code));
        self.report(&read, &end).await;
    }

    fn cancel(&self, key: &str) -> Answer {
        let submitted = key.trim_end_matches("/cancel");
        match lock(&self.jobs).get(submitted) {
            Some(stop) => {
                stop.send_replace(true);
                Answer::Taken { response: None }
            }
            None => Answer::Refused {
                words: "HTTP 404: no such work".to_owned(),
            },
        }
    }

    /// Reports until somebody has taken it.
    async fn report(&self, read: &Read, report: &Value) {
        let mut headers = HeaderMap::new();
        let bearer = HeaderValue::from_str(&format!("Bearer {}", read.token)).expect("plain letters");
        headers.insert(header::AUTHORIZATION, bearer);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for _ in 0..REPORTS_MAX {
            let desks: Vec<(Arc<Process>, Weak<Outside>)> = lock(&self.desks).iter().rev().cloned().collect();
            for (process, outside) in desks {
                let (true, Some(outside)) = (process.gets_through(), outside.upgrade()) else {
                    continue;
                };
                let body = ready(Ok(report.to_string().into_bytes()));
                let answer = outside.callback(self.wall.now(), &read.run, &headers, body).await;
                let again = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
                if !again.contains(&answer.status) {
                    self.trace.note(
                        "endpoint",
                        format_args!("reports {report} to {}: {}", process.name, answer.status),
                    );
                    return;
                }
            }
            sleep(AGAIN_AFTER).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
