//! Calls over HTTP.
//!
//! One connection for each call, made step by step, because two things have to be known exactly: to which address it goes,
//! and whether a call that failed can have arrived. A name is resolved here, its addresses are checked, and it is one of those
//! that is connected to: who answers for the name cannot put another one in its place. Until the connection stands and its
//! certificate is checked, nothing of the call has left, so that it can be made again; from then on nobody knows.
//!
//! Redirects are not followed: they would lead where nobody has looked.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{HeaderMap, Method, Request, StatusCode, Version, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use jangar_engine::custom::{
    address::{self, Network},
    call::Answer,
    endpoint::Endpoint,
};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use serde_json::Value;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{Call, Endpoints};

/// How long resolving a name, connecting and checking the certificate may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the endpoint has to say whether it takes the work. It need not do it within that time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 4;
/// The most bytes of an answer. More is not read.
const ANSWER_MAX_BYTES: usize = 16 * 1024;
/// The most characters of an answer that a message repeats, or that is kept where it is no JSON.
const QUOTE_MAX: usize = 512;
const USER_AGENT: &str = concat!("jangar/", env!("CARGO_PKG_VERSION"));

/// Calls endpoints over HTTP and HTTPS.
#[derive(Clone, Debug)]
pub struct HttpEndpoints {
    /// Which addresses may be connected to although they are not of the public internet.
    open: Vec<Network>,
    /// Made at the first use: reading the certificates of the machine takes its time.
    tls: Arc<OnceLock<Arc<ClientConfig>>>,
}

impl HttpEndpoints {
    pub fn new(open: Vec<Network>) -> Self {
        Self {
            open,
            tls: Arc::default(),
        }
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, Unconnected> {
        if let Some(config) = self.tls.get() {
            return Ok(Arc::clone(config));
        }
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        for error in found.errors {
            tracing::warn!(%error, "a certificate of this machine cannot be read");
        }
        let (_, unusable) = roots.add_parsable_certificates(found.certs);
        if unusable > 0 {
            tracing::warn!(unusable, "certificates of this machine cannot be used");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Unconnected::Tls(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::clone(self.tls.get_or_init(|| Arc::new(config))))
    }

    async fn call(self, call: Call) -> Answer {
        let connected = timeout(CONNECT_TIMEOUT, self.connect(&call.endpoint)).await;
        let stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return error.into_answer(),
            Err(_) => return Unconnected::TimedOut.into_answer(),
        };
        match timeout(ANSWER_TIMEOUT, exchange(stream, call)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Answer::Unknown {
                words: format!("the connection broke: {error}"),
            },
            Err(_) => Answer::Unknown {
                words: format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
            },
        }
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<Box<dyn Connection>, Unconnected> {
        let resolved = tokio::net::lookup_host((endpoint.host(), endpoint.port())).await;
        let addresses: Vec<SocketAddr> = resolved
            .map_err(|error| Unconnected::Name(error.to_string()))?
            .collect();
        let stream = self.reach(&addresses).await?;
        if !endpoint.uses_tls() {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(endpoint.host().to_owned())
            .map_err(|error| Unconnected::Tls(error.to_string()))?;
        let stream = TlsConnector::from(self.tls()?).connect(name, stream).await;
        Ok(Box::new(
            stream.map_err(|error| Unconnected::Tls(error.to_string()))?,
        ))
    }

    /// Connects to the first of the addresses that may be connected to and answers.
    async fn reach(&self, addresses: &[SocketAddr]) -> Result<TcpStream, Unconnected> {
        let mut trouble = Unconnected::Name("it has no address".to_owned());
        let mut tried = 0;
        for address in addresses {
            if let Some(what) = address::refusal(address.ip(), &self.open) {
                // What was tried and did not answer tells more.
                if tried == 0 {
                    trouble = Unconnected::Closed {
                        address: *address,
                        what,
                    };
                }
                continue;
            }
            if tried == ADDRESSES_MAX {
                break;
            }
            tried += 1;
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => trouble = Unconnected::Refused(error.to_string()),
            }
        }
        Err(trouble)
    }
}

impl Endpoints for HttpEndpoints {
    fn post(&self, call: Call) -> BoxFuture<'static, Answer> {
        self.clone().call(call).boxed()
    }
}

/// Why there is no connection. Nothing of the call has left.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum Unconnected {
    #[error("its name cannot be resolved: {0}")]
    Name(String),
    #[error(
        "it resolves to {}, which is {what}: use a public address, or have the range added to \
         JANGAR_CUSTOM_RUNTIME_OPEN_NETWORKS",
        address.ip()
    )]
    Closed { address: SocketAddr, what: &'static str },
    #[error("it cannot be connected to: {0}")]
    Refused(String),
    #[error("no secure connection: {0}")]
    Tls(String),
    #[error("no connection within {} s", CONNECT_TIMEOUT.as_secs())]
    TimedOut,
}

