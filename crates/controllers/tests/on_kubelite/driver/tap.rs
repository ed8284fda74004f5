//! A line to the API server on which every request is written down, and some are answered by the test.

use std::sync::{Arc, Mutex};

use axum::body::Body as AnswerBody;
use http::{Method, Request, Response};
use kube::{Client, client::Body};
use kubelite::server::{Server, User};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};
use tower::{BoxError, ServiceExt, service_fn};

use crate::support::NAMESPACE;

/// What the test does about a request.
pub(super) enum Answer {
    /// The API server answers.
    Server,
    /// This is the answer.
    Say(Value),
    /// The API server answers after a while.
    Later(Duration),
    /// A watch that never says anything.
    Silence,
}

/// A `Status` with this code and reason.
pub(super) fn failure(code: u16, reason: &str, details: &Value) -> Answer {
    Answer::Say(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("the test says {reason}"), "reason": reason, "code": code, "details": details,
    }))
}

type Rule = Box<dyn FnMut(&str) -> Answer + Send>;

/// A request that was made: `POST jobs`, `PATCH agentruns/a/status`, `WATCH pods`.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) what: String,
    pub(super) at: Instant,
}

/// The line.
#[derive(Clone)]
pub(super) struct Tap {
    seen: Arc<Mutex<Vec<Seen>>>,
    rule: Arc<Mutex<Rule>>,
}

impl Tap {
    pub(super) fn new() -> Self {
        Self {
            seen: Arc::default(),
            rule: Arc::new(Mutex::new(Box::new(|_| Answer::Server))),
        }
    }

    /// From now on the test answers what it likes.
    pub(super) fn answer(&self, rule: impl FnMut(&str) -> Answer + Send + 'static) {
        *self.rule.lock().unwrap() = Box::new(rule);
    }

    /// The requests so far, without lists and watches, which fill the caches.
    pub(super) fn requests(&self) -> Vec<String> {
        self.timed().into_iter().map(|seen| seen.what).collect()
    }

    pub(super) fn timed(&self) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        let ours = |seen: &&Seen| !seen.what.starts_with("WATCH") && !seen.what.starts_with("LIST");
        seen.iter().filter(ours).cloned().collect()
    }

    pub(super) fn forget(&self) {
        self.seen.lock().unwrap().clear();
    }

    pub(super) fn client(&self, server: &Server) -> Client {
        let router = server.local(User::system("controllers"));
        let tap = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let router = router.clone();
            let answer = tap.note(&request);
            async move {
                match answer {
                    Answer::Server => {}
                    Answer::Later(delay) => sleep(delay).await,
                    Answer::Say(status) => {
                        let code = u16::try_from(status["code"].as_u64().unwrap_or(200))?;
                        let body = AnswerBody::from(status.to_string());
                        return Ok(Response::builder().status(code).body(body)?);
                    }
                    Answer::Silence => {
                        let silence = futures::stream::pending::<Result<Vec<u8>, BoxError>>();
                        return Ok(Response::new(AnswerBody::from_stream(silence)));
                    }
                }
                Ok::<_, BoxError>(router.oneshot(request).await?)
            }
        });
        Client::new(service, NAMESPACE)
    }

    fn note(&self, request: &Request<Body>) -> Answer {
        let query = request.uri().query().unwrap_or_default();
        let path = request
            .uri()
            .path()
            .split("/namespaces/")
            .nth(1)
            .unwrap_or_default();
        let path = path.split_once('/').map_or("", |(_, path)| path);
        let verb = match *request.method() {
            Method::GET if query.contains("watch=true") => "WATCH",
            Method::GET if !path.contains('/') && !query.contains("controller-uid") => "LIST",
            ref method => method.as_str(),
        };
        let what = format!("{verb} {path}");
        let answer = (self.rule.lock().unwrap())(&what);
        let at = Instant::now();
        self.seen.lock().unwrap().push(Seen { what, at });
        answer
    }
}
