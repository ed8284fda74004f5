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
        if self.0.is_empty() {
            Self(name.to_owned())
        } else {
            Self(format!("{}.{name}", self.0))
        }
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
    /// An object or list that is wrong as a whole: it would drown the message, so it is not printed.
    InvalidOmitted,
    /// A value of another type than the schema's.
    TypeInvalid(Value),
    /// The value and the ones that are allowed.
    NotSupported(Value, Vec<String>),
    Duplicate(Value),
    /// As `InvalidOmitted`.
    DuplicateOmitted,
    Forbidden,
    TooLong {
        max_bytes: u64,
    },
    TooMany {
        actual: usize,
        max: u64,
    },
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
        Self {
            path,
            problem,
            detail: detail.into(),
        }
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
            Problem::Invalid(_) | Problem::InvalidOmitted => "FieldValueInvalid",
            Problem::TypeInvalid(_) => "FieldValueTypeInvalid",
            Problem::NotSupported(..) => "FieldValueNotSupported",
            Problem::Duplicate(_) | Problem::DuplicateOmitted => "FieldValueDuplicate",
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
            Problem::InvalidOmitted => "Invalid value".to_owned(),
            Problem::DuplicateOmitted => "Duplicate value".to_owned(),
            Problem::NotSupported(value, _) => format!("Unsupported value: {}", go_value(value)),
            Problem::Duplicate(value) => format!("Duplicate value: {}", go_value(value)),
            Problem::NotFound(value) => format!("Not found: {}", go_value(value)),
            Problem::Forbidden => "Forbidden".to_owned(),
            Problem::TooLong { max_bytes } => {
                let unit = if *max_bytes == 1 { "byte" } else { "bytes" };
                return format!("Too long: may not be more than {max_bytes} {unit}");
            }
            Problem::TooMany { actual, max } => {
                let unit = if *max == 1 { "item" } else { "items" };
                return format!("Too many: {actual}: must have at most {max} {unit}");
            }
        };
        if let Problem::NotSupported(_, allowed) = &self.problem {
            if !allowed.is_empty() {
                let quoted: Vec<String> = allowed.iter().map(|value| go_quoted(value)).collect();
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
        Cause {
            reason: self.reason().to_owned(),
            message: self.body(),
            field: self.path.to_string(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

/// A JSON value as Go's field errors print it: scalars as `%v` or `%q` would, objects and lists as JSON.
fn go_value(value: &Value) -> String {
    match value {
        Value::String(text) => go_quoted(text),
        Value::Number(number) if !number.is_i64() => number.as_f64().map(go_float).unwrap_or_default(),
        _ => value.to_string(),
    }
}

/// A string as `%q` prints it.
pub fn go_quoted(text: &str) -> String {
    use std::fmt::Write as _;

    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        // Writing into a string cannot fail.
        let _ = match char {
            '"' | '\\' => write!(out, "\\{char}"),
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            '\u{7}' => write!(out, "\\a"),
            '\u{8}' => write!(out, "\\b"),
            '\u{b}' => write!(out, "\\v"),
            '\u{c}' => write!(out, "\\f"),
            char if char.is_control() && u32::from(char) < 0x80 => write!(out, "\\x{:02x}", u32::from(char)),
            char if char.is_control() => write!(out, "\\u{:04x}", u32::from(char)),
            char => write!(out, "{char}"),
        };
    }
    out.push('"');
    out
}

/// A float as `%v` prints it: with an exponent from 1e+06 up and below 0.0001.
pub fn go_float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if number == 0.0 || (-4..6).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// The type of a JSON value as Go's decoder names it in its errors.
pub(crate) fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_go() {
        let table = [
            (0.0, "0"),
            (1.0, "1"),
            (12.5, "12.5"),
            (100_000.5, "100000.5"),
            (1e6, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (1e21, "1e+21"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
        ];
        for (number, expected) in table {
            assert_eq!(go_float(number), expected);
        }
    }

    #[test]
    fn strings_are_quoted_as_in_go() {
        assert_eq!(go_quoted("a\"b\\\n\u{1}é<"), r#""a\"b\\\n\x01é<""#);
    }
}