impl Unconnected {
    fn into_answer(self) -> Answer {
        let words = self.to_string();
        match self {
            Self::Closed { .. } => Answer::NotAllowed { words },
            Self::Name(_) | Self::Refused(_) | Self::Tls(_) | Self::TimedOut => Answer::NotTaken {
                words,
                retry_after: None,
            },
        }
    }
}

/// A connection, with a certificate or without.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Sends the call and reads the answer.
async fn exchange(stream: Box<dyn Connection>, call: Call) -> Result<Answer, hyper::Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with this function.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let Some(request) = request(call) else {
        // Only a header that cannot be sent could be the cause, and ours are made of plain letters.
        return Ok(Answer::Refused {
            words: "the call cannot be written as a request".to_owned(),
        });
    };
    let response = sender.send_request(request).await?;
    let (head, body) = response.into_parts();
    Ok(read(head.status, &head.headers, &bounded(body).await))
}

fn request(call: Call) -> Option<Request<Full<Bytes>>> {
    let mut request = Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_11)
        .uri(call.endpoint.target())
        .header(header::HOST, call.endpoint.authority())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "application/json")
        .header(header::CONNECTION, "close");
    for (name, value) in call.headers {
        request = request.header(name, value);
    }
    request.body(Full::new(Bytes::from(call.body))).ok()
}

/// What can be read of a body within its bounds. The status tells what counts, so a body that breaks off is no trouble.
async fn bounded(body: Incoming) -> Vec<u8> {
    match Limited::new(body, ANSWER_MAX_BYTES).collect().await {
        Ok(body) => body.to_bytes().to_vec(),
        Err(_) => Vec::new(),
    }
}

/// What an answer means.
fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Answer {
    let words = || {
        let text = quote(body);
        if text.is_empty() {
            format!("HTTP {status}")
        } else {
            format!("HTTP {status}: {text}")
        }
    };
    match status.as_u16() {
        200..=299 => Answer::Taken {
            response: response(body),
        },
        429 => Answer::NotTaken {
            words: words(),
            retry_after: retry_after(headers),
        },
        300..=399 => Answer::Refused {
            words: format!("{}; redirects are not followed", words()),
        },
        400..=499 => Answer::Refused { words: words() },
        // The endpoint, or something before it, broke on the way.
        _ => Answer::Unknown { words: words() },
    }
}

fn response(body: &[u8]) -> Option<Value> {
    let json = serde_json::from_slice(body)
        .ok()
        .filter(|value: &Value| !value.is_null());
    json.or_else(|| {
        Some(quote(body))
            .filter(|text| !text.is_empty())
            .map(Value::String)
    })
}

