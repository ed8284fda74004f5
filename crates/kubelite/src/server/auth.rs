//! Who may talk to the server: callers with a bearer token that it knows.

use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};

use crate::{
    error::{ApiError, Reason},
    server::target::Caller,
};

/// A bearer token and whom it stands for. Only its hash is kept, so that no log or dump can show it and comparing takes the
/// same time whatever is sent.
#[derive(Clone)]
pub struct Token {
    hash: [u8; 32],
    caller: Caller,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl Token {
    pub fn new(secret: &str, caller: Caller) -> Self {
        Self { hash: hash(secret), caller }
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// The caller behind a bearer token.
pub(crate) fn identify<'t>(tokens: &'t [Token], secret: &str) -> Option<&'t Caller> {
    let given = hash(secret);
    tokens.iter().find(|token| token.hash == given).map(|token| &token.caller)
}

/// The caller behind a request; 401 for everybody else.
pub(crate) fn authenticate(tokens: &[Token], headers: &HeaderMap) -> Result<Caller, ApiError> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
    let (scheme, secret) = header.split_once(' ').unwrap_or(("", ""));
    if scheme.eq_ignore_ascii_case("bearer")
        && let Some(caller) = identify(tokens, secret.trim())
    {
        return Ok(caller.clone());
    }
    Err(ApiError::new(Reason::Unauthorized, "Unauthorized"))
}
