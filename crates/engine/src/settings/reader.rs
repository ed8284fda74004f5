//! How the text of one variable becomes a value.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    legal::{Rule, is_label_key, is_label_value},
    mistakes::{Wrong, shown},
    parse::Draft,
};
use crate::as_given::{AsGiven, Unfit, topology_spread_constraint};

/// How one variable is read, and where its value goes. Nothing is stored of a value that is wrong.
pub(super) enum Reader {
    Switch(fn(&mut Draft, bool)),
    Number {
        from: u32,
        to: u32,
        /// Whether zero may be given although it is below `from`.
        or_zero: bool,
        set: fn(&mut Draft, u32),
    },
    /// A number from zero, which means that there is no limit.
    Limit {
        to: u32,
        set: fn(&mut Draft, Option<u32>),
    },
    Text(Rule, fn(&mut Draft, String)),
    List(Rule, fn(&mut Draft, Vec<String>)),
    /// What has a form of its own.
    Special {
        takes: &'static str,
        read: fn(&mut Draft, &str) -> Result<(), Wrong>,
    },
}

impl Reader {
    /// Reads a text that is neither blank nor has blanks around it.
    pub(super) fn read(&self, draft: &mut Draft, text: &str) -> Result<(), Wrong> {
        match self {
            Self::Switch(set) => set(draft, switch(text)?),
            Self::Number {
                from,
                to,
                or_zero,
                set,
            } => {
                let number = whole_number(text)?;
                let in_range = (*from..=*to).contains(&number) || (*or_zero && number == 0);
                if !in_range {
                    return Err(Wrong::OutOfRange);
                }
                set(draft, number);
            }
            Self::Limit { to, set } => {
                let number = whole_number(text)?;
                if number > *to {
                    return Err(Wrong::OutOfRange);
                }
                set(draft, (number > 0).then_some(number));
            }
            Self::Text(rule, set) if rule.allows(text) => set(draft, text.to_owned()),
            Self::Text(..) => return Err(Wrong::Illegal),
            Self::List(rule, set) => set(draft, legal(words(text)?, *rule)?),
            Self::Special { read, .. } => read(draft, text)?,
        }
        Ok(())
    }
}

/// What the variable takes: the reference says it, and so does the remedy of a mistake.
impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(_) => f.write_str("`true` or `false`"),
            Self::Number {
                from,
                to,
                or_zero: false,
                ..
            } => write!(f, "a whole number from {from} to {to}"),
            Self::Number {
                from,
                to,
                or_zero: true,
                ..
            } => write!(f, "0, or a whole number from {from} to {to}"),
            Self::Limit { to, .. } => write!(f, "a whole number from 0 to {to}"),
            Self::Text(rule, _) => f.write_str(rule.one()),
            Self::List(rule, _) => write!(f, "a comma list or a JSON array of {}", rule.many()),
            Self::Special { takes, .. } => f.write_str(takes),
        }
    }
}

fn switch(text: &str) -> Result<bool, Wrong> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(Wrong::NotBoolean),
    }
}

/// Reads `2592000`, and `2.592e+06` as well: that is how Helm writes large numbers. Each u32 is a whole f64, and those are
/// printed without point and exponent.
pub(super) fn whole_number(text: &str) -> Result<u32, Wrong> {
    let number: f64 = text.parse().map_err(|_| Wrong::NotWhole)?;
    // A number of very many digits is read as infinite, and is whole all the same.
    if number.is_nan() || (number.is_finite() && number.fract() != 0.0) {
        return Err(Wrong::NotWhole);
    }
    number.to_string().parse().map_err(|_| Wrong::OutOfRange)
}

/// The words of a JSON array of strings, or those between commas.
pub(super) fn words(text: &str) -> Result<Vec<String>, Wrong> {
    entries(text, |entry| match entry {
        Value::String(word) => Ok(word),
        other => Err(type_of(&other)),
    })
}

/// The same, where an entry of the array may also be `{"name": "…"}`.
pub(super) fn named_words(text: &str) -> Result<Vec<String>, Wrong> {
    entries(text, |entry| match entry {
        Value::String(word) => Ok(word),
        Value::Object(mut fields) => match (fields.remove("name"), fields.is_empty()) {
            (Some(Value::String(name)), true) => Ok(name),
            _ => Err("an object, but not one of a `name` alone"),
        },
        other => Err(type_of(&other)),
    })
}

