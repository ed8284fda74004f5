//! Reads the few fields that we need of an answer, and escapes what goes into a path.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::error::ForgeError;

/// What may stand in a path or a query as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// One part of a path, with its slashes escaped.
pub(crate) fn part(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// One value of a query.
pub(crate) fn query(text: &str) -> String {
    part(text)
}

/// The text at a place, or none: of what may be gone by the time somebody asks.
pub(crate) fn text_or_none(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// An answer, and what was asked.
pub(crate) struct Answer<'a> {
    method: &'static str,
    path: &'a str,
    value: Value,
}

impl<'a> Answer<'a> {
    pub(crate) const fn new(method: &'static str, path: &'a str, value: Value) -> Self {
        Self { method, path, value }
    }

    pub(crate) fn text(&self, pointer: &str) -> Result<String, ForgeError> {
        let text = self.value.pointer(pointer).and_then(Value::as_str);
        text.map(str::to_owned)
            .ok_or_else(|| self.lacks(pointer, "a text"))
    }

    pub(crate) fn number(&self, pointer: &str) -> Result<u64, ForgeError> {
        let number = self.value.pointer(pointer).and_then(Value::as_u64);
        number.ok_or_else(|| self.lacks(pointer, "a number"))
    }

    pub(crate) fn count(&self, pointer: &str) -> Result<u32, ForgeError> {
        Ok(u32::try_from(self.number(pointer)?).unwrap_or(u32::MAX))
    }

    pub(crate) fn list(&self, pointer: &str) -> Result<&Vec<Value>, ForgeError> {
        let list = self.value.pointer(pointer).and_then(Value::as_array);
        list.ok_or_else(|| self.lacks(pointer, "a list"))
    }

    pub(crate) fn has(&self, pointer: &str) -> bool {
        self.value.pointer(pointer).is_some_and(|value| !value.is_null())
    }

    fn lacks(&self, pointer: &str, what: &str) -> ForgeError {
        let field = if pointer.is_empty() {
            "the whole answer"
        } else {
            pointer
        };
        ForgeError::Unexpected {
            method: self.method.to_owned(),
            path: self.path.split('?').next().unwrap_or(self.path).to_owned(),
            problem: format!("{field} is not {what}"),
        }
    }
}
