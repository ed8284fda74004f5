//! The way to endpoints and to the Temporal server that do the work of runs, and back.
//!
//! Outwards: an effect begins a call, which goes on by itself; its answer is kept until the run's status says it, and the run
//! is looked at again when it comes. Each call is begun once: `ledger` remembers them. Inwards: an endpoint reports over HTTP;
//! `callbacks` checks who it is and what it says, and `letters` keeps the report until the run's status says it. Only then is
//! the request answered, so that a report that was answered with success is never lost. The process that leads is the one
//! that writes, so every other one asks to be called again later.
//!
//! - [`Endpoints`] is what makes a call; [`http::HttpEndpoints`] really does;
//! - [`token`] is by what an endpoint is known;
//! - [`Temporal`] is what speaks to a Temporal server, and `workflows` remembers what came of that;
//! - [`Archive`] is what writes history.

mod callbacks;
pub mod http;
mod ledger;
mod letters;
pub mod token;
mod workflows;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use futures::future::BoxFuture;
use jangar_api::{agents::agent_run::AgentRun, phase::RunPhase};
use jangar_engine::{
    custom::{
        call::{self, Answer, Post},
        endpoint::Endpoint,
    },
    decision::{Key, Uid},
    removal,
};
use kube::ResourceExt;
use tokio::{sync::Semaphore, task::JoinSet};

pub use self::{
    callbacks::{BODY_MAX_BYTES, BadBody, Response},
    ledger::Full,
    workflows::{Temporal, TooMany, Waited},
};
use self::{
    ledger::Ledger,
    letters::Letters,
    token::Signer,
    workflows::{NoServer, Workflows},
};
use crate::{
    archive::{Archive, Archiver},
    driver::Station,
    lease::Gate,
    metrics::Metrics,
};

/// How many calls are under way at once; the others wait for their turn. An endpoint that does not answer holds up no more
/// than these.
const CALLS_MAX: usize = 64;

/// What makes calls.
pub trait Endpoints: fmt::Debug + Send + Sync {
    /// Calls an endpoint once, and says how it was answered. It takes a bounded time.
    fn post(&self, call: Call) -> BoxFuture<'static, Answer>;
}

/// A call as it is sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    pub endpoint: Endpoint,
    /// Names in small letters.
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

/// Without the token, which is a secret.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// Where endpoints report to, and by what they are known.
#[derive(Clone, Debug)]
pub struct Reception {
    /// Without a slash at its end.
    pub url: String,
    pub signer: Signer,
}

/// The calls and the reports of one process.
pub struct Outside {
    process: String,
    endpoints: Arc<dyn Endpoints>,
    reception: Option<Reception>,
    places: Arc<Semaphore>,
    temporal: Arc<dyn Temporal>,
    temporal_calls: Arc<Semaphore>,
    temporal_waits: Arc<Semaphore>,
    archiver: Option<Arc<Archiver>>,
    metrics: OnceLock<Arc<Metrics>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ledger: Ledger,
    letters: Letters,
    workflows: Workflows,
    /// Where runs are looked after, while this process leads.
    desk: Option<Arc<dyn Station>>,
    /// They end when this is dropped.
    calls: JoinSet<()>,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside")
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

/// Calls nobody: the runtime is not set up.
#[derive(Clone, Copy, Debug, Default)]
struct Nobody;

impl Endpoints for Nobody {
    fn post(&self, _: Call) -> BoxFuture<'static, Answer> {
        let words = "this installation calls no endpoints".to_owned();
        Box::pin(std::future::ready(Answer::NotAllowed { words }))
    }
}

impl Default for Outside {
    fn default() -> Self {
        Self::new("", Arc::new(Nobody), None)
    }
}

/// As long as this is there, runs are looked after by this process.
#[derive(Debug)]
pub(crate) struct OpenDesk(Arc<Outside>);

impl Drop for OpenDesk {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.desk = None;
        // Whoever waits for an answer learns that somebody else has to be asked.
        state.letters.discard();
        state.workflows.discard();
    }
}

