//! What handlers need of a request: who asks, the query, the body, the key.

use std::{error::Error as _, sync::Arc};

use axum::{
    body::to_bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
};
use http::{HeaderMap, header::CONTENT_LENGTH, header::CONTENT_TYPE, request::Parts};
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;

use super::Peer;
use crate::{
    access::Token,
    plane::{Caller, ControlPlane, submit::checked_key},
    refusal::{Refusal, Trouble, shown},
};

/// The largest body. Kubernetes keeps no object that is much larger.
pub(super) const BODY_MAX_BYTES: usize = 1024 * 1024;
/// The header with the key of a mutation.
pub(super) const KEY_HEADER: &str = "Idempotency-Key";

/// Somebody whom Kubernetes knows.
pub(super) struct Who(pub(super) Caller);

impl FromRequestParts<Arc<ControlPlane>> for Who {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, plane: &Arc<ControlPlane>) -> Result<Self, Refusal> {
        let token = Token::of(&parts.headers)?;
        let identity = plane.gatekeeper.identify(&token).await?;
        let peer = parts.extensions.get::<Peer>();
        Ok(Self(Caller {
            identity,
            source: peer.map_or_else(|| "unknown".to_owned(), |peer| peer.0.to_string()),
        }))
    }
}

/// The parts of an address that the route leaves open.
pub(super) struct Address<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Address<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Path(found) = Path::<T>::from_request_parts(parts, state)
            .await
            .map_err(|wrong| {
                let message = format!("the address cannot be read: {}", wrong.body_text());
                Refusal::new(Trouble::BadRequest, message).remedy("/openapi.json lists all of them")
            })?;
        Ok(Self(found))
    }
}

/// The query of a request. A name that the route does not know is a mistake.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(error) => {
                let why = error
                    .source()
                    .map_or_else(|| error.to_string(), ToString::to_string);
                Err(
                    Refusal::new(Trouble::BadRequest, format!("the query cannot be read: {why}"))
                        .remedy("/openapi.json lists what the route takes"),
                )
            }
        }
    }
}

/// A body in JSON. A field that the route does not know is a mistake.
pub(super) struct Document<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<ControlPlane>> for Document<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &Arc<ControlPlane>) -> Result<Self, Refusal> {
        is_json(request.headers())?;
        let bytes = read(request).await?;
        parse(&bytes).map(Self)
    }
}

/// A body in JSON that may be left out.
pub(super) struct OptionalDocument<T>(pub(super) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<ControlPlane>> for OptionalDocument<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &Arc<ControlPlane>) -> Result<Self, Refusal> {
        let json = is_json(request.headers());
        let bytes = read(request).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        json?;
        parse(&bytes).map(Self)
    }
}

/// The key of a mutation, which every one needs that creates something.
pub(super) struct Key(pub(super) String);

impl<S: Sync> FromRequestParts<S> for Key {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let given = parts.headers.get(KEY_HEADER);
        // Bytes that are no text cannot be compared as one.
        let text = given.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        checked_key(KEY_HEADER, text.as_deref()).map(Self)
    }
}

pub(super) fn is_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let given = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let essence = given.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Refusal::new(
        Trouble::UnsupportedMediaType,
        format!("Content-Type={}: this is not JSON", shown(given)),
    )
    .named("Content-Type")
    .remedy("send JSON with `Content-Type: application/json`"))
}

pub(super) async fn read(request: Request) -> Result<axum::body::Bytes, Refusal> {
    let too_large = || {
        Refusal::new(Trouble::TooLarge, "the body has more than 1 MiB")
            .remedy("send less: no object may be that large")
    };
    let length = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    let length: Option<usize> = length.and_then(|text| text.parse().ok());
    if length.is_some_and(|length| length > BODY_MAX_BYTES) {
        return Err(too_large());
    }
    to_bytes(request.into_body(), BODY_MAX_BYTES)
        .await
        .map_err(|error| {
            let limited = error
                .source()
                .is_some_and(<dyn std::error::Error>::is::<LengthLimitError>);
            if limited {
                too_large()
            } else {
                Refusal::new(Trouble::BadRequest, "the body broke off")
            }
        })
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value: T = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let why = error.inner().to_string();
        let message = if path == "." {
            why
        } else {
            format!("{path}: {why}")
        };
        Refusal::new(Trouble::BadRequest, format!("the body cannot be read: {message}"))
            .named(&path)
            .remedy("/openapi.json describes what the route takes")
    })?;
    json.end().map_err(|error| {
        Refusal::new(
            Trouble::BadRequest,
            format!("the body goes on after its end: {error}"),
        )
        .remedy("send one JSON document")
    })?;
    Ok(value)
}
