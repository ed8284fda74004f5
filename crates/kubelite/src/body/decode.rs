//! JSON and YAML into `serde_json::Value`, noting duplicate fields and bounding what YAML aliases may unfold to.

use std::{
    cell::{Cell, RefCell},
    fmt,
};

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value, map::Entry};

use super::{MAX_BODY_BYTES, go_json_message};
use crate::negotiate::BodyFormat;

/// Go reports no more strict errors than this either.
const MAX_DUPLICATES: usize = 100;
/// Deep enough for any manifest in use, and the YAML parser's recursion still leaves room on the stack of a worker thread,
/// even in an unoptimised build (some 25 KiB a level). serde_json's own limit is 128.
const MAX_YAML_DEPTH: usize = 50;
/// A JSON body of the permitted size has at most half as many nodes as bytes.
const MAX_YAML_NODES: usize = MAX_BODY_BYTES / 2;
/// What a body may unfold to: its text, plus a charge for each node. Hardly a node is written in less than two bytes, so
/// only aliases can exceed it.
const MAX_UNFOLDED_BYTES: usize = 4 * MAX_BODY_BYTES;
const NODE_CHARGE: usize = 2;
/// How many parser events all aliases together may repeat; a manifest has some hundreds in all.
const MAX_REPLAYED_EVENTS: usize = 100_000;

/// The formats that become a `Value`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    Json,
    Yaml,
}

impl Format {
    /// `None` for protobuf, which only the review kinds read, on their own.
    pub fn of(format: BodyFormat) -> Option<Self> {
        match format {
            BodyFormat::Json => Some(Self::Json),
            BodyFormat::Yaml => Some(Self::Yaml),
            BodyFormat::Protobuf => None,
        }
    }
}

/// A decoded body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// Paths of the fields that were given more than once (`spec.items[2].name`); the last one given counts.
    pub duplicates: Vec<String>,
}

/// Why a body could not be decoded, in the words of Go's decoders as far as they can be had.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecodeError {
    #[error("{0}")]
    Json(String),
    #[error("yaml: {0}")]
    Yaml(String),
}

pub fn decode(bytes: &[u8], format: Format) -> Result<Decoded, DecodeError> {
    let json = || serde_json::from_slice::<Decoded>(bytes);
    match format {
        Format::Json => json().map_err(|error| DecodeError::Json(go_json_message(&error, bytes))),
        Format::Yaml => {
            // Clients send JSON under the name of YAML, which it is, and JSON is read many times faster.
            if bytes.trim_ascii_start().first() == Some(&b'{')
                && let Ok(decoded) = json()
            {
                return Ok(decoded);
            }
            yaml(bytes)
        }
    }
}

fn yaml(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let fail = |why: &dyn fmt::Display| DecodeError::Yaml(why.to_string());
    let text = std::str::from_utf8(bytes).map_err(|error| fail(&error))?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_YAML_DEPTH,
            max_nodes: MAX_YAML_NODES,
            max_documents: 1,
        },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPLAYED_EVENTS },
        // `mode: 0644` means 420 in Kubernetes, as it did in YAML 1.1.
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| fail(&error))
}

impl<'de> Deserialize<'de> for Decoded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let state = State {
            duplicates: RefCell::default(),
            left: Cell::new(MAX_UNFOLDED_BYTES),
        };
        let value = Node {
            path: None,
            state: &state,
        }
        .deserialize(deserializer)?;
        Ok(Self {
            value,
            duplicates: state.duplicates.into_inner(),
        })
    }
}

struct State {
    duplicates: RefCell<Vec<String>>,
    /// What is left of `MAX_UNFOLDED_BYTES`.
    left: Cell<usize>,
}

impl State {
    fn charge<E: de::Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self
            .left
            .get()
            .checked_sub(bytes + NODE_CHARGE)
            .ok_or_else(|| E::custom("document contains excessive aliasing"))?;
        self.left.set(left);
        Ok(())
    }

    fn duplicate(&self, parent: Option<&Path<'_>>, key: &str) {
        let mut path = parent.map(ToString::to_string).unwrap_or_default();
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
        let mut duplicates = self.duplicates.borrow_mut();
        if duplicates.len() < MAX_DUPLICATES && !duplicates.contains(&path) {
            duplicates.push(path);
        }
    }
}

/// Where a node is. It lives on the stack and becomes text only for a duplicate.
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Key(key) if self.parent.is_some() => write!(f, ".{key}"),
            Step::Key(key) => f.write_str(key),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

