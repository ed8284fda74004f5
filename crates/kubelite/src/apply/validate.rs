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

/// How many misfits are reported. Each repeats the path to it, so that without a bound a small object with long names
/// could ask for a huge answer.
const MAX_MISFITS: usize = 32;

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
    let mut check = Check {
        path: String::new(),
        found: Vec::new(),
    };
    check.value(shape, value);
    check.found
}

struct Check {
    path: String,
    found: Vec<Misfit>,
}

impl Check {
    fn report(&mut self, message: String) {
        if self.found.len() < MAX_MISFITS {
            self.found.push(Misfit {
                path: self.path.clone(),
                message,
            });
        }
    }

    fn at(&mut self, element: &PathElement<'_>, check: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        // Writing to a string cannot fail.
        let _ = write!(self.path, "{element}");
        check(self);
        self.path.truncate(length);
    }

    fn value(&mut self, shape: Shape<'_>, value: &Value) {
        if value.is_null() || shape.accepts_anything() || self.found.len() >= MAX_MISFITS {
            return;
        }
        match (shape.kind_of(value), value) {
            (Kind::Scalar(scalar), _) => self.scalar(scalar, value),
            (Kind::Map(map), Value::Object(members)) => self.members(map, members),
            (Kind::List(list), Value::Array(items)) => self.items(list, items),
            (Kind::Map(_), _) => self.report(format!("expected map, got &{{{}}}", Plain(value))),
            (Kind::List(_), _) => self.report(format!("expected list, got &{{{}}}", Plain(value))),
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value) {
        match (scalar, value) {
            (Scalar::Numeric, Value::Number(_))
            | (Scalar::String, Value::String(_))
            | (Scalar::Boolean, Value::Bool(_))
            | (Scalar::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => {}
            (Scalar::Numeric, _) => {
                self.report(format!(
                    "expected numeric (int or float), got {}",
                    type_name(value)
                ));
            }
            (Scalar::String, _) => {
                let printed = Source(value);
                self.report(format!(
                    "expected string, got &value.valueUnstructured{{Value:{printed}}}"
                ));
            }
            (Scalar::Boolean, _) => self.report(format!("expected boolean, got &{{{}}}", Plain(value))),
            (Scalar::Any, _) => self.report(format!("expected any scalar, got &{{{}}}", Plain(value))),
        }
    }

    fn members(&mut self, map: MapShape<'_>, members: &Map<String, Value>) {
        for (name, value) in members {
            let shape = map.named(name).or_else(|| map.others());
            self.at(&PathElement::Field(name), |check| match shape {
                Some(shape) => check.value(shape, value),
                None => check.report("field not declared in schema".to_owned()),
            });
        }
    }

    fn items(&mut self, list: ListShape<'_>, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (position, item) in items.iter().enumerate() {
            let name = if list.items == Items::Atomic {
                PathElement::Index(i64::try_from(position).unwrap_or(i64::MAX))
            } else {
                match list.name_item(item) {
                    Ok(name) => name,
                    Err(error) => return self.report(format!("element {position}: {error}")),
                }
            };
            self.at(&name, |check| check.value(list.item, item));
            if seen.contains(&name) {
                self.report(format!("duplicate entries for key {name}"));
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