impl Outside {
    /// `process` tells this process from every other one, those before it included.
    pub fn new(process: &str, endpoints: Arc<dyn Endpoints>, reception: Option<Reception>) -> Self {
        Self {
            process: process.to_owned(),
            endpoints,
            reception,
            places: Arc::new(Semaphore::new(CALLS_MAX)),
            temporal: Arc::new(NoServer),
            temporal_calls: Arc::new(Semaphore::new(workflows::CALLS_MAX)),
            temporal_waits: Arc::new(Semaphore::new(workflows::WAITS_MAX)),
            archiver: None,
            metrics: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// The same with this way to a Temporal server.
    #[must_use]
    pub fn with_temporal(mut self, temporal: Arc<dyn Temporal>) -> Self {
        self.temporal = temporal;
        self
    }

    /// The same with this history, into which finished runs are written before they go.
    #[must_use]
    pub fn with_archive(mut self, archive: Arc<dyn Archive>) -> Self {
        self.archiver = Some(Arc::new(Archiver::new(archive)));
        self
    }

    /// What writes finished runs into history, if there is one.
    pub fn archiver(&self) -> Option<&Arc<Archiver>> {
        self.archiver.as_ref()
    }

    /// Where reports are counted from now on.
    pub(crate) fn count_in(&self, metrics: Arc<Metrics>) {
        // A second one would be of a second start with the same, which nobody does.
        let _ = self.metrics.set(metrics);
    }

    /// Runs are looked after here, until what is returned is dropped.
    pub(crate) fn open(self: &Arc<Self>, desk: Arc<dyn Station>) -> OpenDesk {
        self.state().desk = Some(desk);
        OpenDesk(Arc::clone(self))
    }

    /// What is known of a run. Its letters count as read.
    pub(crate) fn observe(&self, key: &Key, run: Option<&AgentRun>) -> call::Outside {
        let mut state = self.state();
        let uid = run.and_then(ResourceExt::uid).map(Uid);
        call::Outside {
            process: self.process.clone(),
            workflow: uid
                .as_ref()
                .map(|uid| state.workflows.sight(uid))
                .unwrap_or_default(),
            calls: uid.map(|uid| state.ledger.of_run(&uid)).unwrap_or_default(),
            callbacks: state.letters.read(key),
        }
    }

    /// Whether somebody waits for an answer about this run.
    pub(crate) fn is_asked_about(&self, key: &Key) -> bool {
        self.state().letters.has(key)
    }

    /// There is nothing left to do about a run: who reported about it is answered, and what only a run under way needs is
    /// forgotten.
    pub(crate) fn settled(&self, key: &Key, run: Option<&AgentRun>) {
        let mut state = self.state();
        state.letters.answer(key, run);
        let phase = run.and_then(|run| run.status.as_ref()?.phase.as_ref());
        let removing = run.is_some_and(removal::is_under_way);
        if run.is_none() || (phase.is_some_and(RunPhase::is_terminal) && !removing) {
            state.ledger.over(key);
            state.workflows.over(key);
        }
    }

    /// Begins a call, unless it was begun already. The error says that too many are remembered.
    ///
    /// It may have to wait for its turn. If this process does not lead any more by then, it is not made: another one may have
    /// decided otherwise.
    pub(crate) fn begin(self: &Arc<Self>, post: &Post, gate: &Gate) -> Result<(), Full> {
        let mut state = self.state();
        if !state.ledger.begin(&post.id, &post.run)? {
            return Ok(());
        }
        // Those that have ended are forgotten.
        while state.calls.try_join_next().is_some() {}
        let call = self.call(post);
        let (endpoints, places) = (Arc::clone(&self.endpoints), Arc::clone(&self.places));
        let this: Weak<Self> = Arc::downgrade(self);
        let (id, key, gate) = (post.id.clone(), post.run.clone(), gate.clone());
        state.calls.spawn(async move {
            let answer = match call {
                // Nobody closes the semaphore.
                Ok(call) => match places.acquire_owned().await {
                    Ok(_place) if gate.is_open() => endpoints.post(call).await,
                    Ok(_) => Answer::NotTaken {
                        words: "the process that was to call it lost its lead before".to_owned(),
                        retry_after: None,
                    },
                    Err(_) => return,
                },
                Err(words) => Answer::NotAllowed { words },
            };
            let Some(this) = this.upgrade() else { return };
            tracing::info!(run = %key, purpose = id.purpose.word(), number = id.number, answer = word(&answer), "an endpoint was called");
            let mut state = this.state();
            state.ledger.answered(&id, answer);
            let desk = state.desk.clone();
            drop(state);
            if let Some(desk) = desk {
                desk.wake(&key);
            }
        });
        Ok(())
    }

    /// A call as it is sent. The token is made here: it stands in no plan, no status and no log.
    fn call(&self, post: &Post) -> Result<Call, String> {
        let Some(Reception { url, signer }) = &self.reception else {
            return Err("this installation has no address for callbacks".to_owned());
        };
        let Key { namespace, name } = &post.run;
        let subject = token::Subject {
            run: post.run.clone(),
            uid: post.id.run.clone(),
            attempt: post.attempt,
        };
        Ok(Call {
            endpoint: post.endpoint.clone(),
            headers: vec![
                ("content-type", "application/json".to_owned()),
                ("idempotency-key", post.idempotency_key()),
                ("jangar-action", post.id.purpose.word().to_owned()),
                (
                    "jangar-callback-url",
                    format!("{url}{}", callbacks::path(namespace, name)),
                ),
                ("jangar-callback-token", signer.sign(&subject, post.expires_at)),
            ],
            body: post.body.to_string().into_bytes(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every method leaves it whole, so a panic elsewhere does not make it bad.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One word for a log.
const fn word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Taken { .. } => "taken",
        Answer::NotTaken { .. } => "not taken",
        Answer::Refused { .. } => "refused",
        Answer::NotAllowed { .. } => "not allowed",
        Answer::Unknown { .. } => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use jangar_engine::custom::call::{CallId, CallState, Purpose};
    use jiff::Timestamp;
    use prometheus_client::registry::Registry;

    use super::*;

    /// Counts how often it is called.
    #[derive(Debug, Default)]
    struct Counting(AtomicUsize);

    impl Endpoints for Counting {
        fn post(&self, _: Call) -> BoxFuture<'static, Answer> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(std::future::ready(Answer::Taken { response: None }))
        }
    }

    #[tokio::test]
    async fn a_call_whose_turn_comes_when_the_lead_is_lost_is_not_made() {
        let endpoints = Arc::new(Counting::default());
        let reception = Reception {
            url: "https://jangar.example".to_owned(),
            signer: Signer::new(&[7; 32]).unwrap(),
        };
        let calls = Arc::clone(&endpoints) as Arc<dyn Endpoints>;
        let outside = Arc::new(Outside::new("me", calls, Some(reception)));
        let run = Uid("u".to_owned());
        let post = Post {
            id: CallId {
                run: run.clone(),
                purpose: Purpose::Submit,
                number: 1,
            },
            run: Key {
                namespace: "agents".to_owned(),
                name: "mend".to_owned(),
            },
            attempt: 1,
            endpoint: "https://agents.example/run".parse().unwrap(),
            body: serde_json::Value::Null,
            expires_at: Timestamp::UNIX_EPOCH,
        };
        let metrics = Arc::new(Metrics::register(&mut Registry::default()));

        outside.begin(&post, &Gate::shut(metrics)).unwrap();
        let mut calls = std::mem::take(&mut outside.state().calls);
        while calls.join_next().await.is_some() {}

        assert_eq!(endpoints.0.load(Ordering::SeqCst), 0);
        let known = outside.state().ledger.of_run(&run);
        assert!(
            matches!(known[&post.id], CallState::Answered(Answer::NotTaken { .. })),
            "it may be made again: {known:?}"
        );
    }
}
