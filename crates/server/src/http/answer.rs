//! The envelope of every answer: `{"ok": true, …}`, or `{"ok": false, "error": …, "details": …}`.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, StatusCode,
    header::{RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde_json::{Value, json};

use crate::refusal::{Refusal, Trouble};

/// A good answer: the fields beside `ok`.
pub(super) struct Answer {
    status: StatusCode,
    fields: Value,
}

impl Answer {
    pub(super) fn ok(fields: Value) -> Self {
        Self {
            status: StatusCode::OK,
            fields,
        }
    }

    /// Something was made, unless it was made before.
    pub(super) fn made(fields: Value, before: bool) -> Self {
        let status = if before {
            StatusCode::OK
        } else {
            StatusCode::CREATED
        };
        Self { status, fields }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let mut envelope = json!({"ok": true});
        if let (Some(envelope), Value::Object(fields)) = (envelope.as_object_mut(), self.fields) {
            envelope.extend(fields);
        }
        (self.status, Json(envelope)).into_response()
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
