//! The envelope of every answer: `{"ok": true, …}`, or `{"ok": false, "error": …, "details": …}`.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, StatusCode,
    header::{RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde::Serialize;

use crate::refusal::{Refusal, Trouble};

/// A good answer: the fields beside `ok`.
#[derive(Debug)]
pub(super) struct Answer<T> {
    status: StatusCode,
    body: T,
}

/// How it is written.
#[derive(Serialize)]
struct Envelope<T> {
    ok: bool,
    #[serde(flatten)]
    body: T,
}

impl<T> Answer<T> {
    pub(super) fn ok(body: T) -> Self {
        let status = StatusCode::OK;
        Self { status, body }
    }

    /// Something was made, unless it was made before.
    pub(super) fn made(body: T, before: bool) -> Self {
        let status = if before {
            StatusCode::OK
        } else {
            StatusCode::CREATED
        };
        Self { status, body }
    }
}

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        let Self { status, body } = self;
        (status, Json(Envelope { ok: true, body })).into_response()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.trouble.status(), Json(self.envelope())).into_response();
        let headers = response.headers_mut();
        if self.trouble == Trouble::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
