//! Collecting what is wrong with an object.

use serde_json::Value;

use crate::field::{FieldError, FieldPath, Problem};

pub(super) const IMMUTABLE: &str = "field is immutable";
pub(super) const NEGATIVE: &str = "must be greater than or equal to 0";
pub(super) const NOT_POSITIVE: &str = "must be greater than zero";

/// The wrong fields of one object, in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Errors(pub Vec<FieldError>);

impl Errors {
    pub(super) fn required(&mut self, path: FieldPath, detail: impl Into<String>) {
        self.0.push(FieldError::required(path, detail));
    }

    pub(super) fn invalid(&mut self, path: FieldPath, value: impl Into<Value>, detail: impl Into<String>) {
        self.0.push(FieldError::invalid(path, value, detail));
    }

    /// Invalid, without the value: it would be long and say nothing.
    pub(super) fn inconsistent(&mut self, path: FieldPath, detail: impl Into<String>) {
        self.0
            .push(FieldError::new(path, Problem::InvalidOmitted, detail));
    }

    pub(super) fn forbidden(&mut self, path: FieldPath, detail: impl Into<String>) {
        self.0.push(FieldError::forbidden(path, detail));
    }

    pub(super) fn duplicate(&mut self, path: FieldPath, value: impl Into<Value>) {
        self.0
            .push(FieldError::new(path, Problem::Duplicate(value.into()), ""));
    }

    pub(super) fn not_found(&mut self, path: FieldPath, value: impl Into<Value>) {
        self.0
            .push(FieldError::new(path, Problem::NotFound(value.into()), ""));
    }

    pub(super) fn too_long(&mut self, path: FieldPath, max_bytes: u64) {
        self.0
            .push(FieldError::new(path, Problem::TooLong { max_bytes }, ""));
    }

    pub(super) fn too_many(&mut self, path: FieldPath, actual: usize, max: u64) {
        self.0
            .push(FieldError::new(path, Problem::TooMany { actual, max }, ""));
    }

    pub(super) fn not_supported(&mut self, path: FieldPath, value: impl Into<Value>, allowed: &[&str]) {
        let allowed = allowed.iter().map(|one| (*one).to_owned()).collect();
        self.0.push(FieldError::new(
            path,
            Problem::NotSupported(value.into(), allowed),
            "",
        ));
    }

    /// One error for each message about a value.
    pub(super) fn messages(&mut self, path: &FieldPath, value: &str, messages: Vec<String>) {
        for message in messages {
            self.invalid(path.clone(), value, message);
        }
    }

    /// A value that must be one of a few and must not be empty.
    pub(super) fn one_of(&mut self, path: FieldPath, value: &str, allowed: &[&str]) {
        if value.is_empty() {
            self.required(path, "");
        } else if !allowed.contains(&value) {
            self.not_supported(path, value, allowed);
        }
    }

    pub(super) fn not_negative(&mut self, path: FieldPath, value: Option<i64>) {
        if let Some(value) = value.filter(|value| *value < 0) {
            self.invalid(path, value, NEGATIVE);
        }
    }

    pub(super) fn unchanged(&mut self, path: FieldPath, new: Option<&Value>, old: Option<&Value>) {
        if new != old {
            self.invalid(path, new.cloned().unwrap_or_default(), IMMUTABLE);
        }
    }
}
