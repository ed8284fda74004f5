//! One request to the API of a forge, with bounds on everything.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::Timestamp;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

use crate::{error::ForgeError, token::Token};

/// How long one request may take, with its answer.
pub(crate) const REQUEST_MAX: Duration = Duration::from_secs(20);
/// How large an answer may be: a page of commits is some hundred kilobytes.
pub(crate) const BODY_MAX_BYTES: usize = 4 * 1024 * 1024;
/// How many redirects are followed, each within the same server. A renamed repository is one.
pub(crate) const REDIRECTS_MAX: u32 = 3;
/// How much of a forge's own words an error repeats.
const WORDS_MAX: usize = 300;
/// What we call ourselves; GitHub answers nobody without.
const USER_AGENT: &str = concat!("jangar/", env!("CARGO_PKG_VERSION"));

/// How much is waited for a forge that does not answer as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The pause before each further try of a request that may be repeated.
    pub pauses: Vec<Duration>,
    /// The longest that a forge may ask us to wait. If it asks for more, the caller is told.
    pub rate_limit_max: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            pauses: vec![Duration::from_secs(1), Duration::from_secs(3)],
            rate_limit_max: Duration::from_secs(30),
        }
    }
}

impl Patience {
    /// One try, and no waiting: whoever asks comes again.
    pub const fn none() -> Self {
        Self {
            pauses: Vec::new(),
            rate_limit_max: Duration::ZERO,
        }
    }
}

