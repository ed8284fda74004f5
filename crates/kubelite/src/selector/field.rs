//! Field selectors: `metadata.name=web,status.phase!=Running`.

use std::{borrow::Cow, fmt};

use crate::selector::{MAX_REQUIREMENTS, SelectorError, check_length};

/// One term: a field that must, or must not, have a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Term {
    pub field: String,
    pub equal: bool,
    pub value: String,
}

/// Terms that must all hold. The empty selector matches everything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        check_length(text)?;
        let mut parts = split_unescaped(text);
        parts.sort_unstable();
        let mut terms = Vec::with_capacity(parts.len());
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            if terms.len() == MAX_REQUIREMENTS {
                return Err(SelectorError::TooMany);
            }
            let (field, equal, value) = split_term(part).ok_or_else(|| SelectorError::Term {
                selector: text.to_owned(),
                part: part.to_owned(),
            })?;
            terms.push(Term {
                field: field.to_owned(),
                equal,
                value: unescape(value)?,
            });
        }
        Ok(Self { terms })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The error of the first field that the kind does not let one select by.
    pub fn check_fields(&self, supported: impl Fn(&str) -> bool) -> Result<(), SelectorError> {
        match self.terms.iter().find(|term| !supported(&term.field)) {
            Some(term) => Err(SelectorError::UnsupportedField(term.field.clone())),
            None => Ok(()),
        }
    }

    /// The only value that a field may have, when the selector demands one.
    pub fn requires_exact(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.equal && term.field == field)
            .map(|term| term.value.as_str())
    }

    /// Whether an object, given by a way to look up its fields, satisfies every term. A field it lacks counts as empty.
    pub fn matches<'v>(&self, lookup: impl Fn(&str) -> Option<Cow<'v, str>>) -> bool {
        self.terms.iter().all(|term| {
            let found = lookup(&term.field);
            (found.as_deref().unwrap_or_default() == term.value) == term.equal
        })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, term) in self.terms.iter().enumerate() {
            let comma = if position > 0 { "," } else { "" };
            let operator = if term.equal { "=" } else { "!=" };
            let value = term
                .value
                .replace('\\', "\\\\")
                .replace(',', "\\,")
                .replace('=', "\\=");
            write!(f, "{comma}{}{operator}{value}", term.field)?;
        }
        Ok(())
    }
}

/// Splits at the commas that no backslash protects.
fn split_unescaped(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|character| {
        let splits = character == ',' && !escaped;
        escaped = character == '\\' && !escaped;
        splits
    })
    .collect()
}

/// The field, whether it must be equal, and the value, split at the first operator.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let (left, right) = term.split_once('=')?;
    Some(match left.strip_suffix('!') {
        Some(field) => (field, false, right),
        None => (left, true, right.strip_prefix('=').unwrap_or(right)),
    })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                Some(other) => return Err(SelectorError::Escape(format!("\\{other}"))),
                None => return Err(SelectorError::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(SelectorError::Unescaped(u32::from(character))),
            other => plain.push(other),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn selectors_are_read_and_printed() {
        for (text, canonical) in [
            ("", ""),
            (",", ""),
            ("a=b", "a=b"),
            ("a==b", "a=b"),
            ("a!=b", "a!=b"),
            ("c!=d,a=b,", "a=b,c!=d"),
            ("a=", "a="),
            ("a=x\\,y\\=z\\\\", "a=x\\,y\\=z\\\\"),
            ("a!b=c", "a!b=c"),
        ] {
            let parsed = FieldSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(parsed.to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_kubernetes() {
        for (text, message) in [
            ("a=b,foo", "invalid selector: 'a=b,foo'; can't understand 'foo'"),
            (
                "a===b",
                "invalid field selector: unescaped character in value: 61",
            ),
            ("a=b\\x", "invalid field selector: invalid escape sequence: \\x"),
            ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
        ] {
            let error = FieldSelector::parse(text).expect_err(text);
            assert_eq!(error.to_string(), message, "{text}");
        }
        let selector = FieldSelector::parse("metadata.name=a,spec.foo=b").expect("a selector");
        let error = selector
            .check_fields(|field| field == "metadata.name")
            .expect_err("spec.foo");
        assert_eq!(error.to_string(), "field label not supported: spec.foo");
        assert_eq!(crate::error::ApiError::from(error).code.as_u16(), 400);
    }

    #[test]
    fn objects_match_by_their_fields() {
        let lookup = |field: &str| match field {
            "metadata.name" => Some(Cow::Borrowed("web")),
            "spec.count" => Some(Cow::Owned(7.to_string())),
            _ => None,
        };
        for (text, matches) in [
            ("", true),
            ("metadata.name=web", true),
            ("metadata.name!=web", false),
            ("metadata.name=web,spec.count=7", true),
            ("metadata.name=web,spec.count=8", false),
            ("spec.none=", true),
            ("spec.none!=", false),
            ("spec.none!=x", true),
        ] {
            let selector = FieldSelector::parse(text).expect(text);
            assert_eq!(selector.matches(lookup), matches, "{text}");
        }
    }

    #[test]
    fn an_exact_demand_is_found() {
        let selector = FieldSelector::parse("metadata.name=web,a!=b").expect("a selector");
        assert_eq!(selector.requires_exact("metadata.name"), Some("web"));
        assert_eq!(selector.requires_exact("a"), None);
        assert_eq!(selector.requires_exact("c"), None);
    }

    #[test]
    fn endless_selectors_are_refused() {
        let many = vec!["a=b"; MAX_REQUIREMENTS + 1].join(",");
        assert_eq!(FieldSelector::parse(&many), Err(SelectorError::TooMany));
        let long = "a".repeat(crate::selector::MAX_BYTES + 1);
        assert_eq!(FieldSelector::parse(&long), Err(SelectorError::TooLong));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in any::<String>(), symbols in "[a=!,\\\\é]{0,12}") {
            let _ = FieldSelector::parse(&text);
            let _ = FieldSelector::parse(&symbols);
        }

        #[test]
        fn any_value_survives_printing_and_reading(value in any::<String>()) {
            let selector = FieldSelector { terms: vec![Term { field: "a".to_owned(), equal: true, value }] };
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
        }
    }
}
