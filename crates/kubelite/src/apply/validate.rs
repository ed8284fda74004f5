//! Whether an applied object fits its schema, as far as apply depends on it. The full validation comes after the merge.
//!
//! The wording is that of Kubernetes, including its way of printing values.

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
};

use serde_json::{Map, Value};

use super::{
    path::PathElement,
    shape::{Items, Kind, ListShape, MapShape, Scalar, Shape},
};

/// How many misfits are reported, and with how much text. Each repeats the path to it and the value there, so that
/// without a bound a small object with long names could ask for a huge answer.
const MAX_MISFITS: usize = 32;
const MAX_MISFIT_TEXT: usize = 1 << 20;

/// One place where an object does not fit its schema.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Misfit {
    path: String,
    message: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Every place where the object does not fit, up to a bound.
pub(super) fn misfits(shape: Shape<'_>, value: &Value) -> Vec<Misfit> {
    let mut check = Check::default();
    check.value(shape, value, Place::Root);
    check.found
}

/// The way to a value, printed only when something is wrong there.
#[derive(Clone, Copy)]
enum Place<'p> {
    Root,
    Below(&'p Place<'p>, &'p PathElement<'p>),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Below(parent, element) => write!(f, "{parent}{element}"),
        }
    }
}

#[derive(Default)]
struct Check {
    found: Vec<Misfit>,
    text: usize,
}

impl Check {
    fn is_full(&self) -> bool {
        self.found.len() >= MAX_MISFITS || self.text >= MAX_MISFIT_TEXT
    }

    fn report(&mut self, place: Place<'_>, message: String) {
        if !self.is_full() {
            let path = place.to_string();
            self.text += path.len() + message.len();
            self.found.push(Misfit { path, message });
        }
    }

    fn value(&mut self, shape: Shape<'_>, value: &Value, place: Place<'_>) {
        if value.is_null() || shape.accepts_anything() || self.is_full() {
            return;
        }
        match (shape.kind_of(value), value) {
            (Kind::Scalar(scalar), _) => self.scalar(scalar, value, place),
            (Kind::Map(map), Value::Object(members)) => self.members(map, members, place),
            (Kind::List(list), Value::Array(items)) => self.items(list, items, place),
            (Kind::Map(_), _) => self.report(place, format!("expected map, got &{{{}}}", Plain(value))),
            (Kind::List(_), _) => self.report(place, format!("expected list, got &{{{}}}", Plain(value))),
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value, place: Place<'_>) {
        let message = match (scalar, value) {
            (Scalar::Numeric, Value::Number(_))
            | (Scalar::String, Value::String(_))
            | (Scalar::Boolean, Value::Bool(_))
            | (Scalar::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => return,
            (Scalar::Numeric, _) => format!("expected numeric (int or float), got {}", type_name(value)),
            (Scalar::String, _) => {
                format!(
                    "expected string, got &value.valueUnstructured{{Value:{}}}",
                    Source(value)
                )
            }
            (Scalar::Boolean, _) => format!("expected boolean, got &{{{}}}", Plain(value)),
            (Scalar::Any, _) => format!("expected any scalar, got &{{{}}}", Plain(value)),
        };
        self.report(place, message);
    }

    fn members(&mut self, map: MapShape<'_>, members: &Map<String, Value>, place: Place<'_>) {
        for (name, value) in members {
            let element = PathElement::Field(name);
            let below = Place::Below(&place, &element);
            match map.named(name).or_else(|| map.others()) {
                Some(shape) => self.value(shape, value, below),
                None => self.report(below, "field not declared in schema".to_owned()),
            }
        }
    }

    fn items(&mut self, list: ListShape<'_>, items: &[Value], place: Place<'_>) {
        if list.items == Items::Atomic {
            for (position, item) in items.iter().enumerate() {
                let element = PathElement::Index(i64::try_from(position).unwrap_or(i64::MAX));
                self.value(list.item, item, Place::Below(&place, &element));
            }
            return;
        }
        let mut seen = BTreeSet::new();
        for (position, item) in items.iter().enumerate() {
            let name = match list.name_item(item) {
                Ok(name) => name,
                Err(error) => return self.report(place, format!("element {position}: {error}")),
            };
            self.value(list.item, item, Place::Below(&place, &name));
            if seen.contains(&name) {
                self.report(place, format!("duplicate entries for key {name}"));
            } else {
                seen.insert(name);
            }
        }
    }
}

/// The Go type that a JSON value is read into.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go prints it for people (`%v`).
struct Plain<'a>(&'a Value);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::String(text) => f.write_str(text),
            Value::Bool(_) | Value::Number(_) => write!(f, "{}", self.0),
            Value::Array(items) => {
                f.write_char('[')?;
                for (position, item) in items.iter().enumerate() {
                    write!(f, "{}{}", if position == 0 { "" } else { " " }, Plain(item))?;
                }
                f.write_char(']')
            }
            Value::Object(members) => {
                f.write_str("map[")?;
                for (position, (name, value)) in members.iter().enumerate() {
                    write!(
                        f,
                        "{}{name}:{}",
                        if position == 0 { "" } else { " " },
                        Plain(value)
                    )?;
                }
                f.write_char(']')
            }
        }
    }
}

/// A value as Go prints it as source text (`%#v`).
struct Source<'a>(&'a Value);

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("interface {}(nil)"),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => write!(f, "{}", self.0),
            Value::Array(items) => {
                f.write_str("[]interface {}{")?;
                for (position, item) in items.iter().enumerate() {
                    write!(f, "{}{}", if position == 0 { "" } else { ", " }, Source(item))?;
                }
                f.write_char('}')
            }
            Value::Object(members) => {
                f.write_str("map[string]interface {}{")?;
                for (position, (name, value)) in members.iter().enumerate() {
                    write!(
                        f,
                        "{}{name:?}:{}",
                        if position == 0 { "" } else { ", " },
                        Source(value)
                    )?;
                }
                f.write_char('}')
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_print_as_go_prints_them() {
        let value = json!({"b": [1, "x", null, {}], "a": true});
        assert_eq!(Plain(&value).to_string(), "map[a:true b:[1 x <nil> map[]]]");
        let source = r#"map[string]interface {}{"a":true, "b":[]interface {}{1, "x", interface {}(nil), map[string]interface {}{}}}"#;
        assert_eq!(Source(&value).to_string(), source);
        let names = [json!("x"), json!(1), json!(1.5), json!([]), json!({})];
        let names: Vec<_> = names.iter().map(type_name).collect();
        assert_eq!(
            names,
            [
                "string",
                "int64",
                "float64",
                "[]interface {}",
                "map[string]interface {}"
            ]
        );
    }
}
