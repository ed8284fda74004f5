//! Paths to fields and what can be wrong with a field, worded as `k8s.io/apimachinery/pkg/util/validation/field` words it.

use std::fmt;

use serde_json::Value;

use crate::error::Cause;

/// A path such as `spec.steps[2].name` or `metadata.labels[app]`. Cheap to extend, printed only when something is wrong.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FieldPath(String);

impl FieldPath {
    pub fn root() -> Self {
        Self::default()
    }

    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{}.{name}", self.0)) }
    }

    #[must_use]
    pub fn index(&self, position: usize) -> Self {
        Self(format!("{}[{position}]", self.0))
    }

    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Kubernetes names the whole object this way in its messages.
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    Required,
    Invalid(Value),
    /// Invalid together with other fields, so that its own value explains nothing and is left out of the message.
    Inconsistent,
    /// A value of another type than the schema's.
    TypeInvalid(Value),
    /// The value and the ones that are allowed.
    NotSupported(Value, Vec<String>),
    Duplicate(Value),
    Forbidden,
    TooLong { max_bytes: u64 },
    TooMany { actual: usize, max: u64 },
    NotFound(Value),
}

/// One wrong field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub path: FieldPath,
    pub problem: Problem,
    pub detail: String,
}

impl FieldError {
    pub fn new(path: FieldPath, problem: Problem, detail: impl Into<String>) -> Self {
        Self { path, problem, detail: detail.into() }
    }

    pub fn required(path: FieldPath, detail: impl Into<String>) -> Self {
        Self::new(path, Problem::Required, detail)
    }

    pub fn invalid(path: FieldPath, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(path, Problem::Invalid(value.into()), detail)
    }

    pub fn forbidden(path: FieldPath, detail: impl Into<String>) -> Self {
        Self::new(path, Problem::Forbidden, detail)
    }

    fn reason(&self) -> &'static str {
        match self.problem {
            Problem::Required => "FieldValueRequired",
            Problem::Invalid(_) | Problem::Inconsistent => "FieldValueInvalid",
            Problem::TypeInvalid(_) => "FieldValueTypeInvalid",
            Problem::NotSupported(..) => "FieldValueNotSupported",
            Problem::Duplicate(_) => "FieldValueDuplicate",
            Problem::Forbidden => "FieldValueForbidden",
            Problem::TooLong { .. } => "FieldValueTooLong",
            Problem::TooMany { .. } => "FieldValueTooMany",
            Problem::NotFound(_) => "FieldValueNotFound",
        }
    }

    /// The message without the path, as `details.causes[].message` carries it.
    pub fn body(&self) -> String {
        let mut text = match &self.problem {
            Problem::Required => "Required value".to_owned(),
            Problem::Invalid(value) | Problem::TypeInvalid(value) => {
                format!("Invalid value: {}", go_value(value))
            }
            Problem::Inconsistent => "Invalid value".to_owned(),
            Problem::NotSupported(value, _) => format!("Unsupported value: {}", go_value(value)),
            Problem::Duplicate(value) => format!("Duplicate value: {}", go_value(value)),
            Problem::NotFound(value) => format!("Not found: {}", go_value(value)),
            Problem::Forbidden => "Forbidden".to_owned(),
            Problem::TooLong { max_bytes } => {
                return format!("Too long: may not be more than {max_bytes} bytes");
            }
            Problem::TooMany { actual, max } => {
                return format!("Too many: {actual}: must have at most {max} items");
            }
        };
        if let Problem::NotSupported(_, allowed) = &self.problem {
            if !allowed.is_empty() {
                let quoted: Vec<String> = allowed.iter().map(|value| format!("\"{value}\"")).collect();
                text.push_str(": supported values: ");
                text.push_str(&quoted.join(", "));
            }
            return text;
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    pub fn cause(&self) -> Cause {
        Cause { reason: self.reason().to_owned(), message: self.body(), field: self.path.to_string() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

/// A JSON value as Go's field errors print it: strings quoted, objects and lists as JSON.
fn go_value(value: &Value) -> String {
    value.to_string()
}
