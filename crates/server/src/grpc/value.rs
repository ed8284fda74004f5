//! Structured values of protobuf as JSON.

use prost_types::value::Kind;
use serde_json::{Map, Number, Value};

/// Values within values; what is deeper is left out, as nobody writes it by hand and a stack has an end.
const DEPTH_MAX: usize = 32;

/// A value as JSON. Whole numbers stay whole: protobuf knows one kind of number only.
pub(super) fn json(value: prost_types::Value) -> Value {
    at_depth(value, 0)
}

fn at_depth(value: prost_types::Value, depth: usize) -> Value {
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(truth)) => Value::Bool(truth),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::NumberValue(number)) => self::number(number),
        Some(Kind::ListValue(list)) => {
            let entries = list.values.into_iter().map(|entry| at_depth(entry, depth + 1));
            Value::Array(entries.collect())
        }
        Some(Kind::StructValue(object)) => {
            let fields = object
                .fields
                .into_iter()
                .map(|(name, value)| (name, at_depth(value, depth + 1)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
    }
}

fn number(number: f64) -> Value {
    // A float holds whole numbers exactly up to this one.
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= WHOLE_MAX {
        // It is whole and in range, so its digits are those of an integer.
        if let Ok(whole) = format!("{number:.0}").parse::<i64>() {
            return Value::Number(whole.into());
        }
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use prost_types::{ListValue, Struct};
    use serde_json::json as expected;

    use super::*;

    fn value(kind: Kind) -> prost_types::Value {
        prost_types::Value { kind: Some(kind) }
    }

    #[test]
    fn a_structured_value_keeps_its_shape() {
        let constraint = Struct {
            fields: [
                ("maxSkew".to_owned(), value(Kind::NumberValue(1.0))),
                (
                    "topologyKey".to_owned(),
                    value(Kind::StringValue("zone".to_owned())),
                ),
                ("share".to_owned(), value(Kind::NumberValue(0.5))),
                ("strict".to_owned(), value(Kind::BoolValue(true))),
            ]
            .into(),
        };
        let list = ListValue {
            values: vec![value(Kind::StructValue(constraint))],
        };
        assert_eq!(
            json(value(Kind::ListValue(list))),
            expected!([{"maxSkew": 1, "topologyKey": "zone", "share": 0.5, "strict": true}])
        );
        assert_eq!(json(value(Kind::NumberValue(f64::NAN))), Value::Null);
    }
}
