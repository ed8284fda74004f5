//! Small value types that several kinds share: whole numbers, timestamps, free-form objects, numbers that may be strings.
//!
//! They read whatever the API server can have stored, which is more than the schema says: one object that cannot be read
//! would make every list that contains it unreadable.

use std::{borrow::Cow, fmt};

use jiff::{fmt::temporal::Pieces, tz::Offset};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, DeserializeOwned, Visitor},
};
use serde_json::{Map, Value};

/// A point in time, `format: date-time` in the schema, with the precision it was written with.
///
/// What the API server lets through as `date-time` is wider than what is one: fields of this type are read with
/// `if_legible`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Timestamp(pub jiff::Timestamp);

impl Timestamp {
    /// Reads a time. One without an offset is in UTC, and one that is too far away is the farthest there is: people
    /// write the last day of the year 9999 for "never".
    pub fn parse(text: &str) -> Result<Self, jiff::Error> {
        let pieces = Pieces::parse(text)?;
        let civil = pieces.date().to_datetime(pieces.time().unwrap_or_default());
        let offset = pieces.to_numeric_offset().unwrap_or(Offset::UTC);
        let farthest = if civil.year() > 0 {
            jiff::Timestamp::MAX
        } else {
            jiff::Timestamp::MIN
        };
        Ok(Self(offset.to_timestamp(civil).unwrap_or(farthest)))
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

/// Reads a value that makes no sense as an absent one.
///
/// The API server admits a list wherever the schema says `type: string` with a `format`, and its idea of `date-time` ends
/// at the shape of the text.
pub(crate) fn if_legible<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: DeserializeOwned,
    D: Deserializer<'de>,
{
    let value = Value::deserialize(deserializer)?;
    Ok(T::deserialize(value).ok())
}

/// Reads any number as the nearest whole one, without its fraction.
fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    struct AnyNumber;

    impl Visitor<'_> for AnyNumber {
        type Value = i64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number")
        }

        fn visit_i64<E>(self, number: i64) -> Result<i64, E> {
            Ok(number)
        }

        fn visit_u64<E>(self, number: u64) -> Result<i64, E> {
            Ok(i64::try_from(number).unwrap_or(i64::MAX))
        }

        #[expect(
            clippy::cast_possible_truncation,
            reason = "the cast drops the fraction and stops at the bounds, as is wanted"
        )]
        fn visit_f64<E>(self, number: f64) -> Result<i64, E> {
            Ok(number as i64)
        }
    }

    // Not `deserialize_i64`, which refuses `5.0` where the value was buffered for the sake of a flattened field.
    deserializer.deserialize_any(AnyNumber)
}

/// Defines a whole number of a certain width.
///
/// The API server does not hold numbers to the `format` of the schema, and takes `5.0` for an integer. So a number that
/// is out of range is read as the nearest one within, and the fraction of a float is dropped.
macro_rules! whole_number {
    ($(#[$meta:meta])* $name:ident($int:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name($int);

        impl $name {
            /// The number.
            pub const fn get(self) -> $int {
                self.0
            }
        }

        impl From<$int> for $name {
            fn from(number: $int) -> Self {
                Self(number)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let number = whole_number(deserializer)?;
                let nearest = if number < 0 { <$int>::MIN } else { <$int>::MAX };
                Ok(Self(number.try_into().unwrap_or(nearest)))
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$int>::json_schema(generator)
            }
        }
    };
}

whole_number! {
    /// A whole number of 32 bits, `format: int32` in the schema.
    Int32(i32)
}

whole_number! {
    /// A whole number of 64 bits, `format: int64` in the schema.
    Int64(i64)
}

/// A number or a string that holds one. Forges show their ids as numbers, and people quote them.
///
/// Kubernetes' own type of this name holds 32 bits, which is too few for ids that grow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    Int(#[serde(deserialize_with = "whole_number")] i64),
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
    fn times_are_read_in_every_spelling() {
        let utc = Timestamp::parse("2026-02-07T12:00:00.250Z").expect("UTC");
        for same in [
            "2026-02-07T14:00:00.250+02:00",
            "2026-02-07T12:00:00.250",
            "2026-02-07t12:00:00.250z",
            "2026-02-07T12:00:00,25-00:00",
        ] {
            assert_eq!(Timestamp::parse(same).expect(same), utc, "{same}");
        }
        assert_eq!(utc.to_string(), "2026-02-07T12:00:00.25Z");
        assert!(serde_json::from_str::<Timestamp>("\"yesterday\"").is_err());
    }

    #[test]
    fn a_time_too_far_away_is_the_farthest_there_is() {
        for never in ["9999-12-31T23:59:59Z", "9999-12-30T23:59:59-23:59"] {
            assert_eq!(
                Timestamp::parse(never).expect(never).0,
                jiff::Timestamp::MAX,
                "{never}"
            );
        }
        let past = Timestamp::parse("-009999-01-01T00:00:00+23:59").expect("a time");
        assert_eq!(past.0, jiff::Timestamp::MIN);
    }

    #[test]
    fn a_time_that_makes_no_sense_is_absent() {
        #[derive(Deserialize)]
        struct Status {
            #[serde(default, deserialize_with = "if_legible")]
            at: Option<Timestamp>,
        }
        let at = |text: &str| serde_json::from_str::<Status>(text).expect(text).at;
        assert_eq!(
            at(r#"{"at": "1970-01-01T00:00:00Z"}"#),
            Some(Timestamp(jiff::Timestamp::UNIX_EPOCH))
        );
        for nothing in [
            r"{}",
            r#"{"at": null}"#,
            r#"{"at": ["noon"]}"#,
            r#"{"at": "2026-02-07T12:00:00+99:99"}"#,
        ] {
            assert_eq!(at(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn every_number_is_read_as_the_nearest_whole_one() {
        for (text, narrow, wide) in [
            ("7", 7, 7),
            ("5.0", 5, 5),
            ("-0.0", 0, 0),
            ("2.0000000001", 2, 2),
            ("-2.9", -2, -2),
            ("9999999999", i32::MAX, 9_999_999_999),
            ("-9999999999", i32::MIN, -9_999_999_999),
            ("18446744073709551615", i32::MAX, i64::MAX),
            ("1e300", i32::MAX, i64::MAX),
            ("-1e300", i32::MIN, i64::MIN),
        ] {
            let read: (Int32, Int64) =
                serde_json::from_str(&format!("[{text}, {text}]")).expect("any number is accepted");
            assert_eq!((read.0.get(), read.1.get()), (narrow, wide), "{text}");
        }
        assert!(serde_json::from_str::<Int32>("\"5\"").is_err());
        assert_eq!(serde_json::to_string(&Int32::from(-3)).expect("serializes"), "-3");
    }

    #[test]
    fn large_ids_are_numbers_or_strings() {
        let large: IntOrString = serde_json::from_str("9007199254740991").expect("a number");
        assert_eq!(large, IntOrString::Int(9_007_199_254_740_991));
        let float: IntOrString = serde_json::from_str("42.0").expect("a number");
        assert_eq!(float, IntOrString::Int(42));
        let quoted: IntOrString = serde_json::from_str("\"42\"").expect("a string");
        assert_eq!(quoted.to_string(), "42");
        assert_eq!(serde_json::to_string(&quoted).expect("serializes"), "\"42\"");
    }
}
