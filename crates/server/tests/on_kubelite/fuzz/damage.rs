//! How good input is damaged.

use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::Value;

/// Deeper than any parser goes on its own stack.
const DEEP: usize = 10_000;

/// Any JSON of a small size.
pub(super) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec(("[a-zA-Z./]{0,8}", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// One change of a document.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Replace(Index, Value),
    Insert(Index, String, Value),
    Remove(Index),
}

pub(super) fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<Index>(), json()).prop_map(|(at, value)| Change::Replace(at, value)),
        (any::<Index>(), "[a-zA-Z]{1,8}", json())
            .prop_map(|(at, name, value)| Change::Insert(at, name, value)),
        any::<Index>().prop_map(Change::Remove),
    ]
}

impl Change {
    pub(super) fn apply(&self, document: &mut Value) {
        let mut paths = Vec::new();
        collect("", document, &mut paths);
        let (Self::Replace(at, _) | Self::Insert(at, _, _) | Self::Remove(at)) = self;
        let path = at.get(&paths).clone();
        match self {
            Self::Replace(_, value) => {
                if let Some(found) = document.pointer_mut(&path) {
                    *found = value.clone();
                }
            }
            Self::Insert(_, name, value) => {
                if let Some(fields) = document.pointer_mut(&path).and_then(Value::as_object_mut) {
                    fields.insert(name.clone(), value.clone());
                }
            }
            Self::Remove(_) => {
                if let Some((parent, name)) = path.rsplit_once('/')
                    && let Some(fields) = document.pointer_mut(parent).and_then(Value::as_object_mut)
                {
                    fields.remove(name);
                }
            }
        }
    }
}

/// The addresses of everything in a document. No name in those of the tests has to be escaped.
fn collect(path: &str, value: &Value, paths: &mut Vec<String>) {
    paths.push(path.to_owned());
    match value {
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                collect(&format!("{path}/{index}"), entry, paths);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                collect(&format!("{path}/{name}"), field, paths);
            }
        }
        _ => {}
    }
}

/// One change of bytes.
#[derive(Clone, Debug)]
pub(super) enum Bytes {
    Whole,
    Cut(Index),
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Other(Vec<u8>),
    /// The same opening bracket very often.
    Deep(char),
}

pub(super) fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        6 => Just(Bytes::Whole),
        2 => any::<Index>().prop_map(Bytes::Cut),
        2 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Bytes::Set(at, byte)),
        2 => (any::<Index>(), vec(any::<u8>(), 1..9)).prop_map(|(at, more)| Bytes::Insert(at, more)),
        1 => vec(any::<u8>(), 0..64).prop_map(Bytes::Other),
        1 => prop_oneof![Just('['), Just('{'), Just('\n')].prop_map(Bytes::Deep),
    ]
}

impl Bytes {
    pub(super) fn apply(&self, mut good: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Whole => good,
            Self::Other(bytes) => bytes.clone(),
            Self::Deep(bracket) => bracket.to_string().repeat(DEEP).into_bytes(),
            Self::Cut(at) => {
                good.truncate(at.index(good.len() + 1));
                good
            }
            Self::Set(at, byte) => {
                if !good.is_empty() {
                    let at = at.index(good.len());
                    good[at] = *byte;
                }
                good
            }
            Self::Insert(at, more) => {
                let at = at.index(good.len() + 1);
                good.splice(at..at, more.iter().copied());
                good
            }
        }
    }
}
