//! Every way a request can fail, as the `Status` object a Kubernetes client expects.
//!
//! The wording matters: kubectl prints these messages as they are, and kube-rs decides by `reason` and `code`.

use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use crate::field::FieldError;

/// Why a request failed, in the words of `metav1.StatusReason`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, strum::IntoStaticStr)]
pub enum Reason {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Invalid,
    Expired,
    MethodNotAllowed,
    NotAcceptable,
    UnsupportedMediaType,
    RequestEntityTooLarge,
    Timeout,
    TooManyRequests,
    InternalError,
    ServiceUnavailable,
    /// A failure that Kubernetes itself gives no reason for. It is absent on the wire.
    Unknown,
}

impl Reason {
    /// The HTTP status code that goes with the reason.
    pub fn code(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists | Self::Conflict => StatusCode::CONFLICT,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Expired => StatusCode::GONE,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::RequestEntityTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::InternalError | Self::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
            Self::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// One entry of `status.details.causes`.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Cause {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// `status.details`: which object the failure is about.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

/// A failed request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub reason: Reason,
    /// Differs from `reason.code()` only where Kubernetes itself answers so (a JSON patch that does not apply is 422).
    pub code: StatusCode,
    pub message: String,
    pub details: Option<Box<Details>>,
}

/// Names a kind of object in an error: the plural resource (`configmaps`) or, in `Invalid`, the kind (`ConfigMap`).
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub group: &'a str,
    pub resource: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
}

impl Subject<'_> {
    fn qualified(&self, name: &str) -> String {
        if self.group.is_empty() {
            name.to_owned()
        } else {
            format!("{name}.{}", self.group)
        }
    }

    fn details(&self, kind: &str) -> Details {
        Details {
            name: self.name.to_owned(),
            group: self.group.to_owned(),
            kind: kind.to_owned(),
            ..Details::default()
        }
    }
}

impl ApiError {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            code: reason.code(),
            message: message.into(),
            details: None,
        }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    pub fn internal(message: impl std::fmt::Display) -> Self {
        let text = message.to_string();
        let mut error = Self::new(Reason::InternalError, format!("Internal error occurred: {text}"));
        error.details = Some(Box::new(Details {
            causes: vec![Cause {
                message: text,
                ..Cause::default()
            }],
            ..Details::default()
        }));
        error
    }

    pub fn not_found(subject: Subject<'_>) -> Self {
        let mut error = Self::new(
            Reason::NotFound,
            format!(
                "{} \"{}\" not found",
                subject.qualified(subject.resource),
                subject.name
            ),
        );
        error.details = Some(Box::new(subject.details(subject.resource)));
        error
    }

    pub fn already_exists(subject: Subject<'_>) -> Self {
        let mut error = Self::new(
            Reason::AlreadyExists,
            format!(
                "{} \"{}\" already exists",
                subject.qualified(subject.resource),
                subject.name
            ),
        );
        error.details = Some(Box::new(subject.details(subject.resource)));
        error
    }

    pub fn conflict(subject: Subject<'_>, why: impl std::fmt::Display) -> Self {
        let mut error = Self::new(
            Reason::Conflict,
            format!(
                "Operation cannot be fulfilled on {} \"{}\": {why}",
                subject.qualified(subject.resource),
                subject.name
            ),
        );
        error.details = Some(Box::new(subject.details(subject.resource)));
        error
    }

    pub fn forbidden(subject: Subject<'_>, why: impl std::fmt::Display) -> Self {
        let mut error = Self::new(
            Reason::Forbidden,
            format!(
                "{} \"{}\" is forbidden: {why}",
                subject.qualified(subject.resource),
                subject.name
            ),
        );
        error.details = Some(Box::new(subject.details(subject.resource)));
        error
    }

    /// 422 with one cause per field, worded as `field.ErrorList` does in Go.
    pub fn invalid(subject: Subject<'_>, errors: &[FieldError]) -> Self {
        let list = match errors {
            [one] => one.to_string(),
            many => {
                let mut seen: Vec<String> = Vec::new();
                for text in many.iter().map(ToString::to_string) {
                    if !seen.contains(&text) {
                        seen.push(text);
                    }
                }
                if seen.len() == 1 {
                    seen.remove(0)
                } else {
                    format!("[{}]", seen.join(", "))
                }
            }
        };
        let mut error = Self::new(
            Reason::Invalid,
            format!(
                "{} \"{}\" is invalid: {list}",
                subject.qualified(subject.kind),
                subject.name
            ),
        );
        let mut details = subject.details(subject.kind);
        details.causes = errors.iter().map(FieldError::cause).collect();
        error.details = Some(Box::new(details));
        error
    }

    #[must_use]
    pub fn with_code(mut self, code: StatusCode) -> Self {
        self.code = code;
        self
    }

    #[must_use]
    pub fn with_cause(mut self, cause: Cause) -> Self {
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// The `Status` object on the wire.
    pub fn to_status(&self) -> Value {
        let mut status = serde_json::json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if self.reason != Reason::Unknown {
            status["reason"] = Value::from(<&str>::from(self.reason));
        }
        if let Some(details) = &self.details {
            // `Details` holds only strings and numbers, so turning it into JSON cannot fail.
            status["details"] = serde_json::to_value(details).unwrap_or_default();
        }
        status
    }
}
