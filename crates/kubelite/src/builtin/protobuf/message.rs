//! Messages by their schema: a table gives each field its number, and the OpenAPI components say what is behind it.

use std::{collections::HashMap, sync::LazyLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    super::schema::{component, component_value, reference, short_name},
    ProtobufError,
    wire::{Fields, Wire},
};

/// What a field number stands for.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// The member of this name.
    Member(&'static str),
    /// A Go struct that is embedded: its members are members of the outer object.
    Embedded(&'static str),
}

/// Field numbers of every message, from the protocol definitions that Kubernetes publishes with its types. A number never
/// changes its meaning, so the table only grows with new versions.
static MESSAGES: LazyLock<HashMap<&'static str, Vec<(u64, Target)>>> = LazyLock::new(|| {
    include_str!("fields.txt")
        .lines()
        .filter_map(|line| {
            let (name, fields) = line.split_once(' ')?;
            Some((name, fields.split(' ').filter_map(field).collect()))
        })
        .collect()
});

fn field(text: &'static str) -> Option<(u64, Target)> {
    let (number, name) = text.split_once('=')?;
    let target = match name.strip_prefix('+') {
        Some(message) => Target::Embedded(message),
        None => Target::Member(name),
    };
    Some((number.parse().ok()?, target))
}

/// Whether the message of a type, abbreviated as in `facts`, can be read.
pub(super) fn is_known(short: &str) -> bool {
    MESSAGES.contains_key(short)
}

/// Reads the members of a message into `out`.
pub(super) fn read(short: &str, bytes: &[u8], out: &mut Map<String, Value>) -> Result<(), ProtobufError> {
    let Some(Value::Object(shape)) = component_value(&component(short)) else {
        return Err(ProtobufError::Message(short.to_owned()));
    };
    read_into(short, shape, bytes, out)
}

fn read_into(
    short: &str,
    shape: &Map<String, Value>,
    bytes: &[u8],
    out: &mut Map<String, Value>,
) -> Result<(), ProtobufError> {
    let Some(fields) = MESSAGES.get(short) else {
        return Err(ProtobufError::Message(short.to_owned()));
    };
    for entry in Fields(bytes) {
        let (number, wire) = entry?;
        // A field that this version does not know is one that a JSON body would have spelt out: it is dropped.
        let Some((_, target)) = fields.iter().find(|(of, _)| *of == number) else {
            continue;
        };
        match (target, wire) {
            (Target::Embedded(message), Wire::Bytes(inner)) => read_into(message, shape, inner, out)?,
            (Target::Embedded(_), _) => return Err(ProtobufError::Type),
            (Target::Member(name), wire) => {
                let Some(Value::Object(property)) = shape.get("properties").and_then(|all| all.get(*name))
                else {
                    continue;
                };
                add(out, name, property, wire)?;
            }
        }
    }
    Ok(())
}

/// Adds one value: to a list or a map if the member is one, else as the member itself.
fn add(
    out: &mut Map<String, Value>,
    name: &str,
    property: &Map<String, Value>,
    wire: Wire<'_>,
) -> Result<(), ProtobufError> {
    if let Some(Value::Object(items)) = property.get("items") {
        let item = value(items, wire)?;
        if let Value::Array(list) = out.entry(name).or_insert_with(|| json!([])) {
            list.push(item);
        }
    } else if let Some(Value::Object(values)) = property.get("additionalProperties") {
        let Wire::Bytes(bytes) = wire else {
            return Err(ProtobufError::Type);
        };
        let mut key = String::new();
        let mut entry = Value::Null;
        for field in Fields(bytes) {
            match field? {
                (1, Wire::Bytes(bytes)) => text(bytes)?.clone_into(&mut key),
                (2, wire) => entry = value(values, wire)?,
                _ => {}
            }
        }
        if let Value::Object(map) = out.entry(name).or_insert_with(|| json!({})) {
            map.insert(key, entry);
        }
    } else {
        out.insert(name.to_owned(), value(property, wire)?);
    }
    Ok(())
}

