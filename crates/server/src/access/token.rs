//! The caller's bearer token, which is never shown.

use std::{fmt, sync::Arc};

use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};

use crate::refusal::{Refusal, Trouble};

/// The header of earlier versions, with the bare token.
const OWN_HEADER: &str = "x-jangar-token";
/// A token of a service account has some 1.5 KiB; one with very many groups may have a few more.
const TOKEN_MAX_BYTES: usize = 16 * 1024;

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Tells tokens apart without knowing them: what caches are keyed by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenId([u8; 32]);

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenId(…)")
    }
}

impl TokenId {
    /// Compares in the same time whatever differs.
    pub fn is_same(&self, other: &Self) -> bool {
        let difference = self
            .0
            .iter()
            .zip(other.0)
            .fold(0, |difference, (one, two)| difference | (one ^ two));
        difference == 0
    }
}

impl Token {
    pub fn new(secret: &str) -> Self {
        Self(Arc::from(secret))
    }

    /// The token of a request.
    pub fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let given = headers.get(AUTHORIZATION).map(|value| {
            let text = value.to_str().ok()?;
            let (scheme, secret) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
        });
        let own = || {
            headers
                .get(OWN_HEADER)
                .map(|value| value.to_str().ok().map(str::trim))
        };
        let secret = given
            .or_else(own)
            .ok_or_else(|| unauthenticated("the request has no token"))?;
        let legal = |secret: &&str| {
            !secret.is_empty()
                && secret.len() <= TOKEN_MAX_BYTES
                && secret.bytes().all(|byte| byte.is_ascii_graphic())
        };
        secret
            .filter(legal)
            .map(Self::new)
            .ok_or_else(|| unauthenticated("the header of the request has no token that can be read"))
    }

    pub fn id(&self) -> TokenId {
        TokenId(Sha256::digest(self.0.as_bytes()).into())
    }

    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

pub(crate) fn unauthenticated(message: &str) -> Refusal {
    Refusal::new(Trouble::Unauthenticated, message).remedy(
        "send a token that Kubernetes knows as `Authorization: Bearer …`; `kubectl create token NAME` makes one",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &'static str, value: &str) -> Result<Token, Trouble> {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().expect("a header"));
        Token::of(&headers).map_err(|refusal| refusal.trouble)
    }

    #[test]
    fn a_token_is_read_from_either_header_and_nothing_else_counts() {
        assert_eq!(token("authorization", "Bearer abc"), Ok(Token::new("abc")));
        assert_eq!(token("authorization", "bearer  abc"), Ok(Token::new("abc")));
        assert_eq!(token("x-jangar-token", "abc"), Ok(Token::new("abc")));
        for (name, value) in [
            ("authorization", "Basic abc"),
            ("authorization", "Bearer "),
            ("authorization", "Bearer a b"),
            ("authorization", "abc"),
            ("x-jangar-token", ""),
        ] {
            assert_eq!(
                token(name, value),
                Err(Trouble::Unauthenticated),
                "{name}: {value}"
            );
        }
        let huge = format!("Bearer {}", "a".repeat(TOKEN_MAX_BYTES + 1));
        assert_eq!(token("authorization", &huge), Err(Trouble::Unauthenticated));
        assert!(Token::of(&HeaderMap::new()).is_err());
    }

    #[test]
    fn a_token_is_never_printed() {
        let text = format!("{:?} {:?}", Token::new("secret"), Token::new("secret").id());
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn only_the_same_token_is_the_same() {
        assert!(Token::new("a").id().is_same(&Token::new("a").id()));
        assert!(!Token::new("a").id().is_same(&Token::new("b").id()));
    }
}
