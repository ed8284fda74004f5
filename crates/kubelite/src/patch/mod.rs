//! The three patches that compute a new object from the stored one: JSON patch, JSON merge patch and strategic merge patch.
//!
//! Server-side apply is a patch by its content type only; it lives in `apply`.

pub mod json;
pub mod merge;
pub mod strategic;

use http::StatusCode;
use serde_json::Value;

use crate::{
    body::go_json_message,
    error::{ApiError, Reason},
    field::json_type_name,
};

/// How deep an object may nest after a patch. `serde_json` refuses to read more than 127 levels, so a deeper object could be
/// stored but never read again; the difference leaves room for the list and the watch event around the object.
pub const MAX_DEPTH: usize = 120;

/// What a `PATCH` request carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// Why a patch gave no new object.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PatchError {
    /// The body is not a patch at all.
    #[error("{0}")]
    Malformed(String),
    #[error("The allowed maximum operations in a JSON patch is {max}, got {actual}", max = json::MAX_OPERATIONS)]
    TooManyOperations { actual: usize },
    /// The patch is well formed, but the object is not one that it can be applied to.
    #[error("{0}")]
    DoesNotApply(String),
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Malformed(message) => Self::bad_request(message),
            PatchError::TooManyOperations { .. } => {
                let message = format!("Request entity too large: {error}");
                Self::new(Reason::RequestEntityTooLarge, message)
            }
            // Kubernetes keeps the cause to itself here, and clients know this sentence.
            PatchError::DoesNotApply(_) => {
                let mut answer = Self::new(
                    Reason::Invalid,
                    "the server rejected our request due to an error in our request",
                )
                .with_code(StatusCode::UNPROCESSABLE_ENTITY);
                answer.details = Some(Box::default());
                answer
            }
        }
    }
}

/// Reads a body that must be a JSON object, with the message of Go's decoder when it is something else.
fn object_from(body: &[u8], prefix: &str) -> Result<Value, PatchError> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| PatchError::Malformed(format!("{prefix}{}", go_json_message(&error, body))))?;
    match value {
        Value::Object(_) | Value::Null => Ok(value),
        other => Err(PatchError::Malformed(format!(
            "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_type_name(&other)
        ))),
    }
}

/// Takes all null members out of objects, however deep; null elements of lists stay.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_the_code_that_kubernetes_gives_it() {
        let malformed = ApiError::from(PatchError::Malformed("bad".to_owned()));
        assert_eq!(
            (malformed.code.as_u16(), malformed.reason),
            (400, Reason::BadRequest)
        );
        let large = ApiError::from(PatchError::TooManyOperations { actual: 10_001 });
        assert_eq!(
            (large.code.as_u16(), large.reason),
            (413, Reason::RequestEntityTooLarge)
        );
        assert_eq!(
            large.message,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
        let unapplied = ApiError::from(PatchError::DoesNotApply("x".to_owned()));
        assert_eq!(
            (unapplied.code.as_u16(), unapplied.reason),
            (422, Reason::Invalid)
        );
        assert_eq!(
            unapplied.message,
            "the server rejected our request due to an error in our request"
        );
    }
}
