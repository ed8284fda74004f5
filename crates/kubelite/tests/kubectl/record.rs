//! Stands before the server and writes down what passes.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use axum::{Router, body::Body, extract, response::Response};
use bytes::Bytes;
use futures::TryStreamExt;
use http_body_util::BodyExt;
use regex::{Captures, Regex};
use tokio::sync::watch;
use tower::ServiceExt;

use crate::{
    fixture::{TOKEN, settle},
    traffic::{
        Answer, Content, Exchange, Request, Step, Symbols, VOLATILE, is_watch, keeps_body, matched, rewritten,
    },
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
    Exchange(Box<Passing>),
}

/// An exchange, which may still be under way.
#[derive(Debug)]
struct Passing {
    request: Request,
    answer: Answer,
    sent: Vec<u8>,
    /// How many steps had begun when something was last sent.
    until: usize,
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
                .any(|step| matches!(step, Passed::Exchange(exchange) if exchange.request.uri.contains(text)))
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
        let index = self.begin(Passed::Exchange(Box::new(Passing {
            request: taken_down(&parts, &bytes),
            answer: Answer::default(),
            sent: Vec::new(),
            until: 0,
        })));
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

    fn answered(&self, index: usize, answer: Answer) {
        if let Some(Passed::Exchange(exchange)) = self.steps().get_mut(index) {
            exchange.answer = answer;
            exchange.until = index + 1;
        }
    }

    fn sent(&self, index: usize, chunk: &Bytes) {
        let mut steps = self.steps();
        let begun = steps.len();
        if let Some(Passed::Exchange(exchange)) = steps.get_mut(index) {
            exchange.sent.extend_from_slice(chunk);
            exchange.until = begun;
        }
    }

    /// All of it, in the order in which it began, as the lines of the file.
    pub(crate) fn lines(&self) -> String {
        let mut symbols = Symbols::default();
        let mut finished: Vec<Step> = Vec::new();
        for passed in self.steps().iter() {
            let mut step = passed.to_step();
            if let Step::Exchange(exchange) = &mut step {
                let referring = referring(&exchange.request, &symbols);
                assert_eq!(
                    symbols.resolve(&referring),
                    exchange.request,
                    "the replay would send something else"
                );
                exchange.request = referring;
                if exchange.until.is_none() {
                    exchange.answer = symbols.hide(&exchange.answer);
                }
            }
            finished.push(step);
            // What a watch sent is hidden when the replay compares it: after the last step that it told of.
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
        let exchange = match self {
            Self::Advance(seconds) => return Step::Advance(*seconds),
            Self::Exchange(exchange) => exchange,
        };
        let Passing {
            request,
            answer,
            sent,
            until,
        } = &**exchange;
        let watch = is_watch(&request.uri);
        let body = if watch {
            Some(Content::lines(sent))
        } else if keeps_body(&request.uri) {
            Content::of(sent, &answer.content_type)
        } else {
            None
        };
        Step::Exchange(Box::new(Exchange {
            request: request.clone(),
            answer: Answer {
                body,
                ..answer.clone()
            },
            until: watch.then_some(*until),
        }))
    }
}

/// A request with symbols in place of the values that earlier answers have shown. All others are the client's own.
fn referring(request: &Request, symbols: &Symbols) -> Request {
    rewritten(request, &VOLATILE, |captures| {
        let (kind, value) = matched(captures);
        match symbols.of_value.get(&(kind, value.to_owned())) {
            Some(symbol) => captures[0].replace(value, symbol),
            None => captures[0].to_owned(),
        }
    })
}

/// What kubectl adds to a URI by chance: the hash of an OpenAPI document and the length of a watch.
static CHANCE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\?hash=[0-9A-F]+$|&timeout=[0-9a-z]+|&timeoutSeconds=[0-9]+").expect("the pattern is valid")
});
static FIELD_SELECTOR: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("fieldSelector=([^&]+)").expect("the pattern is valid"));

/// The URI in one form of those that mean the same: the terms of a field selector come in the order of a Go map.
fn canonical(uri: &str) -> String {
    let uri = CHANCE.replace_all(uri, "");
    let ordered = FIELD_SELECTOR.replace(&uri, |captures: &Captures<'_>| {
        let mut terms: Vec<&str> = captures[1].split("%2C").collect();
        terms.sort_unstable();
        format!("fieldSelector={}", terms.join("%2C"))
    });
    ordered.into_owned()
}

/// What the server can act on.
fn taken_down(parts: &http::request::Parts, body: &Bytes) -> Request {
    let header = |name| {
        let value = parts
            .headers
            .get(name)
            .and_then(|value: &http::HeaderValue| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let content_type = header(http::header::CONTENT_TYPE);
    Request {
        method: parts.method.to_string(),
        uri: canonical(parts.uri.path_and_query().map_or("/", |path| path.as_str())),
        accept: header(http::header::ACCEPT),
        stranger: header(http::header::AUTHORIZATION)
            .strip_prefix("Bearer ")
            .filter(|token| *token != TOKEN)
            .map(ToOwned::to_owned),
        body: Content::of(body, &content_type),
        content_type,
    }
}
