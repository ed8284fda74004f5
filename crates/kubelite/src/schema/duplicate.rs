//! Keys that occur twice in one JSON object, which the ordinary parser would silently resolve to the last one.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Kubernetes stops listing strict decoding errors at this number too.
const MAX_REPORTED: usize = 100;

/// The paths of keys that are given more than once, such as `spec.a` or `spec.steps[0].name`, in the order in which the
/// repetitions appear. Text that is not JSON, or nests deeper than the parser allows, yields what was found before.
pub fn duplicate_fields(json: &[u8]) -> Vec<String> {
    let mut search = Search::default();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    // A broken document is reported by whoever parses it for real.
    let _ = (Node { search: &mut search }).deserialize(&mut deserializer);
    search.found
}

#[derive(Default)]
struct Search {
    path: String,
    found: Vec<String>,
}

impl Search {
    fn enter_key(&mut self, key: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        length
    }

    fn enter_index(&mut self, index: usize) -> usize {
        let length = self.path.len();
        self.path.push('[');
        self.path.push_str(&index.to_string());
        self.path.push(']');
        length
    }

    fn leave(&mut self, length: usize) {
        self.path.truncate(length);
    }
}

struct Node<'s> {
    search: &'s mut Search,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0;
        loop {
            let length = self.search.enter_index(index);
            let more = items.next_element_seed(Node { search: self.search })?.is_some();
            self.search.leave(length);
            if !more {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen: HashSet<Cow<'de, str>> = HashSet::new();
        while let Some(key) = members.next_key_seed(Key)? {
            let length = self.search.enter_key(&key);
            if !seen.insert(key) && self.search.found.len() < MAX_REPORTED {
                let path = self.search.path.clone();
                self.search.found.push(path);
            }
            members.next_value_seed(Node { search: self.search })?;
            self.search.leave(length);
        }
        Ok(())
    }
}

/// A key, borrowed from the document unless it has escapes.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: de::Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_keys_are_named_with_their_path() {
        let table: &[(&str, &[&str])] = &[
            (r#"{"a":1,"b":2}"#, &[]),
            (r#"{"spec":{"a":1,"a":2}}"#, &["spec.a"]),
            (r#"{"spec":{"a":1,"a":2,"a":3}}"#, &["spec.a", "spec.a"]),
            (
                r#"{"spec":{"steps":[{"x":1},{"n":1,"n":2}]}}"#,
                &["spec.steps[1].n"],
            ),
            (r#"{"a":{"b":1},"a":{"b":1,"b":2}}"#, &["a", "a.b"]),
            (r#"{"a":1,"\u0061":2}"#, &["a"]),
            (r#"[[{"a":1,"a":1}]]"#, &["[0][0].a"]),
            ("not json", &[]),
            ("", &[]),
        ];
        for (json, expected) in table {
            assert_eq!(duplicate_fields(json.as_bytes()), *expected, "{json}");
        }
    }

    #[test]
    fn nesting_beyond_the_parser_ends_the_search() {
        let deep = "[".repeat(100_000);
        assert_eq!(duplicate_fields(deep.as_bytes()), Vec::<String>::new());
    }
}
