//! The `fieldsV1` form of a set: `{"f:spec":{"f:x":{},"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}`.
//!
//! The text of every element is what Kubernetes writes. The order of the members of an object is that of our JSON maps,
//! by name; Kubernetes sorts numeric keys by value, but no reader may rely on the order.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{
    MAX_DEPTH,
    path::{FieldSet, Literal, Node, PathElement},
};

/// Why a stored set cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("fieldsV1 holds something that is not an object")]
    NotAnObject,
    #[error("`{0}` is not a path element")]
    BadElement(String),
}

/// The `fieldsV1` of a set.
pub(super) fn encode(set: &FieldSet<'_>) -> Value {
    encode_below(set, false)
}

fn encode_below(set: &FieldSet<'_>, member: bool) -> Value {
    let own = (member && !set.is_empty()).then(|| (".".to_owned(), Value::Object(Map::new())));
    let entries = set
        .iter()
        .map(|(element, node)| (encode_element(element), encode_below(&node.children, node.member)));
    Value::Object(own.into_iter().chain(entries).collect())
}

fn encode_element(element: &PathElement<'_>) -> String {
    match element {
        PathElement::Field(name) => ["f:", name].concat(),
        PathElement::Key(fields) => {
            let mut text = String::from("k:{");
            for (position, (name, value)) in fields.iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                if is_plain(name) {
                    push_quoted(&mut text, name);
                } else {
                    // A plain string as JSON cannot fail to print.
                    text.push_str(&serde_json::to_string(name).unwrap_or_default());
                }
                text.push(':');
                push_literal(&mut text, value);
            }
            text.push('}');
            text
        }
        PathElement::Value(value) => {
            let mut text = String::from("v:");
            push_literal(&mut text, value);
            text
        }
        PathElement::Index(position) => format!("i:{position}"),
    }
}

/// Whether a text is its own JSON, also as Go writes it. Nearly all names are.
fn is_plain(text: &str) -> bool {
    let special = |byte: u8| matches!(byte, 0..0x20 | b'"' | b'\\' | b'<' | b'>' | b'&' | 0x7f..);
    !text.bytes().any(special)
}

fn push_quoted(text: &mut String, plain: &str) {
    text.push('"');
    text.push_str(plain);
    text.push('"');
}

/// Go prints a whole float without a fraction and escapes what could end an HTML script.
fn push_literal(text: &mut String, value: &Literal<'_>) {
    match value.0.as_ref() {
        Value::String(plain) if is_plain(plain) => return push_quoted(text, plain),
        Value::Number(number) if number.is_f64() => {
            let printed = number.to_string();
            return text.push_str(printed.strip_suffix(".0").unwrap_or(&printed));
        }
        _ => {}
    }
    let printed = value.0.to_string();
    if printed.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        text.extend(printed.chars().map(html_safe));
    } else {
        text.push_str(&printed);
    }
}

fn html_safe(character: char) -> Cow<'static, str> {
    match character {
        '<' => Cow::Borrowed("\\u003c"),
        '>' => Cow::Borrowed("\\u003e"),
        '&' => Cow::Borrowed("\\u0026"),
        '\u{2028}' => Cow::Borrowed("\\u2028"),
        '\u{2029}' => Cow::Borrowed("\\u2029"),
        other => Cow::Owned(other.to_string()),
    }
}

/// Reads the `fieldsV1` of a set. Elements of a kind that a later Kubernetes may know are skipped.
pub(super) fn decode(fields: &Value) -> Result<FieldSet<'_>, DecodeError> {
    Ok(decode_node(fields, MAX_DEPTH)?.children)
}

fn decode_node(fields: &Value, depth: usize) -> Result<Node<'_>, DecodeError> {
    let fields = fields.as_object().ok_or(DecodeError::NotAnObject)?;
    let mut member = false;
    let mut entries = Vec::with_capacity(fields.len());
    // Below the depth that values are looked into, a set has nothing to say.
    if depth > 0 {
        for (key, below) in fields {
            if key == "." {
                member = true;
            } else if let Some(element) = decode_element(key)? {
                entries.push((element, decode_node(below, depth - 1)?));
            }
        }
    }
    let children = FieldSet::from_entries(entries);
    Ok(Node {
        member: member || children.is_empty(),
        children,
    })
}

