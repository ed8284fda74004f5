//! Enums whose variants are public strings, and which never fail to read a stored object.
//!
//! An object may have been written by an older or a newer version. A word that this version does not know must neither
//! stop a watch nor be lost when the object is written again, so each enum has a variant `Other` that keeps it.

use std::fmt;

/// A word that none of the enum's variants stands for. Only reading can make one, so `Other` never hides a known word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unrecognised(String);

impl Unrecognised {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The word as it was stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Unrecognised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Defines an enum of public strings. A variant without `= "text"` stands for its own name.
///
/// `open` leaves the schema a plain string, for words that only controllers write or that may grow; `closed` lists the
/// words in the schema, so that the API server refuses others at the door.
macro_rules! string_enum {
    ($(#[$meta:meta])* $mode:ident enum $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident $(= $text:literal)?),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
            /// A word of another version, kept as it was stored.
            Other($crate::strings::Unrecognised),
        }

        impl $name {
            /// Every word this version knows, in the order of the definition.
            pub const KNOWN: &'static [Self] = &[$(Self::$variant),+];

            /// The public string.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $crate::strings::string_enum!(@text $variant $($text)?),)+
                    Self::Other(other) => other.as_str(),
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($crate::strings::string_enum!(@text $variant $($text)?) => Self::$variant,)+
                    other => Self::Other($crate::strings::Unrecognised::new(other)),
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <::std::borrow::Cow<'de, str> as ::serde::Deserialize>::deserialize(deserializer)
                    .map(|text| Self::from(text.as_ref()))
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $crate::strings::string_enum!(@schema $mode Self)
            }
        }
    };
    (@text $variant:ident) => { stringify!($variant) };
    (@text $variant:ident $text:literal) => { $text };
    (@schema open $name:ty) => { ::schemars::json_schema!({ "type": "string" }) };
    (@schema closed $name:ty) => {
        ::schemars::json_schema!({ "type": "string", "enum": <$name>::KNOWN })
    };
}

pub(crate) use string_enum;

#[cfg(test)]
mod tests {
    use crate::{agents::agent_run::VcsMode, phase::RunPhase};

    #[test]
    fn known_words_and_variants_are_two_forms_of_one_thing() {
        for mode in VcsMode::KNOWN {
            assert_eq!(&VcsMode::from(mode.as_str()), mode);
        }
        assert_eq!(VcsMode::from("read-write"), VcsMode::ReadWrite);
        assert_eq!(RunPhase::Pending.to_string(), "Pending");
    }

    #[test]
    fn unknown_words_survive_a_round_trip() {
        let read: RunPhase = serde_json::from_str("\"Hibernating\"").expect("any string is accepted");
        assert!(matches!(&read, RunPhase::Other(word) if word.as_str() == "Hibernating"));
        assert_eq!(
            serde_json::to_string(&read).expect("serializes"),
            "\"Hibernating\""
        );
    }

    #[test]
    fn words_with_escapes_are_read_too() {
        let read: RunPhase = serde_json::from_str(r#""F\u0061iled""#).expect("an escaped string is a string");
        assert_eq!(read, RunPhase::Failed);
    }
}
