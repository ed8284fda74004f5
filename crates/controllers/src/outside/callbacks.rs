//! A request of an endpoint that reports, and its answer.
//!
//! The token is looked at before anything else, so that nobody without one makes this program read or parse a body.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use jangar_api::phase::RunPhase;
use jangar_engine::{
    custom::callback::{Callback, Receipt, Report},
    decision::Key,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Outside, token::BadToken};
use crate::metrics::CallbackResult;

/// The most bytes of a report. A status has to hold most of it.
pub const BODY_MAX_BYTES: usize = 64 * 1024;
/// How long a report may take to be recorded before its sender is asked to send it again. A write takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// When to send a report again that this process cannot take at the moment.
const RETRY_AFTER_SECONDS: u32 = 2;

/// The path under which the endpoint of a run reports.
pub(super) fn path(namespace: &str, name: &str) -> String {
    format!("/callbacks/agentruns/{namespace}/{name}")
}

/// Why the body of a request could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadBody {
    TooLarge,
    Broken,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub status: StatusCode,
    pub retry_after_seconds: Option<u32>,
    /// An object with `phase` where the run stands, `message` where something is to be said.
    pub body: Value,
}

impl Response {
    fn new(status: StatusCode, body: Value) -> Self {
        Self {
            status,
            retry_after_seconds: None,
            body,
        }
    }

    fn message(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, json!({"message": message.into()}))
    }

    fn later(status: StatusCode, message: &str) -> Self {
        Self {
            retry_after_seconds: Some(RETRY_AFTER_SECONDS),
            ..Self::message(status, message)
        }
    }
}

/// What became of a request, for its answer and for the count of them.
enum Outcome {
    NoToken,
    BadToken(BadToken),
    BadType,
    BadBody(BadBody),
    NoReport(String),
    NotLeading,
    TooMany,
    Received(Receipt),
}

impl Outside {
    /// Takes a report about a run. `body` is read only if the request may make one.
    pub async fn callback(
        &self,
        now: Timestamp,
        run: &Key,
        headers: &HeaderMap,
        body: impl Future<Output = Result<Vec<u8>, BadBody>>,
    ) -> Response {
        let outcome = self.receive(now, run, headers, body).await;
        if let Some(metrics) = self.metrics.get() {
            metrics.callback(outcome.counted());
        }
        outcome.into_response()
    }

    async fn receive(
        &self,
        now: Timestamp,
        run: &Key,
        headers: &HeaderMap,
        body: impl Future<Output = Result<Vec<u8>, BadBody>>,
    ) -> Outcome {
        let Some(token) = bearer(headers) else {
            return Outcome::NoToken;
        };
        let checked = match &self.reception {
            Some(reception) => reception.signer.check(token, run, now),
            None => Err(BadToken::Foreign),
        };
        let subject = match checked {
            Ok(subject) => subject,
            Err(bad) => return Outcome::BadToken(bad),
        };
        if !is_json(headers) {
            return Outcome::BadType;
        }
        let body = match body.await {
            Ok(body) => body,
            Err(bad) => return Outcome::BadBody(bad),
        };
        let report = match Report::read(&body) {
            Ok(report) => report,
            Err(words) => return Outcome::NoReport(words),
        };
        let callback = Callback {
            run: subject.uid,
            attempt: subject.attempt,
            report,
        };
        self.hand_in(run, callback).await
    }

    /// Brings a report to where runs are looked after, and waits until it is recorded.
    async fn hand_in(&self, run: &Key, callback: Callback) -> Outcome {
        let (desk, answered) = {
            let mut state = self.state();
            let Some(desk) = state.desk.clone() else {
                return Outcome::NotLeading;
            };
            match state.letters.post(run, callback) {
                Some(answered) => (desk, answered),
                None => return Outcome::TooMany,
            }
        };
        desk.wake(run);
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(receipt)) => Outcome::Received(receipt),
            // This process ceased to lead meanwhile.
            Ok(Err(_)) => Outcome::NotLeading,
            Err(_) => Outcome::Received(Receipt::Later),
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let kind = value
        .and_then(|value| value.split(';').next())
        .unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

impl Outcome {
    const fn counted(&self) -> CallbackResult {
        match self {
            Self::NoToken | Self::BadToken(_) => CallbackResult::Unauthorized,
            Self::BadType | Self::BadBody(_) | Self::NoReport(_) => CallbackResult::Illegible,
            Self::NotLeading => CallbackResult::NotLeading,
            Self::TooMany | Self::Received(Receipt::Later | Receipt::TooOften(_)) => CallbackResult::Later,
            Self::Received(Receipt::Recorded(_)) => CallbackResult::Recorded,
            Self::Received(Receipt::Ended(..) | Receipt::Gone | Receipt::Superseded) => {
                CallbackResult::TooLate
            }
        }
    }

    fn into_response(self) -> Response {
        match self {
            Self::NoToken => Response::message(
                StatusCode::UNAUTHORIZED,
                "send the header Authorization: Bearer, with the token that came as Jangar-Callback-Token",
            ),
            Self::BadToken(bad) => Response::message(StatusCode::UNAUTHORIZED, bad.to_string()),
            Self::BadType => Response::message(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "send the header Content-Type: application/json",
            ),
            Self::BadBody(BadBody::TooLarge) => Response::message(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!(
                    "the body has more than {BODY_MAX_BYTES} bytes: leave long texts where an artifact can name them"
                ),
            ),
            Self::BadBody(BadBody::Broken) => {
                Response::message(StatusCode::BAD_REQUEST, "the body ended before it was complete")
            }
            Self::NoReport(words) => Response::message(StatusCode::BAD_REQUEST, words),
            Self::NotLeading => Response::later(
                StatusCode::SERVICE_UNAVAILABLE,
                "another process looks after runs, or will in a moment: send it again",
            ),
            Self::TooMany => Response::later(
                StatusCode::TOO_MANY_REQUESTS,
                "too many reports wait to be recorded: send it again later",
            ),
            Self::Received(receipt) => received(receipt),
        }
    }
}

fn received(receipt: Receipt) -> Response {
    let at = |status, phase: RunPhase| Response::new(status, json!({"phase": phase}));
    match receipt {
        Receipt::Recorded(phase) => at(StatusCode::OK, phase),
        Receipt::TooOften(phase) => Response {
            retry_after_seconds: Some(RETRY_AFTER_SECONDS),
            ..Response::new(
                StatusCode::TOO_MANY_REQUESTS,
                json!({"phase": phase, "message": "progress is recorded once a second: this was passed over"}),
            )
        },
        Receipt::Ended(phase, why) => Response::new(
            StatusCode::CONFLICT,
            json!({"phase": phase, "message": format!("the run had ended already: {why}")}),
        ),
        Receipt::Gone => Response::message(StatusCode::GONE, "the run was deleted: stop the work"),
        Receipt::Superseded => Response::message(
            StatusCode::CONFLICT,
            "this attempt of the run is over: stop the work",
        ),
        Receipt::Later => Response::later(
            StatusCode::SERVICE_UNAVAILABLE,
            "the report could not be recorded yet: send it again",
        ),
    }
}
