//! A credential that nobody can print.

use std::fmt;

/// A token. Only a request reads it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The value of a header of authorization under this scheme.
    pub(crate) fn into_header(self, scheme: &str) -> String {
        format!("{scheme} {}", self.0)
    }

    /// The token itself, for what keeps or sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}
