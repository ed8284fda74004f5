//! What Go's codec does to an object of a built-in kind on its way in: values of the wrong type are refused, absent and zero
//! values take the one form that the types write, quantities and times become canonical, and `stringData` becomes `data`.

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{
    Builtin, look,
    quantity::{Quantity, QuantityError},
    schema::{MICRO_TIME, QUANTITY, TIME, schema},
};
use crate::{
    field::json_type_name,
    schema::{Additional, Schema, Type, Zero},
};

/// An object that cannot be read as the kind it claims to be. The server answers 400 with this text.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{kind} in version \"{version}\" cannot be handled as a {kind}: {problem}")]
pub struct DecodeError {
    kind: &'static str,
    version: &'static str,
    problem: DecodeProblem,
}

/// What is wrong with it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecodeProblem {
    #[error("json: cannot unmarshal {found} into Go struct field {path} of type {wanted}")]
    Type {
        found: &'static str,
        path: String,
        wanted: &'static str,
    },
    #[error("{0}")]
    Quantity(#[from] QuantityError),
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
    #[error("parsing time \"{0}\" as \"{1}\": cannot parse \"{0}\" as \"2006\"")]
    Time(String, &'static str),
}

/// Brings an object into the form that the server stores. Unknown fields are left alone: pruning is the caller's.
pub fn decode(builtin: Builtin, object: &mut Value) -> Result<(), DecodeError> {
    let info = builtin.info();
    let wrap = |problem| DecodeError {
        kind: info.kind,
        version: info.version,
        problem,
    };
    let schema = schema(builtin);
    let mut walker = Walker {
        path: vec![info.kind],
    };
    walker.value(&schema, object).map_err(wrap)?;
    if builtin == Builtin::Secret {
        merge_string_data(object);
    }
    Ok(())
}

/// Moves `stringData`, which can only be written, over `data`.
fn merge_string_data(secret: &mut Value) {
    let Some(Value::Object(strings)) = secret
        .as_object_mut()
        .and_then(|secret| secret.remove("stringData"))
    else {
        return;
    };
    if strings.is_empty() {
        return;
    }
    if let Some(data) = look::object(secret, "data") {
        for (key, value) in strings {
            data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
        }
    }
}

/// Walks an object beside its schema. The recursion is as deep as the schema, not as the object.
struct Walker<'s> {
    path: Vec<&'s str>,
}

