//! What a label's key and value may be made of, and what Kubernetes says when they are not.

/// The longest name part of a key, and the longest value.
const MAX_NAME_BYTES: usize = 63;
/// The longest prefix of a key: a DNS subdomain.
const MAX_PREFIX_BYTES: usize = 253;

const KEY_PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const KEY_EXAMPLES: &str = "'MyName',  or 'my.name',  or '123-abc', ";

/// Everything that is wrong with a label's key; nothing when it is a good one.
pub fn label_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut parts = key.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(prefix), Some(name), None) => {
            prefix_problems(prefix, &mut problems);
            name
        }
        (Some(name), None, _) => name,
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                pattern_problem(KEY_RULE, KEY_EXAMPLES, KEY_PATTERN)
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_NAME_BYTES {
        problems.push(format!("name part must be no more than {MAX_NAME_BYTES} bytes"));
    }
    if !is_name(name) {
        problems.push(format!(
            "name part {}",
            pattern_problem(KEY_RULE, KEY_EXAMPLES, KEY_PATTERN)
        ));
    }
    problems
}

/// Everything that is wrong with a label's value; nothing when it is a good one.
pub fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > MAX_NAME_BYTES {
        problems.push(format!("must be no more than {MAX_NAME_BYTES} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        problems.push(pattern_problem(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character",
            "'MyValue',  or 'my_value',  or '12345', ",
            &format!("({KEY_PATTERN})?"),
        ));
    }
    problems
}

fn prefix_problems(prefix: &str, problems: &mut Vec<String>) {
    if prefix.is_empty() {
        problems.push("prefix part must be non-empty".to_owned());
        return;
    }
    if prefix.len() > MAX_PREFIX_BYTES {
        problems.push(format!(
            "prefix part must be no more than {MAX_PREFIX_BYTES} bytes"
        ));
    }
    if !prefix.split('.').all(is_dns_label) {
        let rule = pattern_problem(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character",
            "'example.com', ",
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        );
        problems.push(format!("prefix part {rule}"));
    }
}

fn pattern_problem(rule: &str, examples: &str, pattern: &str) -> String {
    format!("{rule} (e.g. {examples}regex used for validation is '{pattern}')")
}

fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    has_shape(text, inner, |byte| byte.is_ascii_alphanumeric())
}

fn is_dns_label(text: &str) -> bool {
    let end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    has_shape(text, |byte| end(byte) || byte == b'-', end)
}

/// Not empty, made of `inner` bytes, and beginning and ending with an `end` byte.
fn has_shape(text: &str, inner: impl Fn(u8) -> bool, end: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => end(*first) && end(*last) && bytes.iter().all(|byte| inner(*byte)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_a_name_with_an_optional_dns_prefix() {
        for key in ["a", "A.b_c-9", "example.com/a", "a.b-c.d/E", &"a".repeat(63)] {
            assert!(label_key_problems(key).is_empty(), "{key}");
        }
        for key in [
            "",
            "-a",
            "a-",
            "a b",
            "/a",
            "a/",
            "a/b/c",
            "A.b/c",
            "a..b/c",
            "é",
            &"a".repeat(64),
        ] {
            assert!(!label_key_problems(key).is_empty(), "{key}");
        }
    }

    #[test]
    fn values_may_be_empty() {
        for value in ["", "a", "1.2_3-x"] {
            assert!(label_value_problems(value).is_empty(), "{value}");
        }
        for value in ["-", "a b", "a/b", "ü", &"a".repeat(64)] {
            assert!(!label_value_problems(value).is_empty(), "{value}");
        }
    }
}
