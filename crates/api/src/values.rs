//! Small value types that several kinds share: timestamps, free-form objects, numbers that may be strings.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};

/// A point in time, `format: date-time` in the schema, with the precision it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Timestamp(pub jiff::Timestamp);

impl Timestamp {
    /// Reads what the API server accepts as `date-time`. That includes a time without an offset, which means UTC.
    pub fn parse(text: &str) -> Result<Self, jiff::Error> {
        match text.parse::<jiff::Timestamp>() {
            Ok(at) => Ok(Self(at)),
            Err(error) => match text.parse::<jiff::civil::DateTime>() {
                Ok(civil) => civil
                    .to_zoned(jiff::tz::TimeZone::UTC)
                    .map(|zoned| Self(zoned.timestamp())),
                Err(_) => Err(error),
            },
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(at: jiff::Timestamp) -> Self {
        Self(at)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// A number or a string that holds one. Forges show their ids as numbers, and people quote them.
///
/// Kubernetes' own type of this name holds 32 bits, which is too few for ids that grow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    Int(i64),
    String(String),
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => number.fmt(f),
            Self::String(text) => text.fmt(f),
        }
    }
}

impl JsonSchema for IntOrString {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "IntOrString".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true })
    }
}

/// An object whose keys and values are the user's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FreeForm(pub Map<String, Value>);

impl JsonSchema for FreeForm {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "FreeForm".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}

/// A map from strings to any value.
///
/// It admits what [`FreeForm`] admits. The API server compares its values one by one, so a CEL rule that compares the
/// object around it sees every change; inside a [`FreeForm`] it would miss a renamed key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AnyMap(pub Map<String, Value>);

impl JsonSchema for AnyMap {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AnyMap".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "additionalProperties": { "x-kubernetes-preserve-unknown-fields": true },
        })
    }
}

/// Reads an absent `spec` as an empty one.
///
/// Twelve kinds have never required a `spec`. The types that are derived for them do, and a single object without one
/// would make every list that contains it unreadable. The specs of those kinds derive their (de)serialization with
/// `#[serde(remote = "Self")]`, which leaves the traits to this macro; names in an empty spec are blank, which counts as
/// missing everywhere.
macro_rules! absent_as_default {
    ($spec:ident) => {
        impl ::serde::Serialize for $spec {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                // The function that the derive made, not this one.
                $spec::serialize(self, serializer)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $spec {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct MaybeAbsent;

                impl<'de> ::serde::de::Visitor<'de> for MaybeAbsent {
                    type Value = $spec;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str("a spec")
                    }

                    fn visit_none<E: ::serde::de::Error>(self) -> Result<$spec, E> {
                        Ok($spec::default())
                    }

                    fn visit_some<D: ::serde::Deserializer<'de>>(
                        self,
                        deserializer: D,
                    ) -> Result<$spec, D::Error> {
                        // The function that the derive made.
                        $spec::deserialize(deserializer)
                    }
                }

                deserializer.deserialize_option(MaybeAbsent)
            }
        }
    };
}

pub(crate) use absent_as_default;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_read_as_the_api_server_accepts_them() {
        let utc = Timestamp::parse("2026-02-07T12:00:00.250Z").expect("UTC");
        for same in ["2026-02-07T14:00:00.250+02:00", "2026-02-07T12:00:00.250"] {
            assert_eq!(Timestamp::parse(same).expect(same), utc);
        }
        assert_eq!(utc.to_string(), "2026-02-07T12:00:00.25Z");
        assert!(serde_json::from_str::<Timestamp>("\"yesterday\"").is_err());
    }

    #[test]
    fn large_ids_are_numbers_or_strings() {
        let large: IntOrString = serde_json::from_str("9007199254740991").expect("a number");
        assert_eq!(large, IntOrString::Int(9_007_199_254_740_991));
        let quoted: IntOrString = serde_json::from_str("\"42\"").expect("a string");
        assert_eq!(quoted.to_string(), "42");
        assert_eq!(serde_json::to_string(&quoted).expect("serializes"), "\"42\"");
    }
}
