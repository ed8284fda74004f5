//! How an object becomes bytes: once, in the caller's thread, with a gap where the revision goes.
//!
//! The writer is the one place that every write passes, so it only copies bytes around the gap and never walks a tree.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{Change, Collection, CommitError, Expect, Key, Meta, Write};

/// `serde_json` refuses to read more than 128 levels, so nothing deeper may be stored; the margin leaves room for the
/// list or watch event that a client reads the object in.
const DEPTH_MAX: usize = 120;
/// As many digits as the largest revision takes.
const REVISION_DIGITS_MAX: usize = 20;

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidObject {
    #[error("it has no metadata")]
    NoMetadata,
    #[error("its metadata cannot be read: {0}")]
    Metadata(String),
    #[error("it is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    #[error("its collection, namespace or name contains a zero byte")]
    ZeroInKey,
}

/// A write that is ready for the writer.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) collection: Collection,
    pub(super) key: Key,
    pub(super) expect: Expect,
    pub(super) delete: bool,
    pub(super) body: Body,
    pub(super) meta: Arc<Meta>,
}

/// An object's JSON without its revision.
#[derive(Debug)]
pub(super) struct Body {
    bytes: Vec<u8>,
    /// Where the digits of the revision go.
    gap: usize,
}

impl Prepared {
    pub(super) fn new(write: Write, object_bytes_max: usize) -> Result<Self, CommitError> {
        let Write {
            collection,
            key,
            expect,
            change,
        } = write;
        // Zero separates the parts of a key on disk.
        if [collection.as_str(), &key.namespace, &key.name]
            .iter()
            .any(|part| part.contains('\0'))
        {
            return Err(InvalidObject::ZeroInKey.into());
        }
        let (value, delete) = match change {
            Change::Put(value) => (value, false),
            Change::Delete(value) => (value, true),
        };
        if deeper_than(&value, DEPTH_MAX) {
            return Err(InvalidObject::TooDeep.into());
        }
        let meta = Meta::from_value(&value).map_err(|error| InvalidObject::Metadata(error.to_string()))?;
        let body = Body::new(value).ok_or(InvalidObject::NoMetadata)?;
        // A deletion must never fail for the size of what it deletes.
        if !delete && body.size_max() > object_bytes_max {
            return Err(CommitError::TooLarge {
                size: body.size_max(),
                limit: object_bytes_max,
            });
        }
        Ok(Self {
            collection,
            key,
            expect,
            delete,
            body,
            meta: Arc::new(meta),
        })
    }
}

impl Body {
    fn new(mut value: Value) -> Option<Self> {
        let object = value.as_object_mut()?;
        let metadata = object.get_mut("metadata")?.as_object_mut()?;
        metadata.insert("resourceVersion".to_owned(), Value::String(String::new()));
        let mut bytes = Vec::with_capacity(2048);
        let mut gap = 0;
        write_map(&mut bytes, object, |out, key, value| match value {
            Value::Object(metadata) if key == "metadata" => write_map(out, metadata, |out, key, value| {
                write_value(out, value);
                if key == "resourceVersion" {
                    // Between the quotes of the empty string just written.
                    gap = out.len() - 1;
                }
            }),
            value => write_value(out, value),
        });
        Some(Self { bytes, gap })
    }

    pub(super) fn size_max(&self) -> usize {
        self.bytes.len() + REVISION_DIGITS_MAX
    }

    pub(super) fn at_revision(&self, revision: u64) -> Bytes {
        let digits = revision.to_string();
        let (before, after) = self.bytes.split_at(self.gap);
        let mut whole = Vec::with_capacity(self.bytes.len() + digits.len());
        whole.extend_from_slice(before);
        whole.extend_from_slice(digits.as_bytes());
        whole.extend_from_slice(after);
        whole.into()
    }
}

fn write_map(out: &mut Vec<u8>, map: &Map<String, Value>, mut each: impl FnMut(&mut Vec<u8>, &str, &Value)) {
    out.push(b'{');
    for (index, (key, value)) in map.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_json(out, key);
        out.push(b':');
        each(out, key, value);
    }
    out.push(b'}');
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    write_json(out, value);
}

fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // A tree of JSON has only string keys, and a vector takes every write, so this cannot fail.
    let _infallible = serde_json::to_writer(out, value);
}

fn deeper_than(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|item| deeper_than(item, levels - 1)),
        Value::Object(fields) => levels == 0 || fields.values().any(|field| deeper_than(field, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn put(value: Value) -> Result<Prepared, CommitError> {
        let write = Write {
            collection: Collection::new("example.com", "widgets"),
            key: Key::new("default", "a"),
            expect: Expect::Absent,
            change: Change::Put(value),
        };
        Prepared::new(write, 4096)
    }

    #[test]
    fn revision_lands_in_the_metadata_and_nowhere_else() {
        let value = json!({
            "apiVersion": "example.com/v1",
            "metadata": {"annotations": {"resourceVersion": ""}, "name": "a", "resourceVersion": "3", "uid": "\"resourceVersion\":\"\""},
            "spec": {"metadata": {"resourceVersion": "keep"}, "text": "é\u{0}\n\""}
        });
        let prepared = put(value.clone()).unwrap();
        for revision in [1, 42, u64::MAX] {
            let mut expected = value.clone();
            expected["metadata"]["resourceVersion"] = json!(revision.to_string());
            let bytes = prepared.body.at_revision(revision);
            assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), expected);
            assert_eq!(bytes, expected.to_string());
        }
    }

    #[test]
    fn missing_revision_is_added() {
        let bytes = put(json!({"metadata": {"uid": "u", "zone": 1}}))
            .unwrap()
            .body
            .at_revision(9);
        assert_eq!(
            bytes,
            r#"{"metadata":{"resourceVersion":"9","uid":"u","zone":1}}"#
        );
    }

    #[test]
    fn objects_that_could_not_be_read_back_are_refused() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let with_spec = |spec: Value| json!({"metadata": {}, "spec": spec});
        assert!(put(with_spec(nested(DEPTH_MAX - 1))).is_ok());
        assert_eq!(
            put(with_spec(nested(DEPTH_MAX))).unwrap_err(),
            InvalidObject::TooDeep.into()
        );
        assert!(matches!(
            put(json!({})),
            Err(CommitError::Invalid(InvalidObject::Metadata(_)))
        ));
        assert!(matches!(
            put(json!(null)),
            Err(CommitError::Invalid(InvalidObject::Metadata(_)))
        ));
    }

    #[test]
    fn size_is_bounded_for_puts_but_not_for_deletions() {
        let big = json!({"metadata": {}, "data": "x".repeat(5000)});
        assert!(matches!(
            put(big.clone()),
            Err(CommitError::TooLarge { limit: 4096, .. })
        ));
        let delete = Write {
            collection: Collection::new("", "pods"),
            key: Key::new("default", "a"),
            expect: Expect::Revision(1),
            change: Change::Delete(big),
        };
        assert!(Prepared::new(delete, 4096).is_ok());
    }

    #[test]
    fn zero_byte_in_a_key_is_refused() {
        let write = Write {
            collection: Collection::new("", "pods"),
            key: Key::new("a\0b", "c"),
            expect: Expect::Absent,
            change: Change::Put(json!({"metadata": {}})),
        };
        assert_eq!(
            Prepared::new(write, 4096).unwrap_err(),
            InvalidObject::ZeroInKey.into()
        );
    }
}