fn value(shape: &Map<String, Value>, wire: Wire<'_>) -> Result<Value, ProtobufError> {
    if let Some(name) = reference(shape) {
        let Wire::Bytes(bytes) = wire else {
            return Err(ProtobufError::Type);
        };
        return named(short_name(name), bytes);
    }
    let kind = shape.get("type").and_then(Value::as_str).unwrap_or_default();
    match (kind, wire) {
        ("string", Wire::Bytes(bytes)) if shape.get("format").is_some_and(|format| format == "byte") => {
            Ok(STANDARD.encode(bytes).into())
        }
        ("string", Wire::Bytes(bytes)) => Ok(text(bytes)?.into()),
        ("integer", Wire::Varint(number)) => Ok(number.cast_signed().into()),
        ("boolean", Wire::Varint(number)) => Ok((number != 0).into()),
        ("number", Wire::Fixed64(bits)) => Ok(f64::from_bits(bits).into()),
        _ => Err(ProtobufError::Type),
    }
}

fn named(short: &str, bytes: &[u8]) -> Result<Value, ProtobufError> {
    match short {
        "meta.v1.Time" => time(bytes, 0),
        "meta.v1.MicroTime" => time(bytes, 6),
        "meta.v1.FieldsV1" | "io.k8s.apimachinery.pkg.runtime.RawExtension" => {
            let raw = first_bytes(bytes)?;
            if raw.is_empty() {
                return Ok(Value::Null);
            }
            serde_json::from_slice(raw).map_err(|_| ProtobufError::Type)
        }
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => Ok(text(first_bytes(bytes)?)?.into()),
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => int_or_string(bytes),
        _ => {
            let mut object = Map::new();
            read(short, bytes, &mut object)?;
            Ok(Value::Object(object))
        }
    }
}

/// The first field of a message that holds nothing else.
fn first_bytes(message: &[u8]) -> Result<&[u8], ProtobufError> {
    let mut found: &[u8] = &[];
    for field in Fields(message) {
        if let (1, Wire::Bytes(bytes)) = field? {
            found = bytes;
        }
    }
    Ok(found)
}

fn int_or_string(message: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number, mut string) = (false, 0, "");
    for field in Fields(message) {
        match field? {
            (1, Wire::Varint(kind)) => is_text = kind == 1,
            (2, Wire::Varint(value)) => number = value.cast_signed(),
            (3, Wire::Bytes(bytes)) => string = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { string.into() } else { number.into() })
}

/// A time; one that was never set is an empty message.
fn time(message: &[u8], digits: u8) -> Result<Value, ProtobufError> {
    if message.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    for field in Fields(message) {
        match field? {
            (1, Wire::Varint(value)) => seconds = value.cast_signed(),
            (2, Wire::Varint(value)) => {
                nanos = i32::try_from(value.cast_signed()).map_err(|_| ProtobufError::Type)?;
            }
            _ => {}
        }
    }
    let nanos = if digits == 0 { 0 } else { nanos };
    let instant = Timestamp::new(seconds, nanos).map_err(|_| ProtobufError::Type)?;
    Ok(format!("{instant:.*}", usize::from(digits)).into())
}

fn text(bytes: &[u8]) -> Result<&str, ProtobufError> {
    std::str::from_utf8(bytes).map_err(|_| ProtobufError::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_leads_to_a_member_that_exists() {
        let mut embedded = Vec::new();
        for (name, fields) in MESSAGES.iter() {
            assert!(!fields.is_empty(), "{name}");
            let Some(shape) = component_value(&component(name)) else {
                embedded.push(*name);
                continue;
            };
            for (number, target) in fields {
                match target {
                    Target::Member(member) => {
                        assert!(
                            shape["properties"].get(*member).is_some(),
                            "{name} {number}={member}"
                        );
                    }
                    Target::Embedded(message) => assert!(MESSAGES.contains_key(message), "{message}"),
                }
            }
        }
        embedded.sort_unstable();
        assert_eq!(
            embedded,
            [
                "core.v1.EphemeralContainerCommon",
                "core.v1.ProbeHandler",
                "core.v1.VolumeSource"
            ]
        );
    }
}
