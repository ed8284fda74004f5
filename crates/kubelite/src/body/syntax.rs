//! JSON syntax errors in the words of Go's `encoding/json`, which clients of Kubernetes are used to.

use serde_json::error::Category;

/// What Go would say about this error. Where the parsers differ too much, serde_json's own words remain.
pub fn go_json_message(error: &serde_json::Error, bytes: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = error.to_string();
    if error.classify() != Category::Syntax {
        return text;
    }
    let Some((character, before)) = culprit(error, bytes) else {
        return text;
    };
    let state = if text.starts_with("expected value") {
        "looking for beginning of value".to_owned()
    } else if text.starts_with("key must be a string") {
        "looking for beginning of object key string".to_owned()
    } else if text.starts_with("expected `:`") {
        "after object key".to_owned()
    } else if text.starts_with("expected `,` or `}`") {
        "after object key:value pair".to_owned()
    } else if text.starts_with("expected `,` or `]`") {
        "after array element".to_owned()
    } else if text.starts_with("trailing characters") {
        "after top-level value".to_owned()
    } else if text.starts_with("trailing comma") {
        let looked_for = if character == "'}'" {
            "object key string"
        } else {
            "value"
        };
        format!("looking for beginning of {looked_for}")
    } else if text.starts_with("control character") {
        "in string literal".to_owned()
    } else if text.starts_with("invalid escape") {
        "in string escape code".to_owned()
    } else if text.starts_with("invalid number") {
        "in numeric literal".to_owned()
    } else if text.starts_with("expected ident") {
        match literal(before) {
            Some((word, expected)) => format!("in literal {word} (expecting '{expected}')"),
            None => return text,
        }
    } else {
        return text;
    };
    format!("invalid character {character} {state}")
}

/// The character the parser stumbled over, quoted, and what precedes it.
fn culprit<'a>(error: &serde_json::Error, bytes: &'a [u8]) -> Option<(String, &'a [u8])> {
    let lines_before = bytes
        .split(|byte| *byte == b'\n')
        .take(error.line().checked_sub(1)?);
    let line_start: usize = lines_before.map(|line| line.len() + 1).sum();
    let position = line_start + error.column().checked_sub(1)?;
    let (before, rest) = bytes.split_at_checked(position)?;
    let rest = rest.get(..4).unwrap_or(rest);
    let character = match std::str::from_utf8(rest) {
        Ok(text) => text.chars().next()?,
        Err(error) => std::str::from_utf8(rest.get(..error.valid_up_to())?)
            .ok()?
            .chars()
            .next()
            .unwrap_or(char::REPLACEMENT_CHARACTER),
    };
    let quoted = match character {
        '\'' => "'\\''".to_owned(),
        '"' => "'\"'".to_owned(),
        other => format!("{other:?}"),
    };
    Some((quoted, before))
}

/// Which literal was begun, and which character would have continued it.
fn literal(before: &[u8]) -> Option<(&'static str, char)> {
    ["true", "false", "null"].into_iter().find_map(|word| {
        (1..word.len()).rev().find_map(|length| {
            let begun = word.get(..length)?;
            if !before.ends_with(begun.as_bytes()) {
                return None;
            }
            Some((word, word.chars().nth(length)?))
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn message(text: &str) -> String {
        go_json_message(&serde_json::from_str::<Value>(text).unwrap_err(), text.as_bytes())
    }

    #[test]
    fn errors_read_as_in_go() {
        let cases = [
            ("", "unexpected end of JSON input"),
            ("{\"a\": [1,", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            (
                "{\"a\":x}",
                "invalid character 'x' looking for beginning of value",
            ),
            (
                "{\n\"a\":\n é}",
                "invalid character 'é' looking for beginning of value",
            ),
            (
                "{a:1}",
                "invalid character 'a' looking for beginning of object key string",
            ),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            (
                "{\"a\":1 \"b\"}",
                "invalid character '\"' after object key:value pair",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            (
                "{\"a\":1,}",
                "invalid character '}' looking for beginning of object key string",
            ),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("\"a\\xb\"", "invalid character 'x' in string escape code"),
        ];
        for (text, expected) in cases {
            assert_eq!(message(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_error_panics(bytes in prop::collection::vec(any::<u8>(), 0..40), text in "[\\[\\]{}:,\"a\\\\ \ntrue0-9.-]{0,40}") {
            for bytes in [bytes.as_slice(), text.as_bytes()] {
                if let Err(error) = serde_json::from_slice::<Value>(bytes) {
                    prop_assert!(!go_json_message(&error, bytes).is_empty());
                }
            }
        }
    }
}