impl<'s> Walker<'s> {
    fn value(&mut self, schema: &'s Schema, value: &mut Value) -> Result<(), DecodeProblem> {
        if value.is_null() {
            return Ok(());
        }
        if schema.format == QUANTITY {
            return canonical_quantity(value, false);
        }
        if schema.int_or_string {
            return match value {
                Value::String(_) => Ok(()),
                Value::Number(number) if number.is_i64() => Ok(()),
                other => Err(self.type_error(other, "int32")),
            };
        }
        match (schema.type_, &mut *value) {
            (Some(Type::Object), Value::Object(object)) => self.object(schema, object),
            (Some(Type::Array), Value::Array(items)) => {
                if let Some(item_schema) = &schema.items {
                    for item in items {
                        self.value(item_schema, item)?;
                    }
                }
                Ok(())
            }
            (Some(Type::String), Value::String(text)) => string(&schema.format, text),
            (Some(Type::Integer), Value::Number(number)) => {
                let fits = number
                    .as_i64()
                    .is_some_and(|number| schema.format != "int32" || i32::try_from(number).is_ok());
                if fits {
                    return Ok(());
                }
                // A whole number may have been written with a fraction of zero.
                match number
                    .as_f64()
                    .filter(|number| number.fract() == 0.0 && number.abs() < 9.0e15)
                {
                    #[expect(
                        clippy::cast_possible_truncation,
                        reason = "the number is whole and small enough"
                    )]
                    Some(whole) if schema.format != "int32" || i32::try_from(whole as i64).is_ok() => {
                        *value = (whole as i64).into();
                        Ok(())
                    }
                    _ => Err(self.type_error(value, go_type(schema))),
                }
            }
            (None, Value::Object(object)) if !schema.properties.is_empty() => self.object(schema, object),
            (Some(Type::Number), Value::Number(_)) | (Some(Type::Boolean), Value::Bool(_)) | (None, _) => {
                Ok(())
            }
            (Some(_), other) => Err(self.type_error(other, go_type(schema))),
        }
    }

    fn object(&mut self, schema: &'s Schema, object: &mut Map<String, Value>) -> Result<(), DecodeProblem> {
        if let Additional::Schema(values) = &schema.additional {
            for value in object.values_mut() {
                if values.format == QUANTITY {
                    canonical_quantity(value, true)?;
                } else if value.is_null() {
                    // A null in a map of strings is the string's zero value, not a missing entry.
                    if values.type_ == Some(Type::String) {
                        *value = "".into();
                    }
                } else {
                    self.value(values, value)?;
                }
            }
            return Ok(());
        }
        for (name, member) in &schema.properties {
            match object.get_mut(name) {
                Some(value) if !value.is_null() => {
                    self.path.push(name);
                    self.value(member, value)?;
                    self.path.pop();
                    if member.zero == Zero::Omitted && is_zero(value) {
                        object.remove(name);
                    }
                }
                null_or_absent => {
                    if let Zero::Filled(zero) = &member.zero {
                        let mut filling = zero.clone();
                        self.value(member, &mut filling)?;
                        object.insert(name.clone(), filling);
                    } else if null_or_absent.is_some() {
                        object.remove(name);
                    }
                }
            }
        }
        Ok(())
    }

    fn type_error(&self, found: &Value, wanted: &'static str) -> DecodeProblem {
        let found = json_type_name(found);
        DecodeProblem::Type {
            found,
            path: self.path.join("."),
            wanted,
        }
    }
}

fn go_type(schema: &Schema) -> &'static str {
    match (schema.type_, schema.format.as_str()) {
        (Some(Type::Integer), "int32") => "int32",
        (Some(Type::Integer), _) => "int64",
        (Some(Type::Number), _) => "float64",
        (Some(Type::Boolean), _) => "bool",
        (Some(Type::Array), _) => "[]interface {}",
        (Some(Type::Object), _) => "map[string]interface {}",
        (Some(Type::String) | None, _) => "string",
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}

fn string(format: &str, text: &mut String) -> Result<(), DecodeProblem> {
    match format {
        "byte" => match STANDARD.decode(text.as_bytes()) {
            Ok(_) => Ok(()),
            Err(error) => Err(DecodeProblem::Base64(match error {
                base64::DecodeError::InvalidByte(position, _)
                | base64::DecodeError::InvalidLastSymbol(position, _) => position,
                base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len(),
            })),
        },
        TIME => canonical_time(text, 0, "2006-01-02T15:04:05Z07:00"),
        MICRO_TIME => canonical_time(text, 6, "2006-01-02T15:04:05.000000Z07:00"),
        _ => Ok(()),
    }
}

/// Times are stored in UTC, in whole seconds or in microseconds.
fn canonical_time(text: &mut String, digits: usize, layout: &'static str) -> Result<(), DecodeProblem> {
    let bad = || DecodeProblem::Time(text.clone(), layout);
    // The parser also takes a space for the `T`, which RFC 3339 as Go reads it does not.
    if text.as_bytes().get(10) != Some(&b'T') {
        return Err(bad());
    }
    let instant: Timestamp = text.parse().map_err(|_| bad())?;
    *text = format!("{instant:.digits$}");
    Ok(())
}

