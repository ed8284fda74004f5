//! How answers are put together: bodies with their types, errors, warnings.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    error::{ApiError, Reason},
    negotiate::Encoding,
    server::{metadata, target::Target},
};

/// How many warnings an answer carries; headers have a bound of their own in most clients.
const WARNINGS_MAX: usize = 64;

/// The `Status` that tells of a deletion that is done.
pub(super) fn success(target: &Target, object: &Value) -> Value {
    let resource = &target.served.resource;
    let mut details = json!({
        "name": target.name,
        "kind": resource.plural,
        "uid": metadata::text(object, "uid"),
    });
    if !resource.group.is_empty() {
        details["group"] = resource.group.as_str().into();
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

pub(super) fn no_such_resource() -> ApiError {
    ApiError {
        details: Some(Box::default()),
        ..ApiError::new(
            Reason::NotFound,
            "the server could not find the requested resource",
        )
    }
}

/// What Go's multiplexer says of a path that nothing serves. Clients know it by the missing `Status`.
pub(super) fn page_not_found() -> Response {
    (
        StatusCode::NOT_FOUND,
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        "404 page not found\n",
    )
        .into_response()
}

pub(super) fn text(body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body.into()).into_response()
}

pub(super) fn typed(status: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Response {
    (status, [(header::CONTENT_TYPE, content_type)], bytes.into()).into_response()
}

pub(super) fn error_response(error: &ApiError, encoding: Encoding) -> Response {
    // A status always has a JSON form; should its YAML fail, an empty body with the right code is what is left.
    let bytes = encoding.encode(&error.to_status()).unwrap_or_default();
    let mut response = typed(error.code, encoding.content_type(), bytes);
    let retry_after = error
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    if retry_after > 0 {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(retry_after));
    }
    response
}

/// Warnings travel in headers, one each.
pub(super) fn add_warnings(response: &mut Response, warnings: &[String]) {
    for warning in warnings.iter().take(WARNINGS_MAX) {
        let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}
