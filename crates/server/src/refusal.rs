//! Why a request is not answered as its sender wished: what is wrong, where, and what would be right.

use std::fmt;

use serde_json::{Value, json};

/// How much of a value a message repeats.
const SHOWN_MAX: usize = 120;

/// How the API server begins what it says of a field of the wrong type.
const WRONG_TYPE: &str = "failed to create typed patch object";

/// What kind of trouble it is. HTTP and gRPC have a code for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The request makes no sense.
    BadRequest,
    /// Nobody knows who asks.
    Unauthenticated,
    Forbidden,
    /// There is none, or none that the caller may see.
    NotFound,
    /// There was one, in earlier versions.
    Gone,
    MethodNotAllowed,
    /// It does not fit what is there.
    Conflict,
    TooLarge,
    UnsupportedMediaType,
    /// The API server does not take the object.
    Invalid,
    /// Too many wait already.
    TooMany,
    /// It would work, but not now.
    Unavailable,
    TimedOut,
    Internal,
    /// Earlier versions could, and this one cannot.
    NotBuilt,
}

impl Trouble {
    /// The status of HTTP.
    pub fn status(self) -> http::StatusCode {
        use http::StatusCode;
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Gone => StatusCode::GONE,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NotBuilt => StatusCode::NOT_IMPLEMENTED,
        }
    }

    /// The status of gRPC.
    pub fn grpc(self) -> tonic::Code {
        use tonic::Code;
        match self {
            Self::BadRequest | Self::TooLarge | Self::UnsupportedMediaType | Self::Invalid => {
                Code::InvalidArgument
            }
            Self::Unauthenticated => Code::Unauthenticated,
            Self::Forbidden => Code::PermissionDenied,
            Self::NotFound => Code::NotFound,
            Self::MethodNotAllowed | Self::Gone | Self::NotBuilt => Code::Unimplemented,
            Self::Conflict => Code::FailedPrecondition,
            Self::TooMany => Code::ResourceExhausted,
            Self::Unavailable => Code::Unavailable,
            Self::TimedOut => Code::DeadlineExceeded,
            Self::Internal => Code::Internal,
        }
    }
}

/// The answer to a request that is not done.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub trouble: Trouble,
    /// After how many seconds it may be worth another try.
    pub retry_after: Option<u32>,
    /// Apart, so that a result is small where all is well.
    words: Box<Words>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Words {
    message: String,
    field: Option<String>,
    value: Option<String>,
    remedy: Option<String>,
    details: Option<Value>,
    /// The caller may not: for whoever keeps the books, and never for the caller.
    denied: bool,
}

impl Refusal {
    pub fn new(trouble: Trouble, message: impl Into<String>) -> Self {
        Self {
            trouble,
            retry_after: None,
            words: Box::new(Words {
                message: message.into(),
                ..Words::default()
            }),
        }
    }

    /// A field of the request that is wrong.
    pub fn field(name: &str, value: impl fmt::Display, wrong: &str) -> Self {
        let value = shown(&value.to_string());
        let mut refusal = Self::new(Trouble::BadRequest, format!("{name}={value}: {wrong}"));
        refusal.words.field = Some(name.to_owned());
        refusal.words.value = Some(value);
        refusal
    }

    /// A field of the request that is not there.
    pub fn missing(name: &str) -> Self {
        let mut refusal = Self::new(Trouble::BadRequest, format!("{name} is missing"));
        refusal.words.field = Some(name.to_owned());
        refusal
    }

    /// The object is not there, or the caller may not see it: who asks cannot tell which, so the words are the same.
    pub fn not_found(kind: &str, namespace: &str, name: &str) -> Self {
        Self::new(
            Trouble::NotFound,
            format!("there is no {kind} {namespace}/{name} that you may see"),
        )
    }

    /// It works again in a while.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Trouble::Unavailable, message).retry_after(5)
    }

    #[must_use]
    pub fn named(mut self, field: &str) -> Self {
        self.words.field = Some(field.to_owned());
        self
    }

    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.words.remedy = Some(remedy.into());
        self
    }

    /// That the caller may not, whatever it looks like to them.
    #[must_use]
    pub fn denied(mut self) -> Self {
        self.words.denied = true;
        self
    }

    pub fn is_denial(&self) -> bool {
        self.words.denied
    }

    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        self.words.details = Some(details);
        self
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The envelope of HTTP: `error` has everything for a person, `details` the same in parts.
    pub fn envelope(&self) -> Value {
        let mut details = json!({});
        if let Some(given) = &self.words.details {
            details = given.clone();
        }
        if let Some(parts) = details.as_object_mut() {
            let named = [
                ("field", &self.words.field),
                ("value", &self.words.value),
                ("remedy", &self.words.remedy),
            ];
            for (name, part) in named {
                if let Some(part) = part {
                    parts.insert(name.to_owned(), json!(part));
                }
            }
        }
        let mut envelope = json!({"ok": false, "error": self.to_string()});
        if details.as_object().is_some_and(|parts| !parts.is_empty()) {
            envelope["details"] = details;
        }
        envelope
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words.message)?;
        match &self.words.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}

/// What the API server says is passed on, with its own words.
impl From<kube::Error> for Refusal {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from(&*status),
            error => {
                tracing::warn!(%error, "the API server did not answer");
                Self::unavailable("the Kubernetes API does not answer")
            }
        }
    }
}

impl From<&kube::core::Status> for Refusal {
    fn from(status: &kube::core::Status) -> Self {
        let trouble = match status.code {
            // A field of the wrong type in what is applied. The API server takes that for an error of its own.
            500 if status.message.starts_with(WRONG_TYPE) => Trouble::Invalid,
            400 => Trouble::BadRequest,
            401 => Trouble::Unauthenticated,
            403 => Trouble::Forbidden,
            404 => Trouble::NotFound,
            409 => Trouble::Conflict,
            413 => Trouble::TooLarge,
            415 => Trouble::UnsupportedMediaType,
            422 => Trouble::Invalid,
            429 => Trouble::TooMany,
            504 => Trouble::TimedOut,
            _ => Trouble::Unavailable,
        };
        Self::new(trouble, status.message.clone())
    }
}

/// A text as a message repeats it: in one line, and cut if it is long.
pub fn shown(text: &str) -> String {
    let mut characters = text.chars();
    let mut shown: String = characters
        .by_ref()
        .take(SHOWN_MAX)
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_names_field_value_and_remedy() {
        let refusal = Refusal::field("limit", 900, "more than 500 are not listed at once")
            .remedy("give a number from 1 to 500");
        assert_eq!(
            refusal.envelope(),
            json!({
                "ok": false,
                "error": "limit=`900`: more than 500 are not listed at once; give a number from 1 to 500",
                "details": {"field": "limit", "value": "`900`", "remedy": "give a number from 1 to 500"},
            })
        );
    }

    #[test]
    fn a_long_value_of_several_lines_is_cut_to_one() {
        let text = shown(&"a\n".repeat(200));
        assert!(!text.contains('\n') && text.ends_with("…`"), "{text}");
    }
}
