//! Stands before the server and writes down what passes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::{Router, body::Body, extract, response::Response};
use bytes::Bytes;
use futures::TryStreamExt;
use http_body_util::BodyExt;
use regex::Regex;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::{
    fixture::settle,
    traffic::{Answer, Content, Exchange, Request, Step, Symbols, is_watch, keeps_body},
};

/// What has passed so far.
#[derive(Debug)]
pub(crate) struct Recorder {
    steps: Mutex<Vec<Passed>>,
    /// How many steps have begun, for whoever waits for one.
    begun: watch::Sender<usize>,
}

#[derive(Debug)]
enum Passed {
    Advance(i64),
    Exchange {
        request: Request,
        answer: Answer,
        streamed: Vec<u8>,
        until: usize,
    },
}

impl Recorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            steps: Mutex::default(),
            begun: watch::Sender::new(0),
        })
    }

    /// The same service, with every exchange written down.
    pub(crate) fn before(self: &Arc<Self>, service: Router) -> Router {
        let recorder = self.clone();
        Router::new().fallback(async move |request: extract::Request| {
            recorder.clone().pass(service.clone(), request).await
        })
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.begin(Passed::Advance(seconds));
    }

    /// How many steps have begun.
    pub(crate) fn position(&self) -> usize {
        self.steps().len()
    }

    /// Resolves once a request was received whose URI contains the text, not counting those before `position`.
    pub(crate) async fn received(&self, position: usize, text: &str) {
        let mut begun = self.begun.subscribe();
        let is_there = |_: &usize| {
            self.steps()
                .iter()
                .skip(position)
                .any(|step| matches!(step, Passed::Exchange { request, .. } if request.uri.contains(text)))
        };
        // The sender lives as long as `self`.
        let _ = begun.wait_for(is_there).await;
    }

    fn steps(&self) -> MutexGuard<'_, Vec<Passed>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, step: Passed) -> usize {
        let mut steps = self.steps();
        steps.push(step);
        let count = steps.len();
        drop(steps);
        self.begun.send_replace(count);
        count - 1
    }

    async fn pass(self: Arc<Self>, service: Router, request: extract::Request) -> Response {
        let (parts, body) = request.into_parts();
        let bytes = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let streams = is_watch(&parts.uri.to_string());
        let index = self.begin(Passed::Exchange {
            request: taken_down(&parts, &bytes),
            answer: Answer::default(),
            streamed: Vec::new(),
            until: 0,
        });
        let request = extract::Request::from_parts(parts, Body::from(bytes));
        let response = match service.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        settle().await;
        self.answered(index, Answer::new(response.status(), response.headers()));
        let (parts, body) = response.into_parts();
        if streams {
            let body = body
                .into_data_stream()
                .inspect_ok(move |chunk| self.sent(index, chunk));
            return Response::from_parts(parts, Body::from_stream(body));
        }
        let bytes = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        self.sent(index, &bytes);
        Response::from_parts(parts, Body::from(bytes))
    }

    fn answered(&self, index: usize, given: Answer) {
        if let Some(Passed::Exchange { answer, until, .. }) = self.steps().get_mut(index) {
            *answer = given;
            *until = index + 1;
        }
    }

    fn sent(&self, index: usize, chunk: &Bytes) {
        let mut steps = self.steps();
        let begun = steps.len();
        if let Some(Passed::Exchange { streamed, until, .. }) = steps.get_mut(index) {
            streamed.extend_from_slice(chunk);
            *until = begun;
        }
    }

    /// All of it, in the order in which it began, as the lines of the file.
    pub(crate) fn lines(&self) -> String {
        let mut symbols = Symbols::default();
        let mut finished: Vec<Step> = Vec::new();
        for passed in self.steps().iter() {
            let step = passed.to_step();
            finished.push(match step {
                // What a watch sent is hidden when the replay compares it: after the last step that it told of.
                Step::Exchange(exchange) if exchange.until.is_some() => {
                    let request = symbols.hide(&exchange.request);
                    Step::Exchange(Exchange { request, ..exchange })
                }
                step => symbols.hide(&step),
            });
            let begun = finished.len();
            for step in &mut finished {
                if let Step::Exchange(exchange) = step
                    && exchange.until == Some(begun)
                {
                    exchange.answer = symbols.hide(&exchange.answer);
                }
            }
        }
        let lines: Vec<String> = finished
            .iter()
            .map(|step| serde_json::to_string(step).expect("a step has a JSON form"))
            .collect();
        lines.join("\n") + "\n"
    }
}

impl Passed {
    fn to_step(&self) -> Step {
        match self {
            Self::Advance(seconds) => Step::Advance(*seconds),
            Self::Exchange {
                request,
                answer,
                streamed,
                until,
            } => {
                let watch = is_watch(&request.uri);
                let body = if watch {
                    Some(Content::lines(streamed))
                } else if keeps_body(&request.uri) {
                    Content::of(streamed, &answer.content_type)
                } else {
                    None
                };
                Step::Exchange(Exchange {
                    request: request.clone(),
                    answer: Answer {
                        body,
                        ..answer.clone()
                    },
                    until: watch.then_some(*until),
                })
            }
        }
    }
}

/// What the server can act on, and nothing that differs from run to run: the token, the hash of an OpenAPI document and
/// the random length of a watch.
fn taken_down(parts: &http::request::Parts, body: &Bytes) -> Request {
    let header = |name| {
        let value = parts
            .headers
            .get(name)
            .and_then(|value: &http::HeaderValue| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let content_type = header(http::header::CONTENT_TYPE);
    let noise = Regex::new(r"\?hash=[0-9A-F]+$|&timeout=[0-9a-z]+|&timeoutSeconds=[0-9]+")
        .expect("the pattern is valid");
    Request {
        method: parts.method.to_string(),
        uri: noise
            .replace_all(&parts.uri.path_and_query().map_or("/", |path| path.as_str()), "")
            .into_owned(),
        accept: header(http::header::ACCEPT),
        body: Content::of(body, &content_type),
        content_type,
    }
}
