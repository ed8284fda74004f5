//! How a JSON value becomes a cell of a printer column.

use jiff::Timestamp;
use serde_json::{Number, Value};

use crate::table::age;

/// The type of a printer column, as far as its cells depend on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CellType {
    Integer,
    Number,
    String,
    Boolean,
    Date,
    /// Any other word; its cells are empty.
    Unknown,
}

impl CellType {
    pub fn of(name: &str) -> Self {
        match name {
            "integer" => Self::Integer,
            "number" => Self::Number,
            "string" => Self::String,
            "boolean" => Self::Boolean,
            "date" => Self::Date,
            _ => Self::Unknown,
        }
    }

    /// The cell for what a column's path selected. A value of another type than the column's gives an empty cell.
    pub fn cell(self, found: Option<&Value>, now: Timestamp) -> Value {
        let Some(value) = found else { return Value::Null };
        match (self, value) {
            (Self::String, value) => Value::String(print(value)),
            (Self::Boolean, Value::Bool(_)) => value.clone(),
            (Self::Integer, Value::Number(number)) => whole(number).map_or(Value::Null, Value::Number),
            (Self::Number, Value::Number(number)) => Value::Number(shortest(number)),
            (Self::Date, Value::String(text)) => Value::String(date(text, now)),
            _ => Value::Null,
        }
    }
}

/// Any value in a column of strings: text as it is, lists and objects as JSON.
fn print(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::Bool(_) => value.to_string(),
        Value::Number(number) => shortest(number).to_string(),
        Value::String(text) => text.clone(),
        // Go escapes these characters in JSON, which outside of strings never occur.
        Value::Array(_) | Value::Object(_) => value
            .to_string()
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026"),
    }
}

fn date(text: &str, now: Timestamp) -> String {
    match text {
        "" | "null" => "<unknown>".to_owned(),
        text => text
            .parse::<Timestamp>()
            .map_or_else(|_| "<invalid>".to_owned(), |moment| age::since(moment, now)),
    }
}

/// The number without its fraction.
fn whole(number: &Number) -> Option<Number> {
    if number.is_f64() {
        number.as_f64().and_then(|float| integer(float.trunc()))
    } else {
        Some(number.clone())
    }
}

/// Go prints a fraction of zero as the whole number that it is.
fn shortest(number: &Number) -> Number {
    number
        .as_f64()
        .filter(|float| number.is_f64() && float.fract() == 0.0)
        .and_then(integer)
        .unwrap_or_else(|| number.clone())
}

fn integer(float: f64) -> Option<Number> {
    /// Up to here every whole number has a float of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the bound keeps the float within i64"
    )]
    (float.abs() <= EXACT).then(|| Number::from(float as i64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_follow_the_type_of_their_column() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().expect("a time");
        for (type_, value, cell) in [
            ("string", json!("text"), json!("text")),
            ("string", json!(5), json!("5")),
            ("string", json!(5.0), json!("5")),
            ("string", json!(5.25), json!("5.25")),
            ("string", json!(true), json!("true")),
            ("string", json!(null), json!("<no value>")),
            ("string", json!(["a", 1]), json!("[\"a\",1]")),
            (
                "string",
                json!({"a": "<&>"}),
                json!("{\"a\":\"\\u003c\\u0026\\u003e\"}"),
            ),
            ("integer", json!(5), json!(5)),
            ("integer", json!(5.9), json!(5)),
            ("integer", json!(-5.9), json!(-5)),
            ("integer", json!(1e300), json!(null)),
            ("integer", json!("5"), json!(null)),
            ("number", json!(5), json!(5)),
            ("number", json!(5.5), json!(5.5)),
            ("number", json!(true), json!(null)),
            ("boolean", json!(true), json!(true)),
            ("boolean", json!("true"), json!(null)),
            ("date", json!("2026-01-01T00:00:00Z"), json!("60m")),
            ("date", json!("2026-01-01T01:00:00.123456Z"), json!("0s")),
            ("date", json!("2026-01-02T00:00:00Z"), json!("<invalid>")),
            ("date", json!("yesterday"), json!("<invalid>")),
            ("date", json!(""), json!("<unknown>")),
            ("date", json!(5), json!(null)),
            ("colour", json!("red"), json!(null)),
        ] {
            assert_eq!(
                CellType::of(type_).cell(Some(&value), now),
                cell,
                "{type_} {value}"
            );
            assert_eq!(CellType::of(type_).cell(None, now), Value::Null);
        }
    }
}
