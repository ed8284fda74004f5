//! The way to the API server: without credentials of its own, so that each request carries those of the caller.

use http::{HeaderValue, Request, header::AUTHORIZATION};
use kube::{Client, client::Body};
use tower::service_fn;

use super::token::Token;

/// A line to the API server on which nobody is known.
#[derive(Clone)]
pub struct Connection {
    anonymous: Client,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// `anonymous` must hold no credentials: neither a token nor a certificate.
    pub fn new(anonymous: Client) -> Self {
        Self { anonymous }
    }

    /// A client that is whoever the token belongs to. All of them share the connections.
    pub(super) fn of_caller(&self, token: &Token) -> Client {
        let anonymous = self.anonymous.clone();
        let header = HeaderValue::from_str(&format!("Bearer {}", token.secret())).map(|mut header| {
            header.set_sensitive(true);
            header
        });
        let service = service_fn(move |mut request: Request<Body>| {
            let anonymous = anonymous.clone();
            let header = header.as_ref().ok().cloned();
            async move {
                // A token that was read from a header fits into one. Without it the API server refuses the request.
                if let Some(header) = header {
                    request.headers_mut().insert(AUTHORIZATION, header);
                }
                anonymous.send(request).await
            }
        });
        Client::new(service, self.anonymous.default_namespace())
    }
}