/// The API of one forge, and the token for it.
pub struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Scheme and host.
    origin: String,
    /// What stands before every path.
    prefix: String,
    authorization: String,
    patience: Patience,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl Http {
    /// A way to the API at this address, with the token under this scheme of authorization.
    pub(crate) fn new(api: &str, scheme: &str, token: Token, patience: Patience) -> Result<Self, ForgeError> {
        let wrong = || ForgeError::Address { url: api.to_owned() };
        let uri: Uri = api.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let (Some(given), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong());
        };
        if !matches!(given, "https" | "http") || authority.as_str().contains('@') {
            return Err(wrong());
        }
        let connector = connector(given).map_err(|problem| ForgeError::Unreachable {
            method: "GET".to_owned(),
            path: uri.path().to_owned(),
            problem,
        })?;
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            origin: format!("{given}://{authority}"),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            authorization: token.into_header(scheme),
            patience,
        })
    }

    /// Asks for something. It may be asked again.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, ForgeError> {
        let mut pauses = self.patience.pauses.iter();
        loop {
            let error = match self.once(&Method::GET, path, None).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            match (self.worth_waiting(&error), pauses.next()) {
                (Some(asked), Some(pause)) => tokio::time::sleep(asked.max(*pause)).await,
                (None, _) | (_, None) => return Err(error),
            }
        }
    }

    /// Has something made or removed. It is not repeated, except when the forge said that it has not begun.
    pub(crate) async fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ForgeError> {
        let mut pauses = self.patience.pauses.iter();
        loop {
            let error = match self.once(method, path, body).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let limited = matches!(error, ForgeError::RateLimited { .. });
            match (self.worth_waiting(&error).filter(|_| limited), pauses.next()) {
                (Some(asked), Some(pause)) => tokio::time::sleep(asked.max(*pause)).await,
                (None, _) | (_, None) => return Err(error),
            }
        }
    }

    /// How long the forge asks us to wait before the next try, if another one makes sense and that is not too long.
    fn worth_waiting(&self, error: &ForgeError) -> Option<Duration> {
        match error {
            ForgeError::RateLimited { retry_after, .. } => {
                Some(*retry_after).filter(|asked| *asked <= self.patience.rate_limit_max)
            }
            error if error.is_passing() => Some(Duration::ZERO),
            _ => None,
        }
    }

    async fn once(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<Value, ForgeError> {
        let place = Place { method, path };
        match tokio::time::timeout(REQUEST_MAX, self.exchange(&place, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(ForgeError::TimedOut {
                method: method.to_string(),
                path: place.shown(),
            }),
        }
    }

    async fn exchange(&self, place: &Place<'_>, body: Option<&Value>) -> Result<Value, ForgeError> {
        let mut target = format!("{}{}{}", self.origin, self.prefix, place.path);
        for _ in 0..=REDIRECTS_MAX {
            let response = self.request(place, &target, body).await?;
            if !response.status().is_redirection() {
                return read(place, response).await;
            }
            let location = text(response.headers(), header::LOCATION.as_str()).unwrap_or_default();
            target = match location.strip_prefix('/') {
                Some(path) => format!("{}/{path}", self.origin),
                None => location.to_owned(),
            };
            // A token is for one server.
            if !target.starts_with(&format!("{}/", self.origin)) {
                break;
            }
        }
        Err(ForgeError::Redirected {
            method: place.method.to_string(),
            path: place.shown(),
        })
    }

    async fn request(
        &self,
        place: &Place<'_>,
        target: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, ForgeError> {
        let unreachable = |problem: String| ForgeError::Unreachable {
            method: place.method.to_string(),
            path: place.shown(),
            problem,
        };
        let mut request = Request::builder()
            .method(place.method)
            .uri(target)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, "application/json")
            .header(header::AUTHORIZATION, &self.authorization);
        let bytes = match body {
            None => Bytes::new(),
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
        };
        let request = request
            .body(Full::new(bytes))
            .map_err(|error| unreachable(error.to_string()))?;
        self.client
            .request(request)
            .await
            .map_err(|error| unreachable(causes(&error)))
    }
}

/// What connects to a forge, by the authorities that this system trusts. Without any only plain HTTP can be spoken.
fn connector(scheme: &str) -> Result<HttpsConnector<HttpConnector>, String> {
    let provider = rustls::crypto::ring::default_provider();
    let schemes = match HttpsConnectorBuilder::new().with_provider_and_native_roots(provider.clone()) {
        Ok(trusting) => trusting.https_or_http(),
        Err(error) if scheme == "https" => {
            return Err(format!(
                "no authority is trusted that could vouch for it: {error}; have SSL_CERT_FILE or SSL_CERT_DIR name certificates"
            ));
        }
        Err(_) => {
            let config = ClientConfig::builder_with_provider(Arc::new(provider))
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth();
            HttpsConnectorBuilder::new()
                .with_tls_config(config)
                .https_or_http()
        }
    };
    Ok(schemes.enable_http1().build())
}

/// The JSON of an answer, or what the forge said instead.
async fn read(place: &Place<'_>, response: Response<Incoming>) -> Result<Value, ForgeError> {
    let (parts, body) = response.into_parts();
    let (method, path) = (place.method.to_string(), place.shown());
    let bytes = match Limited::new(body, BODY_MAX_BYTES).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(ForgeError::TooLarge { method, path }),
        Err(error) => {
            let problem = error.to_string();
            return Err(ForgeError::Unreachable {
                method,
                path,
                problem,
            });
        }
    };
    if !parts.status.is_success() {
        return Err(place.refusal(parts.status, &parts.headers, &bytes));
    }
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|error| ForgeError::Unexpected {
        method,
        path,
        problem: format!("it is not JSON: {error}"),
    })
}

/// What was asked, for messages.
struct Place<'a> {
    method: &'a Method,
    path: &'a str,
}

impl Place<'_> {
    /// The path without its query, which may be long.
    fn shown(&self) -> String {
        self.path.split('?').next().unwrap_or(self.path).to_owned()
    }

    fn refusal(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ForgeError {
        let (method, path, words) = (self.method.to_string(), self.shown(), words(body));
        if let Some(retry_after) = rate_limit(status, headers, Timestamp::now()) {
            return ForgeError::RateLimited {
                method,
                path,
                status: status.as_u16(),
                retry_after,
            };
        }
        match status {
            StatusCode::UNAUTHORIZED => ForgeError::Unauthorised { method, path, words },
            StatusCode::FORBIDDEN => ForgeError::Forbidden { method, path, words },
            StatusCode::NOT_FOUND => ForgeError::NotFound { method, path },
            status if status.is_server_error() => ForgeError::Broken {
                method,
                path,
                status: status.as_u16(),
                words,
            },
            status => ForgeError::Refused {
                method,
                path,
                status: status.as_u16(),
                words,
            },
        }
    }
}