fn entries(text: &str, word: fn(Value) -> Result<String, &'static str>) -> Result<Vec<String>, Wrong> {
    if !text.starts_with('[') {
        return Ok(text.split(',').map(|entry| entry.trim().to_owned()).collect());
    }
    array(text)?
        .into_iter()
        .enumerate()
        .map(|(index, entry)| {
            let position = index + 1;
            word(entry).map_err(|found| Wrong::EntryType { position, found })
        })
        .collect()
}

/// The entries, if each is legal. An empty one is not: it is more likely a slip than meant.
pub(super) fn legal(entries: Vec<String>, rule: Rule) -> Result<Vec<String>, Wrong> {
    for (index, entry) in entries.iter().enumerate() {
        let position = index + 1;
        if entry.trim().is_empty() {
            return Err(Wrong::EmptyEntry { position });
        }
        if !rule.allows(entry) {
            let entry = shown(entry);
            return Err(Wrong::IllegalEntry { position, entry });
        }
    }
    Ok(entries)
}

fn json(text: &str) -> Result<Value, Wrong> {
    serde_json::from_str(text).map_err(|error| Wrong::NotJson {
        error: shown(&error.to_string()),
    })
}

fn array(text: &str) -> Result<Vec<Value>, Wrong> {
    match json(text)? {
        Value::Array(entries) => Ok(entries),
        other => Err(Wrong::JsonType {
            found: type_of(&other),
        }),
    }
}

/// A JSON object, whose values are read one by one.
pub(super) fn number_map(text: &str) -> Result<serde_json::Map<String, Value>, Wrong> {
    match json(text)? {
        Value::Object(fields) => Ok(fields),
        other => Err(Wrong::JsonType {
            found: type_of(&other),
        }),
    }
}

/// Labels that a node must have.
pub(super) fn node_selector(text: &str) -> Result<BTreeMap<String, String>, Wrong> {
    let given: Option<AsGiven<BTreeMap<String, String>>> = object(text)?;
    let selector = given.map(|given| given.typed().clone()).unwrap_or_default();
    for (key, value) in &selector {
        if !is_label_key(key) {
            return Err(Wrong::LabelKey { key: shown(key) });
        }
        if !is_label_value(value) {
            return Err(Wrong::LabelValue {
                key: shown(key),
                value: shown(value),
            });
        }
    }
    Ok(selector)
}

/// A type of Kubernetes from a JSON object. An empty object says nothing, so it is as if it were not there: Helm writes `{}`
/// for what nobody has chosen.
pub(super) fn object<T: DeserializeOwned + Serialize>(text: &str) -> Result<Option<AsGiven<T>>, Wrong> {
    match json(text)? {
        Value::Object(fields) if fields.is_empty() => Ok(None),
        given @ Value::Object(_) => AsGiven::read(&given).map(Some).map_err(|unfit| field("", unfit)),
        other => Err(Wrong::JsonType {
            found: type_of(&other),
        }),
    }
}

/// Types of Kubernetes from a JSON array.
pub(super) fn objects<T: DeserializeOwned + Serialize>(text: &str) -> Result<Vec<AsGiven<T>>, Wrong> {
    each(text, AsGiven::read)
}

/// Constraints of topology spread from a JSON array.
pub(super) fn topology_spread_constraints(
    text: &str,
) -> Result<Vec<AsGiven<TopologySpreadConstraint>>, Wrong> {
    each(text, topology_spread_constraint)
}

fn each<T>(text: &str, read: impl Fn(&Value) -> Result<T, Unfit>) -> Result<Vec<T>, Wrong> {
    array(text)?
        .iter()
        .enumerate()
        .map(|(index, entry)| read(entry).map_err(|unfit| field(&format!("[{index}]"), unfit)))
        .collect()
}

/// What is wrong with a field, at its place in the whole value.
fn field(at: &str, Unfit { path, error }: Unfit) -> Wrong {
    let path = match (at, path.as_str()) {
        ("", path) => path.to_owned(),
        (at, "") => at.to_owned(),
        (at, path) => format!("{at}.{path}"),
    };
    Wrong::Field {
        path: shown(&path),
        error: shown(&error),
    }
}

const fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSecurityContext, Toleration};

    use super::*;

    #[test]
    fn booleans_are_read_in_every_common_spelling() {
        for yes in ["1", "true", "yes", "on", "TRUE", "Yes", "oN"] {
            assert_eq!(switch(yes), Ok(true), "{yes}");
        }
        for no in ["0", "false", "no", "off", "False", "NO"] {
            assert_eq!(switch(no), Ok(false), "{no}");
        }
        for neither in ["2", "y", "maybe", "truefalse", "null"] {
            assert_eq!(switch(neither), Err(Wrong::NotBoolean), "{neither}");
        }
    }

    #[test]
    fn numbers_are_whole_and_may_be_written_as_helm_writes_them() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("2592000", Ok(2_592_000)),
            ("2.592e+06", Ok(2_592_000)),
            ("2.147483647e+09", Ok(2_147_483_647)),
            ("4294967295", Ok(u32::MAX)),
            ("600.0", Ok(600)),
            ("4294967296", Err(Wrong::OutOfRange)),
            (
                "99999999999999999999999999999999999999999999",
                Err(Wrong::OutOfRange),
            ),
            ("-1", Err(Wrong::OutOfRange)),
            ("0.5", Err(Wrong::NotWhole)),
            ("1.5e+00", Err(Wrong::NotWhole)),
            ("10s", Err(Wrong::NotWhole)),
            ("1_000", Err(Wrong::NotWhole)),
            (&"9".repeat(500), Err(Wrong::OutOfRange)),
            ("NaN", Err(Wrong::NotWhole)),
        ] {
            assert_eq!(whole_number(text), expected, "{text}");
        }
    }

    #[test]
    fn lists_are_written_with_commas_or_as_json() {
        let list = |text| legal(words(text)?, Rule::Name);
        let both = Ok(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(list("a , b"), both);
        assert_eq!(list(r#"["a", "b"]"#), both);
        assert_eq!(list("[]"), Ok(Vec::new()));
        assert_eq!(list("a,,b"), Err(Wrong::EmptyEntry { position: 2 }));
        assert_eq!(list("a,"), Err(Wrong::EmptyEntry { position: 2 }));
        assert_eq!(list(r#"[" "]"#), Err(Wrong::EmptyEntry { position: 1 }));
        let found = "a number";
        assert_eq!(list(r#"["a", 1]"#), Err(Wrong::EntryType { position: 2, found }));
        let entry = "B".to_owned();
        assert_eq!(list("a, B"), Err(Wrong::IllegalEntry { position: 2, entry }));
        assert!(matches!(list(r#"["a""#), Err(Wrong::NotJson { .. })));
    }

    #[test]
    fn names_may_stand_in_objects_where_kubernetes_has_references() {
        assert_eq!(
            named_words(r#"["a", {"name": "b"}]"#),
            Ok(vec!["a".to_owned(), "b".to_owned()])
        );
        for bad in [
            r#"[{"name": 1}]"#,
            r#"[{"title": "a"}]"#,
            r#"[{"name": "a", "key": "b"}]"#,
        ] {
            assert!(
                matches!(named_words(bad), Err(Wrong::EntryType { position: 1, .. })),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named_with_its_place() {
        for (found, path) in [
            (objects::<Toleration>(r#"[{"key": 1}]"#).map(drop), "[0].key"),
            (objects::<Toleration>(r#"[{"key": "a"}, 7]"#).map(drop), "[1]"),
            (
                object::<PodSecurityContext>(r#"{"seccompProfile": {"type": []}}"#).map(drop),
                "seccompProfile.type",
            ),
            (
                object::<BTreeMap<String, String>>(r#"{"zone": true}"#).map(drop),
                "zone",
            ),
            (
                topology_spread_constraints(
                    r#"[{"maxSkew": 0, "topologyKey": "a", "whenUnsatisfiable": "x"}]"#,
                )
                .map(drop),
                "[0].maxSkew",
            ),
        ] {
            match found {
                Err(Wrong::Field { path: named, .. }) => assert_eq!(named, path),
                other => panic!("{path}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_empty_object_says_nothing() {
        assert_eq!(object::<PodSecurityContext>("{}"), Ok(None));
        assert_eq!(
            object::<PodSecurityContext>("[]"),
            Err(Wrong::JsonType { found: "an array" })
        );
        assert_eq!(
            objects::<Toleration>("{}"),
            Err(Wrong::JsonType { found: "an object" })
        );
        assert_eq!(node_selector("null"), Err(Wrong::JsonType { found: "null" }));
    }

    #[test]
    fn labels_of_nodes_are_legal() {
        assert!(node_selector(r#"{"kubernetes.io/os": "linux", "spot": ""}"#).is_ok());
        assert!(matches!(
            node_selector(r#"{"a b": "c"}"#),
            Err(Wrong::LabelKey { .. })
        ));
        assert!(matches!(
            node_selector(r#"{"a": "b c"}"#),
            Err(Wrong::LabelValue { .. })
        ));
    }
}
