//! The `labelSelector` and `fieldSelector` of a request: parsing, matching and the words for what is wrong with one.

pub mod field;
pub mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;

use crate::error::ApiError;

/// The longest selector that is read. It is what the HTTP layer takes as a whole request target, so nothing that arrives in a
/// URL is refused for its length.
pub const MAX_BYTES: usize = 64 * 1024;

/// The most terms that one selector may have. Each is matched against every object of a list; people write a handful.
pub const MAX_REQUIREMENTS: usize = 1_000;

/// What is wrong with a selector, in the words of Kubernetes.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SelectorError {
    #[error("selector is too long: may not be more than {MAX_BYTES} bytes")]
    TooLong,
    #[error("selector has too many requirements: must have at most {MAX_REQUIREMENTS}")]
    TooMany,
    #[error("unable to parse requirement: {0}")]
    Requirement(String),
    /// A token where none of its kind may stand.
    #[error("found '{found}', expected: {expected}")]
    Unexpected { found: String, expected: &'static str },
    #[error("invalid selector: '{selector}'; can't understand '{part}'")]
    Term { selector: String, part: String },
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// Kubernetes prints the character's number here.
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(u32),
    #[error("field label not supported: {0}")]
    UnsupportedField(String),
}

impl From<SelectorError> for ApiError {
    fn from(error: SelectorError) -> Self {
        Self::bad_request(error.to_string())
    }
}

fn check_length(text: &str) -> Result<(), SelectorError> {
    if text.len() > MAX_BYTES {
        Err(SelectorError::TooLong)
    } else {
        Ok(())
    }
}