fn quote(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let plain = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(QUOTE_MAX).collect()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// Whether an answer means what it should.
    type Expected<'a> = &'a dyn Fn(&Answer) -> bool;

    fn call(url: &str) -> Call {
        Call {
            endpoint: url.parse().unwrap(),
            headers: vec![
                ("content-type", "application/json".to_owned()),
                ("idempotency-key", "u/1".to_owned()),
            ],
            body: b"{}".to_vec(),
        }
    }

    fn local() -> HttpEndpoints {
        HttpEndpoints::new(vec!["127.0.0.1".parse().unwrap()])
    }

    /// Answers one request with these bytes; returns what was asked, and what the call came to.
    async fn answered_with(answer: &'static str) -> (String, Answer) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/run?team=a", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"{}") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        });
        let found = local().post(call(&url)).await;
        (server.await.unwrap(), found)
    }

    #[tokio::test]
    async fn a_call_is_one_request_with_its_headers() {
        let (request, answer) =
            answered_with("HTTP/1.1 202 Accepted\r\ncontent-length: 9\r\n\r\n{\"job\":7}").await;

        assert!(request.starts_with("POST /run?team=a HTTP/1.1\r\n"), "{request}");
        assert!(
            request.to_lowercase().contains("\r\nidempotency-key: u/1\r\n"),
            "{request}"
        );
        assert!(request.contains("host: 127.0.0.1:"), "{request}");
        let response = Some(serde_json::json!({"job": 7}));
        assert_eq!(answer, Answer::Taken { response });
    }

    #[tokio::test]
    async fn every_answer_has_its_meaning() {
        let taken = |answer: &Answer| matches!(answer, Answer::Taken { response: None });
        let refused =
            |answer: &Answer| matches!(answer, Answer::Refused { words } if words.contains("no such team"));
        let moved =
            |answer: &Answer| matches!(answer, Answer::Refused { words } if words.contains("not followed"));
        let later = |answer: &Answer| matches!(answer, Answer::NotTaken { retry_after: Some(time), .. } if time.as_secs() == 7);
        let unknown = |answer: &Answer| matches!(answer, Answer::Unknown { .. });
        let cases: [(&str, Expected<'_>); 7] = [
            ("HTTP/1.1 204 No Content\r\n\r\n", &taken),
            (
                "HTTP/1.1 404 Not Found\r\ncontent-length: 12\r\n\r\nno such team",
                &refused,
            ),
            (
                "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
                &moved,
            ),
            (
                "HTTP/1.1 429 Slow Down\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n",
                &later,
            ),
            (
                "HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n",
                &unknown,
            ),
            // The connection ends without an answer.
            ("", &unknown),
            ("this is no HTTP\r\n\r\n", &unknown),
        ];
        for (answer, expected) in cases {
            let (_, found) = answered_with(answer).await;
            assert!(expected(&found), "{answer}: {found:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_taken_without_its_words() {
        let long: &'static str = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 20000\r\n\r\n{}",
            "x".repeat(20_000)
        )
        .leak();

        let (_, answer) = answered_with(long).await;

        assert_eq!(answer, Answer::Taken { response: None });
    }

    #[tokio::test]
    async fn what_was_never_connected_can_be_called_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        drop(listener);

        let answer = local().post(call(&url)).await;

        assert!(matches!(answer, Answer::NotTaken { .. }), "{answer:?}");
    }

    #[tokio::test]
    async fn who_has_no_certificate_has_not_been_called() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 64];
            let _ = stream.read(&mut hello).await.unwrap();
            stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .await
                .unwrap();
        });

        let answer = local().post(call(&url)).await;

        assert!(
            matches!(&answer, Answer::NotTaken { words, .. } if words.contains("secure")),
            "{answer:?}"
        );
        server.await.unwrap();
    }

    #[tokio::test]
    async fn closed_addresses_are_not_connected_to_however_they_are_written() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let closed = HttpEndpoints::new(Vec::new());
        for host in [
            "127.0.0.1",
            "localhost",
            "[::ffff:127.0.0.1]",
            "0.0.0.0",
            "[::1]",
            "[::]",
            "2130706433",
            "0x7f.1",
        ] {
            let answer = closed.post(call(&format!("http://{host}:{port}/"))).await;
            // A machine need not resolve the last ones at all.
            let unresolved = matches!(&answer, Answer::NotTaken { words, .. } if words.contains("resolved"));
            assert!(
                matches!(&answer, Answer::NotAllowed { words } if words.contains("OPEN_NETWORKS"))
                    || unresolved,
                "{host}: {answer:?}"
            );
        }
        for host in [
            "10.0.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "[fd00::1]",
            "[fe80::1]",
            "224.0.0.1",
        ] {
            let answer = closed.post(call(&format!("http://{host}:{port}/"))).await;
            assert!(matches!(answer, Answer::NotAllowed { .. }), "{host}: {answer:?}");
        }
        // Nobody was connected to.
        let nobody = timeout(Duration::ZERO, listener.accept()).await;
        assert!(nobody.is_err());
    }
}