fn decode_element(text: &str) -> Result<Option<PathElement<'_>>, DecodeError> {
    let bad = || DecodeError::BadElement(text.to_owned());
    let (kind, content) = text.split_once(':').ok_or_else(bad)?;
    let element = match kind {
        "f" => PathElement::Field(content),
        "v" => PathElement::Value(Literal(Cow::Owned(
            serde_json::from_str(content).map_err(|_| bad())?,
        ))),
        "k" => {
            let fields: Map<String, Value> = serde_json::from_str(content).map_err(|_| bad())?;
            // The map is sorted by name already.
            PathElement::Key(
                fields
                    .into_iter()
                    .map(|(name, value)| (Cow::Owned(name), Literal(Cow::Owned(value))))
                    .collect(),
            )
        }
        "i" => PathElement::Index(content.parse().map_err(|_| bad())?),
        // Other kinds have one letter too; anything else is no element at all.
        other if other.len() == 1 => return Ok(None),
        _ => return Err(bad()),
    };
    Ok(Some(element))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn round_trip(fields: &Value) -> Value {
        encode(&decode(fields).expect("a valid set"))
    }

    #[test]
    fn sets_of_common_objects_survive_a_round_trip() {
        let deployment = json!({
            "f:metadata": {
                "f:annotations": {".": {}, "f:deployment.kubernetes.io/revision": {}},
                "f:labels": {".": {}, "f:app": {}, "f:app.kubernetes.io/part-of": {}},
                "f:ownerReferences": {".": {}, "k:{\"uid\":\"5f6e\"}": {}},
                "f:finalizers": {".": {}, "v:\"example.com/guard\"": {}}
            },
            "f:spec": {
                "f:replicas": {},
                "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
                "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {
                    ".": {}, "f:image": {}, "f:name": {},
                    "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                        ".": {}, "f:containerPort": {}, "f:protocol": {}}}
                }}}}
            },
            "f:status": {"f:conditions": {".": {}, "k:{\"type\":\"Available\"}": {".": {}, "f:status": {}}}}
        });
        assert_eq!(round_trip(&deployment), deployment);
        assert_eq!(round_trip(&json!({})), json!({}));
        let odd = json!({"f:": {}, "f:a:b": {}, "i:3": {".": {}, "f:x": {}}, "v:true": {}, "v:1.5": {}});
        assert_eq!(round_trip(&odd), odd);
    }

    #[test]
    fn element_text_is_what_go_writes() {
        for (given, written) in [
            ("v:1.0", "v:1"),
            ("v: \"a\"", "v:\"a\""),
            ("v:\"<&>\"", r#"v:"\u003c\u0026\u003e""#),
            (r#"k:{"port":80,"name":"a"}"#, r#"k:{"name":"a","port":80}"#),
        ] {
            assert_eq!(round_trip(&json!({given: {}})), json!({written: {}}), "{given}");
        }
    }

    #[test]
    fn dot_alone_and_nothing_mean_the_same() {
        assert_eq!(round_trip(&json!({"f:a": {".": {}}})), json!({"f:a": {}}));
        assert_eq!(round_trip(&json!({"f:a": {"x:later": {}}})), json!({"f:a": {}}));
        assert_eq!(round_trip(&json!({"x:later": {"f:a": {}}})), json!({}));
    }

    #[test]
    fn sets_that_make_no_sense_are_refused() {
        for bad in [
            json!([]),
            json!({"f:a": 1}),
            json!({"a": {}}),
            json!({"i:x": {}}),
            json!({"k:[]": {}}),
            json!({"v:": {}}),
        ] {
            assert!(decode(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn very_deep_sets_end_at_the_depth_bound() {
        let deep = (0..200).fold(json!({}), |below, _| json!({"f:a": below}));
        let set = decode(&deep).expect("a valid set");
        assert_eq!(set.all_paths(), [".a".repeat(MAX_DEPTH)]);
    }
}
