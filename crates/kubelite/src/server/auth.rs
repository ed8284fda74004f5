//! Who may talk to the server: callers with a bearer token that it knows.

use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};

use crate::{
    builtin::User,
    error::{ApiError, Reason},
};

/// A bearer token and whom it stands for. Only its hash is kept, so that no log or dump can show it and comparing takes the
/// same time whatever is sent.
#[derive(Clone)]
pub struct Token {
    hash: [u8; 32],
    user: User,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Token {
    pub fn new(secret: &str, user: User) -> Self {
        Self {
            hash: hash(secret),
            user,
        }
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// The user behind a bearer token.
pub(crate) fn identify<'t>(tokens: &'t [Token], secret: &str) -> Option<&'t User> {
    let given = hash(secret);
    tokens
        .iter()
        .find(|token| token.hash == given)
        .map(|token| &token.user)
}

/// The user behind a request; 401 for everybody else.
pub(crate) fn authenticate(tokens: &[Token], headers: &HeaderMap) -> Result<User, ApiError> {
    let header = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let (scheme, secret) = header.split_once(' ').unwrap_or(("", ""));
    if scheme.eq_ignore_ascii_case("bearer")
        && let Some(user) = identify(tokens, secret.trim())
    {
        return Ok(user.clone());
    }
    Err(ApiError::new(Reason::Unauthorized, "Unauthorized"))
}