/// How long a forge that has had enough of our requests asks us to wait. GitHub says so with 403 as well as with 429.
fn rate_limit(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    /// What is waited if the forge does not say.
    const UNSAID: Duration = Duration::from_mins(1);
    let number = |name: &str| text(headers, name).and_then(|text| text.trim().parse::<i64>().ok());
    let after = number("retry-after");
    let none_left = ["x-ratelimit-remaining", "ratelimit-remaining"]
        .iter()
        .any(|name| number(name) == Some(0));
    let limited = match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN => after.is_some() || none_left,
        _ => false,
    };
    if !limited {
        return None;
    }
    let reset = ["x-ratelimit-reset", "ratelimit-reset"]
        .iter()
        .find_map(|name| number(name));
    let until_reset = reset.map(|reset| reset.saturating_sub(now.as_second()));
    let seconds = after.or(until_reset);
    Some(seconds.map_or(UNSAID, |seconds| {
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// What the forge said: the message of its JSON, in one line.
fn words(body: &[u8]) -> String {
    let parsed: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let said = ["/message", "/error/message", "/error_description", "/error"]
        .iter()
        .find_map(|pointer| parsed.pointer(pointer).map(said));
    let details: Vec<String> = parsed
        .get("errors")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|error| error.get("message").and_then(Value::as_str))
        .map(str::to_owned)
        .collect();
    let whole = said.into_iter().chain(details).collect::<Vec<_>>().join("; ");
    let line: String = whole
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(WORDS_MAX)
        .collect();
    if line.is_empty() {
        "no reason given".to_owned()
    } else {
        line
    }
}

fn said(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// An error with what caused it, on one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        words = format!("{words}: {cause}");
        next = cause.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_rate_limit_is_told_from_a_missing_right() {
        let now = Timestamp::from_second(1_000).unwrap();
        let seconds = Duration::from_secs;
        for (status, given, expected) in [
            (429, headers(&[("retry-after", "7")]), Some(seconds(7))),
            (429, headers(&[]), Some(seconds(60))),
            (403, headers(&[]), None),
            (
                403,
                headers(&[("x-ratelimit-remaining", "12"), ("x-ratelimit-reset", "1030")]),
                None,
            ),
            (
                403,
                headers(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1030")]),
                Some(seconds(30)),
            ),
            (
                429,
                headers(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "900")]),
                Some(seconds(0)),
            ),
            (
                403,
                headers(&[("retry-after", "5"), ("x-ratelimit-reset", "9999")]),
                Some(seconds(5)),
            ),
            (500, headers(&[("retry-after", "5")]), None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(rate_limit(status, &given, now), expected, "{status} {given:?}");
        }
    }

    #[test]
    fn the_words_of_a_forge_are_one_bounded_line() {
        assert_eq!(words(br#"{"message": "Bad\ncredentials"}"#), "Bad credentials");
        assert_eq!(
            words(br#"{"message": "Validation Failed", "errors": [{"message": "x"}]}"#),
            "Validation Failed; x"
        );
        assert_eq!(words(br#"{"message": ["a", "b"]}"#), r#"["a","b"]"#);
        assert_eq!(words(br#"{"error": {"message": "no"}}"#), "no");
        assert_eq!(words(b"<html>"), "no reason given");
        let long = format!(r#"{{"message": "{}"}}"#, "x".repeat(1000));
        assert_eq!(words(long.as_bytes()).len(), WORDS_MAX);
    }
}