#[derive(Clone, Copy)]
struct Node<'a> {
    path: Option<&'a Path<'a>>,
    state: &'a State,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        self.state.charge(0)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        self.state.charge(0)?;
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        self.state.charge(0)?;
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        self.state.charge(0)?;
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("json: unsupported value: NaN or infinity"))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        self.state.charge(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        self.state.charge(value.len())?;
        Ok(Value::String(value))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        self.state.charge(0)?;
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.state.charge(0)?;
        let mut items = Vec::new();
        loop {
            let path = Path {
                parent: self.path,
                step: Step::Index(items.len()),
            };
            match access.next_element_seed(Node {
                path: Some(&path),
                state: self.state,
            })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.state.charge(0)?;
        let mut object = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            self.state.charge(key.len())?;
            let path = Path {
                parent: self.path,
                step: Step::Key(&key),
            };
            let value = access.next_value_seed(Node {
                path: Some(&path),
                state: self.state,
            })?;
            match object.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    self.state.duplicate(self.path, entry.key());
                    entry.insert(value);
                }
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn json(text: &str) -> Result<Decoded, DecodeError> {
        decode(text.as_bytes(), Format::Json)
    }

    fn yaml(text: &str) -> Result<Decoded, DecodeError> {
        decode(text.as_bytes(), Format::Yaml)
    }

    #[test]
    fn duplicate_fields_are_named_and_the_last_one_counts() {
        let decoded = json(r#"{"a":1,"b":{"c":[0,{"d":1,"d":2,"d":3}]},"a":4}"#).unwrap();
        assert_eq!(decoded.value, json!({ "a": 4, "b": { "c": [0, { "d": 3 }] } }));
        assert_eq!(decoded.duplicates, ["b.c[1].d", "a"]);
        let decoded = yaml("a: 1\nb:\n  c: 1\n  c: 2\n").unwrap();
        assert_eq!(decoded.value, json!({ "a": 1, "b": { "c": 2 } }));
        assert_eq!(decoded.duplicates, ["b.c"]);
    }

    #[test]
    fn yaml_means_what_it_means_to_kubernetes() {
        let cases = [
            ("a: 0644", json!({ "a": 420 })),
            ("a: yes", json!({ "a": true })),
            ("a: \"yes\"", json!({ "a": "yes" })),
            (
                "a: 1.5\nb: 3\nc: ~\nd:",
                json!({ "a": 1.5, "b": 3, "c": null, "d": null }),
            ),
            ("a: &x {b: 1}\nc: *x", json!({ "a": { "b": 1 }, "c": { "b": 1 } })),
            (
                "a: &x {b: 1}\nc:\n  <<: *x\n  d: 2",
                json!({ "a": { "b": 1 }, "c": { "b": 1, "d": 2 } }),
            ),
            ("1: a\ntrue: b", json!({ "1": "a", "true": "b" })),
            ("{\"a\": [1, 2]}", json!({ "a": [1, 2] })),
            ("a: |\n  x\n  y\n", json!({ "a": "x\ny\n" })),
            ("", json!(null)),
        ];
        for (text, expected) in cases {
            assert_eq!(yaml(text).map(|decoded| decoded.value), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_yaml_is_refused() {
        for text in ["a: [", "a: b: c", "a: .nan", "a: 1\n---\nb: 2"] {
            assert!(yaml(text).is_err(), "{text}");
        }
        assert!(decode(b"\xff\xfe", Format::Yaml).is_err());
    }

    #[test]
    fn nesting_is_bounded_in_both_formats() {
        let nested = |depth: usize| format!("{{\"a\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(json(&nested(126)).is_ok());
        assert!(json(&nested(100_000)).is_err());
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(yaml(&nested(MAX_YAML_DEPTH)).is_ok());
        assert!(yaml(&nested(100_000)).is_err());
        let blocks =
            |depth: usize| (0..depth).fold(String::new(), |text, level| text + &" ".repeat(level) + "a:\n");
        assert!(yaml(&blocks(1_000)).is_err());
    }

    #[test]
    fn aliases_cannot_unfold_without_end() {
        let level = |level: usize| {
            let item = format!("*a{}", level - 1);
            format!("a{level}: &a{level} [{}]\n", [item.as_str(); 10].join(", "))
        };
        let bomb = format!("a0: &a0 [{}]\n", ["x"; 10].join(", ")) + &(1..9).map(level).collect::<String>();
        assert!(yaml(&bomb).is_err());
        // Few aliases to one long text.
        let long = format!(
            "a: &a {}\nb: [{}]\n",
            "x".repeat(1024 * 1024),
            ["*a"; 90].join(", ")
        );
        let error = yaml(&long).unwrap_err().to_string();
        assert!(error.contains("excessive aliasing"), "{error}");
    }

    proptest! {
        #[test]
        fn json_decodes_as_serde_json_does(text in "[\\[\\]{}:,\"ab\\\\ \n0-9.e-]{0,40}") {
            let expected = serde_json::from_str::<Value>(&text).ok();
            prop_assert_eq!(json(&text).ok().map(|decoded| decoded.value), expected);
        }

        #[test]
        fn no_yaml_panics(text in "[\\[\\]{}:,\"a\\\\ \n*&!|>#%@0-9.-]{0,60}") {
            let _ = yaml(&text);
        }
    }
}
