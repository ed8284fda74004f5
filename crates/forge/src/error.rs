//! What can go wrong between us and a forge, and what to do about it.

use std::time::Duration;

use crate::http::{BODY_MAX_BYTES, REDIRECTS_MAX, REQUEST_MAX};

/// Why a forge did not do what it was asked. Paths are those of the API, and hold no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgeError {
    #[error("{url:?} is no address of an API: it must begin with https:// or http:// and a host")]
    Address { url: String },
    #[error(
        "the private key of the GitHub App cannot be used: {problem}; use the PEM file that GitHub gave for the App"
    )]
    Key { problem: String },
    #[error("{method} {path}: the forge could not be reached: {problem}; check its address and the network")]
    Unreachable {
        method: String,
        path: String,
        problem: String,
    },
    #[error("{method} {path}: no answer within {} s", REQUEST_MAX.as_secs())]
    TimedOut { method: String, path: String },
    #[error("{method} {path}: the answer is larger than {BODY_MAX_BYTES} bytes")]
    TooLarge { method: String, path: String },
    #[error(
        "{method} {path}: more than {REDIRECTS_MAX} redirects, or one to another server, to which no token is sent"
    )]
    Redirected { method: String, path: String },
    #[error("{method} {path}: the answer is not what the API promises: {problem}")]
    Unexpected {
        method: String,
        path: String,
        problem: String,
    },
    #[error("{method} {path}: 401, {words}: the token is wrong, has expired or was revoked; give a new one")]
    Unauthorised {
        method: String,
        path: String,
        words: String,
    },
    #[error(
        "{method} {path}: 403, {words}: the token may not do this; give it the right, or use another one"
    )]
    Forbidden {
        method: String,
        path: String,
        words: String,
    },
    #[error("{method} {path}: 404: there is none, or the token may not see it")]
    NotFound { method: String, path: String },
    #[error(
        "installation {installation} of the GitHub App gives tokens for {given:?}, and {asked:?} was asked for: install the App for \
         the owner of the repository and name that installation, or correct the repository"
    )]
    OtherRepository {
        installation: String,
        asked: String,
        given: String,
    },
    #[error("{method} {path}: {status}, too many requests: the forge asks to wait {} s", retry_after.as_secs())]
    RateLimited {
        method: String,
        path: String,
        status: u16,
        retry_after: Duration,
    },
    #[error("{method} {path}: {status}, {words}")]
    Refused {
        method: String,
        path: String,
        status: u16,
        words: String,
    },
    #[error("{method} {path}: {status}, the forge has a problem of its own: {words}")]
    Broken {
        method: String,
        path: String,
        status: u16,
        words: String,
    },
}

impl ForgeError {
    /// Whether what was asked for may have been done all the same, by this request or by another one.
    pub(crate) const fn may_have_happened(&self) -> bool {
        match self {
            Self::TimedOut { .. }
            | Self::Unreachable { .. }
            | Self::Broken { .. }
            | Self::Unexpected { .. }
            | Self::TooLarge { .. } => true,
            // This is how forges say that there is one already.
            Self::Refused { status, .. } => matches!(*status, 400 | 409 | 422),
            Self::Address { .. }
            | Self::Key { .. }
            | Self::Redirected { .. }
            | Self::Unauthorised { .. }
            | Self::Forbidden { .. }
            | Self::NotFound { .. }
            | Self::OtherRepository { .. }
            | Self::RateLimited { .. } => false,
        }
    }

    /// Whether the same request may be answered later.
    pub const fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::RateLimited { .. } | Self::Broken { .. }
        )
    }
}
