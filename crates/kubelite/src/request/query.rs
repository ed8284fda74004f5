//! A query string, read the way Go's `url.Query` and the `queryparams` conversions read it.

use std::num::IntErrorKind;

use percent_encoding::percent_decode_str;

use crate::error::ApiError;

/// More parameters than all option types together have, several times over.
const MAX_PARAMETERS: usize = 64;

/// The decoded parameters, in order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(raw: Option<&str>) -> Result<Self, ApiError> {
        let mut pairs = Vec::new();
        // Go drops parameters with a semicolon, so that proxies cannot disagree about where they end.
        for pair in raw
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'))
        {
            if pairs.len() == MAX_PARAMETERS {
                return Err(ApiError::bad_request(format!(
                    "the request has more than {MAX_PARAMETERS} query parameters"
                )));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((decode(name), decode(value)));
        }
        Ok(Self(pairs))
    }

    /// The first value of a parameter.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// A boolean: absent, or false when it says `0` or `false`, or true for any other value, also an empty one.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.first(name)
            .map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    pub fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.first(name)
            .map(|value| {
                value
                    .parse::<i64>()
                    .map_err(|error| ApiError::bad_request(parse_error("ParseInt", value, *error.kind())))
            })
            .transpose()
    }
}

fn decode(text: &str) -> String {
    if text.contains('+') {
        percent_decode_str(&text.replace('+', " "))
            .decode_utf8_lossy()
            .into_owned()
    } else {
        percent_decode_str(text).decode_utf8_lossy().into_owned()
    }
}

/// The text of Go's `strconv.NumError`.
pub(super) fn parse_error(function: &str, value: &str, kind: IntErrorKind) -> String {
    let why = match kind {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {value:?}: {why}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_decoded_and_the_first_one_counts() {
        let query = Query::parse(Some("a=1&a=2&b=x+y%2Cz&c&bad;=1&=e")).unwrap();
        assert_eq!(query.first("a"), Some("1"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.first("b"), Some("x y,z"));
        assert_eq!(query.first("c"), Some(""));
        assert_eq!(query.first("bad"), None);
        assert_eq!(Query::parse(None).unwrap(), Query::default());
    }

    #[test]
    fn bad_numbers_are_refused_in_the_words_of_strconv() {
        let query = Query::parse(Some("a=x&b=99999999999999999999&c=-3&d=")).unwrap();
        let message = |name| query.integer(name).unwrap_err().message;
        assert_eq!(message("a"), "strconv.ParseInt: parsing \"x\": invalid syntax");
        assert_eq!(
            message("b"),
            "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"
        );
        assert_eq!(message("d"), "strconv.ParseInt: parsing \"\": invalid syntax");
        assert_eq!(query.integer("c"), Ok(Some(-3)));
        assert_eq!(query.integer("e"), Ok(None));
    }

    #[test]
    fn the_number_of_parameters_is_bounded() {
        assert!(Query::parse(Some(&"a=1&".repeat(MAX_PARAMETERS))).is_ok());
        assert!(Query::parse(Some(&"a=1&".repeat(MAX_PARAMETERS + 1))).is_err());
    }

    proptest! {
        #[test]
        fn no_query_panics(raw in "\\PC{0,80}") {
            if let Ok(query) = Query::parse(Some(&raw)) {
                let _ = (query.flag("watch"), query.integer("limit"));
            }
        }
    }
}