fn canonical_quantity(value: &mut Value, rounded: bool) -> Result<(), DecodeProblem> {
    let quantity = match &*value {
        Value::String(text) => Quantity::parse(text.trim())?,
        Value::Number(number) => Quantity::parse(&number.to_string())?,
        // Null is no amount at all.
        Value::Null => Quantity::parse("0")?,
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => return Err(QuantityError::Format.into()),
    };
    let quantity = if rounded {
        quantity.round_up_to_milli()
    } else {
        quantity
    };
    *value = quantity.to_string().into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decoded(builtin: Builtin, mut object: Value) -> Value {
        decode(builtin, &mut object).unwrap_or_else(|error| panic!("{error}"));
        object
    }

    fn refused(builtin: Builtin, mut object: Value) -> String {
        decode(builtin, &mut object).unwrap_err().to_string()
    }

    #[test]
    fn nulls_and_zero_values_vanish_as_in_go() {
        let pod = decoded(
            Builtin::Pod,
            json!({
                "metadata": {"name": "a", "labels": {}, "creationTimestamp": null, "generation": 0},
                "spec": {
                    "hostNetwork": false, "nodeName": "", "tolerations": [], "enableServiceLinks": false,
                    "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": ""}], "tty": false}],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                },
            }),
        );
        assert_eq!(
            pod,
            json!({
                "metadata": {"name": "a"},
                "spec": {
                    "enableServiceLinks": false,
                    "containers": [{"name": "c", "image": "i", "env": [{"name": "A"}], "resources": {}}],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                },
                "status": {},
            })
        );
    }

    #[test]
    fn structs_held_by_value_are_always_written() {
        let node = decoded(Builtin::Node, json!({"metadata": {"name": "n"}}));
        assert_eq!(
            node["status"]["daemonEndpoints"],
            json!({"kubeletEndpoint": {"Port": 0}})
        );
        assert_eq!(node["status"]["nodeInfo"]["kernelVersion"], "");
        let event = decoded(Builtin::CoreEvent, json!({"metadata": {"name": "e"}}));
        assert_eq!(event["firstTimestamp"], Value::Null);
        assert_eq!(event["reportingComponent"], "");
        assert_eq!(event["source"], json!({}));
    }

    #[test]
    fn quantities_become_canonical_and_resources_are_rounded_to_thousandths() {
        let pod = decoded(
            Builtin::Pod,
            json!({"metadata": {}, "spec": {"containers": [{
                "name": "c", "resources": {"limits": {"cpu": 2, "memory": "1024Mi"}, "requests": {"cpu": "0.0001"}},
            }]}}),
        );
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1m"}})
        );
    }

    #[test]
    fn string_data_wins_over_data_and_disappears() {
        let secret = decoded(
            Builtin::Secret,
            json!({"metadata": {}, "data": {"a": "eA==", "b": "eQ=="}, "stringData": {"a": "new"}}),
        );
        assert_eq!(
            secret,
            json!({"metadata": {}, "data": {"a": "bmV3", "b": "eQ=="}})
        );
    }

    #[test]
    fn times_are_stored_in_utc() {
        let lease = decoded(
            Builtin::Lease,
            json!({"metadata": {"creationTimestamp": "2024-05-01T12:00:00.5+02:00"}, "spec": {"renewTime": "2024-05-01T12:00:00.5Z"}}),
        );
        assert_eq!(lease["metadata"]["creationTimestamp"], "2024-05-01T10:00:00Z");
        assert_eq!(lease["spec"]["renewTime"], "2024-05-01T12:00:00.500000Z");
    }

    #[test]
    fn wrong_values_are_named() {
        let cases = [
            (
                Builtin::ConfigMap,
                json!({"data": {"a": 1}}),
                "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
            ),
            (
                Builtin::Secret,
                json!({"data": {"a": "*"}}),
                "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 0",
            ),
            (
                Builtin::Pod,
                json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "lots"}}}]}}),
                "Pod in version \"v1\" cannot be handled as a Pod: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            (
                Builtin::Job,
                json!({"spec": {"backoffLimit": "2"}}),
                "Job in version \"v1\" cannot be handled as a Job: json: cannot unmarshal string into Go struct field Job.spec.backoffLimit of type int32",
            ),
            (
                Builtin::Lease,
                json!({"spec": {"renewTime": "soon"}}),
                "Lease in version \"v1\" cannot be handled as a Lease: parsing time \"soon\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"soon\" as \"2006\"",
            ),
        ];
        for (builtin, object, expected) in cases {
            assert_eq!(refused(builtin, object), expected);
        }
    }
}
